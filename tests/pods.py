"""The steps of a run, each run as in its pod: `python pods.py KILLS FILE OUTPUT...`.

Each OUTPUT gets a run of the showers in FILE. Each run after the first is killed KILLS times (SIGKILL), at random
moments of given steps, and each attempt has an empty disk. kfp, Beam and TensorFlow are imported once, and each attempt
is a fork of this process, before TensorFlow has started any thread.
"""

from __future__ import annotations

import inspect
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from trainings import untraced

import training.fit
import training.generation.generate
import validation.compare  # noqa: F401
from calopipe import lock
from components.generate import generate
from components.preprocess import preprocess
from components.promote import promote
from components.train import train
from components.validate import validate
from pipelines import parameters

STEPS = ("preprocess", "train", "generate", "validate", "promote")
_KILLED = ("train", "preprocess", "train", "train", "generate", "train", "generate", "validate", "generate", "promote")


def perform(step: Any, disk: Path, **given: Any) -> tuple[Any, dict[str, Any]]:
    """What `step` returns for the `given` arguments, and its artifacts, which Kubeflow's launcher would carry.

    The files of the artifacts are on `disk`.
    """
    asked = inspect.signature(step.python_func).parameters
    assert given.keys() <= asked.keys()
    names = {"data", "model", "showers", "rollouts", "judged", "report", "summary"} & asked.keys()
    artifacts = {name: SimpleNamespace(path=str(disk / name), metadata={}) for name in names}
    values = artifacts | {"metrics": SimpleNamespace(log_metric=lambda *_: None)} | given
    return step.python_func(**{name: values[name] for name in asked if name in values}), artifacts


def run(file: str, output: str, grade: str, began: Callable[[str], None]) -> None:
    """Run the steps one after the other, each with the results of the steps before; `began` is called for each step."""
    given = parameters.defaults() | {"output": output, "config": "small", "grade": grade, "per_event": 2}
    given |= {"patterns": [file], "job": {}}

    def in_pod(step: Any, **more: Any) -> Any:
        began(step.python_func.__name__)
        with tempfile.TemporaryDirectory() as disk:
            asked = inspect.signature(step.python_func).parameters
            taken = {name: value for name, value in (given | more).items() if name in asked}
            return perform(step, Path(disk), **taken)[0]

    files, fingerprint, dataset, registry, reading = in_pod(preprocess)
    given |= {"files": files, "dataset": dataset, "registry": registry, "reading": reading}
    model, incumbent = in_pod(train, fingerprint=fingerprint)
    showers, rival = in_pod(generate, fingerprint=model, incumbent=incumbent)
    _, request = in_pod(validate, fingerprint=showers, incumbent=rival)
    in_pod(promote, fingerprint=model, verdict=request)
    began("end")


def attempt(file: str, output: str, grade: str, disk: str, there: Connection) -> None:
    """Make a run whose temporary files are on `disk`, and tell `there` of each step."""
    tempfile.tempdir = os.environ["TMPDIR"] = disk
    lock._RENEWED_S, lock._LEASED_S = 0.2, 1.0  # in place of half a minute after each kill
    # a checkpoint for each step, and a part for each ten showers
    training.run.loop.Loop._due = lambda *_: True
    training.generation.part_files._PART_SHOWERS = 10
    with untraced():
        run(file, output, grade, there.send)


class Attempt:
    """A run in a process of its own, with an empty disk."""

    def __init__(self, *what: str) -> None:
        self._disk = tempfile.mkdtemp()
        self._here, there = Pipe(duplex=False)
        self._began = {}
        self._process = get_context("fork").Process(target=attempt, args=(*what, self._disk, there))
        self._process.start()
        there.close()

    def until(self, step: str) -> float:
        """Wait until `step` begins. Returns the seconds since the step before began. SystemExit: the run ended."""
        while step not in self._began:
            try:
                told = self._here.recv()
            except EOFError:
                raise SystemExit(f"the run ended before {step}, after {[*self._began]}") from None
            self._began[told] = time.monotonic()
        *_, before, now = (0.0, *self._began.values())
        return now - before

    def end(self, *, kill: bool) -> None:
        """Wait for its end, or kill it unless it has ended; make its disk empty."""
        if kill:
            self._process.kill()
        self._process.join()
        if self._process.exitcode not in ((0, -signal.SIGKILL) if kill else (0,)):
            raise SystemExit(f"the run ended with {self._process.exitcode}")
        self._here.close()
        shutil.rmtree(self._disk)


def main(kills: int, file: str, grade: str, *outputs: str) -> None:
    random = np.random.default_rng(1)
    first, *others = outputs
    whole = Attempt(file, first, grade)
    took = {before: whole.until(after) for before, after in zip(STEPS, (*STEPS[1:], "end"), strict=True)}
    whole.end(kill=False)
    print("seconds:", {step: round(seconds, 1) for step, seconds in took.items()}, flush=True)
    for output in others:
        for step in _KILLED[:kills]:
            lost = Attempt(file, output, grade)
            lost.until(step)
            after_s = random.uniform(0, took[step])
            time.sleep(after_s)
            lost.end(kill=True)
            print(f"killed {after_s:.1f} s after the beginning of {step}", flush=True)
        last = Attempt(file, output, grade)
        last.until("end")
        last.end(kill=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
