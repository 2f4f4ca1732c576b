"""Test showers in a small calorimeter whose cells are in rings: one layer without angles, three with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calopipe.showers.cells import Geometry, Layer, Showers
from calopipe.showers.positions import positions
from calopipe.showers.writer import shower_writer

RINGS = Geometry.of_layers(
    [Layer(4.0, 1.0, (1, 3), r_edges_mm=(0.0, 5.0, 10.0, 30.0))]
    + [Layer(4.0, 1.0, (6, 4), r_edges_mm=(0.0, 5.0, 10.0, 20.0, 40.0))] * 3,
    1e-3,
)


def make_rings(path: Path, *, events: int, seed: int, width_mm: float = 10.0) -> Path:
    """Showers that fall off exponentially over `width_mm`, of 1 to 100 GeV."""
    rng = np.random.default_rng(seed)
    energy = (10 ** rng.uniform(0, 2, events)).astype(np.float32)
    place = positions(RINGS)
    density = np.where(place.exists, np.exp(-np.nan_to_num(place.r_mm) / width_mm) * np.nan_to_num(place.area_mm2), 0)
    quanta = rng.poisson(density / density.sum() * 40 * energy[:, None, None])  # 25 MeV each
    cells = 25.0 * np.moveaxis(quanta, 1, 2).reshape(events, *RINGS.shape).astype(np.float32)
    theta = np.full(events, np.pi / 2, np.float32)
    with shower_writer(path, RINGS, {}) as writer:
        writer.write(Showers(cells, energy, theta, theta))
    return path
