"""Folders of flow models that no training made, and a flow with a closed form to start them from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from calopipe.flow.grid import Grid
from training import folder
from training.folder import Card
from training.models.base import build
from training.models.config import FitConfig

GRID = Grid((48, 16), cell_d=0.25, interval_d=0.25)
REYNOLDS = (60.0, 160.0)


def street(frames: int, grid: Grid = GRID) -> npt.NDArray[np.float32]:
    """Velocities (T, x, y, 2) of vortices that the inflow carries along, free of divergence: one cell a frame.

    Their stream function is that of Stuart's vortices, periodic along x.
    """
    x, y = ((np.arange(cells) + 0.5) * grid.cell_d for cells in grid.shape)
    x, y = np.meshgrid(x, y - y.mean(), indexing="ij")
    time = np.arange(frames)[:, None, None] * grid.cell_d
    wave = 2 * np.pi / (grid.shape[0] * grid.cell_d / 4)
    denominator = np.cosh(wave * y) + 0.5 * np.cos(wave * (x - time))
    u, v = 0.3 * np.sinh(wave * y) / denominator, 0.15 * np.sin(wave * (x - time)) / denominator
    return np.stack([1 + u, v], -1).astype(np.float32)


def write_model(place: Path, config: FitConfig, grid: Grid = GRID, *, spread: float = 0.0) -> Card:
    """The model that `config` names as it is at first, but for normal numbers of this `spread` on its weights."""
    place.mkdir()
    model, rng = build(config, grid), np.random.default_rng(4)
    for network in model.networks.values():
        for weight in network.trainable_weights:
            weight.assign_add(rng.normal(0, spread, weight.shape))
    card = Card(
        request="untrained", config=config, geometry=grid, dataset={}, valid_range={"reynolds": REYNOLDS}, trained={},
        losses={}, weights=folder.save_weights(place, model.networks), versions={},
    )  # fmt: skip
    folder.write_card(place, card)
    return card
