"""Pictures of single showers, seen from two sides."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import Array, FloatArray, Geometry, Index
from calopipe.showers.positions import place_at, positions
from validation.measure.edges import lateral_edges_mm
from validation.measure.observables import Observables
from validation.measure.profiles import lateral_shares

_REACH_CELLS, _PER_CELL = 12, 4  # of the front view of rings: its half-width in cells, and its bins in a cell


@dataclass(frozen=True)
class Picture:
    """One shower as seen from two sides, in GeV: `side` (y, layer) and `front` (x, y), in the bins of `views_mm`."""

    energy_gev: float
    theta_rad: float
    side: FloatArray
    front: FloatArray


def pictures(cells: FloatArray, table: Observables, geometry: Geometry, most: int) -> list[Picture]:
    """Pictures of at most `most` showers that are not empty, out of `cells` (N, x, y, layer), in file units."""
    filled = np.flatnonzero(~table.empty)[:most]
    shown = cells[filled] * geometry.file_unit_gev
    return [
        Picture(float(table.energy_gev[k]), float(table.theta_rad[k]), *_views(shower, geometry))
        for k, shower in zip(filled, shown, strict=True)
    ]


def views_mm(geometry: Geometry) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Edges of the bins of a picture: z and y for the side view, x and y for the front view."""
    along_x, along_y = lateral_edges_mm(geometry)
    depth = np.concatenate([[0.0], np.cumsum([layer.pitch_mm for layer in geometry.every_layer])])
    if geometry.rings:
        reach = min(along_x[-1] / geometry.cell_mm, _REACH_CELLS)
        along = np.linspace(-reach, reach, 2 * round(_PER_CELL * reach) + 1) * geometry.cell_mm
        return (depth, along_y), (along, along)
    return (depth, along_y), (along_x, along_y)


def _views(shower: npt.NDArray[Any], geometry: Geometry) -> tuple[FloatArray, FloatArray]:
    if not geometry.layers:
        return shower.sum(axis=0), shower.sum(axis=2)
    cells = shower.reshape(-1, shower.shape[2]).T  # (layers, places)
    along_y, places = lateral_shares(geometry)[1].T, cells.shape[1]  # (bins, layers * places)
    side = [along_y[:, k * places : (k + 1) * places] @ layer for k, layer in enumerate(cells)]
    place, share = _raster(geometry)
    front = (np.take_along_axis(cells, place, axis=1) * share).sum(axis=0)
    x, y = views_mm(geometry)[1]
    return np.stack(side, axis=1).astype(np.float32), front.reshape(len(x) - 1, len(y) - 1).astype(np.float32)


@lru_cache(maxsize=2)
def _raster(geometry: Geometry) -> tuple[Index, Array]:
    """The cell of each layer at each place (layers, x * y) of the front view, and the share of the cell seen there."""
    edges = views_mm(geometry)[1]
    x, y = np.meshgrid(*((ends[1:] + ends[:-1]) / 2 for ends in edges), indexing="ij")
    place = np.stack([place_at(geometry, layer, x.ravel(), y.ravel()) for layer in range(geometry.shape[2])])
    seen_mm2 = np.outer(*(np.diff(axis) for axis in edges)).ravel()
    area = np.take_along_axis(positions(geometry).area_mm2, place.clip(0), axis=1)
    return place.clip(0), np.where(place < 0, 0.0, seen_mm2 / np.where(place < 0, 1.0, area))
