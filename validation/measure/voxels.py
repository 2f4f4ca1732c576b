"""Showers in cells, few enough for a classifier or a distance: coarse blocks, and fine cells about the axis."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import FloatArray, Geometry
from calopipe.showers.positions import positions
from validation.measure.deposits import Deposits
from validation.measure.edges import ring_labels
from validation.measure.seen import Seen

Edges = npt.NDArray[np.intp]
FineCells = npt.NDArray[np.float16]

_LAYERS_JOINED = 5  # five radiation lengths of the Geant4 sample; in a ring, a single layer holds a few cells only
_OUTWARD = (2, 4, 8)  # widths beside the middle block, in cells: they grow as the density falls
_SECTORS, _RING_GROUPS, _GRID_GROUPS = 8, 9, 6
_OUTER_CELLS = np.array([1, 2, 3, 5, 8])  # from the axis, between rings that are joined
_MANY = 64  # more than there are blocks across
_REACH = 3  # cells to either side of the axis: 7 x 7 of them hold 96 % of the energy of the Geant4 sample


def coarse_edges(shape: tuple[int, int, int]) -> tuple[Edges, Edges, Edges]:
    """Edges, in units of the index, of the blocks of cells along x, y and the layers of a calorimeter of `shape`.

    From the middle outward a lateral block is 3 cells wide (2 where their number is even), then 2, 4, 8, and what is
    left; a block in depth is 5 layers, the last one what is left. So 51 x 51 x 25 cells make 9 x 9 x 5 blocks.
    """
    x, y, layers = shape
    return _lateral_edges(x), _lateral_edges(y), np.append(np.arange(0, layers, _LAYERS_JOINED), layers)


def coarse_cells(hits: Deposits, geometry: Geometry) -> FloatArray:
    """Energy in blocks of cells, (N, blocks), in GeV: those of `coarse_edges`, x slowest and layer fastest, or of
    `listed_blocks`.
    """
    if geometry.layers:
        blocks = listed_blocks(geometry)
        return hits.sums(blocks[hits.layer, hits.places], int(blocks.max()) + 1, hits.energy).astype(np.float32)
    edges = coarse_edges(hits.shape)
    counts = tuple(len(each) - 1 for each in edges)
    places = [np.repeat(np.arange(len(each) - 1), np.diff(each)) for each in edges]
    block = np.ravel_multi_index((places[0][hits.x], places[1][hits.y], places[2][hits.layer]), counts)
    return hits.sums(block, int(np.prod(counts)), hits.energy).astype(np.float32)


@lru_cache(maxsize=8)
def listed_blocks(geometry: Geometry) -> Edges:
    """In which block each place of each layer is, (layers, places), at most 500 of them; -1 where there is no cell.

    In rings: eight sectors of the angle, by six distances from the axis, by at most nine groups of layers. Rectangular
    cells: nine by nine places along x and y, by at most six groups.
    """
    where, (n, m, layers) = positions(geometry), geometry.shape
    most = _RING_GROUPS if geometry.rings else _GRID_GROUPS
    group = np.arange(layers) * min(layers, most) // layers
    if geometry.rings:
        angles = np.array([layer.cells[0] for layer in geometry.layers])
        around = np.arange(n)[None, :] * np.minimum(angles, _SECTORS)[:, None] // angles[:, None]
        lateral = (
            np.repeat(around, m, axis=1),
            np.searchsorted(_OUTER_CELLS, where.r_mm / geometry.cell_mm, side="right"),
        )
    else:
        edges = np.cumsum([1.5, *_OUTWARD])
        edges = np.concatenate([-edges[::-1], edges])
        x, y = (np.searchsorted(edges, mm / geometry.cell_mm, side="right") for mm in (where.x_mm, where.y_mm))
        lateral = x, y
    named = (group[:, None] * _MANY + lateral[0]) * _MANY + lateral[1]
    found = np.full(where.exists.shape, -1, dtype=np.intp)
    found[where.exists] = np.unique(named[where.exists], return_inverse=True)[1]
    return found


def root_shares(coarse_energy: npt.NDArray[Any], energy_gev: npt.NDArray[Any]) -> FloatArray:
    """Root of each block's energy over the shower's incident energy, (N, blocks), for distances between showers.

    Euclid's distance of such roots is Hellinger's, up to a factor: the root makes the fluctuation of a sum of many
    deposits independent of its size, so that the blocks in the core do not rule the distance.
    """
    return np.sqrt(coarse_energy / np.asarray(energy_gev)[:, None]).astype(np.float32)


def fine_cells(
    hits: Deposits, found: Seen, ring: Edges, filled: npt.NDArray[np.bool_], geometry: Geometry
) -> FineCells:
    """What a classifier sees of single cells, (N, columns), in half precision: 0.05 % of a value.

    The root of the energy, in GeV, of each cell of 7 x 7 about the cell that the axis crosses, layer by layer; and of
    each ring about it (`ring` of each hit) in each five layers the root of the energy and the number of cells
    that are `filled`: 1,515 numbers of a shower of 25 layers, 3 kB. Of cells in rings: the root of the energy and the
    number of filled cells of each ring of each layer, and the root of the energy of each cell summed over five layers,
    of at most eight sectors: 1,458 numbers for 45 layers of 16 x 9 cells.
    """
    width, (n, m, layers) = 2 * _REACH + 1, hits.shape
    joined = hits.layer // _LAYERS_JOINED
    groups = -(-layers // _LAYERS_JOINED)
    if geometry.rings:
        angles = np.array([layer.cells[0] for layer in geometry.layers])[hits.layer]
        sector = hits.x * np.minimum(angles, _SECTORS) // angles
        sectors = min(n, _SECTORS)
        single = hits.sums((joined * sectors + sector) * m + hits.y, groups * sectors * m, hits.energy)
        place, places = hits.layer * m + hits.y, layers * m
    else:
        column, row = found.column + _REACH, found.row + _REACH
        near = (column >= 0) & (column < width) & (row >= 0) & (row < width)
        window = np.zeros((hits.events, layers, width, width))
        window[hits.event[near], hits.layer[near], column[near], row[near]] = hits.energy[near]
        single = window.reshape(hits.events, -1)
        rings = len(ring_labels(geometry))
        place, places = joined * rings + ring, groups * rings
    sums, counts = hits.sums(place, places, hits.energy), hits.counts(filled, place[filled], places)
    numbers = np.concatenate([np.sqrt(single), np.sqrt(sums), counts], axis=1)
    return np.minimum(numbers, np.finfo(np.float16).max).astype(np.float16)  # cells in another unit may be larger


def _lateral_edges(cells: int) -> Edges:
    middle = 1.5 if cells % 2 else 1.0
    outward = np.minimum(np.cumsum([middle, *_OUTWARD, cells]), cells / 2)
    return np.unique(cells / 2 + np.concatenate([-outward, outward])).astype(np.intp)
