"""The totals of a shower: their values, their inverse, and the copula that makes them normal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from likelihoods import LAYERS, as_batch, labels_of, new_model, uneven_showers
from scipy.stats import kstest
from showers import SMALL_GEOMETRY

from training.models.autoregressive import context, frame, totals
from training.models.autoregressive.copula import copula
from training.models.autoregressive.frame import SUMS
from training.models.autoregressive.mesh import mesh_of
from training.models.autoregressive.model import Autoregressive
from training.models.autoregressive.sampling.shower import Margins, from_normal, share_taken
from training.models.autoregressive.totals import Drawn
from training.models.autoregressive.totals_density import shape
from training.models.base import Batch
from training.models.randomness import Draws

_UNIT = 0.02


@pytest.fixture(scope="module")
def model() -> Autoregressive:
    return new_model()


def _described(model: Autoregressive, batch: Batch) -> tuple[tf.Tensor, Drawn, tf.Tensor]:
    """The SUMS (N, layers, 16) of showers, their totals, and which layers are not empty."""
    store = model.networks["constants"]
    _, _, sums, promised, values, there = totals.described(batch, labels_of(batch), tf.zeros, store)
    labels = labels_of(batch).reflected(store.mesh)
    return tf.reduce_sum(sums, 2), Drawn(values, tf.reduce_sum(promised, 2), labels, labels.terms(store)), there


def test_totals_by_hand(model: Autoregressive) -> None:
    """The terms of the last ones follow: after the phases, where along the layers the energy is, and the response."""
    cells, energy, theta = uneven_showers(events=6)
    batch, store = as_batch(cells, energy, theta), model.networks["constants"]
    sums, drawn, there = _described(model, batch)
    found = drawn.values.numpy()
    np.testing.assert_array_equal(there, 1)
    layers = cells.sum((1, 2), dtype=np.float64)
    expected = np.empty_like(found, np.float64)
    expected[:, LAYERS - 1] = np.log(layers.sum(1) * _UNIT / energy)
    for layer in range(LAYERS - 1):
        expected[:, layer] = np.log(layers[:, layer] / layers[:, layer + 1 :].sum(1))  # the logit of its share
    *_, expected[:, LAYERS : LAYERS + 4] = frame.reflect(batch["cell"], batch["value"], labels_of(batch), store)
    for number, name in enumerate(totals.BUDGETS):
        whole = sums.numpy()[..., SUMS.index(name)].sum(1, dtype=np.float64)
        unit = 1 if name in ("cells", "hits") else layers.sum(1)
        expected[:, LAYERS + 4 + number] = np.log(whole / unit)
    for number, name in enumerate(totals.MOMENTS):
        expected[:, LAYERS + 10 + number] = sums.numpy()[..., SUMS.index(name)].sum(1) / layers.sum(1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert found.shape[1] == totals.number_of_totals(LAYERS)
    terms = drawn.budget_terms(store).numpy()
    assert terms.shape == (6, totals.number_of_budget_terms(LAYERS))
    places = shape(tf.constant(layers / layers.sum(1, keepdims=True), tf.float32))
    np.testing.assert_allclose(terms[:, totals.number_of_phases(LAYERS) : -1], places, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(terms[:, -1], expected[:, LAYERS - 1], rtol=1e-4)


def _drawn(normal: Any, terms: Any, budget_terms: Any, store: Any) -> Any:
    """The totals (N, D) of the normal numbers v."""
    mean = totals.means(terms, budget_terms, store)
    return from_normal(normal, Margins.of(terms, store)._replace(mean=mean), store)


def test_totals_are_themselves_again(model: Autoregressive) -> None:
    """For showers of the train split, which lie within the quantiles, and for drawn numbers."""
    store = model.networks["constants"]
    _, showers, _ = _described(model, as_batch(*uneven_showers(events=300)))  # those that the constants are of
    values, every = showers.values, tf.ones_like(showers.values)
    given = showers.terms, showers.budget_terms(store), store
    normal = totals.to_normal(values, every, *given)
    off = np.abs(_drawn(normal, *given) - values) / values.numpy().std(0)
    inside = np.abs(normal @ tf.transpose(store["colouring"])).max(1) < 3.99
    assert inside.mean() > 0.99  # the quantiles are of blurred axes: one that is not may lie beyond
    assert off[inside].max() < 1e-3
    drawn = np.random.default_rng(1).normal(size=normal.shape).astype(np.float32)
    there = totals.to_normal(_drawn(tf.constant(drawn), *given), every, *given).numpy()
    scores = np.abs(drawn @ store["colouring"].numpy().T).max(1)
    assert (scores < 4).mean() > 0.95
    np.testing.assert_allclose(there[scores < 4], drawn[scores < 4], atol=5e-3)


def test_showers_with_empty_layers_are_finite(model: Autoregressive) -> None:
    """A shower whose last layer is empty, one with only its first layer, and one without its first layer."""
    cells, energy, theta = uneven_showers(events=4)
    cells[0, ..., -1], cells[1, ..., 1:], cells[2, ..., 0] = 0, 0, 0
    view = model.view(as_batch(cells, energy, theta), Draws.of(1))
    found = [
        model._of_totals(view, Draws.of(1)),
        *(model._of_cells(name, view, Draws.of(1)) for name in ("even", "odd")),
    ]
    for each in (*view.values(), *(loss for losses in found for loss in losses.values())):
        assert np.isfinite(each).all()


def test_empty_layers_are_empty_again(model: Autoregressive) -> None:
    """Before the first deposit, after the last and between, whatever the number in place of an undefined total."""
    cells, energy, theta = uneven_showers(events=40)
    cells *= np.random.default_rng(6).random((40, 1, 1, LAYERS)) < 0.6
    kept = cells.sum((1, 2, 3)) > 0
    cells, energy, theta = cells[kept], energy[kept], theta[kept]
    expected = cells.sum((1, 2))
    batch, store = as_batch(cells, energy, theta), model.networks["constants"]
    _, showers, there = _described(model, batch)
    values, terms = showers.values, showers.terms
    np.testing.assert_array_equal(there, expected > 0)
    known = totals.defined(there).numpy()
    last = LAYERS - 1 - np.argmax(expected[:, ::-1] > 0, axis=1)
    for layer in range(LAYERS - 1):
        np.testing.assert_array_equal(known[:, layer], (expected[:, layer] > 0) & (layer < last))
    assert known[:, LAYERS - 1 :].all()
    for other in (-3.0, 4.0):
        moved = tf.where(known > 0, values, other)
        layer_energy, *_ = totals.layers_of(moved, there, tf.constant(energy))
        np.testing.assert_array_equal(layer_energy.numpy() > 0, expected > 0)
        np.testing.assert_allclose(layer_energy, expected, rtol=2e-3)
    given = terms, showers.budget_terms(store), store
    normal = totals.to_normal(values, tf.constant(known), *given).numpy()
    assert (normal[known == 0] == 0).all()
    held = expected / expected.sum(1, keepdims=True)
    view = model.view(batch, Draws.of(1, 2, 3))
    np.testing.assert_allclose(view["layer_share"], held, rtol=1e-4, atol=1e-6)
    left = np.ones(len(energy))
    for layer in range(LAYERS - 1):
        share = share_taken(tf.constant(normal), tf.constant(layer), Margins.of(terms, store), store).numpy()
        own = left * np.where(layer == last, 1, share) * (expected[:, layer] > 0)
        inside = (np.abs(normal @ store["colouring"].numpy().T)[:, : layer + 1] < 3.9).all(1)
        assert inside.mean() > 0.3
        np.testing.assert_allclose(own[inside], held[inside, layer], rtol=5e-3, atol=1e-5)
        left = left - own
    again = _drawn(tf.constant(normal), *given).numpy()
    away = np.abs(again - values.numpy())[known > 0] / np.broadcast_to(values.numpy().std(0), known.shape)[known > 0]
    assert np.median(away) < 1e-4  # those beyond the quantiles of other showers are clipped


def test_numbers_of_a_gaussian_copula_become_independent_and_normal() -> None:
    """Two totals, and two of the ten last totals, whose means also follow the phases; the others are not known."""
    where, rng = [0, 1, 2, 5], np.random.default_rng(4)
    correlation = np.array([[1, 0.7, -0.3, 0], [0.7, 1, 0, 0.2], [-0.3, 0, 1, 0.4], [0, 0.2, 0.4, 1]])
    normal = rng.normal(size=(20_000, 4)) @ np.linalg.cholesky(correlation).T
    energy, angle = rng.uniform(-1, 1, (2, 20_000))
    powers = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (3, 0), (2, 1), (1, 2), (0, 3), (0, 4)]
    labels = np.stack([energy**one * angle**other for one, other in powers], 1)
    mean, scale = rng.normal(size=(frame.MEAN_TERMS, 4)), 0.2 * rng.normal(size=(frame.SCALE_TERMS, 4))
    values = labels @ mean + np.exp(labels[:, : frame.SCALE_TERMS] @ scale) * normal
    phases, of_phases = rng.uniform(-1, 1, (20_000, 3)), np.zeros((3, totals.LAST))
    of_phases[:, [0, 3]] = rng.normal(size=(3, 2))
    whole = np.hstack([np.zeros((20_000, 2)), phases @ of_phases])
    whole[:, where] += values
    known = np.tile(np.isin(np.arange(2 + totals.LAST), where), (20_000, 1))
    found = copula(whole, labels, known, 0.0, phases)
    store = {name: tf.constant(each, tf.float32) for name, each in found.items()}
    given = [tf.constant(each, tf.float32) for each in (whole, known, labels, phases)]
    white = totals.to_normal(*given, store).numpy()
    assert not white[~known].any()
    white = white[:, where]
    np.testing.assert_allclose(np.cov(white.T), np.eye(4), atol=5 / np.sqrt(20_000))
    for k in range(4):
        assert kstest(white[::7, k], "norm").pvalue > 1e-3
    scores = white @ np.linalg.cholesky(correlation).T
    np.testing.assert_allclose(scores[np.abs(normal) < 3], normal[np.abs(normal) < 3], atol=0.3)


def test_quantiles_rise() -> None:
    """Also if half of the showers have the same value, as in counts."""
    values = np.random.default_rng(1).normal(size=(500, 2))
    values[:250, 1] = 0.0
    found = copula(values, np.eye(11)[np.zeros(500, int)], np.ones(values.shape, bool), 0.0, np.zeros((500, 0)))
    steps = np.diff(found["quantiles"], axis=1)
    assert (steps > 0).all()
    assert (found["quantiles"] == found["quantiles"][:1]).all()  # one energy


def _skewed(score: Any, energy: Any) -> Any:
    """A shifted lognormal number of skewness below 0 at the least energy, above 0 at the largest, 0 in the middle."""
    slope = np.where(np.abs(energy) < 1e-3, 1e-3, 0.5 * energy)
    return np.expm1(slope * score) / slope


def _by_energy(energy: Any, score: Any) -> tuple[Any, Any]:
    """Labels with scaled log `energy` (N,) and one angle, and the total (N, 1) that has the normal score."""
    zero = np.zeros_like(energy)
    terms = [zero + 1, energy, zero, energy**2, zero, zero, energy**3, zero, zero, zero, zero]
    return np.stack(terms, 1), _skewed(score, energy)[:, None]


_LAST = [(0, 0), (0, totals.LAST)]  # that no shower has, beside the one total


def _copula_of_one(values: Any, labels: Any, log_energies: float) -> dict[str, tf.Tensor]:
    known = np.pad(np.ones(values.shape, bool), _LAST)
    found = copula(np.pad(values, _LAST), labels, known, log_energies, np.zeros((len(values), 1)))
    return {name: tf.constant(each, tf.float32) for name, each in found.items()}


def _from_normal(scores: Any, labels: Any, store: Any) -> Any:
    """The total (N, 1) of its normal score (N, 1)."""
    normal, given = (tf.constant(each, tf.float32) for each in (np.pad(scores, _LAST), labels))
    return _drawn(normal, given, tf.zeros([1, 1]), store).numpy()[:, :1]


def test_quantiles_follow_the_energy() -> None:
    """A total whose skewness changes its sign, at both ends and in the middle, against its closed form, and back."""
    rng = np.random.default_rng(8)
    labels, values = _by_energy(rng.uniform(-1, 1, 20_000), rng.normal(size=20_000))
    scores = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    found, pooled = (_copula_of_one(values, labels, log_energies) for log_energies in (np.log(100), 0.0))
    for energy in (-1.0, 0.0, 1.0):
        given, expected = _by_energy(np.full(5, energy), scores)
        again = _from_normal(scores[:, None], given, found)
        np.testing.assert_allclose(again, expected, atol=0.1 + 0.08 * np.abs(expected).max())
        known = np.pad(np.ones((5, 1)), _LAST)
        asked = (tf.constant(each, tf.float32) for each in (np.pad(again, _LAST), known, given))
        back = totals.to_normal(*asked, tf.zeros([1, 1]), found).numpy()
        np.testing.assert_allclose(back[:, 0], scores, atol=1e-3)
        off = np.abs(_from_normal(scores[:, None], given, pooled) - expected).max()
        assert (off > 0.5) == (energy != 0)  # one quantile function is right in the middle alone


def test_nothing_is_drawn_far_beyond_the_train_split() -> None:
    rng = np.random.default_rng(9)
    labels, values = _by_energy(rng.uniform(-1, 1, 5000), rng.uniform(-1, 1, 5000))
    store = _copula_of_one(values, labels, np.log(100))
    far = np.repeat([[-30.0], [30.0]], 50, axis=0)
    given, _ = _by_energy(np.tile(np.linspace(-1, 1, 50), 2), far[:, 0])
    drawn = _from_normal(far, given, store)
    assert np.isfinite(drawn).all()
    assert np.abs(drawn).max() < 1.2 * np.abs(values).max()


def test_phases_are_where_in_their_cells_the_axes_meet_the_layers() -> None:
    """By hand, shower after shower. They do not change if a shower moves by a cell. Seven layers are in six groups."""
    rng = np.random.default_rng(5)
    for layers in (LAYERS, 7):
        geometry = replace(SMALL_GEOMETRY, shape=(17, 17, layers))
        energy, x, y = rng.uniform(0, 3, (4, layers)), *rng.uniform(-3, 3, (2, 4, layers))
        groups = min(layers, 6)
        expected = np.zeros((4, 4, groups))  # showers; sines along x and y, cosines along x and y; groups
        for shower, layer in np.ndindex(4, layers):
            at, share = layer * (groups - 1) / (layers - 1), energy[shower, layer] / energy[shower].sum()
            angles = 2 * np.pi * np.array([x[shower, layer], y[shower, layer]])
            waves = [*np.sin(angles), *np.cos(angles)]
            for group in range(groups):
                expected[shower, :, group] += share * np.multiply(waves, max(1 - abs(at - group), 0))
        for shift in (0, 1):
            axis = tf.constant(np.stack([x + shift, y - 2 * shift], -1), tf.float32)
            shares = tf.constant(energy / energy.sum(1, keepdims=True), tf.float32)
            found = totals.phases(shares, axis, mesh_of(geometry))
            assert found.shape == (4, totals.number_of_phases(layers))
            np.testing.assert_allclose(found, expected.reshape(4, -1), atol=1e-5)


def test_expected_layers_sum_to_what_the_showers_have(model: Autoregressive) -> None:
    """Each layer's regression is scaled to the train split: promised energies are right on average over this split."""
    sums, showers, _ = _described(model, as_batch(*uneven_showers(events=300)))  # those that the constants are of
    found = context.expected_layers(showers.energy, showers.terms, model.networks["constants"]).numpy().sum(0)
    expected = np.stack([frame.column(sums, name).numpy().sum(0) for name in totals.BUDGETS], -1)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
