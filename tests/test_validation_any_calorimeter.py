"""Observables of alike layers, of layers that differ, and of rings: against loops over cells, and closed forms."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from faults import layers_of_others
from judging import criteria_of, failed, geant4
from showers import RING_GEOMETRY, SMALL_GEOMETRY, make_showers, measured_angle, observed, upright

from calopipe.errors import InputError
from calopipe.showers.cells import HIT_GEV, REFERENCE_GEOMETRY, Array, FloatArray, Geometry, Layer
from calopipe.showers.detectors import detectors
from calopipe.showers.positions import positions
from validation.measure.deposits import line
from validation.measure.edges import (
    RING_EDGES,
    SPECTRUM_EDGES,
    coarse_blocks,
    lateral_edges_mm,
    radial_edges_mm,
    ring_count,
    ring_label,
    ring_places,
    thirds,
)
from validation.measure.observables import CELL_GEV, SCALARS, containment_radius
from validation.measure.pictures import pictures, views_mm
from validation.measure.profiles import lateral_shares
from validation.statistics.expected import pulls

GRID = Geometry(shape=(7, 6, 5), cell_mm=5.0, layer_pitch_mm=4.0, x0_per_layer=1.5, file_unit_gev=0.02)
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
    cells[0, :, :, 1] = 0  # a layer without energy: neither its pair with the first nor with the third counts
    return (cells * exists).astype(np.float32)


def cells_of(shower: FloatArray, geometry: Geometry) -> list[tuple[float, float, float, int, float]]:
    """x, y, radius of a full ring, layer and energy of each cell with energy, by the description of the layers."""
    found = []
    for (i, j, number), value in np.ndenumerate(shower):
        layer = geometry.every_layer[number]
        if value <= 0:
            continue
        ring = 0.0
        if layer.size_mm is not None:
            x, y = ((k + 0.5 - n / 2) * size for k, n, size in zip((i, j), layer.cells, layer.size_mm, strict=True))
        else:
            assert layer.r_edges_mm is not None
            radius = (layer.r_edges_mm[j] + layer.r_edges_mm[j + 1]) / 2
            angle = -math.pi + (i + 0.5) * 2 * math.pi / layer.cells[0]
            x, y = radius * math.cos(angle), radius * math.sin(angle)
            if layer.cells[0] == 1:
                x, y, ring = 0.0, 0.0, radius
        found.append((x, y, ring, number, float(value) * geometry.file_unit_gev))
    return found


def continuity_by_loops(shower: FloatArray, geometry: Geometry) -> tuple[float, float]:
    """`hottest_kept` and `overlap` of a shower, pair by pair and cell by cell."""
    kept = overlap = weights = 0.0
    listed = geometry.every_layer
    for second in range(1, len(listed)):
        front, back = (shower[..., number].astype(np.float64) for number in (second - 1, second))
        if front.sum() == 0 or back.sum() == 0:
            continue
        (rows, columns), (wide, high) = listed[second].cells, listed[second].size_mm or (0, 0)
        (n, m), (width, height) = listed[second - 1].cells, listed[second - 1].size_mm or (0, 0)
        before, common = {}, 0.0
        for x, y in np.ndindex(rows, columns):
            at = math.floor((x - (rows - 1) / 2) * wide / width + n / 2 + 1e-9)
            up = math.floor((y - (columns - 1) / 2) * high / height + m / 2 + 1e-9)
            before[x, y] = at, up
            common += min(back[x, y] / back.sum(), front[at, up] / front.sum())
        hottest = [np.unravel_index(layer.argmax(), layer.shape) for layer in (front, back)]
        weight = front.sum() + back.sum()
        weights += weight
        overlap += weight * common
        kept += weight * (before[tuple(map(int, hottest[1]))] == tuple(map(int, hottest[0])))
    return kept / weights, overlap / weights


@pytest.mark.parametrize(
    ("geometry", "rings_mm"),
    [(GRID, 5 * RING_EDGES), (MIXED, 5 * RING_EDGES), (RING_GEOMETRY, [0, 5, 10, 20, 40, 60])],
    ids=["alike", "layers", "rings"],
)
def test_observables_agree_with_loops(geometry: Geometry, rings_mm: Array) -> None:
    cells = random_cells(geometry)
    cells[0].reshape(-1)[np.flatnonzero(cells[0])[9]] = 0.9 * CELL_GEV / geometry.file_unit_gev  # too little to count
    table = observed(upright(cells), geometry)
    fronts = np.cumsum([0.0, *(layer.x0 for layer in geometry.every_layer)])
    places = np.cumsum([0.0, *(layer.pitch_mm for layer in geometry.every_layer)])
    depth = (fronts[1:] + fronts[:-1]) / 2
    z = (places[1:] + places[:-1]) / 2
    blocks = np.moveaxis(coarse_blocks(geometry), 0, 1).reshape(geometry.shape)
    existing = sum(layer.cells[0] * layer.cells[1] for layer in geometry.every_layer)
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
        if not geometry.rings:
            expected |= dict(zip(("hottest_kept", "overlap"), continuity_by_loops(shower, geometry), strict=True))
        for name, value in expected.items():
            assert table.column(name)[event] == pytest.approx(value, rel=1e-6, abs=1e-9), name
        r90 = distance[order][np.searchsorted(np.cumsum(energy[order]) / energy.sum(), 0.9)]
        assert table.column("r90_mm")[event] == pytest.approx(r90, abs=geometry.cell_mm / 20)
        radial = np.append(radial_edges_mm(geometry)[:-1], np.inf)
        np.testing.assert_allclose(table.radial[event], np.histogram(distance, radial, weights=energy)[0], atol=1e-6)
        np.testing.assert_allclose(table.layers[event], np.bincount(number, energy, geometry.shape[2]), rtol=1e-5)
        spectrum = np.histogram(np.log10(energy[energy > CELL_GEV]), SPECTRUM_EDGES)[0]
        np.testing.assert_array_equal(table.spectrum[event], spectrum)
        coarse = np.bincount(blocks[shower > 0], energy, blocks.max() + 1)  # both in the order of `np.ndenumerate`
        np.testing.assert_allclose(table.coarse[event], coarse, rtol=1e-5)
        for values in (table.along_x, table.along_y, table.radial):
            assert values[event].sum() == pytest.approx(energy.sum(), rel=1e-5)
        rings = np.append(rings_mm, np.inf)
        held = np.histogram(distance, rings, weights=energy)[0]
        np.testing.assert_allclose(table.ring_energy[event], held, rtol=1e-5, atol=1e-9)
        np.testing.assert_array_equal(table.ring_cells[event], np.histogram(distance[energy > CELL_GEV], rings)[0])
        if geometry is GRID:
            np.testing.assert_allclose(table.along_x[event], shower.sum(axis=(1, 2)) * 0.02, rtol=1e-5)
            np.testing.assert_allclose(table.along_y[event], shower.sum(axis=(0, 2)) * 0.02, rtol=1e-5)


@pytest.mark.parametrize("geometry", [MIXED, RING_GEOMETRY, *detectors().values()])
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
        assert len(edges) <= 100
    assert ring_count(geometry) <= 40


def test_edges_are_those_that_cells_have() -> None:
    """Half cells; or radii that are at least a typical cell, and a tenth of the inner radius, apart, with both ends."""
    assert radial_edges_mm(SMALL_GEOMETRY).tolist() == pytest.approx([7.65 * k for k in range(31)])
    kept = [*range(12), 13, 15, 18]  # of 19 radii: the eleventh is ten cells out
    assert radial_edges_mm(detectors()["calochallenge-3"]) / 2.325 == pytest.approx(kept)
    assert [ring_label(RING_GEOMETRY, ring, ring) for ring in range(ring_count(RING_GEOMETRY))] == [
        *(f"{low} to {high} mm" for low, high in ((0, 5), (5, 10), (10, 20), (20, 40), (40, 60))), "beyond 60 mm",
    ]  # fmt: skip
    in_cells = np.array([0, 0.99, 1, 2, 3.99, 4, 8, 12, 1e3])  # of 5 mm
    assert ring_places(in_cells, RING_GEOMETRY).tolist() == [0, 0, 1, 2, 2, 3, 4, 5, 5]
    mixed = [Layer(1.0, 1.0, (10, 4), size_mm=(1.0, 3.0)), *[Layer(1.0, 1.0, (5, 5), size_mm=(2.0, 2.0))] * 2]
    along_x, along_y = lateral_edges_mm(Geometry.of_layers(mixed, 1.0))
    assert along_x.tolist() == [-5, -2, 0, 2, 5]
    assert along_y.tolist() == [-6, -3, 0, 3, 6]
    along_x, along_y = lateral_edges_mm(Geometry.of_layers([mixed[0], *mixed[:2]], 1.0))
    assert along_x.tolist() == [*range(-5, 6)]
    assert along_y.tolist() == [-6, -3, 0, 3, 6]
    np.testing.assert_allclose(10 ** SPECTRUM_EDGES[[25, 65]], [HIT_GEV, 1.0])
    assert 10 ** SPECTRUM_EDGES[0] <= CELL_GEV < 10 ** SPECTRUM_EDGES[1]
    assert 10 ** SPECTRUM_EDGES[-1] == pytest.approx(1e3, rel=0.02)
    assert np.bincount(thirds(REFERENCE_GEOMETRY)).tolist() == [9, 8, 8]
    for layers in range(3, 30, 3):
        assert np.bincount(thirds(Geometry((1, 1, layers), 5.0, 4.0, 0.1, 1.0))).tolist() == [layers // 3] * 3


@pytest.mark.parametrize(
    ("geometry", "groups", "along_x", "along_y"),
    [
        # outward from three cells in the middle, or two, blocks of two, four and eight; at most five groups of layers
        (
            Geometry((21, 40, 7), 5.0, 4.0, 1.0, 1.0),
            (2, 1, 2, 1, 1),
            (3, 4, 2, 3, 2, 4, 3),
            (5, 8, 4, 2, 2, 2, 4, 8, 5),
        ),
        (REFERENCE_GEOMETRY, (5,) * 5, *[(10, 8, 4, 2, 3, 2, 4, 8, 10)] * 2),
        (replace(REFERENCE_GEOMETRY, shape=(6, 50, 12)), (3, 2, 3, 2, 2), (2, 2, 2), (10, 8, 4, 2, 2, 2, 4, 8, 10)),
        # at most nine groups, eight sectors, and rings that end at 1, 2, 3, 5 and 8 widths of one
        (detectors()["calochallenge-2"], (5,) * 9, (2,) * 8, (1, 1, 1, 2, 3, 1)),
        (detectors()["calochallenge-1-photons"], (1,) * 5, None, None),
    ],
)
def test_blocks_are_of_neighbours_and_wider_outward(
    geometry: Geometry, groups: tuple[int, ...], along_x: tuple[int, ...] | None, along_y: tuple[int, ...] | None
) -> None:
    blocks = coarse_blocks(geometry)
    layer = np.repeat(np.arange(len(groups)), groups)
    for one, other in itertools.combinations(range(len(layer)), 2):
        shared = set(blocks[one]) & set(blocks[other]) - {-1}
        assert bool(shared) == (layer[one] == layer[other])
    if along_x is None or along_y is None:
        return
    x, y = (np.repeat(np.arange(len(runs)), runs) for runs in (along_x, along_y))
    expected = (layer[:, None, None] * len(along_x) + x[:, None]) * len(along_y) + y
    np.testing.assert_array_equal(blocks, expected.reshape(blocks.shape))


def test_the_energy_of_a_cell_is_spread_evenly_over_it() -> None:
    """Against points drawn in a cell of rings, and a cell between two bins."""
    rng = np.random.default_rng(7)
    edges = lateral_edges_mm(RING_GEOMETRY)
    radius, angle = np.sqrt(rng.uniform(20**2, 40**2, 50_000)), rng.uniform(-math.pi, -math.pi * 3 / 4, 50_000)
    place = RING_GEOMETRY.shape[0] * RING_GEOMETRY.shape[1] + 3  # the first angle and the fourth ring of layer 1
    for shares, ends, turn in zip(lateral_shares(RING_GEOMETRY), edges, (np.cos, np.sin), strict=True):
        drawn = np.histogram(radius * turn(angle), ends)[0] / 50_000
        np.testing.assert_allclose(shares.toarray()[place], drawn, atol=0.03)
    wide = Geometry.of_layers(
        [*[Layer(1.0, 1.0, (4, 1), size_mm=(4.0, 4.0))] * 2, Layer(1.0, 1.0, (1, 1), size_mm=(16.0, 4.0))], 1.0
    )
    assert lateral_shares(wide)[0].toarray()[8].tolist() == [0.25] * 4


@pytest.mark.parametrize("geometry", [GRID, RING_GEOMETRY])
def test_an_empty_shower_has_zeros_and_nothing_to_average_and_one_of_a_layer_no_continuity(geometry: Geometry) -> None:
    cells = random_cells(geometry, 3)
    cells[0], cells[2, :, :, 1:] = 0, 0
    table = observed(upright(cells), geometry)
    assert table.empty.tolist() == [True, False, False]
    for name in ("hottest_kept", "overlap"):
        np.testing.assert_array_equal(table.column(name)[[0, 2]], [np.nan, 0])
    for name in ("visible_gev", "response", "hits"):
        assert table.column(name)[0] == 0
    for name in ("depth_x0", "mean_x_mm", "second_y_mm2", "r90_mm", "first_third", "angle_deg", "layer_of_maximum"):
        assert math.isnan(table.column(name)[0]), name
        assert math.isfinite(table.column(name)[1]), name
    assert table.column("sparsity")[0] == 1
    assert not any(values[0].any() for values in (table.along_x, table.radial, table.coarse, table.spectrum))


def test_energy_where_there_is_no_cell_is_an_error() -> None:
    cells = random_cells(RING_GEOMETRY, 1)
    cells[0, 3, 2, 5] = cells[0, 7, 4, 5] = 1
    with pytest.raises(InputError, match="in 2 places that are no cells, the first in layer 5; give the --geometry"):
        observed(upright(cells), RING_GEOMETRY)


def test_pictures_show_each_cell_at_its_place() -> None:
    """One cell of rings: the front view is bright at the place of the cell, and holds its energy up to the raster."""
    geometry = replace(detectors()["calochallenge-2"], file_unit_gev=0.5)
    cells = np.zeros((1, *geometry.shape), np.float32)
    cells[0, 9, 5, 30] = 14.0  # 7 GeV at an angle of pi/8 + pi/16, radius of 23.25 to 27.9 mm
    (shown,) = pictures(cells, observed(upright(cells), geometry), geometry, 3)
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


def test_views_reach_as_far_as_the_cells_and_twelve_of_them_at_most() -> None:
    (depth, along_y), (x, y) = views_mm(RING_GEOMETRY)
    assert depth.tolist() == [0, 10, 40, 70, 100, 130, 140]
    assert (along_y[0], along_y[-1]) == (-80, 80)
    for edges, reach, bins in (x, 60.0, 96), (y, 60.0, 96), (views_mm(detectors()["calochallenge-2"])[1][0], 41.85, 72):
        assert (edges[0], edges[-1], len(edges)) == (pytest.approx(-reach), pytest.approx(reach), bins + 1)


@pytest.mark.parametrize("geometry", [SMALL_GEOMETRY, ALIKE], ids=["alike", "listed"])
def test_a_picture_is_of_a_shower_that_is_not_empty(geometry: Geometry) -> None:
    showers = make_showers(events=4, seed=4)
    table = observed(showers, geometry)
    table.column("hits")[0] = 0
    shown = pictures(showers.cells, table, geometry, 2)
    assert [picture.theta_rad for picture in shown] == showers.theta_rad[1:3].tolist()
    for picture, shower in zip(shown, showers.cells[1:3] * 0.02, strict=True):
        np.testing.assert_allclose(picture.side, shower.sum(axis=0), rtol=1e-5)
        np.testing.assert_allclose(picture.front, shower.sum(axis=2), rtol=1e-5)


@pytest.mark.parametrize("energy_gev", [(20.0, 20.0), (1.0, 100.0)])
def test_what_varies_by_rounding_alone_correlates_with_nothing(energy_gev: tuple[float, float]) -> None:
    """For example R90 if a layer has one cell: it is constant except for the last bit, which follows the energy."""
    some = observed(make_showers(events=200))
    scalars, place = some.scalars.copy(), list(SCALARS).index("r90_mm")
    scalars[:, place] = 4.5 * np.where(scalars[:, 0] > np.median(scalars[:, 0]), 1.0, 1 - 2e-16)
    some = replace(some, scalars=scalars, energy_gev=np.geomspace(*energy_gev, 200))
    found = pulls(some, ["visible_gev", "r90_mm"])(some)
    assert (found[:, 1] == 0).all()
    assert found[:, 0].std() > 0.5


def test_the_line_of_a_shower_in_one_layer_is_its_mean_along_all() -> None:
    """A slope that is only rounding would lead the line out of the calorimeter."""
    rng = np.random.default_rng(4)
    z = 3.3 + 4.1 * np.arange(25)
    energy, place = rng.uniform(1e-3, 100, 5_000), rng.uniform(-120, 120, 5_000)
    layers = np.zeros((5_000, 25))
    layers[np.arange(5_000), rng.integers(0, 25, 5_000)] = energy
    found = line(layers, layers * place[:, None], z)
    np.testing.assert_allclose(found, np.repeat(place[:, None], 25, axis=1), atol=1e-9)


def test_the_line_of_a_shower_in_two_layers_goes_through_both_however_little_one_holds() -> None:
    layers, place = np.array([[1.0, 1e-5, 0.0]]), np.array([[10.0, 30.0, 0.0]])
    np.testing.assert_allclose(line(layers, layers * place, np.array([2.0, 6.0, 10.0])), [[10.0, 30.0, 50.0]])


@pytest.mark.parametrize(("shape", "distance"), [((51, 51, 2), 25 * math.sqrt(2)), ((51, 3, 2), math.hypot(25, 1))])
def test_r90_of_deposits_in_opposite_corners_is_half_of_the_diagonal(
    shape: tuple[int, int, int], distance: float
) -> None:
    cells = np.zeros((1, *shape), np.float32)
    cells[0, 0, 0, 1] = cells[0, -1, -1, 1] = 1
    geometry = Geometry(shape, cell_mm=5.0, layer_pitch_mm=4.0, x0_per_layer=1.5, file_unit_gev=0.02)
    assert observed(upright(cells), geometry).column("r90_mm")[0] == pytest.approx(5 * distance, abs=5 / 20)


def test_a_tilted_line_of_cells_is_as_narrow_as_an_upright_one() -> None:
    cells = np.zeros((2, *GRID.shape), dtype=np.float32)
    for layer in range(5):
        cells[0, 3, 3, layer] = cells[1, 3, layer, layer] = 1.0
    table = observed(upright(cells), GRID)
    assert table.column("r90_mm") == pytest.approx([0, 0], abs=0.26)
    assert table.column("angle_deg")[0] == pytest.approx(90)
    # The slope is 5/4 in each layer but that of the barycentre, where it is taken as none; depths are the weights.
    tilt = math.degrees(math.pi / 2 - math.atan2(5, 4))
    assert table.column("angle_deg")[1] == pytest.approx((tilt * (2 + 6 + 14 + 18) + 90 * 10) / 50, abs=0.01)


def test_containment_radius_of_a_uniform_disc_and_at_its_edges() -> None:
    radial = np.array([[1.0, 3.0, 5.0, 7.0], [0.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]])
    found = containment_radius(radial, 1.0, 0.25)
    assert found[0] == pytest.approx(2.0)  # a quarter of the disc's area is within half its radius
    assert math.isnan(found[1])
    assert found[2] == pytest.approx(0.25)


def test_a_hit_above_the_last_edge_is_counted_in_the_last_bin() -> None:
    cells = np.zeros((1, *GRID.shape), dtype=np.float32)
    cells[0, 3, 3, 2] = 1e5  # 2 TeV
    assert observed(upright(cells), GRID).spectrum[0].tolist() == [0.0] * 98 + [1.0]


def test_the_angle_is_measured_in_space_and_in_units_of_the_index() -> None:
    showers = make_showers(events=3, seed=2)
    table = observed(showers)
    np.testing.assert_allclose(table.index_angle_rad, measured_angle(showers.cells))
    expected = np.degrees(measured_angle(showers.cells, SMALL_GEOMETRY.cell_mm, SMALL_GEOMETRY.layer_pitch_mm))
    np.testing.assert_allclose(table.column("angle_deg"), expected, rtol=1e-5)


def test_layers_of_other_showers_are_found() -> None:
    """Independent showers are not rejected: see `test_halves_of_the_same_monte_carlo_are_never_rejected`."""
    sound, mixed = geant4(0), layers_of_others(geant4(1), None)
    found = failed(criteria_of(*(observed(each, REFERENCE_GEOMETRY) for each in (sound, mixed))))
    assert {"Hottest cell kept to the next layer", "Overlap of neighbouring layers"} <= found
