"""The record of a training: JSON lines, TensorBoard, and a progress bar."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from calopipe import mirror, storage
from calopipe.errors import InputError
from calopipe.progress import progress_bar
from training.engine.step import Engine
from training.folder import HISTORY, TENSORBOARD
from training.models.base import LossTable

_TRAINED, _WATCHED = "train", "validation"  # the losses in an entry


def entries_until(folder: Path, step: int) -> list[dict[str, Any]]:
    """The lines of the history in the model's `folder` as it was at `step`."""
    path = folder / HISTORY
    lines = path.read_text().splitlines() if path.is_file() else []
    try:
        return [entry for entry in map(json.loads, lines) if entry["step"] <= step]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: not the history of a training; restore it, or delete it and lose it") from None


class History:
    """One JSON line an epoch in the model folder, and the same numbers for TensorBoard."""

    def __init__(self, folder: Path, step: int) -> None:
        """Continue the history in `folder` as it was at `step`."""
        self._path = folder / HISTORY
        self.entries = entries_until(folder, step)
        self._board = folder / TENSORBOARD
        self.board = tf.summary.create_file_writer(str(self._board))
        self._watched: Any = None  # the same of the validation split, a run of its own

    def add(self, entry: dict[str, Any]) -> None:
        """Append `entry`, which holds its "step"; nested numbers are named by their path on the board.

        But a loss is "loss/NAME" of both splits, in two runs, so that their curves lie over each other; in training it
        is "loss/NAME/PHASE" if several phases have it.
        """
        self.entries.append(entry)
        self._write(entry)

    def amend(self, values: dict[str, Any]) -> None:
        """Add `values` to the last entry; None takes a value out of it."""
        self.entries[-1] = {name: value for name, value in (self.entries[-1] | values).items() if value is not None}
        self._write(values)

    def draw(self, figures: Mapping[str, Figure]) -> None:
        """Put `figures` on the board, as images of their names."""
        with self.board.as_default(step=self.entries[-1]["step"]):
            for name, figure in figures.items():
                canvas = FigureCanvasAgg(figure)
                canvas.draw()  # type: ignore[no-untyped-call]
                pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
                tf.summary.image(name, pixels[None, :, :, :3])
        self.board.flush()
        for events in self._board.rglob("events.*"):
            mirror.changed(events)  # here, and not with each number: they are uploaded whole

    def _write(self, new: dict[str, Any]) -> None:
        """Write all entries to the file, and the numbers that are `new` in the last one to the board."""
        with storage.replacing(self._path) as temporary:  # whole at every moment, so that a killed run can read it
            temporary.write_text("".join(json.dumps(entry) + "\n" for entry in self.entries))
        others = {name: value for name, value in new.items() if name not in {_TRAINED, _WATCHED}}
        self._show(self.board, [*_numbers(others, ()), *_losses(new.get(_TRAINED, {}))])
        if watched := [(f"loss/{name}", value) for name, value in _numbers(new.get(_WATCHED) or {}, ())]:
            self._watched = self._watched or tf.summary.create_file_writer(str(self._board / _WATCHED))
            self._show(self._watched, watched)

    def _show(self, board: Any, numbers: Iterable[tuple[str, float]]) -> None:
        with board.as_default(step=self.entries[-1]["step"]):
            for name, value in numbers:
                tf.summary.scalar(name, value)
        board.flush()


def _losses(table: LossTable) -> Iterator[tuple[str, float]]:
    phases = Counter(name for losses in table.values() for name in losses)
    for phase, losses in table.items():
        for name, value in losses.items():
            yield f"loss/{name}" + (f"/{phase}" if phases[name] > 1 else ""), value


def _numbers(entry: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    for name, value in entry.items():
        if isinstance(value, dict):
            yield from _numbers(value, (*path, name))
        elif isinstance(value, int | float):
            yield "/".join((*path, name)), float(value)


class ProgressBar:
    """Steps as they are done: showers/s, time left, and the losses of the phases. Plain lines off a terminal."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._done = engine, engine.step
        batch = engine.global_batch
        items, total, done = engine.config.domain.items, engine.last_step * batch, engine.step * batch
        self._bar = progress_bar("train", total, items, done, note="building the graph")
        self._shown = -math.inf  # when losses were named last; the first step's take the note's place at once

    def update(self, losses: npt.NDArray[Any]) -> None:
        """Show the engine's present step, and `losses`, its last."""
        if time.monotonic() - self._shown > 1.0:  # naming losses every step would cost small models time
            self._shown = time.monotonic()
            self._bar.set_postfix_str(_summary(self._engine.table(losses)), refresh=False)
        step = self._engine.step
        self._bar.update((step - self._done) * self._engine.global_batch)
        self._done = step

    def close(self) -> None:
        self._bar.close()


def _summary(table: LossTable) -> str:
    last = list(table.values())[-1]
    return " ".join(f"{name} {value:.3g}" for name, value in last.items())
