"""The pipeline on this machine: kfp's local runner runs each step as a process of this environment.

The terminal shows a line for each step, and progress. A log has everything else.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import psutil
from kfp import local

from calopipe import storage
from calopipe.errors import InputError
from calopipe.lock import alone, require_no_step
from calopipe.mirror import addressed, mirrored
from calopipe.progress import BAR, MESSAGE, VIEWED
from components import overview
from components.step import keep_from_others
from pipelines import package
from pipelines.parameters import SHOWERS

# kfp reports the start and the end of a step only in its log.
_OF_KFP = re.compile(r"\d\d:\d\d:\d\d\.\d{3} - ")
_BEGAN = re.compile(_OF_KFP.pattern + r"INFO - Executing task '([\w-]+)'")
_ENDED = re.compile(_OF_KFP.pattern + r"\w+ - Task '[\w-]+' finished with status (SUCCESS|FAILURE)")
_COLOUR = re.compile(r"\x1b\[\d*m")
_PERCENT = re.compile(r"(\d+)%")
_NAME_COLUMNS, _BAR_COLUMNS = 12, 20
_LINES_OF_A_FAILURE = 15
_CLEAR_LINE = "\r\x1b[K"
# Seconds that a step may take after Ctrl-C before it gets SIGTERM (trainings save at both), and then after SIGTERM.
_INTERRUPTED_S, _TERMINATED_S = 5.0, 60.0


def run(parameters: Mapping[str, Any], output: storage.Location, *, verbose: bool, name: str = SHOWERS) -> None:
    """Run every step of the pipeline called `name` with the `parameters` into `output`, an absolute path or an address.

    InputError, before any work: another process runs a pipeline into it, or a step of a run that was killed goes on. A
    file in OUTPUT/logs gets all that the steps and kfp print, and a `verbose` run prints it here too. At the end
    OUTPUT/index.html links to all that was made, also after a failure. The last lines that are printed are the verdict,
    the report and this page.
    """
    keep_from_others()
    parameters = {**parameters, "output": str(output)}
    with (
        alone(output),
        mirrored(output) as folder,
        tempfile.NamedTemporaryFile("r", prefix="calopipe-", suffix=".log") as reason,
    ):
        require_no_step(output)
        # only now: a run that is refused leaves this process as it was
        os.environ["PYTHONUNBUFFERED"] = "1"
        os.environ[VIEWED] = "1" if sys.stdout.isatty() else "10"
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the run as Ctrl-C does, with its running step
        os.environ["TERMINATION_LOG"] = reason.name  # where a step writes the line that says why it failed
        local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(folder / "kfp"))
        failed = ""
        pipeline = package.define(name)
        with shown(folder / "logs", sys.stdout, verbose=verbose) as (view, log):
            overview.note(output, parameters, log)
            try:
                with _python3_in_names():
                    pipeline(**parameters)
            except RuntimeError:  # kfp raises it when a step fails
                failed = view.stopped or "before the first"
            except KeyboardInterrupt:
                _end_steps()
                raise
        overview.write_index(output, failed)
        if line := reason.read():
            raise InputError(line)
        if failed:
            raise SystemExit(
                f"{view.tail}error: step {failed} failed; its last lines are above, all are in {addressed(str(log))}"
            )
    _show(parameters, output)


def _end_steps() -> None:
    """Wait for the running step, which also gets Ctrl-C. End the step if it goes on, or at a second Ctrl-C.

    kfp does not wait. A step that was about to start may not have got the signal.
    """
    going = psutil.Process().children(recursive=True)  # kfp starts a shell, which starts the step
    try:
        _, going = psutil.wait_procs(going, _INTERRUPTED_S)
    finally:
        for process in going:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
    _, going = psutil.wait_procs(going, _TERMINATED_S)
    for process in going:
        process.kill()


def _show(parameters: Mapping[str, Any], output: storage.Location) -> None:
    verdict = json.loads((output / "verdict.json").read_text())["verdict"]
    print(f"verdict: {verdict}")
    print(_from_here(f"report:  {output / 'report.html'}"))
    print(_from_here(f"open:    {output / overview.INDEX_FILE}"))
    from training.registry.registry import Registry  # noqa: PLC0415  loads h5py, not needed after a failure

    if used := Registry(storage.location(parameters.get("registry") or f"{output}/registry")).in_use():
        print(f"model in use: {used}")


@contextmanager
def _python3_in_names() -> Iterator[None]:
    """Let "python3" run this interpreter, and leave the text "python3" in the names of files unchanged.

    In every argument of a local step, also in parameters, kfp 2.16 replaces "python3" by `sys.executable`
    (`replace_python_executable` in kfp/local/subprocess_task_handler.py, which has no option against it). Within this
    block, `sys.executable` is "python3", so nothing changes.
    """
    executable, path = sys.executable, os.environ.get("PATH", os.defpath)
    sys.executable, os.environ["PATH"] = "python3", f"{Path(executable).parent}{os.pathsep}{path}"
    try:
        yield
    finally:
        sys.executable, os.environ["PATH"] = executable, path


class View(io.TextIOBase):
    """Replaces standard output while kfp runs the steps, whose output kfp prints there line by line.

    The whole output goes to `log`. The `terminal` gets a line for each step that has ended: its name, the seconds it
    took, and its last message. If `terminal` is a terminal, it also shows the running step, with a progress bar. With
    `verbose` it gets all that the log gets.
    """

    def __init__(self, log: TextIO, terminal: TextIO, *, verbose: bool) -> None:
        self._log, self._terminal, self._verbose = log, terminal, verbose
        self._live = terminal.isatty() and not verbose
        self._step, self._message, self._began_at = "", "", 0.0
        self.stopped = ""  # the step that did not finish
        self._rest = ""  # the text of a line that has not ended
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
        """Clear the line that shows the running step; print a line if a step is not done."""
        if self._step:
            self.stopped = self._step
            self._end_step("not finished")

    def _take(self, line: str) -> None:
        plain = line.replace(MESSAGE, "").replace(BAR, "")
        self._log.write(f"{plain}\n")
        if self._verbose:
            self._show(f"{plain}\n")
        if began := _BEGAN.match(line):
            self._step, self._message, self._began_at = began[1], "", time.monotonic()
            self._last.clear()
            self._draw("")
        elif ended := _ENDED.match(line):
            if ended[1] == "SUCCESS":
                self._end_step(self._message)
            else:
                self.end()
        elif BAR in line:
            progress = line.partition(BAR)[2].removeprefix(f"{self._step}: ")
            done = int(percent[1]) if (percent := _PERCENT.search(progress)) else 0
            self._draw(f"{'█' * (done * _BAR_COLUMNS // 100):{_BAR_COLUMNS}} {progress}")
        elif self._step and not _OF_KFP.match(line):
            self._last.append(plain)
            if MESSAGE in line:
                self._message = line.partition(MESSAGE)[2]
                self._draw(self._message)

    def _draw(self, text: str) -> None:
        """Show `text` beside the step's name on a terminal, until something else is shown."""
        if self._live:
            columns = shutil.get_terminal_size().columns - 1  # a full line would begin another line
            self._show(_CLEAR_LINE + f"{self._step:{_NAME_COLUMNS}}{text}"[:columns])

    def _end_step(self, text: str) -> None:
        seconds = time.monotonic() - self._began_at
        line = _from_here(f"{self._step:{_NAME_COLUMNS}}{seconds:7.1f} s  {text}")
        self._show(f"{_CLEAR_LINE if self._live else ''}{line}\n")
        self._step = ""

    def _show(self, text: str) -> None:
        self._terminal.write(text)
        self._terminal.flush()


@contextmanager
def shown(folder: Path, terminal: TextIO, *, verbose: bool) -> Iterator[tuple[View, Path]]:
    """Replace standard output by a view, whose log is a new file in `folder`. Yields the view and the log's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{datetime.now():%Y-%m-%d-%H-%M-%S}.log"
    with path.open("a", encoding="utf-8", buffering=1) as log:
        view = View(log, terminal, verbose=verbose)
        print(_from_here(addressed(f"log: {path}")), file=terminal, flush=True)
        try:
            with redirect_stdout(view):
                yield view, path
        finally:
            view.end()


def _from_here(text: str) -> str:
    """`text`, where paths within the current folder are relative to it."""
    return text.replace(f"{Path.cwd()}/", "")
