"""What a command prints for its user: messages, and progress as a bar on a terminal and as lines elsewhere.

If another process shows a command's output to the user, VIEWED is set in the environment. Messages and progress then
begin with a mark, by which that process can tell them from the output of libraries.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, TextIO

from calopipe.mirror import addressed

if TYPE_CHECKING:
    from tqdm import tqdm

VIEWED = "CALOPIPE_VIEWED"  # the seconds between two lines of progress
MESSAGE, BAR = "\x02", "\x05"  # marks of a message, and of a line of progress
_LOG_SECONDS = 10.0  # between two lines if there is no terminal
# The rate is always in units a second; tqdm would print seconds a unit if a unit takes longer than a second.
_FIGURES = "{n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"


def say(text: str) -> None:
    """Print `text`, one line. The last message of a pipeline step says what it did."""
    _write_line(sys.stdout, MESSAGE, addressed(text))


def progress_bar(description: str, total: int, unit: str, done: int = 0, note: str = "") -> tqdm[NoReturn]:
    """A progress bar on standard error, towards `total` units; `done` units are finished when the bar starts.

    `note` says what is done before the first unit.
    """
    from tqdm import tqdm  # noqa: PLC0415  commands that have nothing to do need not wait for it

    watched = sys.stderr.isatty()
    return tqdm(
        desc=description,
        total=total,
        initial=done,
        unit=f" {unit}",
        postfix=note or None,
        file=sys.stderr if watched else _Lines(),
        mininterval=0.1 if watched else float(os.environ.get(VIEWED, _LOG_SECONDS)),
        smoothing=0.05,
        bar_format="{desc}: {percentage:3.0f}% " + ("|{bar}| " if watched else "") + _FIGURES,
    )


class _Lines:
    """Standard error that is not a terminal: each state of a bar is a line, without carriage returns."""

    def write(self, text: str) -> None:
        if line := text.strip():
            _write_line(sys.stderr, BAR, line)


def _write_line(stream: TextIO, mark: str, text: str) -> None:
    """Write the line in one piece, so that output of other threads comes before or after it.

    The process that shows the output may have ended after Ctrl-C. This command then goes on without output, and saves.
    """
    viewed = VIEWED in os.environ
    with suppress(*(BrokenPipeError,) * viewed):
        stream.write(f"{mark if viewed else ''}{text}\n")
        stream.flush()
