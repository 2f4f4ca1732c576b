"""The totals of a shower: what they are, that they are invertible, and the copula that makes them normal."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from likelihoods import CONSTANTS, LAYERS, as_batch, new_model, uneven_showers
from scipy.stats import kstest
from showers import SMALL_GEOMETRY

from training.models.autoregressive import frame, totals
from training.models.autoregressive.copula import copula
from training.models.autoregressive.frame import SUMS, Axis
from training.models.autoregressive.model import Autoregressive
from training.models.randomness import Draws

_UNIT = 0.02


@pytest.fixture(scope="module")
def model() -> Autoregressive:
    return new_model()


def _described(cells: Any, theta: Any) -> tuple[tf.Tensor, Axis]:
    batch = as_batch(cells, np.full_like(theta, 100), theta)
    hits, axis = frame.reflect(batch["cell"], batch["value"], batch["theta_rad"], CONSTANTS, SMALL_GEOMETRY)
    return tf.reduce_sum(frame.layer_sums(hits, CONSTANTS, SMALL_GEOMETRY), 2), axis


def _totals(sums: Any, axis: Axis, energy: Any) -> tuple[tf.Tensor, tf.Tensor]:
    return totals.totals_of(sums, axis, tf.constant(energy), _UNIT)


def test_totals_by_hand() -> None:
    cells, energy, theta = uneven_showers(events=6)
    sums, axis = _described(cells, theta)
    found, there = (each.numpy() for each in _totals(sums, axis, energy))
    np.testing.assert_array_equal(there, 1)
    layers = cells.sum((1, 2), dtype=np.float64)
    expected = np.empty_like(found, np.float64)
    expected[:, 0] = np.log(layers.sum(1) * _UNIT / energy)
    for layer in range(LAYERS - 1):
        expected[:, 1 + layer] = np.log(layers[:, layer] / layers[:, layer + 1 :].sum(1))  # the logit of its share
    expected[:, LAYERS : LAYERS + 4] = axis.offset
    for number, name in enumerate(totals.BUDGETS):
        whole = sums.numpy()[..., SUMS.index(name)].sum(1, dtype=np.float64)
        unit = 1 if name in ("cells", "hits") else layers.sum(1)
        expected[:, LAYERS + 4 + number] = np.log(whole / unit)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert found.shape[1] == totals.number_of_totals(LAYERS)


def test_layers_axis_and_budgets_follow_from_the_totals() -> None:
    cells, energy, theta = uneven_showers(events=50)
    sums, axis = _described(cells, theta)
    values, there = _totals(sums, axis, energy)
    layer_energy, offset, logs = totals.layers_of(values, there, tf.constant(energy), _UNIT, LAYERS)
    np.testing.assert_allclose(layer_energy, cells.sum((1, 2)), rtol=1e-4)
    np.testing.assert_array_equal(offset, axis.offset)
    budgets = totals.budgets_in_units(logs, layer_energy).numpy()
    for number, name in enumerate(totals.BUDGETS):
        np.testing.assert_allclose(budgets[:, number], sums.numpy()[..., SUMS.index(name)].sum(1), rtol=2e-4)


def test_totals_are_themselves_again(model: Autoregressive) -> None:
    """Of showers of the train split, which lie within the quantiles, and of numbers that are drawn."""
    store = model.networks["constants"]
    cells, energy, theta = uneven_showers(events=300)  # those that the constants are of
    batch = as_batch(cells, energy, theta)
    hits, axis = frame.reflect(batch["cell"], batch["value"], batch["theta_rad"], store, SMALL_GEOMETRY)
    sums = tf.reduce_sum(frame.layer_sums(hits, store, SMALL_GEOMETRY), 2)
    values, _ = _totals(sums, axis, energy)
    labels = totals.label_terms(batch["energy_gev"], frame.reflected_angle(batch["theta_rad"]), store)
    every = tf.ones_like(values)
    normal = totals.to_normal(values, every, labels, store)
    again = totals.from_normal(normal, labels, store).numpy()
    spread = values.numpy().std(0)
    assert (np.abs(again - values) / spread).max() < 1e-3
    drawn = np.random.default_rng(1).normal(size=normal.shape).astype(np.float32)
    there = totals.to_normal(totals.from_normal(tf.constant(drawn), labels, store), every, labels, store).numpy()
    scores = np.abs(drawn @ store["colouring"].numpy().T).max(1)
    assert (scores < 4).mean() > 0.95
    np.testing.assert_allclose(there[scores < 4], drawn[scores < 4], atol=5e-3)


def test_showers_with_empty_layers_are_finite(model: Autoregressive) -> None:
    """One whose last layer is empty, one with nothing but its first, and one without its first."""
    cells, energy, theta = uneven_showers(events=4)
    cells[0, ..., -1], cells[1, ..., 1:], cells[2, ..., 0] = 0, 0, 0
    view = model.view(as_batch(cells, energy, theta), Draws.of(1))
    found = [model._of_totals(view, Draws.of(1)), *(model._of_cells(colour, view, Draws.of(1)) for colour in (0, 1))]
    for each in (*view.values(), *(loss for losses in found for loss in losses.values())):
        assert np.isfinite(each).all()
    sums, axis = _described(cells, theta)
    values, there = _totals(sums, axis, energy)
    assert np.isfinite(values).all()
    layer_energy, _, _ = totals.layers_of(values, there, tf.constant(energy), _UNIT, LAYERS)
    np.testing.assert_allclose(layer_energy, cells.sum((1, 2)), rtol=1e-3, atol=2e-5 * cells.sum((1, 2, 3)).max())


def test_empty_layers_are_empty_again(model: Autoregressive) -> None:
    """Before the first deposit, after the last and between; whatever number stands where a total is not defined."""
    cells, energy, theta = uneven_showers(events=40)
    cells *= np.random.default_rng(6).random((40, 1, 1, LAYERS)) < 0.6
    kept = cells.sum((1, 2, 3)) > 0
    cells, energy, theta = cells[kept], energy[kept], theta[kept]
    expected = cells.sum((1, 2))
    sums, axis = _described(cells, theta)
    values, there = _totals(sums, axis, energy)
    np.testing.assert_array_equal(there, expected > 0)
    known = totals.defined(there).numpy()
    last = LAYERS - 1 - np.argmax(expected[:, ::-1] > 0, axis=1)
    for layer in range(LAYERS - 1):
        np.testing.assert_array_equal(known[:, 1 + layer], (expected[:, layer] > 0) & (layer < last))
    assert known[:, LAYERS:].all()
    for other in (-3.0, 4.0):
        moved = tf.where(known > 0, values, other)
        layer_energy, _, _ = totals.layers_of(moved, there, tf.constant(energy), _UNIT, LAYERS)
        np.testing.assert_array_equal(layer_energy.numpy() > 0, expected > 0)
        np.testing.assert_allclose(layer_energy, expected, rtol=2e-3)
    store = model.networks["constants"]
    labels = totals.label_terms(tf.constant(energy), frame.reflected_angle(tf.constant(theta)), store)
    normal = totals.to_normal(values, tf.constant(known), labels, store).numpy()
    assert (normal[known == 0] == 0).all()
    again = totals.from_normal(tf.constant(normal), labels, store).numpy()
    away = np.abs(again - values.numpy())[known > 0] / np.broadcast_to(values.numpy().std(0), known.shape)[known > 0]
    assert np.median(away) < 1e-4  # those beyond the quantiles of other showers are clipped


def _synthetic(showers: int) -> tuple[Any, ...]:
    """Values of known mean, scale and correlation, with the labels' terms: a Gaussian copula of Gaussian margins."""
    rng = np.random.default_rng(3)
    number = 4
    energy, angle = rng.uniform(-1, 1, (2, showers))
    one = np.ones(showers)
    labels = np.stack(
        [
            one, energy, angle, energy**2, energy * angle, angle**2,
            energy**3, energy**2 * angle, energy * angle**2, angle**3, angle**4,
        ], 1,
    )  # fmt: skip
    mean = rng.normal(size=(totals.MEAN_TERMS, number))
    scale = 0.2 * rng.normal(size=(totals.SCALE_TERMS, number))
    root = np.linalg.cholesky(_correlation())
    normal = rng.normal(size=(showers, number)) @ root.T
    return labels, mean, scale, normal, labels @ mean + np.exp(labels[:, : totals.SCALE_TERMS] @ scale) * normal


def _correlation() -> npt.NDArray[np.float64]:
    return np.array([[1, 0.7, -0.3, 0], [0.7, 1, 0, 0.2], [-0.3, 0, 1, 0.4], [0, 0.2, 0.4, 1]])


def test_the_copula_recovers_what_gaussian_numbers_are_made_of() -> None:
    labels, mean, scale, normal, values = _synthetic(20_000)
    found = copula(values, labels, np.ones(values.shape, bool))
    error = np.abs(labels @ (found["mean"] - mean)).max(0) / values.std(0)
    assert (error < 0.1).all()  # 20,000 showers, 11 terms, at the edges of the labels
    # log |residual| is scattered about the log of the width, less by (log 2 + Euler's gamma) / 2
    widths = labels[:, : totals.SCALE_TERMS] @ (found["scale"] - scale)
    np.testing.assert_allclose(widths, -(np.log(2) + 0.5772) / 2, atol=0.12)
    correlation = found["colouring"] @ found["colouring"].T
    np.testing.assert_allclose(correlation, _correlation(), atol=5 / np.sqrt(20_000))

    store = {name: tf.constant(each, tf.float32) for name, each in found.items()}
    given = tf.constant(labels, tf.float32)
    white = totals.to_normal(tf.constant(values, tf.float32), tf.ones(values.shape), given, store).numpy()
    np.testing.assert_allclose(np.cov(white.T), np.eye(4), atol=5 / np.sqrt(20_000))
    for k in range(4):
        assert kstest(white[::7, k], "norm").pvalue > 1e-3
    scores = white @ np.linalg.cholesky(_correlation()).T
    np.testing.assert_allclose(scores[np.abs(normal) < 3], normal[np.abs(normal) < 3], atol=0.3)


def test_the_copula_of_totals_that_some_showers_lack_is_of_the_others() -> None:
    """Means and quantiles are those of the showers that have a total, whatever stands for it in the rest."""
    labels, _, _, _, values = _synthetic(4000)
    known = np.ones(values.shape, bool)
    known[1000:, 2] = False
    filled = np.where(known, values, 1e3)
    found, alone = (
        copula(filled, labels, known),
        copula(values[:1000], labels[:1000], known[:1000]),
    )
    for name in ("mean", "scale", "quantiles"):
        np.testing.assert_allclose(found[name][..., 2], alone[name][..., 2], rtol=1e-6, atol=1e-9)
    assert np.isfinite(found["colouring"]).all()
    none = copula(filled, labels, np.zeros(values.shape, bool))  # a total that no shower has
    assert all(np.isfinite(each).all() for each in none.values())


def test_quantiles_rise_and_go_on_straight_beyond_the_sample() -> None:
    """Where half of the showers have the same value, too: counts do."""
    values = np.random.default_rng(1).normal(size=(500, 2))
    values[:250, 1] = 0.0
    found = copula(values, np.eye(11)[np.zeros(500, int)], np.ones(values.shape, bool))
    steps = np.diff(found["quantiles"], axis=1)
    assert (steps > 0).all()
    assert (found["quantiles"] == found["quantiles"][:1]).all()  # one energy
    np.testing.assert_allclose(steps[0, :10, 0], steps[0, 0, 0], rtol=1e-3)
    np.testing.assert_allclose(steps[0, -10:, 0], steps[0, -1, 0], rtol=1e-3)


def _skewed(score: Any, energy: Any) -> Any:
    """A shifted lognormal number of skewness below 0 at the least energy, above 0 at the largest, 0 in the middle."""
    slope = np.where(np.abs(energy) < 1e-3, 1e-3, 0.5 * energy)
    return np.expm1(slope * score) / slope


def _by_energy(energy: Any, score: Any) -> tuple[Any, Any]:
    """Labels of scaled log `energy` (N,), of one angle, and the total (N, 1) that has the normal score."""
    zero = np.zeros_like(energy)
    terms = [zero + 1, energy, zero, energy**2, zero, zero, energy**3, zero, zero, zero, zero]
    return np.stack(terms, 1), _skewed(score, energy)[:, None]


def test_quantiles_follow_the_energy() -> None:
    """A total whose skewness changes its sign, at both ends and in the middle: drawn as its closed form, and back."""
    rng = np.random.default_rng(8)
    labels, values = _by_energy(rng.uniform(-1, 1, 20_000), rng.normal(size=20_000))
    scores, every = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), np.ones(values.shape, bool)
    found, pooled = (
        {name: tf.constant(each, tf.float32) for name, each in copula(values, labels, every, log_energies).items()}
        for log_energies in (np.log(100), 0.0)
    )
    for energy in (-1.0, 0.0, 1.0):
        given, expected = _by_energy(np.full(5, energy), scores)
        asked = tf.constant(scores[:, None], tf.float32), tf.constant(given, tf.float32)
        again = totals.from_normal(*asked, found).numpy()
        np.testing.assert_allclose(again, expected, atol=0.1 + 0.08 * np.abs(expected).max())
        back = totals.to_normal(tf.constant(again), tf.ones([5, 1]), asked[1], found).numpy()
        np.testing.assert_allclose(back[:, 0], scores, atol=1e-3)
        off = np.abs(totals.from_normal(*asked, pooled).numpy() - expected).max()
        assert (off > 0.5) == (energy != 0)  # one quantile function is right in the middle alone


def test_nothing_is_drawn_far_beyond_the_train_split() -> None:
    rng = np.random.default_rng(9)
    labels, values = _by_energy(rng.uniform(-1, 1, 5000), rng.uniform(-1, 1, 5000))
    found = copula(values, labels, np.ones(values.shape, bool), np.log(100))
    store = {name: tf.constant(each, tf.float32) for name, each in found.items()}
    far = np.repeat([[-30.0], [30.0]], 50, axis=0)
    given, _ = _by_energy(np.tile(np.linspace(-1, 1, 50), 2), far[:, 0])
    drawn = totals.from_normal(tf.constant(far, tf.float32), tf.constant(given, tf.float32), store).numpy()
    assert np.isfinite(drawn).all()
    assert np.abs(drawn).max() < 1.2 * np.abs(values).max()


def test_expected_layers_sum_to_what_the_showers_have(model: Autoregressive) -> None:
    """Each layer's regression is scaled to the train split, so that over it promises are kept on the average."""
    store = model.networks["constants"]
    cells, energy, theta = uneven_showers(events=300)  # those that the constants are of
    batch = as_batch(cells, energy, theta)
    hits, _ = frame.reflect(batch["cell"], batch["value"], batch["theta_rad"], store, SMALL_GEOMETRY)
    sums = tf.reduce_sum(frame.layer_sums(hits, store, SMALL_GEOMETRY), 2)
    labels = totals.label_terms(batch["energy_gev"], frame.reflected_angle(batch["theta_rad"]), store)
    found = totals.expected_layers(frame.column(sums, "energy"), labels, store).numpy().sum(0)
    expected = np.stack([frame.column(sums, name).numpy().sum(0) for name in totals.BUDGETS], -1)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
