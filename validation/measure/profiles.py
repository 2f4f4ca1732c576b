"""Sums over the cells of showers by place, the axis of each shower, and the distances of hits from the axis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import sparse

from calopipe.showers.angle import angle_of_moments
from calopipe.showers.cells import Array, FloatArray, Geometry, Layer
from calopipe.showers.positions import positions
from validation.measure.deposits import Deposits, divided, line
from validation.measure.edges import lateral_edges_mm

_RADIAL_PARTS, _PARTS = 4, 16  # parts of a cell in the profiles along x and y: of a ring's width; of a rectangle's side
_ROUND = 128  # least number of parts of a full circle


@dataclass(frozen=True)
class Seen:
    """Values of N showers from which the observables are computed.

    `layers`, `along_x`, `along_y` (N, bins) are energies in GeV. `x` and `y` are the mean and the variance along x and
    along y, (N,) each, in mm. `distance` (hits,) is the distance of each hit from the axis of its shower, in the plane
    of its layer, in units of `Geometry.cell_mm`. `angle_rad` is the measured angle to the axis y in space,
    `angle_x_rad` the angle to x. `index_angle_rad` is in units of the index if all layers are alike, else in space.
    Angles are 100 without energy.
    """

    layers: Array
    along_x: Array
    along_y: Array
    x: tuple[Array, Array]
    y: tuple[Array, Array]
    distance: Array
    angle_rad: FloatArray
    angle_x_rad: FloatArray
    index_angle_rad: FloatArray


def seen(hits: Deposits, geometry: Geometry) -> Seen:
    """Compute `Seen` from the hits and their places, which are measured from the calorimeter's axis.

    The shower's axis is the straight line x(z), y(z) fitted to its cells, weighted by their energy. Distances from this
    axis are taken in the plane of a layer, so a tilted shower is as narrow as an upright one. The energy of a ring that
    goes once round the calorimeter's axis is spread over the ring, and adds half the squared radius to either variance.
    For the profiles along x and y, the energy of each cell is spread evenly over the cell.
    """
    where, place = positions(geometry), hits.places
    count = geometry.shape[2]
    x, y, ring = (values[hits.layer, place] for values in (where.x_mm, where.y_mm, where.ring_mm))
    layers, moment_x, moment_y = (hits.sums(hits.layer, count, hits.energy * values) for values in (np.ones(1), x, y))
    total = layers.sum(axis=1)
    axis_x, axis_y = (line(layers, moment, where.z_mm)[hits.event, hits.layer] for moment in (moment_x, moment_y))
    angle = angle_of_moments(layers, moment_x, moment_y, where.z_mm)
    index = (
        angle
        if geometry.layers
        else angle_of_moments(
            layers, moment_x / geometry.cell_mm, moment_y / geometry.cell_mm, where.z_mm / geometry.layer_pitch_mm
        )
    )
    along = []
    for mm, moment in ((x, moment_x), (y, moment_y)):
        mean = divided(moment.sum(axis=1), total)
        away = hits.energy * ((mm - mean[hits.event]) ** 2 + ring**2 / 2)
        along.append((mean, divided(hits.sums(0, 1, away)[:, 0], total)))
    stored = sparse.csr_array(
        (hits.energy, (hits.event, hits.layer * where.exists.shape[1] + place)),
        shape=(hits.events, where.exists.size),
    )
    along_x, along_y = (stored @ shares for shares in lateral_shares(geometry))
    return Seen(
        layers=layers,
        along_x=along_x.toarray(),
        along_y=along_y.toarray(),
        x=along[0],
        y=along[1],
        distance=np.sqrt((x - axis_x) ** 2 + (y - axis_y) ** 2 + ring**2) / geometry.cell_mm,
        angle_rad=angle,
        angle_x_rad=angle_of_moments(layers, moment_y, moment_x, where.z_mm),
        index_angle_rad=index,
    )


@lru_cache(maxsize=4)
def lateral_shares(geometry: Geometry) -> tuple[sparse.csr_array, sparse.csr_array]:
    """The share of each cell in each bin along x, and along y: (layers * places, bins) each."""
    layers, places = geometry.every_layer, positions(geometry).exists.shape[1]
    edges = lateral_edges_mm(geometry)
    of_layer = {
        layer: [_shares(layer, axis, edges[axis], geometry.shape[1], places) for axis in (0, 1)]
        for layer in set(layers)
    }
    x, y = (sparse.csr_array(sparse.vstack([of_layer[layer][axis] for layer in layers])) for axis in (0, 1))
    return x, y


def _shares(layer: Layer, axis: int, edges: Array, columns: int, places: int) -> sparse.csr_array:
    mm = _parts(layer)[axis]  # (n, m, parts)
    bins = np.searchsorted(edges, mm, side="right") - 1
    first, second, _ = np.indices(mm.shape)
    weight = np.full(mm.size, 1 / mm.shape[2])
    inside = ((first * columns + second).ravel(), bins.clip(0, len(edges) - 2).ravel())
    return sparse.csr_array((weight, inside), shape=(places, len(edges) - 1))


def _parts(layer: Layer) -> tuple[Array, Array]:
    """The positions of equally large parts of each cell along x, and along y, (n, m, parts) each, in mm."""
    n, m = layer.cells
    if layer.size_mm is not None:
        within = (np.arange(_PARTS) + 0.5) / _PARTS - 0.5
        x, y = (
            (np.arange(count)[:, None] - (count - 1) / 2 + within) * size
            for count, size in zip(layer.cells, layer.size_mm, strict=True)
        )
        shape = (n, m, _PARTS)
        return np.broadcast_to(x[:, None], shape), np.broadcast_to(y[None], shape)
    squares = np.array(layer.r_edges_mm) ** 2
    within = (np.arange(_RADIAL_PARTS) + 0.5) / _RADIAL_PARTS
    radius = np.sqrt(squares[:-1, None] + within * np.diff(squares)[:, None])  # (m, radial parts)
    around = max(_ROUND // n, _RADIAL_PARTS)
    angle = -np.pi + (np.arange(n * around).reshape(n, around) + 0.5) * 2 * np.pi / (n * around)
    x, y = (turn(angle)[:, None, None, :] * radius[None, :, :, None] for turn in (np.cos, np.sin))
    return x.reshape(n, m, -1), y.reshape(n, m, -1)
