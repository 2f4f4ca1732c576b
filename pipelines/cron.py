"""When a schedule starts its runs.

Checked here, because the server takes five fields too, which it does not read as cron(8) does: their first is the
second, so that 3:00 on Mondays would become every hour of January.
"""

from __future__ import annotations

import argparse
import calendar
import re
from dataclasses import dataclass

from preprocessing.errors import InputError

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
    for text, (name, low, high, names) in zip(given, _FIELDS, strict=True):
        for part in text.split(","):
            if problem := _problem(part, low, high, names):
                raise InputError(f"--cron {expression!r}: {name} {text!r}: {problem}")


def _problem(part: str, low: int, high: int, names: dict[str, int]) -> str:
    """What is wrong with one of a field's parts: * or ?, N, N-M, any of them with /STEP; empty for nothing."""
    found = re.fullmatch(r"(?:[*?]|(\w+)(?:-(\w+))?)(?:/(\d+))?", part)
    if not found:
        return "expected *, N, N-M, or one of them and /STEP, separated by commas"
    ends = [_value(text, names) for text in found.group(1, 2) if text]
    if any(end is None or not low <= end <= high for end in ends):
        also = f", or {' '.join(names).upper()}" if names else ""
        return f"expected {low} to {high}{also}"
    if len(ends) == 2 and (ends[0] or 0) > (ends[1] or 0):
        return "its range ends before it begins"
    return "a step of 0" if found[3] and int(found[3]) == 0 else ""


def _value(text: str, names: dict[str, int]) -> int | None:
    return int(text) if text.isdecimal() else names.get(text.lower())
