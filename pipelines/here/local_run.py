"""The pipeline on this machine: each step a process of this environment, or a container, through kfp's local runner."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
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
from pipelines.cluster.resources import STEPS, step_of
from pipelines.here import containers
from pipelines.here.view import shown
from pipelines.parameters import FLOW, SHOWERS

_OUTPUT = "executor_output.json"  # in the folder of each step


def run(
    parameters: Mapping[str, Any], output: storage.Location, *, in_containers: bool, verbose: bool, shares: int = 1,
    name: str = SHOWERS,
) -> None:  # fmt: skip
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
        alone(output), mirrored(output) as here,
        tempfile.NamedTemporaryFile("r", prefix="calopipe-", suffix=".log") as reason,
    ):  # fmt: skip
        kept = here / "kfp"
        os.environ["TERMINATION_LOG"] = reason.name  # where a step writes the line that says why it failed
        runner: local.SubprocessRunner | local.DockerRunner = local.SubprocessRunner(use_venv=False)
        if in_containers:
            parameters = containers.absolute(parameters)
            runner = containers.runner(parameters, user=f"{os.getuid()}:{os.getgid()}", reason=Path(reason.name))
        kept.mkdir(parents=True, exist_ok=True)  # which Docker would make, for root
        local.init(runner, pipeline_root=str(kept))
        before, failure = set(kept.iterdir()), None
        pipeline = (vortex if name == FLOW else calorimeter).define(shares=shares)
        with shown(here / "logs", sys.stdout, verbose=verbose) as (view, log):
            overview.note(output, parameters, log)
            try:
                with _python3_in_names():
                    pipeline(**parameters)
            except (RuntimeError, ValueError) as error:  # what kfp raises when a step fails, or lacks another's output
                failure = error
        overview.write_index(output)
        if line := reason.read():  # also of a container that kfp took for a success
            raise InputError(line)
        said = told(str(log))
        if isinstance(failure, RuntimeError):
            raise SystemExit(
                f"{view.tail}error: step {view.stopped} failed; its last lines are above, all are in {said}"
            )
        if step := _unfinished(set(kept.iterdir()) - before, pipeline.pipeline_spec.root.dag.tasks):
            raise SystemExit(
                f"error: step {step} ended without its output under {told(str(kept))}; what it said is in {said}"
            )
        if failure:
            raise failure
    _show(parameters, output)


def _unfinished(runs: set[Path], tasks: Iterable[str]) -> str | None:
    """The first of the `tasks` without an output in the newest of kfp's folders `runs`; None if all have one.

    A step writes its output at its end. kfp itself takes a container for a success if it is gone before kfp looks.
    """
    newest, order = max(runs, default=Path()), [*STEPS]
    in_order = sorted(tasks, key=lambda task: order.index(step_of(task)))
    return next((task for task in in_order if not (newest / task / _OUTPUT).is_file()), None)


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
