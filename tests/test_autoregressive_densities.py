"""Densities of numbers, of cells, and of the sharing of a layer's energy, against integrals and drawn samples."""

from __future__ import annotations

from itertools import product
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from likelihoods import uneven
from scipy.special import logit
from scipy.stats import logistic, multivariate_normal, norm

from training.models.autoregressive.densities import (
    ALL,
    BETWEEN,
    NOTHING,
    REACH,
    CellDensity,
    Mixture,
    log_count,
    log_mixture,
    log_share,
    log_shared,
    share_logit,
    share_of,
)
from training.models.autoregressive.sampling.shared_energy import draw_mixture, drawn_count, drawn_share

_ROWS = 40_000
_GRID = np.linspace(-14, 14, 5601).astype(np.float32)


def _mixture(rows: int) -> Mixture:
    """Three components, alike in all rows."""
    parts = (np.log([0.2, 0.5, 0.3]), [-1.5, 0.4, 2.0], [-0.8, 0.2, -2.5])
    return tuple(tf.constant(np.tile(part, (rows, 1)), tf.float32) for part in parts)


def _uniform(columns: int) -> tf.Tensor:
    whole = np.random.default_rng(3).integers(0, 2**24, (_ROWS, columns))
    return tf.constant(whole * 2.0**-24, tf.float32)


def test_nothing_and_all_are_told_from_shares_in_between() -> None:
    even = tf.constant([0.0, 3.0, 1.0, 1e-7, 2.0])
    found = share_logit(even, tf.constant([2.0, 3.0, 4.0, 3.0, 2.0 + 1e-6])).numpy()
    assert found[0] == -REACH
    assert found[1] == REACH
    assert found[2] == pytest.approx(logit(0.25), rel=1e-5)
    assert (np.abs(found[3:]) < REACH).all()
    np.testing.assert_allclose(share_of(found)[:3], [0, 1, 0.25], rtol=1e-6)


def test_shares_are_drawn_as_often_as_they_are_likely() -> None:
    cases = tf.math.log(tf.constant([[0.15, 0.25, 0.6]] * _ROWS))
    drawn = drawn_share(cases, _mixture(_ROWS), _uniform(4)).numpy()
    likely = np.exp(log_share(tf.constant(drawn), cases, _mixture(_ROWS)).numpy())
    for case, edge in ((NOTHING, drawn == -REACH), (ALL, drawn == REACH)):
        chance = float(np.exp(cases[0, case]))
        assert abs(edge.mean() - chance) < 4.5 * np.sqrt(chance / _ROWS)
        np.testing.assert_allclose(likely[edge], chance, rtol=1e-5)
    between = np.abs(drawn) < REACH
    weights, means, widths = (each.numpy()[0].astype(float) for each in _mixture(1))
    grid = np.linspace(-8, 8, 33)
    cumulative = (np.exp(weights) * norm.cdf((grid[:, None] - means) / np.exp(widths))).sum(1)
    found = np.searchsorted(np.sort(drawn[between]), grid) / between.sum()
    assert np.abs(found - cumulative).max() < 2 / np.sqrt(between.sum())
    density = (np.exp(weights) * norm.pdf(drawn[between][:, None], means, np.exp(widths))).sum(1)
    np.testing.assert_allclose(likely[between], float(np.exp(cases[0, BETWEEN])) * density, rtol=1e-3)


@pytest.mark.parametrize("expected", [0.2, 1.0, 4.0, 90.0])
@pytest.mark.parametrize("most", [1, 2, 9, 72, 100_000])
def test_numbers_of_hits_are_drawn_as_often_as_they_are_likely(expected: float, most: int) -> None:
    """Their chances sum to one, and are those of a logistic mixture of the logit, cut into bins."""
    numbers = np.arange(1, most + 1)
    given = [tf.fill([most], expected), tf.fill([most], float(most)), _mixture(most)]
    chances = np.exp(log_count(tf.constant(numbers, tf.float32), *given).numpy().astype(float))
    assert chances.sum() == pytest.approx(1, abs=2e-3)
    weights, means, widths = (each.numpy()[0].astype(float) for each in _mixture(1))
    usual = max(min(expected, most) - 0.5, 0.3)
    ends = logit(np.arange(most + 1) / most)[:, None] - np.log(usual / max(most - usual, 0.3))
    exact = np.diff((np.exp(weights) * logistic.cdf((ends - means) / np.exp(widths))).sum(1))
    for few in (slice(5), slice(-1, -5, -1)):
        np.testing.assert_allclose(chances[few], exact[few], rtol=2e-3, atol=1e-7)
    drawn = drawn_count(tf.fill([_ROWS], expected), tf.fill([_ROWS], float(most)), _mixture(_ROWS), _uniform(2)).numpy()
    assert (drawn == np.rint(drawn)).all()
    assert drawn.max() <= most
    edges = np.array([1, 2, 3, 4, 6, 10, 30, 100, 300, 1e9])
    found, _ = np.histogram(drawn, edges)
    likely, _ = np.histogram(numbers, edges, weights=chances)
    assert (np.abs(found / _ROWS - likely) < 4.5 * np.sqrt((likely + 1e-4) / _ROWS)).all()


def test_the_greatest_uniform_number_draws_no_endless_number_of_hits() -> None:
    numbers = tf.constant([[0.1, 1 - 2.0**-24], [0.1, 1 - 2.0**-23]], tf.float32)
    most, before = drawn_count(tf.fill([2], 4.0), tf.fill([2], 1e9), _mixture(2), numbers).numpy()
    assert before <= most < 2 * before


def test_numbers_of_hits_far_from_what_is_expected_have_a_gradient() -> None:
    mixture = [tf.Variable(each) for each in _mixture(4)]
    with tf.GradientTape() as tape:
        numbers, expected = tf.constant([1.0, 2.0, 50.0, 3000.0]), tf.constant([3000.0, 900.0, 1.0, 0.0])
        found = log_count(numbers, expected, tf.fill([4], 1e5), mixture)
    gradients = tape.gradient(found, mixture)
    assert np.isfinite(found).all()
    assert all(np.isfinite(each).all() for each in gradients)
    assert (np.abs(gradients[1]).max(1) > 0.1).all()


def _exact(logs: Any, parts: Any) -> float:
    """log p of the differences to the last score, summed over all choices of components: normal, of common variance."""
    weights, means, widths = (each.astype(float) for each in parts)
    total = 0.0
    for choice in product(range(weights.shape[1]), repeat=len(logs)):
        weight, mean, variance = (each[range(len(logs)), choice] for each in (weights, means, np.exp(2 * widths)))
        spread = np.diag(variance[:-1]) + variance[-1]
        ratios = multivariate_normal(mean[:-1] - mean[-1], spread).pdf(logs[:-1] - logs[-1]) if len(logs) > 1 else 1.0
        total += np.exp(weight.sum()) * ratios
    return float(np.log(total))


def test_deposits_that_share_an_energy_are_as_likely_as_the_differences_of_their_scores() -> None:
    """For groups of one to five hits, with rows in any order; some rows do not count."""
    rng = np.random.default_rng(11)
    sizes = [1, 2, 2, 3, 5, 4, 2]
    group = np.repeat(np.arange(len(sizes)), sizes)
    rows = len(group)
    weights = rng.random((rows, 2)) + 0.1
    parts = (
        np.log(weights / weights.sum(1, keepdims=True)),
        rng.normal(0, 1.5, (rows, 2)),
        rng.normal(-0.7, 0.4, (rows, 2)),
    )
    logs = rng.normal(0, 1.5, rows)
    expected = [_exact(logs[group == each], [part[group == each] for part in parts]) for each in range(len(sizes))]
    order = rng.permutation(rows + 3)
    padded = [np.concatenate([each, np.zeros((3, *each.shape[1:]))])[order] for each in (logs, *parts)]
    given = [tf.constant(each, tf.float32) for each in padded]
    place = np.concatenate([group, [len(sizes)] * 3])[order].astype(np.int32)
    found = log_shared(given[0], tuple(given[1:]), tf.constant(place), len(sizes)).numpy()
    np.testing.assert_allclose(found, expected, atol=0.02)  # the integrand may have several maxima


def test_deposits_far_from_what_is_likely_have_a_likelihood_and_a_gradient() -> None:
    """The integrand of many hits is narrow, and the sum over steps still finds it."""
    rng = np.random.default_rng(12)
    hits = 400
    means, logs = rng.normal(0, 1, hits), rng.normal(0, 3, hits)
    variance = np.exp(rng.normal(-1, 0.5, hits))
    mean = (1 / variance * (means - logs)).sum() / (1 / variance).sum()
    exact = -0.5 * ((logs + mean - means) ** 2 / variance + np.log(2 * np.pi * variance)).sum()
    exact += 0.5 * np.log(2 * np.pi / (1 / variance).sum())
    mixture = [tf.Variable(each[:, None], dtype=tf.float32) for each in (np.zeros(hits), means, np.log(variance) / 2)]
    with tf.GradientTape() as tape:
        found = log_shared(tf.constant(logs, tf.float32), tuple(mixture), tf.zeros([hits], tf.int32), 1)
    assert float(found[0]) == pytest.approx(exact, rel=1e-4)
    gradient = tape.gradient(found, mixture[1]).numpy()[:, 0]
    np.testing.assert_allclose(gradient, (logs + mean - means) / variance, rtol=1e-3, atol=1e-3)


def test_a_choice_at_the_very_end_takes_the_last_part() -> None:
    """Rounded shares of a mixture may sum to less than the largest uniform number."""
    weights = tf.math.log([[0.1] * 10])
    found = draw_mixture(weights, tf.range(10.0)[None], tf.zeros([1, 10]), tf.constant([1 - 2.0**-24]), tf.zeros([1]))
    assert found.numpy() == [9]


def test_deposits_integrate_to_one_and_heads_of_zero_leave_the_prior() -> None:
    keras.utils.set_random_seed(1)
    density = CellDensity("even", neighbours=7, contexts=4, width=6, depth=2, components=6)
    uneven(density.trainable_weights, 0.1)
    rng = np.random.default_rng(3)
    known, told = (tf.constant(rng.normal(size=(3, number)), tf.float32) for number in (7, 4))
    hidden = density.hidden(known, density.of_layers(told))
    prior = tf.constant([-3.0, 0.0, 2.0])
    weights, means, widths = density.score(hidden, prior)
    for row in range(3):
        mixture = [each[row : row + 1] for each in (weights, means, widths)]
        found = np.exp(log_mixture(tf.constant(_GRID), *mixture).numpy()).astype(np.float64)
        assert np.trapezoid(found, _GRID) == pytest.approx(1, abs=2e-3)
    assert (np.abs(density.log_odds(hidden, prior) - prior) > 1e-3).any()
    shifted = density.score(hidden, prior + 1.5)
    np.testing.assert_allclose(shifted[1], means + 1.5, rtol=1e-5, atol=1e-5)
    for layer in (density._occupied, density._deposit):
        for weight in layer.trainable_weights:
            weight.assign(tf.zeros_like(weight))
    np.testing.assert_array_equal(density.log_odds(hidden, prior), prior)
    np.testing.assert_allclose(density.score(hidden, prior)[1], np.repeat(prior[:, None], 6, 1), atol=1e-6)
