"""The measured angle against plain loops.

`test_validation_observables.py` has the closed form of a straight track.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from showers import SMALL_GEOMETRY, make_ring_showers, make_showers

from calopipe.showers.angle import angle_of_cells
from calopipe.showers.cells import Geometry
from calopipe.showers.detectors import known, split_values
from calopipe.showers.metric import Profiles

ROOT = Path(__file__).parent.parent


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


def _require_same(cells: np.ndarray, geometry: Geometry, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> None:
    expected = [_by_loops(shower.astype(np.float64), x, y, z) for shower in cells]
    np.testing.assert_allclose(angle_of_cells(cells, geometry), expected, rtol=1e-6)


def test_layers_that_are_alike_against_plain_loops() -> None:
    """In units of the index, as of the reference."""
    cells = make_showers(events=4, seed=3).cells.copy()
    cells[1, :, :, 0] = 0  # a layer without energy
    n, m, layers = SMALL_GEOMETRY.shape
    x, y = np.meshgrid(np.arange(n) + 0.5, np.arange(m) + 0.5, indexing="ij")
    _require_same(cells, SMALL_GEOMETRY, np.stack([x] * layers), np.stack([y] * layers), np.arange(layers) + 0.5)


@pytest.mark.parametrize("name", ["calochallenge-2", "calochallenge-1-photons", "docs/examples/two-sections.toml"])
def test_layers_that_are_listed_against_plain_loops(name: str) -> None:
    geometry, _ = split_values(str(ROOT / name) if name.endswith(".toml") else name)
    cells = make_ring_showers(events=6, geometry=geometry).cells
    cells[1, :, :, 0] = 0
    x, y = np.full((2, geometry.shape[2], *geometry.shape[:2]), np.nan)
    for number, layer in enumerate(geometry.layers):
        n, m = layer.cells
        if layer.size_mm is not None:
            along = ((np.arange(count) + 0.5 - count / 2) * mm for count, mm in zip((n, m), layer.size_mm, strict=True))
            x[number, :n, :m], y[number, :n, :m] = np.meshgrid(*along, indexing="ij")
        elif n > 1:  # else the cells go round the axis, and have no direction
            alpha = np.linspace(-np.pi, np.pi, n, endpoint=False) + np.pi / n
            radius = np.add(layer.r_edges_mm[1:], layer.r_edges_mm[:-1]) / 2
            x[number, :n, :m], y[number, :n, :m] = np.multiply.outer([np.cos(alpha), np.sin(alpha)], radius)
    pitches = [layer.pitch_mm for layer in geometry.layers]
    z = np.array([sum(pitches[:k]) + pitches[k] / 2 for k in range(len(pitches))])
    _require_same(cells, geometry, x, y, z)


def test_energy_that_has_no_direction_and_no_energy() -> None:
    geometry = known()["calochallenge-1-photons"]
    cells = np.zeros((2, *geometry.shape), np.float32)
    cells[1, 0, 3, 0] = 1.0  # the presampler's rings go round the axis
    assert angle_of_cells(cells, geometry).tolist() == pytest.approx([100, np.pi / 2])


def test_the_metric_takes_the_angle_of_the_calorimeter() -> None:
    geometry = known()["calochallenge-2"]
    toys = make_ring_showers(events=3, geometry=geometry)
    labels = toys.energy_gev, toys.theta_rad
    np.testing.assert_array_equal(Profiles.of(toys.cells, *labels, geometry).angle_rad, toys.mtheta_rad)
