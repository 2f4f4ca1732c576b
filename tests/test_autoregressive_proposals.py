"""Which cells are looked at: as often as is said, and so many that no hits are lost where there are many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from calopipe.showers.cells import Geometry, Layer
from training.models.autoregressive import cells
from training.models.autoregressive.mesh import Mesh
from training.models.autoregressive.sampling import proposals
from training.models.autoregressive.sampling.proposals import LayerProposals
from training.models.autoregressive.sampling.shared_energy import hit

_KEYS = 20_000
_PLANE = Layer(2.0, 0.5, (15, 15), size_mm=(5.0, 5.0))
_GEOMETRY = Geometry.of_layers((_PLANE,) * 3, 0.02)


def _constants(fall: float = 1.5) -> tuple[dict[str, tf.Tensor], Any]:
    """Of cells that are hit less by e every `fall` cells farther out; and the chances of those of the second layer."""
    mesh = Mesh(_GEOMETRY)
    radius = 0.5 * np.expm1(0.15 * np.arange(cells.radius_knots(mesh.reach)))
    share = np.stack([each * np.exp(-radius / fall) + 1e-5 for each in (0.9, 0.5, 0.02)])
    found = proposals.tables(share, mesh, 1)
    assert {name: each.shape for name, each in found.items()} == proposals.shapes(mesh)
    assert mesh.lattice_radius().shape == (3, 15 * 15)  # as large as the layer
    chance = np.interp(mesh.lattice_radius()[1], radius, share[1])
    found["layer_cells"] = np.ones(3)
    return {name: tf.constant(each, tf.float32) for name, each in found.items()}, chance


def _keys(number: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(1).integers(0, 2**24, (number, 2)), tf.int32)


def test_of_cells_that_are_hit_alike_the_first_are_proposed_more_often() -> None:
    """A processor may sort equal numbers in any order: not so that it shows in the table of a model."""
    store, _ = _constants()
    radius = Mesh(_GEOMETRY).lattice_radius()
    for layer_, table in enumerate(store["far_table"].numpy().astype(int)):
        entries = np.bincount(table, minlength=radius.shape[1])
        alike = [entries[radius[layer_] == distance] for distance in np.unique(radius[layer_])]
        assert all((np.diff(each) <= 0).all() for each in alike)
        assert any((np.diff(each) < 0).any() for each in alike)


def test_cells_beside_an_axis_at_the_edge_of_its_cell_are_proposed_as_often_as_they_are_hit() -> None:
    """Wherever in its cell the axis is, and also where half a cell decides whether the next one is hit."""
    store, _ = _constants(fall=0.2)
    steps = np.stack(np.meshgrid(np.arange(15) - 7, np.arange(15) - 7, indexing="ij"), -1).reshape(-1, 2)
    for which, most in enumerate((0.9, 0.5, 0.02)):
        found = LayerProposals(store, tf.constant(which), tf.ones([1]), _keys(1), 7)
        said = found.chance(tf.range(225), tf.zeros(225, tf.int32)).numpy()
        for axis in ((0.0, 0.0), (0.49, 0.0), (0.0, -0.49), (-0.49, 0.49), (0.3, 0.2)):
            chance = most * np.exp(-np.hypot(*(steps - axis).T) / 0.2) + 1e-5
            assert (said > np.minimum(chance, 0.7)).all()


@pytest.mark.parametrize("busy", [0.01, 0.3, 1.0, 3.0, 1e6])
def test_cells_are_proposed_as_often_as_is_said(busy: float) -> None:
    """In layers less busy than the average, and more; each place is so often among the proposed ones."""
    store, expected = _constants()
    given = tf.fill([_KEYS], busy), _keys(_KEYS), 7
    found = LayerProposals(store, tf.constant(1), *given)
    places = found.places().numpy().astype(int)
    marks = np.zeros((_KEYS, 226), bool)
    np.put_along_axis(marks, np.where(places < 0, 225, places), True, axis=1)
    often = marks[:, :225].mean(0)
    said = found.chance(tf.range(225), tf.zeros(225, tf.int32)).numpy()
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
    """Also where the average layer has many times as many hits: then few cells far from the axis would be looked at."""
    store, expected = _constants()
    likely, showers = expected / expected.sum(), 8000
    found = LayerProposals(store, tf.constant(1), tf.fill([showers], float(1 / expected.sum())), _keys(showers), 7)
    marks = np.zeros((showers, 226), bool)
    places = found.places().numpy().astype(int)
    np.put_along_axis(marks, np.where(places < 0, 225, places), True, axis=1)
    shower, place = (tf.constant(each, tf.int32) for each in np.nonzero(marks[:, :225]))
    chance = tf.minimum(tf.gather(tf.constant(likely, tf.float32), place) / found.chance(place, shower), 1.0)
    rng = np.random.default_rng(6)
    uniform, start = (tf.constant(rng.random(len(each)), tf.float32) for each in (shower, likely[:1].repeat(showers)))
    is_hit = hit(chance, shower, tf.ones([showers]), uniform, start).numpy()
    assert is_hit.sum() == showers
    often = np.bincount(place.numpy()[is_hit], minlength=225) / showers
    for far in (1.5, 2.5, 4.0):
        beyond = Mesh(_GEOMETRY).lattice_radius()[1] > far
        assert often[beyond].sum() == pytest.approx(likely[beyond].sum(), rel=0.06)
