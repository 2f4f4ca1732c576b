"""HDF5 files of showers: opened, checked, and read piece by piece."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import h5py
import numpy as np
import numpy.typing as npt

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.contents import Header, distinct, read_memory
from calopipe.events.hdf5 import opened_file
from calopipe.events.splits import ALL, Digests
from calopipe.events.tolerance import CORRECT_OR_SKIP, STOP
from calopipe.labels import DATASETS, PHI, MoreLabels, taken
from calopipe.showers.angle import angle_of_cells
from calopipe.showers.cells import FloatArray, Geometry, Showers
from calopipe.showers.detectors import geometry_of
from calopipe.showers.hits import Flaws, Hits, event_digests, flaws_of_hits, flaws_of_label
from calopipe.showers.layouts import VOXELS, read_labels, wrong_label
from calopipe.showers.positions import stray, voxel_order
from calopipe.showers.selection import Selection
from calopipe.storage import Location

logger = logging.getLogger(__name__)

REQUEST = "calopipe_request"  # attribute of generated showers: names what they were made from
MADE_BY = "made_by"  # attribute of generated showers: how their model was trained, in a line
CUT = "cut_gev"  # attribute of generated showers: the energy cut of the showers whose labels they have
_PIECE_EVENTS = 100  # showers made dense at a time: 26 MB of the reference's showers
_FALLBACK_CHUNK_EVENTS = 100  # for files that are not stored in chunks


@dataclass(frozen=True)
class Examined:
    """Successive showers of a file, as they are stored, and whether a `selection` takes each of them.

    `file` is the name of the file, `first` the index of the first shower there. Cells are (n, x, y, layer) in the
    file's unit, labels (n,); `label_flaws` says what is wrong with the labels. Properties are computed when used.
    """

    selection: Selection
    file: str
    geometry: Geometry
    first: int
    cells: FloatArray
    energy_gev: FloatArray
    theta_rad: FloatArray
    more: MoreLabels
    label_flaws: Flaws

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def hits(self) -> Hits:
        return Hits.of(self.cells)

    @cached_property
    def digests(self) -> Digests:
        """The digest of each shower, (n,): see `calopipe.events.splits`."""
        return event_digests(self.hits, self.energy_gev, self.theta_rad, self.more)

    @cached_property
    def flaws(self) -> Flaws:
        """What is wrong with each shower, (n,): with its cells or, if these are good, with its labels."""
        in_cells = flaws_of_hits(self.hits)
        return np.where(in_cells != 0, in_cells, self.label_flaws)

    @cached_property
    def above_cut(self) -> npt.NDArray[np.bool_]:
        """Whether each shower deposits more than the cut in its cells, as they are stored, (n,)."""
        return np.asarray(self.hits.sums() > self.selection.cut_gev / self.geometry.file_unit_gev)

    @cached_property
    def in_split(self) -> npt.NDArray[np.bool_]:
        """Whether each shower is in the split, (n,)."""
        rule, split = self.selection.rule, self.selection.split
        return np.ones(len(self), np.bool_) if split == ALL else rule.mask(split, self.file, self.digests)


@dataclass(frozen=True)
class ShowerFile(Header):
    """A file whose header and labels have been checked; its cells are read and checked on demand.

    `deposits` is the dataset that holds the cells, `Layout.cells`: (N, voxels) if it is `VOXELS`. Labels are (events,).
    `mtheta_rad` is None if the file has no `mtheta`; `more` holds the file's other labels. `label_flaws` says what is
    wrong with the labels of each event. For generated showers, `request` names what they were made from, `made_by` says
    how their model was trained, and `cut_gev` is their cut (0 for other showers). `assumed` are the parts of the
    geometry that neither the file nor the user states; `assumed_of` says whose values are taken.
    """

    deposits: str
    energy_gev: FloatArray
    theta_rad: FloatArray
    mtheta_rad: FloatArray | None
    more: MoreLabels
    label_flaws: Flaws
    request: str | None
    made_by: str
    cut_gev: float
    assumed: tuple[str, ...]
    assumed_of: str

    def read(self, start: int = 0, stop: int | None = None) -> Showers:
        """Showers `start` to `stop`. A NaN, infinite or negative cell is an error that names its event.

        The measured angle is read from the file, or computed from the cells if the file has none.
        """
        events = range(self.events)[start:stop]
        cells = self.cells(events.start, events.stop)
        flaws = flaws_of_hits(Hits.of(cells))
        if flaws.any():
            raise InputError(f"{self.flaw(events.start + int(np.argmax(flaws != 0)))}; {CORRECT_OR_SKIP}")
        labels = slice(events.start, events.stop)
        measured = angle_of_cells(cells, self.geometry) if self.mtheta_rad is None else self.mtheta_rad[labels]
        angles = self.theta_rad[labels], measured
        return Showers(cells, self.energy_gev[labels], *angles, more=taken(self.more, labels))

    def selected(self, mask: npt.NDArray[np.bool_]) -> Iterator[Showers]:
        """The showers that `mask` (events,) selects, as `read` returns them, chunk by chunk."""
        for start in range(0, self.events, self.chunk_events):
            selected = mask[start : start + self.chunk_events]
            if selected.any():
                yield self.read(start, start + self.chunk_events)[selected]

    def cells(self, start: int, stop: int) -> FloatArray:
        """The cells of showers `start` to `stop` as they are stored, good or bad."""
        with opened_file(self.path) as file:
            return self._read(file, start, stop)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, FloatArray]]:
        """The cells of showers `start` to `stop`, good or bad, piece by piece, each with its first shower's index.

        `start` is a multiple of `chunk_events`. A piece is whole chunks, or a part of one band of chunks if chunks are
        larger than a piece. HDF5 then caches the band while it is read, and decompresses nothing twice.
        """
        size = max(_PIECE_EVENTS // self.chunk_events, 1) * self.chunk_events
        band_bytes = self.chunk_events * self.geometry.cells * 8 if size > _PIECE_EVENTS else 0
        with opened_file(self.path, band_bytes) as file:
            for band in range(start, stop, size):
                end = min(band + size, stop)
                for first in range(band, end, _PIECE_EVENTS):
                    yield first, self._read(file, first, min(first + _PIECE_EVENTS, end))

    def _read(self, file: h5py.File, start: int, stop: int) -> FloatArray:
        geometry, stored = self.geometry, file[self.deposits][start:stop]
        with np.errstate(over="ignore"):  # the callers that count the events report values that are too large
            cells: FloatArray = stored.astype(np.float32, copy=False)
        if self.deposits == VOXELS:
            flat = np.zeros((len(cells), geometry.cells), dtype=np.float32)
            flat[:, voxel_order(geometry)] = cells
            return flat.reshape(len(cells), *geometry.shape)
        if (where := stray(cells, geometry)) is not None:
            row, x, y, layer = where
            raise InputError(
                f"{self.path}: event {start + row}: {self.deposits} holds energy at ({x}, {y}, {layer}), but layer "
                f"{layer} has {geometry.layers[layer].cells} cells; give the --geometry of this file"
            )
        return cells

    def chosen(self, selection: Selection) -> tuple[npt.NDArray[np.bool_], Digests]:
        """Whether each event is in the selection, and its digest (`calopipe.events.splits`), (events,) both.

        This reads all cells, unless no event of the file can be in the split: then the digests are 0. InputError: an
        event is corrupt, and the selection is to stop at corrupt events.
        """
        mask = np.zeros(self.events, dtype=np.bool_)
        digests = np.zeros(self.events, dtype=np.uint64)
        if not selection.rule.may_hold(selection.split, self.path.name):
            return mask, digests
        for showers in self.examined(selection):
            inside = slice(showers.first, showers.first + len(showers))
            bad = showers.in_split & (showers.flaws != 0)
            if selection.bad_event == STOP and bad.any():
                raise InputError(f"{self.flaw(showers.first + int(np.argmax(bad)))}; {CORRECT_OR_SKIP}")
            mask[inside], digests[inside] = showers.in_split & showers.above_cut & ~bad, showers.digests
        return mask, digests

    def examined(self, selection: Selection, start: int = 0, stop: int | None = None) -> Iterator[Examined]:
        """Showers `start`, a multiple of `chunk_events`, to `stop`, piece by piece, each cell read once."""
        for first, cells in self.pieces(start, self.events if stop is None else stop):
            inside = slice(first, first + len(cells))
            labels = self.energy_gev[inside], self.theta_rad[inside], taken(self.more, inside)
            yield Examined(selection, self.path.name, self.geometry, first, cells, *labels, self.label_flaws[inside])

    def flaw(self, event: int) -> str:
        """What is wrong with the corrupt event `event`, and where."""
        labels = {"energy": self.energy_gev, "theta": self.theta_rad, "mtheta": self.mtheta_rad}
        for name, values in (labels | {"phi": self.more.get(PHI)}).items():
            if values is not None and flaws_of_label(name, values[event : event + 1]).any():
                reason = wrong_label(name, values[event], challenge=self.deposits == VOXELS)
                return f"{self.path}: event {event}: {reason}"
        (cells,) = self.cells(event, event + 1)
        if self.deposits == VOXELS:
            cells = cells.reshape(-1)[voxel_order(self.geometry)]
        bad = np.argwhere(~(np.isfinite(cells) & (cells >= 0)))
        first = tuple(bad[0].tolist())
        return (
            f"{self.path}: event {event}: {self.deposits} holds {cells[first]} in {len(bad)} cell(s), the first "
            f"is {first[0] if self.deposits == VOXELS else first}; expected finite deposits of zero or more"
        )


def open_showers(
    path: Location,
    geometry_values: str = "",
    bad_event: str = STOP,
    sha256: str | None = None,
    beside: Geometry | None = None,
) -> ShowerFile:
    """Check the header and labels of `path`. Its content is hashed unless `sha256` is given.

    `geometry_values` (`calopipe.showers.detectors`) override the file's attributes. For a file that states no geometry,
    the geometry `beside`, a model's, is assumed if it has as many cells; else the reference's. In CaloChallenge's
    layout it is the known one with as many voxels. A bad label is an error unless `bad_event` is "skip".
    """
    try:  # hashed before it is opened: if another file takes its place in between, that other file is read
        content = sha256 or storage.sha256_of_file(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    with opened_file(path) as file:
        datasets = {str(name): item for name, item in file.items() if isinstance(item, h5py.Dataset)}
        labels, stored = read_labels(datasets)
        geometry, assumed, whose = geometry_of(file.attrs, stored.shape[1:], geometry_values, beside)
        more = {name: labels.pop(dataset) for name, dataset in DATASETS.items() if dataset in labels}
        flaws = np.zeros(len(stored), dtype=np.int8)
        angles = {"phi": more[PHI]} if PHI in more else {}
        for name, values in (labels | angles).items():  # the first flaw of an event counts
            flaws = np.where(flaws != 0, flaws, flaws_of_label(name, values))
        opened = ShowerFile(
            path=path,
            sha256=content,
            events=len(stored),
            geometry=geometry,
            chunk_events=stored.chunks[0] if stored.chunks else _FALLBACK_CHUNK_EVENTS,
            deposits=stored.name.removeprefix("/"),
            energy_gev=labels["energy"],
            theta_rad=labels["theta"],
            mtheta_rad=labels.get("mtheta"),
            more=more,
            labels=tuple(more),
            label_flaws=flaws,
            request=file.attrs.get(REQUEST),
            made_by=str(file.attrs.get(MADE_BY, "")),
            cut_gev=float(file.attrs.get(CUT, 0.0)) if REQUEST in file.attrs else 0.0,
            assumed=assumed,
            assumed_of=whose,
        )
    if bad_event == STOP and flaws.any():
        raise InputError(f"{opened.flaw(int(np.argmax(flaws != 0)))}; {CORRECT_OR_SKIP}")
    return opened


def open_all(
    paths: Sequence[Location], selection: Selection | None = None, beside: Geometry | None = None
) -> list[ShowerFile]:
    """Open every file by `open_showers`, as the `selection` asks. All must have one geometry. Files of the same content
    are used once, with a warning.
    """
    chosen = selection or Selection()
    remembered = read_memory(chosen.memory)["files"]

    def open_one(path: Location) -> ShowerFile:
        entry = remembered.get(str(path.absolute()))
        sha256 = entry["sha256"] if entry and tuple(entry["stamp"]) == storage.stamp(path) else None
        return open_showers(path, chosen.geometry, chosen.bad_event, sha256, beside)

    opened = storage.at_once(open_one, paths)
    warn_of_assumptions(opened)
    return distinct(opened)


def warn_of_assumptions(files: Iterable[ShowerFile]) -> None:
    """Warn of values of the geometry that `files` do not state, once for all files that lack the same values."""
    of_paths: dict[tuple[str, str], list[Location]] = {}
    for file in files:
        if file.assumed:
            of_paths.setdefault((", ".join(file.assumed), file.assumed_of), []).append(file.path)
    for (names, whose), paths in of_paths.items():
        first = min(paths, key=str)
        which = f"{first} and {len(paths) - 1} more do" if len(paths) > 1 else f"{first} does"
        logger.warning("%s not state %s: the %s is assumed (--geometry)", which, names, whose)
