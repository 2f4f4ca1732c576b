"""A shower about its own axis: where its hits are, and the sums over each layer that later layers depend on.

The detector is the same after a reflection in x, and after one in y with theta -> pi - theta. So a shower is reflected
in y to theta <= 90 degrees and, except in rings, in x: to phi >= 0 where it has an azimuth, else to an axis at x >= 0.
Lengths are in cells (`Geometry.cell_mm`), depths in layers (`Geometry.layer_pitch_mm`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import tensorflow as tf

from calopipe.labels import PARTICLE, PHI, LabelRange
from calopipe.showers.cells import HIT_GEV, REFERENCE_UNIT_GEV
from training.models.autoregressive.mesh import COLOURS, Mesh, colour
from training.models.base import Tensor

# Sums over the cells of a layer: energy; cells that are not zero; hits; squares of the energies; energy farther from
# the axis than `radius_half`, and than `radius_most` (`constants.py`); moments of place and depth about the axis, of
# all energy; and ("near_...") such moments where each deposit counts as in the fit of the axis.
SUMS = (
    "energy", "cells", "hits", "squares", "beyond_half", "beyond_most", "x", "y", "xx", "yy", "x_depth", "y_depth",
    "near_x", "near_y", "near_x_depth", "near_y_depth",
)  # fmt: skip
# Where a colour has at most ALONE hits in a layer, the hit has an energy of its own. What is promised to the colour is
# this energy, blurred in training by normal noise in its logarithm, of the width PROMISE_BLUR.
ALONE, PROMISE_BLUR = 1, 0.3
_FITS = 5  # fits of the axis; from the second on, deposits count by their distance from the line of the fit before
_ONE_LAYER = 1e-6  # the largest variance of the depth, in layers, that rounding gives a shower in a single layer
HIT = HIT_GEV / REFERENCE_UNIT_GEV
MEAN_TERMS, SCALE_TERMS = 11, 6  # terms of energy and angle, from which means and scales follow
_PHI_TERMS, _KIND_TERMS = 4, 6  # terms beside these, of the azimuth and of each kind of particle but the first
LABEL_INPUTS = 4


class Constants(Protocol):
    """What is computed before training, by name (`constants.shapes`), and the `mesh` of the calorimeter."""

    mesh: Mesh

    def __getitem__(self, name: str, /) -> Tensor: ...


@dataclass(frozen=True)
class Labels:
    """Labels of N showers: `energy_gev`, `theta_rad` and the azimuth `phi` in rad, (N,) each; and `kinds` (N, K - 1), 1
    for the particle's kind and 0 for others. The first of K kinds has no column. None where there is no such label.
    """

    energy_gev: Tensor
    theta_rad: Tensor
    phi: Tensor | None = None
    kinds: Tensor | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any], labels: LabelRange) -> Labels:
        """The labels among the tensors `given` by name, where the model's showers have `labels`."""
        kinds = None
        if len(labels.particle) > 1:
            of_kind = tf.convert_to_tensor(given[PARTICLE])[:, None] == tf.constant(labels.particle[1:])
            kinds = tf.cast(of_kind, tf.float32)
        energy, theta = (tf.convert_to_tensor(given[name]) for name in ("energy_gev", "theta_rad"))
        return cls(energy, theta, tf.convert_to_tensor(given[PHI]) if labels.phi_rad else None, kinds)

    def __getitem__(self, showers: Any) -> Labels:
        every = (self.energy_gev, self.theta_rad, self.phi, self.kinds)
        return Labels(*(None if label is None else tf.gather(label, showers) for label in every))

    def raised(self) -> Labels:
        """The labels after a reflection in y to theta <= pi/2."""
        return replace(self, theta_rad=tf.minimum(self.theta_rad, math.pi - self.theta_rad))

    def reflected(self, mesh: Mesh) -> Labels:
        """The labels after reflections: in y and, where `mesh.folds`, in x to phi >= 0."""
        raised = self.raised()
        return raised if self.phi is None or not mesh.folds else replace(raised, phi=tf.abs(self.phi))

    def below(self) -> Tensor:
        """Which showers (N,) are to be reflected in y."""
        return self.theta_rad > math.pi / 2

    def left(self, otherwise: Tensor) -> Tensor:
        """Which showers (N,) to reflect in x: those of phi < 0; `otherwise` (N,) decides at 0, or without phi."""
        if self.phi is None:
            return otherwise
        return (self.phi < 0) | ((self.phi == 0) & otherwise)

    def slopes(self, mesh: Mesh) -> tuple[Tensor, Tensor | None]:
        """Slopes of the particles along y (N,) and x (N,), None without phi, in cells a layer; for theta <= pi/2."""
        unit = mesh.geometry.layer_pitch_mm / mesh.geometry.cell_mm
        if self.phi is None:
            return unit / tf.tan(self.theta_rad), None
        return unit / (tf.tan(self.theta_rad) * tf.cos(self.phi)), unit * tf.tan(self.phi)

    def terms(self, constants: Constants) -> Tensor:
        """Polynomials of the reflected labels, (N, MEAN_TERMS + `number_of_terms`): the first SCALE_TERMS have degrees
        0 to 2 in energy and angle; those after MEAN_TERMS are of the other labels.
        """
        energy = (tf.math.log(self.energy_gev) - constants["log_energy"][0]) / constants["log_energy"][1]
        angle = (tf.cos(self.theta_rad) - constants["cos_theta"][0]) / constants["cos_theta"][1]
        one = tf.ones_like(energy)
        polynomials = [
            one, energy, angle, energy**2, energy * angle, angle**2,
            energy**3, energy**2 * angle, energy * angle**2, angle**3, angle**4,
        ]  # fmt: skip
        if self.phi is not None:
            middle, half = constants["sin_phi"][0], constants["sin_phi"][1]
            phi = (tf.sin(self.phi) - middle) / half
            polynomials += [phi, phi * phi, phi * energy, phi * angle]
        if self.kinds is not None:
            for kind in tf.unstack(self.kinds, axis=1):
                polynomials += [kind * term for term in (1.0, energy, angle, energy**2, energy * angle, angle**2)]
        return tf.stack(polynomials, 1)


def number_of_terms(labels: LabelRange) -> int:
    """How many terms the labels other than energy and theta have."""
    return _PHI_TERMS * (labels.phi_rad is not None) + _KIND_TERMS * max(len(labels.particle) - 1, 0)


def label_inputs(terms: Tensor) -> Tensor:
    """The labels as inputs of the density of the totals: LABEL_INPUTS columns, and the terms of more labels."""
    return tf.gather(terms, [1, 2, 4, 5, *range(MEAN_TERMS, terms.shape[1])], axis=1)


def scale_terms(terms: Tensor) -> Tensor:
    """The columns of `terms` (N, ...) that the scales follow from: SCALE_TERMS, and the terms of more labels."""
    return tf.gather(terms, [*range(SCALE_TERMS), *range(MEAN_TERMS, terms.shape[1])], axis=1)


@dataclass(frozen=True)
class Hits:
    """The non-zero cells of N showers, reflected: (N, K) each, padded with hits of no energy.

    `x`, `y` (or angle and radius) and `layer` are indices. `colour` is 0 or 1 (`mesh.colour`). `value` are energies in
    units of 0.02 GeV. `away` (N, K, 3) are distances from the axis in x and y, in cells, and the mean radius of cells
    that go round the calorimeter's axis, else 0.
    """

    x: Tensor
    y: Tensor
    layer: Tensor
    colour: Tensor
    value: Tensor
    away: Tensor


def axis_of(offset: Tensor, labels: Labels, constants: Constants) -> Tensor:
    """Where the axes of showers meet the layers, (N, layers, 2), in cells from the middle of the calorimeter.

    An axis is the straight line along the core, as `_axes` fits it. `offset` (N, 4) is in cells, and cells a layer: x
    at the depth of reference, the slope in x, y at that depth, and the slope in y. Both slopes are relative to the
    slopes of the incident particle. The `labels` are reflected.
    """
    depth = tf.constant(constants.mesh.depth) - constants["depth"]  # (layers,)
    slope_y, slope_x = labels.slopes(constants.mesh)
    along_y, along_x = offset[:, 3] + slope_y, offset[:, 1:2]
    if slope_x is not None:
        along_x += slope_x[:, None]
    place = offset[:, 0:1] + along_x * depth, offset[:, 2:3] + along_y[:, None] * depth
    return tf.stack(place, -1)


def reflect(cell: Tensor, value: Tensor, labels: Labels, constants: Constants) -> tuple[Hits, Tensor, Tensor]:
    """Reflected hits of showers, their axes (N, layers, 2), and their offsets (N, 4), both as in `axis_of`.

    `cell` (N, K) are places in the flattened (x, y, layer) array, -1 for none. `value` (N, K) are the energies in these
    cells, in units of 0.02 GeV, 0 for none. The labels are as recorded.
    """
    mesh = constants.mesh
    layer, place = cell % mesh.layers, tf.maximum(cell, 0) // mesh.layers
    place = tf.where(labels.below()[:, None], mesh.of(mesh.mirror[1], layer, place), place)
    depth = tf.gather(tf.constant(mesh.depth), layer) - constants["depth"]
    slope_y, slope_x = labels.raised().slopes(mesh)
    across = mesh.of(mesh.x, layer, place)
    if slope_x is not None:
        across -= slope_x[:, None] * depth
    along = mesh.of(mesh.y, layer, place) - slope_y[:, None] * depth
    precision = tf.gather(tf.constant(mesh.precision), layer)
    (at_x, along_x), (at_y, along_y) = _axes(value, depth, tf.stack([across, along], -1), precision)
    left = labels.left(at_x < 0) & mesh.folds
    place = tf.where(left[:, None], mesh.of(mesh.mirror[0], layer, place), place)
    offset = tf.stack([tf.where(left, -at_x, at_x), tf.where(left, -along_x, along_x), at_y, along_y], 1)
    axis = axis_of(offset, labels.reflected(mesh), constants)
    met_at = tf.pad(axis, [[0, 0], [0, 0], [0, 1]])  # and no radius
    away = mesh.of(mesh.where[..., :3], layer, place) - tf.gather(met_at, layer, batch_dims=1)
    x, y = mesh.indices(place)
    met = tf.gather(mesh.met(axis, tf.range(mesh.layers)), layer, batch_dims=1)
    return Hits(x, y, layer, colour(x, y, met), value, away), axis, offset


def _axes(value: Tensor, depth: Tensor, place: Tensor, precision: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The lines in x and in y, each as `_line` gives it, that fit the deposits `value` (N, K) at `place` (N, K, 2).

    A deposit counts by its energy times `precision` (N, K, 2). After the first fit, a deposit counts less the farther
    it is from the lines of the fit before, and half as much at the distance of one side of its cell (Cauchy's weights;
    Holland and Welsch 1977, doi 10.1080/03610927708827533).
    """
    near = tf.ones_like(value)
    for _ in range(_FITS):
        lines = [_line(value * precision[..., k] * near, depth, place[..., k]) for k in (0, 1)]
        away = [place[..., k] - at[:, None] - slope[:, None] * depth for k, (at, slope) in enumerate(lines)]
        near = 1 / (1 + sum(tf.square(off) * precision[..., k] for k, off in enumerate(away)))
    return lines


def _line(weight: Tensor, depth: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """The best line place = at + slope * depth through K places, (N, K): at and slope (N,), 0 in a single layer."""
    total = tf.reduce_sum(weight, 1)
    mean_depth, mean_place = (tf.math.divide_no_nan(tf.reduce_sum(weight * term, 1), total) for term in (depth, place))
    away = depth - mean_depth[:, None]
    variance = tf.math.divide_no_nan(tf.reduce_sum(weight * away * away, 1), total)
    covariance = tf.math.divide_no_nan(tf.reduce_sum(weight * away * place, 1), total)
    slope = tf.where(variance > _ONE_LAYER, tf.math.divide_no_nan(covariance, variance), 0.0)
    return mean_place - slope * mean_depth, slope


def terms(value: Tensor, away: Tensor, layer: Tensor, constants: Constants) -> Tensor:
    """What hits add to SUMS, (..., 16), `away` (..., 3) as in `Hits`; 0 for hits without energy."""
    across, ring = tf.split(away, [2, 1], -1)
    precision = tf.gather(tf.constant(constants.mesh.precision), layer)
    depth = tf.expand_dims(tf.gather(tf.constant(constants.mesh.depth), layer), -1) - constants["depth"]
    energy, squares, around = value[..., None], tf.square(across), tf.square(ring)
    square = tf.reduce_sum(squares, -1, keepdims=True) + around
    beyond = square > tf.square(tf.stack([constants["radius_half"], constants["radius_most"]]))
    near = across * precision / (1 + tf.reduce_sum(squares * precision, -1, keepdims=True))
    moments = [across, squares + around / 2, across * depth, near, near * depth]
    counted = tf.cast(energy > (0.0, HIT), tf.float32)
    return tf.concat([energy, counted, energy * tf.concat([energy, tf.cast(beyond, tf.float32), *moments], -1)], -1)


def of_one_hit(hits: Hits, constants: Constants) -> Tensor:
    """The absolute value that one hit adds to each of SUMS, (N, 16): a mean over hits, with this value as weight."""
    added = terms(hits.value, hits.away, hits.layer, constants)
    return tf.math.divide_no_nan(tf.reduce_sum(added * added, 1), tf.reduce_sum(tf.abs(added), 1))


def layer_sums(hits: Hits, constants: Constants) -> Tensor:
    """SUMS of each layer and colour, (N, layers, 2, 16)."""
    mesh, showers = constants.mesh, tf.shape(hits.value)[0]
    layers = mesh.layers
    place = (tf.range(showers)[:, None] * layers + hits.layer) * COLOURS + hits.colour
    added = tf.reshape(terms(hits.value, hits.away, hits.layer, constants), [-1, len(SUMS)])
    sums = tf.math.unsorted_segment_sum(added, tf.reshape(place, [-1]), showers * layers * COLOURS)
    return tf.reshape(sums, [showers, layers, COLOURS, len(SUMS)])


def column(sums: Tensor, name: str) -> Tensor:
    """The sum called `name` of `sums` (..., 16)."""
    return sums[..., SUMS.index(name)]
