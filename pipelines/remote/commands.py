"""What `submit.py` does on a cluster: options, and one function for each command, which loads kfp when it is called."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calopipe.errors import InputError
from pipelines import names, package
from pipelines.remote import connection, cron
from pipelines.remote.cron import Trigger

_Adder = Callable[[argparse.ArgumentParser], None]


def add_to(tasks: argparse._SubParsersAction[Any], add_parameters: _Adder) -> None:
    """Add the commands; `add_parameters` adds the pipeline's own to those that start runs."""
    submit = tasks.add_parser("submit", help="start one run on a cluster")
    _add_run(submit, add_parameters)
    submit.add_argument("--name", default="calorimeter", metavar="NAME",
                        help="of the run, to which a time and four digits are added (default %(default)s)")  # fmt: skip
    _add_waiting(submit)

    _add_schedule(
        tasks.add_parser("schedule", help="start runs on a cluster regularly; list, pause, replace them"),
        add_parameters,
    )

    status = tasks.add_parser("status", help="the newest runs on a cluster, or one with its steps")
    status.add_argument("run", nargs="?", metavar="RUN", help="id of a run (default: the ten newest)")
    status.add_argument("--experiment", metavar="NAME", help="the newest of this one alone")
    _add_waiting(status)
    connection.add_options(status)

    logs = tasks.add_parser("logs", help="what the steps of a run have said; asks Kubernetes, as kubectl does")
    logs.add_argument("run", metavar="RUN", help="id of a run")
    logs.add_argument("--step", metavar="STEP", help="of this step alone")
    logs.add_argument("--follow", action="store_true", help="go on until the run ends")
    connection.add_options(logs)

    upload = tasks.add_parser("upload", help="put the pipeline, or a new version of it, into the UI's list")
    upload.add_argument("--name", default="calorimeter", metavar="NAME", help="of the pipeline (default %(default)s)")
    upload.add_argument("--version", metavar="NAME", help="of a version after the first (default: the time)")
    package.add_options(upload)
    connection.add_options(upload)


def _add_schedule(schedule: argparse.ArgumentParser, add_parameters: _Adder) -> None:
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
        _add_run(task, add_parameters)
        cron.add_options(task)
    connection.add_options(actions.add_parser("list", help="every schedule of the namespace"))
    for name, text in (
        ("pause", "start no more runs, until it is resumed; one that runs goes on"),
        ("resume", "start runs again, from the next time on"),
        ("delete", "end it; the runs that it started stay"),
    ):
        task = actions.add_parser(name, help=text)
        task.add_argument("schedule", metavar="NAME|ID")
        connection.add_options(task)


def _add_run(task: argparse.ArgumentParser, add_parameters: _Adder) -> None:
    """What a run on a cluster takes, whether it starts now or regularly."""
    task.add_argument("--input", nargs="+", required=True, metavar="GLOB", help="HDF5 files, as the steps see them")
    task.add_argument("--output", required=True, metavar="DIR", help="folder of the run, as the steps see it")
    task.add_argument("--experiment", metavar="NAME", help="made if it is not there (default calopipe)")
    task.add_argument("--service-account", metavar="NAME", help="of the pods of the run (default: the cluster's)")
    package.add_options(task)
    connection.add_options(task)
    add_parameters(task)


def _add_waiting(task: argparse.ArgumentParser) -> None:
    task.add_argument("--wait", action="store_true", help="follow the run; exits 1 if it fails or is cancelled")
    task.add_argument("--timeout", type=float, metavar="SECONDS", help="follow no longer; exits 124, the run goes on")


def perform(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    """What `options` ask for; `parameters` are the pipeline's own, of what starts runs."""
    if getattr(options, "timeout", None) is not None and not options.wait:
        raise InputError("--timeout without --wait: nothing is waited for; give --wait too")
    if options.task == "submit":
        submit(options, parameters)
    elif options.task == "schedule":
        schedule(options, parameters)
    else:
        {"status": status, "logs": logs, "upload": upload}[options.task](options)


@contextmanager
def _package(options: argparse.Namespace) -> Iterator[Path]:
    """The compiled pipeline, in a folder that goes with the block."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "calorimeter.yaml"
        package.write(file, package.platform_of(options))
        yield file


def submit(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    """Start one run, and print its id and where to see it; follow it if asked."""
    names.require_name("--name", options.name, names.RUN)
    there = connection.connection(options)

    from pipelines.remote import runs  # noqa: PLC0415
    from pipelines.remote.client import connected  # noqa: PLC0415

    with _package(options) as file, connected(there) as client:
        run = runs.submit(client, there, runs.Job(file, parameters), options.name)
        print(f"run: {run}\nsee: {runs.address(there, run)}", flush=True)
        if options.wait:
            runs.follow(client, there, run, options.timeout)


def status(options: argparse.Namespace) -> None:
    """Print the newest runs, or one with its steps; follow that if asked."""
    there = connection.connection(options)
    if options.wait and not options.run:
        raise InputError("status --wait: which run? give its id")

    from pipelines.remote import runs  # noqa: PLC0415
    from pipelines.remote.client import connected  # noqa: PLC0415

    with connected(there) as client:
        if options.wait:
            runs.follow(client, there, options.run, options.timeout)
            return
        lines = runs.show(client, there, options.run) if options.run else runs.newest(client, options.experiment)
        print("\n".join(lines))


def logs(options: argparse.Namespace) -> None:
    """Print what the steps of a run have said; with --follow, what they say until it ends."""
    there = connection.connection(options)

    from pipelines.remote import pods, runs  # noqa: PLC0415
    from pipelines.remote.client import connected  # noqa: PLC0415

    with connected(there) as client:
        found = runs.get(client, options.run)
        names = [step.name for step in runs.steps(client, found)]
        if options.step and options.step not in names:
            raise InputError(f"--step {options.step}: the run has no such step, only {', '.join(names)}")

        def going() -> bool:
            return runs.get(client, options.run).state not in runs.ENDS

        pods.print_logs(options.run, options.step, client.run_namespace, going=going if options.follow else None)


def upload(options: argparse.Namespace) -> None:
    """Put the pipeline, or a new version of it, into the UI's list."""
    names.require_name("--name", options.name, names.PIPELINE if options.version else names.UNTIL_A_TIME)
    if options.version:
        names.require_name("--version", options.version, names.VERSION)
    there = connection.connection(options)

    from pipelines.remote import uploads  # noqa: PLC0415
    from pipelines.remote.client import connected  # noqa: PLC0415

    with _package(options) as file, connected(there) as client:
        pipeline, version = uploads.upload(client, file, options.name, options.version)
    print(f"pipeline: {pipeline}\nversion:  {version}")
    print(f"see: {there.ui}/#/pipelines/details/{pipeline}/version/{version}")


def schedule(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    """Start runs regularly; list, pause, resume, replace and delete what does."""
    if options.action in {"create", "replace"}:
        _set_schedule(options, parameters)
        return
    there = connection.connection(options)

    from pipelines.remote import schedules  # noqa: PLC0415
    from pipelines.remote.client import connected  # noqa: PLC0415

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


def _set_schedule(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    trigger, there = Trigger(cron=options.cron, interval=options.interval), connection.connection(options)
    if options.action == "create":
        names.require_name("--name", options.name, names.SCHEDULE)

    from pipelines.remote import runs, schedules  # noqa: PLC0415
    from pipelines.remote.client import connected  # noqa: PLC0415

    with _package(options) as file, connected(there) as client:
        job = runs.Job(file, parameters)
        if options.action == "create":
            made = schedules.create(client, there, job, options.name, trigger)
        else:
            made = schedules.replace(client, there, job, options.schedule, trigger)
    print(f"recurring run: {made}")
