"""Runs that start regularly. Kubeflow Pipelines calls them recurring runs."""

from __future__ import annotations

import calendar
from collections.abc import Mapping
from typing import Any

from calopipe.errors import InputError
from pipelines.remote.client import Server, named
from pipelines.remote.runs import Job

_LEAP_YEAR = 2024
_MONTHS = [name.upper() for name in calendar.month_abbr]  # from 1


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


def create(server: Server, job: Job, name: str, trigger: Mapping[str, Any]) -> str:
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
