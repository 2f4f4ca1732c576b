"""A roll-out and the solver's simulation that it was started from: which frames of the two are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from calopipe.flow.files import FlowFile

Frames = npt.NDArray[np.float32]

_SAME = 0.01  # times that differ by less than this share of an interval are equal; so are Reynolds numbers and ratios


@dataclass(frozen=True)
class Pair:
    """`count` frames of a candidate, and every `stride`-th frame of the solver's simulation from its frame `start`."""

    reference: FlowFile
    candidate: FlowFile
    start: int
    stride: int
    count: int

    @property
    def interval_d(self) -> float:
        return self.stride * self.reference.grid.interval_d

    def solver(self) -> Frames:
        """The solver's frames, (count, x, y, 2)."""
        return self.reference.velocity(self.start, self.start + self.stride * (self.count - 1) + 1)[:: self.stride]


def pair_of(candidate: FlowFile, references: Sequence[FlowFile]) -> Pair:
    """The candidate with the simulation that it was started from.

    The simulation has the same grid, obstacle, Reynolds number and times. If several have, the frame of the chosen one
    is nearest to the candidate's first. InputError: there is no such simulation, or its interval does not fit.
    """
    first, matches = candidate.velocity(0, 1), []
    for flow in references:
        start = int(np.abs(flow.time - candidate.time[0]).argmin())
        same_time = abs(flow.time[start] - candidate.time[0]) < _SAME * flow.grid.interval_d
        if _same_flow(flow, candidate) and np.array_equal(flow.solid, candidate.solid) and same_time:
            matches.append((float(np.linalg.norm(flow.velocity(start, start + 1) - first)), start, flow))
    if not matches:
        raise InputError(
            f"{candidate.path}: no --reference has its grid {candidate.grid.shape}, its obstacle, the Reynolds number "
            f"{candidate.reynolds:g} and a frame at {candidate.time[0]:g} D/U; give the simulation that it started from"
        )
    _, start, reference = min(matches, key=lambda match: match[0])
    stride = _stride(candidate.grid.interval_d, reference)
    count = min(len(candidate.time), (len(reference.time) - start - 1) // stride + 1)
    return Pair(reference, candidate, start, stride, count)


def floor_frames(pair: Pair, other: FlowFile) -> Frames | None:
    """Frames (n, x, y, 2) of another solver's run of a pair's flow, from its frame nearest to the pair's first.

    n is the pair's count, or less if the run is shorter. A finer grid is averaged over whole cells. None if the run is
    of another flow. InputError: its cells or its intervals do not divide those of the pair.
    """
    reference = pair.reference
    if not _same_flow(reference, other):
        return None
    (x, y), factor = reference.grid.shape, max(round(reference.grid.cell_d / other.grid.cell_d), 1)
    if other.grid.shape != (factor * x, factor * y):
        raise InputError(
            f"{other.path}: {other.grid.shape} cells; --floor needs the {(x, y)} of {reference.path}, or a multiple"
        )
    stride = _stride(pair.interval_d, other)
    count = min(pair.count, (len(other.time) - 1) // stride + 1)
    last = len(other.time) - stride * (count - 1)
    stored = other.velocity(0, len(other.time))
    frames = stored.reshape(len(stored), x, factor, y, factor, 2).mean(axis=(2, 4))
    first = pair.solver()[0]
    start = int(np.argmin([np.linalg.norm(frame - first) for frame in frames[:last]]))
    return frames[start::stride][:count]


def _same_flow(reference: FlowFile, other: FlowFile) -> bool:
    return abs(reference.reynolds / other.reynolds - 1) < _SAME and np.allclose(
        reference.obstacle_d, other.obstacle_d, rtol=_SAME
    )


def _stride(interval_d: float, file: FlowFile) -> int:
    stride = round(interval_d / file.grid.interval_d)
    if stride < 1 or abs(stride * file.grid.interval_d / interval_d - 1) > _SAME:
        raise InputError(
            f"{file.path}: its interval of {file.grid.interval_d:g} D/U does not divide that of the roll-out, "
            f"{interval_d:g} D/U; give simulations with the interval of the roll-out, or with 1/2, 1/3 ... of it"
        )
    return stride
