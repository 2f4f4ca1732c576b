"""The input of a dataset of flows: files are checked once, and the pairs of a range of a file become records.

A record is a `tf.train.Example` with the features

    now, next   bytes   velocity of two frames, (x, y, 2) little-endian float32 in U
    solid       bytes   (x, y) of one byte, 1 in the obstacle
    reynolds, time   float   the Reynolds number, and the time of `now` in D/U
    event       int64   index of the pair in its file: the frame of `now`
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.contents import distinct
from calopipe.events.tolerance import FLAWS, BadFileError, Tolerance
from calopipe.flow.files import FloatArray, FlowFile, open_flow
from calopipe.flow.mechanics import transverse, unsettled
from calopipe.storage import Location
from preprocessing.inputs import InputFile, Inputs, looked_at, sorted_out
from preprocessing.manifest import Content
from preprocessing.records import example

LEAST_FRAMES = 16  # of a simulation: fewer frames do not show whether it sheds vortices


def discover_pairs(patterns: Sequence[str], step: int, tolerance: Tolerance) -> Inputs:
    """The flow files that `patterns` name, each checked, each content once. The `events` of a file are its pairs of
    frames, `step` intervals apart.

    Raises InputError, also for files of different grids. A file that is not a flow, or in which the wake does not shed
    vortices evenly, is left out if `tolerance` says so.
    """
    paths = storage.expand(patterns)
    files, bad = sorted_out([looked_at(path, {}, partial(_look, step=step)) for path in paths], paths, tolerance)
    return Inputs(tuple(distinct(files)), bad)


def _look(path: Location, stamp: tuple[int, int], step: int) -> InputFile:
    file = open_flow(path, LEAST_FRAMES + step)
    if file.from_model:
        raise InputError(f"{path}: a model's roll-out, a solver's simulation is expected; leave it out of --input")
    signal = transverse(file.frames(0, len(file.time)), file.solid, file.grid.cell_d)
    if reason := unsettled(signal[np.isfinite(signal)]):
        raise BadFileError(
            f"{path}: {reason}: it sheds no steady vortices yet; simulate longer, and leave the beginning out"
        )
    grid = replace(file.grid, interval_d=step * file.grid.interval_d)
    return InputFile(path, storage.sha256_of_file(path), len(file.time) - step, 1, grid, stamp=stamp, look=None)


def read_pairs(path: Location, start: int, stop: int, step: int) -> Content:
    """The pairs `start` to `stop` of the file `path`. Pairs with a frame that is not finite are bad events."""
    file = open_flow(path)
    frames = file.frames(start, stop + step)
    finite = np.asarray(np.isfinite(frames).all(axis=(1, 2, 3)))
    now, after = frames[: stop - start], frames[step:]
    good = finite[: stop - start] & finite[step:]
    kept = np.flatnonzero(good)
    return Content(
        digests=np.array([_digest(file, *pair) for pair in zip(now, after, strict=True)], dtype=np.uint64),
        events=start + kept,
        split_by=np.full(len(kept), file.digest, dtype=np.uint64),
        encoded=[_record(file, int(start + row), now[row], after[row]) for row in kept],
        bad_events=[(int(start + row), FLAWS[1]) for row in np.flatnonzero(~good)],
        first_bad="" if good.all() else file.flaw(start + int(np.argmin(finite))),
        in_receipt={"reynolds": [file.reynolds, file.reynolds] if len(kept) else None, "flow": f"{file.digest:016x}"},
    )


def _digest(file: FlowFile, now: FloatArray, after: FloatArray) -> np.uint64:
    content = np.float32(file.reynolds).tobytes() + now.tobytes() + after.tobytes()
    return np.frombuffer(hashlib.sha256(content).digest()[:8], "<u8")[0]


def _record(file: FlowFile, event: int, now: FloatArray, after: FloatArray) -> bytes:
    return example(
        now=now.astype("<f4").tobytes(),
        next=after.astype("<f4").tobytes(),
        solid=file.solid.astype(np.uint8).tobytes(),
        reynolds=file.reynolds,
        time=float(file.time[event]),
        event=event,
    )
