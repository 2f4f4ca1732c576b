"""The density of the totals: normal numbers in order, drawn as they are dense, and where they begin."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from likelihoods import uneven
from scipy.special import logsumexp
from scipy.stats import kstest, norm

from training.models.autoregressive.densities import draw_mixture, mixture_of
from training.models.autoregressive.totals_density import TotalsDensity
from training.models.randomness import box_muller

_GRID = np.linspace(-14, 14, 5601).astype(np.float32)


_TOTALS, _LAYERS = 11, 7  # more layers than a total is given one by one


@pytest.fixture
def density() -> TotalsDensity:
    return _density()


def _density(totals: int = _TOTALS, layers: int = _LAYERS) -> TotalsDensity:
    keras.utils.set_random_seed(1)
    return TotalsDensity(totals, layers, 3, width=6, components=4)


def _inputs(rows: int, totals: int = _TOTALS, layers: int = _LAYERS) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Totals, layers that are there, labels."""
    rng = np.random.default_rng(7)
    normal, labels = (tf.constant(rng.normal(size=(rows, number)), tf.float32) for number in (totals, 3))
    return normal, tf.constant(rng.integers(0, 2, (rows, layers)), tf.float32), labels


def _mixtures(density: TotalsDensity, values: tf.Tensor, there: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
    """Weights, means, widths (D, N, components) of all totals at once, as in training."""
    of_layers = density._of_layers(values, there, labels, tf.range(density.layers_seen))
    others = density._others(density._known(values, labels), tf.range(density.totals - density.layers_seen))
    return list(mixture_of(tf.concat([of_layers, others], 0)))


@pytest.mark.parametrize(("totals", "layers"), [(_TOTALS, _LAYERS), (4, 1)])
def test_a_total_is_told_of_those_before_it_and_of_the_labels_alone(totals: int, layers: int) -> None:
    density = _density(totals, layers)
    uneven(density.trainable_weights, 0.3)
    normal, there, labels = _inputs(8, totals, layers)
    usual = density.log_density(normal, there, labels).numpy()
    for j in range(totals):
        moved = density.log_density(normal + tf.one_hot(j, totals), there, labels).numpy()
        differs = (np.abs(moved - usual) > 1e-5).any(0)
        np.testing.assert_array_equal(differs, np.arange(totals) >= j)
    assert (np.abs(density.log_density(normal, there, labels + 1.0) - usual) > 1e-5).any(0).all()


def test_a_layer_is_told_which_are_there_after_it(density: TotalsDensity) -> None:
    """Number k, of layer k - 1: of that and of the next two. Number 0 is of the whole shower."""
    uneven(density.trainable_weights, 0.3)
    normal, there, labels = _inputs(8)
    usual = density.log_density(normal, there, labels).numpy()
    for layer in range(_LAYERS):
        other = there + (1 - 2 * there) * tf.one_hot(layer, _LAYERS)
        differs = (np.abs(density.log_density(normal, other, labels).numpy() - usual) > 1e-5).any(0)
        of_layers = [number - 1 <= layer <= number + 1 for number in range(_LAYERS)]
        np.testing.assert_array_equal(differs[:_LAYERS], of_layers)
        assert not differs[_LAYERS:].any()


def test_the_presence_of_a_layer_is_told_of_those_before_it(density: TotalsDensity) -> None:
    uneven(density.trainable_weights, 0.3)
    _, there, labels = _inputs(8)
    choice = tf.constant(np.random.default_rng(3).random((8, _LAYERS)), tf.float32)
    steps = tf.range(_LAYERS)
    for j in range(_LAYERS):
        usual, other = (
            density._presence(tf.concat([each - 1, labels], 1), steps).numpy()[..., 0]
            for each in (there, there + (1 - 2 * there) * tf.one_hot(j, _LAYERS))
        )
        np.testing.assert_array_equal((np.abs(usual - other) > 1e-6).any(1), np.arange(_LAYERS) > j)
    prior = tf.constant(np.linspace(-1, 1, _LAYERS), tf.float32)
    drawn = density.sample_presence(labels, prior, choice)
    odds = tf.transpose(density._presence(tf.concat([drawn - 1, labels], 1), steps)[..., 0]) + prior
    kept = (drawn.numpy() > 0).any(1) & ~((drawn.numpy().sum(1) == 1) & (drawn.numpy()[:, 0] == 1))  # not filled in
    np.testing.assert_array_equal((choice.numpy() < tf.sigmoid(odds).numpy())[kept], drawn.numpy()[kept] > 0)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_totals_are_in_full_precision_whatever_the_layers_are(density: TotalsDensity, policy: str) -> None:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        short = _density()
    finally:
        keras.config.set_dtype_policy(before)
    short.set_weights(density.get_weights())
    normal, there, labels = _inputs(8)
    np.testing.assert_array_equal(short.log_density(normal, there, labels), density.log_density(normal, there, labels))
    prior = tf.zeros(_LAYERS)
    np.testing.assert_array_equal(short.log_presence(there, labels, prior), density.log_presence(there, labels, prior))


def test_totals_begin_near_the_standard_normal(density: TotalsDensity) -> None:
    normal, there, labels = _inputs(500)
    found = density.log_density(normal, there, labels).numpy()
    inside = np.abs(normal) < 2.5
    assert np.abs(found - norm.logpdf(normal))[inside].max() < 0.25
    assert abs((found - norm.logpdf(normal)).mean()) < 0.05


def test_the_density_of_each_total_integrates_to_one(density: TotalsDensity) -> None:
    uneven(density.trainable_weights, 0.3)
    normal, there, labels = _inputs(1)
    grid = 3 * _GRID  # mixtures this uneven reach far
    for k in range(_TOTALS):
        known = np.repeat(normal.numpy(), len(grid), 0)
        known[:, k] = grid
        found = np.exp(
            density.log_density(
                tf.constant(known), *(tf.repeat(each, len(grid), 0) for each in (there, labels))
            ).numpy()[:, k]
        )
        assert np.trapezoid(found.astype(np.float64), grid) == pytest.approx(1, abs=2e-3)


def test_totals_are_drawn_one_after_the_other_from_the_density_of_all(density: TotalsDensity) -> None:
    """Each by the mixture that training gives it of those drawn, with its own numbers; some are not known."""
    uneven(density.trainable_weights, 0.3)
    _, there, labels = _inputs(50)
    rng = np.random.default_rng(5)
    choice = tf.constant(rng.random((50, _TOTALS)), tf.float32)
    normal, known = (
        tf.constant(each, tf.float32) for each in (rng.normal(size=(50, _TOTALS)), rng.random((50, _TOTALS)) < 0.8)
    )
    drawn = density.sample(there, known, labels, choice, normal)
    weights, means, widths = mixtures = _mixtures(density, drawn, there, labels)
    for k in range(_TOTALS):
        expected = draw_mixture(*(each[k] for each in mixtures), choice[:, k], normal[:, k]) * known[:, k]
        np.testing.assert_allclose(drawn[:, k], expected, rtol=1e-4, atol=1e-4)
    weights, means, widths = (np.moveaxis(each.numpy().astype(np.float64), 0, 1) for each in mixtures)
    dense = logsumexp(weights + norm.logpdf(drawn.numpy()[..., None], means, np.exp(widths)), -1)
    np.testing.assert_allclose(density.log_density(drawn, there, labels), dense, rtol=1e-4, atol=1e-4)


def test_totals_are_drawn_from_their_density(density: TotalsDensity) -> None:
    """Each at its place in its own cumulative density, which has to be uniform; the first, whose density is one."""
    uneven(density.trainable_weights, 0.3)
    rows = 2000
    _, _, labels = _inputs(1)
    labels = tf.repeat(labels, rows, 0)
    noise = np.random.default_rng(5).random((3, rows, _TOTALS)).astype(np.float32)
    there, normal = tf.ones([rows, _LAYERS]), box_muller(tf.constant(noise[1]), tf.constant(noise[2]))[0]
    drawn = density.sample(there, tf.ones([rows, _TOTALS]), labels, tf.constant(noise[0]), normal)
    mixtures = _mixtures(density, drawn, there, labels)  # of those drawn before
    weights, means, widths = (np.moveaxis(each.numpy().astype(np.float64), 0, 1) for each in mixtures)
    placed = (np.exp(weights) * norm.cdf((drawn.numpy()[..., None] - means) / np.exp(widths))).sum(-1)
    for k in range(_TOTALS):
        assert kstest(placed[:, k], "uniform").pvalue > 1e-3
    assert np.abs(np.corrcoef(placed.T) - np.eye(_TOTALS)).max() < 5 / np.sqrt(rows)


def test_layers_are_drawn_as_often_as_they_are_likely() -> None:
    """Each of the four pairs of layers, of which none at all becomes the first alone; at uneven prior odds."""
    density = _density(5, 2)
    uneven(density.trainable_weights, 0.3)
    rows, prior = 20_000, tf.constant([0.4, -0.9])
    _, _, labels = _inputs(1, 5, 2)
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
    noise = tf.constant(np.random.default_rng(3).normal(size=(50, _TOTALS)), tf.float32)
    known = tf.constant(np.random.default_rng(2).integers(0, 2, (50, _TOTALS)), tf.float32)
    half = tf.zeros([50, _TOTALS]) + 0.5
    drawn = density.sample(tf.ones([50, _LAYERS]), known, tf.zeros([50, 3]), half, noise).numpy()
    np.testing.assert_array_equal(drawn == 0, known.numpy() == 0)
