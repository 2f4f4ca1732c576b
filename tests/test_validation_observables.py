"""Every observable against loops over cells, or a closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from showers import SMALL_GEOMETRY, make_showers, measured_angle

from calopipe.showers.cells import FloatArray, Geometry
from validation.measure.axis import line
from validation.measure.edges import HIT_GEV, SPECTRUM_EDGES
from validation.measure.observables import CELL_GEV, Observables, containment_radius, observe

GEOMETRY = Geometry(shape=(7, 6, 5), cell_mm=5.0, layer_pitch_mm=4.0, x0_per_layer=1.5, file_unit_gev=0.02)


def observed(cells: FloatArray, geometry: Geometry = GEOMETRY) -> Observables:
    return observe(cells, np.full(len(cells), 100.0), np.full(len(cells), math.pi / 2), geometry)


def random_cells(events: int = 6) -> FloatArray:
    rng = np.random.default_rng(5)
    filled = rng.random((events, *GEOMETRY.shape)) < 0.3
    return (filled * rng.exponential(0.05, (events, *GEOMETRY.shape))).astype(np.float32)


def by_loops(shower: FloatArray) -> dict[str, float]:
    """All scalars of one shower, cell by cell."""
    cells = [(x, y, z, float(e) * 0.02) for (x, y, z), e in np.ndenumerate(shower) if e > 0]
    total = sum(e for *_, e in cells)
    layers = [sum(e for *_, z, e in cells if z == layer) for layer in range(5)]

    def mean(values: list[float]) -> float:
        return sum(e * value for (*_, e), value in zip(cells, values, strict=True)) / total

    x_mm, y_mm = ([5 * (cell[axis] + 0.5 - shower.shape[axis] / 2) for cell in cells] for axis in (0, 1))
    z_x0 = [1.5 * (cell[2] + 0.5) for cell in cells]
    return {
        "visible_gev": total,
        "response": total / 100,
        "depth_x0": mean(z_x0),
        "depth_width_x0": math.sqrt(mean([(z - mean(z_x0)) ** 2 for z in z_x0])),
        "layer_of_maximum": float(max(range(5), key=layers.__getitem__)),
        "mean_x_mm": mean(x_mm),
        "mean_y_mm": mean(y_mm),
        "second_x_mm2": mean([(x - mean(x_mm)) ** 2 for x in x_mm]),
        "second_y_mm2": mean([(y - mean(y_mm)) ** 2 for y in y_mm]),
        "hits": sum(e > HIT_GEV for *_, e in cells),
        "sparsity": 1 - sum(e > CELL_GEV for *_, e in cells) / (7 * 6 * 5),
        "first_third": (layers[0] + layers[1]) / total,  # 3i // 5: layers 0, 1 | 2, 3 | 4
        "middle_third": (layers[2] + layers[3]) / total,
        "last_third": layers[4] / total,
    }


def test_scalars_agree_with_loops() -> None:
    cells = random_cells()
    table = observed(cells)
    for event, shower in enumerate(cells):
        for name, expected in by_loops(shower).items():
            assert table.column(name)[event] == pytest.approx(expected, rel=1e-6), name


def test_profiles_agree_with_sums_and_hold_all_the_energy() -> None:
    cells = random_cells()
    table = observed(cells)
    np.testing.assert_allclose(table.layers, cells.sum(axis=(1, 2)) * 0.02, rtol=1e-5)
    np.testing.assert_allclose(table.along_x, cells.sum(axis=(2, 3)) * 0.02, rtol=1e-5)
    np.testing.assert_allclose(table.along_y, cells.sum(axis=(1, 3)) * 0.02, rtol=1e-5)
    np.testing.assert_allclose(table.radial.sum(axis=1), table.column("visible_gev"), rtol=1e-5)
    for event, shower in enumerate(cells):
        energies = shower[shower > 0] * 0.02
        expected, _ = np.histogram(np.log10(energies[energies > HIT_GEV]), SPECTRUM_EDGES)
        np.testing.assert_array_equal(table.spectrum[event], expected)


def test_r90_agrees_with_sorted_distances_from_the_fitted_axis() -> None:
    shower = random_cells(1)[0]
    x, y, z = (index.ravel().astype(float) for index in np.indices(GEOMETRY.shape))
    weight = shower.ravel().astype(float)
    x, y, z = 5 * (x + 0.5), 5 * (y + 0.5), 4 * (z + 0.5)
    line_x, line_y = (np.polyfit(z, place, 1, w=np.sqrt(weight)) for place in (x, y))
    distance = np.hypot(x - np.polyval(line_x, z), y - np.polyval(line_y, z))
    order = np.argsort(distance)
    inside = np.cumsum(weight[order]) / weight.sum()
    exact = distance[order][np.searchsorted(inside, 0.9)]
    assert observed(shower[None]).column("r90_mm")[0] == pytest.approx(exact, abs=5.0 / 20)


def test_the_line_of_a_shower_in_one_layer_is_its_mean_along_all() -> None:
    """A slope of nothing but rounding would lead it out of the calorimeter."""
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
    assert observed(cells, geometry).column("r90_mm")[0] == pytest.approx(5 * distance, abs=5 / 20)


def test_a_tilted_line_of_cells_is_as_narrow_as_an_upright_one() -> None:
    cells = np.zeros((2, *GEOMETRY.shape), dtype=np.float32)
    for layer in range(5):
        cells[0, 3, 3, layer] = cells[1, 3, layer, layer] = 1.0
    table = observed(cells)
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


def test_a_shower_without_energy_has_zeros_and_nothing_to_average() -> None:
    cells = random_cells(2)
    cells[0] = 0
    table = observed(cells)
    assert table.empty.tolist() == [True, False]
    for name in ("visible_gev", "response", "hits"):
        assert table.column(name)[0] == 0
    assert table.column("sparsity")[0] == 1
    for name in ("depth_x0", "mean_x_mm", "second_y_mm2", "r90_mm", "first_third", "angle_deg", "layer_of_maximum"):
        assert math.isnan(table.column(name)[0]), name
        assert math.isfinite(table.column(name)[1]), name
    assert not table.radial[0].any()
    assert not table.spectrum[0].any()


def test_a_hit_above_the_last_edge_is_counted_in_the_last_bin() -> None:
    cells = np.zeros((1, *GEOMETRY.shape), dtype=np.float32)
    cells[0, 3, 3, 2] = 1e5  # 2 TeV
    assert observed(cells).spectrum[0].tolist() == [0.0] * 73 + [1.0]


def test_the_angle_is_measured_in_space_and_in_units_of_the_index() -> None:
    showers = make_showers(events=3, seed=2)
    table = observe(showers.cells, showers.energy_gev, showers.theta_rad, SMALL_GEOMETRY)
    np.testing.assert_allclose(table.index_angle_rad, measured_angle(showers.cells))
    expected = np.degrees(measured_angle(showers.cells, SMALL_GEOMETRY.cell_mm, SMALL_GEOMETRY.layer_pitch_mm))
    np.testing.assert_allclose(table.column("angle_deg"), expected, rtol=1e-5)


def test_batches_join_to_the_same_table() -> None:
    cells = random_cells(5)
    whole, joined = observed(cells), Observables.joined([observed(cells[:2]), observed(cells[2:])])
    np.testing.assert_allclose(whole.scalars, joined.scalars)
    assert len(joined[1:3]) == 2
