"""Run, compile, submit and schedule the pipeline: `python pipelines/submit.py --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from calopipe.errors import InputError, run_command
from calopipe.options import CommandParser
from calopipe.storage import Location, location
from components.image import IMAGE
from pipelines import package, parameters
from pipelines.cluster import platform
from pipelines.remote import options as remote

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

    run = tasks.add_parser("run", help="run every step on this machine; goes on where an earlier run stopped")
    run.add_argument("--input", nargs="+", metavar="GLOB", help="HDF5 files (default: the sample of the repository)")
    run.add_argument(
        "--output",
        default=_OUTPUTS[pipeline],
        metavar="DIR",
        help="folder or gs:// address of the run (default %(default)s)",
    )
    run.add_argument("--verbose", action="store_true", help="print all that the steps and kfp print, not only the log")
    run.add_argument(
        "--generation-pods",
        type=int,
        default=1,
        metavar="N",
        help="generate in N shares and join them, as N pods of a cluster do; here one after the other",
    )
    parameters.add_options(run, pipeline)

    compile_ = tasks.add_parser("compile", help="write the pipeline as YAML, to upload in the Kubeflow UI")
    compile_.add_argument("--output", type=Path, default=Path(f"{pipeline}.yaml"), metavar="FILE.yaml")
    for task in (run, compile_):
        parameters.add_choice(task)
    platform.add_options(compile_)

    remote.add_to(tasks, pipeline)
    return command


def run(options: argparse.Namespace) -> None:
    """Run the pipeline on this machine."""
    from pipelines.checks import check  # noqa: PLC0415  h5py and more, which others need not wait for

    sample = FLOWS if options.pipeline == parameters.FLOW else SAMPLE
    given = {"input": [str(sample / "*.h5")]} | parameters.given(options)
    check(given, options.pipeline)

    from pipelines.here import local_run  # noqa: PLC0415  kfp, a second that bad input need not wait for

    local_run.run(
        given,
        location(options.output).absolute(),
        verbose=options.verbose,
        shares=options.generation_pods,
        name=options.pipeline,
    )


def compile_package(options: argparse.Namespace) -> None:
    """Write the pipeline as YAML."""
    package.write(options.output, platform.platform_of(options), options.pipeline)
    print(f"pipeline: {options.output}")
    if not options.image:
        print(f"the cluster must be able to pull {IMAGE}; see docs/image.md, or give --image", file=sys.stderr)


def use_server(options: argparse.Namespace) -> None:
    """Carry out one of the commands that a server of Kubeflow Pipelines answers; `status` also of a run here."""
    if options.task == "status" and options.run:
        place = location(options.run)
        if not isinstance(place, Path) or place.is_dir():
            _show_here(place, wait=options.wait)
            return
    given = parameters.given(options) if "input" in options else {}
    if given:
        from pipelines.checks import check  # noqa: PLC0415

        check(given, options.pipeline, platform.platform_of(options))

    from pipelines.remote import commands  # noqa: PLC0415  the client of the server

    commands.perform(options, given)


def _show_here(output: Location, *, wait: bool) -> None:
    """Print what the run in the folder `output` has made, and whether it goes on."""
    from calopipe.lock import writer  # noqa: PLC0415
    from components import overview  # noqa: PLC0415  h5py, which the other commands need not wait for

    if wait:
        raise InputError(f"status {output} --wait: only runs on a cluster are followed; leave --wait out")
    parts = overview.parts(output)
    process = writer(output)
    print(f"{output}: {f'runs, {process}' if process else 'no run goes on'}")
    print("\n".join(map(str, parts)))
    if (page := output / overview.INDEX_FILE).is_file():
        print(f"open: {page}")


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    chosen.add_argument("--pipeline", choices=parameters.PIPELINES, default=parameters.SHOWERS)
    options = parser(chosen.parse_known_args(given)[0].pipeline).parse_args(given or ["run"])
    if getattr(options, "pipeline", "") == parameters.FLOW and (options.generation_pods or 1) > 1:
        raise InputError(f"--generation-pods {options.generation_pods}: roll-outs are not shared out; leave it out")
    {"run": run, "compile": compile_package}.get(options.task, use_server)(options)


command = partial(run_command, main)  # the console script


if __name__ == "__main__":
    command()
