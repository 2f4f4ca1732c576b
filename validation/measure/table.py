"""Observables of sets that need not fit in memory: a table on disk, of which a piece is in memory at a time."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from validation.measure.observables import Observables

PIECE_SHOWERS = 2_000  # read at once: a few MB
SAMPLE_SHOWERS = 10_000  # of each set: for bins, fits, a classifier and nearest neighbours
_NAMES = [field.name for field in fields(Observables)]

Labels = npt.NDArray[np.floating]
Index = npt.NDArray[np.intp]


class Table:
    """Rows in a temporary file, which is gone once the process ends, however it ends.

    In memory are the labels, (N,) float32 or int32, and which showers are empty: 17 bytes a shower. A shower is empty
    without a hit; the reader of the showers adds those that are not above the cut.
    """

    def __init__(self, parts: Iterable[Observables]) -> None:
        """Write `parts`, one after the other. OSError: the folder for temporary files (TMPDIR) is full."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the table
        weakref.finalize(self, self._file.close)
        self._row: np.dtype[np.void] | None = None
        labels: list[tuple[npt.NDArray[Any], ...]] = []
        for part in parts:
            self._row = self._row or _row_of(part)
            rows = np.empty(len(part), dtype=self._row)
            for name in _NAMES:
                rows[name] = getattr(part, name)
            self._write(rows)
            floats = (column.astype(np.float32) for column in (part.energy_gev, part.theta_rad, part.phi_rad))
            labels.append((*floats, part.particle, part.empty))
        nothing = tuple(np.empty(0, kind) for kind in (np.float32, np.float32, np.float32, np.int32, np.bool_))
        self.energy_gev, self.theta_rad, self.phi_rad, self.particle, self.empty = map(
            np.concatenate, zip(nothing, *labels, strict=True)
        )

    def _write(self, rows: npt.NDArray[np.void]) -> None:
        try:
            self._file.write(rows.data)
            self._file.flush()
        except OSError as error:
            with suppress(OSError):
                self._file.close()  # what it still holds cannot be written
            error.filename = f"{tempfile.gettempdir()} (TMPDIR)"
            raise

    def __len__(self) -> int:
        return len(self.energy_gev)

    def __getitem__(self, rows: slice | Index, /) -> Observables:
        """The rows of a slice without a step, or those of an index in rising order."""
        if isinstance(rows, slice):
            return self._read(*rows.indices(len(self))[:2])
        if not len(rows):
            return self._read(0, 0)
        parts, begin = [], 0
        while begin < len(rows):  # in spans of at most four pieces, so that memory is bounded
            end = int(np.searchsorted(rows, rows[begin] + 4 * PIECE_SHOWERS))
            span = self._read(int(rows[begin]), int(rows[end - 1]) + 1)
            parts.append(span[rows[begin:end] - rows[begin]])
            begin = end
        return Observables.joined(parts)

    def pieces(self) -> Iterator[Observables]:
        return (self[start : start + PIECE_SHOWERS] for start in range(0, len(self), PIECE_SHOWERS))

    def _read(self, start: int, stop: int) -> Observables:
        assert self._row is not None
        size = self._row.itemsize
        # Not a memory map: the kernel maps pages around those touched, so that memory would grow with the table.
        stored = os.pread(self._file.fileno(), max(stop - start, 0) * size, start * size)
        rows = np.frombuffer(stored, dtype=self._row)
        return Observables(*(np.ascontiguousarray(rows[name]) for name in _NAMES))


class Subset(Table):
    """Some rows of a table, `index` (n,) in rising order."""

    def __init__(self, table: Table, index: Index) -> None:
        self._table, self._index = table, index
        labels = table.energy_gev, table.theta_rad, table.phi_rad, table.particle, table.empty
        self.energy_gev, self.theta_rad, self.phi_rad, self.particle, self.empty = (label[index] for label in labels)

    def __getitem__(self, rows: slice | Index, /) -> Observables:
        return self._table[self._index[rows]]


Rows = Table | Observables  # on disk, or in memory


def selected(rows: Rows, mask: npt.NDArray[np.bool_]) -> Rows:
    """The rows that a mask (N,) selects."""
    if mask.all():
        return rows
    return Subset(rows, np.flatnonzero(mask)) if isinstance(rows, Table) else rows[mask]


class Tables(NamedTuple):
    """Two sets of showers that are compared.

    `per_event`: showers of the candidate for each of the reference, in its order, where the two are paired, else 0.
    """

    reference: Rows
    candidate: Rows
    per_event: int


class Samples(NamedTuple):
    """Some showers of `Tables`, in memory and in order. `per_event` may be lower than theirs."""

    reference: Observables
    candidate: Observables
    per_event: int


def samples(tables: Tables, showers: int, rng: np.random.Generator) -> Samples:
    """At most `showers` of each set; in paired sets events with their partners, or the first few of them."""
    reference, candidate, per_event = tables
    chosen = np.sort(rng.choice(len(reference), min(len(reference), showers), replace=False))
    if not per_event:
        return Samples(reference[chosen], thinned(candidate, showers, rng), 0)
    copies = min(per_event, max(showers // max(len(chosen), 1), 1))
    partners = (chosen[:, None] * per_event + np.arange(copies)).reshape(-1)
    return Samples(reference[chosen], candidate[partners], copies)


def thinned(rows: Rows, showers: int, rng: np.random.Generator) -> Observables:
    """At most so many rows, in memory and in order."""
    return rows[np.sort(rng.choice(len(rows), min(len(rows), showers), replace=False))]


def _row_of(part: Observables) -> np.dtype[np.void]:
    columns = [(name, values.dtype, values.shape[1:]) for name in _NAMES for values in (getattr(part, name),)]
    return np.dtype(columns)
