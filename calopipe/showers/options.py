"""Options of the command line that every reader of HDF5 showers shares."""

from __future__ import annotations

import argparse

from calopipe.showers.flaws import SKIP, STOP
from calopipe.showers.selection import CUT_GEV
from calopipe.showers.splits import ALL, SPLITS


def add_split_file(command: argparse.ArgumentParser) -> None:
    """The option that every reader of HDF5 shares: whole files assigned to a split."""
    command.add_argument(
        "--split-file", action="append", default=[], metavar="SPLIT=PATTERN",
        help=f"give whole files to a split ({', '.join(SPLITS)}) by name; otherwise each event's split follows from "
        "its own content",
    )  # fmt: skip


def add_geometry(command: argparse.ArgumentParser) -> None:
    """The option that every reader of HDF5 shares: geometry that the files do not state, or state wrongly."""
    command.add_argument(
        "--geometry", default="", metavar="NAME=VALUE,...",
        help="cell_mm, layer_pitch_mm, x0_per_layer, file_unit_gev in place of the files' attributes",
    )  # fmt: skip


def add_memory(command: argparse.ArgumentParser) -> None:
    """Where the hashes of Monte Carlo files are remembered, which takes minutes off files of 100 GB."""
    command.add_argument(
        "--dataset", metavar="DIR", help="the dataset of these files: what it remembers of them is not hashed again"
    )


def add_cut(command: argparse.ArgumentParser) -> None:
    """The cut, which preprocessing and every reader of a split of the same files must share."""
    command.add_argument(
        "--cut-gev", type=float, default=CUT_GEV, metavar="E",
        help="Monte Carlo showers that deposit E GeV or less are left out (default %(default)s)",
    )  # fmt: skip


def add_bad_event(command: argparse.ArgumentParser) -> None:
    """What every reader of Monte Carlo does about a corrupt event, which all stages of a run must share."""
    command.add_argument(
        "--on-bad-event", choices=(STOP, SKIP), default=STOP,
        help="what to do about an event with NaN, negative or impossible values: stop, or leave it out",
    )  # fmt: skip


def add_split(command: argparse.ArgumentParser, whose: str) -> None:
    """Which split is read."""
    command.add_argument("--split", choices=(*SPLITS, ALL), default=ALL, help=f"{whose} (default %(default)s)")
