"""The commands of `submit.py` that need a server of Kubeflow Pipelines: their options, and a function for each."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calopipe.errors import InputError
from calopipe.storage import Location, location
from pipelines import package, parameters
from pipelines.cluster import platform
from pipelines.remote import connection

# Modules that ask a server or read a run are imported where they are used: --help need not wait for them.
if TYPE_CHECKING:
    from pipelines.remote.client import Server
    from pipelines.remote.runs import Job

_NAME_BYTES = 255 - len(" 2026-01-02 03-04-05")


def add_to(tasks: argparse._SubParsersAction[Any], pipeline: str) -> None:
    """Add the commands to `tasks`; `pipeline` decides the options of those that start runs."""
    submitting = tasks.add_parser("submit", help="start one run on a cluster")
    submitting.add_argument(
        "--name", default=pipeline, metavar="NAME", help="of the run, to which the time is added (default %(default)s)"
    )
    _add_run(submitting, pipeline)

    scheduling = tasks.add_parser("schedule", help="start runs on a cluster regularly, one at a time")
    scheduling.add_argument("--name", default=pipeline, metavar="NAME", help="of the schedule (default %(default)s)")
    _add_run(scheduling, pipeline)
    scheduling.add_argument(
        "--cron",
        required=True,
        metavar="EXPR",
        help="six fields, seconds first: '0 0 3 * * 1' is Mondays at 3:00:00, "
        "in the server's time zone: UTC, unless CRON_SCHEDULE_TIMEZONE says otherwise in its deployment "
        "ml-pipeline-scheduledworkflow",
    )

    looking = tasks.add_parser("status", help="the newest runs on a cluster, or one with its steps; a run here")
    looking.add_argument(
        "run", nargs="?", metavar="RUN", help="id of a run, or the folder of a run here (default: the ten newest)"
    )
    connection.add_options(looking)
    for task in (submitting, looking):
        task.add_argument("--wait", action="store_true", help="follow the run; exits 1 if it fails or is cancelled")

    reading = tasks.add_parser("logs", help="what the steps of a run have printed; asks Kubernetes, as kubectl does")
    reading.add_argument("run", metavar="RUN", help="id of a run")
    reading.add_argument("--step", metavar="STEP", help="of this step alone")
    reading.add_argument("--follow", action="store_true", help="go on until the run ends")
    connection.add_options(reading)

    for task, perform in ((submitting, submit), (scheduling, schedule), (looking, status), (reading, logs)):
        task.set_defaults(perform=perform)


def _add_run(task: argparse.ArgumentParser, pipeline: str) -> None:
    """Add the options of a run on a cluster, whether it starts now or regularly."""
    task.add_argument("--input", nargs="+", required=True, metavar="GLOB", help="HDF5 files, as the steps see them")
    task.add_argument("--output", required=True, metavar="DIR", help="folder of the run, as the steps see it")
    task.add_argument(
        "--experiment", default="calopipe", metavar="NAME", help="made if it is not there (default %(default)s)"
    )
    task.add_argument(
        "--service-account", default="", metavar="NAME", help="of the pods of the run (default: the cluster's)"
    )
    platform.add_options(task)
    connection.add_options(task)
    parameters.add_choice(task)
    parameters.add_options(task, pipeline, without="strategy")  # the cluster decides it


def _server(options: argparse.Namespace) -> Server:
    from pipelines.remote.client import Server  # noqa: PLC0415

    return Server(connection.connection(options))


def _job(options: argparse.Namespace) -> Job:
    """The checked and compiled job.

    InputError also for a name that is too long for the server. The server would start a run whose name it cannot store,
    and then fail. The time is added to the name of a run.
    """
    from pipelines.checks import check  # noqa: PLC0415

    values, cluster = parameters.given_parameters(options), platform.platform_of(options)
    check(values, options.pipeline, cluster)
    for option, name, most in (("--name", options.name, _NAME_BYTES), ("--experiment", options.experiment, 128)):
        if (size := len(name.encode())) > most:
            raise InputError(
                f"{option} {name[:20]}...: {size} bytes long, the server stores {most}; give a shorter one"
            )
    from pipelines.remote.runs import Job  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / f"{options.pipeline}.yaml"
        package.write(file, cluster, options.pipeline)
        compiled = file.read_text(encoding="utf-8")
    return Job(compiled, values, options.experiment, options.service_account)


def submit(options: argparse.Namespace) -> None:
    """Start one run, and print its id and where to see it; follow it if asked."""
    job = _job(options)
    from pipelines.remote import runs  # noqa: PLC0415

    server = _server(options)
    run = runs.submit(server, job, options.name)
    print(f"run: {run}\nsee: {runs.address(server, run)}", flush=True)
    if options.wait:
        runs.follow(server, run)


def schedule(options: argparse.Namespace) -> None:
    """Start runs regularly."""
    from pipelines.remote import runs  # noqa: PLC0415

    trigger = runs.trigger(options.cron)
    job = _job(options)
    print(f"recurring run: {runs.schedule(_server(options), job, options.name, trigger)}")


def status(options: argparse.Namespace) -> None:
    """Print what a run here has made, or the newest runs on a cluster, or one with its steps; follow it if asked."""
    if options.run:
        place = location(options.run)
        if not isinstance(place, Path) or place.is_dir():
            _show_here(place, wait=options.wait)
            return
        if "/" in options.run or place.exists():
            raise InputError(f"status {options.run}: no folder of a run; check the path, or give the id of a run")
    elif options.wait:
        raise InputError("status --wait: which run? give its id")
    from pipelines.remote import runs  # noqa: PLC0415

    server = _server(options)
    if options.wait:
        runs.follow(server, options.run)
    else:
        print("\n".join(runs.show(server, options.run) if options.run else runs.newest(server)))


def _show_here(output: Location, *, wait: bool) -> None:
    """Print what the run in the folder `output` has made, and whether it goes on."""
    from calopipe.lock import writer  # noqa: PLC0415
    from components import overview  # noqa: PLC0415

    if wait:
        raise InputError(f"status {output} --wait: only runs on a cluster are followed; leave --wait out")
    parts = overview.parts(output)
    process = writer(output)
    print(f"{output}: {f'runs, {process}' if process else 'no run goes on'}")
    print("\n".join(map(str, parts)))
    if (page := output / overview.INDEX_FILE).is_file():
        print(f"open: {page}")


def logs(options: argparse.Namespace) -> None:
    """Print the logs of a run's steps; with --follow, until it ends."""
    from pipelines.remote import logs, runs  # noqa: PLC0415

    server = _server(options)

    def look() -> Any:
        return server.runs.run_service_get_run(options.run)

    names = [step.name for step in runs.steps(server, look())]
    if options.step and options.step not in names:
        raise InputError(f"--step {options.step}: the run has no such step, only {', '.join(names)}")
    going = (lambda: look().state not in runs.ENDS) if options.follow else None
    logs.print_logs(options.run, options.step, server.connection.run_namespace, going=going)
