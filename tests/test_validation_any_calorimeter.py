"""Observables of cells in rings and of layers that differ: against loops over cells, and against layers alike."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from showers import RING_GEOMETRY, SMALL_GEOMETRY, make_ring_showers, make_showers

from calopipe.errors import InputError
from calopipe.showers.cells import FloatArray, Geometry, Layer
from calopipe.showers.challenge.datasets import known
from calopipe.showers.hits import Hits
from calopipe.showers.positions import positions
from validation.measure.edges import SPECTRUM_EDGES, lateral_edges_mm, radial_edges_mm, ring_labels, thirds
from validation.measure.observables import CELL_GEV, HIT_GEV, Array, Observables, observe, observe_hits
from validation.measure.pictures import pictures, views_mm
from validation.measure.seen import lateral_shares
from validation.measure.voxels import coarse_blocks

MIXED = Geometry.of_layers(
    [Layer(4.0, 0.5, (9, 8), size_mm=(5.0, 5.0))] * 3 + [Layer(12.0, 2.0, (3, 4), size_mm=(15.0, 10.0))] * 2, 0.02
)
ALIKE = replace(
    SMALL_GEOMETRY, layers=(Layer(20.0, 5.02, (17, 17), size_mm=(15.3, 15.3)),) * 5
)  # `of_layers` would not list them


def random_cells(geometry: Geometry, events: int = 4) -> FloatArray:
    rng = np.random.default_rng(5)
    filled = rng.random((events, *geometry.shape)) < 0.5
    cells = filled * rng.exponential(0.05 / geometry.file_unit_gev, (events, *geometry.shape))
    exists = np.moveaxis(positions(geometry).exists, 0, 1).reshape(geometry.shape)
    return (cells * exists).astype(np.float32)


def observed(cells: FloatArray, geometry: Geometry) -> Observables:
    labels = np.full(len(cells), 100.0), np.full(len(cells), math.pi / 2)
    return observe_hits(Hits.of(cells), *labels, geometry)


def cells_of(shower: FloatArray, geometry: Geometry) -> list[tuple[float, float, float, int, float]]:
    """x, y, radius of a full ring, layer and energy of each cell that holds any, by the layers' own description."""
    found = []
    for (i, j, number), value in np.ndenumerate(shower):
        layer = geometry.layers[number]
        if value <= 0:
            continue
        if layer.size_mm is not None:
            x, y, ring = (
                *((k + 0.5 - n / 2) * size for k, n, size in zip((i, j), layer.cells, layer.size_mm, strict=True)),
                0.0,
            )
        else:
            assert layer.r_edges_mm is not None
            radius = (layer.r_edges_mm[j] + layer.r_edges_mm[j + 1]) / 2
            angle = -math.pi + (i + 0.5) * 2 * math.pi / layer.cells[0]
            x, y, ring = radius * math.cos(angle), radius * math.sin(angle), 0.0
            if layer.cells[0] == 1:
                x, y, ring = 0.0, 0.0, radius
        found.append((x, y, ring, number, float(value) * geometry.file_unit_gev))
    return found


@pytest.mark.parametrize("geometry", [MIXED, RING_GEOMETRY], ids=["layers", "rings"])
def test_observables_agree_with_loops(geometry: Geometry) -> None:
    cells = random_cells(geometry)
    table = observed(cells, geometry)
    fronts = np.cumsum([0.0, *(layer.x0 for layer in geometry.layers)])
    places = np.cumsum([0.0, *(layer.pitch_mm for layer in geometry.layers)])
    depth = (fronts[1:] + fronts[:-1]) / 2
    z = (places[1:] + places[:-1]) / 2
    existing = sum(layer.cells[0] * layer.cells[1] for layer in geometry.layers)
    for event, shower in enumerate(cells):
        x, y, ring, number, energy = map(np.array, zip(*cells_of(shower, geometry), strict=True))

        def mean(values: Array, energy: Array = energy) -> float:
            return float((values * energy).sum() / energy.sum())

        line_x, line_y = (np.polyval(np.polyfit(z[number], along, 1, w=np.sqrt(energy)), z[number]) for along in (x, y))
        distance = np.sqrt((x - line_x) ** 2 + (y - line_y) ** 2 + ring**2)
        order = np.argsort(distance)
        third = (fronts[number] / fronts[-1] * 3 + 1e-9).astype(int)
        expected = {
            "visible_gev": energy.sum(),
            "response": energy.sum() / 100,
            "depth_x0": mean(depth[number]),
            "depth_width_x0": math.sqrt(mean((depth[number] - mean(depth[number])) ** 2)),
            "layer_of_maximum": np.bincount(number, energy).argmax(),
            "mean_x_mm": mean(x),
            "mean_y_mm": mean(y),
            "second_x_mm2": mean((x - mean(x)) ** 2 + ring**2 / 2),
            "second_y_mm2": mean((y - mean(y)) ** 2 + ring**2 / 2),
            "hits": (energy > HIT_GEV).sum(),
            "sparsity": 1 - (energy > CELL_GEV).sum() / existing,
            **{f"{name}_third": mean((third == k) * 1.0) for k, name in enumerate(("first", "middle", "last"))},
        }
        for name, value in expected.items():
            assert table.column(name)[event] == pytest.approx(value, rel=1e-6, abs=1e-9), name
        r90 = distance[order][np.searchsorted(np.cumsum(energy[order]) / energy.sum(), 0.9)]
        assert table.column("r90_mm")[event] == pytest.approx(r90, abs=geometry.cell_mm / 20)
        radial = np.append(radial_edges_mm(geometry)[:-1], np.inf)
        np.testing.assert_allclose(table.radial[event], np.histogram(distance, radial, weights=energy)[0], atol=1e-6)
        np.testing.assert_allclose(table.layers[event], np.bincount(number, energy, len(geometry.layers)), rtol=1e-5)
        spectrum = np.histogram(np.log10(energy[energy > HIT_GEV]), SPECTRUM_EDGES)[0]
        np.testing.assert_array_equal(table.spectrum[event], spectrum)
        for values in (table.along_x, table.along_y, table.ring_energy, table.coarse, table.radial):
            assert values[event].sum() == pytest.approx(energy.sum(), rel=1e-5)
        assert table.ring_cells[event].sum() == (energy > CELL_GEV).sum()
        assert table.ring_energy.shape[1] == len(ring_labels(geometry))


@pytest.mark.parametrize("geometry", [MIXED, RING_GEOMETRY, *known().values()])
def test_every_cell_is_shared_out_once_and_blocks_are_not_many(geometry: Geometry) -> None:
    exists = positions(geometry).exists
    for shares in lateral_shares(geometry):
        np.testing.assert_allclose(shares.sum(axis=1), exists.reshape(-1), atol=1e-12)
    blocks = coarse_blocks(geometry)
    assert ((blocks >= 0) == exists).all()
    assert len(np.unique(blocks[exists])) == blocks.max() + 1 <= 500
    assert set(thirds(geometry)) <= {0, 1, 2}
    for edges in (radial_edges_mm(geometry), *lateral_edges_mm(geometry), SPECTRUM_EDGES):
        assert (np.diff(edges) > 0).all()
        assert len(edges) <= 80
    assert len(ring_labels(geometry)) <= 40


def test_a_turned_shower_of_rings_looks_the_same_but_for_its_place() -> None:
    geometry = known()["calochallenge-2"]
    showers = make_ring_showers(events=5, seed=1, geometry=geometry)
    labels = showers.energy_gev, showers.theta_rad
    plain, turned = (observe(np.roll(showers.cells, shift, axis=1), *labels, geometry) for shift in (0, 4))
    for name, other in (("second_x_mm2", "second_y_mm2"), ("mean_x_mm", "mean_y_mm")):  # by a quarter of a circle
        np.testing.assert_allclose(abs(turned.column(other)), abs(plain.column(name)), rtol=1e-6)
    for name in ("r90_mm", "depth_x0", "hits", "sparsity", "last_third"):
        np.testing.assert_allclose(turned.column(name), plain.column(name), rtol=1e-6)
    np.testing.assert_allclose(turned.ring_energy, plain.ring_energy, rtol=1e-4, atol=1e-6)


def test_an_empty_shower_in_rings_has_nothing_to_average() -> None:
    cells = random_cells(RING_GEOMETRY, 2)
    cells[0] = 0
    table = observed(cells, RING_GEOMETRY)
    for name in ("depth_x0", "mean_x_mm", "second_y_mm2", "r90_mm", "first_third", "angle_deg", "layer_of_maximum"):
        assert math.isnan(table.column(name)[0]), name
        assert math.isfinite(table.column(name)[1]), name
    assert table.column("sparsity")[0] == 1
    assert not any(values[0].any() for values in (table.along_x, table.radial, table.coarse))


def test_energy_where_there_is_no_cell_is_an_error() -> None:
    cells = np.ones((1, *RING_GEOMETRY.shape), np.float32)
    with pytest.raises(InputError, match="in layer 0; give the --geometry"):
        observed(cells, RING_GEOMETRY)


def test_pictures_show_each_cell_at_its_place() -> None:
    """One cell of rings: the view from the front is bright where the cell is, and holds its energy up to the raster."""
    geometry = replace(known()["calochallenge-2"], file_unit_gev=0.5)
    cells = np.zeros((1, *geometry.shape), np.float32)
    cells[0, 9, 5, 30] = 14.0  # 7 GeV at an angle of pi/8 + pi/16, radius of 23.25 to 27.9 mm
    (shown,) = pictures(cells, observed(cells, geometry), geometry, 3)
    (z, y), (front_x, front_y) = views_mm(geometry)
    assert shown.side.sum() == pytest.approx(7.0, rel=1e-5)
    assert shown.front.sum() == pytest.approx(7.0, rel=0.1)
    angle, radius = math.pi * 3 / 16, 25.575
    middle = [(edges[1:] + edges[:-1]) / 2 for edges in (front_x, front_y, y, z)]
    i, j = np.nonzero(shown.front)
    assert np.mean(middle[0][i]) == pytest.approx(radius * math.cos(angle), abs=0.5)
    assert np.mean(middle[1][j]) == pytest.approx(radius * math.sin(angle), abs=0.5)
    rows, columns = np.nonzero(shown.side)
    assert set(columns) == {30}
    assert (shown.side.sum(axis=1) @ middle[2]) / 7 == pytest.approx(radius * math.sin(angle), abs=0.5)
    assert middle[3][30] == pytest.approx(30.5 * 1.7)
    assert len(rows) > 1


def test_pictures_of_listed_layers_are_those_of_layers_alike() -> None:
    showers = make_showers(events=2, seed=4)
    plain, listed = (
        pictures(showers.cells, observed(showers.cells, geometry), geometry, 2) for geometry in (SMALL_GEOMETRY, ALIKE)
    )
    for ours, theirs in zip(plain, listed, strict=True):
        np.testing.assert_allclose(theirs.side, ours.side, rtol=1e-5)
        np.testing.assert_allclose(theirs.front, ours.front, rtol=1e-5)
