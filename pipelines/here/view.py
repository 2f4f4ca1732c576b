"""What a run on this machine shows: a line for each step, progress, and a log with everything else."""

from __future__ import annotations

import io
import re
import shutil
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import TextIO

from calopipe.mirror import told
from calopipe.progress import GOING, SAID

# kfp reports the start and the end of a step only in its log.
_OF_KFP = re.compile(r"\d\d:\d\d:\d\d\.\d{3} - ")
_BEGAN = re.compile(_OF_KFP.pattern + r"INFO - Executing task '([\w-]+)'")
_ENDED = re.compile(_OF_KFP.pattern + r"\w+ - Task '[\w-]+' finished with status (SUCCESS|FAILURE)")
_COLOUR = re.compile(r"\x1b\[\d*m")
_PERCENT = re.compile(r"(\d+)%")
_NAME_COLUMNS, _BAR_COLUMNS = 12, 20
_LINES_OF_A_FAILURE = 15
_CLEAR_LINE = "\r\x1b[K"


class View(io.TextIOBase):
    """Replaces standard output while kfp runs the steps, whose output kfp prints there line by line.

    All of it goes to `log`. The `terminal` gets a line for each step that has ended: its name, the seconds it took, and
    its last message. If `terminal` is a terminal, it also shows the running step, with a progress bar. With `verbose`
    it gets all that the log gets.
    """

    def __init__(self, log: TextIO, terminal: TextIO, *, verbose: bool) -> None:
        self._log, self._terminal, self._verbose = log, terminal, verbose
        self._live = terminal.isatty() and not verbose
        self._step, self._said, self._began_at = "", "", 0.0
        self.stopped = ""  # the step that did not finish
        self._rest = ""  # of a line that has not ended
        self._last: deque[str] = deque(maxlen=_LINES_OF_A_FAILURE)

    @property
    def tail(self) -> str:
        """The last lines of the step that ran last, each indented."""
        return "".join(f"    {line.strip()}\n" for line in self._last if line.strip())

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._take(_COLOUR.sub("", line))
        return len(text)

    def end(self) -> None:
        """Remove what was drawn; print a line if a step is not done."""
        if self._step:
            self.stopped = self._step
            self._end_step("not finished")

    def _take(self, line: str) -> None:
        plain = line.replace(SAID, "").replace(GOING, "")
        self._log.write(f"{plain}\n")
        if self._verbose:
            self._show(f"{plain}\n")
        if began := _BEGAN.match(line):
            self._step, self._said, self._began_at = began[1], "", time.monotonic()
            self._last.clear()
            self._draw("")
        elif ended := _ENDED.match(line):
            if ended[1] == "SUCCESS":
                self._end_step(self._said)
            else:
                self.end()
        elif GOING in line:
            progress = line.partition(GOING)[2].removeprefix(f"{self._step}: ")
            done = int(percent[1]) if (percent := _PERCENT.search(progress)) else 0
            self._draw(f"{'█' * (done * _BAR_COLUMNS // 100):{_BAR_COLUMNS}} {progress}")
        elif self._step and not _OF_KFP.match(line):
            self._last.append(plain)
            if SAID in line:
                self._said = line.partition(SAID)[2]
                self._draw(self._said)

    def _draw(self, text: str) -> None:
        """Show `text` beside the step's name on a terminal, until something else is shown."""
        if self._live:
            columns = shutil.get_terminal_size().columns - 1  # a line that is full would begin another
            self._show(_CLEAR_LINE + f"{self._step:{_NAME_COLUMNS}}{text}"[:columns])

    def _end_step(self, text: str) -> None:
        seconds = time.monotonic() - self._began_at
        line = f"{self._step:{_NAME_COLUMNS}}{seconds:7.1f} s  {text}".replace(f"{Path.cwd()}/", "")
        self._show(f"{_CLEAR_LINE if self._live else ''}{line}\n")
        self._step = ""

    def _show(self, text: str) -> None:
        self._terminal.write(text)
        self._terminal.flush()


@contextmanager
def shown(folder: Path, terminal: TextIO, *, verbose: bool) -> Iterator[tuple[View, Path]]:
    """Replace standard output by a view, whose log is a new file in `folder`; the view, and the path of the log."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{datetime.now():%Y-%m-%d-%H-%M-%S}.log"
    with path.open("a", encoding="utf-8", buffering=1) as log:
        view = View(log, terminal, verbose=verbose)
        print(told(f"log: {path}").replace(f"{Path.cwd()}/", ""), file=terminal, flush=True)
        try:
            with redirect_stdout(view):
                yield view, path
        finally:
            view.end()
