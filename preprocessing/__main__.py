"""Command line of preprocessing: `python -m preprocessing --help`."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import partial

from calopipe.errors import InputError, require_least, run_command
from calopipe.events.contents import read_memory
from calopipe.events.tolerance import KEEP, SKIP, STOP
from calopipe.options import CommandParser, add_settings, given_values, option_help, settings_of
from calopipe.showers.selection import Reading
from calopipe.storage import Location, expand, location
from preprocessing.dataset import MANIFEST, news, require_own_folder
from preprocessing.field import FieldSettings
from preprocessing.flow.manifest import PairSettings
from preprocessing.pipeline import preprocess
from preprocessing.showers.manifest import Settings

logger = logging.getLogger(__name__)

_EXAMPLES = """
examples:
  python -m preprocessing --input 'data/geant4/*.h5' --output runs/dataset
  python -m preprocessing --input 'data/geant4/*.h5' --output runs/dataset --split-file 'test=*_002.h5'
  python -m preprocessing --input showers.h5 --output runs/dataset --geometry cell_mm=5.1,layer_pitch_mm=4
  python -m preprocessing --input dataset_2_*.hdf5 --output runs/dataset --geometry calochallenge-2
  python -m preprocessing --input showers.h5 --output runs/dataset --geometry docs/examples/two-sections.toml
  python -m preprocessing --input 'data/vortex/*.h5' --output runs/vortex/dataset --pair-step 2
  python -m preprocessing --input 'data/*.h5' --output runs/dataset --workers 4
  python -m preprocessing --input 'data/*.h5' --output runs/dataset --on-bad-event skip --on-bad-file skip
  python -m preprocessing --input 'gs://bucket/showers/*.h5' --output gs://bucket/dataset
  python -m preprocessing --input 'data/*.h5' --output runs/dataset --beam-option runner=DaskRunner \\
      --beam-option dask_client_address=tcp://HOST:8786

The same command, run again, does only what is missing or has changed.
"""


def parser() -> CommandParser:
    command = CommandParser(
        prog="python -m preprocessing",
        description="Turn HDF5 files of calorimeter showers, or of simulated flows, into a dataset of TFRecord shards, "
        "once.",
        epilog=_EXAMPLES,
    )
    command.add_argument(
        "--input", nargs="+", required=True, metavar="GLOB", help="HDF5 files or patterns; paths or gs:// addresses"
    )
    command.add_argument("--output", required=True, metavar="DIR", help="folder of the dataset, or a gs:// address")
    made = {setting.name: setting for kind in (PairSettings, Settings) for setting in settings_of(kind)}
    read = [setting for setting in settings_of(Reading) if setting.name != "dataset"]
    add_settings(command, [*made.values(), *read], option_help)
    command.add_argument(
        "--on-copies",
        choices=(SKIP, STOP, KEEP),
        default=SKIP,
        help="what to do about a shower that is equal to one before it: leave it out, stop, or keep it, with a warning "
        "(default %(default)s)",
    )
    command.add_argument("--workers", type=int, default=1, metavar="N", help="processes on this machine (default 1)")
    command.add_argument(
        "--beam-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of Apache Beam; without a runner the work is done in this process",
    )
    return command


def main(arguments: Sequence[str] | None = None) -> None:
    command = parser()
    options = command.parse_args(arguments)
    output = location(options.output)
    reading = Reading(**given_values(Reading, options))
    settings: FieldSettings = Settings.of(reading, **given_values(Settings, options))
    if _holds_flows(options.input, output):
        of_showers = ("threshold_gev", "geometry", "cut_gev", "on_copies", "on_doubt")
        command.refuse(options, of_showers, "is for showers, and the input is a flow")
        settings = PairSettings(reading.rule, **given_values(PairSettings, options))
    else:
        command.refuse(options, ("pair_step",), "is for flows, and the input is showers")
    require_own_folder(output)  # before anything is written there
    inputs = settings.discover(options.input, reading, output)
    if since := news(inputs.files, output):
        print(since)
    beam_options = _beam_options(options.beam_option, options.workers)
    manifest = preprocess(inputs, output, settings, beam_options, tolerance=reading, on_copies=options.on_copies)
    if repeated := manifest.events["repeated"]:
        items = manifest.domain.items
        logger.warning("%d %s repeat another one of their split, and count more than once", repeated, items)
    if manifest.bad_files:
        print(f"files left out: {', '.join(file.name for file in manifest.bad_files)}")
    print(f"dataset: {output / MANIFEST}")


def _beam_options(named: Sequence[str], workers: int) -> list[str]:
    """The options as Beam reads them. InputError."""
    for option in named:
        if not re.match(r"[A-Za-z]\w*(=|$)", option):
            raise InputError(f"--beam-option {option}: expected NAME=VALUE, or NAME for a flag")
    require_least("--workers", workers, 1)
    several = [f"--direct_num_workers={workers}", "--direct_running_mode=multi_processing"]
    return [f"--{option}" for option in named] + (several if workers > 1 else [])


def _holds_flows(patterns: Sequence[str], output: Location) -> bool:
    """Whether the input holds flows. No file is opened if `output` remembers all: remembered files hold showers."""
    paths, remembered = expand(patterns), read_memory(output)["files"]
    if all(str(path.absolute()) in remembered for path in paths):
        return False
    from calopipe.flow.files import are_flows  # noqa: PLC0415  loads HDF5, which a finished dataset does not need

    return are_flows(paths)


command = partial(run_command, main)  # the console script


if __name__ == "__main__":
    command()
