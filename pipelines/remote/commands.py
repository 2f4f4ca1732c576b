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
from pipelines.remote.client import connected
from pipelines.remote.connection import connection


def perform(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    """Carry out the command of `options`; `parameters` are the pipeline's own, of a command that starts runs."""
    if options.task == "submit":
        submit(options, parameters)
    elif options.task == "schedule" and options.action == "create":
        set_schedule(options, parameters)
    else:
        {"status": status, "logs": logs, "schedule": change_schedule}[options.task](options)


@contextmanager
def _package(options: argparse.Namespace) -> Iterator[Path]:
    """The compiled pipeline, in a folder that goes with the block."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / f"{options.pipeline}.yaml"
        package.write(file, platform_of(options), options.pipeline)
        yield file


def submit(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    """Start one run, and print its id and where to see it; follow it if asked."""
    with _package(options) as file, connected(connection(options)) as server:
        run = runs.submit(server, runs.Job(file, parameters), options.name)
        print(f"run: {run}\nsee: {runs.address(server, run)}", flush=True)
        if options.wait:
            runs.follow(server, run)


def status(options: argparse.Namespace) -> None:
    """Print the newest runs, or one with its steps; follow that if asked."""
    if options.wait and not options.run:
        raise InputError("status --wait: which run? give its id")
    with connected(connection(options)) as server:
        if options.wait:
            runs.follow(server, options.run)
        else:
            print("\n".join(runs.show(server, options.run) if options.run else runs.newest(server)))


def logs(options: argparse.Namespace) -> None:
    """Print the logs of a run's steps; with --follow, until it ends."""
    with connected(connection(options)) as server:
        names = [step.name for step in runs.steps(server, runs.get(server, options.run))]
        if options.step and options.step not in names:
            raise InputError(f"--step {options.step}: the run has no such step, only {', '.join(names)}")

        def going() -> bool:
            return runs.get(server, options.run).state not in runs.ENDS

        pod_logs.print_logs(options.run, options.step, server.run_namespace, going=going if options.follow else None)


def set_schedule(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    """Start runs regularly."""
    trigger = schedules.trigger(options.cron, options.interval)
    with _package(options) as file, connected(connection(options)) as server:
        made = schedules.create(server, runs.Job(file, parameters), options.name, trigger)
    print(f"recurring run: {made}")


def change_schedule(options: argparse.Namespace) -> None:
    """List, pause, resume and delete schedules."""
    with connected(connection(options)) as server:
        if options.action == "list":
            print("\n".join(schedules.rows(server)))
        else:
            print(f"{options.action}d: {schedules.change(server, options.schedule, options.action)}")
