"""Runs that start regularly: recurring runs, as Kubeflow Pipelines calls them."""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from typing import Any

from calopipe.errors import InputError
from pipelines.remote.client import Server, named
from pipelines.remote.runs import Job

_LEAP_YEAR = 2024


def trigger(cron: str) -> dict[str, Any]:
    """When runs start, as a request states it: by six fields, seconds first. InputError.

    The server refuses fields that it cannot read. But it takes five, of which the first is the second and not the
    minute as in cron(8): 3:00 on Mondays would become every hour of January. And of a day that never comes it searches
    the calendar for ever.
    """
    if (fields := len(cron.split())) != 6:
        raise InputError(
            f"--cron {cron!r}: {fields} fields, expected six fields, seconds first; '0 0 3 * * 1' is Mondays at 3:00:00"
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
    numbers: set[int] = set()
    for part in re.sub("[a-z]+", lambda name: names.get(name[0], name[0]), field).split(","):
        form = re.fullmatch(r"(?:[*?]|(\d+)(?:-(\d+))?)(?:/([1-9]\d*))?", part)
        if not form:
            return set()
        first, last, step = (int(group) if group else None for group in form.groups())
        if first is None:
            first, last = least, most
        numbers |= set(range(first, (last or (most if step else first)) + 1, step or 1))
    return numbers if numbers <= set(range(least, most + 1)) else set()


def create(server: Server, job: Job, name: str, trigger: Mapping[str, Any]) -> str:
    """Start runs regularly, one at a time, without catching up on missed ones; the schedule's id.

    The name must be free, so that it names one schedule.
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
