"""Runs that start regularly: recurring runs, as Kubeflow Pipelines calls them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kfp_server_api import ApiException

from calopipe.errors import InputError
from pipelines.remote.client import FailureError, RefusalError, Server, all_pages, refusals
from pipelines.remote.runs import Job


def trigger(cron: str | None, interval: int | None) -> dict[str, Any]:
    """When runs start, as a request states it: by six fields, seconds first, or every `interval` seconds. InputError.

    The server refuses fields that it cannot read. But it takes five, of which the first is the second and not the
    minute as in cron(8): 3:00 on Mondays would become every hour of January.
    """
    if interval is not None and interval < 1:
        raise InputError(f"--interval is {interval}, expected a number of seconds, at least 1")
    if cron is None:
        return {"periodic_schedule": {"interval_second": interval}}
    if (found := len(cron.split())) != 6:
        raise InputError(
            f"--cron {cron!r}: {found} fields, expected six fields, seconds first; '0 0 3 * * 1' is Mondays at 3:00:00"
        )
    return {"cron_schedule": {"cron": cron}}


def create(server: Server, job: Job, name: str, trigger: Mapping[str, Any]) -> str:
    """Start runs regularly, one at a time, without catching up on missed ones; the schedule's id.

    The name must be free, so that it names one schedule, and a creation whose answer was lost is not repeated.
    """
    if _named(server, name):
        raise InputError(f"--name {name}: there is such a schedule; schedule delete {name}, or give another --name")
    wanted = job.body(server) | {
        "display_name": name,
        "trigger": trigger,
        "mode": "ENABLE",
        "max_concurrency": 1,
        "no_catchup": True,
    }

    try:
        with refusals(server.connection):
            made = server.schedules.recurring_run_service_create_recurring_run(wanted)
    except FailureError as error:
        look = f"kubectl get scheduledworkflows --namespace {server.run_namespace}"
        raise RefusalError(
            f"{error}. Kubernetes may have the schedule all the same, and start its runs, though schedule list does "
            f"not show it; look, and delete it there: {look}"
        ) from None
    account = server.connection.service_account
    if account not in {None, made.service_account}:
        raise InputError(
            f"--service-account {account}: the server runs the schedule as {made.service_account}, as Kubeflow "
            f"Pipelines before 2.17 does; schedule delete {made.recurring_run_id}; update it to 2.17.0, or "
            "leave --service-account out"
        )
    return str(made.recurring_run_id)


def change(server: Server, which: str, how: str) -> str:
    """Pause, resume or delete the schedule of this name or id, as `how` says; its id.

    Runs that it started go on. A resumed one starts runs from the next time on.
    """
    identity = str(_find(server, which).recurring_run_id)
    request = {
        "pause": server.schedules.recurring_run_service_disable_recurring_run,
        "resume": server.schedules.recurring_run_service_enable_recurring_run,
        "delete": server.schedules.recurring_run_service_delete_recurring_run,
    }[how]
    try:
        request(identity)
    except ApiException as error:
        if error.status != 404 or how != "delete":  # gone: by another, or by a request whose answer was lost
            raise
    return identity


def rows(server: Server) -> Iterator[str]:
    """Every schedule of the namespace, a line each."""
    found = _all(server)
    for one in found:
        state = {"ENABLED": "on", "DISABLED": "paused"}.get(one.status, str(one.status).lower())
        yield f"{one.recurring_run_id}  {state:<6}  {_when(one):<24}  {one.display_name}"
    if not found:
        yield "no schedules"


def _find(server: Server, which: str) -> Any:
    """The schedule of this name or id."""
    found = [one for one in _all(server) if which in {one.recurring_run_id, one.display_name}]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"schedule {which}: there is none of this name or id; schedule list shows them")
    identities = ", ".join(one.recurring_run_id for one in found)
    raise InputError(f"schedule {which}: {len(found)} have this name; give the id, one of {identities}")


def _all(server: Server) -> list[Any]:
    return all_pages(server.schedules.recurring_run_service_list_recurring_runs, "recurring_runs", **server.scope)


def _named(server: Server, name: str) -> list[Any]:
    return [one for one in _all(server) if one.display_name == name]


def _when(one: Any) -> str:
    if one.trigger.cron_schedule is not None:
        return str(one.trigger.cron_schedule.cron)
    return f"every {re.sub('[^0-9]', '', str(one.trigger.periodic_schedule.interval_second))} s"
