"""Where the cells of a calorimeter are, how large they are, and which are neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from calopipe.errors import InputError
from calopipe.showers.cells import Array, FloatArray, Geometry, Index, Layer, Mask

_ROUNDING = 1e-9  # in cells: a point this near to an edge counts as on the edge


@dataclass(frozen=True)
class Positions:
    """Every place of a layer's (n, m) cells, flattened: (layers, places) each; NaN where the layer has no such cell.

    `x_mm` and `y_mm` are the middle of a cell, from the calorimeter's axis. A cell that goes once round the axis has
    its middle on the axis. `ring_mm` is the mean radius of such a cell, 0 for other cells. `r_mm` is the distance from
    the axis to the middle, or the mean radius. `area_mm2` is the area. `exists` says which places are cells.

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
        return np.sqrt(self.x_mm**2 + self.y_mm**2 + self.ring_mm**2)


@lru_cache(maxsize=8)
def positions(geometry: Geometry) -> Positions:
    """Where the cells of `geometry` are."""
    n, m, _ = geometry.shape
    layers = geometry.every_layer
    cells = np.full((4, len(layers), n, m), np.nan)
    for number, layer in enumerate(layers):
        rows, columns = layer.cells
        cells[:, number, :rows, :columns] = _cells_of(layer)
    x, y, ring, area = cells.reshape(4, len(layers), n * m)
    pitch, x0 = (np.array([getattr(layer, name) for layer in layers]) for name in ("pitch_mm", "x0"))
    of_layers = np.cumsum(pitch) - pitch / 2, np.cumsum(x0) - x0 / 2, x0
    arrays = (x, y, ring, area, np.isfinite(x), *of_layers)
    for array in arrays:
        array.flags.writeable = False  # the arrays are cached
    return Positions(*arrays)


@lru_cache(maxsize=8)
def voxel_order(geometry: Geometry) -> Index:
    """Where each voxel of CaloChallenge's layout is in a shower's flattened (n, m, layer) array, (voxels,).

    Voxels are ordered by layer, then angle (or x), then radius (or y); places without a cell are left out.
    """
    layers = geometry.shape[2]
    number, place = np.nonzero(positions(geometry).exists)
    order = np.asarray(place * layers + number)
    order.flags.writeable = False
    return order


def stray(cells: FloatArray, geometry: Geometry) -> Index | None:
    """Shower, x, y and layer of the first of the `cells` (N, x, y, layer) that is not 0 where the calorimeter has no
    cell, (4,); None if there is none.
    """
    if geometry.voxels == geometry.cells:
        return None
    outside = np.delete(np.arange(geometry.cells), voxel_order(geometry))
    rows, places = np.nonzero(cells.reshape(len(cells), -1)[:, outside])
    return np.array([rows[0], *np.unravel_index(outside[places[0]], geometry.shape)]) if len(rows) else None


def require_cells(showers: FloatArray, geometry: Geometry) -> None:
    """Raise InputError if `showers` (N, x, y, layer) are not 0 where the calorimeter has no cell."""
    if (where := stray(showers, geometry)) is not None:
        _, x, y, layer = where
        raise InputError(
            f"showers are not 0 at ({x}, {y}, {layer}), where the calorimeter has no cell; a model has to leave such "
            "places empty (`exists` of calopipe.showers.positions)"
        )


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
    """The places (...) of the cells with indices `first` and `second` (...) in a layer, and whether these cells exist.

    The place of a cell that does not exist is -1. An index may be one beyond a layer's cells. In rings the angle goes
    round: a cell all round the axis is its own neighbour. If the innermost ring begins at the axis, the inner neighbour
    of its cells is the opposite cell.
    """
    of_layer = geometry.every_layer[layer]
    n, m = of_layer.cells
    if of_layer.r_edges_mm is not None:
        inward = (second < 0) & (of_layer.r_edges_mm[0] == 0)
        second = np.where(inward, -1 - second, second)
        first = np.where(inward, first + n // 2, first) % n
    inside = (first >= 0) & (first < n) & (second >= 0) & (second < m)
    return np.where(inside, first * geometry.shape[1] + second, -1), inside


def nearest(geometry: Geometry, layer: int, other: int) -> Index:
    """The cell of layer `other` in which the middle of each cell of `layer` lies, (places,); -1 if there is none.

    The middle of a cell all round the axis is taken at the angle 0 and the mean radius.
    """
    where = positions(geometry)
    places = place_at(geometry, other, where.x_mm[layer] + where.ring_mm[layer], where.y_mm[layer])
    return np.where(where.exists[layer], places, -1)


def place_at(geometry: Geometry, layer: int, x_mm: Array, y_mm: Array) -> Index:
    """The cell of `layer` that holds each point `x_mm`, `y_mm` (...); -1 for a point in no cell, or NaN.

    A point on the edge between two cells is in the cell of higher x, y, angle or radius.
    """
    to = geometry.every_layer[layer]
    n, m = to.cells
    if to.size_mm is not None:
        first, second = (
            mm / size + count / 2 for mm, size, count in zip((x_mm, y_mm), to.size_mm, to.cells, strict=True)
        )
    else:
        first = ((np.arctan2(y_mm, x_mm) + np.pi) / (2 * np.pi) * n + _ROUNDING) % n
        edges = np.array(to.r_edges_mm)
        second = np.searchsorted(edges, np.hypot(x_mm, y_mm) + _ROUNDING * edges[-1], side="right") - 1.0
    finite = np.isfinite(x_mm + y_mm)
    row, column = (np.floor(np.where(finite, index, -9) + _ROUNDING).astype(np.intp) for index in (first, second))
    inside = (row >= 0) & (row < n) & (column >= 0) & (column < m)
    return np.where(inside, row * geometry.shape[1] + column, -1)
