"""How a layer's energy is shared: shares that may be nothing or all, numbers of hits, and the share of a hit."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logit
from scipy.stats import logistic, norm

from training.models.autoregressive.networks import Mixture
from training.models.autoregressive.sharing import (
    ALL,
    BETWEEN,
    NOTHING,
    REACH,
    drawn_count,
    drawn_share,
    hit_logit,
    log_count,
    log_share,
    prior_logit,
    share_logit,
    share_of,
)

_ROWS = 40_000


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
def test_numbers_of_hits_are_drawn_as_often_as_they_are_likely(expected: float) -> None:
    """Their chances sum to one, and are those of a logistic mixture of the logarithm, cut into bins."""
    numbers = np.arange(1, 200_000)
    chances = np.exp(log_count(
        tf.constant(numbers, tf.float32), tf.fill([len(numbers)], expected), _mixture(len(numbers))
    ).numpy().astype(float))  # fmt: skip
    assert chances.sum() == pytest.approx(1, abs=2e-3)  # but for numbers that are larger still
    weights, means, widths = (each.numpy()[0].astype(float) for each in _mixture(1))
    with np.errstate(divide="ignore"):
        ends = np.log(np.arange(6.0))[:, None] - np.log(max(expected - 0.5, 0.3))
    exact = np.diff((np.exp(weights) * logistic.cdf((ends - means) / np.exp(widths))).sum(1))
    np.testing.assert_allclose(chances[:5], exact, rtol=2e-3)
    drawn = drawn_count(tf.fill([_ROWS], expected), _mixture(_ROWS), _uniform(2)).numpy()
    assert (drawn == np.rint(drawn)).all()
    edges = np.array([1, 2, 3, 4, 6, 10, 30, 100, 300, 1e9])
    found, _ = np.histogram(drawn, edges)
    likely, _ = np.histogram(numbers, edges, weights=chances)
    assert (np.abs(found / _ROWS - likely) < 4.5 * np.sqrt((likely + 1e-4) / _ROWS)).all()


def test_the_greatest_uniform_number_draws_no_endless_number_of_hits() -> None:
    numbers = tf.constant([[0.1, 1 - 2.0**-24], [0.1, 1 - 2.0**-23]], tf.float32)
    most, before = drawn_count(tf.fill([2], 4.0), _mixture(2), numbers).numpy()
    assert before <= most < 2 * before


def test_numbers_of_hits_far_from_what_is_expected_have_a_gradient() -> None:
    mixture = [tf.Variable(each) for each in _mixture(4)]
    with tf.GradientTape() as tape:
        found = log_count(tf.constant([1.0, 2.0, 50.0, 3000.0]), tf.constant([3000.0, 900.0, 1.0, 0.0]), mixture)
    gradients = tape.gradient(found, mixture)
    assert np.isfinite(found).all()
    assert all(np.isfinite(each).all() for each in gradients)
    assert (np.abs(gradients[1]).max(1) > 0.1).all()


def test_a_hit_has_the_logit_of_its_share() -> None:
    energy, least = tf.constant([4.0, 4.0, 1.0]), tf.constant(1e-3)
    value = tf.constant([1.0, 3.9, 1.0])
    found = hit_logit(value, energy, least).numpy()
    np.testing.assert_allclose(found[:2], logit([0.25, 0.975]), rtol=1e-4)
    assert found[2] == pytest.approx(np.log(1e3), rel=1e-4)
    usual = prior_logit(tf.math.log([1.0, 3.9, 50.0]), energy)
    np.testing.assert_allclose(usual, [logit(0.25), 0, 0], atol=1e-5)
