"""Showers in cells, few enough for a classifier or a distance: coarse blocks, and fine cells about the axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import FloatArray
from validation.measure.axis import RING_EDGES, Array
from validation.measure.deposits import Deposits

Edges = npt.NDArray[np.intp]
FineCells = npt.NDArray[np.float16]

_LAYERS_JOINED = 5  # five radiation lengths of the Geant4 sample; in a ring, a single layer holds a few cells only
_OUTWARD = (2, 4, 8)  # widths beside the middle block, in cells: they grow as the density falls
_REACH = 3  # cells to either side of the axis: 7 x 7 of them hold 96 % of the energy of the Geant4 sample


def coarse_edges(shape: tuple[int, int, int]) -> tuple[Edges, Edges, Edges]:
    """Edges, in units of the index, of the blocks of cells along x, y and the layers of a calorimeter of `shape`.

    From the middle outward a lateral block is 3 cells wide (2 where their number is even), then 2, 4, 8, and what is
    left; a block in depth is 5 layers, the last one what is left. So 51 x 51 x 25 cells make 9 x 9 x 5 blocks.
    """
    x, y, layers = shape
    return _lateral_edges(x), _lateral_edges(y), np.append(np.arange(0, layers, _LAYERS_JOINED), layers)


def coarse_cells(hits: Deposits) -> FloatArray:
    """Energy in the blocks of `coarse_edges`, (N, blocks), in GeV, x slowest and layer fastest."""
    edges = coarse_edges(hits.shape)
    blocks = tuple(len(each) - 1 for each in edges)
    places = [np.repeat(np.arange(len(each) - 1), np.diff(each)) for each in edges]
    block = np.ravel_multi_index((places[0][hits.x], places[1][hits.y], places[2][hits.layer]), blocks)
    return hits.sums(block, int(np.prod(blocks)), hits.energy).astype(np.float32)


def root_shares(coarse_energy: npt.NDArray[Any], energy_gev: npt.NDArray[Any]) -> FloatArray:
    """Root of each block's energy over the shower's incident energy, (N, blocks), for distances between showers.

    Euclid's distance of such roots is Hellinger's, up to a factor: the root makes the fluctuation of a sum of many
    deposits independent of its size, so that the blocks in the core do not rule the distance.
    """
    return np.sqrt(coarse_energy / np.asarray(energy_gev)[:, None]).astype(np.float32)


def fine_cells(
    hits: Deposits, axis: tuple[Array, Array], ring: npt.NDArray[np.intp], filled: npt.NDArray[np.bool_]
) -> FineCells:
    """1,515 numbers of each shower of 25 layers, (N, columns), in half precision: 0.05 % of a value, 3 kB a shower.

    The root of the energy, in GeV, of each cell of 7 x 7 about the cell that the axis crosses, layer by layer; and of
    each ring in each five layers the root of the energy and the number of cells that are `filled`. `axis`: where the
    axis crosses the layer of each hit, along x and y in cells.
    """
    width, layers = 2 * _REACH + 1, hits.shape[2]
    column, row = (
        index - np.floor(at).astype(np.intp) + _REACH for index, at in zip((hits.x, hits.y), axis, strict=True)
    )
    near = (column >= 0) & (column < width) & (row >= 0) & (row < width)
    window = np.zeros((hits.events, layers, width, width))
    window[hits.event[near], hits.layer[near], column[near], row[near]] = hits.energy[near]
    place = hits.layer // _LAYERS_JOINED * len(RING_EDGES) + ring
    places = -(-layers // _LAYERS_JOINED) * len(RING_EDGES)
    sums, counts = hits.sums(place, places, hits.energy), hits.counts(filled, place[filled], places)
    numbers = np.concatenate([np.sqrt(window).reshape(hits.events, -1), np.sqrt(sums), counts], axis=1)
    return np.minimum(numbers, np.finfo(np.float16).max).astype(np.float16)  # cells in another unit may be larger


def _lateral_edges(cells: int) -> Edges:
    middle = 1.5 if cells % 2 else 1.0
    outward = np.minimum(np.cumsum([middle, *_OUTWARD, cells]), cells / 2)
    return np.unique(cells / 2 + np.concatenate([-outward, outward])).astype(np.intp)
