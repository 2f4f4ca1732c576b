"""The likelihood model where cells are in rings or layers differ: its cells and neighbours, by brute force."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from likelihoods import Few, adapted, as_batch, labels_of, layer_drawing, noise_of, of_every_cell

from calopipe.showers.cells import FloatArray, Geometry, Layer
from calopipe.showers.positions import Positions, positions
from training.models.autoregressive import cells, frame
from training.models.autoregressive.frame import Labels
from training.models.autoregressive.mesh import AROUND, Mesh, mesh_of
from training.models.autoregressive.model import Autoregressive
from training.models.autoregressive.sampling import proposals
from training.models.autoregressive.sampling.lattice import NOWHERE, Lattice, least_distances
from training.models.autoregressive.sampling.layer import _SIDES, Cells
from training.models.autoregressive.sampling.shower import drawn_plan, drawn_showers
from training.models.randomness import Draws

_OBLONG = ((4.0, 6.0), (12.0, 3.0))
_RING = Layer(1.7, 0.4, (8, 5), r_edges_mm=(0, 4, 8, 12, 16, 20))
_FULL = Layer(1.7, 0.4, (1, 3), r_edges_mm=(0, 6, 12, 30))
_COARSE = Layer(5.0, 1.5, (5, 7), size_mm=(10.0, 8.0))
_FINE = Layer(2.0, 0.5, (11, 9), size_mm=(5.0, 5.0))
_GEOMETRIES = {
    "rings that differ": Geometry.of_layers((_FULL, _RING, replace(_RING, cells=(4, 5)), _RING, _FULL), 1e-3),
    "angles that differ": Geometry.of_layers((_RING, replace(_RING, cells=(5, 5)), _RING), 1e-3),
    "one layer": Geometry.of_layers((_RING,), 1e-3),
    "even numbers of cells": Geometry.of_layers((replace(_COARSE, cells=(6, 8)),) * 3, 0.02),
    "a layer of one cell": Geometry.of_layers(
        (_FINE, replace(_COARSE, cells=(1, 1), size_mm=(55.0, 45.0)), _FINE), 0.02
    ),
    "layers that differ": Geometry.of_layers((_FINE, _FINE, _COARSE, _FINE), 0.02),
}


def _showers(geometry: Geometry, events: int, seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Showers about the axis, some with empty layers: cells in units of 0.02 GeV, energies, angles."""
    rng, where = np.random.default_rng(seed), positions(geometry)
    energy = np.exp(rng.uniform(0, np.log(50), events)).astype(np.float32)
    n, m, layers = geometry.shape
    radius = np.nan_to_num(where.r_mm) / geometry.cell_mm
    density = np.where(where.exists, np.exp(-radius / 1.5) * np.nan_to_num(where.area_mm2), 0)
    density /= density.sum(axis=1, keepdims=True)
    along = np.exp(-((np.arange(layers) - 1.2) ** 2) / 2)
    mean = energy[:, None, None] * 50 * along[:, None] / along.sum() * density
    found = np.where(rng.random(mean.shape) < 1 - np.exp(-mean), mean * rng.lognormal(0, 0.6, mean.shape), 0)
    found[:, 0, int(density[0].argmax())] += 0.1
    found[found < 1e-4] = 0
    if layers > 1:
        found[rng.random(events) < 0.4, -1] = 0
    shaped = found.transpose(0, 2, 1).reshape(events, n, m, layers).astype(np.float32)
    return shaped, energy, np.full(events, np.pi / 2, np.float32)


@pytest.fixture(scope="module", params=_GEOMETRIES)
def geometry(request: pytest.FixtureRequest) -> Geometry:
    return _GEOMETRIES[request.param]


@pytest.fixture(scope="module")
def model(geometry: Geometry) -> Autoregressive:
    return of_every_cell(adapted(geometry, as_batch(*_showers(geometry, 300))))


def test_cells_that_share_a_side_touch(geometry: Geometry) -> None:
    """The neighbours of the table are those whose areas touch, found by points just beyond the middle of each side."""
    mesh, where = mesh_of(geometry), positions(geometry)
    for layer, described in enumerate(geometry.layers):
        sides = mesh.of_kind(mesh.around[..., _SIDES], tf.fill([mesh.places], layer), tf.range(mesh.places)).numpy()
        for place in np.flatnonzero(where.exists[layer]):
            expected = set(_touching(described, *divmod(int(place), mesh.shape[1]), mesh.shape[1]))
            found = {int(each) for each in sides[place]} - {mesh.places, int(place)}
            assert found == expected, (layer, place)


def _touching(layer: Layer, first: int, second: int, wide: int) -> list[int]:
    n, m = layer.cells
    if layer.size_mm is not None:
        return [i * wide + j for i in range(n) for j in range(m) if abs(i - first) + abs(j - second) == 1]
    turn = 2 * math.pi / n
    found = []
    for i in range(n):
        for j in range(m):
            apart = abs((i - first) * turn + math.pi) % (2 * math.pi) - math.pi  # of the angles
            beside = j == second and math.isclose(abs(apart), turn) and n > 1
            outward = i == first and abs(j - second) == 1
            across = second == j == 0 and i == (first + n // 2) % n and n > 1
            if beside or outward or across:
                found.append(i * wide + j)
    return found


def test_mirrored_cells_lie_at_the_mirrored_place(geometry: Geometry) -> None:
    mesh, where = mesh_of(geometry), positions(geometry)
    assert mesh.folds == (not geometry.rings)
    if not mesh.folds:  # a beam that is a little beside the axis hits one sector and not its image
        np.testing.assert_array_equal(mesh.mirror[0], np.tile(np.arange(mesh.places), (mesh.layers, 1)))
    for axis, sign in ((0, (-1, 1)), (1, (1, -1)))[0 if mesh.folds else 1 :]:
        for layer in range(mesh.layers):
            there = np.flatnonzero(where.exists[layer])
            image = mesh.mirror[axis, layer, there]
            np.testing.assert_allclose(where.x_mm[layer, image], sign[0] * where.x_mm[layer, there], atol=1e-9)
            np.testing.assert_allclose(where.y_mm[layer, image], sign[1] * where.y_mm[layer, there], atol=1e-9)
            np.testing.assert_array_equal(np.sort(image), there)


def _view(model: Autoregressive, geometry: Geometry) -> tuple[Any, npt.NDArray[np.float64]]:
    """A view of two showers, and their cells (2, layers, places + 1), reflected like the view."""
    view = model.view(as_batch(*_showers(geometry, 2, seed=4)), Draws.of(1, 2))
    mesh = mesh_of(geometry)
    images = np.zeros((2, mesh.layers, mesh.places + 1))
    for shower in range(2):
        for (x, y, layer), value in zip(view["place"][shower].numpy(), view["value"][shower].numpy(), strict=True):
            images[shower, layer, x * mesh.shape[1] + y] += value
    return view, images


def _colours(view: Any, geometry: Geometry, layer: int) -> npt.NDArray[np.int64]:
    """The colours of two showers' cells (2, places): 0 at an even number of steps from the cell nearest to the axis or,
    for cells in rings, from the first cell; else 1."""
    mesh, where = mesh_of(geometry), positions(geometry)
    steps = np.stack(np.divmod(np.arange(mesh.places), mesh.shape[1]))
    if geometry.rings:
        return np.tile(steps.sum(0) % 2, (2, 1))
    x, y = (view["axis"].numpy()[:, layer, k, None] * geometry.cell_mm for k in (0, 1))
    nearest = np.nanargmin(np.hypot(where.x_mm[layer] - x, where.y_mm[layer] - y), axis=1)
    return np.abs(steps[:, None] - steps[:, nearest, None]).sum(0) % 2


@pytest.mark.parametrize("odd", [False, True])
def test_what_is_known_of_a_cell_is_what_lies_around_it(
    model: Autoregressive, geometry: Geometry, *, odd: bool
) -> None:
    """The cells around it, and in layers before those around the cell at its place; sector and ring; not itself."""
    view, images = _view(model, geometry)
    mesh, where = mesh_of(geometry), positions(geometry)
    places = [(s, *divmod(int(p), mesh.shape[1]), k) for s in range(2) for k in range(mesh.layers)
              for p in np.flatnonzero(where.exists[k])]  # fmt: skip
    at = tf.constant(places, tf.int32)
    found, radius = (each.numpy() for each in cells.known_in(view, at, model._store, odd=odd))
    scaled = np.log1p(images / float(model._store["deposit"]))
    middle = AROUND.index((0, 0))
    for row, (shower, x, y, layer) in enumerate(places):
        place = x * mesh.shape[1] + y
        for back in (1, 2):
            seen = found[row, (back - 1) * 25 + middle]
            other = max(layer - back, 0)  # to the second layer, the first is both layers before it
            if layer == 0:
                assert not found[row, (back - 1) * 25 : back * 25].any()
                continue
            near = _behind(where, layer, place, other)
            if where.ring_mm[other].any() == where.ring_mm[layer].any() and near is not None:
                assert seen == pytest.approx(scaled[shower, other, near], rel=1e-5, abs=1e-6)
                share = images[shower, other, near] / images[shower, other].sum()
                assert found[row, (75 if odd else 50) + back - 1] == pytest.approx(share, rel=1e-4, abs=1e-6)
        expected = _distance(geometry, layer, place, view["axis"][shower, layer].numpy() * geometry.cell_mm)
        assert radius[row] == pytest.approx(expected, rel=1e-4, abs=1e-5)
        if odd:
            assert found[row, 50 + middle] == 0
        if geometry.rings:
            n, m = mesh.shape
            np.testing.assert_array_equal(found[row, -n - m :], [*np.eye(n)[x], *np.eye(m)[y]])


def _distance(geometry: Geometry, layer: int, place: int, axis_mm: Any = (0.0, 0.0)) -> float:
    """A cell's distance from the axis: that of a square that is hit as often, in its sides; in rings in cells."""
    where, size = positions(geometry), geometry.layers[layer].size_mm
    away = where.x_mm[layer, place] - axis_mm[0], where.y_mm[layer, place] - axis_mm[1]
    if size is None:
        return math.hypot(*away, where.ring_mm[layer, place]) / geometry.cell_mm
    return _of_squares(away, size)


def _of_squares(away: Sequence[float], size: tuple[float, float]) -> float:
    """The distance, in shorter sides, of the square that is hit as often as a cell of `size` in mm whose middle is so
    far `away`. Chances fall with the cube of the distance, and are summed square by square, from the nearest on.
    """
    side, length = min(size), max(size) / min(size)
    number = int(np.ceil(length - 1e-3))
    nearest = [max((abs(each) - (whole - side) / 2) / side, 0) for each, whole in zip(away, size, strict=True)]
    chances = 0.0
    for further in np.linspace(0, length - 1, number):
        square = [each + further * (whole > side) for each, whole in zip(nearest, size, strict=True)]
        chances += length / number / max(math.hypot(*square), 1e-6) ** 3
    return float(chances ** (-1 / 3))


def _behind(where: Positions, layer: int, place: int, other: int) -> int | None:
    """The place of the cell of the `other` layer that the middle of a cell lies in; None if that is near its edge.

    It is the one whose middle is nearest or, of cells that go round, whose radius is.
    """
    x, y, ring = (of[other] - of[layer, place] for of in (where.x_mm, where.y_mm, where.ring_mm))
    radius = np.abs(where.ring_mm[other] - where.r_mm[layer, place])
    near = int(np.nanargmin(np.where(where.ring_mm[other] > 0, radius, np.hypot(x, y))))
    apart = math.hypot(x[near], y[near], ring[near])
    return near if apart < np.sqrt(np.nanmin(where.area_mm2[other])) / 4 else None


def test_sampling_is_told_what_training_was(model: Autoregressive, geometry: Geometry) -> None:
    view, images = _view(model, geometry)
    mesh, where = mesh_of(geometry), positions(geometry)
    scaled = np.log1p(images / float(model._store["deposit"]))
    for layer in range(mesh.layers):
        there = np.flatnonzero(where.exists[layer])
        for odd in (False, True):
            colours = _colours(view, geometry, layer)
            if not (chosen := [(s, p) for s in range(2) for p in there if colours[s, p] == odd]):
                continue  # a layer of one cell
            cell = Cells(*tf.unstack(tf.constant(chosen, tf.int32), axis=1))
            at = tf.constant([(s, *divmod(int(p), mesh.shape[1]), layer) for s, p in chosen], tf.int32)
            expected, _ = cells.known_in(view, at, model._store, odd=odd)
            before = [scaled[:, layer - k] if layer >= k else 0 * scaled[:, 0] for k in (1, 2)]
            own = np.where(np.pad(colours, [(0, 0), (0, 1)], constant_values=1) == 0, scaled[:, layer], 0)
            drawing = layer_drawing(model, view, layer, tuple(tf.constant(each, tf.float32) for each in before))
            np.testing.assert_array_equal(drawing._colours()[0].numpy()[:, there], colours[:, there] == 0)
            found, _ = drawing._known(cell, tf.constant(own.reshape(-1), tf.float32) if odd else None)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_turned_shower_has_the_same_sums() -> None:
    """After a turn by two of eight angles all sums are the same, except those that name a direction."""
    geometry = Geometry.of_layers((_RING,) * 4, 1e-3)
    images, energy, theta = _showers(geometry, 12)
    store = Few(geometry, depth=1.2, radius_half=0.9, radius_most=2.6, deposit=0.4)
    found = []
    for turned in (images, np.roll(images, 2, axis=1)):
        batch = as_batch(turned, energy, theta)
        hits, *_ = frame.reflect(batch["cell"], batch["value"], labels_of(batch), store)
        sums = tf.reduce_sum(frame.layer_sums(hits, store), 2)
        round_about = [frame.column(sums, name) for name in frame.SUMS[:6]]
        found.append(np.stack([*round_about, frame.column(sums, "xx") + frame.column(sums, "yy")]))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("alone", [0, 1])
def test_showers_lie_in_cells_that_exist_and_have_their_layers_energies(
    model: Autoregressive, geometry: Geometry, monkeypatch: pytest.MonkeyPatch, alone: int
) -> None:
    """Except for layers with a hit alone, which has its own energy."""
    monkeypatch.setattr(frame, "ALONE", alone)
    energy = np.geomspace(1.2, 45, 40).astype(np.float32)
    labels, noise = Labels(tf.constant(energy), tf.fill([40], np.float32(np.pi / 2))), tf.constant(noise_of(model, 40))
    found = drawn_showers(model.networks, labels, noise).numpy()
    n, m, layers = geometry.shape
    assert found.shape == (40, n, m, layers)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    where = positions(geometry)
    assert not found.reshape(40, n * m, layers).transpose(0, 2, 1)[:, ~where.exists].any()
    plan = drawn_plan(model.networks, labels, noise[:, :-3])
    least = float(model._store["least"])
    kept = np.isclose(found.sum((1, 2)), plan.energy, rtol=1e-4, atol=50 * least)
    assert kept.all() if alone == 0 else kept.mean() > 0.1
    assert layers == 1 or (plan.energy.numpy() == 0).any()  # empty layers are among them, and stay empty
    np.testing.assert_array_equal(found.sum((1, 2))[plan.energy.numpy() == 0], 0)
    assert found[found > 0].min() >= 0.999 * least


def test_every_empty_cell_can_be_drawn(model: Autoregressive, geometry: Geometry) -> None:
    """In training, for both colours. In sampling every cell is proposed or in the core."""
    view, images = _view(model, geometry)
    mesh, where = mesh_of(geometry), positions(geometry)
    met = mesh.met(tf.reshape(view["axis"], [2, -1, 2]), tf.range(mesh.layers)).numpy()
    for parity in (0, 1):
        place, weight = cells.some_empty(view, parity, 40_000, Draws.of(1), model._store)
        found = {tuple(row) for row in place.numpy()[weight.numpy() > 0].tolist()}
        expected = {
            (shower, *divmod(int(at), mesh.shape[1]), layer)
            for shower in range(2)
            for layer in range(mesh.layers)
            for at in np.flatnonzero(where.exists[layer])
            if (mesh.parity[at] + met[shower, layer].sum()) % 2 == parity and images[shower, layer, at] == 0
        }
        assert found == expected
    for layer in range(mesh.layers):
        place = np.flatnonzero(where.exists[layer])
        for shower in range(2):
            at = Lattice(mesh).place(tf.constant(met[shower, layer][None]), tf.zeros(place.shape, tf.int32), place)
            assert (model._store["rate"].numpy()[layer, at] > 0).all()


def test_priors_count_the_cells_of_each_layer(model: Autoregressive, geometry: Geometry) -> None:
    """They are the mean occupancy of the showers of the constants, by layer; far away that of the last radius."""
    images, _, _ = _showers(geometry, 300)
    mesh, where, tables = mesh_of(geometry), positions(geometry), cells.prior_tables(model._store)
    far, _ = cells.priors(tables, tf.range(mesh.layers), tf.fill([mesh.layers], 1e3))
    np.testing.assert_allclose(far, model._store["odds"][:, -1], atol=0.02)
    for layer in range(mesh.layers):
        there = np.flatnonzero(where.exists[layer])
        radius = tf.constant([_distance(geometry, layer, place) for place in there], tf.float32)
        odds = cells.priors(tables, tf.fill(radius.shape, layer), radius)[0].numpy()
        occupied = (images[..., layer] > 0).reshape(300, -1)[:, there].mean()
        assert (1 / (1 + np.exp(-odds))).mean() == pytest.approx(occupied, rel=0.25, abs=0.01)


def test_a_large_calorimeter_has_proposals_for_every_place() -> None:
    """The calorimeter has more places than the table once had entries."""
    mesh = Mesh(Geometry((81, 81, 2), cell_mm=5, layer_pitch_mm=4, x0_per_layer=1, file_unit_gev=0.02))
    share = np.tile(np.linspace(3e-3, 1e-6, cells.radius_knots(mesh.reach)), (2, 1))
    axes = np.array([[[80, 0]], [[0, 80]]])  # along both layers; about some of these every place is a cell
    found = proposals.tables(share, mesh, axes + np.zeros((2, 2, 2), int), 1)
    assert found["far_table"].shape == (2, 3 * 161 * 161)
    for layer in range(2):
        proposed = np.union1d(found["far_table"][layer], found["core"][layer])
        np.testing.assert_array_equal(proposed, np.arange(161 * 161))


def test_a_cell_is_as_far_as_a_square_that_is_hit_as_often() -> None:
    """The lattice has the least distances that cells can have from an axis in its middle cell."""
    mesh = Mesh(Geometry.of_layers([Layer(5.0, 1.0, (9, 7), size_mm=size) for size in _OBLONG], 0.001))
    assert mesh.lattice_shape == (17, 13)  # from the first cell to the last, and back
    radius = least_distances(mesh, np.array([[[4, 3]] * 2])).reshape(2, 17, 13)
    there, axis = positions(mesh.geometry), np.array([1.3, -0.4])
    for layer, size in enumerate(_OBLONG):
        middle = np.stack([there.x_mm[layer], there.y_mm[layer]], -1)
        away = ((middle - axis) / mesh.geometry.cell_mm).T.astype(np.float32)
        *along, seen = mesh.seen(*away, np.zeros(63, np.float32), np.full(63, layer))
        np.testing.assert_allclose(along, away * mesh.geometry.cell_mm / min(size), rtol=1e-5)
        np.testing.assert_allclose(seen, [_of_squares(each - axis, size) for each in middle], rtol=1e-4)
        axes = np.stack(np.meshgrid(*(np.linspace(-each / 2, each / 2, 5) for each in size)), -1).reshape(-1, 2)
        least = [min(_of_squares(each - place, size) for place in axes) for each in middle]
        np.testing.assert_allclose(radius[layer, 4:13, 3:10].reshape(-1), least, atol=1e-4)
        assert np.isfinite(radius[layer]).sum() == 11 * 9  # the layer, and a cell to either side for axes beside it


def test_the_lattice_leads_to_the_cells_that_exist_and_back(geometry: Geometry) -> None:
    """The lattice lies about cells of the calorimeter, about cells beside it, or about places far away."""
    mesh, where = mesh_of(geometry), positions(geometry)
    lattice, far = np.indices(mesh.lattice_shape).reshape(2, -1), 2 * max(*mesh.shape, *mesh.lattice_shape)
    met = np.random.default_rng(5).integers(-3, np.add(mesh.shape, 3), (40, 2)) * (geometry.rings == 0)
    met = np.concatenate([met, [[0, far], [-far, 0], [10**6, -(10**6)]]]).astype(np.int32)
    first, second = (met + mesh.start)[..., None].transpose(1, 0, 2) + lattice[:, None]
    for layer in range(mesh.layers):
        inside = (first >= 0) & (first < mesh.shape[0]) & (second >= 0) & (second < mesh.shape[1])
        expected = np.where(inside, first * mesh.shape[1] + second, mesh.places)
        expected[~np.append(where.exists[layer], True)[expected]] = mesh.places
        steps = tf.concat([[NOWHERE], Lattice(mesh).steps(tf.range(lattice.shape[1]))], 0)
        steps = steps[None] + tf.zeros([len(met), 1], tf.int32)
        found = Lattice(mesh).cells(tf.constant(met), steps, tf.constant(layer)).numpy()
        np.testing.assert_array_equal(found, np.pad(expected, ((0, 0), (1, 0)), constant_values=mesh.places))
        shower, at = np.nonzero(expected < mesh.places)
        back = Lattice(mesh).place(tf.constant(met), tf.constant(shower), tf.constant(expected[shower, at]))
        np.testing.assert_array_equal(back, at)
