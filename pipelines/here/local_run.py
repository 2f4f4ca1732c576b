"""The pipeline on this machine: each step a process of this environment, through kfp's local runner."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kfp import local

from calopipe import storage
from calopipe.errors import InputError
from calopipe.lock import alone
from calopipe.mirror import mirrored, told
from calopipe.progress import VIEWED
from components import overview
from components.step import keep_from_others
from pipelines import calorimeter, vortex
from pipelines.here.view import shown
from pipelines.parameters import FLOW, SHOWERS


def run(
    parameters: Mapping[str, Any], output: storage.Location, *, verbose: bool, shares: int = 1, name: str = SHOWERS
) -> None:
    """Run every step of the pipeline called `name` with the `parameters` into `output`, an absolute path or an address.

    InputError, before any work: another process runs a pipeline into it. Showers are generated in so many `shares`, one
    after the other. A file in OUTPUT/logs gets all that the steps and kfp print, and a `verbose` run prints it here
    too. OUTPUT/index.html leads to what is there at the end, also after a failure. The last lines that are printed are
    the verdict, the report and this page.
    """
    keep_from_others()
    parameters = {**parameters, "output": str(output)}
    os.environ["PYTHONUNBUFFERED"] = "1"
    os.environ[VIEWED] = "1" if sys.stdout.isatty() else "10"
    with (
        alone(output),
        mirrored(output) as here,
        tempfile.NamedTemporaryFile("r", prefix="calopipe-", suffix=".log") as reason,
    ):
        os.environ["TERMINATION_LOG"] = reason.name  # where a step writes the line that says why it failed
        local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(here / "kfp"))
        failed = False
        pipeline = (vortex if name == FLOW else calorimeter).define(shares=shares)
        with shown(here / "logs", sys.stdout, verbose=verbose) as (view, log):
            overview.note(output, parameters, log)
            try:
                with _python3_in_names():
                    pipeline(**parameters)
            except RuntimeError:  # what kfp raises when a step fails
                failed = True
        overview.write_index(output)
        if line := reason.read():
            raise InputError(line)
        if failed:
            raise SystemExit(
                f"{view.tail}error: step {view.stopped} failed; its last lines are above, all are in {told(str(log))}"
            )
    _show(parameters, output)


def _show(parameters: Mapping[str, Any], output: storage.Location) -> None:
    verdict = json.loads((output / "verdict.json").read_text())["verdict"]
    print(f"verdict: {verdict}")
    print(f"report:  {output / 'report.html'}".replace(f"{Path.cwd()}/", ""))
    print(f"open:    {output / overview.INDEX_FILE}".replace(f"{Path.cwd()}/", ""))
    from training.registry.registry import Registry  # noqa: PLC0415  h5py, which a failure need not wait for

    if used := Registry(storage.location(parameters.get("registry") or f"{output}/registry")).in_use():
        print(f"model in use: {used}")


@contextmanager
def _python3_in_names() -> Iterator[None]:
    """Let "python3" run this interpreter, and keep the text "python3" in the names of files as it is.

    kfp 2.16 puts `sys.executable` in place of "python3" in every argument of a local step, in parameters too
    (`replace_python_executable` in kfp/local/subprocess_task_handler.py, which has no option against it). Here it puts
    "python3" in place of itself.
    """
    executable, path = sys.executable, os.environ.get("PATH", os.defpath)
    sys.executable, os.environ["PATH"] = "python3", f"{Path(executable).parent}{os.pathsep}{path}"
    try:
        yield
    finally:
        sys.executable, os.environ["PATH"] = executable, path
