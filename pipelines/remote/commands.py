"""What `submit.py` does with a server of Kubeflow Pipelines: one function for each command."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calopipe.errors import InputError
from pipelines import package
from pipelines.cluster.platform import platform_of
from pipelines.remote import logs as pod_logs
from pipelines.remote import runs, schedules, uploads
from pipelines.remote.client import connected
from pipelines.remote.connection import connection
from pipelines.remote.cron import Trigger

# Bytes that the server can store.
_LONGEST_NAME, _LONGEST_EXPERIMENT, _LONGEST_VERSION = 255, 128, 127


def perform(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    """Carry out the command of `options`; `parameters` are the pipeline's own, of a command that starts runs."""
    if getattr(options, "timeout", None) is not None and not options.wait:
        raise InputError("--timeout without --wait: nothing is waited for; give --wait too")
    if options.task == "submit":
        submit(options, parameters)
    elif options.task == "schedule" and options.action == "create":
        set_schedule(options, parameters)
    else:
        {"status": status, "logs": logs, "upload": upload, "schedule": change_schedule}[options.task](options)


def require_storable(name: str, longest: int, option: str = "--name") -> None:
    """Raise InputError unless the server can store the `name` that `option` gives, of `longest` bytes at most.

    The server notices late: it fails (500), and leaves the half of a schedule that starts runs.
    """
    size = len(name.encode())
    shown = name if size <= longest else f"{name[:40]}..."
    if not 1 <= size <= longest:
        raise InputError(f"{option} {shown!r}: {size} bytes long, expected 1 to {longest}; give another name")
    # From the characters that this keeps, the server makes the name of a schedule in Kubernetes.
    if re.sub("[^a-z0-9-]", "", name.lower()).startswith("-"):
        raise InputError(f"{option} {shown!r}: expected a letter (a to z) or digit before the '-'; give another name")


@contextmanager
def _package(options: argparse.Namespace) -> Iterator[Path]:
    """The compiled pipeline, in a folder that goes with the block."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "calorimeter.yaml"
        package.write(file, platform_of(options))
        yield file


def submit(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    """Start one run, and print its id and where to see it; follow it if asked."""
    require_storable(options.name, _LONGEST_NAME - len(" 2026-01-02 03-04-05 0a1b"))  # runs.submit adds that
    there = connection(options)
    require_storable(there.experiment, _LONGEST_EXPERIMENT, "--experiment")
    with _package(options) as file, connected(there) as server:
        run = runs.submit(server, runs.Job(file, parameters), options.name)
        print(f"run: {run}\nsee: {runs.address(server, run)}", flush=True)
        if options.wait:
            runs.follow(server, run, options.timeout)


def status(options: argparse.Namespace) -> None:
    """Print the newest runs, or one with its steps; follow that if asked."""
    there = connection(options)
    if options.wait and not options.run:
        raise InputError("status --wait: which run? give its id")
    with connected(there) as server:
        if options.wait:
            runs.follow(server, options.run, options.timeout)
        else:
            print("\n".join(runs.show(server, options.run) if options.run else runs.newest(server, options.experiment)))


def logs(options: argparse.Namespace) -> None:
    """Print the logs of a run's steps; with --follow, until it ends."""
    with connected(connection(options)) as server:
        names = [step.name for step in runs.steps(server, runs.get(server, options.run))]
        if options.step and options.step not in names:
            raise InputError(f"--step {options.step}: the run has no such step, only {', '.join(names)}")

        def going() -> bool:
            return runs.get(server, options.run).state not in runs.ENDS

        pod_logs.print_logs(options.run, options.step, server.run_namespace, going=going if options.follow else None)


def upload(options: argparse.Namespace) -> None:
    """Put the pipeline, or a new version of it, into the UI's list."""
    there = connection(options)
    if options.version:
        require_storable(options.version, _LONGEST_VERSION, "--version")
    # the first version has the pipeline's name, and one that is not named has the time beside it
    require_storable(options.name, _LONGEST_VERSION - (0 if options.version else len(" 2026-01-02 03-04-05")))
    with _package(options) as file, connected(there) as server:
        pipeline, version = uploads.upload(server, file, options.name, options.version)
    print(f"pipeline: {pipeline}\nversion:  {version}")
    print(f"see: {there.ui}/#/pipelines/details/{pipeline}/version/{version}")


def set_schedule(options: argparse.Namespace, parameters: Mapping[str, Any]) -> None:
    """Start runs regularly."""
    trigger, there = Trigger(cron=options.cron, interval=options.interval), connection(options)
    require_storable(options.name, _LONGEST_NAME)
    require_storable(there.experiment, _LONGEST_EXPERIMENT, "--experiment")
    with _package(options) as file, connected(there) as server:
        made = schedules.create(server, runs.Job(file, parameters), options.name, trigger)
    print(f"recurring run: {made}")


def change_schedule(options: argparse.Namespace) -> None:
    """List, pause, resume and delete schedules."""
    with connected(connection(options)) as server:
        if options.action == "list":
            print("\n".join(schedules.rows(server)))
        else:
            print(f"{options.action}d: {schedules.change(server, options.schedule, options.action)}")
