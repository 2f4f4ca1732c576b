"""The commands that make frames of a flow."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.errors import InputError
from calopipe.mirror import mirrored_file
from preprocessing.runner import add_beam, beam_options_of
from training.model_folder import model_on_disk


def add_to(tasks: Any) -> None:
    """Add the commands to `tasks`, of argparse."""
    rollout = tasks.add_parser(
        "rollout", help="simulate a flow step by step", description="Continue a flow from a frame, step after step."
    )
    rollout.add_argument("--start", required=True, metavar="FILE[:FRAME]", help="flow file and frame (default 0)")
    rollout.add_argument("--steps", type=int, required=True, metavar="N", help="of the interval the model is for")
    rollout.add_argument("--movie", metavar="FILE.gif", help="also draw vorticity, beside the solver's")
    advance = tasks.add_parser(
        "advance",
        help="make one step from each frame, in tiles on Beam",
        description="Make one step from each frame of a flow: map, tiles through the network; reduce, tiles to frames.",
    )
    advance.add_argument("--start", required=True, metavar="FILE", help="flow file")
    advance.add_argument("--tile", required=True, metavar="XxY", help="cells of a tile without its halo, as 32x32")
    add_beam(advance)
    for task, made in ((rollout, _roll_out), (advance, _advance)):
        task.set_defaults(perform=partial(_perform, made))
        task.add_argument("--model", required=True, metavar="DIR", help="folder that fit wrote")
        task.add_argument("--output", required=True, metavar="FILE.h5", help="flow file that is written")


def _perform(make: Callable[[argparse.Namespace, Path, Path], None], options: argparse.Namespace) -> None:
    """Call `make`, which writes what `options` ask for to the output. InputError."""
    if not options.output.endswith((".h5", ".hdf5")):
        raise InputError(f"--output {options.output}: expected a name that ends in .h5")
    with model_on_disk(options.model) as model, mirrored_file(storage.location(options.output)) as output:
        make(options, model, output)


def _advance(options: argparse.Namespace, model: Path, output: Path) -> None:
    if not (side := re.fullmatch(r"(\d+)x(\d+)", options.tile)):
        raise InputError(f"--tile is {options.tile!r}, expected counts of cells, as 32x32")
    from training.rollout.mapreduce import advance  # noqa: PLC0415  TensorFlow

    with mirrored_file(storage.location(options.start), writes=False) as start:
        advance(model, start, (int(side[1]), int(side[2])), output, beam_options_of(options))


def _roll_out(options: argparse.Namespace, model: Path, output: Path) -> None:
    name, colon, frame = options.start.rpartition(":")
    if not (colon and re.fullmatch(r"-?\d+", frame)):
        name, frame = options.start, "0"
    if options.movie is not None and not options.movie.endswith(".gif"):
        raise InputError(f"--movie {options.movie}: expected a name that ends in .gif")
    from training.rollout.rollout import roll_out  # noqa: PLC0415  TensorFlow

    drawn = mirrored_file(storage.location(options.movie)) if options.movie is not None else nullcontext()
    with mirrored_file(storage.location(name), writes=False) as start, drawn as movie:
        roll_out(model, start, output, frame=int(frame), steps=options.steps, movie=movie)
