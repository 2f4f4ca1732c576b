"""Runs that start regularly: recurring runs, as Kubeflow Pipelines calls them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kfp_server_api import ApiException

from calopipe.errors import InputError
from pipelines.remote.client import FailureError, RefusalError, Server, all_pages, refusals
from pipelines.remote.cron import Trigger
from pipelines.remote.runs import Job


def create(server: Server, job: Job, name: str, trigger: Trigger) -> str:
    """Start runs regularly, one at a time, without catching up on missed ones; the schedule's id.

    The name must be free, so that it names one schedule, and a creation whose answer was lost is found again.
    """
    if any(one.display_name == name for one in _all(server)):
        raise InputError(f"--name {name}: there is such a schedule; schedule replace {name}, or give another --name")
    return _create(server, job, name, trigger, enabled=True)


def replace(server: Server, job: Job, which: str, trigger: Trigger) -> str:
    """Put a new schedule of the same name in the place of `which`, paused if that is; the new one's id.

    A recurring run cannot be edited. The new one is created first, so a failure between leaves at least one.
    """
    before = find(server, which)
    new = _create(server, job, before.display_name, trigger, enabled=before.status != "DISABLED")
    try:
        _delete(server, before.recurring_run_id)
    except Exception:
        print(f"both stand: the new {new}, and the old; delete that: schedule delete {before.recurring_run_id}")
        raise
    return new


def _create(server: Server, job: Job, name: str, trigger: Trigger, *, enabled: bool) -> str:
    known = {one.recurring_run_id for one in _all(server)}
    wanted = job.body(server) | {
        "display_name": name,
        "trigger": trigger.body(),
        "mode": "ENABLE" if enabled else "DISABLE",
        "max_concurrency": 1,
        "no_catchup": True,
    }

    def new() -> Any:
        found = (one for one in _all(server) if one.display_name == name and one.recurring_run_id not in known)
        return next(found, None)

    try:
        with refusals(server.connection):
            made = server.once(lambda: server.schedules.recurring_run_service_create_recurring_run(wanted), new)
    except FailureError as error:
        look = f"kubectl get scheduledworkflows --namespace {server.run_namespace}"
        raise RefusalError(
            f"{error}. Kubernetes may have the schedule all the same, and start its runs, though schedule list does "
            f"not show it; look, and delete it there: {look}"
        ) from None
    _require_account(server, made)
    return str(made.recurring_run_id)


def _require_account(server: Server, made: Any) -> None:
    """Raise InputError, and delete the new schedule, unless it runs as the connection's account, if there is one."""
    account = server.connection.service_account
    if account in {None, made.service_account}:
        return
    try:
        _delete(server, made.recurring_run_id)
    except Exception:
        print(
            f"a schedule that runs as {made.service_account} stands; delete it: schedule delete {made.recurring_run_id}"
        )
        raise
    raise InputError(
        f"--service-account {account}: the server would run the schedule as {made.service_account}, as Kubeflow "
        "Pipelines before 2.17 does; the schedule is deleted again; update Kubeflow Pipelines to 2.17.0, or leave "
        "--service-account out"
    )


def pause(server: Server, which: str) -> str:
    """No more runs until `resume`; one that runs goes on."""
    identity = str(find(server, which).recurring_run_id)
    server.schedules.recurring_run_service_disable_recurring_run(identity)
    return identity


def resume(server: Server, which: str) -> str:
    """Runs again, from the next time on; those missed are not caught up."""
    identity = str(find(server, which).recurring_run_id)
    server.schedules.recurring_run_service_enable_recurring_run(identity)
    return identity


def delete(server: Server, which: str) -> str:
    """End a schedule; the runs that it started stay."""
    identity = str(find(server, which).recurring_run_id)
    _delete(server, identity)
    return identity


def _delete(server: Server, identity: str) -> None:
    try:
        server.schedules.recurring_run_service_delete_recurring_run(identity)
    except ApiException as error:
        if error.status != 404:  # gone: by another, or by a request whose answer was lost
            raise


def rows(server: Server) -> Iterator[str]:
    """Every schedule of the namespace, a line each."""
    found = _all(server)
    for one in found:
        state = {"ENABLED": "on", "DISABLED": "paused"}.get(one.status, str(one.status).lower())
        yield f"{one.recurring_run_id}  {state:<6}  {_when(one):<24}  {one.display_name}"
    if not found:
        yield "no schedules"


def find(server: Server, which: str) -> Any:
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


def _when(one: Any) -> str:
    if one.trigger.cron_schedule is not None:
        return str(one.trigger.cron_schedule.cron)
    return f"every {re.sub('[^0-9]', '', str(one.trigger.periodic_schedule.interval_second))} s"
