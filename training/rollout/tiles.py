"""A frame as tiles with a halo, which a network sees as it sees the whole frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from calopipe.errors import InputError

Box = tuple[slice, slice]  # along x and y


@dataclass(frozen=True)
class Tile:
    """`window` is what the network is given of a frame, `core` what is kept of its answer, `inner` the core's place in
    the window.
    """

    window: Box
    core: Box
    inner: Box


def tiles(shape: Sequence[int], side: Sequence[int], *, reach: int, stride: int) -> list[Tile]:
    """Tiles of cores of `side` (x, y) cells, or less at the far end, which together are the frame of `shape`.

    All windows have one shape, so that one compiled step serves all. Each begins at a multiple of `stride`, and holds
    the cells up to `reach` away from its core that the frame has: where a window ends within the frame, a cell of the
    core does not see that it ends; where it ends with the frame, the network fills up as it does for the whole frame.

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
    found = []
    for begin in range(0, cells, side):
        first = min(max(begin - halo, 0), cells - width)
        end = min(begin + side, cells)
        found.append((slice(first, first + width), slice(begin, end), slice(begin - first, end - first)))
    return found
