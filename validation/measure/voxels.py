"""Showers as energies of blocks of cells: few enough numbers for a classifier or a distance."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from calopipe.showers.cells import FloatArray, Geometry, Index
from calopipe.showers.positions import positions
from validation.measure.deposits import Deposits

_SECTORS, _RING_GROUPS, _GRID_GROUPS = 8, 9, 5
_OUTER_CELLS = np.array([1, 2, 3, 5, 8])  # radii between joined rings, in cells from the axis
# Edges of blocks along x and y, in cells from the axis. For an even or odd number of cells, an edge is a quarter of a
# cell or more from the middles of cells. Blocks are 3 cells wide in the middle (2 for an even number), then 2, 4 and 8,
# as the density falls.
_LATERAL_CELLS = np.array([-15.25, -7.25, -3.25, -1.25, 1.25, 3.25, 7.25, 15.25])
_MANY = 64  # more than the number of blocks along x or y


def coarse_cells(hits: Deposits, geometry: Geometry) -> FloatArray:
    """Energy in the `coarse_blocks` of cells, (N, blocks), in GeV."""
    blocks = coarse_blocks(geometry)
    return hits.sums(blocks[hits.layer, hits.places], int(blocks.max()) + 1, hits.energy).astype(np.float32)


@lru_cache(maxsize=8)
def coarse_blocks(geometry: Geometry) -> Index:
    """The block of each place of each layer, (layers, places), at most 500 blocks; -1 where there is no cell.

    Cells in rings: eight sectors of the angle, by six distances from the axis, by at most nine groups of layers.
    Rectangular cells: nine by nine places along x and y, by at most five groups of layers.
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
        x, y = (np.searchsorted(_LATERAL_CELLS, mm / geometry.cell_mm, side="right") for mm in (where.x_mm, where.y_mm))
        lateral = x, y
    named = (group[:, None] * _MANY + lateral[0]) * _MANY + lateral[1]
    blocks = np.full(where.exists.shape, -1, dtype=np.intp)
    blocks[where.exists] = np.unique(named[where.exists], return_inverse=True)[1]
    return blocks
