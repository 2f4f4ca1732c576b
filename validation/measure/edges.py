"""Edges of the bins in which showers are measured, for any calorimeter. Both sets of a comparison share them."""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import Array, Geometry
from calopipe.showers.positions import positions

HIT_GEV = 3e-4  # a hit: 64 % of the non-zero cells of the Geant4 sample, 98 % of its energy

# Edges of the rings, in cells: a quarter of a cell apart where the density falls by half within a cell, wider where
# few cells hold energy. The last ring is open.
RING_EDGES = np.concatenate([np.arange(0, 4, 0.25), np.arange(4, 8, 0.5), np.arange(8, 13)])

CELL_GEV = 2e-6  # a cell with less (1e-4 in the reference's units) counts as without energy

# log10(E/GeV) of cells with energy: forty bins from a hit's threshold to 1 GeV, more than any cell of a 200 GeV
# electron holds. Bins of the same width go down to `CELL_GEV`, and up to 1 TeV, as calibrated cells and thick layers
# hold as much. The last bin is open.
SPECTRUM_EDGES = np.log10(HIT_GEV) * (1 - np.arange(-25, 75) / 40)

RADIAL_BINS = 30  # of half a cell each, the last one open: 15 cells hold all but 1e-3 of the energy
_GROWTH = 0.1  # of a ring: at least so much of its inner radius, so that few tell of the far end of a calorimeter
_ROUNDING = 1e-3  # of a cell: edges this near are one


_UNITS_GEV = (("GeV", 1.0), ("MeV", 1e-3), ("keV", 1e-6))
_WIDE = 3.0  # a beam of 100 to 200 GeV is not


def wide(energy_gev: npt.NDArray[np.floating]) -> bool:
    """Whether energies (N,) span more than a factor of three, so that bins and fits go by their logarithms."""
    return bool(len(energy_gev) and energy_gev.max() > _WIDE * energy_gev.min())


@lru_cache(maxsize=8)
def radial_edges_mm(geometry: Geometry) -> Array:
    """Edges of `Observables.radial`, in mm; the last bin is open.

    Half cells, or the rings of a calorimeter whose cells are in rings: finer ones would be empty by turns.
    """
    if geometry.rings:
        return _rings_mm(geometry)
    return np.arange(RADIAL_BINS + 1, dtype=np.float64) * geometry.cell_mm / 2


def ring_places(distance: Array, geometry: Geometry) -> npt.NDArray[np.intp]:
    """In which ring of `ring_labels` each distance from the axis, in units of `geometry.cell_mm`, is."""
    inner = _rings_mm(geometry)[:-1] / geometry.cell_mm if geometry.rings else RING_EDGES
    return np.searchsorted(inner[1:], distance, side="right")


def ring_labels(geometry: Geometry) -> list[str]:
    """The name of each ring about the axis, the innermost first."""
    edges, unit = (_rings_mm(geometry)[:-1], "mm") if geometry.rings else (RING_EDGES, "cells")
    inner = [f"{low:.4g} to {high:.4g} {unit}" for low, high in itertools.pairwise(edges)]
    return [*inner, f"beyond {edges[-1]:.4g} {unit}"]


def spectrum_labels() -> list[str]:
    """The name of each bin of `SPECTRUM_EDGES`, without the last edge, as the last bin is open."""
    gev = 10**SPECTRUM_EDGES
    edges = [next(f"{edge / unit:.3g} {name}" for name, unit in _UNITS_GEV if edge >= unit) for edge in gev]
    return [*(f"{low} to {high}" for low, high in itertools.pairwise(edges[:-1])), f"beyond {edges[-2]}"]


@lru_cache(maxsize=8)
def lateral_edges_mm(geometry: Geometry) -> tuple[Array, Array]:
    """Edges of the profiles along x and y, from the calorimeter's axis: those of the cells, or of rings to both sides.

    Of layers with different cells, the edges of all are taken that are a typical cell apart.
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
def thirds(geometry: Geometry) -> npt.NDArray[np.intp]:
    """In which third of the depth each layer begins, (layers,): in radiation lengths.

    Of L layers alike, layer i is in third 3i // L, so that 25 divide into 9, 8 and 8.
    """
    where = positions(geometry)
    begins = 3 * (where.z_x0 - where.x0 / 2) / where.x0.sum()
    return np.floor(begins + _ROUNDING / geometry.shape[2]).astype(np.intp)


@lru_cache(maxsize=8)
def _rings_mm(geometry: Geometry) -> Array:
    """Radii that layers have, at least a typical cell apart, and wider outward; the first is 0, the last the reach."""
    radii = np.unique(np.concatenate([[0.0], *(layer.r_edges_mm or () for layer in geometry.every_layer)]))
    return _apart(radii, geometry.cell_mm, _GROWTH)


def _apart(edges: Array, least: float, growth: float) -> Array:
    """Those of the rising `edges` that are `least` apart, and more by `growth` of each; first and last are kept."""
    kept = [edges[0]]
    for edge in edges[1:]:
        if edge - kept[-1] >= max(least, growth * kept[-1]) * (1 - _ROUNDING):
            kept.append(edge)
    return np.array([edges[0], *kept[1:-1], edges[-1]])


def _mirrored(outward: Array) -> Array:
    return np.unique(np.concatenate([-outward, outward]))
