"""Runs that start regularly: recurring runs, as Kubeflow Pipelines calls them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from calopipe.errors import InputError
from pipelines.remote.client import RefusalError, Server, UnreachableError, named
from pipelines.remote.runs import Job

_MOST = 200  # on a page of the server


def trigger(cron: str) -> dict[str, Any]:
    """When runs start, as a request states it: by six fields, seconds first. InputError.

    The server refuses fields that it cannot read. But it takes five, of which the first is the second and not the
    minute as in cron(8): 3:00 on Mondays would become every hour of January.
    """
    if (found := len(cron.split())) != 6:
        raise InputError(
            f"--cron {cron!r}: {found} fields, expected six fields, seconds first; '0 0 3 * * 1' is Mondays at 3:00:00"
        )
    return {"cron_schedule": {"cron": cron}}


def create(server: Server, job: Job, name: str, trigger: Mapping[str, Any]) -> str:
    """Start runs regularly, one at a time, without catching up on missed ones; the schedule's id.

    The name must be free, so that it names one schedule.
    """
    if _listed(server, filter=named(name)):
        raise InputError(f"--name {name}: there is such a schedule; schedule delete {name}, or give another --name")
    wanted = job.body(server) | {
        "display_name": name,
        "trigger": trigger,
        "mode": "ENABLE",
        "max_concurrency": 1,
        "no_catchup": True,
    }
    try:
        made = server.schedules.recurring_run_service_create_recurring_run(wanted)
    except UnreachableError as error:
        look = f"kubectl get scheduledworkflows --namespace {server.run_namespace}"
        raise RefusalError(
            f"{error}. Kubernetes may have the schedule all the same, and start its runs, though schedule list does "
            f"not show it; look, and delete it there: {look}"
        ) from None
    return str(made.recurring_run_id)


def change(server: Server, which: str, how: str) -> str:
    """Pause, resume or delete the schedule of this name or id, as `how` says; its id.

    Runs that it started go on. A resumed one starts runs from the next time on.
    """
    identities = [one.recurring_run_id for one in _listed(server, filter=named(which))] or [which]
    if len(identities) > 1:
        raise InputError(f"schedule {which}: {len(identities)} have this name; give the id of one: {identities}")
    request = {
        "pause": server.schedules.recurring_run_service_disable_recurring_run,
        "resume": server.schedules.recurring_run_service_enable_recurring_run,
        "delete": server.schedules.recurring_run_service_delete_recurring_run,
    }[how]
    request(identities[0])
    return str(identities[0])


def rows(server: Server) -> Iterator[str]:
    """The schedules of the namespace, a line each; 200 at most, the newest first."""
    found = _listed(server, sort_by="created_at desc")
    for one in found:
        state = {"ENABLED": "on", "DISABLED": "paused"}.get(one.status, str(one.status).lower())
        yield f"{one.recurring_run_id}  {state:<6}  {_when(one):<24}  {one.display_name}"
    if not found:
        yield "no schedules"


def _listed(server: Server, **which: str) -> list[Any]:
    page = server.schedules.recurring_run_service_list_recurring_runs(page_size=_MOST, **which, **server.scope)
    return page.recurring_runs or []


def _when(one: Any) -> str:
    """Six fields, or seconds: others make schedules that start a run every so often."""
    cron, period = one.trigger.cron_schedule, one.trigger.periodic_schedule
    return str(cron.cron if cron else f"every {period.interval_second} s")
