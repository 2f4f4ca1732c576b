"""HDF5 files of flows, one simulation or roll-out each: opened, checked, read by frames, and written as they are made.

docs/formats.md describes the layout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import h5py
import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from calopipe.events.hdf5 import new_file, opened_file
from calopipe.events.tolerance import BadFileError
from calopipe.flow.grid import Grid
from calopipe.flow.mechanics import vorticity
from calopipe.storage import Location

FloatArray = npt.NDArray[np.float32]

FRAMES = "velocity"  # the dataset by which a file of a flow is recognised
_SHAPES = {FRAMES: "T, x, y, 2", "solid": "x, y", "time": "T"}
_ATTRIBUTES = {"reynolds": 1, "cell_d": 1, "obstacle_d": 2}  # and how many numbers each one holds
START = "start_sha256"  # attribute of frames that a model made: the hash of the file that it started from
START_SEEN = "start_seen"  # attribute of a roll-out: whether its model was trained on the simulation it starts from
CHUNK_FRAMES = 16  # frames in a chunk, best written together
_EVENLY = 1e-3  # by how much two intervals may differ, in intervals


@dataclass(frozen=True)
class Flow:
    """What all frames of a simulation have in common.

    `solid` (x, y) is where the obstacle is, `obstacle_d` its length and height in D, `reynolds` is U D / nu, and
    `solver` says what computed the frames.
    """

    grid: Grid
    solid: npt.NDArray[np.bool_]
    reynolds: float
    obstacle_d: tuple[float, float]
    solver: str

    @property
    def digest(self) -> np.uint64:
        """64 bits of a hash of the obstacle and the Reynolds number: a settled flow depends on these and its phase.

        A continued simulation has the same digest, and so has one that began with another perturbation.
        """
        numbers = self.solid.shape, float(np.float32(self.reynolds))
        content = repr(numbers).encode() + np.packbits(self.solid).tobytes()
        return np.frombuffer(hashlib.sha256(content).digest()[:8], "<u8")[0]


@dataclass(frozen=True)
class FlowFile(Flow):
    """A file whose layout has been checked; its frames are read and checked on demand.

    `time` (T,) of the frames is in D/U. `from_model` says whether a model made the frames: the attribute `model` is
    then the model's fingerprint. `start_seen` says whether that model was trained on the simulation it started from.
    """

    path: Location
    from_model: bool
    start_seen: bool
    time: npt.NDArray[np.float64]

    def frames(self, first: int, stop: int) -> FloatArray:
        """Velocities of the frames `first` to `stop` as they are stored, good or bad, (n, x, y, 2) in U."""
        with opened_file(self.path) as file:
            frames: FloatArray = file[FRAMES][first:stop].astype(np.float32)
        return frames

    def velocity(self, first: int, stop: int) -> FloatArray:
        """Velocities as `frames` gives them. BadFileError: a value is not a finite number."""
        velocity = self.frames(first, stop)
        finite = np.isfinite(velocity).all(axis=(1, 2, 3))
        if not finite.all():
            raise BadFileError(self.flaw(first + int(np.argmin(finite))))
        return velocity

    def flaw(self, frame: int) -> str:
        """The message about a `frame` that is not finite."""
        return f"{self.path}: the velocity in frame {frame} is not a finite number; make the simulation again"


def open_flow(path: Location, least_frames: int = 2) -> FlowFile:
    """The flow in the file `path`. BadFileError: not a flow, incomplete, or fewer frames than `least_frames`."""
    with opened_file(path) as file:
        for name, shape in _SHAPES.items():
            stored = file.get(name)
            numbers = isinstance(stored, h5py.Dataset) and stored.dtype.kind in "fiub"
            if not numbers or stored.ndim != len(shape.split(",")):
                _refuse(f"no dataset {name} ({shape}) of numbers, which a flow has")
        attributes = {name: _numbers(file.attrs, name, count) for name, count in _ATTRIBUTES.items()}
        frames, *shape, components = file[FRAMES].shape
        solid, time = file["solid"][()].astype(bool), file["time"][()]
        if components != 2 or solid.shape != tuple(shape) or len(time) != frames:
            _refuse(f"velocity {file[FRAMES].shape}, solid {solid.shape} and time {time.shape} do not fit")
        if frames < least_frames:
            _refuse(f"{frames} frames, at least {least_frames} are needed")
        intervals = np.diff(time)
        interval = float((time[-1] - time[0]) / (frames - 1))
        if not interval > 0 or np.abs(intervals - interval).max() > _EVENLY * interval:
            _refuse(f"frames {intervals.min():g} to {intervals.max():g} D/U apart, not evenly")
        return FlowFile(
            grid=Grid((shape[0], shape[1]), attributes["cell_d"][0], interval),
            solid=solid,
            reynolds=attributes["reynolds"][0],
            obstacle_d=(attributes["obstacle_d"][0], attributes["obstacle_d"][1]),
            solver=str(file.attrs.get("solver", "")),
            path=path,
            from_model=START in file.attrs,
            start_seen=bool(file.attrs.get(START_SEEN, False)),
            time=time,
        )


def are_flows(paths: Iterable[Location]) -> bool:
    """Whether the first of `paths` that is an HDF5 file holds frames of a flow, whole or not."""
    for path in paths:
        with suppress(BadFileError), opened_file(path) as file:
            return FRAMES in file
    return False


@contextmanager
def flow_writer(
    path: Location,
    like: Flow,
    *,
    grid: Grid | None = None,
    attributes: Mapping[str, Any] | None = None,
    first: float = 0.0,
    steps: int = 1,
    rounded: float = 0.0,
) -> Iterator[Callable[[FloatArray], None]]:
    """A function that appends frames, (n, x, y, 2) in U, of the flow `like` and their vorticity to the file `path`.

    The file appears when it is complete. `grid` replaces the grid of `like`, and `attributes` are added. `first` is
    the time of the first frame, and `steps` the number of the solver's steps between two frames. If `rounded` is not 0,
    velocities are multiples of `rounded` U and vorticities of 16 times as much: such files are a fifth as large.
    """
    cells = grid or like.grid
    with new_file(path) as (file, sink):
        described = {"reynolds": like.reynolds, "cell_d": cells.cell_d, "obstacle_d": like.obstacle_d}
        file.attrs.update({**described, "solver": like.solver, **(attributes or {})})
        file["solid"] = like.solid
        for name, shape, kind in (
            (FRAMES, (*cells.shape, 2), "f4"),
            ("vorticity", cells.shape, "f4"),
            ("time", (), "f8"),
            ("step", (), "i8"),
        ):
            packed = {"compression": "gzip", "compression_opts": 9, "shuffle": True} if shape else {}
            chunk = (CHUNK_FRAMES, *shape[:2], *(1 for _ in shape[2:]))  # each component apart compresses better
            file.create_dataset(name, (0, *shape), kind, maxshape=(None, *shape), chunks=chunk, **packed)

        def append(velocity: FloatArray) -> None:
            if rounded:
                velocity = np.round(velocity / rounded) * np.float32(rounded)
            start = len(file["time"])
            number = np.arange(start, start + len(velocity))
            swirl = vorticity(velocity, cells.cell_d)
            if rounded:
                swirl = np.round(swirl / (16 * rounded)) * (16 * rounded)
            times = {"time": first + number * cells.interval_d, "step": number * steps}
            for name, values in {FRAMES: velocity, "vorticity": swirl, **times}.items():
                file[name].resize(start + len(velocity), axis=0)
                file[name][start:] = values
            sink.require_written()

        yield append


def require_replaceable(path: Path, start: Path) -> None:
    """Raise InputError if frames that a model makes from the file `start` must not replace `path`."""
    if path.resolve() == start.resolve():
        raise InputError(f"{path}: is also the --start, and would be lost; give another --output")
    with suppress(OSError, InputError):
        if not path.exists() or open_flow(path).from_model:
            return
    raise InputError(f"{path}: exists, and is not a flow that a model made; give another --output, or remove it")


def _numbers(attributes: Mapping[str, Any], name: str, count: int) -> list[float]:
    try:
        values = np.asarray(attributes[name], np.float64).reshape(-1)
    except (KeyError, TypeError, ValueError):
        values = np.empty(0)
    if len(values) != count or not np.isfinite(values).all():
        _refuse(f"no attribute {name} of {count} finite number{'s' * (count > 1)}")
    return list(values.tolist())


def _refuse(reason: str) -> NoReturn:
    raise BadFileError(f"{reason}; give files as docs/formats.md describes them")
