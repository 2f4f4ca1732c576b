"""The densities: normal numbers in order, mixtures that are drawn as they are dense, and where they begin."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp
from scipy.stats import kstest, norm

from training.models.autoregressive.networks import (
    CellDensity,
    ShareDensity,
    TotalsDensity,
    _mixture,
    draw_mixture,
    log_mixture,
)
from training.models.randomness import box_muller

_GRID = np.linspace(-14, 14, 5601).astype(np.float32)


def _uneven(weights: list[tf.Variable], size: float) -> None:
    """Weights as far from their first ones as training might bring them."""
    rng = np.random.default_rng(2)
    for weight in weights:
        weight.assign(weight + size * rng.normal(size=weight.shape))


@pytest.fixture
def density() -> TotalsDensity:
    keras.utils.set_random_seed(1)
    return TotalsDensity(5, 2, 3, width=6, components=4)


def _inputs(rows: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Totals, layers that are there, labels."""
    rng = np.random.default_rng(7)
    normal, labels = (tf.constant(rng.normal(size=(rows, number)), tf.float32) for number in (5, 3))
    return normal, tf.constant(rng.integers(0, 2, (rows, 2)), tf.float32), labels


def test_a_total_is_told_of_those_before_it_and_of_the_labels_alone(density: TotalsDensity) -> None:
    _uneven(density.trainable_weights, 0.3)
    normal, there, labels = _inputs(8)
    usual = density.log_density(normal, there, labels).numpy()
    for j in range(5):
        moved = density.log_density(normal + tf.one_hot(j, 5), there, labels).numpy()
        differs = (np.abs(moved - usual) > 1e-5).any(0)
        np.testing.assert_array_equal(differs, np.arange(5) >= j)
    assert (np.abs(density.log_density(normal, there, labels + 1.0) - usual) > 1e-5).any(0).all()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_totals_are_in_full_precision_whatever_the_layers_are(density: TotalsDensity, policy: str) -> None:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        short = TotalsDensity(5, 2, 3, width=6, components=4)
    finally:
        keras.config.set_dtype_policy(before)
    short.set_weights(density.get_weights())
    normal, there, labels = _inputs(8)
    np.testing.assert_array_equal(short.log_density(normal, there, labels), density.log_density(normal, there, labels))
    prior = tf.zeros(2)
    np.testing.assert_array_equal(short.log_presence(there, labels, prior), density.log_presence(there, labels, prior))


def test_totals_begin_near_the_standard_normal(density: TotalsDensity) -> None:
    normal, there, labels = _inputs(500)
    found = density.log_density(normal, there, labels).numpy()
    inside = np.abs(normal) < 2.5
    assert np.abs(found - norm.logpdf(normal))[inside].max() < 0.25
    assert abs((found - norm.logpdf(normal)).mean()) < 0.05


def test_the_density_of_each_total_integrates_to_one(density: TotalsDensity) -> None:
    _uneven(density.trainable_weights, 0.3)
    normal, there, labels = _inputs(1)
    for k in range(5):
        known = np.repeat(normal.numpy(), len(_GRID), 0)
        known[:, k] = _GRID
        found = np.exp(
            density.log_density(
                tf.constant(known), *(tf.repeat(each, len(_GRID), 0) for each in (there, labels))
            ).numpy()[:, k]
        )
        assert np.trapezoid(found.astype(np.float64), _GRID) == pytest.approx(1, abs=2e-3)


def test_totals_are_drawn_from_their_density(density: TotalsDensity) -> None:
    """Each at its place in its own cumulative density, which has to be uniform; the first, whose density is one."""
    _uneven(density.trainable_weights, 0.3)
    rows = 2000
    _, _, labels = _inputs(1)
    labels = tf.repeat(labels, rows, 0)
    noise = np.random.default_rng(5).random((3, rows, 5)).astype(np.float32)
    there, normal = tf.ones([rows, 2]), box_muller(tf.constant(noise[1]), tf.constant(noise[2]))[0]
    drawn = density.sample(there, tf.ones([rows, 5]), labels, tf.constant(noise[0]), normal)
    known = tf.concat([drawn, there - 1, labels], 1)
    mixtures = _mixture(density._values(known, tf.range(5)))  # of those drawn before
    weights, means, widths = (np.moveaxis(each.numpy().astype(np.float64), 0, 1) for each in mixtures)
    placed = (np.exp(weights) * norm.cdf((drawn.numpy()[..., None] - means) / np.exp(widths))).sum(-1)
    for k in range(5):
        assert kstest(placed[:, k], "uniform").pvalue > 1e-3
    assert np.abs(np.corrcoef(placed.T) - np.eye(5)).max() < 5 / np.sqrt(rows)


def test_layers_are_drawn_as_often_as_they_are_likely(density: TotalsDensity) -> None:
    """Each of the four pairs of layers, of which none at all becomes the first alone; at uneven prior odds."""
    _uneven(density.trainable_weights, 0.3)
    rows, prior = 20_000, tf.constant([0.4, -0.9])
    _, _, labels = _inputs(1)
    labels = tf.repeat(labels, rows, 0)
    choice = tf.constant(np.random.default_rng(4).random((rows, 2)), tf.float32)
    drawn = density.sample_presence(labels, prior, choice).numpy()
    pairs = np.array([(0, 0), (0, 1), (1, 0), (1, 1)], np.float32)
    likely = np.exp(density.log_presence(tf.constant(pairs), labels[:4], prior).numpy().astype(np.float64))
    assert likely.sum() == pytest.approx(1, abs=1e-5)
    likely[2] += likely[0]
    for pair, expected in list(zip(pairs, likely, strict=True))[1:]:
        found = (drawn == pair).all(1).mean()
        assert abs(found - expected) < 4.5 * np.sqrt(expected * (1 - expected) / rows)
    assert not (drawn == 0).all(1).any()


def test_totals_that_are_not_known_are_zero(density: TotalsDensity) -> None:
    noise = tf.constant(np.random.default_rng(3).normal(size=(50, 5)), tf.float32)
    known = tf.constant(np.random.default_rng(2).integers(0, 2, (50, 5)), tf.float32)
    drawn = density.sample(tf.ones([50, 2]), known, tf.zeros([50, 3]), tf.zeros([50, 5]) + 0.5, noise).numpy()
    np.testing.assert_array_equal(drawn == 0, known.numpy() == 0)


def test_the_density_of_a_share_integrates_to_one() -> None:
    keras.utils.set_random_seed(1)
    density = ShareDensity(4, width=6, components=6)
    _uneven(density.trainable_weights, 0.1)
    mixture = density.mixture(tf.constant(np.random.default_rng(3).normal(size=(3, 4)), tf.float32))
    for row in range(3):
        found = np.exp(log_mixture(tf.constant(_GRID), *(each[row : row + 1] for each in mixture)).numpy())
        assert np.trapezoid(found.astype(np.float64), _GRID) == pytest.approx(1, abs=2e-3)


def test_a_mixture_is_drawn_as_it_is_dense() -> None:
    weights = np.log(np.array([0.5, 0.05, 0.45], np.float32))
    means, widths = np.array([-2, 0.5, 1.5], np.float32), np.log(np.array([0.3, 2.0, 0.6], np.float32))
    mixture = [tf.constant(each)[None] for each in (weights, means, widths)]
    log_density = log_mixture(tf.constant(_GRID), *mixture).numpy()
    by_hand = logsumexp(
        [w + norm.logpdf(_GRID, m, np.exp(s)) for w, m, s in zip(weights, means, widths, strict=True)], 0
    )
    np.testing.assert_allclose(log_density, by_hand, rtol=1e-4, atol=1e-4)
    cumulative = np.concatenate([[0], np.cumsum((np.exp(log_density[1:]) + np.exp(log_density[:-1])) / 2 * 0.005)])
    assert cumulative[-1] == pytest.approx(1, abs=1e-3)
    rng = np.random.default_rng(6)
    choice, noise = rng.random(5000).astype(np.float32), rng.normal(size=5000).astype(np.float32)
    drawn = draw_mixture(*(tf.repeat(each, 5000, 0) for each in mixture), tf.constant(choice), tf.constant(noise))
    assert kstest(drawn.numpy(), lambda x: np.interp(x, _GRID, cumulative)).pvalue > 1e-3


def test_a_choice_at_the_very_end_takes_the_last_part() -> None:
    """Rounded shares of a mixture may sum to less than the largest uniform number."""
    weights = tf.math.log([[0.1] * 10])
    found = draw_mixture(weights, tf.range(10.0)[None], tf.zeros([1, 10]), tf.constant([1 - 2.0**-24]), tf.zeros([1]))
    assert found.numpy() == [9]


def test_deposits_integrate_to_one_and_heads_of_zero_leave_the_prior() -> None:
    keras.utils.set_random_seed(1)
    density = CellDensity("even", neighbours=7, contexts=4, width=6, depth=2, components=6)
    _uneven(density.trainable_weights, 0.1)
    rng = np.random.default_rng(3)
    known, told = (tf.constant(rng.normal(size=(3, number)), tf.float32) for number in (7, 4))
    hidden = density.hidden(known, density.of_layers(told))
    prior = tf.constant([-3.0, 0.0, 2.0])
    weights, means, widths = density.log_energy(hidden, prior)
    for row in range(3):
        mixture = [each[row : row + 1] for each in (weights, means, widths)]
        found = np.exp(log_mixture(tf.constant(_GRID), *mixture).numpy()).astype(np.float64)
        assert np.trapezoid(found, _GRID) == pytest.approx(1, abs=2e-3)
    assert (np.abs(density.log_odds(hidden, prior) - prior) > 1e-3).any()
    shifted = density.log_energy(hidden, prior + 1.5)
    np.testing.assert_allclose(shifted[1], means + 1.5, rtol=1e-5, atol=1e-5)
    for layer in (density._occupied, density._deposit):
        for weight in layer.trainable_weights:
            weight.assign(tf.zeros_like(weight))
    np.testing.assert_array_equal(density.log_odds(hidden, prior), prior)
    np.testing.assert_allclose(density.log_energy(hidden, prior)[1], np.repeat(prior[:, None], 6, 1), atol=1e-6)
