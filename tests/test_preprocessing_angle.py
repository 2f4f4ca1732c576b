"""The measured angle against plain loops.

`test_validation_any_calorimeter.py` has the closed form of a straight track.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from showers import SMALL_GEOMETRY, make_ring_showers, make_showers

from calopipe.showers.angle import angle_of_cells
from calopipe.showers.detectors import detectors, split_values
from calopipe.showers.metric import Profiles
from calopipe.showers.positions import positions

EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "two-sections.toml"


def _by_loops(cells: np.ndarray, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> float:
    """The reference's angle from the places (layer, n, m) of all cells; layers that are NaN do not count."""
    layers = [k for k in range(len(z)) if cells[:, :, k].sum() > 0 and np.isfinite(x[k]).any()]
    total = sum(cells[:, :, k].sum() for k in layers)
    points = {k: [np.nansum(cells[:, :, k] * along[k]) / cells[:, :, k].sum() for along in (x, y)] for k in layers}
    centre = [sum(cells[:, :, k].sum() * points[k][axis] for k in layers) / total for axis in (0, 1)]
    middle = sum(cells[:, :, k].sum() * z[k] for k in layers) / total
    above = below = 0.0
    for k in layers:
        distance = np.sqrt(max((points[k][0] - centre[0]) ** 2 + (z[k] - middle) ** 2, 1e-7))
        slope = (points[k][1] - centre[1]) / distance
        above += (np.pi / 2 - np.arctan(-slope if z[k] < middle else slope)) * z[k]
        below += z[k]
    return above / below


@pytest.mark.parametrize("name", ["", "calochallenge-2", "calochallenge-1-photons", str(EXAMPLE)])
def test_against_plain_loops(name: str) -> None:
    """If layers are alike, in units of the index, as in the reference; `test_positions.py` tests places of cells."""
    geometry = split_values(name)[0] or SMALL_GEOMETRY
    make = make_ring_showers if geometry.layers else make_showers
    cells = make(events=6, seed=3, geometry=geometry).cells.copy()
    cells[1, :, :, 0] = 0  # a layer without energy
    where = positions(geometry if geometry.layers else replace(geometry, cell_mm=1.0, layer_pitch_mm=1.0))
    x, y = (
        np.where(where.ring_mm > 0, np.nan, along).reshape(-1, *geometry.shape[:2])  # round the axis: no direction
        for along in (where.x_mm, where.y_mm)
    )
    expected = [_by_loops(shower.astype(np.float64), x, y, where.z_mm) for shower in cells]
    np.testing.assert_allclose(angle_of_cells(cells, geometry), expected, rtol=1e-6)


def test_energy_that_has_no_direction_and_no_energy() -> None:
    geometry = detectors()["calochallenge-1-photons"]
    cells = np.zeros((2, *geometry.shape), np.float32)
    cells[1, 0, 3, 0] = 1.0  # the presampler's rings go round the axis
    assert angle_of_cells(cells, geometry).tolist() == pytest.approx([100, np.pi / 2])


def test_the_metric_takes_the_angle_of_the_calorimeter() -> None:
    geometry = detectors()["calochallenge-2"]
    toys = make_ring_showers(events=3, geometry=geometry)
    labels = toys.energy_gev, toys.theta_rad
    np.testing.assert_array_equal(Profiles.of(toys.cells, *labels, geometry).angle_rad, toys.mtheta_rad)
