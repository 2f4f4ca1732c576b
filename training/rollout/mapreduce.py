"""One step from each of many frames on Beam. Map sends tiles through the network; reduce joins tiles to frames.

Beam's elements are only the numbers of frames and tiles. A worker reads the windows of its tiles from the file. It
keeps one network, with one compiled step, for all its tiles and threads.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from calopipe import storage
from calopipe.errors import InputError
from calopipe.flow.files import CHUNK_FRAMES, flow_writer, open_flow, require_replaceable
from preprocessing.runner import pipeline
from training.models.source import ModelFile, file_of
from training.rollout.stepper import Stepper

Piece = tuple[int, int]  # a frame of the file, and a tile of it
GROUP = 8  # tiles that go through the network together

_loading = threading.Lock()
_loaded: dict[str, Stepper] = {}  # models of this process, by fingerprint; all its threads use them


def advance(model: Path, start: Path, side: tuple[int, int], output: Path, beam_options: Sequence[str] = ()) -> None:
    """Write, for each frame of the flow file `start`, the frame one interval of the model later.

    Cores of tiles have `side` (x, y) cells. Workers on other hosts need `model`, `start` and the folder of `output` at
    the same paths. InputError: the model is of another field or for other frames, `side` does not fit the model, or a
    value is not a finite number.
    """
    require_replaceable(output, start)
    stepper, flow = Stepper(model), open_flow(start)
    stepper.require_fitting(flow)
    card, network, frames = stepper.card, stepper.model, range(len(flow.time))
    for first in frames[::CHUNK_FRAMES]:
        flow.velocity(first, first + CHUNK_FRAMES)  # raises here what is wrong: a worker's error is many lines
    cut = tiles(card.geometry.shape, side, reach=network.reach, stride=network.stride)
    pieces = [(frame, number) for frame in frames for number in range(len(cut))]
    groups = [pieces[first : first + GROUP] for first in range(0, len(pieces), GROUP)]
    identity, began = card.fingerprint(), float(flow.time[0]) + card.geometry.interval_d
    _loaded[identity] = stepper
    storage.require_writable(output.parent)
    with (
        tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as place,
        flow_writer(output, flow, attributes=stepper.attributes(start), first=began) as write,
    ):
        with pipeline(beam_options) as begun:
            import apache_beam as beam  # noqa: PLC0415  takes seconds

            through = beam.FlatMap(_through_network, str(model), identity, str(start), cut, file=file_of(card.config))
            (
                begun
                | "Groups of tiles" >> beam.Create(groups)
                | "Spread over workers" >> beam.Reshuffle()
                | "Map" >> through
                | "By frame" >> beam.GroupByKey()
                | "Reduce" >> beam.Map(_merge, place, cut)
            )
        for frame in frames:
            write(np.load(Path(place) / f"{frame}.npy")[None])
    print(f"flow: {output}")


def _through_network(
    group: Sequence[Piece], model: str, identity: str, start: str, cut: Sequence[Tile], *, file: ModelFile | None
) -> Iterator[Any]:
    """(frame, (tile, velocity of its core)) for each piece of a group. `file` is the user's file of a model, if any."""
    stepper, flow = _stepper(model, identity, file), open_flow(Path(start))
    windows = []
    for frame, number in group:
        windows.append((flow.velocity(frame, frame + 1)[0, *cut[number].window], flow.solid[cut[number].window]))
    windows += windows[-1:] * (GROUP - len(windows))  # so that the step has one shape
    velocity, solid = (np.stack(part) for part in zip(*windows, strict=True))
    made = stepper.step(velocity, solid, np.full(GROUP, flow.reynolds, np.float32))
    for (frame, number), answer in zip(group, made[: len(group)], strict=True):
        yield frame, (number, answer[cut[number].inner])


def _merge(of_frame: tuple[int, Iterable[tuple[int, Any]]], place: str, cut: Sequence[Tile]) -> None:
    """Join the cores of a frame's tiles, and write the frame."""
    frame, parts = of_frame
    shape = tuple(max(tile.core[axis].stop for tile in cut) for axis in (0, 1))
    whole = np.full((*shape, 2), np.nan, np.float32)
    for number, core in parts:
        whole[cut[number].core] = core
    np.save(Path(place) / f"{frame}.npy", whole)


def _stepper(model: str, identity: str, file: ModelFile | None) -> Stepper:
    """The model `identity` of this process, loaded when a thread first needs it."""
    with _loading:
        if identity not in _loaded:
            if file is not None:
                file.run()
            stepper = Stepper(Path(model))
            if stepper.card.fingerprint() != identity:
                raise InputError(f"{model}: replaced while tiles were made with it; run the command again")
            _loaded[identity] = stepper
        return _loaded[identity]


Box = tuple[slice, slice]  # along x and y


@dataclass(frozen=True)
class Tile:
    """Parts of a frame: `window` is the network's input, `core` the part of its answer that is kept. `inner` is the
    core's place in the window.
    """

    window: Box
    core: Box
    inner: Box


def tiles(shape: Sequence[int], side: Sequence[int], *, reach: int, stride: int) -> list[Tile]:
    """Tiles whose cores have `side` (x, y) cells, or less at the far end, and together are the frame of `shape`.

    All windows have one shape, so one compiled step is enough. Each begins at a multiple of `stride`, and holds all
    cells of the frame up to `reach` away from its core. Where a window ends within the frame, this end does not change
    the core. Where it ends with the frame, the network pads as it does for the whole frame.

    Raises InputError unless the sides of frame and cores are multiples of `stride`.
    """
    if min(side) < 1 or any(cells % stride for cells in (*side, *shape)):
        raise InputError(
            f"--tile is {side[0]}x{side[1]} for frames of {tuple(shape)} cells, expected multiples of {stride}, which "
            "the model asks for"
        )
    halo = -(-reach // stride) * stride
    along_x, along_y = (_cut(cells, length, halo) for cells, length in zip(shape, side, strict=True))
    return [Tile((x[0], y[0]), (x[1], y[1]), (x[2], y[2])) for x, y in product(along_x, along_y)]


def _cut(cells: int, side: int, halo: int) -> list[tuple[slice, slice, slice]]:
    """Window, core and the core's place in the window along an axis."""
    width = min(side + 2 * halo, cells)
    pieces = []
    for begin in range(0, cells, side):
        first = min(max(begin - halo, 0), cells - width)
        end = min(begin + side, cells)
        pieces.append((slice(first, first + width), slice(begin, end), slice(begin - first, end - first)))
    return pieces
