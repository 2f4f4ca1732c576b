"""Progress: a bar on a terminal, and now and then a line in a log."""

from __future__ import annotations

import sys
from typing import NoReturn

from tqdm import tqdm

_LOG_SECONDS = 10.0  # between two lines where no one watches
# The rate is in units a second also where one takes several seconds, which tqdm would turn round.
_FIGURES = "{n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"


def progress_bar(description: str, total: int, unit: str, done: int = 0) -> tqdm[NoReturn]:
    """A bar towards `total` of `unit`, of which `done` are done already, on standard error."""
    watched = sys.stderr.isatty()
    bar: tqdm[NoReturn] = tqdm(
        desc=description,
        total=total,
        initial=done,
        unit=f" {unit}",
        mininterval=0.1 if watched else _LOG_SECONDS,
        smoothing=0.05,
        bar_format="{desc}: {percentage:3.0f}% |{bar}| " + _FIGURES
        if watched
        else "{desc}: {percentage:3.0f}% " + _FIGURES,
    )
    return bar
