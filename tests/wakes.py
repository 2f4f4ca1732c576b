"""Files of a vortex street in closed form, as a simulation and as roll-outs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from calopipe.flow.files import Flow, flow_writer, open_flow
from calopipe.flow.grid import Grid
from validation.flow.measurements import Measured, measure
from validation.flow.pairing import Frames, Pair, pair_of

CELL_D, INTERVAL_D = 0.25, 0.5
SHAPE = (48, 24)
SPEED, LENGTH = 0.8, 4.0  # of the street: its Strouhal number is 0.2, its period 10 frames


def street(
    path: Path,
    *,
    frames: int = 40,
    start: float = 0,
    phase: float = 0.0,
    strength: float = 1.0,
    frequency: float = 1.0,
    finer: int = 1,
    reynolds: float = 100.0,
    noise: float = 0.0,
    interval_d: float = INTERVAL_D,
) -> Path:
    """A file of vortices that drift behind a square: the exact curl of a stream function, so without divergence.

    `phase` is in periods, `frequency` in units of the street's; `finer` is the number of cells along each side of a
    usual cell.
    """
    cell, shape = CELL_D / finer, (SHAPE[0] * finer, SHAPE[1] * finer)
    x, y = np.meshgrid(*[(np.arange(n) + 0.5) * cell for n in shape], indexing="ij")
    y = y - SHAPE[1] * CELL_D / 2
    number = np.arange(frames)[:, None, None]
    angle = 2 * np.pi * (x / LENGTH - SPEED / LENGTH * interval_d * (start + frequency * number) - phase)
    size = 0.4 * strength
    u = 1 + size * 2 * y * np.exp(-(y**2)) * np.sin(angle)  # u = d psi / dy, v = -d psi / dx
    v = size * np.exp(-(y**2)) * 2 * np.pi / LENGTH * np.cos(angle)
    velocity = np.stack([u, v], axis=-1) + noise * np.random.default_rng(1).standard_normal((*u.shape, 2))
    solid = np.zeros(shape, dtype=np.bool_)
    solid[4 * finer : 8 * finer, 10 * finer : 14 * finer] = True
    velocity[:, solid] = 0
    flow = Flow(Grid(shape, cell, interval_d), solid, reynolds, (1.0, 1.0), "tests")
    with flow_writer(path, flow, first=interval_d * start) as write:
        write(velocity.astype(np.float32))
    return path


def paired(folder: Path, *, frames: int = 25, start: int = 8, **faults: Any) -> Pair:
    """A simulation, and a roll-out of it with the `faults`."""
    solver, rollout = folder / "solver.h5", folder / "rollout.h5"
    return pair_of(open_flow(street(rollout, frames=frames, start=start, **faults)), [open_flow(street(solver))])


def measured(pair: Pair, frames: Frames | None = None) -> Measured:
    """The measurements of the pair; `frames` replaces the frames of the roll-out, if given."""
    return measure(pair, "rollout", pair.candidate.velocity(0, pair.count) if frames is None else frames)
