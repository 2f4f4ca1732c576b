"""Proposed cells: proposed as often as stated, and enough of them to lose no hits where there are many hits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from likelihoods import adapted, as_batch, cells_of, independent, noise_of

from calopipe.errors import InputError
from calopipe.showers.cells import FloatArray, Geometry, Layer
from training.models.autoregressive import cells
from training.models.autoregressive.constants import shapes
from training.models.autoregressive.frame import Labels
from training.models.autoregressive.mesh import Mesh
from training.models.autoregressive.model import Autoregressive
from training.models.autoregressive.sampling import layer, proposals, shared_energy
from training.models.autoregressive.sampling.lattice import NOWHERE, least_distances
from training.models.autoregressive.sampling.proposals import Proposals
from training.models.autoregressive.sampling.shower import drawn_showers

_KEYS = 20_000
_PLANE = Layer(2.0, 0.5, (9, 9), size_mm=(5.0, 5.0))
_GEOMETRY = Geometry.of_layers((_PLANE,) * 3, 0.02)


_MET = np.stack([np.zeros((3, 2), int), np.full((3, 2), 8)])  # axes from the first cell to the last
_WIDE = 9 + 8  # of the lattice: from any cell to any other
_PLACES = _WIDE**2
_RADIUS = least_distances(Mesh(_GEOMETRY), _MET)


class _Store(dict[str, tf.Tensor]):
    mesh = Mesh(_GEOMETRY)


def _constants(fall: float = 1.5) -> tuple[_Store, Any]:
    """Constants of cells whose chance of a hit falls by e every `fall` cells outward; the second layer's chances."""
    mesh = Mesh(_GEOMETRY)
    radius = 0.5 * np.expm1(0.15 * np.arange(cells.radius_knots(mesh.reach)))
    share = np.stack([each * np.exp(-radius / fall) + 1e-5 for each in (0.9, 0.5, 0.02)])
    found = proposals.tables(share, mesh, _MET, 1)
    of_all = shapes(_GEOMETRY)
    assert {name: each.shape for name, each in found.items()} == {name: of_all[name] for name in found}
    chance = np.interp(_RADIUS[1], radius, share[1])
    found["layer_cells"] = np.ones(3)
    return _Store({name: tf.constant(each, tf.float32) for name, each in found.items()}), chance


@pytest.mark.parametrize(("side", "share"), [(61, 0.5), (40, 0.9)])
def test_a_layer_with_more_hits_than_are_looked_at_is_refused(side: int, share: float) -> None:
    """For example a layer of noise: it has more likely places than the core holds."""
    mesh = Mesh(Geometry.of_layers((Layer(2.0, 0.5, (side, side), size_mm=(5.0, 5.0)),) * 2, 0.02))
    met = np.stack([np.zeros((2, 2), int), np.full((2, 2), side - 1)])
    shares = np.full((2, cells.radius_knots(mesh.reach)), 1e-3)
    proposals.tables(shares, mesh, met, 1)
    shares[1] = share
    with pytest.raises(InputError, match="layer 1: so many of its cells are hit that sampling cannot look at all"):
        proposals.tables(shares, mesh, met, 1)


def _marks(found: Proposals, showers: int) -> npt.NDArray[np.bool_]:
    """A mask of the places (showers, _PLACES) of the lattice that are proposed in the second layer."""
    steps = found.steps(tf.constant(1)).numpy()
    row, column = np.divmod(steps, 9 + 2 * _WIDE)
    assert ((steps == NOWHERE) | (row < _WIDE) & (column < _WIDE)).all()
    marks = np.zeros((showers, _PLACES + 1), bool)
    np.put_along_axis(marks, np.where(steps == NOWHERE, _PLACES, row * _WIDE + column), True, axis=1)
    return marks[:, :_PLACES]


def _keys(number: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(1).integers(0, 2**24, (number, 2)), tf.int32)


def test_of_cells_that_are_hit_alike_the_first_are_proposed_more_often() -> None:
    """A processor may sort equal numbers in any order. This must not change the table of a model."""
    store, _ = _constants(fall=2.0)
    for layer_, table in enumerate(store["far_table"].numpy().astype(int)):
        entries = np.bincount(table, minlength=_PLACES)
        alike = [entries[_RADIUS[layer_] == distance] for distance in np.unique(_RADIUS[layer_])]
        assert all((np.diff(each) <= 0).all() for each in alike)
        assert any((np.diff(each) < 0).any() for each in alike)


def test_cells_beside_an_axis_at_the_edge_of_its_cell_are_proposed_as_often_as_they_are_hit() -> None:
    """This holds for every place of the axis in its cell, also if half a cell decides whether the next cell is hit."""
    store, _ = _constants(fall=0.2)
    steps = np.indices((_WIDE, _WIDE)).reshape(2, -1).T - 8
    for which, most in enumerate((0.9, 0.5, 0.02)):
        found = Proposals(store, tf.ones([1, 3]), _keys(1), 7)
        said = found.chance(tf.constant(which), tf.range(_PLACES), tf.zeros(_PLACES, tf.int32)).numpy()
        for axis in ((0.0, 0.0), (0.49, 0.0), (0.0, -0.49), (-0.49, 0.49), (0.3, 0.2)):
            chance = most * np.exp(-np.hypot(*(steps - axis).T) / 0.2) + 1e-5
            assert (said > np.minimum(chance, 0.7)).all()


@pytest.mark.parametrize("busy", [0.01, 0.3, 1.0, 3.0, 1e6])
def test_cells_are_proposed_as_often_as_is_said(busy: float) -> None:
    """Each place is proposed as often as stated, in layers with fewer and with more hits than average."""
    store, expected = _constants()
    found = Proposals(store, tf.fill([_KEYS, 3], busy), _keys(_KEYS), 7)
    often = _marks(found, _KEYS).mean(0)
    said = found.chance(tf.constant(1), tf.range(_PLACES), tf.zeros(_PLACES, tf.int32)).numpy()
    np.testing.assert_array_equal(often[said == 1], 1)
    error = np.sqrt(said * (1 - said) / _KEYS)
    assert (np.abs(often - said) < 4.5 * error + 1e-6).all()
    assert (said > 0).all()
    # four times as often as they are hit, times how busy the layer is; nearly always is always, from 32 to 256 draws
    often = np.clip(max(busy, 0.05), *(draws / float(store["far_total"][1]) for draws in (32, 256)))
    rate = -np.log1p(-np.clip(4 * expected, 2e-4, 1 - 1e-6))
    bound = np.where(rate * max(often, 1) > 1.3, 1.0, 1 - np.exp(-often * rate))
    assert (said > 0.9 * bound - 2e-4).all()


def test_a_single_hit_is_as_often_far_from_the_axis_as_it_is_likely() -> None:
    """Also if the average layer has many times as many hits. Else few cells far from the axis would be proposed."""
    store, expected = _constants()
    likely, showers = expected / expected.sum(), 8000
    found = Proposals(store, tf.fill([showers, 3], float(1 / expected.sum())), _keys(showers), 7)
    shower, place = (tf.constant(each, tf.int32) for each in np.nonzero(_marks(found, showers)))
    proposed = found.chance(tf.constant(1), place, shower)
    chance = tf.minimum(tf.gather(tf.constant(likely, tf.float32), place) / proposed, 1.0)
    rng = np.random.default_rng(6)
    uniform, start = (tf.constant(rng.random(len(each)), tf.float32) for each in (shower, likely[:1].repeat(showers)))
    is_hit = shared_energy.hit(chance, shower, tf.ones([showers]), uniform, start).numpy()
    assert is_hit.sum() == showers
    often = np.bincount(place.numpy()[is_hit], minlength=_PLACES) / showers
    for far in (1.5, 2.5, 4.0):
        beyond = _RADIUS[1] > far
        assert often[beyond].sum() == pytest.approx(likely[beyond].sum(), rel=0.06)


def _showers(events: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Showers of 1 to 300 GeV about the beam; hits are proportional to energy. Cells are in units of 0.02 GeV."""
    rng, mesh = np.random.default_rng(2), Mesh(_GEOMETRY)
    energy = np.exp(rng.uniform(0, np.log(300), events)).astype(np.float32)
    radius = np.hypot(mesh.x, mesh.y)  # (layers, places)
    mean = 0.1 * energy[:, None, None] * np.exp(-radius / 1.2)
    hit = rng.random(mean.shape) < 1 - np.exp(-0.05 * mean - 0.1 * (radius < 0.5))
    hit[:, :, 40] = True  # on the axis
    found = np.where(hit, mean * rng.lognormal(0, 0.3, mean.shape), 0).transpose(0, 2, 1)
    return found.reshape(events, 9, 9, 3).astype(np.float32), energy, np.full(events, np.pi / 2, np.float32)


@pytest.fixture(scope="module")
def model() -> Autoregressive:
    """A model whose cells have the odds of their prior times energy over mean energy, about as in the showers."""
    images, energy, theta = _showers(600)
    found = adapted(_GEOMETRY, as_batch(images, energy, theta))
    for density in cells_of(found):
        _by_energy(density, float(np.log(energy).std()), float(np.log(energy).mean() - np.log(energy.mean())))
    return found


def _by_energy(density: Any, power: float, bias: float) -> None:
    """Let the log odds be the prior plus `bias` and `power` times the first context, the scaled log energy.

    x = silu(x) - silu(-x), so two units carry it through each layer.
    """
    for weight in density.weights:
        weight.assign(tf.zeros_like(weight))
    into, out = (np.zeros(each.kernel.shape) for each in (density._context_in, density._context_out))
    into[0, :2], out[:2, :2] = (1, -1), ((1, -1), (-1, 1))
    odds = np.zeros(density._occupied.kernel.shape)
    odds[:2, 0] = power, -power
    for each, kernel in ((density._context_in, into), (density._context_out, out), (density._occupied, odds)):
        each.kernel.assign(kernel)
    density._occupied.bias.assign([bias])


class _All(Proposals):
    """Every cell is looked at."""

    def steps(self, layer: tf.Tensor) -> tf.Tensor:
        return tf.zeros_like(self._keys[:, :1]) + self.lattice.steps(tf.range(_PLACES))

    def chance(self, layer: tf.Tensor, place: tf.Tensor, shower: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(place, tf.float32)


class _Few(Proposals):
    """A tenth as many cells are proposed in each shower as in the average one."""

    @staticmethod
    def _how_busy(constants: Any, expected: Any) -> Any:  # noqa: ARG004  of any energy
        return tf.zeros_like(expected) + 0.1


def test_no_hits_are_lost_at_any_energy(model: Autoregressive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over decades there are as many hits as if every cell were proposed; with a tenth of the proposals, fewer."""
    monkeypatch.setattr(shared_energy, "hit", independent)
    energy, noise = np.repeat([2.0, 20.0, 300.0], 300).astype(np.float32), noise_of(model, 900)
    hits = {}
    for name, how in (("usual", Proposals), ("all", _All), ("few", _Few)):
        monkeypatch.setattr(layer, "Proposals", how)
        labels = Labels(tf.constant(energy), tf.fill([900], np.float32(np.pi / 2)))
        made = drawn_showers(model.networks, labels, tf.constant(noise)).numpy()
        hits[name] = (made > 0).sum((1, 2, 3)).reshape(3, 300).astype(float)
    error = np.sqrt(2) * hits["all"].std(1) / np.sqrt(300)
    assert (np.abs(hits["usual"] - hits["all"]).mean(1) > 0).all()  # other cells were looked at
    assert (np.abs((hits["usual"] - hits["all"]).mean(1)) < 3 * error + 0.01 * hits["all"].mean(1)).all()
    assert hits["all"][2].mean() > 5 * hits["all"][0].mean()
    assert hits["few"][2].mean() < 0.9 * hits["all"][2].mean()
