"""One pass over a set of showers, in this process or in several: its table, digests, bad cells and some pictures."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import connection

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from calopipe.labels import PARTICLE, PHI, MoreLabels, taken
from calopipe.progress import progress_bar
from calopipe.showers.cells import FloatArray
from calopipe.showers.files import ShowerFile
from calopipe.showers.flaws import CORRECT_OR_SKIP, SKIP, STOP
from calopipe.showers.hits import Digests, Hits
from calopipe.showers.selection import Examined, Selection
from validation.measure.observables import Observables, observe_hits
from validation.measure.pictures import Picture, pictures
from validation.measure.sets import COUNT, ShowerSet
from validation.measure.table import Table

_GALLERY = 3  # showers of each set of which pictures are kept, of the first that are handed to a process
_TASK_SHOWERS = 500  # handed to a process at once
_TASKS_AHEAD = 3  # for each process, so that none waits and results do not pile up


@dataclass(frozen=True)
class Measured:
    """What one pass over a set leaves: `digests` (see `Hits.digests`) of the showers with energy, and how many are
    `bad`, with a cell that is not a finite number of zero or more, and where the first is.
    """

    table: Table
    digests: Digests
    bad: int
    first_bad: str
    gallery: tuple[Picture, ...]


@dataclass(frozen=True)
class _Task:
    """Showers `start` to `stop` of a file, which comes without its labels; of those `chosen` (stop - start,) the ones
    in the split are read.
    """

    file: ShowerFile
    start: int
    stop: int
    chosen: npt.NDArray[np.bool_]
    selection: Selection
    energy_gev: FloatArray
    theta_rad: FloatArray
    more: MoreLabels
    pictures: int


@dataclass(frozen=True)
class _Piece:
    observables: Observables
    above_cut: npt.NDArray[np.bool_]
    digests: Digests
    bad: int
    first_bad: str
    pictures: list[Picture]


class Reader:
    """Measures sets, in this process or in those of a pool."""

    def __init__(self, pool: ProcessPoolExecutor | None, workers: int) -> None:
        self._pool, self._ahead = pool, workers * _TASKS_AHEAD

    def measure(self, showers: ShowerSet) -> Measured:
        """Read a set once, piece by piece.

        InputError: a corrupt shower where `bad_event` is "stop", or no Monte Carlo with energy.
        """
        digests: list[Digests] = []
        above_cut: list[npt.NDArray[np.bool_]] = []
        gallery: list[Picture] = []
        bad, first_bad = 0, ""

        def parts() -> Iterator[Observables]:
            nonlocal bad, first_bad
            with progress_bar(showers.name, len(showers), "showers") as bar:
                for task, piece in self._pieces(_tasks(showers)):
                    digests.append(piece.digests)
                    above_cut.append(piece.above_cut)
                    bad, first_bad = bad + piece.bad, first_bad or piece.first_bad
                    gallery.extend(piece.pictures)
                    bar.update(int(task.chosen.sum()))
                    yield piece.observables

        table = Table(parts())
        table.empty |= ~np.concatenate(above_cut)
        if table.empty.all() and showers.selection.bad_event != COUNT:
            raise showers.nothing_left()
        return Measured(table, np.concatenate(digests), bad, first_bad, tuple(gallery))

    def _pieces(self, tasks: Iterator[_Task]) -> Iterator[tuple[_Task, _Piece]]:
        if self._pool is None:
            yield from ((task, _measure(task)) for task in tasks)
            return
        waiting: deque[tuple[_Task, Future[_Piece]]] = deque()
        try:
            for task in tasks:
                waiting.append((task, _submitted(self._pool, task)))
                if len(waiting) >= self._ahead:
                    done, piece = waiting.popleft()
                    yield done, piece.result()
            while waiting:
                done, piece = waiting.popleft()
                yield done, piece.result()
        except BrokenProcessPool:
            raise InputError(
                "a process that measures showers died, as it does where memory runs out; give fewer --workers"
            ) from None


@contextmanager
def open_reader(workers: int) -> Iterator[Reader]:
    """A reader with so many processes, or within this one where it is one. InputError: less than one."""
    if workers < 1:
        raise InputError(f"--workers is {workers}, expected 1 or more")
    if workers == 1:
        yield Reader(None, workers)
        return
    # fresh processes: HDF5 and threads do not survive a fork
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_end_with_parent)
    try:
        yield Reader(pool, workers)
    finally:
        pool.shutdown(cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, task: _Task) -> Future[_Piece]:
    """Processes are started here, with Ctrl-C masked: the signal reaches all, the first one alone acts on it."""
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(_measure, task)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)


def _end_with_parent() -> None:
    """End this process when the one that started it is killed."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _tasks(showers: ShowerSet) -> Iterator[_Task]:
    pictures = _GALLERY
    for file, mask in zip(showers.files, showers.masks, strict=True):
        bare = replace(
            file, energy_gev=file.energy_gev[:0], theta_rad=file.theta_rad[:0], mtheta_rad=None,
            more={}, label_flaws=file.label_flaws[:0],
        )  # fmt: skip
        size = max(_TASK_SHOWERS // file.chunk_events, 1) * file.chunk_events
        for start in range(0, file.events, size):
            part = slice(start, min(start + size, file.events))
            chosen = mask[part]
            if chosen.any():
                yield _Task(
                    bare, part.start, part.stop, chosen, showers.selection, file.energy_gev[part],
                    file.theta_rad[part], taken(file.more, part), pictures,
                )  # fmt: skip
                pictures = 0


def _measure(task: _Task) -> _Piece:
    parts: list[Observables] = []
    above_cut: list[npt.NDArray[np.bool_]] = []
    digests: list[Digests] = []
    shown: list[Picture] = []
    bad_showers, first_bad = 0, ""
    geometry, selection = task.file.geometry, task.selection
    for first, cells in task.file.pieces(task.start, task.stop):
        place = slice(first - task.start, first - task.start + len(cells))
        labels = task.energy_gev[place], task.theta_rad[place], taken(task.more, place)
        good_labels = np.zeros(len(cells), dtype=np.int8)  # others are not chosen
        showers = Examined(selection, task.file.path.name, geometry, first, cells, *labels, good_labels)
        hits, chosen = showers.hits, task.chosen[place] & showers.in_split
        bad = chosen & (showers.flaws != 0)
        if bad.any() and not first_bad:
            event = int(np.argmax(bad))
            if selection.bad_event == STOP:
                raise InputError(f"{task.file.flaw(first + event)}; {CORRECT_OR_SKIP}")
            first_bad = f"event {first + event} of {task.file.path.name}"
        kept = chosen & ~bad if selection.bad_event == SKIP else chosen
        if selection.bad_event == COUNT and bad.any():
            hits = _without_bad_cells(hits)
        bad_showers += int(bad.sum())
        hits = hits[kept]
        energy, theta, more = labels[0][kept], labels[1][kept], taken(labels[2], kept)
        table = observe_hits(hits, energy, theta, geometry, particle=more.get(PARTICLE), phi_rad=more.get(PHI))
        parts.append(table)
        above_cut.append(selection.above_cut(hits, geometry))
        digests.append(hits.digests()[table.column("visible_gev") > 0])
        if len(shown) < task.pictures:
            shown += pictures(cells[kept], table, geometry, task.pictures - len(shown))
    above, hashes = np.concatenate(above_cut), np.concatenate(digests)
    return _Piece(Observables.joined(parts), above, hashes, bad_showers, first_bad, shown)


def _without_bad_cells(hits: Hits) -> Hits:
    good = np.isfinite(hits.value) & (hits.value > 0)
    return Hits(hits.row[good], hits.cell[good], hits.value[good], hits.shape)
