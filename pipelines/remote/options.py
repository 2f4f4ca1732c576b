"""The options of the commands that a server of Kubeflow Pipelines answers."""

from __future__ import annotations

import argparse
from typing import Any

from pipelines import parameters
from pipelines.cluster import platform
from pipelines.remote import connection


def add_to(tasks: argparse._SubParsersAction[Any], pipeline: str) -> None:
    """Add the commands to `tasks`; `pipeline` decides the options of those that start runs."""
    submit = tasks.add_parser("submit", help="start one run on a cluster")
    submit.add_argument("--name", default=pipeline, metavar="NAME",
                        help="of the run, to which the time is added (default %(default)s)")  # fmt: skip
    _add_run(submit, pipeline)

    _add_schedule(
        tasks.add_parser("schedule", help="start runs on a cluster regularly; list, pause, delete them"), pipeline
    )

    status = tasks.add_parser("status", help="the newest runs on a cluster, or one with its steps; a run here")
    status.add_argument(
        "run", nargs="?", metavar="RUN", help="id of a run, or the folder of a run here (default: the ten newest)"
    )
    connection.add_options(status)
    for task in (submit, status):
        task.add_argument("--wait", action="store_true", help="follow the run; exits 1 if it fails or is cancelled")

    logs = tasks.add_parser("logs", help="what the steps of a run have printed; asks Kubernetes, as kubectl does")
    logs.add_argument("run", metavar="RUN", help="id of a run")
    logs.add_argument("--step", metavar="STEP", help="of this step alone")
    logs.add_argument("--follow", action="store_true", help="go on until the run ends")
    connection.add_options(logs)


def _add_schedule(schedule: argparse.ArgumentParser, pipeline: str) -> None:
    actions = schedule.add_subparsers(dest="action", required=True)
    create = actions.add_parser("create", help="start runs regularly, one at a time; may be left out before options")
    create.add_argument("--name", default=pipeline, metavar="NAME", help="of the schedule (default %(default)s)")
    _add_run(create, pipeline)
    create.add_argument(
        "--cron", required=True, metavar="EXPR", help="six fields, seconds first: '0 0 3 * * 1' is Mondays at 3:00:00, "
        "in the server's time zone: UTC, unless CRON_SCHEDULE_TIMEZONE says otherwise in its deployment "
        "ml-pipeline-scheduledworkflow",
    )  # fmt: skip
    connection.add_options(actions.add_parser("list", help="the newest 200 schedules of the namespace"))
    for name, text in (
        ("pause", "start no more runs until resume; one that runs goes on"),
        ("resume", "start runs again, from the next time on"),
        ("delete", "end it; the runs that it started stay"),
    ):
        task = actions.add_parser(name, help=text)
        task.add_argument("schedule", metavar="NAME|ID")
        connection.add_options(task)


def _add_run(task: argparse.ArgumentParser, pipeline: str) -> None:
    """What a run on a cluster takes, whether it starts now or regularly."""
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
    parameters.add_options(task, pipeline)
