"""Test showers in a small calorimeter whose cells are in rings: one layer without angles, three with."""

from __future__ import annotations

from pathlib import Path

from showers import make_ring_showers, write_whole

from calopipe.showers.cells import Geometry, Layer

RINGS = Geometry.of_layers(
    [Layer(4.0, 1.0, (1, 3), r_edges_mm=(0.0, 5.0, 10.0, 30.0))]
    + [Layer(4.0, 1.0, (6, 4), r_edges_mm=(0.0, 5.0, 10.0, 20.0, 40.0))] * 3,
    1e-3,
)


def make_rings(path: Path, *, events: int, seed: int, width_mm: float = 10.0) -> Path:
    """A file of `make_ring_showers`."""
    return write_whole(path, make_ring_showers(events=events, seed=seed, geometry=RINGS, width_mm=width_mm), RINGS)
