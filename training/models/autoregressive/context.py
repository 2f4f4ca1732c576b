"""The context of a cell, an input of its density: what the totals promise of its layer, and what is spent of this."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from training.models.autoregressive.densities import share_logit, share_of
from training.models.autoregressive.frame import HIT, MEAN_TERMS, SUMS, Constants, Labels, axis_of, column
from training.models.autoregressive.mesh import Mesh
from training.models.autoregressive.totals import BUDGETS, COUNTED, MOMENTS, SMALLEST, layers_of, response
from training.models.autoregressive.totals_density import mean_and_width
from training.models.base import Array, Tensor

_OF_SUMS = ("cells", "beyond_most", "xx yy", "beyond_half", "squares", "near_x", "near_y", "hits")  # of `_of_layers`
_TO_COME = tuple(f"{name}, {place}" for name in ("x", "y", "near_x", "near_y") for place in ("all", "here"))
# The numbers of a context by name, in their order.
FEATURES = {
    # from the totals; after those of the shower come terms of labels, after those of the layer which layer it is
    "shower": ("log E", "cos theta", "response", "depth", "width", "slope in x", "slope in y", *BUDGETS, *MOMENTS),
    "layer": ("share", "next", "next but one", "before", "shares so far", "place in the cell met, x", "y"),
    # from the layer before, the layer before that, and all layers before
    "before": (*_OF_SUMS, *_OF_SUMS[:3], *_OF_SUMS[1:3], "cells"),
    "even": ("share left", "log share left", "log energy left", *_OF_SUMS),  # from the even cells, for odd ones
    "rest": ("energy kept", *BUDGETS, *_TO_COME),  # what is left of what was promised
    "share": ("logit", "log energy"),  # of the layer's even cells, for these
    "count": ("log hits", "log energy of a hit"),  # of the colour
}
SHARE_NUMBERS, COUNT_NUMBERS = len(FEATURES["share"]), len(FEATURES["count"])
# Added to what is left of a budget before its logarithm: a few cells, or the energy of a hit.
_FLOORS = np.array(
    [{"cells": 3.0, "hits": 2.0, "xx": 10 * HIT, "yy": 10 * HIT}.get(name, HIT) for name in BUDGETS], np.float32
)
_TINY = 1e-3


def _sums_of(*columns: str) -> Array:
    """The matrix (16, ...) that makes `columns` from SUMS; a column with several names is the sum of these."""
    return np.array([[name in column.split() for column in columns] for name in SUMS], np.float32)


# A layer is described by the ratios of _PARTS to _WHOLES: logarithms of the first four, and the others. _BESIDE is
# added to the wholes, _LEAST to the first four ratios.
_PARTS = _sums_of(*(columns for columns in _OF_SUMS if columns != "squares"))
_WHOLES, _BESIDE = _sums_of("", *["energy"] * 5, "cells"), np.array([1, 0, 0, 0, 0, 0, 1], np.float32)
_LEAST = np.array([1, 3e-3, 0.05, 0.02], np.float32)
_NEAR = tuple(f"near_{name}" for name in MOMENTS)
_COUNTED_BY = [0, 0, 1, 2]  # for x, y, near x and near y, which of `Plan.weights` counts
_SPENT_OF, _MOMENTS = ([SUMS.index(name) for name in names] for names in (BUDGETS, MOMENTS + _NEAR))
LAYER_TERMS = 8


class Plan(NamedTuple):
    """What the totals promise of M layers, in units of 0.02 GeV and cells: (M, ...) each.

    - Of the shower: the `slope` of the axis in y, in cells a layer; the `budgets` (M, 6); the `moments` (M, 4), energy
      times cells, the last two also times layers.
    - Of the layer: its `energy`, and that of all layers `before` it; its `depth`; `cells`, how many are expected to be
      hit; `most` (M, 2), how many cells each colour has; `axis` (M, 2), where the axis meets it; `weights` (M, 3), by
      which its energy counts: 1, and those of the axis in x and in y (`Mesh.precision`).
    - Of the layer and all after it: what they are `expected` (M, 6) to take of the budgets; `rest` (M, 3, 3), for each
      of the weights their energy, and the mean and variance of its depth.
    - `inputs` (M, ...) of the densities, which follow from all this.
    """

    slope: Tensor
    energy: Tensor
    before: Tensor
    budgets: Tensor
    moments: Tensor
    expected: Tensor
    weights: Tensor
    rest: Tensor
    depth: Tensor
    cells: Tensor
    most: Tensor
    axis: Tensor
    inputs: Tensor

    def at(self, layer: Tensor) -> Plan:
        """The plan of one layer of N showers, (N, ...), from the plan of all layers, (N, layers, ...)."""
        return Plan(*(tf.gather(part, layer, axis=1) for part in self))


def context_numbers(layers: int, *, odd: bool, more: int = 0) -> int:
    """How many numbers the context of a cell has; `more` of them are terms of labels other than energy and theta."""
    absent = "share" if odd else "even"
    return more + layers + sum(len(names) for part, names in FEATURES.items() if part != absent)


def plan(values: Tensor, present: Tensor, labels: Labels, constants: Constants) -> Plan:
    """The plan, (N, layers, ...), by totals `values` (N, D), layers `present` (N, layers), and reflected `labels`."""
    mesh, terms = constants.mesh, labels.terms(constants)
    energy, offset, logs, moments = layers_of(values, present, labels.energy_gev)
    axis = axis_of(offset, labels, constants)
    visible = tf.reduce_sum(energy, 1)
    budgets = tf.exp(logs) * tf.stack([tf.ones_like(visible) if name in COUNTED else visible for name in BUDGETS], 1)
    of_layers = expected_layers(energy, terms, constants)
    expected = tf.cumsum(of_layers, axis=1, reverse=True)
    number = of_layers[..., 0] * (budgets / expected[:, 0])[:, :1]
    depth = tf.constant(mesh.depth) - constants["depth"]
    weights = tf.constant(np.pad(mesh.precision, [(0, 0), (1, 0)], constant_values=1))
    left, first, second = (
        tf.cumsum(energy[..., None] * weights * depth[:, None] ** power, axis=1, reverse=True) for power in range(3)
    )
    mean = tf.math.divide_no_nan(first, left)
    rest = tf.stack([left, mean, tf.maximum(tf.math.divide_no_nan(second, left) - mean * mean, 0.0)], -1)
    slope = offset[:, 3:] + labels.slopes(mesh)[0][:, None]
    last = tf.concat([offset[:, 1::2], tf.math.log(budgets / expected[:, 0]), moments], 1)
    return Plan(
        tf.repeat(slope, mesh.layers, axis=1),
        energy,
        tf.cumsum(energy, axis=1, exclusive=True),
        tf.repeat(budgets[:, None], mesh.layers, axis=1),
        tf.repeat((moments * tf.reduce_sum(energy, 1, keepdims=True))[:, None], mesh.layers, axis=1),
        expected,
        tf.zeros_like(left) + weights,
        rest,
        tf.zeros_like(energy) + depth,
        number,
        mesh.of_colours(mesh.met(axis, tf.range(mesh.layers))),
        axis,
        _inputs(terms, response(values, mesh.layers), energy, axis, last, mesh=mesh),
    )


def expected_layers(layer_energy: Tensor, terms: Tensor, constants: Constants) -> Tensor:
    """What each layer is expected to take of BUDGETS, (N, layers, 6): exp of a regression on the layers' energies."""
    logs = tf.einsum("nlk,jlk->nlj", layer_terms(layer_energy, terms), constants["expected"])
    expected = tf.exp(tf.clip_by_value(logs, -15.0, 12.0))
    counted = tf.constant([name in COUNTED for name in BUDGETS])
    return tf.where(counted, expected, expected * layer_energy[..., None])


def layer_terms(layer_energy: Tensor, terms: Tensor) -> Tensor:
    """The terms in which a layer's log expectations are linear, (N, layers, 8 and the terms of more labels)."""
    share = tf.math.log(tf.maximum(layer_energy / tf.reduce_sum(layer_energy, 1, keepdims=True), SMALLEST))
    after = tf.concat([share[:, 1:], share[:, -1:]], 1)
    before = tf.concat([share[:, :1], share[:, :-1]], 1)
    one = tf.ones_like(share)
    energy, angle, *more = (terms[:, k : k + 1] * one for k in (1, 2, *range(MEAN_TERMS, terms.shape[1])))
    return tf.stack([one, energy, angle, angle**2, share, share**2, after, before, *more], -1)


def _inputs(terms: Tensor, response: Tensor, energy: Tensor, axis: Tensor, last: Tensor, *, mesh: Mesh) -> Tensor:
    """`Plan.inputs` (N, layers, ...): numbers of the shower, numbers of the layer, and which layer it is, one-hot."""
    share = energy / tf.reduce_sum(energy, 1, keepdims=True)
    log_share = tf.math.log(tf.maximum(share, 1e-6))
    longer = tf.concat([log_share, tf.repeat(log_share[:, -1:], 2, axis=1)], 1)
    ahead = [longer[:, k : k + mesh.layers] for k in (1, 2)]
    behind = tf.concat([log_share[:, :1], log_share[:, :-1]], 1)
    depth_and_width = mean_and_width(share, np.arange(mesh.layers, dtype=np.float32))
    of_shower = tf.concat([terms[:, 1:3], response, *depth_and_width, last, terms[:, MEAN_TERMS:]], 1)
    of_layer = [
        log_share, ahead[0] - log_share, ahead[1] - log_share, behind - log_share, tf.cumsum(share, axis=1),
        *tf.unstack(mesh.within(axis), axis=-1),
    ]  # fmt: skip
    which = tf.zeros_like(energy)[..., None] + tf.eye(mesh.layers)
    return tf.concat([tf.repeat(of_shower[:, None], mesh.layers, axis=1), tf.stack(of_layer, -1), which], -1)


def context(planned: Plan, sums: Tensor, of_even: tuple[Tensor, Tensor] | None) -> Tensor:
    """The context of the cells of M layers, (M, context_numbers).

    `sums` (M, 3, 16) are the SUMS of all layers before, of the layer before, and of the layer before that. `of_even`
    are the SUMS of the layer's even cells (M, 16) and the energy they were promised (M,); None for even cells.
    """
    told, before = _of_layers(sums), sums[:, 0]
    cells = column(before, "cells") / planned.budgets[:, 0]
    numbers = [told[:, 1], told[:, 2, :3], told[:, 0, 1:3], cells[:, None]]
    spent, promised = before, planned.before
    if of_even is not None:
        even, energy = of_even
        spent, promised = before + even, planned.before + energy
        total = tf.maximum(planned.energy, _TINY)
        left = 1 - energy / total
        left = tf.maximum(tf.stack([left, left, left * total], 1), (-0.3, _TINY, _TINY))
        numbers += [left[:, :1], tf.math.log(left[:, 1:]), _of_layers(even)]
    # single hits hold more or less than they were promised; later hits make up for it
    numbers.append(tf.math.log((column(spent, "energy") + HIT) / (promised + HIT))[:, None])
    remaining = tf.maximum(planned.budgets - tf.gather(spent, _SPENT_OF, axis=1), 0.0) + _FLOORS
    numbers.append(tf.clip_by_value(tf.math.log(remaining / (planned.expected + _FLOORS)), -2.0, 2.0))
    return tf.concat([planned.inputs, *numbers, _displacement(planned, before, spent)], 1)


def with_share(contexts: Tensor, logit: Tensor, energy: Tensor) -> Tensor:
    """The contexts (M, ...) of even cells, with their share of the layer's `energy` (M,) added, by its `logit` (M,)."""
    log_energy = tf.math.log(tf.maximum(share_of(logit) * energy, _TINY))
    return tf.concat([contexts, logit[:, None], log_energy[:, None]], 1)


def with_count(contexts: Tensor, count: Tensor, energy: Tensor) -> Tensor:
    """The contexts (M, ...) of cells of a colour, with their `count` (M,) of hits and their `energy` (M,) added."""
    log_count = tf.math.log(tf.maximum(count, 0.5))
    mean = tf.math.log(tf.maximum(energy, _TINY)) - log_count
    return tf.concat([contexts, log_count[:, None], mean[:, None]], 1)


def contexts_of(planned: Plan, sums: Tensor, promised: Tensor, noise: Tensor, *, odd: bool) -> Tensor:
    """The contexts (N * layers, ...), not `normalised`, of all layers of showers with `sums` (N, layers, 2, 16).

    The layers are `planned` (N, layers, ...); the colours are `promised` energies (N, layers, 2). `noise` (N, 16) is
    added to what is spent before each layer.
    """
    layer_sums = tf.reduce_sum(sums, 2)
    before = tf.cumsum(layer_sums, axis=1, exclusive=True) + noise[:, None]
    one, two = (tf.pad(layer_sums, [[0, 0], [k, 0], [0, 0]])[:, : layer_sums.shape[1]] for k in (1, 2))
    earlier = tf.reshape(tf.stack([before, one, two], 2), [-1, 3, len(SUMS)])
    even, energy, layer_energy = (
        tf.reshape(each, [-1]) for each in (promised[..., 0], promised[..., int(odd)], tf.reduce_sum(promised, -1))
    )
    of_even = (tf.reshape(sums[:, :, 0], [-1, len(SUMS)]), even) if odd else None
    flat = Plan(*(tf.reshape(part, [-1, *part.shape[2:]]) for part in planned))
    contexts = context(flat, earlier, of_even)
    if not odd:
        contexts = with_share(contexts, share_logit(energy, layer_energy), layer_energy)
    return with_count(contexts, tf.reshape(column(sums, "cells")[..., int(odd)], [-1]), energy)


def normalised(contexts: Tensor, constants: Constants, *, odd: bool) -> Tensor:
    """`contexts` (M, ...), or the first of their numbers, scaled to mean 0 and width 1 in the train split, and cut."""
    name = "odd" if odd else "even"
    mean, scale = (constants[f"{name}_{part}"][: contexts.shape[1]] for part in ("mean", "scale"))
    return tf.clip_by_value((contexts - mean) / scale, -6.0, 6.0)


def _of_layers(sums: Tensor) -> Tensor:
    """Eight numbers (..., 8) that describe layers with these `sums` (..., 16); the first three say most."""
    ratios = sums @ _PARTS / tf.maximum(sums @ _WHOLES + _BESIDE, _TINY)
    square = tf.sqrt(column(sums, "squares")) / tf.maximum(column(sums, "energy"), _TINY)
    return tf.concat(
        [tf.math.log(ratios[..., :4] + _LEAST), square[..., None], tf.clip_by_value(ratios[..., 4:], -2.0, 2.0)], -1
    )


def _displacement(planned: Plan, before: Tensor, spent: Tensor) -> Tensor:
    """Where the rest of the energy has to be, (M, 8), in cells of the layer.

    In x, then in y, there are two numbers: on the mean over all layers to come, and in this layer. The first four are
    of all energy, of which the whole shower has the promised moments. The last four are of the energy near the axis: by
    the weights of the fit, the whole shower has neither a mean distance from the axis nor a slope to it.
    """
    here = (column(spent, "energy") - column(before, "energy"))[:, None]
    rest, mean, variance = tf.unstack(tf.gather(planned.rest, _COUNTED_BY, axis=1), axis=2)
    energy = tf.maximum(rest - here * tf.gather(planned.weights, _COUNTED_BY, axis=1), _TINY)
    promised = tf.pad(planned.moments, [[0, 0], [0, len(MOMENTS)]])
    left = tf.reshape(promised - tf.gather(spent, _MOMENTS, axis=1), [-1, 2, 2, 2])
    at, moment = (tf.reshape(part, [-1, 4]) / energy for part in tf.unstack(left, axis=2))
    slope = (moment - at * mean) / (variance + 0.5)
    cells = tf.sqrt(tf.gather(planned.weights, [1, 2, 1, 2], axis=1))  # cells of the layer in one `Geometry.cell_mm`
    of_layer = (at + slope * (planned.depth[:, None] - mean)) * cells
    numbers = tf.stack([tf.clip_by_value(at * cells, -1.0, 1.0), tf.clip_by_value(of_layer, -2.0, 2.0)], 2)
    return tf.reshape(numbers, [-1, 2 * len(MOMENTS)])
