"""One pass over a set of showers: features into a temporary file, histograms of features and of cells."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from calopipe.progress import progress_bar
from calopipe.showers.cells import FloatArray
from calopipe.showers.challenge.highlevel import Array, HighLevel, high_level
from calopipe.showers.flaws import flaws_of_hits
from calopipe.showers.hits import Hits
from calopipe.showers.positions import positions
from calopipe.showers.splits import ALL, event_digests
from validation.measure.sets import COUNT, ShowerSet

_PIECE = 4_000  # rows of features in memory at a time: 12 MB
_MEV = 1e3

Index = npt.NDArray[np.integer]


class Vectors:
    """Features of a set (N, f) in a temporary file, gone once the process ends; `largest` is each one's absolute
    maximum (1 where all are zero) and `centre` about its mean.
    """

    def __init__(self, features: int) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the vectors
        weakref.finalize(self, self._file.close)
        self._features, self._rows = features, 0
        self._largest, self._sum = np.zeros(features), np.zeros(features)

    @classmethod
    def of(cls, values: Array) -> Vectors:
        """Those of an array."""
        vectors = cls(values.shape[1])
        vectors.add(values)
        return vectors

    def add(self, values: Array) -> None:
        if not len(values):
            return
        self._file.write(np.ascontiguousarray(values, dtype=np.float64).data)
        self._rows += len(values)
        self._largest = np.maximum(self._largest, np.abs(values).max(axis=0))
        self._sum += values.sum(axis=0)

    @property
    def largest(self) -> Array:
        return np.where(self._largest > 0, self._largest, 1.0)

    @property
    def centre(self) -> Array:
        return self._sum / max(self._rows, 1)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, rows: Index) -> Array:
        """Some rows, (n, f), in the order of their numbers."""
        order = np.argsort(rows, kind="stable")
        found = np.empty((len(rows), self._features))
        ends = np.searchsorted(rows[order], np.arange(0, len(self) + _PIECE, _PIECE))
        for number, (start, values) in enumerate(self.pieces()):
            inside = order[ends[number] : ends[number + 1]]
            found[inside] = values[rows[inside] - start]
        return found

    def pieces(self) -> Iterator[tuple[int, Array]]:
        """All rows, a piece at a time, each with its first row's number."""
        self._file.flush()
        size = self._features * 8
        for start in range(0, len(self), _PIECE):
            count = min(_PIECE, len(self) - start)
            stored = os.pread(self._file.fileno(), count * size, start * size)
            yield start, np.frombuffer(stored).reshape(count, self._features)


def pieces(showers: ShowerSet, doing: str) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Cells (n, angle, radius, layer) and incident energies (n,) of the showers of a set, some at a time.

    As the challenge does, showers without energy are kept. Cells that are not finite numbers of zero or more are left
    out of a candidate, and their showers out of Monte Carlo; both are reported by the verdict.
    """
    with progress_bar(f"{showers.name}, {doing}", len(showers), "showers") as bar:
        for file, mask in zip(showers.files, showers.masks, strict=True):
            for first, stored in file.pieces(0, file.events):
                inside = slice(first, first + len(stored))
                chosen, energy = mask[inside], file.energy_gev[inside]
                bar.update(int(chosen.sum()))
                hits = Hits.of(stored)
                if showers.selection.split != ALL:
                    of_events = event_digests(hits, energy, file.theta_rad[inside])
                    chosen = chosen & showers.selection.rule.mask(showers.selection.split, file.path.name, of_events)
                counted = showers.selection.bad_event == COUNT
                cells = np.where(np.isfinite(stored) & (stored > 0), stored, 0) if counted else stored
                if not counted:
                    chosen = chosen & (flaws_of_hits(hits) == 0)
                if chosen.any():
                    yield cells[chosen], energy[chosen]


def features(showers: ShowerSet, doing: str = "features") -> Iterator[tuple[HighLevel, Array]]:
    """High-level features of a set, and its cells that exist in MeV, (n, cells), some showers at a time."""
    exists = positions(showers.geometry).exists
    unit = showers.geometry.file_unit_gev * _MEV
    for cells, energy in pieces(showers, doing):
        flat = cells.reshape(len(cells), -1, exists.shape[0])
        yield high_level(cells, energy, showers.geometry), flat[:, exists.T].astype(np.float64) * unit
