"""Sets of showers: their files, and the table of observables that one pass over the files makes.

The observables need not fit in memory: a table is on disk, and one piece of it is in memory at a time.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from calopipe.events.splits import Digests
from calopipe.events.tolerance import CORRECT_OR_SKIP, SKIP, STOP
from calopipe.labels import PARTICLE, PHI, taken
from calopipe.progress import progress_bar
from calopipe.showers.cells import FloatArray, Geometry, Index, Mask
from calopipe.showers.files import Examined, ShowerFile, open_all
from calopipe.showers.selection import Selection
from calopipe.storage import Location
from validation.measure.observables import Observables, observe
from validation.measure.pictures import Picture, pictures

PIECE_SHOWERS = 2_000  # showers of a table that are read at once: a few MB
SAMPLE_SHOWERS = 10_000  # showers of each set for bins, fits, a classifier and nearest neighbours
_NAMES = [field.name for field in fields(Observables)]
_GALLERY = 3  # showers of each set whose pictures are kept
COUNT = "count"  # `bad_event` for a candidate: its corrupt showers are a finding

Labels = npt.NDArray[np.floating]


@dataclass(frozen=True)
class ShowerSet:
    """Files and, for each file, a mask (events,) of the events to read: good labels, and possibly in the split.

    The cells of an event decide whether it is in the split, so this is found when the event is measured. Showers that
    are not above the selection's cut count as empty. A corrupt shower is an error if the selection's `bad_event` is
    "stop", left out if it is "skip", and counted if it is "count".
    """

    files: tuple[ShowerFile, ...]
    masks: tuple[Mask, ...]
    name: str
    selection: Selection

    @classmethod
    def open(cls, paths: Sequence[Location], name: str, selection: Selection) -> ShowerSet:
        """Open files; check headers, labels, and that any event may be in the split. `name` is for messages."""
        count = selection.bad_event == COUNT
        files = open_all(paths, replace(selection, bad_event=SKIP) if count else selection)
        for file in files if count else ():
            if file.label_flaws.any():
                flawed = file.flaw(int(np.argmax(file.label_flaws != 0)))
                raise InputError(f"{flawed}; correct it, or leave such showers out of the file")
        masks = [(file.label_flaws == 0) & selection.rule.may_hold(selection.split, file.path.name) for file in files]
        opened = cls(tuple(files), tuple(masks), name, selection)
        if not any(mask.any() for mask in masks):
            raise opened.nothing_left()
        return opened

    def parts(self, doing: str = "") -> Iterator[tuple[Examined, Mask, Mask]]:
        """Pieces of n showers, which of these are kept, and which are in the split and bad, (n,) each.

        Each cell is read once. If bad showers count, they are kept, and their cells that are not finite or are negative
        become zero. InputError: a bad shower, and the selection stops at bad ones. A progress bar is shown.
        """
        with progress_bar(f"{self.name}{doing}", len(self), "showers") as bar:
            for file, mask in zip(self.files, self.masks, strict=True):
                for part in file.examined(self.selection) if mask.any() else ():
                    may_count = mask[part.first : part.first + len(part)]
                    bar.update(int(may_count.sum()))
                    chosen = may_count & part.in_split
                    bad = chosen & (part.flaws != 0)
                    if self.selection.bad_event == STOP and bad.any():
                        raise InputError(f"{file.flaw(part.first + int(np.argmax(bad)))}; {CORRECT_OR_SKIP}")
                    if self.selection.bad_event != COUNT:
                        yield part, chosen & ~bad, bad
                    else:
                        yield _without_bad_cells(part) if bad.any() else part, chosen, bad

    def nothing_left(self) -> InputError:
        """The error for a set without a shower to compare."""
        cut_gev = self.selection.cut_gev
        above = f" and above the cut of {cut_gev} GeV" if cut_gev else " and holds energy"
        return InputError(
            f"--split {self.selection.split}: none of the {sum(file.events for file in self.files)} showers of "
            f"{len(self.files)} {self.name} file(s) is in it{above}; give more files, another --split or, "
            "where cells are in another unit, --geometry file_unit_gev=..."
        )

    def __len__(self) -> int:
        """The number of showers that are read."""
        return sum(int(mask.sum()) for mask in self.masks)

    @property
    def geometry(self) -> Geometry:
        return self.files[0].geometry

    def labels(self, name: str) -> FloatArray:
        """The label `name` of every shower that is read; 0 if a file does not have it."""
        of = [file.more.get(PHI, np.zeros(file.events)) if name == PHI else getattr(file, name) for file in self.files]
        return np.concatenate([values[mask] for values, mask in zip(of, self.masks, strict=True)], dtype=np.float32)

    def describe(self) -> list[dict[str, Any]]:
        """Each file's path, content and number of events, and how the model of generated showers was trained."""
        return [
            {"file": str(file.path), "sha256": file.sha256, "events": file.events}
            | ({"made_by": file.made_by} if file.made_by else {})
            for file in self.files
        ]


def _without_bad_cells(part: Examined) -> Examined:
    return replace(part, cells=np.where(np.isfinite(part.cells) & (part.cells > 0), part.cells, 0))


class Table:
    """Rows in a temporary file, which is gone when the process ends, however it ends.

    The labels, (N,) float32 or int32, and which showers are empty are in memory: 17 bytes a shower. A shower without a
    hit is empty; `measure` adds the showers that are not above the cut.
    """

    def __init__(self, parts: Iterable[Observables]) -> None:
        """Write `parts`, one or more, in their order. OSError: the folder for temporary files (TMPDIR) is full."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the table
        weakref.finalize(self, self._file.close)
        self._row: np.dtype[np.void]  # the type of a row, the same in every part
        labels: list[tuple[npt.NDArray[Any], ...]] = []
        for part in parts:
            columns = {name: getattr(part, name) for name in _NAMES}
            row = np.dtype([(name, values.dtype, values.shape[1:]) for name, values in columns.items()])
            assert not labels or row == self._row, "parts of different calorimeters"
            self._row = row
            rows = np.empty(len(part), dtype=row)
            for name, values in columns.items():
                rows[name] = values
            self._write(rows)
            floats = (column.astype(np.float32) for column in (part.energy_gev, part.theta_rad, part.phi_rad))
            labels.append((*floats, part.particle, part.empty))
        self.energy_gev, self.theta_rad, self.phi_rad, self.particle, self.empty = map(
            np.concatenate, zip(*labels, strict=True)
        )

    def _write(self, rows: npt.NDArray[np.void]) -> None:
        try:
            self._file.write(rows.data)
            self._file.flush()
        except OSError as error:
            with suppress(OSError):
                self._file.close()  # its buffer cannot be written
            error.filename = f"{tempfile.gettempdir()} (TMPDIR)"
            raise

    def __len__(self) -> int:
        return len(self.energy_gev)

    def __getitem__(self, rows: slice | Index, /) -> Observables:
        """The rows of a slice without a step, or of an index array in rising order."""
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
        size = self._row.itemsize
        # Not a memory map: the kernel also maps the pages around, so memory would grow with the table.
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


def selected(rows: Rows, mask: Mask) -> Rows:
    """The rows that a mask (N,) selects."""
    if mask.all():
        return rows
    return Subset(rows, np.flatnonzero(mask)) if isinstance(rows, Table) else rows[mask]


Rows_co = TypeVar("Rows_co", bound=Rows, covariant=True)


class Compared(NamedTuple, Generic[Rows_co]):
    """Two sets of showers that are compared.

    `per_event`: if the sets are paired, the candidate's showers for each shower of the reference, in order; else 0.
    """

    reference: Rows_co
    candidate: Rows_co
    per_event: int


Tables = Compared[Rows]
Samples = Compared[Observables]  # some showers of each set, in memory and in order; `per_event` may be lower


def samples(tables: Tables, showers: int, rng: np.random.Generator) -> Samples:
    """At most `showers` of each set, at random; in paired sets events with all partners, or the first few partners."""
    reference, candidate, per_event = tables
    chosen = np.sort(rng.choice(len(reference), min(len(reference), showers), replace=False))
    if not per_event:
        return Samples(reference[chosen], thinned(candidate, showers, rng), 0)
    copies = min(per_event, max(showers // max(len(chosen), 1), 1))
    partners = (chosen[:, None] * per_event + np.arange(copies)).reshape(-1)
    return Samples(reference[chosen], candidate[partners], copies)


def thinned(rows: Rows, showers: int, rng: np.random.Generator) -> Observables:
    """At most `showers` rows, chosen at random, in memory and in order."""
    return rows[np.sort(rng.choice(len(rows), min(len(rows), showers), replace=False))]


@dataclass(frozen=True)
class Measured:
    """The results of one pass over a set: its `table`, the `digests` (see `Hits.digests`) of the showers with energy,
    the number of `bad` showers (a cell is not finite, or negative), the place of the first one, and some pictures.
    """

    table: Table
    digests: Digests
    bad: int
    first_bad: str
    gallery: tuple[Picture, ...]


def measure(showers: ShowerSet) -> Measured:
    """Read a set once, piece by piece.

    InputError: a corrupt shower while `bad_event` is "stop", or Monte Carlo without any energy.
    """
    geometry = showers.geometry
    above_cut: list[Mask] = []
    digests: list[Digests] = []
    gallery: list[Picture] = []
    bad_showers, first_bad = 0, ""

    def rows() -> Iterator[Observables]:
        nonlocal bad_showers, first_bad
        for part, kept, bad in showers.parts():
            if bad.any():
                bad_showers += int(bad.sum())
                first_bad = first_bad or f"event {part.first + int(np.argmax(bad))} of {part.file}"
            hits, more = part.hits[kept], taken(part.more, kept)
            labels = part.energy_gev[kept], part.theta_rad[kept]
            table = observe(hits, *labels, geometry, particle=more.get(PARTICLE), phi_rad=more.get(PHI))
            above_cut.append(part.above_cut[kept])
            digests.append(hits.digests()[table.column("visible_gev") > 0])
            if len(gallery) < _GALLERY:
                gallery.extend(pictures(part.cells[kept], table, geometry, _GALLERY - len(gallery)))
            yield table

    table = Table(rows())
    table.empty |= ~np.concatenate(above_cut)
    if table.empty.all() and showers.selection.bad_event != COUNT:
        raise showers.nothing_left()
    return Measured(table, np.concatenate(digests), bad_showers, first_bad, tuple(gallery))
