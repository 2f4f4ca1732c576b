"""Run, compile, submit and schedule the pipeline: `python pipelines/submit.py --help`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines import cron
from pipelines.connection import Connection, connection
from pipelines.connection import add_options as connection_options
from pipelines.cron import Trigger
from preprocessing import storage
from preprocessing.dataset import CUT_GEV, Settings
from preprocessing.errors import CommandParser, InputError, run_command
from preprocessing.flaws import SKIP, STOP, Tolerance
from training.configs import CONFIGS, STRATEGIES

if TYPE_CHECKING:
    from pipelines.cluster import Platform

SAMPLE = Path(__file__).resolve().parent.parent / "data" / "geant4"
_EXAMPLES = """
examples:
  python pipelines/submit.py
      the whole pipeline here, on the Geant4 sample of this repository, into runs/demo
  python pipelines/submit.py run --input '/data/showers/*.h5' --output runs/mine --epochs 20
      the same on your files
  python pipelines/submit.py compile --output calorimeter.yaml --claim calopipe-data:/data
      a file to upload in the Kubeflow UI; every step sees the volume claim calopipe-data at /data
  python pipelines/submit.py submit --endpoint http://localhost:8080 --claim calopipe-data:/data \\
      --input '/data/showers/*.h5' --output /data/runs/first --wait
      one run on a cluster, followed; `status RUN` and `logs RUN` look at it later
  python pipelines/submit.py schedule --endpoint http://localhost:8080 --claim calopipe-data:/data \\
      --cron '0 0 3 * * 1' --input '/data/showers/*.h5' --output /data/runs/weekly --name weekly
      Mondays at 3:00; `schedule list`, `schedule pause weekly`, `schedule delete weekly`
"""


def parser() -> argparse.ArgumentParser:
    command = CommandParser(
        prog="submit.py",
        description="Run the pipeline here, or compile, submit or schedule it for Kubeflow Pipelines.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tasks = command.add_subparsers(dest="task", required=True)

    run = tasks.add_parser("run", help="run every step on this machine; goes on where an earlier run stopped")
    run.add_argument("--input", nargs="+", metavar="GLOB", help="HDF5 files (default: the sample of the repository)")
    run.add_argument("--output", default="runs/demo", metavar="DIR", help="folder of the run (default %(default)s)")
    _add_parameters(run)

    compile_ = tasks.add_parser("compile", help="write the pipeline as YAML, to upload in the Kubeflow UI")
    compile_.add_argument("--output", type=Path, default=Path("calorimeter.yaml"), metavar="FILE.yaml")
    _add_cluster(compile_)

    submit = tasks.add_parser("submit", help="start one run on a cluster")
    _add_run(submit)
    submit.add_argument("--name", default="calorimeter", metavar="NAME",
                        help="of the run, to which a time and four digits are added (default %(default)s)")  # fmt: skip
    _add_waiting(submit)

    _add_schedule(tasks.add_parser("schedule", help="start runs on a cluster regularly; list, pause, replace them"))

    status = tasks.add_parser("status", help="the newest runs on a cluster, or one with its steps")
    status.add_argument("run", nargs="?", metavar="RUN", help="id of a run (default: the ten newest)")
    status.add_argument("--experiment", metavar="NAME", help="the newest of this one alone")
    _add_waiting(status)
    connection_options(status)

    logs = tasks.add_parser("logs", help="what the steps of a run have said; asks Kubernetes, as kubectl does")
    logs.add_argument("run", metavar="RUN", help="id of a run")
    logs.add_argument("--step", metavar="STEP", help="of this step alone")
    logs.add_argument("--follow", action="store_true", help="go on until the run ends")
    connection_options(logs)

    upload = tasks.add_parser("upload", help="put the pipeline, or a new version of it, into the UI's list")
    upload.add_argument("--name", default="calorimeter", metavar="NAME", help="of the pipeline (default %(default)s)")
    upload.add_argument("--version", metavar="NAME", help="of a version after the first (default: the time)")
    _add_cluster(upload)
    connection_options(upload)
    return command


def _add_schedule(schedule: argparse.ArgumentParser) -> None:
    actions = schedule.add_subparsers(dest="action", required=True)
    create = actions.add_parser("create", help="start runs regularly, one at a time; may be left out before options")
    create.add_argument("--name", default="calorimeter", metavar="NAME", help="of the schedule (default %(default)s)")
    replace = actions.add_parser(
        "replace",
        help="put a new schedule in the place of one",
        description="A recurring run cannot be edited. State the new one whole, as for create: it is created under the "
        "same name, then the old one is deleted, so that a failure between leaves both and never none.",
    )
    replace.add_argument("schedule", metavar="NAME|ID")
    for task in (create, replace):
        _add_run(task)
        cron.add_options(task)
    connection_options(actions.add_parser("list", help="every schedule of the namespace"))
    for name, text in (
        ("pause", "start no more runs, until it is resumed; one that runs goes on"),
        ("resume", "start runs again, from the next time on"),
        ("delete", "end it; the runs that it started stay"),
    ):
        task = actions.add_parser(name, help=text)
        task.add_argument("schedule", metavar="NAME|ID")
        connection_options(task)


def _add_run(task: argparse.ArgumentParser) -> None:
    """What a run on a cluster takes, whether it starts now or regularly."""
    task.add_argument("--input", nargs="+", required=True, metavar="GLOB", help="HDF5 files, as the steps see them")
    task.add_argument("--output", required=True, metavar="DIR", help="folder of the run, as the steps see it")
    task.add_argument("--experiment", metavar="NAME", help="made if it is not there (default calopipe)")
    task.add_argument("--service-account", metavar="NAME", help="of the pods of the run (default: the cluster's)")
    _add_cluster(task)
    connection_options(task)
    _add_parameters(task)


def _add_waiting(task: argparse.ArgumentParser) -> None:
    task.add_argument("--wait", action="store_true", help="follow the run; exits 1 if it fails or is cancelled")
    task.add_argument("--timeout", type=float, metavar="SECONDS", help="follow no longer; exits 124, the run goes on")


def _add_cluster(task: argparse.ArgumentParser) -> None:
    task.add_argument("--image", metavar="NAME", help="container image of the steps (default: components/image.py)")
    task.add_argument("--claim", metavar="NAME:PATH", help="volume claim that every step mounts at PATH")


def _add_parameters(task: argparse.ArgumentParser) -> None:
    """The pipeline's parameters; one that is not given keeps the pipeline's default."""
    task.add_argument("--dataset", metavar="DIR", help="dataset that several runs share (default: OUTPUT/dataset)")
    task.add_argument("--config", choices=list(CONFIGS), help="training config (default quick)")
    task.add_argument("--epochs", type=int, metavar="N", help="passes over the train split (default: the config's)")
    task.add_argument("--steps", type=int, metavar="N", help="end the training after N steps")
    task.add_argument("--strategy", choices=STRATEGIES, help="distribution strategy (default one-device)")
    task.add_argument("--per-event", type=int, metavar="N", help="generated showers for each test event (default 1)")
    task.add_argument("--grade", metavar="NAME|FILE", help="acceptance criteria: precision (default), gan, or a file")
    task.add_argument("--split-file", action="append", dest="split_files", metavar="SPLIT=PATTERN",
                      help="give whole files to a split by name")  # fmt: skip
    task.add_argument("--geometry", metavar="NAME=VALUE,...", help="in place of the files' attributes")
    task.add_argument("--threshold-gev", type=float, metavar="E", help="cells below E are set to zero (default 0)")
    task.add_argument("--cut-gev", type=float, metavar="E", help="showers of E or less are dropped (default 0.2)")
    task.add_argument("--beam-option", action="append", dest="beam_options", type="--{}".format, metavar="NAME=VALUE",
                      help="an option of Apache Beam")  # fmt: skip
    task.add_argument(
        "--on-bad-event", choices=(STOP, SKIP), help="stop at corrupt events (default), or leave them out"
    )
    task.add_argument(
        "--on-bad-file", choices=(STOP, SKIP), help="stop at unreadable files (default), or leave them out"
    )
    for what in ("events", "files"):
        task.add_argument(f"--max-bad-{what}", type=float, metavar="SHARE",
                          help=f"stop all the same where more of the {what} are corrupt")  # fmt: skip
    task.add_argument("--seed", type=int, metavar="N", help="of weights, order, noise and resampling (default 1)")


def _platform(options: argparse.Namespace) -> Platform:
    from pipelines.cluster import Platform  # noqa: PLC0415  loads kfp, a second that bad input need not wait

    return Platform(image=options.image or "", claim=options.claim or "")


def _parameters(options: argparse.Namespace) -> dict[str, Any]:
    names = (
        "input", "output", "dataset", "config", "epochs", "steps", "strategy", "per_event", "grade", "split_files",
        "geometry", "threshold_gev", "cut_gev", "beam_options", "on_bad_event", "on_bad_file", "max_bad_events",
        "max_bad_files", "seed",
    )  # fmt: skip
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def run(options: argparse.Namespace) -> None:
    """Run the pipeline through kfp's local runner, each step a process of this environment."""
    parameters = _parameters(options)
    parameters.setdefault("input", [str(SAMPLE / "*.h5")])
    check(parameters, here=True)
    output = Path(options.output).absolute()
    parameters["output"] = str(output)

    from kfp import local  # noqa: PLC0415  a second that bad input need not wait

    from pipelines.calorimeter import define  # noqa: PLC0415

    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # progress, also into a pipe
    os.environ["PYTHONUNBUFFERED"] = "1"
    with tempfile.NamedTemporaryFile("r", prefix="calopipe-", suffix=".log") as reason:
        os.environ["TERMINATION_LOG"] = reason.name  # where a step leaves the line that says why it failed
        local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(output / "kfp"))
        try:
            define()(**parameters)
        except RuntimeError as error:  # what kfp raises when a step fails
            if line := reason.read():
                raise InputError(line) from None
            raise SystemExit(f"error: {error}; the step's own messages are above") from None
    verdict = json.loads((output / "verdict.json").read_text())["verdict"]
    print(f"verdict: {verdict}")
    print(f"report:  {output / 'report.html'}")


def check(parameters: dict[str, Any], *, here: bool) -> None:
    """Find what can be found before any step starts: options and, if the run is `here`, input and output."""
    from preprocessing.inputs import discover  # noqa: PLC0415
    from preprocessing.splits import SPLITS, SplitRule  # noqa: PLC0415
    from training.configs import named_config  # noqa: PLC0415
    from validation.criteria import load_grade  # noqa: PLC0415

    rule = SplitRule.parse(parameters.get("split_files", []))
    Settings(parameters.get("threshold_gev", 0.0), parameters.get("cut_gev", CUT_GEV), split_rule=rule)
    given = {name: parameters.get(name) for name in ("epochs", "steps", "strategy", "seed")}
    config = named_config(parameters.get("config", "quick"), **given)
    names = ("bad_event", "bad_file", "max_bad_events", "max_bad_files")
    stated = {name: parameters[key] for name in names for key in (f"on_{name}", name) if key in parameters}
    tolerance = Tolerance(**stated)
    storage.on_disk(parameters["output"], "--output")
    if parameters.get("per_event", 1) < 1:
        raise InputError(f"--per-event is {parameters['per_event']}, expected at least 1")
    if not here:
        return
    load_grade(parameters.get("grade", "precision"))
    files = discover(parameters["input"], parameters.get("geometry", ""), tolerance=tolerance).files
    config.check_shape(files[0].geometry)
    assigned = [rule.assign(file.path.name, file.sha256, range(file.events)) for file in files]
    events = dict(zip(SPLITS, np.bincount(np.concatenate(assigned), minlength=len(SPLITS)), strict=True))
    for split, least in (("train", config.batch), ("test", 1)):
        if events[split] < least:
            raise InputError(
                f"{files[0].path}: the {split} split of the input holds {events[split]} showers, at least {least} are "
                "needed; give more files, or another --split-file"
            )
    storage.require_writable(Path(parameters["output"]))


def write_package(path: Path, platform: Platform) -> None:
    """Compile the pipeline for `platform` to `path`."""
    if path.suffix not in {".yaml", ".yml"}:
        raise InputError(f"{path}: expected a name that ends in .yaml")

    from kfp import compiler  # noqa: PLC0415

    from pipelines.calorimeter import define  # noqa: PLC0415

    with storage.replacing(path) as temporary:
        whole = temporary.with_name(temporary.name + ".yaml")  # kfp insists on the ending of the name
        compiler.Compiler().compile(define(platform), str(whole))
        whole.replace(temporary)


@contextmanager
def _package(options: argparse.Namespace) -> Iterator[Path]:
    """The compiled pipeline, in a folder that goes with the block."""
    with tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch) / "calorimeter.yaml"
        write_package(package, _platform(options))
        yield package


def submit(options: argparse.Namespace) -> None:
    """Start one run, and print its id and where to see it; follow it if asked."""
    there, parameters = connection(options), _parameters(options)
    check(parameters, here=False)

    from pipelines import runs  # noqa: PLC0415
    from pipelines.client import connected  # noqa: PLC0415

    with _package(options) as package, connected(there) as client:
        run = runs.submit(client, there, runs.Job(package, parameters), options.name)
        print(f"run: {run}\nsee: {runs.address(there, run)}", flush=True)
        if options.wait:
            runs.follow(client, there, run, options.timeout)


def status(options: argparse.Namespace) -> None:
    """Print the newest runs, or one with its steps; follow that if asked."""
    there = connection(options)
    if options.wait and not options.run:
        raise InputError("status --wait: which run? give its id")

    from pipelines import runs  # noqa: PLC0415
    from pipelines.client import connected  # noqa: PLC0415

    with connected(there) as client:
        if options.wait:
            runs.follow(client, there, options.run, options.timeout)
            return
        lines = runs.show(client, there, options.run) if options.run else runs.newest(client, options.experiment)
        print("\n".join(lines))


def logs(options: argparse.Namespace) -> None:
    """Print what the steps of a run have said; with --follow, what they say until it ends."""
    there = connection(options)

    from pipelines import pods, runs  # noqa: PLC0415
    from pipelines.client import connected  # noqa: PLC0415

    with connected(there) as client:
        found = runs.get(client, options.run)
        names = [step.name for step in runs.steps(client, found)]
        if options.step and options.step not in names:
            raise InputError(f"--step {options.step}: the run has no such step, only {', '.join(names)}")

        def going() -> bool:
            return runs.get(client, options.run).state not in runs.ENDS

        namespace = client.get_user_namespace() or None
        pods.print_logs(options.run, options.step, namespace, going=going if options.follow else None)


def upload(options: argparse.Namespace) -> None:
    """Put the pipeline, or a new version of it, into the UI's list."""
    there = connection(options)

    from pipelines import uploads  # noqa: PLC0415
    from pipelines.client import connected  # noqa: PLC0415

    with _package(options) as package, connected(there) as client:
        pipeline, version = uploads.upload(client, package, options.name, options.version)
    print(f"pipeline: {pipeline}\nversion:  {version}")
    print(f"see: {there.ui}/#/pipelines/details/{pipeline}/version/{version}")


def schedule(options: argparse.Namespace) -> None:
    """Start runs regularly; list, pause, resume, replace and delete what does."""
    there = connection(options)
    if options.action in {"create", "replace"}:
        _set_schedule(options, there)
        return

    from pipelines import schedules  # noqa: PLC0415
    from pipelines.client import connected  # noqa: PLC0415

    with connected(there) as client:
        if options.action == "list":
            print("\n".join(schedules.rows(client)))
            return
        act, done = {
            "pause": (schedules.pause, "paused"),
            "resume": (schedules.resume, "resumed"),
            "delete": (schedules.delete, "deleted"),
        }[options.action]
        print(f"{done}: {act(client, options.schedule)}")


def _set_schedule(options: argparse.Namespace, there: Connection) -> None:
    trigger, parameters = Trigger(cron=options.cron, interval=options.interval), _parameters(options)
    check(parameters, here=False)

    from pipelines import runs, schedules  # noqa: PLC0415
    from pipelines.client import connected  # noqa: PLC0415

    with _package(options) as package, connected(there) as client:
        job = runs.Job(package, parameters)
        if options.action == "create":
            made = schedules.create(client, there, job, options.name, trigger)
        else:
            made = schedules.replace(client, there, job, options.schedule, trigger)
    print(f"recurring run: {made}")


def main(arguments: Sequence[str] | None = None) -> None:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["schedule"] and given[1:2] and given[1].startswith("--") and given[1] != "--help":
        given.insert(1, "create")
    options = parser().parse_args(given or ["run"])
    if options.task == "compile":
        write_package(options.output, _platform(options))
        print(f"pipeline: {options.output}")
    else:
        tasks = {"run": run, "submit": submit, "schedule": schedule, "status": status, "logs": logs, "upload": upload}
        tasks[options.task](options)


if __name__ == "__main__":
    run_command(main)
