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
from training.model_folder import HISTORY, TENSORBOARD
from training.models.base import LossTable

_TRAINED, _WATCHED = "train", "validation"  # names of the losses in an entry, by split


def entries_until(folder: Path, step: int) -> list[dict[str, Any]]:
    """The entries of the history in the model's `folder`, up to `step`."""
    path = folder / HISTORY
    lines = path.read_text().splitlines() if path.is_file() else []
    try:
        return [entry for entry in map(json.loads, lines) if entry["step"] <= step]
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: not the history of a training; restore it, or delete it and lose it") from None


class History:
    """One JSON line an epoch in the model folder, and the same numbers for TensorBoard."""

    def __init__(self, folder: Path, step: int) -> None:
        """Continue the history in `folder` from its state at `step`."""
        self._path = folder / HISTORY
        self.entries = entries_until(folder, step)
        self._board = folder / TENSORBOARD
        self.board = tf.summary.create_file_writer(str(self._board))
        self._watched: Any = None  # the writer for the validation split, a TensorBoard run of its own

    def add(self, entry: dict[str, Any]) -> None:
        """Append `entry`, which holds its "step"; on the board, nested numbers are named by their path.

        A loss is "loss/NAME" for both splits, in two runs, so that their curves lie over each other. A loss of the
        training that several phases have is "loss/NAME/PHASE".
        """
        self.entries.append(entry)
        self._write(entry)

    def amend(self, values: dict[str, Any]) -> None:
        """Add `values` to the last entry; a value of None is removed from the entry."""
        self.entries[-1] = {name: value for name, value in (self.entries[-1] | values).items() if value is not None}
        self._write(values)

    def draw(self, figures: Mapping[str, Figure]) -> None:
        """Put `figures` on the board, as images with their names."""
        with self.board.as_default(step=self.entries[-1]["step"]):
            for name, figure in figures.items():
                canvas = FigureCanvasAgg(figure)
                canvas.draw()  # type: ignore[no-untyped-call]
                pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
                tf.summary.image(name, pixels[None, :, :, :3])
        self.board.flush()
        for events in self._board.rglob("events.*"):
            mirror.changed(events)  # here, and not with each number: these files are uploaded whole

    def _write(self, new: dict[str, Any]) -> None:
        """Write all entries to the file, and to the board the numbers that are `new` in the last entry."""
        with storage.replacing(self._path) as temporary:  # the file is whole at every moment, also if the run is killed
            temporary.write_text("".join(json.dumps(entry) + "\n" for entry in self.entries))
        facts = {name: value for name, value in new.items() if name not in {_TRAINED, _WATCHED}}
        self._show(self.board, [*_numbers(facts, ()), *_losses(new.get(_TRAINED, {}))])
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
    """Shows showers/s, time left, and the losses of the last phase. Where there is no terminal, prints plain lines."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._done = engine, engine.step
        batch = engine.global_batch
        items, total, done = engine.config.domain.items, engine.last_step * batch, engine.step * batch
        self._bar = progress_bar("train", total, items, done, note="building the graph")
        self._shown = -math.inf  # when losses were shown last; those of the first step replace the note at once

    def update(self, losses: npt.NDArray[Any]) -> None:
        """Show the engine's present step, and `losses`, those of its last step."""
        if time.monotonic() - self._shown > 1.0:  # showing losses at every step would cost small models time
            self._shown = time.monotonic()
            *_, last = self._engine.table(losses).values()
            self._bar.set_postfix_str(" ".join(f"{name} {value:.3g}" for name, value in last.items()), refresh=False)
        step = self._engine.step
        self._bar.update((step - self._done) * self._engine.global_batch)
        self._done = step

    def close(self) -> None:
        self._bar.close()
