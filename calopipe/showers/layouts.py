"""HDF5 files of showers: the layouts that can be read, and the one that is written."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from calopipe import storage
from calopipe.errors import InputError
from calopipe.showers.angle import EMPTY_SHOWER_ANGLE, measured_angle
from calopipe.showers.cells import REFERENCE_GEOMETRY, FloatArray, Geometry, Showers
from calopipe.showers.contents import distinct, remembered_hashes
from calopipe.showers.flaws import STOP, BadFileError, Flaws, flaws_of_hits, flaws_of_label
from calopipe.showers.hits import Digests, Hits
from calopipe.showers.selection import Selection
from calopipe.showers.splits import event_digests
from calopipe.storage import Location

logger = logging.getLogger(__name__)

Labels = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any] | None]


@dataclass(frozen=True)
class Layout:
    """One way to store showers: the datasets it needs, and where its labels are (energy_gev, theta_rad, mtheta_rad).

    Every layout holds the cells in `ECAL`, (N, x, y, layer), in file units.
    """

    name: str
    needs: tuple[frozenset[str], ...]  # alternatives, each a set of datasets
    labels: Callable[[h5py.File, set[str]], Labels]  # of the file and the names of its datasets

    def matches(self, names: set[str]) -> bool:
        return any(needed <= names for needed in self.needs)


def _variable_angle_labels(file: h5py.File, names: set[str]) -> Labels:
    mtheta = file["mtheta"][()] if "mtheta" in names else None
    theta = file["theta" if "theta" in names else "mtheta"][()]  # the measured angle stands in where it is the only one
    return file["energy"][()], theta, mtheta


def _fixed_angle_labels(file: h5py.File, _: set[str]) -> Labels:
    target = file["target"][()]
    if target.ndim != 3 or target.shape[1:] != (1, 5):
        raise BadFileError(f"{file.filename}: 'target' has shape {target.shape}, expected (N, 1, 5)")
    return target[:, 0, 1], np.full(len(target), np.pi / 2), None


# Attribute of files of generated showers; it names what they were made of.
REQUEST = "calopipe_request"

LAYOUTS = (
    Layout(
        "variable-angle",
        (frozenset({"ECAL", "energy", "theta"}), frozenset({"ECAL", "energy", "mtheta"})),
        _variable_angle_labels,
    ),
    Layout("fixed-angle", (frozenset({"ECAL", "target"}),), _fixed_angle_labels),
)

_PIECE_EVENTS = 100  # made dense at a time: 26 MB of the reference's showers
_FALLBACK_CHUNK_EVENTS = 100  # for files stored in one piece
_HIGHEST = {"energy": np.inf, "theta": np.pi, "mtheta": np.pi}  # labels lie above zero and below this: GeV, rad


@dataclass(frozen=True)
class ShowerFile:
    """A file whose header has been checked; its cells are read and checked on demand.

    `chunk_events` is the number of showers that are stored, and so best read, together. `mtheta_rad` is None where the
    file carries no `mtheta`. `stamp` tells whether the file is still the one that was opened. `label_flaws` (N,) tells
    of each event what is wrong with its labels.
    """

    path: Location
    stamp: tuple[int, int]
    sha256: str
    events: int
    geometry: Geometry
    chunk_events: int
    energy_gev: FloatArray
    theta_rad: FloatArray
    mtheta_rad: FloatArray | None
    label_flaws: Flaws
    request: str | None  # of generated showers: what they were made of
    assumed: tuple[str, ...]  # what of the geometry neither the file nor the user states

    def tell_of_assumptions(self) -> None:
        """Warn of what of the geometry is the reference's for want of another."""
        if self.assumed:
            names = ", ".join(self.assumed)
            logger.warning("%s does not state %s: the reference's is assumed (--geometry)", self.path, names)

    def read(self, start: int = 0, stop: int | None = None) -> Showers:
        """Showers `start` to `stop`. A NaN, infinite or negative cell is an error that names its event."""
        events = range(self.events)[start:stop]
        cells = self.cells(events.start, events.stop)
        flaws = flaws_of_hits(Hits.of(cells))
        if flaws.any():
            first = int(np.argmax(flaws != 0))
            told = self.flaw_of_cells(events.start + first, cells[first])
            raise InputError(f"{told}; mend it, or leave such events out with --on-bad-event skip")
        labels = slice(events.start, events.stop)
        mtheta = measured_angle(cells) if self.mtheta_rad is None else self.mtheta_rad[labels]
        return Showers(cells, self.energy_gev[labels], self.theta_rad[labels], mtheta)

    def cells(self, start: int, stop: int) -> FloatArray:
        """The cells of showers `start` to `stop` as they are stored, good or bad."""
        with _opened(self.path) as file:
            return _read(file, start, stop)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, FloatArray]]:
        """The cells of showers `start` to `stop`, good or bad, piece by piece, each with its first shower's index.

        `start` is a multiple of `chunk_events`. A piece is whole chunks, or where chunks are larger a part of one band
        of them, which is then kept while it is read: so nothing is decompressed twice, and memory is bounded by the
        larger of a piece and a band.
        """
        size = max(_PIECE_EVENTS // self.chunk_events, 1) * self.chunk_events
        band_bytes = self.chunk_events * self.geometry.cells * 8 if size > _PIECE_EVENTS else 0
        with _opened(self.path, band_bytes) as file:
            for band in range(start, stop, size):
                end = min(band + size, stop)
                for first in range(band, end, _PIECE_EVENTS):
                    yield first, _read(file, first, min(first + _PIECE_EVENTS, end))

    def chosen(self, selection: Selection) -> tuple[npt.NDArray[np.bool_], Digests]:
        """Whether each event is in the selection, and its digest (`calopipe.showers.splits`), (events,) both.

        This reads all cells, unless no event of the file can be in the split: then the digests are 0. A selection that
        stops at corrupt events keeps them, so that whoever reads them stops.
        """
        mask = np.zeros(self.events, dtype=np.bool_)
        digests = np.zeros(self.events, dtype=np.uint64)
        if not selection.rule.may_hold(selection.split, self.path.name):
            return mask, digests
        for first, cells in self.pieces(0, self.events):
            hits = Hits.of(cells)
            inside = slice(first, first + len(cells))
            digests[inside] = event_digests(hits, self.energy_gev[inside], self.theta_rad[inside])
            bad = (flaws_of_hits(hits) != 0) | (self.label_flaws[inside] != 0)
            mask[inside] = np.where(bad, selection.bad_event == STOP, selection.above_cut(hits, self.geometry))
        return mask & selection.rule.mask(selection.split, self.path.name, digests), digests

    def flaw_of_cells(self, event: int, cells: FloatArray) -> str:
        """What is wrong with `cells` (x, y, layer) of `event`, and where."""
        found = cells[~(np.isfinite(cells) & (cells >= 0))]
        return (
            f"{self.path}: event {event}: ECAL holds {found[0]} in {len(found)} cell(s), expected finite deposits of "
            "zero or more"
        )

    def flaw_of_labels(self, event: int) -> str:
        """What is wrong with the labels of `event`, and where."""
        labels = {"energy": self.energy_gev, "theta": self.theta_rad, "mtheta": self.mtheta_rad}
        for name, values in labels.items():
            if values is not None and _flaws_of_label(name, values[event : event + 1])[0]:
                degrees = "; is it in degrees?" if name != "energy" and values[event] >= np.pi else ""
                expected = "a positive number of GeV" if name == "energy" else "an angle of 0 to pi rad"
                return f"{self.path}: event {event}: {name} is {values[event]}, expected {expected}{degrees}"
        raise ValueError(f"the labels of event {event} of {self.path} are good")


def open_showers(
    path: Location,
    geometry_values: str = "",
    bad_event: str = STOP,
    sha256: str | None = None,
    known: Mapping[tuple[str, tuple[int, int]], str] | None = None,
) -> ShowerFile:
    """Check the header and labels of `path`, whose content hashes to `sha256`, or to what is `known` of its absolute
    path and stamp (`contents.remembered_hashes`); where neither is given it is hashed.

    `geometry_values` ("cell_mm=5.1,...") takes the place of what the file's attributes say. A file that says nothing
    is taken to have the reference's geometry. A bad label is an error unless `bad_event` is "skip".
    """
    try:
        stamp = storage.stamp(path)  # first, so that a file that takes this one's place has another
        remembered = known.get((str(path.absolute()), stamp)) if known else None
        content = sha256 or remembered or storage.sha256_of_file(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    with _opened(path) as file:
        names = {str(name) for name, item in file.items() if isinstance(item, h5py.Dataset)}
        layout = next((layout for layout in LAYOUTS if layout.matches(names)), None)
        if layout is None:
            expected = " or ".join(" + ".join(sorted(needed)) for each in LAYOUTS for needed in each.needs)
            raise BadFileError(f"{path}: found datasets {sorted(names) or 'none'}, expected {expected}")
        ecal = file["ECAL"]
        if ecal.ndim != 4 or ecal.dtype.kind not in "fiu":
            raise BadFileError(
                f"{path}: ECAL has shape {ecal.shape} of {ecal.dtype}, expected numbers (N, x, y, layer)"
            )
        if len(ecal) == 0:
            raise BadFileError(f"{path}: holds no showers; remove it from the input")
        _require_stored(path, ecal)
        for name in names & {"energy", "theta", "mtheta", "target"}:  # before they are read into memory
            if file[name].shape[:1] != ecal.shape[:1]:
                raise BadFileError(
                    f"{path}: '{name}' has shape {file[name].shape} of {file[name].dtype}, expected {len(ecal)} "
                    "entries, one a shower"
                )
        energy, theta, mtheta = layout.labels(file, names)
        labels = {"energy": energy, "theta": theta} | ({} if mtheta is None else {"mtheta": mtheta})
        arrays = {name: _check_label(path, name, values, len(ecal)) for name, values in labels.items()}
        geometry, assumed = _geometry(path, file.attrs, ecal.shape[1:], geometry_values)
        chunk = ecal.chunks[0] if ecal.chunks else _FALLBACK_CHUNK_EVENTS
        label_flaws = np.zeros(len(ecal), dtype=np.int8)
        for name, values in arrays.items():  # of several flaws of an event, the first is told
            label_flaws = np.where(label_flaws != 0, label_flaws, _flaws_of_label(name, values))
        opened = ShowerFile(
            path,
            stamp,
            content,
            len(ecal),
            geometry,
            chunk,
            arrays["energy"],
            arrays["theta"],
            arrays.get("mtheta"),
            label_flaws,
            file.attrs.get(REQUEST),
            assumed,
        )
    if bad_event == STOP and label_flaws.any():
        first = int(np.argmax(label_flaws != 0))
        raise InputError(f"{opened.flaw_of_labels(first)}; mend it, or leave such events out with --on-bad-event skip")
    return opened


def open_all(paths: Sequence[Location], selection: Selection | None = None) -> list[ShowerFile]:
    """Open every file as the `selection` asks. All must have one geometry; a content that comes twice is used once,
    with a warning.
    """
    chosen = selection or Selection()
    known = remembered_hashes(chosen.memory)
    opened = storage.at_once(lambda path: open_showers(path, chosen.geometry, chosen.bad_event, known=known), paths)
    for file in opened:
        file.tell_of_assumptions()
    return distinct(opened)


@contextmanager
def _opened(path: Location, keep_bytes: int = 0) -> Iterator[h5py.File]:
    """The HDF5 file `path`, with room for so many bytes of decompressed chunks."""
    # slots are a prime, many more than there are chunks to keep, as HDF5's manual asks
    room = {"rdcc_nbytes": keep_bytes, "rdcc_nslots": 524_287, "rdcc_w0": 1.0} if keep_bytes else {}
    try:
        with ExitStack() as stack:
            source = path if isinstance(path, Path) else stack.enter_context(storage.opened(path))
            yield stack.enter_context(h5py.File(source, "r", **room))
            return
    except FileNotFoundError:
        failure = InputError(f"{path}: no such file; check the path")
    except PermissionError:
        failure = InputError(f"{path}: permission denied; make the file readable for this user")
    except InputError as error:
        failure = error.with_traceback(None)
    except (OSError, RuntimeError) as error:  # what h5py raises for a file that is not whole
        reason = str(error).partition("(")[2].rstrip(")") or str(error)
        failure = BadFileError(f"{path}: not a whole HDF5 file ({reason}); copy or make it again")
        if isinstance(error, OSError) and error.errno is not None:  # not the file's fault
            failure = InputError(f"{path}: cannot be read now ({reason}); is it being written, is the disk well?")
    failure.__context__ = None  # h5py's error would keep its file alive, which at the end of the process is fatal
    raise failure


def _require_stored(path: Location, ecal: h5py.Dataset) -> None:
    """Raise BadFileError unless all cells that the dataset declares were written: others would read as zeros."""
    if ecal.is_virtual:  # its cells are in other files
        return
    if ecal.chunks is None:
        missing, parts = int(ecal.id.get_storage_size() == 0), 1
    else:
        parts = math.prod(-(-size // chunk) for size, chunk in zip(ecal.shape, ecal.chunks, strict=True))
        missing = parts - ecal.id.get_num_chunks()
    if missing:
        raise BadFileError(
            f"{path}: declares {len(ecal):,} showers, but {missing:,} of the {parts:,} pieces of ECAL were never "
            "written; copy or make it again"
        )


def _read(file: h5py.File, start: int, stop: int) -> FloatArray:
    return file["ECAL"][start:stop].astype(np.float32, copy=False)


def _flaws_of_label(name: str, values: FloatArray) -> Flaws:
    flaws = flaws_of_label(values, _HIGHEST[name])
    if name == "mtheta":  # of a shower without energy it is no angle
        flaws[values == EMPTY_SHOWER_ANGLE] = 0
    return flaws


def _check_label(path: Location, name: str, values: npt.NDArray[Any], events: int) -> FloatArray:
    """Labels come as (N,) or (N, 1), in either precision."""
    values = np.asarray(values)
    if values.size != events or values.dtype.kind not in "fiu":
        raise BadFileError(
            f"{path}: '{name}' has shape {values.shape} of {values.dtype}, expected ({events},) numbers, one a shower"
        )
    return values.reshape(events).astype(np.float32)


def _geometry(
    path: Location, attributes: Mapping[str, Any], shape: Sequence[int], values: str
) -> tuple[Geometry, tuple[str, ...]]:
    """The geometry, and what of it is assumed."""
    names = ("cell_mm", "layer_pitch_mm", "x0_per_layer", "file_unit_gev")
    try:
        stated = {name: float(attributes[name]) for name in names if name in attributes}
    except (TypeError, ValueError) as error:
        raise BadFileError(f"{path}: its attributes must state the geometry in numbers ({error}); mend them") from None
    geometry = replace(REFERENCE_GEOMETRY, shape=(int(shape[0]), int(shape[1]), int(shape[2])), **stated).with_values(
        values
    )
    given = set(stated) | {item.partition("=")[0].strip() for item in values.split(",")}
    return geometry, tuple(name for name in names if name not in given)


class _Sink(io.FileIO):
    """A file that keeps the first error of writing to itself, for HDF5 crashes when it cannot flush what it holds."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        while len(rest) and self.error is None:
            try:
                rest = rest[super().write(rest) :]
            except OSError as error:
                self.error = error
        return size


class ShowerWriter:
    """Showers written batch by batch in the variable-angle layout, into a file opened by `shower_writer`."""

    def __init__(self, file: h5py.File, sink: _Sink, geometry: Geometry) -> None:
        self._file, self._sink = file, sink
        self._events = 0
        file.create_dataset(
            "ECAL", (0, *geometry.shape), "f4", maxshape=(None, *geometry.shape),
            chunks=(10, *geometry.shape), compression="gzip", compression_opts=1, shuffle=True,
        )  # fmt: skip
        for name in ("energy", "theta", "mtheta", "eta", "sum"):
            file.create_dataset(name, (0,), "f4", maxshape=(None,), chunks=(1024,))

    def write(self, showers: Showers) -> None:
        """Append `showers`. Their measured angle is taken from `mtheta_rad`, the pseudorapidity from `theta_rad`."""
        columns = {
            "ECAL": showers.cells,
            "energy": showers.energy_gev,
            "theta": showers.theta_rad,
            "mtheta": showers.mtheta_rad,
            "eta": -np.log(np.tan(showers.theta_rad / 2)),
            "sum": showers.cells.sum(axis=(1, 2, 3)),
        }
        start, self._events = self._events, self._events + len(showers)
        for name, values in columns.items():
            self._file[name].resize(self._events, axis=0)
            self._file[name][start:] = values
        if self._sink.error is not None:
            raise self._sink.error


@contextmanager
def shower_writer(path: Location, geometry: Geometry, attributes: Mapping[str, Any]) -> Iterator[ShowerWriter]:
    """A writer to `path`, which appears when it is whole. `attributes` are added to those of the geometry."""
    with storage.replacing(path) as temporary, _Sink(temporary, "w+") as sink:
        with h5py.File(sink, "w") as file:
            stated = {name: value for name, value in geometry.to_json().items() if name != "shape"}
            file.attrs.update({**stated, **attributes})
            yield ShowerWriter(file, sink, geometry)
        if sink.error is not None:  # of what HDF5 wrote as it closed
            raise sink.error
