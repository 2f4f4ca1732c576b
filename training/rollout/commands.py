"""The command that continues a flow: `rollout`."""

from __future__ import annotations

import argparse
import re
from contextlib import nullcontext
from typing import Any

from calopipe import storage
from calopipe.errors import InputError
from calopipe.mirror import mirrored_file
from training.model_folder import model_on_disk


def add_to(tasks: Any) -> None:
    """Add the command to `tasks`, of argparse."""
    rollout = tasks.add_parser(
        "rollout", help="simulate a flow step by step", description="Continue a flow from a frame, step after step."
    )
    rollout.set_defaults(perform=_perform)
    rollout.add_argument("--model", required=True, metavar="DIR", help="folder that fit wrote")
    rollout.add_argument("--start", required=True, metavar="FILE[:FRAME]", help="flow file and frame (default 0)")
    rollout.add_argument("--steps", type=int, required=True, metavar="N", help="of the interval the model is for")
    rollout.add_argument("--output", required=True, metavar="FILE.h5", help="flow file that is written")
    rollout.add_argument("--movie", metavar="FILE.gif", help="also draw vorticity, beside the solver's")


def _perform(options: argparse.Namespace) -> None:
    """Write the roll-out that `options` ask for to the output. InputError."""
    for name, ends in (("output", (".h5", ".hdf5")), ("movie", (".gif",))):
        place = getattr(options, name)
        if place is not None and not place.endswith(ends):
            raise InputError(f"--{name} {place}: expected a name that ends in {ends[0]}")
    name, colon, frame = options.start.rpartition(":")
    if not (colon and re.fullmatch(r"-?\d+", frame)):
        name, frame = options.start, "0"
    drawn = nullcontext() if options.movie is None else mirrored_file(storage.location(options.movie))
    with (
        model_on_disk(options.model) as model,
        mirrored_file(storage.location(options.output)) as output,
        mirrored_file(storage.location(name), writes=False) as start,
        drawn as movie,
    ):
        from training.rollout.rollout import roll_out  # noqa: PLC0415  TensorFlow

        roll_out(model, start, output, frame=int(frame), steps=options.steps, movie=movie)
