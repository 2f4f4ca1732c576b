"""Whether a core continues from layer to layer: against loops over cells, in layers that differ, on a planted fault."""

from __future__ import annotations

import math

import numpy as np
import pytest
from faults import layers_of_others
from judging import criteria_of, failed, geant4
from showers import SMALL_GEOMETRY, observed, upright

from calopipe.showers.cells import REFERENCE_GEOMETRY, FloatArray, Geometry, Layer

_DIFFERENT = Geometry.of_layers(
    [Layer(4.0, 1.0, (6, 6), size_mm=(5.0, 5.0))] * 2 + [Layer(8.0, 2.0, (3, 2), size_mm=(10.0, 15.0))] * 2, 0.02
)


def _random(geometry: Geometry, events: int = 5) -> FloatArray:
    rng = np.random.default_rng(3)
    cells = np.zeros((events, *geometry.shape), np.float32)
    for number, layer in enumerate(geometry.every_layer):
        n, m = layer.cells
        cells[:, :n, :m, number] = rng.exponential(1.0, (events, n, m)) * (rng.random((events, n, m)) < 0.5)
    cells[0, :, :, 1] = 0  # a layer without energy: neither its pair with the first nor with the third counts
    return cells


def _by_loops(shower: FloatArray, geometry: Geometry) -> tuple[float, float]:
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


@pytest.mark.parametrize("geometry", [SMALL_GEOMETRY, _DIFFERENT], ids=["alike", "layers that differ"])
def test_continuity_agrees_with_loops(geometry: Geometry) -> None:
    cells = _random(geometry)
    table = observed(upright(cells), geometry)
    for event, shower in enumerate(cells):
        kept, overlap = _by_loops(shower, geometry)
        assert table.column("hottest_kept")[event] == pytest.approx(kept, rel=1e-6)
        assert table.column("overlap")[event] == pytest.approx(overlap, rel=1e-6)


def test_limiting_cases() -> None:
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
