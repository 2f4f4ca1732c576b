"""Checkpoints, written whole or not at all, in a thread beside the training, and verified when they are read.

A checkpoint is two files: `step-N.npz`, the state's arrays, and `step-N.json`, written after it, which names the
training and the SHA-256 of the arrays. Without the second file there is no checkpoint.
"""

from __future__ import annotations

import logging
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calopipe import storage
from calopipe.documents import Form
from calopipe.errors import InputError
from training.engine.step import State

logger = logging.getLogger(__name__)

_FORM = Form("calopipe.checkpoint", 1)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was read. `facts` are what `Checkpoints.save` was given beside the state."""

    path: Path
    step: int
    facts: dict[str, Any]
    state: State


class Checkpoints:
    """The checkpoints in `folder` of the training that `request` names: the `kept` newest, and the best.

    The best checkpoint has the lowest `metric`; a checkpoint without a metric is never the best. Of several workers
    only the first `writes`.
    """

    def __init__(self, folder: Path, *, request: str, kept: int, writes: bool = True) -> None:
        self._folder, self._request, self._kept, self._writes = folder, request, kept, writes
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._written: Future[None] | None = None  # the writing of what `save` was given last
        if writes and folder.is_dir():
            storage.sweep(folder)
            for path in folder.glob("step-*.npz"):  # left by a process that was killed before it wrote the .json
                if not path.with_suffix(".json").exists():
                    storage.remove(path)

    def save(self, state: State, *, step: int, facts: dict[str, Any]) -> None:
        """Write a checkpoint in a thread, once the checkpoint before is written. Raises that one's error, if any."""
        self.wait()
        if self._writes:
            self._written = self._thread.submit(self._write, state, step, facts)

    def mark(self, step: int, metric: float | None) -> None:
        """Note the `metric` of the checkpoint of `step`, once this is written. None, NaN and infinity are left out."""
        self.wait()
        document = self._documents().get(step)
        if document is not None and metric is not None and math.isfinite(metric):
            self._describe(document | {"metric": metric})
            self._prune()

    def wait(self) -> None:
        """Return when what was given to `save` is on disk, or raise the error that prevented it."""
        written, self._written = self._written, None  # so that an error is raised only once
        if written is not None:
            written.result()

    def newest(self) -> Checkpoint | None:
        """The newest whole checkpoint. A warning names a newer one that is not whole."""
        return next(self._whole(sorted(self._documents().items(), reverse=True)), None)

    def best(self) -> Checkpoint | None:
        """The whole checkpoint of the lowest metric, the first of several; the newest where none has a metric."""
        documents = self._documents()
        ranked = [(step, documents[step]) for value, step in _ranked(documents) if value < math.inf]
        return next(self._whole(ranked), None) or self.newest()

    def best_metric(self) -> tuple[int, float]:
        """Step and metric of the best checkpoint; (0, infinity) where none has a metric."""
        value, step = next(iter(_ranked(self._documents())), (math.inf, 0))
        return (step, value) if value < math.inf else (0, math.inf)

    def discard(self) -> None:
        """Remove all checkpoints of this training."""
        self._remove(self._documents())

    def last_named(self) -> str:
        """The newest checkpoint's file, for a message."""
        steps = sorted(self._documents())
        return str(self._file(steps[-1])) if steps else "none"

    def _whole(self, candidates: list[tuple[int, dict[str, Any]]]) -> Iterator[Checkpoint]:
        for step, document in candidates:
            path = self._file(step)
            try:
                storage.require_file(path, document["sha256"])
                with np.load(path) as arrays:
                    yield Checkpoint(path, step, document["facts"], dict(arrays))
            except (InputError, OSError, ValueError, zipfile.BadZipFile) as error:
                logger.warning("%s: not the checkpoint that was written (%s); using the one before", path, error)
                if self._writes:  # else this one would count as kept
                    storage.remove(path.with_suffix(".json"))

    def _documents(self) -> dict[int, dict[str, Any]]:
        """The description of each checkpoint of this training, by its step."""
        documents = {}
        for path in self._folder.glob("step-*.json"):
            try:
                document = _FORM.read(path)
                if document.pop("fingerprint") != storage.fingerprint(document):
                    raise InputError("altered")
                if document["request"] == self._request:
                    documents[int(document["step"])] = document
            except (InputError, KeyError, ValueError) as error:
                logger.warning("%s: not what was written (%s); using the one before", path, error)
        return documents

    def _write(self, state: State, step: int, facts: dict[str, Any]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._file(step)
        with storage.replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **state)
        sha256 = storage.sha256_of_file(path)
        content = {"request": self._request, "step": step, "sha256": sha256, "metric": None, "facts": facts}
        self._describe(_FORM.of(content))
        self._prune()

    def _describe(self, document: dict[str, Any]) -> None:
        signed = document | {"fingerprint": storage.fingerprint(document)}
        storage.write_json(self._file(document["step"]).with_suffix(".json"), signed)

    def _prune(self) -> None:
        documents = self._documents()
        _, best = _ranked(documents)[0]
        self._remove(documents.keys() - {best, *sorted(documents)[-self._kept :]})

    def _remove(self, steps: Iterable[int]) -> None:
        for step in steps:
            storage.remove(self._file(step).with_suffix(".json"))  # first, so that a checkpoint with a .json is whole
            storage.remove(self._file(step))

    def _file(self, step: int) -> Path:
        return self._folder / f"step-{step:09d}.npz"


def _ranked(documents: Mapping[int, dict[str, Any]]) -> list[tuple[float, int]]:
    """(metric, step) of each checkpoint, the best first; the metric is infinity where there is none."""
    metrics = ((document.get("metric"), step) for step, document in documents.items())
    return sorted((math.inf if metric is None else float(metric), step) for metric, step in metrics)
