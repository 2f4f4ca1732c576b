"""Runs that start regularly: recurring runs, as Kubeflow Pipelines calls them."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Mapping
from typing import Any

from calopipe.errors import InputError
from pipelines.remote.client import Server, creation, named
from pipelines.remote.runs import Job

_MOST = 200  # on a page of the server
_LEAP_YEAR = 2024


def trigger(cron: str) -> dict[str, Any]:
    """When runs start, as a request states it: by six fields, seconds first. InputError.

    The server refuses fields that it cannot read. But it takes five, of which the first is the second and not the
    minute as in cron(8): 3:00 on Mondays would become every hour of January. And of a day that never comes it searches
    the calendar for ever.
    """
    if (found := len(cron.split())) != 6:
        raise InputError(
            f"--cron {cron!r}: {found} fields, expected six fields, seconds first; '0 0 3 * * 1' is Mondays at 3:00:00"
        )
    if _never_comes(*cron.lower().split()[3:]):
        raise InputError(f"--cron {cron!r}: no such day comes within five years; name one that its months have")
    return {"cron_schedule": {"cron": cron}}


def _never_comes(days: str, months: str, weekdays: str) -> bool:
    """Whether none of the months has such a day. False of what cannot be read, and where a day of the week suffices."""
    names = {name.lower(): str(number) for number, name in enumerate(calendar.month_abbr) if name}
    of_month, of_year = _numbers(days, 1, 31, {}), _numbers(months, 1, 12, names)
    if not (of_month and of_year) or not {"*", "?"} & {*weekdays}:
        return False
    return all(min(of_month) > calendar.monthrange(_LEAP_YEAR, month)[1] for month in of_year)


def _numbers(field: str, least: int, most: int, names: Mapping[str, str]) -> set[int]:
    """The numbers from `least` to `most` that a field of cron names; empty where it cannot be read."""
    found: set[int] = set()
    for part in re.sub("[a-z]+", lambda name: names.get(name[0], name[0]), field).split(","):
        form = re.fullmatch(r"(?:[*?]|(\d+)(?:-(\d+))?)(?:/([1-9]\d*))?", part)
        if not form:
            return set()
        first, last, step = (int(each) if each else None for each in form.groups())
        if first is None:
            first, last = least, most
        found |= set(range(first, (last or (most if step else first)) + 1, step or 1))
    return found if found <= set(range(least, most + 1)) else set()


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
    with creation(server, "the schedule", "scheduledworkflows"):
        return str(server.schedules.recurring_run_service_create_recurring_run(wanted).recurring_run_id)


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
