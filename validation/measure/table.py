"""Observables of sets that need not fit in memory: a table on disk, of which a piece is in memory at a time. Which rows
of two tables are compared.
"""

from __future__ import annotations

import logging
import os
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import stats

from calopipe.errors import InputError
from calopipe.labels import PHI
from calopipe.progress import say
from calopipe.storage import Location
from validation.measure.observables import Observables

logger = logging.getLogger(__name__)

PIECE_SHOWERS = 2_000  # read at once: a few MB
SAMPLE_SHOWERS = 10_000  # of each set: for bins, fits, a classifier and nearest neighbours
LABELS = (("energy_gev", "GeV", 1.0), ("theta_rad", "degrees", 180 / np.pi), (PHI, "degrees", 180 / np.pi))
_LABEL_SIGNIFICANCE = 1e-6  # labels that differ by chance this seldom are another beam
_ENOUGH_LABELS = 100_000
_MOST = 0.5  # of the labels: where more agree, that not all do may be a mistake
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


Rows_co = TypeVar("Rows_co", bound=Rows, covariant=True)


class Compared(NamedTuple, Generic[Rows_co]):
    """Two sets of showers that are compared.

    `per_event`: showers of the candidate for each of the reference, in its order, where the two are paired, else 0.
    """

    reference: Rows_co
    candidate: Rows_co
    per_event: int


Tables = Compared[Rows]
Samples = Compared[Observables]  # some showers of each set, in memory and in order; `per_event` may be lower


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


def pairing(reference: Table, candidate: Table, path: Location) -> tuple[int, Rows]:
    """How many consecutive showers of the candidate have the labels of each of the reference, in order (0: unpaired),
    and the rows of the reference that are compared. `path` is the candidate's in an error.

    A candidate may have been made for every shower of the reference, for those that are not empty, or for those of
    them that its model knows, which span what its own labels do. Sets whose labels are all alike are not paired.
    InputError: unpaired, with labels of another distribution, so of another beam.
    """
    filled = selected(reference, ~reference.empty)
    forms = reference, filled, selected(filled, _spanned(filled, candidate))
    for rows in forms:
        per_event = _partners(rows, candidate)
        if per_event and np.array_equal(np.repeat(rows.particle, per_event), candidate.particle):
            if len(rows) < len(filled):
                say(
                    f"{len(filled) - len(rows)} showers of Monte Carlo left out: the candidate has none of their labels"
                )
            return per_event, rows
    _require_same_mix(reference.particle, candidate.particle, path)
    for name, unit, scale in LABELS:
        values: Labels = getattr(candidate, name)
        expected = [_some(getattr(rows, name)) for rows in (reference, filled) if len(rows)]
        if all(stats.ks_2samp(known, _some(values), method="asymp").pvalue < _LABEL_SIGNIFICANCE for known in expected):
            raise InputError(
                f"{path}: its {name.partition('_')[0]} is distributed unlike the reference's (means "
                f"{values.mean() * scale:.4g} and {expected[0].mean() * scale:.4g} {unit}); compare sets of one beam, "
                "or give the reference the labels came from"
            )
    return 0, reference


def _require_same_mix(expected: npt.NDArray[np.int32], given: npt.NDArray[np.int32], path: Location) -> None:
    """InputError where the shares of the kinds of particles differ by more than chance."""
    names = np.union1d(expected, given)
    counts = np.array([[np.count_nonzero(kinds == name) for name in names] for kinds in (expected, given)])
    if len(names) > 1 and stats.chi2_contingency(counts).pvalue < _LABEL_SIGNIFICANCE:
        usual, mix = (
            ", ".join(f"{share:.0%} {name}" for name, share in zip(names, count / count.sum(), strict=True))
            for count in counts
        )
        raise InputError(
            f"{path}: its particles are {mix}, those of the reference {usual}; compare sets of one "
            "beam, or give the reference the labels came from"
        )


def _spanned(rows: Rows, candidate: Table) -> npt.NDArray[np.bool_]:
    """Which rows are of a kind, and have labels within the span, of the candidate's, but for rounding, (N,)."""
    inside = np.isin(rows.particle, candidate.particle)
    for name, _, _ in LABELS:
        known, values = getattr(rows, name), getattr(candidate, name)
        room = 1e-6 * np.abs(values).max()
        inside &= (known >= values.min() - room) & (known <= values.max() + room)
    return np.asarray(inside)


def _some(labels: Labels) -> Labels:
    """Enough of them to tell one beam from another, at random, since a set may repeat its labels."""
    if len(labels) <= _ENOUGH_LABELS:
        return labels
    return np.random.default_rng(0).choice(labels, _ENOUGH_LABELS, replace=False)


def _partners(reference: Rows, candidate: Table) -> int:
    """Showers for each of the reference's events, 0 where labels differ by more than rounding or do not vary."""
    known, given = ([getattr(rows, name) for name, _, _ in LABELS] for rows in (reference, candidate))
    per_event, rest = divmod(len(candidate), max(len(reference), 1))
    if not len(reference) or rest or not per_event or all(np.ptp(values) == 0 for values in known):
        return 0
    alike = np.ones(len(candidate), dtype=np.bool_)
    for expected, values in zip(known, given, strict=True):
        alike &= np.isclose(np.repeat(expected, per_event), values, rtol=1e-5, atol=0)
    if alike.mean() > _MOST and not alike.all():
        logger.warning(
            "compared as unpaired: of %d showers, %d have not the energy and angle of their partner, the first of "
            "these is %d",
            len(alike),
            int((~alike).sum()),
            int(np.argmin(alike)),
        )
    return per_event if alike.all() else 0


def _row_of(part: Observables) -> np.dtype[np.void]:
    columns = [(name, values.dtype, values.shape[1:]) for name in _NAMES for values in (getattr(part, name),)]
    return np.dtype(columns)
