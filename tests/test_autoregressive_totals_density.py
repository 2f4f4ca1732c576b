"""The density of the totals: normal numbers in order, drawn by their density, and the density before training."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from likelihoods import uneven
from scipy.special import logsumexp
from scipy.stats import norm

from training.models.autoregressive.densities import mixture_of
from training.models.autoregressive.sampling.shared_energy import draw_mixture
from training.models.autoregressive.sampling.shower import drawn_presence, drawn_totals
from training.models.autoregressive.totals_density import TotalsDensity, ahead, shape
from training.models.precision import arithmetic

_GRID = np.linspace(-14, 14, 5601).astype(np.float32)


_TOTALS, _LAYERS = 12, 8  # more layers than a total is given one by one, and than hats
_OF_FEW_LAYERS = [(_TOTALS, _LAYERS), (5, 2), (4, 1)]


@pytest.fixture
def density() -> TotalsDensity:
    return _density()


def _density(totals: int = _TOTALS, layers: int = _LAYERS) -> TotalsDensity:
    keras.utils.set_random_seed(1)
    return TotalsDensity(totals, layers, 3, width=6, components=4)


def _inputs(rows: int, totals: int = _TOTALS, layers: int = _LAYERS) -> tuple[tf.Tensor, ...]:
    """Totals, the layers with energy, the shares of the layers, labels."""
    rng = np.random.default_rng(7)
    normal, labels = (tf.constant(rng.normal(size=(rows, number)), tf.float32) for number in (totals, 3))
    there = rng.integers(0, 2, (rows, layers))
    there[there.sum(1) == 0, 0] = 1  # no shower is all empty
    there = tf.constant(there, tf.float32)
    return normal, there, _shares(normal, there), labels


def _taken(values: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    return tf.sigmoid(tf.gather(values, number, axis=1))


def _shares(values: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
    """The share of the energy in each layer, if each layer takes `_taken` of the energy that reaches it."""
    left, shares = np.ones(len(there)), np.zeros(there.shape)
    for layer in range(there.shape[1]):
        last = there.numpy()[:, layer + 1 :].sum(1) == 0
        taken = np.where(last, 1, _taken(values, layer)) if layer + 1 < there.shape[1] else 1
        shares[:, layer] = left * taken * there.numpy()[:, layer]
        left = left - shares[:, layer]
    return tf.constant(shares, tf.float32)


def _mixtures(density: TotalsDensity, values: tf.Tensor, there: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
    """Weights, means, widths (D, N, components) of all totals at once, as in training."""
    steps, share = tf.range(density.layers_seen - 1), _shares(values, there)
    of_layers = density.of_layers(values, labels, present=there, share=share, to_come=ahead(there), chosen=steps)
    others = density.of_others(
        values, density.told(values, share, labels), tf.range(density.layers_seen - 1, density.totals)
    )
    return list(mixture_of(tf.concat([of_layers, others], 0)))


@pytest.mark.parametrize(("totals", "layers"), _OF_FEW_LAYERS)
def test_a_total_is_told_of_those_before_it_and_of_the_labels_alone(totals: int, layers: int) -> None:
    density = _density(totals, layers)
    uneven(density.trainable_weights, 0.3)
    normal, there, share, labels = _inputs(8, totals, layers)
    usual = density.log_density(normal, there, share, labels).numpy()
    for j in range(totals):
        moved = density.log_density(normal + tf.one_hot(j, totals), there, share, labels).numpy()
        differs = (np.abs(moved - usual) > 1e-5).any(0)
        np.testing.assert_array_equal(differs, np.arange(totals) >= j)
    assert (np.abs(density.log_density(normal, there, share, labels + 1.0) - usual) > 1e-5).any(0).all()


def test_a_layer_is_told_which_are_there_after_it_and_what_the_four_before_hold(density: TotalsDensity) -> None:
    """The other totals get the energies of all layers."""
    uneven(density.trainable_weights, 0.3)
    normal, there, share, labels = _inputs(8)
    usual = density.log_density(normal, there, share, labels).numpy()
    for layer in range(_LAYERS):
        other = there + (1 - 2 * there) * tf.one_hot(layer, _LAYERS)
        more = share + 0.1 * tf.one_hot(layer, _LAYERS)
        after, before = (
            (np.abs(density.log_density(normal, *given, labels).numpy() - usual) > 1e-5).any(0)
            for given in ((other, share), (there, more))
        )
        numbers = np.arange(_LAYERS - 1)
        np.testing.assert_array_equal(after[: _LAYERS - 1], numbers <= layer)
        np.testing.assert_array_equal(before[: _LAYERS - 1], (layer < numbers) & (numbers <= layer + 4))
        assert before[_LAYERS - 1 :].all()
        assert not after[_LAYERS - 1 :].any()


def test_what_is_to_come_is_counted_by_hand() -> None:
    there = np.random.default_rng(1).integers(0, 2, (30, 12)).astype(np.float32)
    found = ahead(tf.constant(there)).numpy()
    for shower, layer in np.ndindex(*there.shape):
        later = [k - layer for k in range(layer + 1, 12) if there[shower, k]]
        expected = [np.log(len(later) + 0.5) - 2, 4 * max(later, default=0) / 12 - 1, min([*later, 8]) / 4]
        np.testing.assert_allclose(found[shower, layer], expected, rtol=1e-5, atol=1e-6)


def test_where_along_the_depth_the_energy_is_by_hand() -> None:
    """For 11 layers, at 0, 1/11, ...; a group is the layers about every second layer, by linear interpolation."""
    share = np.random.default_rng(1).dirichlet(np.ones(11), 30).astype(np.float32)
    share[0] = np.eye(11)[4]  # all in one layer
    found = shape(tf.constant(share)).numpy()
    for held, (mean, width, *groups) in zip(share.astype(np.float64), found, strict=True):
        depth = np.average(np.arange(11), weights=held)
        spread = np.sqrt(np.cov(np.arange(11), aweights=held, ddof=0))
        np.testing.assert_allclose([mean, width], [4 * depth / 11 - 1, 8 * spread / 11 - 1], atol=1e-5)
        padded = np.pad(held, 1)
        expected = [padded[k - 1] / 2 + padded[k] + padded[k + 1] / 2 for k in range(1, 12, 2)]
        np.testing.assert_allclose(groups, np.log(np.array(expected) + 1e-4) / 2 + 1, rtol=1e-4, atol=1e-5)


def test_sums_over_the_layers_by_hand() -> None:
    """The numbers of 11 layers, about every second layer; sums have width 1 for independent normal numbers."""
    density = _density(16, 12)
    normal = np.random.default_rng(1).normal(size=(30, 16)).astype(np.float32)
    told = density.told(tf.constant(normal), tf.ones([30, 12]) / 12, tf.zeros([30, 3])).numpy()
    padded = np.pad(normal[:, :11], [(0, 0), (1, 1)])
    expected = [padded[:, k - 1] / 2 + padded[:, k] + padded[:, k + 1] / 2 for k in range(1, 12, 2)]
    width = np.sqrt([1.25, 1.5, 1.5, 1.5, 1.5, 1.25])
    np.testing.assert_allclose(told[:, :6], np.stack(expected, 1) / width, atol=1e-5)


def test_the_presence_of_a_layer_is_told_of_those_before_it(density: TotalsDensity) -> None:
    uneven(density.trainable_weights, 0.3)
    _, there, _, labels = _inputs(8)
    choice = tf.constant(np.random.default_rng(3).random((8, _LAYERS)), tf.float32)
    steps = tf.range(_LAYERS)
    for j in range(_LAYERS):
        usual, other = (
            density._presence(tf.concat([each - 1, labels], 1), steps).numpy()[..., 0]
            for each in (there, there + (1 - 2 * there) * tf.one_hot(j, _LAYERS))
        )
        np.testing.assert_array_equal((np.abs(usual - other) > 1e-6).any(1), np.arange(_LAYERS) > j)
    prior = tf.constant(np.linspace(-1, 1, _LAYERS), tf.float32)
    drawn = drawn_presence(density, labels, prior, choice)
    odds = tf.transpose(density._presence(tf.concat([drawn - 1, labels], 1), steps)[..., 0]) + prior
    kept = (drawn.numpy() > 0).any(1) & ~((drawn.numpy().sum(1) == 1) & (drawn.numpy()[:, 0] == 1))  # not filled in
    np.testing.assert_array_equal((choice.numpy() < tf.sigmoid(odds).numpy())[kept], drawn.numpy()[kept] > 0)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_totals_are_in_full_precision_whatever_the_layers_are(density: TotalsDensity, precision: str) -> None:
    with arithmetic(precision):
        short = _density()
    short.set_weights(density.get_weights())
    _, there, _, labels = given = _inputs(8)
    np.testing.assert_array_equal(short.log_density(*given), density.log_density(*given))
    prior = tf.zeros(_LAYERS)
    np.testing.assert_array_equal(short.log_presence(there, labels, prior), density.log_presence(there, labels, prior))


def test_totals_begin_near_the_standard_normal(density: TotalsDensity) -> None:
    normal, *given = _inputs(500)
    found = density.log_density(normal, *given).numpy()
    inside = np.abs(normal) < 2.5
    assert np.abs(found - norm.logpdf(normal))[inside].max() < 0.25
    assert abs((found - norm.logpdf(normal)).mean()) < 0.05


@pytest.mark.parametrize(("totals", "layers"), _OF_FEW_LAYERS)
def test_totals_are_drawn_one_after_the_other_from_the_density_of_all(totals: int, layers: int) -> None:
    """Each total by the mixture that training computes from those drawn before, with its own noise; some unknown."""
    density = _density(totals, layers)
    uneven(density.trainable_weights, 0.3)
    _, there, _, labels = _inputs(50, totals, layers)
    rng = np.random.default_rng(5)
    choice = tf.constant(rng.random((50, totals)), tf.float32)
    normal, known = (
        tf.constant(each, tf.float32) for each in (rng.normal(size=(50, totals)), rng.random((50, totals)) < 0.8)
    )
    drawn = drawn_totals(density, there, known, labels, choice=choice, noise=normal, share_taken=_taken)
    weights, means, widths = mixtures = _mixtures(density, drawn, there, labels)
    for k in range(totals):
        expected = draw_mixture(*(each[k] for each in mixtures), choice[:, k], normal[:, k]) * known[:, k]
        np.testing.assert_allclose(drawn[:, k], expected, rtol=1e-4, atol=1e-4)
    weights, means, widths = (np.moveaxis(each.numpy().astype(np.float64), 0, 1) for each in mixtures)
    dense = logsumexp(weights + norm.logpdf(drawn.numpy()[..., None], means, np.exp(widths)), -1)
    found = density.log_density(drawn, there, _shares(drawn, there), labels)
    np.testing.assert_allclose(found, dense, rtol=1e-4, atol=1e-4)


def test_layers_are_drawn_as_often_as_they_are_likely() -> None:
    """Each of the four states of two layers, at uneven prior odds. A shower without layers becomes the first alone."""
    density = _density(5, 2)
    uneven(density.trainable_weights, 0.3)
    rows, prior = 20_000, tf.constant([0.4, -0.9])
    *_, labels = _inputs(1, 5, 2)
    labels = tf.repeat(labels, rows, 0)
    choice = tf.constant(np.random.default_rng(4).random((rows, 2)), tf.float32)
    drawn = drawn_presence(density, labels, prior, choice).numpy()
    pairs = np.array([(0, 0), (0, 1), (1, 0), (1, 1)], np.float32)
    likely = np.exp(density.log_presence(tf.constant(pairs), labels[:4], prior).numpy().astype(np.float64))
    assert likely.sum() == pytest.approx(1, abs=1e-5)
    likely[2] += likely[0]
    for pair, expected in list(zip(pairs, likely, strict=True))[1:]:
        found = (drawn == pair).all(1).mean()
        assert abs(found - expected) < 4.5 * np.sqrt(expected * (1 - expected) / rows)
    assert not (drawn == 0).all(1).any()
