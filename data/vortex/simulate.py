"""Simulate the flow behind a rectangle by pylbm, as for the files here: `python data/vortex/simulate.py --help`.

The method is D2Q9 with multiple relaxation times, in its form for liquids. The scheme is that of d'Humieres (Prog.
Astronaut. Aeronaut. 159, 450 (1992)) with the equilibrium of He and Luo (J. Stat. Phys. 88, 927 (1997)). In this
equilibrium, the velocity is the momentum over the mean density. Inflow and walls are half-way bounce-back of given
speed. The outflow is free.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError, require_least, require_seed, run_command
from calopipe.flow.files import CHUNK_FRAMES, FloatArray, Flow, flow_writer
from calopipe.flow.grid import Grid
from calopipe.flow.mechanics import strouhal, transverse, unsettled
from calopipe.options import CommandParser, given_values, option, setting, settings_of
from calopipe.progress import progress_bar

SIZE_D = (25.6, 6.4)  # of the channel
CELLS_A_D = 5  # of the frames: 128 x 32
_SOLVER_CELLS = 2  # of the solver along the side of a frame's cell, at resolution 1
_SPEED = 0.08  # of the inflow, in cells a step: a Mach number of 0.14
_RELAXATION = (1.4, 1.4, 1.5, 1.5)  # of energy, its square, and its fluxes: for stability, not for physics
_PERTURBATION, _MODES = 0.1, 6  # in U; how many waves along and across it is made of
_ROUNDED = 2.0**-7  # in U: a sample's velocities are rounded to multiples of it, 0.2 % rms
_EXAMPLES = """
examples:
  python data/vortex/simulate.py --output vortex.h5 --reynolds 100
  python data/vortex/simulate.py --output fine.h5 --reynolds 100 --resolution 2
  python data/vortex/simulate.py --output wide.h5 --reynolds 150 --obstacle 2,1.2 --middle 5,3.4
  python data/vortex/simulate.py --output data/vortex --many 10

It needs pylbm (pip install 'calopipe[flow]'), and a C compiler.
"""
_SHEDDING = 60  # wakes shed where U times the obstacle's height, over the viscosity, is larger
_LENGTHS_D, _HEIGHTS_D, _ACROSS_D = (0.6, 1.0, 1.4, 2.0), (0.8, 1.0, 1.2), (2.8, 3.0, 3.2, 3.4, 3.6)
_REYNOLDS = (65.0, 200.0)  # the least and the largest of many simulations


@dataclass(frozen=True)
class Case:
    """A simulation: lengths in D, times in D/U. Each field is an option of the command."""

    reynolds: float = setting(100.0, help="Reynolds number U D / nu")
    obstacle_d: tuple[float, float] = setting((1.0, 1.0), help="length and height of the obstacle")
    middle_d: tuple[float, float] = setting((5.0, 3.2), help="where its middle is")
    frames: int = setting(64, help="how many are kept")
    interval_d: float = setting(0.28, help="time from one to the next")
    settle_d: float = setting(100.0, help="time before the first")
    seed: int = setting(1, help="of the first perturbation, and of --many")
    resolution: int = setting(1, help="the solver has 10 N cells a D; the frames have 5")
    wall_speed: float = setting(1.0, help="1: the walls move as the inflow; 0: they rest")

    def __post_init__(self) -> None:
        if not 10 <= self.reynolds <= 300:
            raise InputError(f"--reynolds is {self.reynolds}, expected 10 to 300, where the flow is plane")
        if self.frames < 2 or self.resolution < 1 or not 0 < self.interval_d <= self.settle_d:
            raise InputError(
                f"{self.frames} frames, {self.interval_d} D/U apart after {self.settle_d}, at resolution "
                f"{self.resolution}: expected two frames, a resolution of 1 and positive times at least"
            )
        if not self.solid.any() or self.solid[:3].any() or self.solid[-15:].any() or self.solid[:, [0, -1]].any():
            raise InputError(
                f"an obstacle of {self.obstacle_d} D at {self.middle_d} D: expected one within the channel of "
                f"{SIZE_D} D, with room before and behind"
            )

    @property
    def grid(self) -> Grid:
        length, width = (round(side * CELLS_A_D) for side in SIZE_D)
        return Grid((length, width), 1 / CELLS_A_D, self.steps * _SPEED / self.solver_cells)

    @property
    def solver_cells(self) -> int:
        """Cells of the solver along a length D."""
        return CELLS_A_D * _SOLVER_CELLS * self.resolution

    @property
    def steps(self) -> int:
        """Steps of the solver from a frame to the next."""
        return max(round(self.interval_d * self.solver_cells / _SPEED), 1)

    @property
    def bounds(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The frame's first cell in the obstacle, and the cell after the last one in it: along, and across."""
        (x, nx), (y, ny) = (
            (round((middle - size / 2) * CELLS_A_D), max(round(size * CELLS_A_D), 1))
            for middle, size in zip(self.middle_d, self.obstacle_d, strict=True)
        )
        return (x, x + nx), (y, y + ny)

    @property
    def solid(self) -> npt.NDArray[np.bool_]:
        (left, right), (low, high) = self.bounds
        inside = np.zeros(self.grid.shape, dtype=bool)
        inside[max(left, 0) : right, max(low, 0) : high] = True
        return inside


def simulate(case: Case, output: Path) -> str:
    """Write the flow of `case` to `output`. Return a line with its Strouhal number.

    InputError: the wake does not shed evenly.
    """
    (left, right), (low, high) = case.bounds
    size = (right - left) / CELLS_A_D, (high - low) / CELLS_A_D
    flow = Flow(case.grid, case.solid, case.reynolds, size, "pylbm, D2Q9, multiple relaxation times")
    signal: list[float] = []
    attributes = {"seed": case.seed, "resolution": case.resolution, "wall_speed": case.wall_speed}
    with flow_writer(output, flow, attributes=attributes, steps=case.steps, rounded=_ROUNDED) as write:
        frames = _frames(case)
        while block := list(itertools.islice(frames, CHUNK_FRAMES)):
            write(np.stack(block))
            signal += transverse(np.stack(block), flow.solid, flow.grid.cell_d).tolist()
        if reason := unsettled(np.array(signal)):
            raise InputError(f"{output}: {reason}; give a larger --settle, or a Reynolds number above {_SHEDDING}")
    number = strouhal(np.array(signal), flow.grid.interval_d)
    return (
        f"{output}: Reynolds number {case.reynolds:g}, obstacle {size[0]:g} x {size[1]:g} D, "
        f"{case.frames} frames, Strouhal number {number:.4f}"
    )


def _frames(case: Case) -> Iterator[FloatArray]:
    """The frames of a simulation, (x, y, 2) in U."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):  # else the compiler finds our settings
        simulation, momenta = _built(case)
    settling = round(case.settle_d * case.solver_cells / _SPEED)
    fold = _SOLVER_CELLS * case.resolution
    nx, ny = case.grid.shape
    with progress_bar("simulate", settling + case.frames * case.steps, "steps") as bar:
        for number in range(case.frames):
            for _ in range(case.steps + (settling if number == 0 else 0)):
                simulation.one_time_step()
                bar.update(1)
            fields = [np.asarray(simulation.m[q]).reshape(nx, fold, ny, fold).mean(axis=(1, 3)) for q in momenta]
            velocity = np.stack(fields, axis=-1) / _SPEED
            velocity[case.solid] = 0
            if not np.isfinite(velocity).all() or np.abs(velocity).max() > 5:
                raise InputError(f"the simulation at Reynolds number {case.reynolds:g} broke up; give --resolution 2")
            yield velocity.astype(np.float32)


def _scheme(sp: Any, cell: Any, moments: tuple[Any, Any, Any], viscous: float) -> dict[str, Any]:
    """The scheme for pylbm. `moments` are the density and two momenta; moments of the stresses relax by `viscous`."""
    x, y = sp.symbols("X, Y")
    rho, qx, qy = moments
    square, energy = x**2 + y**2, qx**2 + qy**2
    return {
        "velocities": list(range(9)),
        "conserved_moments": [rho, qx, qy],
        "polynomials": [
            1, x, y, 3 * square - 4 * cell**2,
            sp.Rational(1, 2) * (9 * square**2 - 21 * square * cell**2 + 8 * cell**4),
            3 * x * square - 5 * x * cell**2, 3 * y * square - 5 * y * cell**2, x**2 - y**2, x * y,
        ],
        "relaxation_parameters": [0, 0, 0, *_RELAXATION, viscous, viscous],
        "equilibrium": [
            rho, qx, qy, -2 * rho * cell**2 + 3 * energy, rho * cell**4 - 3 * energy * cell**2,
            -qx * cell**2, -qy * cell**2, qx**2 - qy**2, qx * qy,
        ],
    }  # fmt: skip


def _built(case: Case) -> tuple[Any, tuple[Any, Any]]:
    """pylbm's simulation, and the symbols of its momenta. It begins with the perturbed inflow everywhere."""
    try:
        import pylbm  # noqa: PLC0415
        import sympy as sp  # noqa: PLC0415
    except (ImportError, RuntimeError) as error:
        raise InputError(f"pylbm is not installed here ({error}); pip install 'calopipe[flow]'") from None
    rho, qx, qy = sp.symbols("rho, qx, qy")
    cell = sp.symbols("lambda", constants=True)
    viscous = 1 / (3 * _SPEED * case.solver_cells / case.reynolds + 0.5)
    fold = _SOLVER_CELLS * case.resolution
    (left, right), (low, high) = ((first * fold, last * fold) for first, last in case.bounds)
    width, height = (side * fold for side in case.grid.shape)

    def moving(speed: float) -> dict[str, Any]:
        def momentum(f: Any, m: Any, x: Any, y: Any) -> None:  # noqa: ARG001  as pylbm calls it
            m[rho], m[qx], m[qy] = 0.0, speed * _SPEED, 0.0

        return {"method": {0: pylbm.bc.BouzidiBounceBack}, "value": momentum}

    logging.getLogger("pylbm").setLevel(logging.ERROR)
    inflow, outflow, walls, obstacle = range(4)
    simulation = pylbm.Simulation(
        {
            "box": {"x": [0, width], "y": [0, height], "label": [inflow, outflow, walls, walls]},
            "elements": [pylbm.Parallelogram((left, low), (right - left, 0), (0, high - low), label=obstacle)],
            "space_step": 1,
            "scheme_velocity": cell,
            "parameters": {cell: 1.0},
            "schemes": [_scheme(sp, cell, (rho, qx, qy), viscous)],
            "init": {rho: 0.0, qx: _SPEED, qy: (_perturbation, (case.seed, (width, height)))},
            "boundary_conditions": {
                inflow: moving(1.0), walls: moving(case.wall_speed), obstacle: moving(0.0),
                outflow: {"method": {0: pylbm.bc.NeumannX}},
            },
            "generator": "cython",
        }
    )  # fmt: skip
    return simulation, (qx, qy)


def _perturbation(x: Any, y: Any, seed: int, size: tuple[int, int]) -> Any:
    """Momentum across at `x` and `y`, in cells: a sum of waves of random phases, zero on the walls, 5 % of U rms."""
    phases = np.random.default_rng(seed).uniform(0, 2 * np.pi, (_MODES, _MODES))
    terms = (
        np.sin(2 * np.pi * (i + 1) * x / size[0] + phases[i, j]) * np.sin(np.pi * (j + 1) * y / size[1])
        for i in range(_MODES)
        for j in range(_MODES)
    )
    return _SPEED * (_PERTURBATION / _MODES * sum(terms))


def cases(first: Case, count: int, between: tuple[float, float] = _REYNOLDS) -> list[Case]:
    """`count` simulations: Reynolds numbers are spread evenly `between` two, the seed of `first` draws obstacles."""
    if min(between) * max(_HEIGHTS_D) <= _SHEDDING:
        raise InputError(f"--between {between}: expected more than {_SHEDDING / max(_HEIGHTS_D):g}, where wakes shed")
    draws = np.random.default_rng(first.seed)
    numbers = np.linspace(*between, count)
    return [
        replace(
            first,
            reynolds=float(round(number)),
            obstacle_d=(draws.choice(_LENGTHS_D), draws.choice([h for h in _HEIGHTS_D if h * number > _SHEDDING])),
            middle_d=(5.0, draws.choice(_ACROSS_D)),
            seed=first.seed + place,
        )
        for place, number in enumerate(numbers)
    ]


def _pair(text: str) -> tuple[float, float]:
    first, second = text.split(",")
    return float(first), float(second)


def main() -> None:
    command = CommandParser(
        prog="python data/vortex/simulate.py",
        description="Simulate the flow behind a rectangle. Lengths are in D, times in D/U, U being the inflow's speed.",
        epilog=_EXAMPLES,
    )
    command.add_argument("--output", required=True, metavar="PATH", help="the HDF5 file; with --many, their folder")
    for field in settings_of(Case):
        default, text = field.default, f"{field.metadata['help']} ({field.default})"
        kind, form = (_pair, "X,Y") if isinstance(default, tuple) else (type(default), "N")
        flag = option(field.name.removesuffix("_d"))
        command.add_argument(flag, dest=field.name, type=kind, default=default, metavar=form, help=text)
    command.add_argument("--many", type=int, default=0, metavar="N", help="N simulations, each of another flow")
    command.add_argument("--between", type=_pair, default=_REYNOLDS, metavar="LOW,HIGH", help="their Reynolds numbers")
    options = command.parse_args()
    require_seed(options.seed)
    require_least("--many", options.many, 0)
    output = Path(options.output)
    case = Case(**given_values(Case, options))
    todo = {output: case}
    if options.many:
        several = cases(case, options.many, options.between)
        todo = {output / f"vortex_{case.seed}_{place:02d}.h5": drawn for place, drawn in enumerate(several)}
    for place, drawn in todo.items():
        print(f"{place}: is there; nothing to do" if place.exists() else simulate(drawn, place))


if __name__ == "__main__":
    run_command(main)
