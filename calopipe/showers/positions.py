"""Where the cells of a calorimeter are, how large they are, and which are neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import Geometry, Layer

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Positions:
    """Every place of a layer's (n, m) cells, flattened: (layers, places) each; NaN where the layer has no such cell.

    `x_mm` and `y_mm` are the middle of a cell, from the calorimeter's axis. A cell that goes once round the axis has
    its middle there; `ring_mm` is its mean radius, 0 for all others. `r_mm` is the distance from the axis to the
    middle, or the mean radius. `area_mm2` is the area. `exists` says which places are cells.

    (layers,): `z_mm` and `z_x0`, the middle of each layer's depth, `x0` its radiation lengths.
    """

    x_mm: Array
    y_mm: Array
    ring_mm: Array
    area_mm2: Array
    exists: Mask
    z_mm: Array
    z_x0: Array
    x0: Array

    @property
    def r_mm(self) -> Array:
        found: Array = np.sqrt(self.x_mm**2 + self.y_mm**2 + self.ring_mm**2)
        return found


def layers_of(geometry: Geometry) -> tuple[Layer, ...]:
    """The layers of any calorimeter, also of one whose layers are alike."""
    n, m, layers = geometry.shape
    size = (geometry.cell_mm, geometry.cell_mm)
    return geometry.layers or (Layer(geometry.layer_pitch_mm, geometry.x0_per_layer, (n, m), size),) * layers


@lru_cache(maxsize=8)
def positions(geometry: Geometry) -> Positions:
    """Where the cells of `geometry` are."""
    n, m, _ = geometry.shape
    layers = layers_of(geometry)
    found = np.full((4, len(layers), n, m), np.nan)
    for number, layer in enumerate(layers):
        rows, columns = layer.cells
        found[:, number, :rows, :columns] = _cells_of(layer)
    x, y, ring, area = found.reshape(4, len(layers), n * m)
    pitch, x0 = (np.array([getattr(layer, name) for layer in layers]) for name in ("pitch_mm", "x0"))
    return Positions(x, y, ring, area, np.isfinite(x), np.cumsum(pitch) - pitch / 2, np.cumsum(x0) - x0 / 2, x0)


@lru_cache(maxsize=8)
def voxel_order(geometry: Geometry) -> Index:
    """Where each voxel of CaloChallenge's layout is in a shower's flattened (angle, radius, layer) array, (voxels,).

    Voxels are ordered by layer, then angle, then radius; places that are no cells are left out.
    """
    layers = geometry.shape[2]
    number, place = np.nonzero(positions(geometry).exists)
    return np.asarray(place * layers + number)


def _cells_of(layer: Layer) -> Array:
    """x, y, ring and area, (4, n, m), of a layer's cells."""
    n, m = layer.cells
    if layer.size_mm is not None:
        x, y = (
            (np.arange(count) - (count - 1) / 2) * size for count, size in zip(layer.cells, layer.size_mm, strict=True)
        )
        area = np.full((n, m), layer.size_mm[0] * layer.size_mm[1])
        return np.stack([*np.meshgrid(x, y, indexing="ij"), np.zeros((n, m)), area])
    edges = np.array(layer.r_edges_mm)
    alpha = -np.pi + (np.arange(n) + 0.5) * 2 * np.pi / n
    radius = (edges[:-1] + edges[1:]) / 2
    area = np.broadcast_to(np.pi * np.diff(edges**2) / n, (n, m))
    if n == 1:
        return np.stack([np.zeros((1, m)), np.zeros((1, m)), radius[None], area])
    return np.stack([np.cos(alpha)[:, None] * radius, np.sin(alpha)[:, None] * radius, np.zeros((n, m)), area])


def steps(geometry: Geometry, layer: int, first: Index, second: Index) -> tuple[Index, Mask]:
    """The places of cells (n, m) `first`, `second` (...) of a layer, which may lie beside it, and whether they exist.

    In rings the angle goes round, and what lies within the innermost ring is on the opposite side of it.
    """
    n, m = layers_of(geometry)[layer].cells
    if geometry.rings:
        inward = second < 0
        second = np.where(inward, -1 - second, second)
        first = np.where(inward, first + n // 2, first) % n
    inside = (first >= 0) & (first < n) & (second >= 0) & (second < m)
    return np.where(inside, first * geometry.shape[1] + second, -1), inside


def nearest(geometry: Geometry, layer: int, other: int) -> Index:
    """The cell of layer `other` at the place of each cell (places,) of `layer`; -1 where there is none."""
    layers, found = layers_of(geometry), positions(geometry)
    places = np.arange(found.exists.shape[1])
    if layers[layer].cells == layers[other].cells and (
        layers[layer].size_mm == layers[other].size_mm and layers[layer].r_edges_mm == layers[other].r_edges_mm
    ):
        return np.where(found.exists[layer], places, -1)
    # The middle of a ring is on the axis; any place on the ring does.
    first, second = found.x_mm[layer] + found.ring_mm[layer], found.y_mm[layer]
    return np.where(found.exists[layer], place_at(geometry, other, first, second), -1)


def place_at(geometry: Geometry, layer: int, x_mm: Array, y_mm: Array) -> Index:
    """The cell of `layer` that the points `x_mm`, `y_mm` (...) are in; -1 where they are in none, or NaN."""
    to = layers_of(geometry)[layer]
    n, m = to.cells
    if to.size_mm is not None:
        first, second = (
            np.floor(mm / size + count / 2) for mm, size, count in zip((x_mm, y_mm), to.size_mm, to.cells, strict=True)
        )
    else:
        first = np.floor((np.arctan2(y_mm, x_mm) + np.pi) / (2 * np.pi) * n) % n
        second = np.searchsorted(np.array(to.r_edges_mm), np.hypot(x_mm, y_mm), side="right") - 1.0
    inside = (first >= 0) & (first < n) & (second >= 0) & (second < m)
    return np.where(inside, first * geometry.shape[1] + second, -1).astype(np.intp)
