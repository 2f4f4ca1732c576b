"""Test flows: a street of vortices that drifts past an obstacle, in closed form. Deterministic, tiny, keyword-only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.flow.files import Flow, flow_writer
from calopipe.flow.grid import Grid

GRID = Grid((32, 16), cell_d=0.25, interval_d=0.25)


def solid_of(*, grid: Grid = GRID, row: int = 6) -> npt.NDArray[np.bool_]:
    """An obstacle of 2 x 4 cells, its first row at `row`."""
    solid = np.zeros(grid.shape, dtype=bool)
    solid[4:6, row : row + 4] = True
    return solid


def street(
    *,
    frames: int = 24,
    strouhal: float = 0.2,
    amplitude: float = 0.3,
    growth: float = 0.0,
    grid: Grid = GRID,
    row: int = 6,
) -> npt.NDArray[np.float32]:
    """Velocity (frames, x, y, 2): (1, amplitude exp(growth t) sin(2 pi (x / 4 D - strouhal t))), 0 in the solid."""
    time = np.arange(frames)[:, None, None] * grid.interval_d
    x = np.arange(grid.shape[0])[:, None] * grid.cell_d
    v = amplitude * np.exp(growth * time) * np.sin(2 * np.pi * (x / 4 - strouhal * time)) * np.ones(grid.shape[1])
    velocity = np.stack([np.ones_like(v), v], axis=-1)
    velocity[:, solid_of(grid=grid, row=row)] = 0
    return velocity.astype(np.float32)


def write_flow(
    path: Path,
    *,
    reynolds: float = 100.0,
    grid: Grid = GRID,
    row: int = 6,
    attributes: dict[str, Any] | None = None,
    velocity: npt.NDArray[np.float32] | None = None,
    rounded: float = 0.0,
    **of_street: Any,
) -> Path:
    """A file of a `street`, or of other `velocity` (T, x, y, 2)."""
    flow = Flow(grid, solid_of(grid=grid, row=row), reynolds, (0.5, 1.0), "tests")
    made = street(grid=grid, row=row, **of_street) if velocity is None else velocity
    with flow_writer(path, flow, attributes=attributes, rounded=rounded, steps=10) as write:
        for first in range(0, len(made), 5):
            write(made[first : first + 5])
    return path
