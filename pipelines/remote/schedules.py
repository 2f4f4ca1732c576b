"""Runs that start regularly: recurring runs, as Kubeflow Pipelines calls them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kfp_server_api import ApiException

from calopipe.errors import InputError
from pipelines.remote.client import Client, FailureError, RefusalError, once, told
from pipelines.remote.connection import Connection
from pipelines.remote.cron import Trigger
from pipelines.remote.runs import Job, experiment_named


def create(client: Client, connection: Connection, job: Job, name: str, trigger: Trigger) -> str:
    """Start runs regularly, one at a time, without catching up on missed ones; the schedule's id.

    The name must be free, so that it stands for one schedule, and a creation whose answer was lost is found again.
    """
    if _named(client, name):
        raise InputError(f"--name {name}: there is such a schedule; schedule replace {name}, or give another --name")
    return _create(client, connection, job, name, trigger, known=set(), enabled=True)


def replace(client: Client, connection: Connection, job: Job, which: str, trigger: Trigger) -> str:
    """Put a new schedule of the same name in the place of `which`, paused if that is; the new one's id.

    A recurring run cannot be edited. The new one is created first, so whatever fails between leaves at least one.
    """
    before = find(client, which)
    known = {each.recurring_run_id for each in _all(client)}
    enabled = before.status != "DISABLED"
    name = before.display_name
    new = _create(client, connection, job, name, trigger, known=known, enabled=enabled)
    try:
        _delete(client, before.recurring_run_id)
    except Exception:
        print(f"both stand: the new {new}, and the old; delete that: schedule delete {before.recurring_run_id}")
        raise
    return new


def _create(
    client: Client, connection: Connection, job: Job, name: str, trigger: Trigger, *, known: set[str], enabled: bool
) -> str:
    experiment = experiment_named(client, connection.experiment)

    def make() -> Any:
        return client.create_recurring_run(
            experiment_id=experiment,
            job_name=name,
            pipeline_package_path=str(job.package),
            params=dict(job.parameters),
            cron_expression=trigger.cron,
            interval_second=trigger.interval,
            max_concurrency=1,
            no_catchup=True,
            enabled=enabled,
            service_account=connection.service_account,
        )

    try:
        with told(connection):
            made = once(
                make, lambda: next((one for one in _named(client, name) if one.recurring_run_id not in known), None)
            )
    except FailureError as error:
        look = f"kubectl get scheduledworkflows --namespace {client.run_namespace}"
        raise RefusalError(
            f"{error}. Kubernetes may have the schedule all the same, and start its runs, though schedule list does "
            f"not show it; look, and delete it there: {look}"
        ) from None
    _require_account(client, made, connection.service_account)
    return str(made.recurring_run_id)


def _require_account(client: Client, made: Any, account: str | None) -> None:
    """Raise InputError unless a new schedule runs as `account`, if there is one; the schedule is deleted then."""
    if account in {None, made.service_account}:
        return
    try:
        _delete(client, made.recurring_run_id)
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


def pause(client: Client, which: str) -> str:
    """No more runs until `resume`; one that runs goes on."""
    return _switch(client, which, client.disable_recurring_run, "DISABLED")


def resume(client: Client, which: str) -> str:
    """Runs again, from the next time on: those missed are not caught up."""
    return _switch(client, which, client.enable_recurring_run, "ENABLED")


def _switch(client: Client, which: str, switch: Any, wanted: str) -> str:
    identity = str(find(client, which).recurring_run_id)

    def already() -> Any:
        now = client.get_recurring_run(identity)
        return now if now.status == wanted else None

    once(lambda: switch(identity), already)
    return identity


def delete(client: Client, which: str) -> str:
    """End a schedule; the runs that it started stay."""
    identity = str(find(client, which).recurring_run_id)
    _delete(client, identity)
    return identity


def _delete(client: Client, identity: str) -> None:
    try:
        client.delete_recurring_run(identity)
    except ApiException as error:
        if error.status != 404:  # gone: by another, or by a request whose answer was lost
            raise


def rows(client: Client) -> Iterator[str]:
    """Every schedule of the namespace, a line each."""
    found = _all(client)
    for one in found:
        state = {"ENABLED": "on", "DISABLED": "paused"}.get(one.status, str(one.status).lower())
        yield f"{one.recurring_run_id}  {state:<6}  {_when(one):<24}  {one.display_name}"
    if not found:
        yield "no schedules"


def find(client: Client, which: str) -> Any:
    """The schedule of this name or id."""
    found = [one for one in _all(client) if which in {one.recurring_run_id, one.display_name}]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"schedule {which}: there is none of this name or id; schedule list shows them")
    identities = ", ".join(one.recurring_run_id for one in found)
    raise InputError(f"schedule {which}: {len(found)} have this name; give the id, one of {identities}")


def _named(client: Client, name: str) -> list[Any]:
    return [one for one in _all(client) if one.display_name == name]


def _all(client: Client) -> list[Any]:
    found: list[Any] = []
    token = ""
    while True:
        page = client.list_recurring_runs(
            page_token=token, page_size=100, sort_by="created_at desc", namespace=client.get_user_namespace() or None
        )
        found += page.recurring_runs or []
        token = page.next_page_token or ""
        if not token:
            return found


def _when(one: Any) -> str:
    if one.trigger.cron_schedule is not None:
        return str(one.trigger.cron_schedule.cron)
    return f"every {re.sub('[^0-9]', '', str(one.trigger.periodic_schedule.interval_second))} s"
