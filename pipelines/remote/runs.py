"""Runs on a cluster: start a run now or regularly, follow it, show its state."""

from __future__ import annotations

import calendar
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from graphlib import TopologicalSorter
from typing import Any

import yaml

from calopipe.errors import InputError
from pipelines.remote import logs
from pipelines.remote.client import RefusalError, Server, UnreachableError, named

POLL_SECONDS = 5.0
PATIENCE_SECONDS = 600.0  # enough to make a port-forward again, or to restart an API server
ENDS = {"SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"}
_LEAP_YEAR = 2024
_MONTHS = [name.upper() for name in calendar.month_abbr]  # from 1


@dataclass(frozen=True)
class Job:
    """A compiled pipeline as YAML, its parameters, experiment, and service account (empty for the default one)."""

    package: str
    parameters: Mapping[str, Any]
    experiment: str
    account: str

    def body(self, server: Server) -> dict[str, Any]:
        """The common part of requests for a run and for a schedule. The experiment is made if it does not exist."""
        name, services = self.experiment, server.experiments
        experiments = services.experiment_service_list_experiments(filter=named(name), **server.scope).experiments
        made = experiments or [services.experiment_service_create_experiment({"display_name": name} | server.scope)]
        if (wanted := server.connection.namespace) and not made[0].namespace:
            raise InputError(f"--namespace {wanted}: the server has one user, and runs all in its own; leave this out")
        pipeline, platform = yaml.safe_load_all(self.package)
        return {
            "experiment_id": made[0].experiment_id,
            "pipeline_spec": {"pipeline_spec": pipeline, "platform_spec": platform},
            "runtime_config": {"parameters": self.parameters},
        } | ({"service_account": self.account} if self.account else {})


@dataclass(frozen=True)
class Step:
    """A step of a run, its state, and how long it took once it has ended."""

    name: str
    state: str
    took: str = ""

    def __str__(self) -> str:
        return f"{self.name:<11} {self.state.lower()}{self.took}"


def submit(server: Server, job: Job, name: str) -> str:
    """Start one run of `job`, named by `name` and the time. Returns its id."""
    run = {"display_name": f"{name} {datetime.now(UTC):%Y-%m-%d %H-%M-%S}"} | job.body(server)
    return str(server.runs.run_service_create_run(run).run_id)


def trigger(cron: str) -> dict[str, Any]:
    """The time of runs in the form of a request: six fields, seconds first. InputError.

    The server refuses fields that it cannot read. But it also takes five fields, and reads the first as seconds, not as
    minutes as in cron(8): 3:00 on Mondays would become every hour of January. For a day that does not exist, such as 30
    February, it searches the calendar for ever: such a day of one month, on any day of the week, is refused here.
    """
    if (fields := len(cron.split())) != 6:
        raise InputError(
            f"--cron {cron!r}: {fields} fields, expected six fields, seconds first; '0 0 3 * * 1' is Mondays at 3:00:00"
        )
    day, month, weekday = cron.upper().split()[3:]
    month = str(_MONTHS.index(month)) if month in _MONTHS else month
    if day.isdecimal() and month.isdecimal() and weekday in {"*", "?"} and 1 <= int(month) <= 12:
        last = calendar.monthrange(_LEAP_YEAR, int(month))[1]
        if last < int(day) <= 31:
            raise InputError(f"--cron {cron!r}: month {int(month)} has no day {day}; name one that it has")
    return {"cron_schedule": {"cron": cron}}


def schedule(server: Server, job: Job, name: str, trigger: Mapping[str, Any]) -> str:
    """Start runs regularly, one at a time, without making up for missed runs. Returns the schedule's id.

    No other schedule may have this name.
    """
    if server.schedules.recurring_run_service_list_recurring_runs(filter=named(name), **server.scope).recurring_runs:
        raise InputError(f"--name {name}: there is such a schedule; delete it in the UI, or give another --name")
    wanted = job.body(server) | {
        "display_name": name,
        "trigger": trigger,
        "mode": "ENABLE",
        "max_concurrency": 1,
        "no_catchup": True,
    }
    return str(server.schedules.recurring_run_service_create_recurring_run(wanted).recurring_run_id)


def address(server: Server, run: str) -> str:
    return f"{server.connection.ui}/#/runs/details/{run}"


def follow(server: Server, run: str) -> None:
    """Print a line for each step as its state changes, until the run ends: SystemExit 1 unless it succeeded."""
    again = f"submit.py status {run} --wait"
    try:
        last = _watch(server, run)
    except KeyboardInterrupt:
        print(f"\nstopped following; the run goes on: {again}", file=sys.stderr)
        raise SystemExit(130) from None
    except RefusalError as error:
        raise InputError(f"{error}; the run goes on: {again}") from None
    print(f"run {run}: {state_of(last).lower()}")
    if last.state not in {"SUCCEEDED", "SKIPPED"}:
        raise SystemExit(f"error: {_outcome(server, last)}")


def _watch(server: Server, run: str) -> Any:
    """The run when it has ended; its steps are printed meanwhile."""
    answered = time.monotonic()
    shown: dict[str, str] = {}
    while True:
        try:
            now = server.runs.run_service_get_run(run)
            listed = steps(server, now)
            answered = time.monotonic()
        except UnreachableError as error:
            if time.monotonic() - answered > PATIENCE_SECONDS:
                raise
            print(f"{error}; trying again", file=sys.stderr)
        else:
            for step in listed:
                if step.state != shown.get(step.name, "PENDING"):
                    shown[step.name] = step.state
                    print(step, flush=True)
            if now.state in ENDS:
                return now
        time.sleep(POLL_SECONDS)


def _outcome(server: Server, run: Any) -> str:
    """Why a run did not succeed: the step, and its error."""
    if state_of(run) == "CANCELED":
        return f"run {run.run_id} was cancelled"
    namespace = server.connection.run_namespace
    broken = next((step for step in steps(server, run) if step.state == "FAILED"), None)
    if broken is None:
        why = (run.error and run.error.message) or logs.reason(run.run_id, None, namespace)
        asking = f"{logs.workflow_command(run.run_id, namespace)} shows why"
        return f"run {run.run_id} failed outside its steps: {' '.join(why.split()) or asking}"
    why = logs.reason(run.run_id, broken.name, namespace)
    return f"step {broken.name} failed: {why or f'see submit.py logs {run.run_id} --step {broken.name}'}"


def state_of(run: Any) -> str:
    """The state of a run. The server calls a terminated run FAILED; only its history shows that it was CANCELED."""
    terminated = any(status.state == "CANCELING" for status in run.state_history or [])
    return "CANCELED" if terminated and run.state == "FAILED" else run.state or "PENDING"


def show(server: Server, run: str) -> Iterator[str]:
    """A run line by line: its name and state, its steps and, if it failed, the reason."""
    now = server.runs.run_service_get_run(run)
    yield f"{now.display_name}: {state_of(now).lower()}  {address(server, run)}"
    yield from map(str, steps(server, now))
    if now.state == "FAILED":
        yield _outcome(server, now)


def newest(server: Server) -> Iterator[str]:
    """The newest runs, a line each."""
    runs = server.runs.run_service_list_runs(page_size=10, sort_by="created_at desc", **server.scope).runs
    for run in runs or []:
        yield f"{run.run_id}  {run.created_at:%Y-%m-%d %H:%M}  {state_of(run).lower():<10}  {run.display_name}"
    if not runs:
        yield "no runs"


def steps(server: Server, run: Any) -> list[Step]:
    """The steps of a run in their order.

    The server lists the nodes of the workflow: a step `train` and its driver `train-driver`. The driver comes first. If
    it failed, it counts in place of the step. In some workflows a node has the step's title in place of its name.
    """
    nodes = {node.display_name: node for node in (run.run_details and run.run_details.task_details) or []}
    tasks = _tasks(server, run)
    order = TopologicalSorter({name: task.get("dependentTasks", []) for name, task in tasks.items()}).static_order()
    listed = []
    for name in order:
        node = nodes.get(name) or nodes.get(tasks[name].get("taskInfo", {}).get("name"))
        if (driver := nodes.get(f"{name}-driver")) and driver.state == "FAILED":
            node = driver
        if node is None or node.state in {None, "PENDING", "RUNTIME_STATE_UNSPECIFIED"}:
            listed.append(Step(name, "SKIPPED" if run.state in ENDS else "PENDING"))
        else:
            listed.append(Step(name, node.state, _took(node)))
    return listed


def _took(node: Any) -> str:
    """How long a node took; empty if it has no end, which the server states as an end in the year 1."""
    if not node.start_time or not node.end_time or node.end_time.year == 1:
        return ""
    return f"  {timedelta(seconds=round((node.end_time - node.start_time).total_seconds()))}"


def _tasks(server: Server, run: Any) -> dict[str, Any]:
    """The steps of the compiled pipeline."""
    specification = run.pipeline_spec
    if specification is None:  # the run is of an uploaded version of a pipeline
        version = run.pipeline_version_reference
        specification = server.pipelines.pipeline_service_get_pipeline_version(
            version.pipeline_id, version.pipeline_version_id
        ).pipeline_spec
    specification = specification.get("pipeline_spec", specification)  # the platform's part, if any, is beside it
    return dict(specification["root"]["dag"]["tasks"])
