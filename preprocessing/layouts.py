"""HDF5 files of showers: the layouts that can be read, and the one that is written."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from preprocessing import storage
from preprocessing.angle import measured_angle
from preprocessing.errors import InputError
from preprocessing.showers import REFERENCE_GEOMETRY, FloatArray, Geometry, Showers
from preprocessing.splits import ALL, SplitRule

logger = logging.getLogger(__name__)

Labels = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any] | None]


@dataclass(frozen=True)
class Layout:
    """One way to store showers: the datasets it needs, and where its labels are (energy_gev, theta_rad, mtheta_rad).

    Every layout holds the cells in `ECAL`, (N, x, y, layer), in file units.
    """

    name: str
    needs: tuple[frozenset[str], ...]  # alternatives, each a set of datasets
    labels: Callable[[h5py.File], Labels]

    def matches(self, names: set[str]) -> bool:
        return any(needed <= names for needed in self.needs)


def _variable_angle_labels(file: h5py.File) -> Labels:
    mtheta = file["mtheta"][()] if "mtheta" in file else None
    theta = file["theta" if "theta" in file else "mtheta"][()]  # the measured angle stands in where it is the only one
    return file["energy"][()], theta, mtheta


def _fixed_angle_labels(file: h5py.File) -> Labels:
    target = file["target"][()]
    if target.ndim != 3 or target.shape[1:] != (1, 5):
        raise InputError(f"{file.filename}: 'target' has shape {target.shape}, expected (N, 1, 5)")
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

_BATCH_EVENTS = 100  # made dense at a time: 26 MB of the reference's showers
_FALLBACK_CHUNK_EVENTS = 100  # for files stored in one piece


@dataclass(frozen=True)
class ShowerFile:
    """A file whose header and labels have been checked; its cells are read and checked on demand.

    `chunk_events` is the number of showers that are stored, and so best read, together. `mtheta_rad` is None where the
    file carries no `mtheta`. `stamp` tells whether the file is still the one that was opened.
    """

    path: Path
    stamp: tuple[int, int]
    layout: str
    events: int
    geometry: Geometry
    chunk_events: int
    energy_gev: FloatArray
    theta_rad: FloatArray
    mtheta_rad: FloatArray | None
    request: str | None  # of generated showers: what they were made of

    @cached_property
    def sha256(self) -> str:
        return storage.sha256_of_file(self.path)

    def read(self, start: int = 0, stop: int | None = None) -> Showers:
        """Showers `start` to `stop`. A NaN, infinite or negative cell is an error that names its event."""
        events = range(self.events)[start:stop]
        cells = self.cells(events.start, events.stop)
        self._check_cells(cells, events.start)
        labels = slice(events.start, events.stop)
        mtheta = measured_angle(cells) if self.mtheta_rad is None else self.mtheta_rad[labels]
        return Showers(cells, self.energy_gev[labels], self.theta_rad[labels], mtheta)

    def cells(self, start: int, stop: int) -> FloatArray:
        """The cells of showers `start` to `stop` as they are stored, good or bad."""
        with _opened(self.path) as file:
            cells: FloatArray = file["ECAL"][start:stop].astype(np.float32)
            return cells

    def batches(self, mask: npt.NDArray[np.bool_]) -> Iterator[tuple[npt.NDArray[np.intp], FloatArray]]:
        """Indices and cells, good or bad, of the events that `mask` selects, in order and in pieces."""
        for start in range(0, self.events, _BATCH_EVENTS):
            chosen = np.flatnonzero(mask[start : start + _BATCH_EVENTS])
            if len(chosen):
                yield start + chosen, self.cells(start, start + _BATCH_EVENTS)[chosen]

    def mask(self, split: str, rule: SplitRule, cut_gev: float = 0.0) -> npt.NDArray[np.bool_]:
        """Which of the file's events are in `split` and deposit more than `cut_gev`, as preprocessing takes them.

        A cut reads the cells of the split's events.
        """
        mask = np.ones(self.events, dtype=np.bool_)
        if split != ALL:
            mask = rule.mask(split, self.path.name, self.sha256, range(self.events))
        if cut_gev > 0:
            for events, cells in self.batches(mask):
                mask[events] = above_cut(cells, cut_gev, self.geometry) | unphysical(cells)  # the latter to be told of
        return mask

    def _check_cells(self, cells: FloatArray, start: int) -> None:
        bad = unphysical(cells)
        if bad.any():
            event = int(np.argmax(bad))
            values = cells[event]
            found = values[~(np.isfinite(values) & (values >= 0))]
            raise InputError(
                f"{self.path}: event {start + event}: ECAL holds {found[0]} in {len(found)} cell(s), expected "
                "finite deposits of zero or more; mend or remove the event"
            )


def unphysical(cells: FloatArray) -> npt.NDArray[np.bool_]:
    """Which showers (N,) of `cells` (N, x, y, layer) hold a cell that is NaN, infinite or negative."""
    flat = cells.reshape(len(cells), -1)
    with np.errstate(over="ignore", invalid="ignore"):
        total = flat.sum(axis=1, dtype=np.float64)  # not finite where any cell is not
    return ~(np.isfinite(total) & (flat.min(axis=1, initial=0) >= 0))


def above_cut(cells: FloatArray, cut_gev: float, geometry: Geometry) -> npt.NDArray[np.bool_]:
    """Which showers (N,) of `cells` (N, x, y, layer), in file units, deposit more than `cut_gev`."""
    return cells.sum(axis=(1, 2, 3), dtype=np.float64) > cut_gev / geometry.file_unit_gev


def open_showers(path: Path, geometry_values: str = "") -> ShowerFile:
    """Check the header and labels of `path`.

    `geometry_values` ("cell_mm=5.1,...") takes the place of what the file's attributes say. A file that says nothing
    is taken to have the reference's geometry, with a warning.
    """
    with _opened(path) as file:
        stamp = storage.stamp(path)
        names = {name for name, item in file.items() if isinstance(item, h5py.Dataset)}
        layout = next((layout for layout in LAYOUTS if layout.matches(names)), None)
        if layout is None:
            expected = " or ".join(" + ".join(sorted(needed)) for each in LAYOUTS for needed in each.needs)
            raise InputError(f"{path}: found datasets {sorted(names) or 'none'}, expected {expected}")
        ecal = file["ECAL"]
        if ecal.ndim != 4 or ecal.dtype.kind not in "fiu":
            raise InputError(f"{path}: ECAL has shape {ecal.shape} of {ecal.dtype}, expected numbers (N, x, y, layer)")
        if len(ecal) == 0:
            raise InputError(f"{path}: holds no showers; remove it from the input")
        energy, theta, mtheta = layout.labels(file)
        labels = {"energy": energy, "theta": theta} | ({} if mtheta is None else {"mtheta": mtheta})
        arrays = {name: _check_label(path, name, values, len(ecal)) for name, values in labels.items()}
        geometry = _geometry(path, file.attrs, ecal.shape[1:], geometry_values)
        chunk = ecal.chunks[0] if ecal.chunks else _FALLBACK_CHUNK_EVENTS
        return ShowerFile(
            path,
            stamp,
            layout.name,
            len(ecal),
            geometry,
            chunk,
            arrays["energy"],
            arrays["theta"],
            arrays.get("mtheta"),
            file.attrs.get(REQUEST),
        )


def open_all(paths: Sequence[Path], geometry_values: str = "") -> list[ShowerFile]:
    """Check every file, and that all have one geometry. A content that comes twice is used once, with a warning."""
    files: dict[str, ShowerFile] = {}
    for path in paths:
        file = open_showers(path, geometry_values)
        twin = files.setdefault(file.sha256, file)
        if twin is not file:
            logger.warning("%s has the same content as %s: used once", file.path, twin.path)
    first, *others = files.values()
    for file in others:
        if file.geometry != first.geometry:
            raise InputError(
                f"{file.path}: geometry {file.geometry.to_json()} differs from that of {first.path}, "
                f"{first.geometry.to_json()}; use files of one detector, or give --geometry"
            )
    return [first, *others]


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    try:
        with h5py.File(path, "r") as file:
            yield file
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except PermissionError:
        raise InputError(f"{path}: permission denied; make the file readable for this user") from None
    except (OSError, RuntimeError) as error:  # what h5py raises for a file that is not whole
        reason = str(error).partition("(")[2].rstrip(")") or str(error)
        raise InputError(f"{path}: not a whole HDF5 file ({reason}); copy or make it again") from None


def _check_label(path: Path, name: str, values: npt.NDArray[Any], events: int) -> FloatArray:
    """Labels come as (N,) or (N, 1), in either precision; all must be finite, and energies positive."""
    values = np.asarray(values)
    if values.size != events or values.dtype.kind not in "fiu":
        raise InputError(
            f"{path}: '{name}' has shape {values.shape} of {values.dtype}, expected ({events},) numbers, one a shower"
        )
    flat = values.reshape(events).astype(np.float32)
    high, expected = (np.inf, "a positive number of GeV") if name == "energy" else (np.pi, "an angle of 0 to pi rad")
    good = (flat > 0) & (flat < high)
    if not good.all():
        event = int(np.argmin(good))
        hint = "; is it in degrees?" if name != "energy" and flat[event] >= high else "; mend or remove the event"
        raise InputError(f"{path}: event {event}: {name} is {flat[event]}, expected {expected}{hint}")
    return flat


def _geometry(path: Path, attributes: Mapping[str, Any], shape: Sequence[int], values: str) -> Geometry:
    names = ("cell_mm", "layer_pitch_mm", "x0_per_layer", "file_unit_gev")
    try:
        stated = {name: float(attributes[name]) for name in names if name in attributes}
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: its attributes must state the geometry in numbers ({error}); mend them") from None
    geometry = replace(REFERENCE_GEOMETRY, shape=(int(shape[0]), int(shape[1]), int(shape[2])), **stated).with_values(
        values
    )
    given = set(stated) | {item.partition("=")[0].strip() for item in values.split(",")}
    if missing := [name for name in names if name not in given]:
        logger.warning("%s does not state %s: the reference's is assumed (--geometry)", path, ", ".join(missing))
    return geometry


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
def shower_writer(path: Path, geometry: Geometry, attributes: Mapping[str, Any]) -> Iterator[ShowerWriter]:
    """A writer to `path`, which appears when it is whole. `attributes` are added to those of the geometry."""
    with storage.replacing(path) as temporary, _Sink(temporary, "w+") as sink:
        with h5py.File(sink, "w") as file:
            stated = {name: value for name, value in geometry.to_json().items() if name != "shape"}
            file.attrs.update({**stated, **attributes})
            yield ShowerWriter(file, sink, geometry)
        if sink.error is not None:  # of what HDF5 wrote as it closed
            raise sink.error
