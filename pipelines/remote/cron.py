"""When a schedule starts its runs.

Checked here, because the server takes five fields too, which it does not read as cron(8) does: their first is the
second, so that 3:00 on Mondays would become every hour of January. And because its controller, given a date that never
comes, looks for it for ever, and starts no other schedule of the cluster any more.
"""

from __future__ import annotations

import argparse
import calendar
import re
from collections.abc import Set
from dataclasses import dataclass
from itertools import chain

from calopipe.errors import InputError

_MONTHS = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {calendar.day_abbr[number - 1].lower(): number for number in range(7)}  # from Sunday, which here is 0
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("second", 0, 59, {}),
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 6, _DAYS),
)
_YEARS_AHEAD = 5  # so far the server looks for the next date
_YEARS_UNTIL_THE_SAME = 28  # after which a date falls on the same day of the week, until 2100
_EXAMPLE = "'0 0 3 * * 1' is Mondays at 3:00:00"


@dataclass(frozen=True)
class Trigger:
    """Either six fields, seconds first, in the server's time zone; or so many seconds between two starts."""

    cron: str | None = None
    interval: int | None = None

    def __post_init__(self) -> None:
        if self.interval is not None and self.interval < 1:
            raise InputError(f"--interval is {self.interval}, expected a number of seconds, at least 1")
        if self.cron is not None:
            _check(self.cron)


def add_options(task: argparse.ArgumentParser) -> None:
    """The options that say when."""
    when = task.add_mutually_exclusive_group(required=True)
    when.add_argument(
        "--cron", metavar="EXPR", help=f"six fields, seconds first: {_EXAMPLE}, in the server's time zone: UTC, unless "
        "CRON_SCHEDULE_TIMEZONE says otherwise in its deployment ml-pipeline-scheduledworkflow",
    )  # fmt: skip
    when.add_argument("--interval", type=int, metavar="SECONDS", help="between the starts of two runs")


def _check(expression: str) -> None:
    given = expression.split()
    if len(given) != len(_FIELDS):
        raise InputError(f"--cron {expression!r}: {len(given)} fields, expected six fields, seconds first; {_EXAMPLE}")
    fields = []
    for text, (name, low, high, names) in zip(given, _FIELDS, strict=True):
        try:
            fields.append(set(chain.from_iterable(_numbers(part, low, high, names) for part in text.split(","))))
        except ValueError as problem:
            raise InputError(f"--cron {expression!r}: {name} {text!r}: {problem}") from None
    days, months, weekdays = fields[3:]
    # Where neither is * or ?, the server takes a day that one of the two names.
    if set("*?") & {*given[3], *given[5]} and not _comes(days, months, weekdays):
        raise InputError(
            f"--cron {expression!r}: there are {_YEARS_AHEAD} years without such a day, and the server, which looks no "
            "further, would start no schedule any more; name a day that the months have"
        )


def _numbers(part: str, low: int, high: int, names: dict[str, int]) -> range:
    """What one of a field's parts names, which is * or ?, N, N-M, any of them with /STEP; ValueError for any other."""
    found = re.fullmatch(r"(?:[*?]|(\w+)(?:-(\w+))?)(?:/(\d+))?", part)
    if not found:
        raise ValueError("expected *, N, N-M, or one of them and /STEP, separated by commas")
    first, last, step = found.groups()
    start = _value(first, names) if first else low
    end = _value(last, names) if last else start if first and not step else high
    if start is None or end is None or not (low <= start <= high and low <= end <= high):
        also = f", or {' '.join(names).upper()}" if names else ""
        raise ValueError(f"expected {low} to {high}{also}")
    if start > end:
        raise ValueError("its range ends before it begins")
    if step and int(step) == 0:
        raise ValueError("a step of 0")
    return range(start, end + 1, int(step or 1))


def _comes(days: Set[int], months: Set[int], weekdays: Set[int]) -> bool:
    """Whether such a day comes in any so many years in a row as the server looks ahead."""
    held = {
        year % _YEARS_UNTIL_THE_SAME
        for year in range(2001, 2001 + _YEARS_UNTIL_THE_SAME)
        for month in months
        for day in days
        if day <= calendar.monthrange(year, month)[1] and (calendar.weekday(year, month, day) + 1) % 7 in weekdays
    }
    return all(
        held & {(year + ahead) % _YEARS_UNTIL_THE_SAME for ahead in range(_YEARS_AHEAD)}
        for year in range(_YEARS_UNTIL_THE_SAME)
    )


def _value(text: str, names: dict[str, int]) -> int | None:
    return int(text) if text.isdecimal() else names.get(text.lower())
