"""What a command says to the person who runs it: sentences, and progress: a bar on a terminal, lines elsewhere.

Where another process shows a command's output to a person, VIEWED is set in the environment. Sentences and progress
then begin with a mark, by which that process knows them among all that libraries print.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn, TextIO

if TYPE_CHECKING:
    from tqdm import tqdm

VIEWED = "CALOPIPE_VIEWED"  # the seconds between two lines of progress
SAID, GOING = "\x02", "\x05"  # marks of a sentence, and of a line of progress
_LOG_SECONDS = 10.0  # between two lines where no one watches
# The rate is in units a second also where one takes several seconds, which tqdm would turn round.
_FIGURES = "{n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"


def say(text: str) -> None:
    """Print `text`, one line. The last one that a step of the pipeline says is what it did."""
    _write_line(sys.stdout, SAID, text)


def progress_bar(description: str, total: int, unit: str, done: int = 0) -> tqdm[NoReturn]:
    """A bar towards `total` of `unit`, of which `done` are done already, on standard error."""
    from tqdm import tqdm  # noqa: PLC0415  which what has nothing to do need not wait for

    watched = sys.stderr.isatty()
    bar: tqdm[NoReturn] = tqdm(
        desc=description,
        total=total,
        initial=done,
        unit=f" {unit}",
        file=sys.stderr if watched else _Lines(),
        mininterval=0.1 if watched else float(os.environ.get(VIEWED, _LOG_SECONDS)),
        smoothing=0.05,
        bar_format="{desc}: {percentage:3.0f}% |{bar}| " + _FIGURES
        if watched
        else "{desc}: {percentage:3.0f}% " + _FIGURES,
    )
    return bar


class _Lines:
    """Where no terminal is: each state of a bar is a line of its own, and no carriage return is written."""

    def write(self, text: str) -> None:
        if line := text.strip():
            _write_line(sys.stderr, GOING, line)

    def flush(self) -> None:
        """Lines are flushed as they are written."""


def _write_line(stream: TextIO, mark: str, text: str) -> None:
    """Write at once, so that what other threads print comes before or after the line."""
    stream.write(f"{mark if VIEWED in os.environ else ''}{text}\n")
    stream.flush()
