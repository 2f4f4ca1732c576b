"""Command line of preprocessing: `python -m preprocessing --help`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from calopipe.errors import CommandParser, run_command
from calopipe.events.contents import MEMORY
from calopipe.events.tolerance import KEEP, SKIP, STOP, WARN
from calopipe.options import add_settings, given, settings_of, told
from calopipe.storage import Location, expand, location
from preprocessing.dataset import MANIFEST, Settings
from preprocessing.field import FieldSettings
from preprocessing.flow.manifest import PairSettings
from preprocessing.pipeline import preprocess
from preprocessing.runner import add_beam, beam_options_of
from preprocessing.showers.asked import Reading

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
    command.add_argument(
        "--shard-events",
        type=int,
        default=Settings.shard_events,
        metavar="N",
        help="events of one range of a file, the piece of work of one worker (default %(default)s)",
    )
    command.add_argument(
        "--pair-step",
        type=int,
        default=PairSettings.step,
        metavar="K",
        help="of a flow: frames of a pair are K intervals of the file apart (default %(default)s)",
    )
    own = {"on_doubt": WARN}  # where the pipeline's default is another
    read = [setting for setting in settings_of(Reading) if setting.name != "dataset"]
    add_settings(command, read, lambda setting: told(setting, own.get(setting.name)))
    command.add_argument(
        "--on-copies",
        choices=(SKIP, STOP, KEEP),
        default=SKIP,
        help="what to do about a shower that is equal to one before it: leave it out, stop, or keep it, with a warning "
        "(default %(default)s)",
    )
    add_beam(command)
    return command


def main(arguments: Sequence[str] | None = None) -> None:
    command = parser()
    options = command.parse_args(arguments)
    output = location(options.output)
    reading = Reading(**{"on_doubt": WARN} | given(Reading, options))
    tolerance = replace(reading.tolerance(), copies=options.on_copies)
    settings: FieldSettings = reading.preprocessed(shard_events=options.shard_events)
    if _holds_flows(options.input, output):
        command.refuse(options, ("threshold_gev", "geometry", "cut_gev"), "is for showers, and the input is a flow")
        settings = PairSettings(reading.rule, options.pair_step, options.shard_events)
    inputs = settings.discover(options.input, tolerance, output)
    manifest = preprocess(inputs, output, settings, beam_options_of(options), tolerance=tolerance)
    if repeated := manifest.events["repeated"]:
        items = manifest.domain.items
        logger.warning("%d %s repeat another one of their split, and count more than once", repeated, items)
    if manifest.bad_files:
        print(f"files left out: {', '.join(file.name for file in manifest.bad_files)}")
    print(f"dataset: {output / MANIFEST}")


def _holds_flows(patterns: Sequence[str], output: Location) -> bool:
    """Whether the input is of flows. A dataset that remembers its input files is of showers; none is opened then."""
    if (output / MEMORY).is_file():
        return False
    from calopipe.flow.files import is_flow  # noqa: PLC0415  loads HDF5, which a finished dataset does not need

    return is_flow(expand(patterns)[0])


command = partial(run_command, main)  # the console script


if __name__ == "__main__":
    command()
