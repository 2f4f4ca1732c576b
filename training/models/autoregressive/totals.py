"""The totals of a shower: what they are, how they are made normal, and how a shower's layers and axis follow from them.

A total z is made normal: z = mean(E, theta) + scale(E, theta) * q_k(g, E). Mean and log scale are polynomials; q_k are
the quantiles of the train split, interpolated in log E. The scores are g = L v, with the Cholesky factor L of the
correlations of g: a Gaussian copula with smooth margins. A network learns how v differs from normal. Two kinds of
layers have no total, and v = 0: empty layers, and the last layer that is not empty, which takes all energy that reaches
it.

In coarse cells the place of an axis and its slope have a peak in each cell. So the totals hold the offset of the axis
with known noise, which has a smooth density. Two more densities draw the noise, which is taken away: first from the
place, then from the slope. One density serves all cells and both directions (docs/model.md, The place of the axis).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from calopipe.showers.cells import REFERENCE_UNIT_GEV
from training.models.autoregressive import frame
from training.models.autoregressive.densities import SCORE_REACH, normal_scores
from training.models.autoregressive.frame import Constants, Hits, Labels
from training.models.autoregressive.mesh import Mesh
from training.models.autoregressive.totals_density import SHAPE, interpolated, mean_and_width, shape
from training.models.base import Batch, Tensor
from training.models.randomness import Draws

# Sums over a whole shower that are totals; what is left of them are budgets of the layers to come.
BUDGETS = ("cells", "hits", "beyond_half", "beyond_most", "xx", "yy")
COUNTED = ("cells", "hits")  # the other budgets are shares of the energy
MOMENTS = ("x", "y", "x_depth", "y_depth")  # of all energy about the axis: totals and budgets too, but of either sign
LAST = len(BUDGETS) + len(MOMENTS)  # the number of these last totals, whose means depend on more than the labels
ENERGIES = 9  # energies at which there are quantiles, evenly in log E from the least to the largest energy
SMALLEST = 1e-6  # the smallest number of which a logarithm is taken
OFFSETS = 4  # numbers of the axis's offset
BLUR = 0.4  # the largest blur of the axis, in cells
WAVES = 4  # sine and cosine of the place within a cell, along x and along y
_GROUPS = 6  # groups of layers, over each of which the waves are summed
COPIES = 8  # copies of a shower in a training step, each with its own noise
PARTS = ("place", "slope")  # parts of the noise of an offset, each along x and along y
_OTHERS = 6  # inputs of the densities of the noise other than phases and labels


def number_of_totals(layers: int) -> int:
    return layers + OFFSETS + LAST


def number_of_phases(layers: int) -> int:
    return WAVES * min(layers, _GROUPS)


def number_of_budget_terms(layers: int) -> int:
    return number_of_phases(layers) + SHAPE + 1


def totals_of(sums: Tensor, layer_energy: Tensor, offset: Tensor, energy_gev: Tensor) -> tuple[Tensor, Tensor]:
    """The totals z, (N, layers + 14), of showers whose layers have the SUMS `sums` (N, layers, 16) and the promised
    energies `layer_energy` (N, layers); and which layers are not empty, (N, layers), 1 or 0.

    z holds the logit of each layer's share of what reaches it, without the last layer; log E_vis / E; the axis's
    offset; the logs of BUDGETS, where all but COUNTED are shares of the energy; and MOMENTS over the energy.
    """
    visible = tf.reduce_sum(layer_energy, 1)
    reaching = tf.cumsum(layer_energy, axis=1, reverse=True)
    share = tf.clip_by_value(tf.math.divide_no_nan(layer_energy, reaching), SMALLEST, 1 - SMALLEST)[:, :-1]
    budgets = [tf.reduce_sum(frame.column(sums, name), 1) / (1.0 if name in COUNTED else visible) for name in BUDGETS]
    values = tf.concat(
        [
            tf.math.log(share) - tf.math.log1p(-share),
            tf.math.log(visible * REFERENCE_UNIT_GEV / energy_gev)[:, None],
            offset,
            tf.math.log(tf.maximum(tf.stack(budgets, 1), SMALLEST)),
            *(tf.reduce_sum(frame.column(sums, name), 1, keepdims=True) / visible[:, None] for name in MOMENTS),
        ],
        1,
    )
    return values, tf.cast(layer_energy > 0, tf.float32)


def described(
    batch: Batch, labels: Labels, noise: Callable[[Any], Tensor], constants: Constants
) -> tuple[Hits, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The showers of a `batch` of lists of hits, `cell` and `value` (N, K), with `labels` as recorded.

    Returns hits, axes, the SUMS of layers and colours (N, layers, 2, 16), the energies (N, layers, 2) promised to the
    colours, where normal numbers `noise(shape)` blur single hits, and what `totals_of` returns.
    """
    hits, axis, offset = frame.reflect(batch["cell"], batch["value"], labels, constants)
    sums = frame.layer_sums(hits, constants)
    blur = tf.exp(frame.PROMISE_BLUR * noise(tf.shape(sums)[:3]))
    energy = frame.column(sums, "energy") * tf.where(frame.column(sums, "cells") <= frame.ALONE, blur, 1.0)
    values, present = totals_of(tf.reduce_sum(sums, 2), tf.reduce_sum(energy, 2), offset, labels.energy_gev)
    return hits, axis, sums, energy, values, present


def defined(present: Tensor) -> Tensor:
    """Which of the totals (N, layers + 14) a shower has, 1 or 0, if these layers are `present` (N, layers)."""
    later = tf.cumsum(present, axis=1, reverse=True, exclusive=True)
    logits = present[:, :-1] * tf.cast(later[:, :-1] > 0, tf.float32)
    return tf.concat([logits, tf.ones([tf.shape(present)[0], number_of_totals(1)])], 1)


def phases(share: Tensor, axis: Tensor, mesh: Mesh) -> Tensor:
    """Where in their cells the axes meet the layers, (N, number_of_phases): sums of waves with the period of a cell.

    A layer counts by its `share` (N, layers) of the energy. A sum is over a group of neighbouring layers. The first
    moments of the energy follow from these sums, to first order (the S-curve of coarse cells).
    """
    angle = 2 * math.pi * mesh.within(axis)
    waves = tf.concat([tf.sin(angle), tf.cos(angle)], -1) * tf.cast(mesh.folds, tf.float32)
    groups = min(mesh.layers, _GROUPS)
    sums = tf.einsum("nl,nlw,lg->nwg", share, waves, interpolated(mesh.layers, groups))
    return tf.reshape(sums, [-1, WAVES * groups])


def budget_terms(values: Tensor, energy: Tensor, axis: Tensor, mesh: Mesh) -> Tensor:
    """Terms other than labels in which the means of budgets and moments are linear, (N, number_of_budget_terms).

    The terms are the phases of the axis, where along the layers the `energy` (N, layers) is, and the response: by
    normal scores alone the latest showers, which leak, would have too many hits.
    """
    share = energy / tf.reduce_sum(energy, 1, keepdims=True)
    return tf.concat([phases(share, axis, mesh), shape(share), response(values, mesh.layers)], 1)


def response(totals: Tensor, layers: int) -> Tensor:
    """log E_vis / E, (N, 1)."""
    return totals[:, layers - 1 : layers]


def layers_of(totals: Tensor, present: Tensor, energy_gev: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the `totals` (N, D) say: layer energies (N, layers), the axis's offset (N, 4), the logs of the budgets (N,
    6), and the moments over the energy (N, 4).
    """
    layers = present.shape[1]
    visible = energy_gev[:, None] * tf.exp(response(totals, layers)) / REFERENCE_UNIT_GEV
    logits = tf.concat([tf.sigmoid(totals[:, : layers - 1]), tf.ones_like(visible)], 1)
    last = tf.cast(tf.cumsum(present, axis=1, reverse=True, exclusive=True) == 0, tf.float32)
    share = present * (last + (1 - last) * logits)
    before = np.tri(layers, k=-1, dtype=bool)
    passing = tf.reduce_prod(tf.where(before, 1 - share[:, None], 1.0), 2)
    others = tf.split(totals[:, layers:], [OFFSETS, len(BUDGETS), len(MOMENTS)], 1)
    return visible * passing * share, *others


def scales(terms: Tensor, constants: Constants) -> Tensor:
    """The scales (N, D) of the totals at the label `terms`; a scale is about half a standard deviation."""
    return tf.exp(frame.scale_terms(terms) @ constants["scale"])


def interpolation(place: Tensor, knots: int) -> Tensor:
    """Weights (..., knots) of linear interpolation at `place` (...), for even knots from -1 to 1; one alone has all."""
    place = tf.clip_by_value(place, -1.0, 1.0)
    return tf.nn.relu(1 - tf.abs(place[..., None] - np.linspace(-1, 1, knots, dtype=np.float32)) * (knots - 1) / 2)


def own_quantiles(terms: Tensor, quantiles: Tensor) -> Tensor:
    """The `quantiles` (ENERGIES, SCORES, D) at the energies of the label `terms`: (N, D, SCORES), rising."""
    return tf.einsum("ne,eqd->ndq", interpolation(terms[:, 1], ENERGIES), quantiles)


def scores(residual: Tensor, terms: Tensor, quantiles: Tensor) -> Tensor:
    """The scores g (N, D) of `residual` (N, D), by the `quantiles` (ENERGIES, SCORES, D) at the energies of `terms`."""
    found = normal_scores(residual, own_quantiles(terms, quantiles))
    return tf.clip_by_value(found, -SCORE_REACH, SCORE_REACH)


def means(terms: Tensor, budget_terms: Tensor, constants: Constants) -> Tensor:
    """The means (N, D) of the totals. The means of budgets and moments depend on the `budget_terms` too."""
    last = budget_terms @ constants["mean_of_budgets"]
    return terms @ constants["mean"] + tf.pad(last, [[0, 0], [constants["mean"].shape[1] - LAST, 0]])


def to_normal(totals: Tensor, known: Tensor, terms: Tensor, budget_terms: Tensor, constants: Constants) -> Tensor:
    """v, (N, D), of the totals z; v is 0 where a total is not `known` (N, D), 1 or 0. `terms` are `Labels.terms`."""
    residual = (totals - means(terms, budget_terms, constants)) / scales(terms, constants)
    normal = scores(residual, terms, constants["quantiles"])
    # g = L v where a total is known, and v = 0 where it is not
    rows = known[..., None]
    system = rows * constants["colouring"] + (1 - rows) * tf.eye(totals.shape[1])
    return tf.linalg.triangular_solve(system, rows * normal[..., None])[..., 0]


def number_of_inputs(layers: int, terms: int) -> int:
    return number_of_phases(layers) // 2 + terms + _OTHERS


@dataclass(frozen=True)
class Drawn:
    """N showers as far as they are known before their offsets: the totals `values` (N, D), of which the LAST do not
    count; the `energy` (N, layers) of the layers; the reflected labels and their terms (N, ...).
    """

    values: Tensor
    energy: Tensor
    labels: Labels
    terms: Tensor

    def copies(self) -> Drawn:
        """The showers, each COPIES times in a row."""
        showers = tf.range(tf.shape(self.values)[0] * COPIES) // COPIES
        values, energy, terms = (tf.gather(tensor, showers) for tensor in (self.values, self.energy, self.terms))
        return Drawn(values, energy, self.labels[showers], terms)

    def with_noise(self, noise: Tensor, constants: Constants) -> Drawn:
        """The showers with normal `noise` (N, 4) or (N * 2, 2), in units of the blur, added to their offsets."""
        logs = frame.scale_terms(self.terms) @ constants["blur_scale"]
        added = tf.reshape(noise, [-1, OFFSETS]) * tf.minimum(2.0 * tf.exp(logs), constants["blur_most"])
        return replace(self, values=self.values + tf.pad(added, [[0, 0], [constants.mesh.layers, LAST]]))

    def axis(self, constants: Constants) -> Tensor:
        first = constants.mesh.layers
        return frame.axis_of(self.values[:, first : first + OFFSETS], self.labels, constants)

    def budget_terms(self, constants: Constants) -> Tensor:
        """`budget_terms` for the axes of these showers, (N, number_of_budget_terms)."""
        return budget_terms(self.values, self.energy, self.axis(constants), constants.mesh)


def training_rows(drawn: Drawn, draws: Draws, constants: Constants) -> dict[str, Tensor]:
    """For M / 2 copies of showers: the `noise` (M, 2), and the inputs of each density of the noise, "PART_given"."""
    copies = drawn.copies()
    noise = draws.normal("offsets", [tf.shape(copies.values)[0] * 2, len(PARTS)])
    rows = {"noise": noise}
    for part, name in enumerate(PARTS):
        left = noise * tf.constant([1.0 - part, 1.0])
        given = given_offset(copies.with_noise(left, constants), constants)
        rows[f"{name}_given"] = tf.concat([given, noise[:, :part]], 1)
    return rows


def given_offset(drawn: Drawn, constants: Constants) -> Tensor:
    """Inputs of the densities of the noise, (N * 2, number_of_inputs): for each shower along x, then along y."""
    mesh = constants.mesh
    layers, axis, terms = mesh.layers, drawn.axis(constants), drawn.terms
    offset = slice(layers, layers + OFFSETS)
    residual = (drawn.values - terms @ constants["mean"])[:, offset] / scales(terms, constants)[:, offset]
    share = drawn.energy / tf.reduce_sum(drawn.energy, 1, keepdims=True)
    waves = tf.reshape(phases(share, axis, mesh), [-1, 2, 2, number_of_phases(layers) // 4])
    span = max(float(mesh.depth[-1] - mesh.depth[0]), 1.0)
    slopes = (axis[:, -1] - axis[:, 0]) / span
    common = tf.concat([*mean_and_width(share, (mesh.depth - mesh.depth[0]) / span), frame.label_inputs(terms)], 1)
    parts = [
        tf.reshape(tf.transpose(waves, [0, 2, 1, 3]), [-1, 2, number_of_phases(layers) // 2]),
        slopes[..., None],
        tf.clip_by_value(tf.reshape(residual, [-1, 2, len(PARTS)]) / 4, -2.0, 2.0),
        tf.zeros_like(slopes)[..., None] + tf.constant([[0.0], [1.0]]),  # which direction
        tf.repeat(common[:, None], 2, axis=1),
    ]
    inputs = tf.concat(parts, -1)
    return tf.reshape(inputs, [-1, inputs.shape[-1]])
