"""When a schedule starts its runs."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from calopipe.errors import InputError

_FIELDS = 6  # second, minute, hour, day of the month, month, day of the week
_EXAMPLE = "'0 0 3 * * 1' is Mondays at 3:00:00"


@dataclass(frozen=True)
class Trigger:
    """Either six fields, seconds first, in the server's time zone; or the seconds between two starts.

    The server refuses fields that it cannot read. But it takes five fields, of which the first is the second and not
    the minute as in cron(8), so that 3:00 on Mondays would become every hour of January: they are refused here.
    """

    cron: str | None = None
    interval: int | None = None

    def __post_init__(self) -> None:
        if self.interval is not None and self.interval < 1:
            raise InputError(f"--interval is {self.interval}, expected a number of seconds, at least 1")
        if self.cron is not None and (found := len(self.cron.split())) != _FIELDS:
            raise InputError(f"--cron {self.cron!r}: {found} fields, expected six fields, seconds first; {_EXAMPLE}")

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
