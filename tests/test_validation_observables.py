"""Observables against closed forms; test_validation_any_calorimeter.py compares them with loops over cells."""

from __future__ import annotations

import math

import numpy as np
import pytest
from faults import layers_of_others
from judging import criteria_of, failed, geant4
from showers import SMALL_GEOMETRY, make_showers, measured_angle, observed, upright

from calopipe.showers.cells import REFERENCE_GEOMETRY, Geometry
from validation.measure.deposits import line
from validation.measure.observables import containment_radius

GEOMETRY = Geometry(shape=(7, 6, 5), cell_mm=5.0, layer_pitch_mm=4.0, x0_per_layer=1.5, file_unit_gev=0.02)


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
    cells = np.zeros((2, *GEOMETRY.shape), dtype=np.float32)
    for layer in range(5):
        cells[0, 3, 3, layer] = cells[1, 3, layer, layer] = 1.0
    table = observed(upright(cells), GEOMETRY)
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
    cells = np.zeros((1, *GEOMETRY.shape), dtype=np.float32)
    cells[0, 3, 3, 2] = 1e5  # 2 TeV
    assert observed(upright(cells), GEOMETRY).spectrum[0].tolist() == [0.0] * 98 + [1.0]


def test_the_angle_is_measured_in_space_and_in_units_of_the_index() -> None:
    showers = make_showers(events=3, seed=2)
    table = observed(showers)
    np.testing.assert_allclose(table.index_angle_rad, measured_angle(showers.cells))
    expected = np.degrees(measured_angle(showers.cells, SMALL_GEOMETRY.cell_mm, SMALL_GEOMETRY.layer_pitch_mm))
    np.testing.assert_allclose(table.column("angle_deg"), expected, rtol=1e-5)


def test_limiting_cases_of_continuity() -> None:
    """Equal layers; hits that are never behind each other; a single layer; no layer."""
    cells = np.zeros((4, *SMALL_GEOMETRY.shape), np.float32)
    cells[0] = np.random.default_rng(0).random(SMALL_GEOMETRY.shape[:2])[..., None]
    for layer in range(SMALL_GEOMETRY.shape[2]):
        cells[1, 3 + 2 * layer, 8, layer] = 1.0
    cells[2, 8, 8, 2] = 1.0
    table = observed(upright(cells))
    for name in ("hottest_kept", "overlap"):
        np.testing.assert_allclose(table.column(name), [1.0, 0.0, 0.0, np.nan], rtol=1e-6)


def test_layers_of_other_showers_are_found() -> None:
    """Independent showers are not rejected: see `test_halves_of_the_same_monte_carlo_are_never_rejected`."""
    sound, mixed = geant4(0), layers_of_others(geant4(1), None)
    found = failed(criteria_of(*(observed(each, REFERENCE_GEOMETRY) for each in (sound, mixed))))
    assert {"Hottest cell kept to the next layer", "Overlap of neighbouring layers"} <= found
