"""What `submit.py` does with a server of Kubeflow Pipelines: one function for each command."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calopipe.errors import InputError
from pipelines import package
from pipelines.cluster.platform import platform_of
from pipelines.remote import logs as pod_logs
from pipelines.remote import runs, schedules
from pipelines.remote.client import Server
from pipelines.remote.connection import connection

_NAME_BYTES = 255 - len(" 2026-01-02 03-04-05")


def perform(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    """Carry out the command of `options`; `parameters` are the pipeline's own, of a command that starts runs."""
    if options.task == "submit":
        submit(options, parameters)
    elif options.task == "schedule":
        schedule(options, parameters)
    else:
        server = Server(connection(options))
        {"status": status, "logs": logs}[options.task](server, options)


@contextmanager
def _job(options: argparse.Namespace, parameters: Mapping[str, Any]) -> Iterator[runs.Job]:
    """What runs, compiled in a folder that goes with the block. InputError: a name is longer than the server stores.

    Of a run it adds the time to the name. It starts one whose name it cannot store, and then fails.
    """
    for option, name, most in (("--name", options.name, _NAME_BYTES), ("--experiment", options.experiment, 128)):
        if (size := len(name.encode())) > most:
            raise InputError(
                f"{option} {name[:20]}...: {size} bytes long, the server stores {most}; give a shorter one"
            )
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / f"{options.pipeline}.yaml"
        package.write(file, platform_of(options), options.pipeline)
        yield runs.Job(file, parameters, options.experiment, options.service_account)


def submit(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    """Start one run, and print its id and where to see it; follow it if asked."""
    with _job(options, parameters) as job:
        server = Server(connection(options))
        run = runs.submit(server, job, options.name)
    print(f"run: {run}\nsee: {runs.address(server, run)}", flush=True)
    if options.wait:
        runs.follow(server, run)


def schedule(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    """Start runs regularly."""
    trigger = schedules.trigger(options.cron)
    with _job(options, parameters) as job:
        print(f"recurring run: {schedules.create(Server(connection(options)), job, options.name, trigger)}")


def status(server: Server, options: argparse.Namespace) -> None:
    """Print the newest runs, or one with its steps; follow that if asked."""
    if options.wait and not options.run:
        raise InputError("status --wait: which run? give its id")
    if options.wait:
        runs.follow(server, options.run)
    else:
        print("\n".join(runs.show(server, options.run) if options.run else runs.newest(server)))


def logs(server: Server, options: argparse.Namespace) -> None:
    """Print the logs of a run's steps; with --follow, until it ends."""

    def look() -> Any:
        return server.runs.run_service_get_run(options.run)

    names = [step.name for step in runs.steps(server, look())]
    if options.step and options.step not in names:
        raise InputError(f"--step {options.step}: the run has no such step, only {', '.join(names)}")
    going = (lambda: look().state not in runs.ENDS) if options.follow else None
    pod_logs.print_logs(options.run, options.step, server.run_namespace, going=going)
