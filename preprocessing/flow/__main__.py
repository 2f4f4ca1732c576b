"""Command line of simulations: `python -m preprocessing.flow --help`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calopipe import storage
from calopipe.errors import CommandParser, InputError, run_command
from preprocessing.flow.simulate import Case, simulate

_EXAMPLES = """
examples:
  python -m preprocessing.flow --output vortex.h5 --reynolds 100
  python -m preprocessing.flow --output fine.h5 --reynolds 100 --resolution 2
  python -m preprocessing.flow --output wide.h5 --reynolds 150 --obstacle 2,1.2 --middle 5,3.4
  python -m preprocessing.flow --output data/vortex --many 10

It needs pylbm (pip install 'calopipe[flow]'), and a C compiler.
"""
_LENGTHS_D, _HEIGHTS_D, _ACROSS_D = (0.6, 1.0, 1.4, 2.0), (0.8, 1.0, 1.2), (2.8, 3.0, 3.2, 3.4, 3.6)
_REYNOLDS = (65.0, 200.0)  # of many simulations, the least and the largest


def parser() -> argparse.ArgumentParser:
    case = Case(reynolds=100)
    command = CommandParser(
        prog="python -m preprocessing.flow",
        description="Simulate the flow behind a rectangle. Lengths are in D, times in D/U, U being the inflow's speed.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--output", required=True, metavar="PATH", help="the HDF5 file; with --many, their folder")
    command.add_argument("--reynolds", type=float, default=case.reynolds, metavar="RE", help="U D / nu (default 100)")
    command.add_argument("--obstacle", type=_pair, default=case.obstacle_d, metavar="L,H", help="its length and height")
    command.add_argument("--middle", type=_pair, default=case.middle_d, metavar="X,Y", help="where its middle is")
    command.add_argument("--frames", type=int, default=case.frames, metavar="N", help="how many are kept (default 64)")
    command.add_argument(
        "--interval", type=float, default=case.interval_d, metavar="T", help="time from one to the next (default 0.28)"
    )
    command.add_argument(
        "--settle", type=float, default=case.settle_d, metavar="T", help="time before the first (default 100)"
    )
    command.add_argument("--seed", type=int, default=case.seed, help="of the first perturbation, and of --many")
    command.add_argument(
        "--resolution", type=int, default=case.resolution, metavar="N", help="solver's cells, 10 N a D; frames have 5"
    )
    command.add_argument(
        "--wall-speed", type=float, default=case.wall_speed, metavar="U", help="1: as the inflow (default); 0: at rest"
    )
    command.add_argument(
        "--many", type=int, default=0, metavar="N", help="N simulations, of other Reynolds numbers and obstacles each"
    )
    command.add_argument(
        "--between", type=_pair, default=_REYNOLDS, metavar="LOW,HIGH", help="their Reynolds numbers (default 65,200)"
    )
    return command


def _pair(text: str) -> tuple[float, float]:
    first, second = text.split(",")
    return float(first), float(second)


def cases(first: Case, count: int, between: tuple[float, float] = _REYNOLDS) -> list[Case]:
    """`count` simulations of Reynolds numbers spread evenly `between` two, with obstacles drawn by `first`'s seed."""
    draws = np.random.default_rng(first.seed)
    numbers = np.linspace(*between, count)
    return [
        replace(
            first,
            reynolds=float(round(number)),
            obstacle_d=(
                float(draws.choice(_LENGTHS_D)),
                float(draws.choice([h for h in _HEIGHTS_D if h * number > 60])),
            ),
            middle_d=(5.0, float(draws.choice(_ACROSS_D))),
            seed=first.seed + place,
        )
        for place, number in enumerate(numbers)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    output = storage.on_disk(options.output, "--output")
    case = Case(
        reynolds=options.reynolds, obstacle_d=options.obstacle, middle_d=options.middle, frames=options.frames,
        interval_d=options.interval, settle_d=options.settle, seed=options.seed, resolution=options.resolution,
        wall_speed=options.wall_speed,
    )  # fmt: skip
    if options.many < 0:
        raise InputError(f"--many is {options.many}, expected at least 1")
    todo = {output: case}
    if options.many:
        several = cases(case, options.many, options.between)
        todo = {output / f"vortex_{case.seed}_{place:02d}.h5": each for place, each in enumerate(several)}
    for path, each in todo.items():
        if path.exists():
            print(f"{path}: is there; nothing to do")
        else:
            print(simulate(each, path))


def command() -> None:
    """Run the command line, with errors as one line."""
    run_command(main)


if __name__ == "__main__":
    command()
