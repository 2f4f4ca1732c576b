"""Run, compile, submit and schedule the pipeline: `python pipelines/submit.py --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from calopipe.errors import run_command
from calopipe.options import CommandParser
from calopipe.storage import location
from components.image import IMAGE
from pipelines import package, parameters
from pipelines.cluster import platform
from pipelines.remote import commands as remote

SAMPLE, FLOWS = (Path(__file__).resolve().parent.parent / "data" / name for name in ("geant4", "vortex"))
_OUTPUTS = {parameters.SHOWERS: "runs/demo", parameters.FLOW: "runs/vortex"}
_EXAMPLES = """
examples:
  python pipelines/submit.py
      the whole pipeline here, on the Geant4 sample of this repository, into runs/demo
  python pipelines/submit.py run --input '/data/showers/*.h5' --output runs/mine --epochs 20
      the same on your files; both may be gs:// addresses
  python pipelines/submit.py status runs/mine
      what the run in that folder has made so far
  python pipelines/submit.py run --pipeline vortex
      the pipeline of a flow, on the simulations of this repository, into runs/vortex
  python pipelines/submit.py compile --output calorimeter.yaml
      a file to upload in the Kubeflow UI, for runs on a bucket; --claim is for runs in a volume
  python pipelines/submit.py submit --endpoint http://localhost:8080 \\
      --input 'gs://bucket/showers/*.h5' --output gs://bucket/runs/first --wait
      one run on a cluster, followed; `status RUN` and `logs RUN` look at it later
  python pipelines/submit.py schedule --endpoint http://localhost:8080 --claim calopipe-data:/data \\
      --cron '0 0 3 * * 1' --input '/data/showers/*.h5' --output /data/runs/weekly --name weekly
      Mondays at 3:00; the Kubeflow UI pauses, resumes and deletes it
"""


def parser(pipeline: str = parameters.SHOWERS) -> argparse.ArgumentParser:
    """The command line; `pipeline` decides the options of `run`."""
    command = CommandParser(
        prog="submit.py",
        description="Run the pipeline here, or compile, submit or schedule it for Kubeflow Pipelines.",
        epilog=_EXAMPLES,
    )
    tasks = command.add_subparsers(dest="task", required=True)

    run_ = tasks.add_parser("run", help="run every step on this machine; goes on where an earlier run stopped")
    run_.add_argument("--input", nargs="+", metavar="GLOB", help="HDF5 files (default: the sample of the repository)")
    run_.add_argument(
        "--output",
        default=_OUTPUTS[pipeline],
        metavar="DIR",
        help="folder or gs:// address of the run (default %(default)s)",
    )
    run_.add_argument("--verbose", action="store_true", help="print all that the steps and kfp print, not only the log")
    parameters.add_options(run_, pipeline)

    package_ = tasks.add_parser("compile", help="write the pipeline as YAML, to upload in the Kubeflow UI")
    package_.add_argument("--output", default=f"{pipeline}.yaml", metavar="FILE.yaml")
    for task, perform in ((run_, run), (package_, compile_package)):
        parameters.add_choice(task)
        task.set_defaults(perform=perform)
    platform.add_options(package_)

    remote.add_to(tasks, pipeline)
    return command


def run(options: argparse.Namespace) -> None:
    """Run the pipeline on this machine."""
    from pipelines.checks import check  # noqa: PLC0415  loads h5py and more, not needed by other commands

    sample = FLOWS if options.pipeline == parameters.FLOW else SAMPLE
    values = {"input": [str(sample / "*.h5")]} | parameters.given_parameters(options)
    check(values, options.pipeline)

    from pipelines.local_run import run as run_here  # noqa: PLC0415  loads kfp for a second, not needed for bad input

    run_here(values, location(options.output).absolute(), verbose=options.verbose, name=options.pipeline)


def compile_package(options: argparse.Namespace) -> None:
    """Write the pipeline as YAML."""
    package.write(location(options.output), platform.platform_of(options), options.pipeline)
    print(f"pipeline: {options.output}")
    if not options.image:
        print(f"the cluster must be able to pull {IMAGE}; see docs/image.md, or give --image", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    chosen = CommandParser(prog="submit.py", add_help=False)
    parameters.add_choice(chosen)
    options = parser(chosen.parse_known_args(words)[0].pipeline).parse_args(words or ["run"])
    options.perform(options)


command = partial(run_command, main)  # the console script


if __name__ == "__main__":
    command()
