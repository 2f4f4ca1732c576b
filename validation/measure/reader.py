"""One pass over a set of showers, in this process or in several: its table, digests, bad cells and some pictures."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from multiprocessing import connection
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from calopipe.events.splits import Digests
from calopipe.labels import PARTICLE, PHI, taken
from calopipe.progress import progress_bar
from calopipe.showers.hits import Hits
from validation.measure.observables import Observables, observe_hits
from validation.measure.pictures import Picture, pictures
from validation.measure.sets import COUNT, ShowerSet, Stretch
from validation.measure.table import Table

_GALLERY = 3  # showers of each set of which pictures are kept, of the first that are handed to a process

Map = Callable[..., Iterator[Any]]  # `map`, or the same in other processes


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
class _Findings:
    """What is found in a stretch of a set beside its table."""

    above_cut: npt.NDArray[np.bool_]
    digests: Digests
    bad: int
    first_bad: str
    pictures: list[Picture]


def measure(showers: ShowerSet, over: Map = map) -> Measured:
    """Read a set once, piece by piece, by `map` or by that of `processes`.

    InputError: a corrupt shower where `bad_event` is "stop", or no Monte Carlo with energy.
    """
    stretches = list(showers.stretches())
    made: list[_Findings] = []

    def parts() -> Iterator[Observables]:
        with progress_bar(showers.name, len(showers), "showers") as bar:
            found = over(_measure, stretches, chain([_GALLERY], repeat(0)))
            for stretch, (observables, findings) in zip(stretches, found, strict=False):
                bar.update(int(stretch.chosen.sum()))
                made.append(findings)
                yield observables

    table = Table(parts())
    table.empty |= ~np.concatenate([each.above_cut for each in made])
    if table.empty.all() and showers.selection.bad_event != COUNT:
        raise showers.nothing_left()
    return Measured(
        table,
        np.concatenate([each.digests for each in made]),
        sum(each.bad for each in made),
        next((each.first_bad for each in made if each.first_bad), ""),
        tuple(picture for each in made for picture in each.pictures),
    )


@contextmanager
def processes(workers: int) -> Iterator[Map]:
    """`map` in so many processes, or within this one where it is one. InputError: less than one, or one died."""
    if workers < 1:
        raise InputError(f"--workers is {workers}, expected 1 or more")
    if workers == 1:
        yield map
        return
    # fresh processes: HDF5 and threads do not survive a fork
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_end_with_parent)

    def over(*asked: Any) -> Iterator[Any]:
        """Processes are started here, with Ctrl-C masked: the signal reaches all, the first one alone acts on it."""
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return pool.map(*asked)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)

    try:
        yield over
    except BrokenProcessPool:
        raise InputError(
            "a process that measures showers died, as it does where memory runs out; give fewer --workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """End this process when the one that started it is killed."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _measure(stretch: Stretch, shown: int) -> tuple[Observables, _Findings]:
    """Measure a stretch of a set, and keep pictures of its first so many showers."""
    tables: list[Observables] = []
    above_cut: list[npt.NDArray[np.bool_]] = []
    digests: list[Digests] = []
    gallery: list[Picture] = []
    bad_showers, first_bad = 0, ""
    geometry, selection = stretch.file.geometry, stretch.selection
    for part, kept, bad in stretch.parts():
        hits = part.hits
        if bad.any():
            bad_showers += int(bad.sum())
            first_bad = first_bad or f"event {part.first + int(np.argmax(bad))} of {part.file}"
            if selection.bad_event == COUNT:
                hits = _without_bad_cells(hits)
        hits, more = hits[kept], taken(part.more, kept)
        labels = part.energy_gev[kept], part.theta_rad[kept]
        table = observe_hits(hits, *labels, geometry, particle=more.get(PARTICLE), phi_rad=more.get(PHI))
        tables.append(table)
        above_cut.append(selection.above_cut(hits, geometry))
        digests.append(hits.digests()[table.column("visible_gev") > 0])
        if len(gallery) < shown:
            gallery += pictures(part.cells[kept], table, geometry, shown - len(gallery))
    findings = _Findings(np.concatenate(above_cut), np.concatenate(digests), bad_showers, first_bad, gallery)
    return Observables.joined(tables), findings


def _without_bad_cells(hits: Hits) -> Hits:
    good = np.isfinite(hits.value) & (hits.value > 0)
    return Hits(hits.row[good], hits.cell[good], hits.value[good], hits.shape)
