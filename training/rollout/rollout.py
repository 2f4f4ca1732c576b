"""Many steps from one frame: the model continues the flow, and each frame is written when it is made."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from calopipe import storage
from calopipe.errors import InputError, require_least
from calopipe.flow.files import (
    START,
    START_SEEN,
    FloatArray,
    FlowFile,
    flow_writer,
    open_flow,
    require_replaceable,
)
from calopipe.flow.mechanics import vorticity
from calopipe.progress import progress_bar
from preprocessing.flow.pairs import read_pairs
from training.load_model import load_model
from training.model_folder import SEEN
from training.models.flow import FlowModel

_FASTEST = 10.0  # in U; a flow behind an obstacle has no higher velocity
_SAME = 1e-3  # relative: a Reynolds number may be so far outside of the training's range


def roll_out(model: Path, start: Path, output: Path, *, frame: int = 0, steps: int, movie: Path | None = None) -> None:
    """Write the flow that the model in folder `model` makes in `steps` steps from a `frame` of the flow file `start`.

    The file `output` begins with that frame; a negative `frame` counts from the end. `movie` is a GIF of vorticity,
    beside the solver's as long as `start` has frames at the model's interval.

    InputError: the model was trained for another grid or other Reynolds numbers, there is no such frame, or velocities
    grow out of bounds.
    """
    require_replaceable(output, start)
    if movie is not None:
        _require_movie(movie)
    stepper, flow = Stepper(model), open_flow(start)
    stepper.require_fitting(flow)
    frames = len(flow.time)
    if not -frames <= frame < frames:
        raise InputError(f"--start {start}:{frame}: the file holds frames 0 to {frames - 1}; give one of them")
    require_least("--steps", steps, 1)
    number = frame % frames
    began, in_network = time.perf_counter(), 0.0
    velocity = flow.velocity(number, number + 1)
    solid, reynolds = flow.solid[None], np.full(1, flow.reynolds, np.float32)
    grid = replace(flow.grid, interval_d=stepper.card.geometry.interval_d)
    attributes = {
        "solver": f"the model {stepper.card.config.model}",
        "model": stepper.card.fingerprint(),
        "seed": stepper.card.config.seed,
        "start_file": start.name,
        START: storage.sha256_of_file(start),
        "start_frame": number,
        START_SEEN: _seen(model, stepper, flow),
    }
    with (
        flow_writer(output, flow, grid=grid, attributes=attributes, first=float(flow.time[number])) as write,
        progress_bar("roll out", steps, "steps") as bar,
    ):
        write(velocity)
        for step in range(1, steps + 1):
            before = time.perf_counter()
            velocity = stepper.step(velocity, solid, reynolds)
            in_network += time.perf_counter() - before
            fastest = float(np.abs(velocity).max())
            if not fastest < _FASTEST:  # NaN too
                raise InputError(
                    f"step {step}: the velocity reaches {fastest:.3g} U, the roll-out has left the flows that the "
                    f"model knows; give --steps {step - 1}, or train it longer or with more --noise"
                )
            write(velocity)
            bar.update(1)
    seconds = time.perf_counter() - began
    print(f"{steps} steps in {seconds:.2f} s, of which {in_network:.2f} s in the network")
    print(f"flow: {output}")
    if movie is not None:
        _draw(movie, open_flow(output), flow, number)
        print(f"movie: {movie}")


class Stepper:
    """The model in the folder `place`, with one compiled step for all frames of a shape.

    InputError: it is not a model of flows.
    """

    def __init__(self, place: Path) -> None:
        self.card, network = load_model(place)
        if not isinstance(network, FlowModel):
            raise InputError(f"{place}: a model {self.card.config.model}, which makes no flow; give another")
        self._step = tf.function(network.advance, autograph=False)

    def step(self, velocity: FloatArray, solid: npt.NDArray[np.bool_], reynolds: FloatArray) -> FloatArray:
        """The `velocity` (N, x, y, 2) one interval later, with obstacles `solid` (N, x, y) and `reynolds` (N,)."""
        tensors = (tf.constant(values, tf.float32) for values in (velocity, solid, reynolds))
        return self._step(*tensors).numpy()

    def require_fitting(self, flow: FlowFile) -> None:
        """Raise InputError unless `flow` has the model's cells, and a Reynolds number that the model was trained for.

        The time between its frames may differ from the model's interval: the model needs only one frame.
        """
        grid = self.card.geometry
        if differs := grid.difference(replace(flow.grid, interval_d=grid.interval_d)):
            name, own, stored = differs
            raise InputError(f"{flow.path}: {name} is {stored}, the model was trained on {own}; give frames like those")
        low, high = self.card.valid_range["reynolds"]
        if not low * (1 - _SAME) <= flow.reynolds <= high * (1 + _SAME):
            raise InputError(
                f"{flow.path}: Reynolds number {flow.reynolds:g}, the model is valid from {low:g} to {high:g}; give "
                "another simulation, or train on more"
            )


def _seen(model: Path, stepper: Stepper, flow: FlowFile) -> bool:
    """Whether the model has seen a pair of frames of `flow`; False if its card does not say what it has seen."""
    stride = round(stepper.card.geometry.interval_d / flow.grid.interval_d)
    if SEEN not in stepper.card.files or not 1 <= stride < len(flow.time):
        return False
    pairs = read_pairs(flow.path, 0, len(flow.time) - stride, stride)
    return bool(np.isin(pairs.digests, np.load(model / SEEN)).any())


def _require_movie(path: Path) -> None:
    """Raise InputError if `path` exists and is not a movie that this program made."""
    from PIL import Image  # noqa: PLC0415  Pillow comes with matplotlib

    if not path.exists():
        return
    with suppress(OSError), Image.open(path) as picture:
        if picture.info.get("comment") == _COMMENT:
            return
    raise InputError(f"{path}: exists, and is not a movie of a roll-out; give another --movie, or remove it")


def _draw(movie: Path, made: FlowFile, flow: FlowFile, first: int) -> None:
    """Draw the flow `made`, below the solver's `flow` from its frame `first`, if this has frames at the same times."""
    count = len(made.time)
    between = made.grid.interval_d / flow.grid.interval_d
    every = round(between)
    flows = {}
    if every >= 1 and abs(between / every - 1) < 1e-3 and first + every < len(flow.time):
        count = min(count, (len(flow.time) - 1 - first) // every + 1)
        solver = flow.velocity(first, first + (count - 1) * every + 1)[::every]
        flows["solver"] = vorticity(solver, flow.grid.cell_d)
    flows["model"] = vorticity(made.velocity(0, count), made.grid.cell_d)
    write_movie(movie, flows, made.solid)


_LEVELS = 24  # levels of colour: few, so that a picture compresses well
_MARGIN = 14  # pixels above each flow, for its name
_MILLISECONDS = 80  # for each picture
_SHARE = 0.995  # the colours span the vorticity of this share of the cells
_WIDTH = 384  # pixels, at least
_COMMENT = b"calopipe"  # marks the file as a movie of this program


def write_movie(path: Path, flows: dict[str, FloatArray], solid: npt.NDArray[np.bool_]) -> None:
    """Write a GIF of `flows`: by name the vorticity (T, x, y), of T frames each. The first flow sets the scale."""
    from PIL import Image, ImageDraw  # noqa: PLC0415  Pillow comes with matplotlib

    first = next(iter(flows.values()))
    highest = float(np.quantile(np.abs(first), _SHARE)) or 1.0
    shades = np.asarray(mpl.colormaps["RdBu_r"](np.linspace(0, 1, _LEVELS)))[:, :3]
    colours = np.array([[0.3, 0.3, 0.3], [1, 1, 1], [0, 0, 0]])
    palette = (np.concatenate([shades, colours]) * 255).astype(np.uint8)
    grey, white, black = range(_LEVELS, _LEVELS + 3)
    zoom = -(-_WIDTH // solid.shape[0])
    frames: list[Any] = []
    for number in range(len(first)):
        rows = []
        for flow in flows.values():
            level = np.clip((flow[number] / highest + 1) / 2 * _LEVELS, 0, _LEVELS - 1).astype(np.uint8)
            picture = np.where(solid, grey, level).astype(np.uint8).T[::-1]  # y upwards
            rows += [np.full((_MARGIN, zoom * len(solid)), white, np.uint8), np.kron(picture, np.ones((zoom, zoom)))]
        frame = Image.fromarray(np.vstack(rows).astype(np.uint8), "P")
        frame.putpalette(palette.tobytes())
        pen = ImageDraw.Draw(frame)
        for row, name in enumerate(flows):
            pen.text((2, row * (_MARGIN + zoom * solid.shape[1]) + 1), f"{name}, frame {number}", fill=black)
        frames.append(frame)
    with storage.replacing(path) as temporary:
        frames[0].save(
            temporary, "GIF", save_all=True, append_images=frames[1:], duration=_MILLISECONDS, loop=0, optimize=False,
            comment=_COMMENT,
        )  # fmt: skip
