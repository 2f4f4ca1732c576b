"""Runs on a cluster: start one, follow it, show how it stands."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from kfp_server_api import ApiException

from calopipe.errors import InputError
from pipelines.remote import pods
from pipelines.remote.client import Client, RefusalError, UnreachableError, once, quietly, told
from pipelines.remote.connection import Connection

POLL_SECONDS = 5.0
PATIENCE_SECONDS = 600.0  # a port-forward is made again, an API server restarts
ENDS = {"SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"}  # kfp's own wait leaves out the last, and waits on for ever
_UNBEGUN = {None, "PENDING", "RUNTIME_STATE_UNSPECIFIED"}  # none at all is of a step that was left out
_TIMED_OUT = 124  # as of timeout(1)


@dataclass(frozen=True)
class Job:
    """What runs: a compiled pipeline, and its parameters."""

    package: Path
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """A step of a run as it stands."""

    name: str
    state: str = "PENDING"
    started: datetime | None = None
    ended: datetime | None = None
    error: str = ""

    def __str__(self) -> str:
        took = f"  {_duration(self.started, self.ended)}" if self.started and self.ended else ""
        return f"{self.name:<12}{self.state.lower()}{took}{'  ' + self.error if self.error else ''}"


def submit(client: Client, connection: Connection, job: Job, name: str) -> str:
    """Start one run of `job`; its id. `name` gets a time and a few digits, by which the run is found again."""
    unique = f"{name} {datetime.now(UTC):%Y-%m-%d %H-%M-%S} {secrets.token_hex(2)}"
    experiment = experiment_named(client, connection.experiment)
    run = once(
        lambda: quietly(
            client.run_pipeline,
            experiment_id=experiment,
            job_name=unique,
            pipeline_package_path=str(job.package),
            params=dict(job.parameters),
            service_account=connection.service_account,
        ),
        lambda: _named(client, experiment, unique),
    )
    return str(run.run_id)


def experiment_named(client: Client, name: str) -> str:
    """The id of the experiment, which is made where there is none."""

    namespace = client.get_user_namespace() or None

    def create() -> Any:
        return quietly(client.create_experiment, name, namespace=namespace)

    def made() -> Any:
        try:
            return client.get_experiment(experiment_name=name, namespace=namespace)
        except ValueError:  # kfp's for none
            return None

    try:
        experiment = once(create, made)
    except ApiException as error:
        if error.status != 409:
            raise
        experiment = create()  # another made it meanwhile; kfp looks before it makes one
    except ValueError:  # kfp's for several
        raise InputError(f"--experiment {name}: several have this name; give another") from None
    return str(experiment.experiment_id)


def address(connection: Connection, run: str) -> str:
    return f"{connection.ui}/#/runs/details/{run}"


def follow(client: Client, connection: Connection, run: str, timeout: float | None) -> None:
    """A line for each step as its state changes, until the run ends: SystemExit 1 unless it succeeded."""
    again = f"submit.py status {run} --wait"
    try:
        last = _watch(client, connection, run, timeout)
    except KeyboardInterrupt:
        print(f"\nstopped following; the run goes on: {again}", file=sys.stderr)
        raise SystemExit(130) from None
    except RefusalError as error:
        raise InputError(f"{error}; the run goes on: {again}") from None
    if last is None:
        print(f"run {run} has not ended within {timeout:g} s; it goes on: {again}", file=sys.stderr)
        raise SystemExit(_TIMED_OUT)
    print(f"run {run}: {state_of(last).lower()}")
    if last.state not in {"SUCCEEDED", "SKIPPED"}:
        raise SystemExit(f"error: {_outcome(client, last)}")


def _watch(client: Client, connection: Connection, run: str, timeout: float | None) -> Any:
    """The run once it has ended, its steps printed meanwhile; None after `timeout` seconds."""
    start = answered = time.monotonic()
    shown: dict[str, str] = {}
    while True:
        try:
            with told(connection):
                now = get(client, run)
                current = steps(client, now)
            answered = time.monotonic()
        except UnreachableError as error:
            if time.monotonic() - answered > PATIENCE_SECONDS:
                raise
            print(f"{error}; trying again", file=sys.stderr)
        else:
            for step in current:
                if step.state != shown.get(step.name, "PENDING"):
                    shown[step.name] = step.state
                    print(step, flush=True)
            if now.state in ENDS:
                return now
        if timeout is not None and time.monotonic() - start > timeout:
            return None
        time.sleep(POLL_SECONDS)


def _outcome(client: Client, run: Any) -> str:
    """Why a run did not succeed: the step, and what it said."""
    if state_of(run) == "CANCELED":
        return f"run {run.run_id} was cancelled"
    namespace = client.run_namespace
    broken = next((step for step in steps(client, run) if step.state == "FAILED"), None)
    if broken is None:
        why = (run.error and run.error.message) or pods.reason(run.run_id, None, namespace)
        asking = f"{pods.workflow_command(run.run_id, namespace)} shows why"
        return f"run {run.run_id} failed outside its steps: {' '.join(why.split()) or asking}"
    why = broken.error or pods.reason(run.run_id, broken.name, namespace)
    return f"step {broken.name} failed: {why or f'see submit.py logs {run.run_id} --step {broken.name}'}"


def state_of(run: Any) -> str:
    """The state of a run: CANCELED where it was terminated, which the server calls FAILED but for its history."""
    terminated = any(status.state == "CANCELING" for status in run.state_history or [])
    return "CANCELED" if terminated and run.state == "FAILED" else run.state or "PENDING"


def get(client: Client, run: str) -> Any:
    """The run with this id."""
    try:
        return client.get_run(run)
    except ApiException as error:
        if error.status != 404:
            raise
        raise InputError(f"run {run}: there is none with this id; submit.py status lists the newest") from None


def show(client: Client, connection: Connection, run: str) -> Iterator[str]:
    """A run line by line: what it is, its steps, and why it failed if it did."""
    found = get(client, run)
    yield f"{found.display_name}: {state_of(found).lower()}  {address(connection, run)}"
    yield from map(str, steps(client, found))
    if found.state == "FAILED":
        yield _outcome(client, found)


def newest(client: Client, experiment: str | None, count: int = 10) -> Iterator[str]:
    """The newest runs, a line each."""
    which = {"experiment_id": _existing(client, experiment)} if experiment else {}
    runs = client.list_runs(page_size=count, sort_by="created_at desc", **which).runs
    for run in runs or []:
        yield f"{run.run_id}  {run.created_at:%Y-%m-%d %H:%M}  {state_of(run).lower():<10}  {run.display_name}"
    if not runs:
        yield "no runs"


def _existing(client: Client, experiment: str) -> str:
    try:
        found = client.get_experiment(experiment_name=experiment, namespace=client.get_user_namespace() or None)
    except ValueError:  # kfp's for none, and for several
        there = client.list_experiments(page_size=100).experiments or []
        names = ", ".join(sorted(one.display_name for one in there)) or "none"
        raise InputError(f"--experiment {experiment}: there is no such experiment; there are: {names}") from None
    return str(found.experiment_id)


def _named(client: Client, experiment: str, name: str) -> Any:
    wanted = {"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]}
    found = client.list_runs(experiment_id=experiment, filter=json.dumps(wanted)).runs
    return found[0] if found else None


def steps(client: Client, run: Any) -> list[Step]:
    """The steps of a run in their order.

    The server lists the nodes of the workflow: beside a step `train` its driver `train-driver`, which comes first, and
    in it an `executor`. Where the workflow has it so, a node goes by the step's title.
    """
    nodes = {node.display_name: node for node in (run.run_details and run.run_details.task_details) or []}
    tasks = _tasks(client, run)
    order = TopologicalSorter({name: task.get("dependentTasks", []) for name, task in tasks.items()}).static_order()
    titles = {name: task.get("taskInfo", {}).get("name", name) for name, task in tasks.items()}
    unbegun = "SKIPPED" if run.state in ENDS else "PENDING"
    return [
        _step(name, nodes.get(name) or nodes.get(titles[name]), nodes.get(f"{name}-driver"), unbegun) for name in order
    ]


def _step(name: str, node: Any, driver: Any, unbegun: str) -> Step:
    """The step of a node, or of its driver until that has done its work; a step that has not begun is `unbegun`."""
    if driver is not None and driver.state not in _UNBEGUN | {"SUCCEEDED"}:
        node = driver
    if node is None or node.state in _UNBEGUN:
        return Step(name, unbegun)
    error = " ".join(node.error.message.split()) if node.error and node.error.message else ""
    return Step(name, node.state, _time(node.start_time), _time(node.end_time), error)


def _time(given: datetime | None) -> datetime | None:
    """A time that the server gives; None for one in year 1, which is its way of giving none."""
    return given if given and given.year > 1 else None


def _tasks(client: Client, run: Any) -> dict[str, Any]:
    """The steps as the pipeline that was compiled has them."""
    specification = run.pipeline_spec
    if specification is None:  # of a version that was uploaded
        version = run.pipeline_version_reference
        specification = client.get_pipeline_version(version.pipeline_id, version.pipeline_version_id).pipeline_spec
    specification = specification.get("pipeline_spec", specification)  # beside it that of the platform, if there is one
    return dict(specification["root"]["dag"]["tasks"])


def _duration(start: datetime, end: datetime) -> str:
    return str(timedelta(seconds=round((end - start).total_seconds())))
