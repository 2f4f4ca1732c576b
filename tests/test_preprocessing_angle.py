"""The measured angle against straight tracks, plain loops, and what is known of it on Geant4 showers."""

from __future__ import annotations

import numpy as np
import pytest
from showers import SAMPLE, make_showers

from calopipe.showers.angle import measured_angle
from calopipe.showers.files import open_showers


def _track(degrees: float, cell_size: float, layer_pitch: float) -> np.ndarray:
    """A straight line through the centre of a fine calorimeter, each layer's energy shared between two cells in y."""
    shape = (5, 201, 25)
    cells = np.zeros((1, *shape))
    for layer in range(shape[2]):
        depth = (layer + 0.5 - shape[2] / 2) * layer_pitch
        y = shape[1] / 2 + depth * np.tan(np.pi / 2 - np.radians(degrees)) / cell_size - 0.5
        low = int(np.floor(y))
        cells[0, 2, low, layer] = 1 - (y - low)
        cells[0, 2, low + 1, layer] = y - low
    return cells


@pytest.mark.parametrize("degrees", [60, 75, 90, 105, 120])
@pytest.mark.parametrize(("cell_size", "layer_pitch"), [(1.0, 1.0), (5.1, 4.0)])
def test_straight_tracks_read_their_angle(degrees: float, cell_size: float, layer_pitch: float) -> None:
    cells = _track(degrees, cell_size, layer_pitch)
    # the layer of the barycentre itself reads pi/2 whatever the angle: one layer of 25 with weight 12.5 of 312.5
    expected = 90 + (degrees - 90) * (1 - 12.5 / 312.5)
    assert np.degrees(measured_angle(cells, cell_size, layer_pitch)[0]) == pytest.approx(expected, abs=0.01)


def _by_loops(cells: np.ndarray) -> float:
    total = cells.sum()
    centre = [
        sum((i + 0.5) * cells.take(i, axis=axis).sum() for i in range(cells.shape[axis])) / total for axis in range(3)
    ]
    above = below = 0.0
    for layer in range(cells.shape[2]):
        plane = cells[:, :, layer]
        if plane.sum() == 0:
            continue
        x = sum((i + 0.5) * plane[i].sum() for i in range(cells.shape[0])) / plane.sum()
        y = sum((i + 0.5) * plane[:, i].sum() for i in range(cells.shape[1])) / plane.sum()
        z = layer + 0.5
        slope = (y - centre[1]) / np.sqrt(max((x - centre[0]) ** 2 + (z - centre[2]) ** 2, 1e-7))
        above += (np.pi / 2 - np.arctan(-slope if z < centre[2] else slope)) * z
        below += z
    return above / below


def test_against_plain_loops() -> None:
    cells = make_showers(events=4, seed=3).cells.astype(np.float64)
    cells[1, :, :, 0] = 0  # a layer without energy
    np.testing.assert_allclose(measured_angle(cells), [_by_loops(shower) for shower in cells], rtol=1e-6)


def test_a_shower_without_energy_reads_100() -> None:
    assert measured_angle(np.zeros((2, 3, 3, 3))).tolist() == [100, 100]


def test_known_flattening_on_the_geant4_sample() -> None:
    showers = open_showers(sorted(SAMPLE.glob("*.h5"))[0]).read()
    true, measured = np.degrees(showers.theta_rad), np.degrees(measured_angle(showers.cells))
    for at, reads in ((61, 70), (119, 110)):
        chosen = np.abs(true - at) < 1
        assert chosen.sum() > 5
        assert measured[chosen].mean() == pytest.approx(reads, abs=1)
