"""The totals of a shower: what they are, how they are made normal, and how a shower's layers and axis follow from them.

Which layers hold energy comes first. A total z is made normal in three steps: z = mean(E, theta) + scale(E, theta) *
q_k(g, E), with polynomials for mean and log scale and the quantiles q_k of the train split, interpolated in log E; and
g = L v, with the Cholesky factor L of the correlations of g. So far that is a Gaussian copula with smooth margins; a
network learns what v still is beside normal. An empty layer, and the last one that is not, which takes all that reaches
it, have no total: v is 0.
"""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from training.models.autoregressive.frame import Axis, Constants, column
from training.models.autoregressive.labels import More
from training.models.autoregressive.mesh import Mesh, Tensor
from training.models.autoregressive.networks import interpolated

# Sums of a whole shower that are totals, and budgets of the layers to come.
BUDGETS = ("cells", "hits", "beyond_half", "beyond_most", "xx", "yy")
COUNTED = ("cells", "hits")  # the others are shares of the energy
QUANTILES = 129
QUANTILE_REACH = 4.0  # quantiles are known from -4 to 4 standard deviations, and no total lies beyond
ENERGIES = 9  # at which there are quantiles, evenly in log E from the least to the largest energy
MEAN_TERMS, SCALE_TERMS = 11, 6
_SMALLEST = 1e-6


OFFSETS = 4  # numbers of the axis's offset
BLUR = 0.4  # of a cell
WAVES = 4  # sine and cosine of the place within a cell, along x and along y
_GROUPS = 6  # of layers that they are summed over


def number_of_totals(layers: int) -> int:
    return layers + OFFSETS + len(BUDGETS)


def number_of_phases(layers: int) -> int:
    return WAVES * min(layers, _GROUPS)


def label_terms(energy_gev: Tensor, theta_rad: Tensor, constants: Constants, more: More | None = None) -> Tensor:
    """Polynomials of the labels, (N, 11): the first 6 are those of the second degree; then those of `more` labels.

    `theta_rad` and `more` are reflected.
    """
    energy = (tf.math.log(energy_gev) - constants["log_energy"][0]) / constants["log_energy"][1]
    angle = (tf.cos(theta_rad) - constants["cos_theta"][0]) / constants["cos_theta"][1]
    one = tf.ones_like(energy)
    return tf.stack(
        [
            one, energy, angle, energy**2, energy * angle, angle**2,
            energy**3, energy**2 * angle, energy * angle**2, angle**3, angle**4,
            *(more or More()).terms(energy, angle, constants),
        ], 1,
    )  # fmt: skip


def noise_numbers(layers: int) -> int:
    """Uniform numbers that the totals of a shower take: three each and each offset, and one for each layer."""
    return 3 * (number_of_totals(layers) + OFFSETS) + layers


def totals_of(sums: Tensor, axis: Axis, energy_gev: Tensor, unit: float) -> tuple[Tensor, Tensor]:
    """The totals z, (N, layers + 10), of showers whose layers sum to `sums` (N, layers, 12); and which layers are not
    empty, (N, layers), 1 or 0.

    log E_vis / E; of each layer but the last the logit of its share of what reaches it; the axis's offset; and the logs
    of BUDGETS, of cells and hits as they are, of the others as shares of the energy. `unit` is that of the sums, GeV.
    """
    layer_energy = column(sums, "energy")
    visible = tf.reduce_sum(layer_energy, 1)
    reaching = tf.cumsum(layer_energy, axis=1, reverse=True)
    share = tf.clip_by_value(tf.math.divide_no_nan(layer_energy, reaching), _SMALLEST, 1 - _SMALLEST)[:, :-1]
    budgets = [tf.reduce_sum(column(sums, name), 1) / (1.0 if name in COUNTED else visible) for name in BUDGETS]
    values = tf.concat(
        [
            tf.math.log(visible * unit / energy_gev)[:, None],
            tf.math.log(share) - tf.math.log1p(-share),
            axis.offset,
            tf.math.log(tf.maximum(tf.stack(budgets, 1), _SMALLEST)),
        ],
        1,
    )
    return values, tf.cast(layer_energy > 0, tf.float32)


def defined(present: Tensor) -> Tensor:
    """Which totals (N, layers + 10) showers with these layers, `present` (N, layers), have: 1 or 0."""
    later = tf.cumsum(present, axis=1, reverse=True, exclusive=True)
    logits = present[:, :-1] * tf.cast(later[:, :-1] > 0, tf.float32)
    others = tf.ones([number_of_totals(0)])
    return tf.concat([tf.ones_like(present[:, :1]), logits, tf.ones_like(present[:, :1]) * others], 1)


def blur_scale(labels: Tensor, constants: Constants) -> Tensor:
    """By how much (N, 4) the offsets of the axes are blurred: the width of their spread, or .4 of a cell if less."""
    return tf.minimum(2.0 * tf.exp(_scale_terms(labels) @ constants["blur_scale"]), constants["blur_most"])


def blurred(totals: Tensor, labels: Tensor, noise: Tensor, constants: Constants) -> Tensor:
    """The `totals` (N, D) with offsets that `noise` (N, 4) blurs; -noise makes them sharp again."""
    padding = [[0, 0], [totals.shape[1] - OFFSETS - len(BUDGETS), len(BUDGETS)]]
    return totals + tf.pad(noise * blur_scale(labels, constants), padding)


def phases(energy: Tensor, axis: Axis, mesh: Mesh) -> Tensor:
    """Where in their cells the axes meet the layers, (N, number_of_phases): sums of waves with the period of a cell.

    A layer counts by its `energy` (N, layers); neighbouring layers are summed. The first moments of the energy follow
    from these sums, to first order (the S-curve of coarse cells).
    """
    share = energy / tf.reduce_sum(energy, 1, keepdims=True)
    angle = 2 * math.pi * mesh.within(tf.stack([axis.x, axis.y], -1))
    waves = tf.concat([tf.sin(angle), tf.cos(angle)], -1) * tf.cast(mesh.folds, tf.float32)
    groups = min(mesh.layers, _GROUPS)
    sums = tf.einsum("nl,nlw,lg->nwg", share, waves, interpolated(mesh.layers, groups))
    return tf.reshape(sums, [-1, WAVES * groups])


def layers_of(
    totals: Tensor, present: Tensor, energy_gev: Tensor, unit: float, layers: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What follows from `totals`: layer energies (N, layers), the axis's offset (N, 4), budgets (N, 6), the logs."""
    visible = energy_gev * tf.exp(totals[:, 0]) / unit
    logits = tf.concat([tf.sigmoid(totals[:, 1:layers]), tf.ones_like(visible)[:, None]], 1)
    last = tf.cast(tf.cumsum(present, axis=1, reverse=True, exclusive=True) == 0, tf.float32)
    share = present * (last + (1 - last) * logits)
    passing = tf.math.cumprod(1 - share, axis=1, exclusive=True)
    return visible[:, None] * passing * share, totals[:, layers : layers + 4], totals[:, layers + 4 :]


LABEL_INPUTS = 4


def label_inputs(labels: Tensor) -> Tensor:
    """The labels as the density of the totals is given them, (N, LABEL_INPUTS) and the terms of more labels."""
    return tf.gather(labels, [1, 2, 4, 5, *range(MEAN_TERMS, labels.shape[1])], axis=1)


def _scale_terms(labels: Tensor) -> Tensor:
    """Those of `labels` (N, ...) that the scales follow from, (N, SCALE_TERMS) and the terms of more labels."""
    short = labels[:, :SCALE_TERMS]
    return short if labels.shape[1] == MEAN_TERMS else tf.concat([short, labels[:, MEAN_TERMS:]], 1)


def scales(labels: Tensor, constants: Constants) -> Tensor:
    """The scales (N, D) of the totals at `labels`: about half a standard deviation each."""
    return tf.exp(_scale_terms(labels) @ constants["scale"])


def interpolation(place: Tensor, knots: int) -> Tensor:
    """Weights (N, knots) of linear interpolation at `place` (N,), between knots evenly from -1 to 1; 1 of one knot."""
    place = tf.clip_by_value(place, -1.0, 1.0)
    return tf.nn.relu(1 - tf.abs(place[:, None] - np.linspace(-1, 1, knots, dtype=np.float32)) * (knots - 1) / 2)


def scores(residual: Tensor, labels: Tensor, quantiles: Tensor) -> Tensor:
    """g (N, D) of `residual` (N, D), by the `quantiles` (ENERGIES, QUANTILES, D) at the energies of `labels`."""
    own = tf.einsum("ne,eqd->ndq", interpolation(labels[:, 1], ENERGIES), quantiles)  # rising
    right = tf.searchsorted(own, residual[..., None], side="right")
    left = tf.clip_by_value(right - 1, 0, QUANTILES - 2)
    low, high = (tf.gather(own, left + k, batch_dims=2)[..., 0] for k in (0, 1))
    place = tf.cast(left[..., 0], tf.float32) + (residual - low) / (high - low)
    step = 2 * QUANTILE_REACH / (QUANTILES - 1)
    return tf.clip_by_value(place * step - QUANTILE_REACH, -QUANTILE_REACH, QUANTILE_REACH)


def _means(labels: Tensor, phases: Tensor, constants: Constants) -> Tensor:
    """The means (N, D) of the totals; those of the budgets depend on the `phases` too."""
    budgets = phases @ constants["mean_of_phases"]
    return labels @ constants["mean"] + tf.pad(budgets, [[0, 0], [constants["mean"].shape[1] - len(BUDGETS), 0]])


def to_normal(totals: Tensor, known: Tensor, labels: Tensor, phases: Tensor, constants: Constants) -> Tensor:
    """v, (N, D), of the totals z that are `known` (N, D), 1 or 0; `labels` as `label_terms` gives them."""
    residual = (totals - _means(labels, phases, constants)) / scales(labels, constants)
    normal = scores(residual, labels, constants["quantiles"])
    # g = L v where a total is known, and v = 0 where it is not
    rows = known[..., None]
    system = rows * constants["colouring"] + (1 - rows) * tf.eye(totals.shape[1])
    return tf.linalg.triangular_solve(system, rows * normal[..., None])[..., 0]


def from_normal(normal: Tensor, labels: Tensor, phases: Tensor, constants: Constants) -> Tensor:
    """The totals z, (N, D), of v: the inverse of `to_normal`."""
    step = 2 * QUANTILE_REACH / (QUANTILES - 1)
    place = (normal @ tf.transpose(constants["colouring"]) + QUANTILE_REACH) / step
    place = tf.clip_by_value(place, 0.0, QUANTILES - 1.0)
    left = tf.minimum(tf.floor(place), QUANTILES - 2.0)
    flat = tf.reshape(tf.transpose(constants["quantiles"], [2, 1, 0]), [-1, ENERGIES])
    start = tf.range(normal.shape[1], dtype=tf.int32) * QUANTILES + tf.cast(left, tf.int32)
    energy = interpolation(labels[:, 1], ENERGIES)[:, None]
    low, high = (tf.reduce_sum(tf.gather(flat, start + k) * energy, -1) for k in (0, 1))
    residual = low + (place - left) * (high - low)
    return _means(labels, phases, constants) + scales(labels, constants) * residual


def budgets_in_units(logs: Tensor, layer_energy: Tensor) -> Tensor:
    """Budgets (N, 6) as sums, from their logs in the totals."""
    visible = tf.reduce_sum(layer_energy, 1)
    return tf.exp(logs) * tf.stack([tf.ones_like(visible) if name in COUNTED else visible for name in BUDGETS], 1)


def expected_layers(layer_energy: Tensor, labels: Tensor, constants: Constants) -> Tensor:
    """BUDGETS that each layer is expected to take, (N, layers, 6): exp of a regression on layers' energies."""
    terms = layer_terms(layer_energy, labels)
    expected = tf.exp(tf.clip_by_value(tf.einsum("nlk,jlk->nlj", terms, constants["expected"]), -15.0, 12.0))
    counted = tf.constant([name in COUNTED for name in BUDGETS])
    return tf.where(counted, expected, expected * layer_energy[..., None])


def layer_terms(layer_energy: Tensor, labels: Tensor) -> Tensor:
    """What the expectations of a layer are linear in, (N, layers, 8) and the terms of more labels."""
    share = tf.math.log(tf.maximum(layer_energy / tf.reduce_sum(layer_energy, 1, keepdims=True), _SMALLEST))
    after = tf.concat([share[:, 1:], share[:, -1:]], 1)
    before = tf.concat([share[:, :1], share[:, :-1]], 1)
    one = tf.ones_like(share)
    energy, angle, *more = (labels[:, k : k + 1] * one for k in (1, 2, *range(MEAN_TERMS, labels.shape[1])))
    return tf.stack([one, energy, angle, angle**2, share, share**2, after, before, *more], -1)


LAYER_TERMS = 8
# What is added before the logarithm of the regressions.
EXPECTED_FLOOR = {
    "cells": 0.5,
    "hits": 0.5,
    "beyond_half": 0.01,
    "beyond_most": 3e-3,
    "xx": 0.03,
    "yy": 0.03,
}
