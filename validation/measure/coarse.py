"""Showers in coarse cells, fine on the axis and wide outside: few enough columns for a classifier and for distances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import FloatArray

Edges = npt.NDArray[np.intp]
Places = npt.NDArray[np.integer[Any]]

_LAYERS_JOINED = 5  # five radiation lengths of the Geant4 sample
_OUTWARD = (2, 4, 8)  # widths beside the middle block, in cells: they grow as the density falls


def coarse_edges(shape: tuple[int, int, int]) -> tuple[Edges, Edges, Edges]:
    """Edges, in units of the index, of the blocks of cells along x, y and the layers of a calorimeter of `shape`.

    From the middle outward a lateral block is 3 cells wide (2 where their number is even), then 2, 4, 8, and what is
    left; a block in depth is 5 layers, the last one what is left. So 51 x 51 x 25 cells make 9 x 9 x 5 blocks.
    """
    x, y, layers = shape
    return _lateral_edges(x), _lateral_edges(y), np.append(np.arange(0, layers, _LAYERS_JOINED), layers)


def coarse(
    event: Places, x: Places, y: Places, layer: Places, energy: npt.NDArray[Any], *,
    events: int, shape: tuple[int, int, int],
) -> FloatArray:  # fmt: skip
    """Energy in the blocks of `coarse_edges`, (events, blocks), in the unit of `energy`, x slowest and layer fastest.

    Each of the first five arguments is (hits,): which event, the cell's indices in a calorimeter of `shape`, and its
    energy. Sums are made in double precision.
    """
    edges = coarse_edges(shape)
    blocks = tuple(len(each) - 1 for each in edges)
    places = [np.repeat(np.arange(len(each) - 1), np.diff(each)) for each in edges]
    column = np.ravel_multi_index((places[0][x], places[1][y], places[2][layer]), blocks)
    columns = math.prod(blocks)
    sums = np.bincount(event * columns + column, weights=energy, minlength=events * columns)
    return sums.reshape(events, columns).astype(np.float32)


def root_shares(coarse_energy: npt.NDArray[Any], energy_gev: npt.NDArray[Any]) -> FloatArray:
    """Root of each block's energy over the shower's incident energy, (N, blocks), for distances between showers.

    Euclid's distance of such roots is Hellinger's, up to a factor: the root makes the fluctuation of a sum of many
    deposits independent of its size, so that the blocks in the core do not rule the distance.
    """
    return np.sqrt(coarse_energy / np.asarray(energy_gev)[:, None]).astype(np.float32)


def _lateral_edges(cells: int) -> Edges:
    middle = 1.5 if cells % 2 else 1.0
    outward = np.minimum(np.cumsum([middle, *_OUTWARD, cells]), cells / 2)
    return np.unique(cells / 2 + np.concatenate([-outward, outward])).astype(np.intp)
