"""Options of the command line that every reader of Monte Carlo shares."""

from __future__ import annotations

import argparse

from calopipe.showers.flaws import SKIP, STOP
from calopipe.showers.selection import CUT_GEV
from calopipe.showers.splits import ALL, SPLITS


def add_selection(command: argparse.ArgumentParser, split_help: str = "") -> None:
    """The options that `Selection.of` reads.

    Without `split_help` there is no `--split`, and no `--dataset` that remembers the files: preprocessing reads all
    splits and writes the dataset.
    """
    if split_help:
        command.add_argument("--split", choices=(*SPLITS, ALL), default=ALL, help=f"{split_help} (default %(default)s)")
        command.add_argument(
            "--dataset", metavar="DIR", help="the dataset of these files: what it remembers of them is not hashed again"
        )
    command.add_argument(
        "--split-file", action="append", default=[], metavar="SPLIT=PATTERN",
        help=f"give whole files to a split ({', '.join(SPLITS)}) by name; otherwise each event's split follows from "
        "its own content",
    )  # fmt: skip
    command.add_argument(
        "--geometry", default="", metavar="NAME=VALUE,...",
        help="cell_mm, layer_pitch_mm, x0_per_layer, file_unit_gev in place of the files' attributes",
    )  # fmt: skip
    command.add_argument(
        "--cut-gev", type=float, default=CUT_GEV, metavar="E",
        help="Monte Carlo showers that deposit E GeV or less are left out (default %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--on-bad-event", choices=(STOP, SKIP), default=STOP,
        help="what to do about an event with NaN, negative or impossible values: stop, or leave it out",
    )  # fmt: skip
