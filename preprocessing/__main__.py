"""Command line of preprocessing: `python -m preprocessing --help`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from preprocessing.dataset import MANIFEST, Settings
from preprocessing.errors import InputError, run_command
from preprocessing.options import add_cut, add_geometry, add_split_file
from preprocessing.pipeline import discover, preprocess
from preprocessing.splits import SPLITS, SplitRule

_EXAMPLES = """
examples:
  python -m preprocessing --input 'data/geant4/*.h5' --output runs/dataset
  python -m preprocessing --input 'data/geant4/*.h5' --output runs/dataset --split-file 'test=*_002.h5'
  python -m preprocessing --input showers.h5 --output runs/dataset --geometry cell_mm=5.1,layer_pitch_mm=4
  python -m preprocessing --input 'data/*.h5' --output runs/dataset --workers 4
  python -m preprocessing --input 'data/*.h5' --output runs/dataset --beam-option runner=FlinkRunner

Run the same command again and only what is
missing or changed is done.
"""


def parser() -> argparse.ArgumentParser:
    defaults = Settings()
    command = argparse.ArgumentParser(
        prog="python -m preprocessing",
        description="Turn HDF5 files of calorimeter showers into a dataset of TFRecord shards, once.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("--input", nargs="+", required=True, metavar="GLOB", help="HDF5 files, or patterns of them")
    command.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the dataset")
    command.add_argument(
        "--threshold-gev", type=float, default=defaults.threshold_gev, metavar="E",
        help="cells below E GeV are set to zero (default %(default)s: nothing is lost)",
    )  # fmt: skip
    add_cut(command)
    command.add_argument(
        "--shard-events", type=int, default=defaults.shard_events, metavar="N",
        help="showers of one range of a file, the piece of work of one worker (default %(default)s)",
    )  # fmt: skip
    add_split_file(command)
    add_geometry(command)
    command.add_argument("--workers", type=int, default=1, metavar="N", help="processes on this machine (default 1)")
    command.add_argument(
        "--beam-option", action="append", default=[], metavar="NAME=VALUE",
        help="an option of Apache Beam; without a runner the work is done in this process",
    )  # fmt: skip
    return command


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    beam_options = [f"--{option}" for option in options.beam_option]
    if options.workers < 1:
        raise InputError(f"--workers is {options.workers}, expected at least 1")
    if options.workers > 1:
        beam_options += [f"--direct_num_workers={options.workers}", "--direct_running_mode=multi_processing"]
    settings = Settings(
        threshold_gev=options.threshold_gev,
        cut_gev=options.cut_gev,
        shard_events=options.shard_events,
        split_rule=SplitRule.parse(options.split_file),
        geometry=options.geometry,
    )
    manifest = preprocess(discover(options.input, options.geometry), options.output, settings, beam_options)
    counts = ", ".join(f"{split} {manifest.count(split)}" for split in SPLITS)
    dropped = ", ".join(f"{count} {reason}" for reason, count in manifest.events["dropped"].items())
    print(f"{manifest.events['written']} showers ({counts}); dropped: {dropped}")
    print(f"dataset: {options.output / MANIFEST}")


if __name__ == "__main__":
    run_command(main)
