"""A shower about its own axis: where its hits are, and the sums over each layer that later layers depend on.

The detector is the same after a reflection in x, and after one in y with theta -> pi - theta. So a shower is reflected
to theta <= 90 degrees and an axis at x >= 0, which doubles and redoubles what there is to learn from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from calopipe.showers.cells import REFERENCE_UNIT_GEV, Geometry

Tensor = Any
Constants = dict[str, Tensor]

# Sums over the cells of a layer: energy, cells that are not zero, hits, squares of the energies, energy farther from
# the axis than the radius of half and of nine tenths of the energy, and moments of place and depth about the axis.
SUMS = (
    "energy", "cells", "hits", "squares", "beyond_half", "beyond_most", "x", "y", "xx", "yy", "x_depth", "y_depth",
)  # fmt: skip
HIT_GEV = 3e-4  # what validation counts as a hit, a third of a minimum ionising particle's deposit in 0.5 mm of silicon
HIT = HIT_GEV / REFERENCE_UNIT_GEV
COLOURS = 2  # even and odd cells, as on a chessboard


@dataclass(frozen=True)
class Axis:
    """Where the axis of each shower meets each layer, in cells from the middle of the calorimeter: (N, layers) each.

    It is the straight line that fits the deposits best, weighted by energy. `offset` (N, 4) holds its x at the depth of
    reference, its slope in x, its y there, and its slope in y less that of the incident particle; in cells, and cells a
    layer.
    """

    x: Tensor
    y: Tensor
    offset: Tensor


@dataclass(frozen=True)
class Hits:
    """The non-zero cells of N showers, reflected: (N, K) each, padded with hits of no energy.

    `x`, `y`, `layer` are indices, `dx`, `dy` distances from the axis in cells, `value` energies in units of 0.02 GeV.
    """

    x: Tensor
    y: Tensor
    layer: Tensor
    value: Tensor
    dx: Tensor
    dy: Tensor


def particle_slope(theta_rad: Tensor, geometry: Geometry) -> Tensor:
    """Cells a layer by which a particle of polar angle `theta_rad` (N,), at most pi/2, moves along y."""
    return geometry.layer_pitch_mm / geometry.cell_mm / tf.tan(theta_rad)


def reflected_angle(theta_rad: Tensor) -> Tensor:
    """The angle (N,) of a shower that is reflected to theta <= pi/2."""
    return tf.minimum(theta_rad, math.pi - theta_rad)


def middle(cells: int) -> float:
    """Index of the middle of a row of `cells`."""
    return (cells - 1) / 2


def axis_of(offset: Tensor, theta_rad: Tensor, constants: Constants, geometry: Geometry) -> Axis:
    """The axis with `offset` (N, 4) of showers of reflected angle `theta_rad` (N,)."""
    depth = tf.range(geometry.shape[2], dtype=tf.float32) - constants["depth"]  # (layers,)
    along_y = offset[:, 3] + particle_slope(theta_rad, geometry)
    return Axis(offset[:, 0:1] + offset[:, 1:2] * depth, offset[:, 2:3] + along_y[:, None] * depth, offset)


def reflect(
    cell: Tensor, value: Tensor, theta_rad: Tensor, constants: Constants, geometry: Geometry
) -> tuple[Hits, Axis]:
    """Hits and axes of showers given as `cell` (N, K), places in the flattened (x, y, layer) array, -1 for none.

    `value` (N, K) are their energies in units of 0.02 GeV, 0 for none; `theta_rad` (N,) as recorded.
    """
    nx, ny, layers = geometry.shape
    layer, column = cell % layers, tf.maximum(cell, 0) // layers
    y = column % ny
    y = tf.where((theta_rad > math.pi / 2)[:, None], ny - 1 - y, y)
    x = column // ny
    theta = reflected_angle(theta_rad)
    depth = tf.cast(layer, tf.float32) - constants["depth"]
    straight = particle_slope(theta, geometry)[:, None] * depth
    at_x, slope_x = _line(value, depth, tf.cast(x, tf.float32) - middle(nx))
    at_y, slope_y = _line(value, depth, tf.cast(y, tf.float32) - middle(ny) - straight)
    left = at_x < 0
    x = tf.where(left[:, None], nx - 1 - x, x)
    offset = tf.stack([tf.abs(at_x), tf.where(left, -slope_x, slope_x), at_y, slope_y], 1)
    axis = axis_of(offset, theta, constants, geometry)
    dx = tf.cast(x, tf.float32) - middle(nx) - tf.gather(axis.x, layer, batch_dims=1)
    dy = tf.cast(y, tf.float32) - middle(ny) - tf.gather(axis.y, layer, batch_dims=1)
    return Hits(x, y, layer, value, dx, dy), axis


def _line(weight: Tensor, depth: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """The straight line place = at + slope * depth that fits best, of (N, K) each: at (N,) and slope (N,).

    A shower in a single layer has no slope: 0.
    """
    s0, s1, s2, p0, p1 = (
        tf.reduce_sum(weight * factor, 1) for factor in (1.0, depth, depth * depth, place, place * depth)
    )
    determinant = s0 * s2 - s1 * s1
    slope = tf.math.divide_no_nan(s0 * p1 - s1 * p0, determinant)
    return tf.math.divide_no_nan(p0 - slope * s1, s0), slope


def terms(value: Tensor, dx: Tensor, dy: Tensor, layer: Tensor, constants: Constants) -> Tensor:
    """What each hit adds to SUMS, (..., 12); a hit of no energy adds nothing. `layer` is an index."""
    there = tf.cast(value > 0, tf.float32)
    square = dx * dx + dy * dy
    depth = tf.cast(layer, tf.float32) - constants["depth"]
    half, most = (tf.square(constants[name]) for name in ("radius_half", "radius_most"))
    of_hit = {
        "energy": value,
        "cells": there,
        "hits": tf.cast(value > HIT, tf.float32),
        "squares": value * value,
        "beyond_half": tf.where(square > half, value, 0.0),
        "beyond_most": tf.where(square > most, value, 0.0),
        "x": value * dx,
        "y": value * dy,
        "xx": value * dx * dx,
        "yy": value * dy * dy,
        "x_depth": value * dx * depth,
        "y_depth": value * dy * depth,
    }
    return tf.stack([of_hit[name] for name in SUMS], -1)


def colour(x: Tensor, y: Tensor) -> Tensor:
    """0 for even cells, 1 for odd ones."""
    return (x + y) % COLOURS


def layer_sums(hits: Hits, constants: Constants, layers: int) -> Tensor:
    """SUMS of each layer and colour, (N, layers, 2, 12)."""
    showers = tf.shape(hits.value)[0]
    place = (tf.range(showers)[:, None] * layers + hits.layer) * COLOURS + colour(hits.x, hits.y)
    added = terms(hits.value, hits.dx, hits.dy, hits.layer, constants)
    sums = tf.math.unsorted_segment_sum(
        tf.reshape(added, [-1, len(SUMS)]), tf.reshape(place, [-1]), showers * layers * COLOURS
    )
    return tf.reshape(sums, [showers, layers, COLOURS, len(SUMS)])


def column(sums: Tensor, name: str) -> Tensor:
    """The sum called `name` of `sums` (..., 12)."""
    return sums[..., SUMS.index(name)]


def lattice(shape: tuple[int, int, int]) -> np.ndarray[Any, Any]:
    """Places of a layer's cells from the middle one, (cells, 2), as integers: where the axis is, rounded."""
    half = (shape[0] // 2, shape[1] // 2)
    grid = np.meshgrid(*(np.arange(-reach, reach + 1) for reach in half), indexing="ij")
    return np.stack([axis.reshape(-1) for axis in grid], 1)
