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
    submit.add_argument(
        "--name", default=pipeline, metavar="NAME", help="of the run, to which the time is added (default %(default)s)"
    )
    _add_run(submit, pipeline)

    schedule = tasks.add_parser("schedule", help="start runs on a cluster regularly, one at a time")
    schedule.add_argument("--name", default=pipeline, metavar="NAME", help="of the schedule (default %(default)s)")
    _add_run(schedule, pipeline)
    schedule.add_argument(
        "--cron",
        required=True,
        metavar="EXPR",
        help="six fields, seconds first: '0 0 3 * * 1' is Mondays at 3:00:00, "
        "in the server's time zone: UTC, unless CRON_SCHEDULE_TIMEZONE says otherwise in its deployment "
        "ml-pipeline-scheduledworkflow",
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
