"""When a schedule starts its runs.

The server refuses fields that it cannot read. Two errors it does not notice, so they are refused here. It also takes
five fields, of which the first is the second and not the minute as in cron(8): 3:00 on Mondays would become every hour
of January. And its controller, given a date that never comes, searches for ever and starts no schedule of the cluster.
"""

from __future__ import annotations

import argparse
import calendar
import re
from dataclasses import dataclass
from typing import Any

from calopipe.errors import InputError

_FIELDS = 6  # second, minute, hour, day of the month, month, day of the week
_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_LEAP_YEAR = 2000
_EXAMPLE = "'0 0 3 * * 1' is Mondays at 3:00:00"


@dataclass(frozen=True)
class Trigger:
    """Either six fields, seconds first, in the server's time zone; or the seconds between two starts."""

    cron: str | None = None
    interval: int | None = None

    def __post_init__(self) -> None:
        if self.interval is not None and self.interval < 1:
            raise InputError(f"--interval is {self.interval}, expected a number of seconds, at least 1")
        if self.cron is not None:
            _check(self.cron)

    def body(self) -> dict[str, Any]:
        """The trigger as a request states it."""
        if self.cron:
            return {"cron_schedule": {"cron": self.cron}}
        return {"periodic_schedule": {"interval_second": self.interval}}


def add_options(task: argparse.ArgumentParser) -> None:
    """The options that say when."""
    when = task.add_mutually_exclusive_group(required=True)
    when.add_argument(
        "--cron", metavar="EXPR", help=f"six fields, seconds first: {_EXAMPLE}, in the server's time zone: UTC, unless "
        "CRON_SCHEDULE_TIMEZONE says otherwise in its deployment ml-pipeline-scheduledworkflow",
    )  # fmt: skip
    when.add_argument("--interval", type=int, metavar="SECONDS", help="between the starts of two runs")


def _check(expression: str) -> None:
    fields = expression.split()
    if len(fields) != _FIELDS:
        raise InputError(f"--cron {expression!r}: {len(fields)} fields, expected six fields, seconds first; {_EXAMPLE}")
    months = re.sub("[a-z]+", lambda name: str(_MONTHS.get(name[0], name[0])), fields[4].lower())
    dates = [(day, month) for month in _values(months, range(1, 13)) for day in _values(fields[3], range(1, 32))]
    # Where neither the day of the month nor that of the week has * or ?, one of them suffices.
    both_needed = set("*?") & {*fields[3], *fields[5]}
    if both_needed and dates and all(day > calendar.monthrange(_LEAP_YEAR, month)[1] for day, month in dates):
        raise InputError(
            f"--cron {expression!r}: no year has such a day, and the server would look for it for ever and start no "
            "schedule any more; name a day that the months have"
        )


def _values(text: str, allowed: range) -> set[int]:
    """The numbers that a field names; empty if the server will refuse it."""
    found: set[int] = set()
    for part in text.split(","):
        form = re.fullmatch(r"(?:[*?]|(\d+)(?:-(\d+))?)(?:/([1-9]\d*))?", part)
        if not form:
            return set()
        first, last, step = (int(each) if each else None for each in form.groups())
        if first is None:
            first, last = allowed[0], allowed[-1]
        elif last is None:
            last = allowed[-1] if step else first
        found |= set(range(first, last + 1, step or 1))
    return found if found <= set(allowed) else set()
