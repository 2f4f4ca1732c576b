"""Edges of the bins, and blocks of cells, in which showers are measured, for any calorimeter.

Both sets of a comparison share them.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import HIT_GEV, Array, Geometry, Index
from calopipe.showers.positions import positions

# Edges of the rings, in cells: a quarter of a cell apart where the density falls by half within a cell, farther apart
# where few cells hold energy. The last ring is open.
RING_EDGES = np.concatenate([np.arange(0, 4, 0.25), np.arange(4, 8, 0.5), np.arange(8, 13)])

CELL_GEV = 2e-6  # a cell with less (1e-4 in the reference's units) counts as a cell without energy

# log10(E/GeV) of cells with energy: forty bins from the threshold of a hit to 1 GeV, which is more than any cell of a
# 200 GeV electron holds. Bins of the same width continue down to `CELL_GEV`, and up to 1 TeV for calibrated cells and
# thick layers. The last bin is open.
SPECTRUM_EDGES = np.log10(HIT_GEV) * (1 - np.arange(-25, 75) / 40)

RADIAL_BINS = 30  # of half a cell each, the last one open: 15 cells hold all but 1e-3 of the energy
_GROWTH = 0.1  # least width of a ring over its inner radius: so the outer part of a calorimeter has few rings
_ROUNDING = 1e-3  # edges that are nearer than this, in cells, count as one

# Blocks of cells: so few numbers that a classifier, or a distance, can use them.
_SECTORS, _RING_GROUPS, _GRID_GROUPS = 8, 9, 5
_OUTER_CELLS = np.array([1, 2, 3, 5, 8])  # radii between joined rings, in cells from the axis
# Edges of blocks along x and y, in cells from the axis. For an even or odd number of cells, an edge is a quarter of a
# cell or more from the middles of cells. Blocks are 3 cells wide in the middle (2 for an even number), then 2, 4 and 8,
# as the density falls.
_LATERAL_CELLS = np.array([-15.25, -7.25, -3.25, -1.25, 1.25, 3.25, 7.25, 15.25])
_MANY = 64  # more than the number of blocks along x or y

_UNITS_GEV = (("GeV", 1.0), ("MeV", 1e-3), ("keV", 1e-6))
_WIDE = 3.0  # a beam of 100 to 200 GeV is not wide


def wide(energy_gev: npt.NDArray[np.floating]) -> bool:
    """Whether energies (N,) span more than a factor of three. Bins and fits then use the logarithm of the energy."""
    return bool(len(energy_gev) and energy_gev.max() > _WIDE * energy_gev.min())


@lru_cache(maxsize=8)
def radial_edges_mm(geometry: Geometry) -> Array:
    """Edges of `Observables.radial`, in mm; the last bin is open.

    Bins are half cells, or the rings of a calorimeter whose cells are in rings: some finer bins would be empty.
    """
    if geometry.rings:
        return _rings_mm(geometry)
    return np.arange(RADIAL_BINS + 1, dtype=np.float64) * geometry.cell_mm / 2


def ring_places(distance: Array, geometry: Geometry) -> Index:
    """The index of the ring (`ring_label`) for each distance from the axis, in units of `geometry.cell_mm`."""
    inner = _rings_mm(geometry)[:-1] / geometry.cell_mm if geometry.rings else RING_EDGES
    return np.searchsorted(inner[1:], distance, side="right")


def ring_count(geometry: Geometry) -> int:
    """The number of rings about the axis."""
    return len(_rings_mm(geometry)) - 1 if geometry.rings else len(RING_EDGES)


def ring_label(geometry: Geometry, first: int, last: int) -> str:
    """The name of the rings `first` to `last` about the axis together; ring 0 is the innermost."""
    edges, unit = (_rings_mm(geometry), "mm") if geometry.rings else ([*RING_EDGES, math.inf], "cells")
    if last == ring_count(geometry) - 1:
        return f"beyond {edges[first]:.4g} {unit}"
    return f"{edges[first]:.4g} to {edges[last + 1]:.4g} {unit}"


def spectrum_labels() -> list[str]:
    """The name of each bin of `SPECTRUM_EDGES`, without the last edge, as the last bin is open."""
    gev = 10**SPECTRUM_EDGES
    edges = [next(f"{edge / unit:.3g} {name}" for name, unit in _UNITS_GEV if edge >= unit) for edge in gev]
    return [*(f"{low} to {high}" for low, high in itertools.pairwise(edges[:-1])), f"beyond {edges[-2]}"]


@lru_cache(maxsize=8)
def lateral_edges_mm(geometry: Geometry) -> tuple[Array, Array]:
    """Edges of the profiles along x and y, from the calorimeter's axis: edges of cells, or of rings to both sides.

    If layers have different cells, the edges of all layers are taken, as far as they are a typical cell apart.
    """
    if geometry.rings:
        edges = _mirrored(_rings_mm(geometry))
        return edges, edges
    along = []
    for axis in (0, 1):
        layers = geometry.every_layer
        sides = {(layer.cells[axis], layer.size_mm[axis]) for layer in layers if layer.size_mm}
        least = float(np.median([layer.size_mm[axis] for layer in layers if layer.size_mm]))
        outward = np.concatenate([np.arange(n % 2, n + 1, 2) * size / 2 for n, size in sides])
        along.append(_mirrored(_apart(np.unique(outward), least, 0.0)))
    return along[0], along[1]


@lru_cache(maxsize=8)
def thirds(geometry: Geometry) -> Index:
    """The third (0, 1 or 2) of the depth, in radiation lengths, in which each layer begins, (layers,).

    Among L layers that are alike, layer i is in third 3i // L: 25 layers divide into 9, 8 and 8.
    """
    where = positions(geometry)
    begins = 3 * (where.z_x0 - where.x0 / 2) / where.x0.sum()
    return np.floor(begins + _ROUNDING / geometry.shape[2]).astype(np.intp)


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
        first = np.repeat(around, m, axis=1)
        second = np.searchsorted(_OUTER_CELLS, where.r_mm / geometry.cell_mm, side="right")
    else:
        first, second = (
            np.searchsorted(_LATERAL_CELLS, mm / geometry.cell_mm, side="right") for mm in (where.x_mm, where.y_mm)
        )
    named = (group[:, None] * _MANY + first) * _MANY + second
    blocks = np.full(where.exists.shape, -1, dtype=np.intp)
    blocks[where.exists] = np.unique(named[where.exists], return_inverse=True)[1]
    return blocks


@lru_cache(maxsize=8)
def _rings_mm(geometry: Geometry) -> Array:
    """Radii of layers' rings, at least a typical cell apart and farther apart outward, from 0 to the largest radius."""
    radii = np.unique(np.concatenate([[0.0], *(layer.r_edges_mm or () for layer in geometry.every_layer)]))
    return _apart(radii, geometry.cell_mm, _GROWTH)


def _apart(edges: Array, least: float, growth: float) -> Array:
    """The rising `edges`, thinned: each is at least `least`, and `growth` times the edge before, away from that edge.

    The first and the last edge are kept.
    """
    kept = [edges[0]]
    for edge in edges[1:]:
        if edge - kept[-1] >= max(least, growth * kept[-1]) * (1 - _ROUNDING):
            kept.append(edge)
    return np.array([edges[0], *kept[1:-1], edges[-1]])


def _mirrored(outward: Array) -> Array:
    return np.unique(np.concatenate([-outward, outward]))
