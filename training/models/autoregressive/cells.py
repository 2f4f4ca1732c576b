"""The inputs of a cell's density from its place and its neighbours; and which cells a training step looks at.

A shower has a thousand hits and sixty thousand empty cells. A step looks at some of them, with weights that keep the
likelihood right: at all hits of some layers, which are drawn evenly, and at empty cells, more where hits are likely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from training.models.autoregressive.frame import Constants, Hits, column
from training.models.autoregressive.mesh import AROUND, COLOURS, Mesh, colour
from training.models.base import Batch, Tensor
from training.models.randomness import Draws

PLACE, SHARES_BEFORE = 16, 2  # numbers of inputs; in rings, PLACE and all ..._INPUTS have `Mesh.index_numbers` more
EVEN_INPUTS = 2 * len(AROUND) + SHARES_BEFORE + PLACE
ODD_INPUTS = EVEN_INPUTS + len(AROUND)
_OF_COLOURS = 4
_NEAR = [AROUND.index((first, second)) for first in (-1, 0, 1) for second in (-1, 0, 1)]
MET_INPUTS = _OF_COLOURS + 2 * len(_NEAR) + SHARES_BEFORE + PLACE
_MIDDLE = AROUND.index((0, 0))
# (25, 2): which of the cells around a cell have its colour, and which is the cell itself
_OF_COLOUR = np.array([[(x + y) % COLOURS == 0, x == y == 0] for x, y in AROUND], np.float32)
_FALLS = np.array([-1.5, -1 / 1.5, -1 / 5], np.float32)  # how chances fall with the radius
_SURE, _NONE = 3e-3, 1e-3  # added to both sides of a ratio: this part of the energy, and of a usual deposit

# Priors are interpolated between radii, in cells, in equal steps of log(1 + r / 0.5). The steps are fine near the axis,
# where coarse steps would appear in the showers as rings.
_FINEST = 0.5
_STEP = 0.15


def knot(radius: Any) -> Any:
    """The place of a `radius`, in cells, among these radii."""
    return np.log1p(radius / _FINEST) / _STEP


def radius_knots(reach: float) -> int:
    """How many radii cover `reach` cells."""
    return int(np.ceil(knot(reach))) + 2


def prior_tables(constants: Constants) -> Tensor:
    """What `priors` reads, (layers, knots, 4): both priors at each knot, and their rise to the next knot."""
    both = tf.stack([constants["odds"], constants["score"]], 2)
    return tf.concat([both, tf.roll(both, -1, 1) - both], 2)


def priors(tables: Tensor, layer: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """The usual log odds to be hit, and a usual deposit's score, (R,) each, at `layer` (R,) or () and `radius` (R,)."""
    layers, knots, columns = tables.shape
    place = tf.minimum(tf.math.log(1.0 + radius / _FINEST) / _STEP, knots - 1.001)  # as `knot`, in the graph
    left = tf.floor(place)
    found = tf.gather(tf.reshape(tables, [layers * knots, columns]), layer * knots + tf.cast(left, tf.int32))
    odds, score, odds_step, score_step = tf.unstack(found, axis=1)
    return odds + (place - left) * odds_step, score + (place - left) * score_step


def scaled(energy: Tensor, constants: Constants) -> Tensor:
    """Energies as the networks see them: 0 for none, 0.7 for a usual deposit, 4 to 6 for the largest."""
    return tf.math.log(1.0 + energy / constants["deposit"])


def of_met(known: Tensor) -> Tensor:
    """Inputs (M, MET_INPUTS) of the share of the even cells, from what is `known` (M, EVEN_INPUTS) of the cell met.

    For each of the two layers before, the inputs are: the logit of the energy's share in cells of the met cell's
    colour, the logit of the share in the cell at its place, and the shares in the nine nearest cells. The nine show a
    core one cell beside the axis, which stays there, in a cell of the other colour.
    """
    energy = tf.reshape(tf.exp(known[:, : 2 * len(AROUND)]) - 1.0, [-1, 2, len(AROUND)])
    total = tf.reduce_sum(energy, 2, keepdims=True)
    part, least = energy @ _OF_COLOUR, _SURE * total + _NONE
    shares = tf.math.log(part + least) - tf.math.log(total - part + least)
    near = tf.math.divide_no_nan(tf.gather(energy, _NEAR, axis=2), total)
    shares, near = (tf.reshape(numbers, [-1, 2 * numbers.shape[2]]) for numbers in (shares, near))
    return tf.concat([shares, near, known[:, 2 * len(AROUND) :]], 1)


def place_inputs(dx: Tensor, dy: Tensor, r: Tensor, slope: Tensor, log_area: Tensor) -> Tensor:
    """A cell's place as inputs of its density, (R, PLACE). `dx`, `dy` and `r` are distances from the axis, in cells.

    `slope` is that of the axis along y, in cells a layer: a shower looks different ahead of a tilted axis and behind
    it. `log_area` is the log of the cell's area over the mean area. All arguments are (R, 1).
    """
    away = tf.concat([dx, dy], 1)
    numbers = [
        tf.clip_by_value(away, -2.0, 2.0), tf.clip_by_value(away, -0.8, 0.8), tf.exp(r * _FALLS), tf.math.log(r + 0.3),
        tf.minimum(r / 8.0, 8.0), tf.minimum(r, 3.0) - 1.5, (dx * dx - dy * dy) / (r * r + 1.0),
        tf.minimum(tf.abs(away) / 8.0, 8.0), slope * tf.clip_by_value(dy, -1.0, 1.0),
        slope * tf.clip_by_value(dy, -6.0, 6.0), log_area,
    ]  # fmt: skip
    return tf.concat(numbers, 1)


def known(
    images: Sequence[tuple[Tensor, Tensor]], layer: Tensor, place: Tensor, constants: Constants, *,
    energy: Tensor, axis: Tensor, slope: Tensor, odd: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Inputs (R, ..._INPUTS) of the density of the cells `place` (R,) of `layer` (R,) or (); and their radii (R,).

    `images` hold the layer before, the layer before that and, for odd cells, their own layer; each image has k of these
    layers. An image is scaled energies, flat, with an empty cell after each layer, and the indices (R, k) at which the
    layers of each cell's shower begin. `energy` (R, 2) is the energy of the two layers before, in units of 0.02 GeV.
    The `axis` meets the cells' layer at (R, 2), and has the `slope` (R, 1).
    """
    mesh, number = constants.mesh, len(AROUND)
    told, widths = [], [number * first.shape[1] for _, first in images]
    tables = np.split(mesh.told[odd], np.cumsum(widths)[:-1], -1)
    for (image, first), table in zip(images, tables, strict=True):
        around = tf.reshape(mesh.of_kind(table, layer, place), [-1, first.shape[1], number])
        around = tf.reshape(around + first[:, :, None], [-1])
        told.append(tf.reshape(_gathered(image, around), [-1, table.shape[-1]]))
    # Of each of the two layers before, the share of its energy in its cell at the same place. Shares show at any energy
    # that a core stays in its cell, also in the first layers, where deposits are small.
    behind = tf.gather(told[0], [_MIDDLE, number + _MIDDLE], axis=1)
    shares = tf.math.divide_no_nan((tf.exp(behind) - 1.0) * constants["deposit"], energy)
    middle, ring, log_area = tf.split(mesh.of(mesh.where, layer, place), [2, 1, 1], 1)
    dx, dy = tf.split(middle - axis, 2, 1)
    dx, dy, r = mesh.seen(dx, dy, ring, tf.expand_dims(layer, -1))
    where = place_inputs(dx, dy, r, slope, log_area)
    return tf.concat([*told, shares, where, *mesh.index_inputs(place)], 1), r[:, 0]


def _gathered(image: Tensor, at: Tensor) -> Tensor:
    """The numbers (R,) of `image` (cells,) at the places `at` (R,)."""
    if at.shape.is_fully_defined():  # in training, a million numbers: XLA takes a fifth of TensorFlow's time on a core
        return tf.function(tf.gather, jit_compile=True, autograph=False)(image, at)
    return tf.gather(image, at)


def planes(hits: Hits, constants: Constants) -> Tensor:
    """The showers, scaled, (N * (layers + 1) * (places + 1),): each begins with an empty layer; each layer ends with an
    empty cell.
    """
    mesh, showers = constants.mesh, tf.shape(hits.value)[0]
    shower = tf.zeros_like(hits.x) + tf.range(showers)[:, None]
    place = tf.reshape(tf.stack([shower, hits.x, hits.y, hits.layer], -1), [-1, 4])
    # hits without energy, which pad the lists, add nothing to a cell
    values = tf.reshape(scaled(hits.value, constants), [-1])
    size = showers * (mesh.layers + 1) * (mesh.places + 1)
    return tf.math.unsorted_segment_sum(values, _own(place, mesh), size)


def known_in(view: Batch, place: Tensor, constants: Constants, *, odd: bool) -> tuple[Tensor, Tensor]:
    """What is `known` of the cells `place` (R, 4), shower, x, y and layer, in a training step."""
    mesh = constants.mesh
    shower, x, y, layer = tf.unstack(place, axis=1)
    # for the second layer, the first one stands for both layers before: then a core looks as it does to later layers
    seen = tf.stack([layer - 1, tf.maximum(layer - 2, tf.minimum(layer - 1, 0)), layer], 1)
    first = (shower[:, None] * (mesh.layers + 1) + seen + 1) * (mesh.places + 1)
    images = [(view["planes"], first if odd else first[:, :2])]
    of_layers = tf.reshape(tf.reduce_sum(column(view["sums"], "energy"), -1), [-1])
    energy = tf.gather(of_layers, shower[:, None] * mesh.layers + tf.maximum(seen[:, :2], 0))
    axis = tf.gather(tf.reshape(view["axis"], [-1, 2]), shower * mesh.layers + layer)
    slope = tf.gather(view["slope"], shower)[:, None]
    return known(images, layer, mesh.place(x, y), constants, energy=energy, axis=axis, slope=slope, odd=odd)


def met(view: Batch, mesh: Mesh) -> Tensor:
    """The cells (N * layers, 4), shower, x, y and layer, that the axes meet, or the nearest cells of the layers."""
    axis = tf.reshape(view["axis"], [-1, 2])
    shower, layer = (tf.range(tf.shape(axis)[0]) // mesh.layers, tf.range(tf.shape(axis)[0]) % mesh.layers)
    x, y = mesh.indices(mesh.clipped(mesh.met(axis, layer), layer))
    return tf.stack([shower, x, y, layer], 1)


def _own(place: Tensor, mesh: Mesh) -> Tensor:
    """The indices (R,) of the cells `place` (R, 4) in the planes."""
    shower, x, y, layer = tf.unstack(place, axis=1)
    return (shower * (mesh.layers + 1) + layer + 1) * (mesh.places + 1) + mesh.place(x, y)


def some_hits(view: Batch, parity: int, number: int, draws: Draws) -> tuple[Tensor, Tensor, Tensor]:
    """At most `number` hits of the colour `parity`: all hits of some layers of some showers, which are chosen evenly.

    Layers are taken while their hits fit. So the chance of a layer with more hits is less, by the excess / `number`.
    Returns places (number, 4), energies (number,), and how many hits each row represents, 0 for unused rows at the end.
    """
    place, value = tf.reshape(view["place"], [-1, 3]), tf.reshape(view["value"], [-1])
    of_colour = (value > 0) & (tf.reshape(view["colour"], [-1]) == parity)
    hits, layers = tf.shape(view["value"])[1], view["sums"].shape[1]
    held = tf.cast(tf.reshape(column(view["sums"], "cells")[..., parity], [-1]), tf.int32)  # (N * layers,)
    order = tf.argsort(draws.uniform("hits", tf.shape(held)))
    fits = tf.cast(tf.cumsum(tf.gather(held, order)) <= number, tf.int32)
    taken = tf.scatter_nd(order[:, None], fits, tf.shape(held)) > 0
    layer = tf.range(tf.size(value)) // hits * layers + place[:, 2]
    counted = tf.cumsum(tf.cast(of_colour & tf.gather(taken, layer), tf.int32))
    chosen = tf.minimum(tf.searchsorted(counted, tf.range(1, number + 1)), tf.size(counted) - 1)
    energy = tf.maximum(tf.gather(value, chosen), 1e-12)
    represents = tf.math.divide_no_nan(*(tf.cast(count, tf.float32) for count in (tf.reduce_sum(held), counted[-1])))
    weight = tf.where(tf.range(number) < counted[-1], represents, 0.0)
    return tf.concat([(chosen // hits)[:, None], tf.gather(place, chosen)], 1), energy, weight


def some_empty(view: Batch, parity: int, number: Any, draws: Draws, constants: Constants) -> tuple[Tensor, Tensor]:
    """`number` cells of the colour `parity`, by the proposal, and how many empty cells each represents.

    The proposal is a distribution over pairs of neighbours along y (or in radius), one of each colour, about the axis.
    Random numbers, one in each of `number` equal intervals, choose among the pairs. The showers have the intervals in
    turn; the first shower is random. Cells that are hit, or outside of the calorimeter, represent none.
    Returns places (number, 4) and weights (number,).
    """
    mesh = constants.mesh
    layers, (n, m) = mesh.layers, mesh.shape
    showers = tf.shape(view["axis"])[0]
    first = tf.cast(draws.uniform("first", []) * tf.cast(showers, tf.float32), tf.int32)
    shower = (tf.range(number) + first) % showers
    cumulative = constants["proposal"]  # (layers * pairs,), rising to 1, float64
    even = tf.cast(tf.range(number), tf.float64) + tf.cast(draws.uniform("empty", [number]), tf.float64)
    drawn = tf.searchsorted(cumulative, even / tf.cast(number, tf.float64), side="right")
    drawn = tf.minimum(drawn, cumulative.shape[0] - 1)
    below = tf.where(drawn > 0, tf.gather(cumulative, tf.maximum(drawn - 1, 0)), 0.0)
    share = tf.cast(tf.gather(cumulative, drawn) - below, tf.float32)
    pairs_a_layer, pairs_a_row = cumulative.shape[0] // layers, mesh.pairs_a_row
    layer, pair = drawn // pairs_a_layer, drawn % pairs_a_layer
    axis = tf.gather(tf.reshape(view["axis"], [-1, 2]), shower * layers + layer)
    met = mesh.met(axis, layer)
    x = met[:, 0] + pair // pairs_a_row + mesh.start[0]
    y = met[:, 1] + 2 * (pair % pairs_a_row) + mesh.start[1]
    y = tf.where(colour(x, y, met) == parity, y, y + 1)
    inside = (x >= 0) & (x < n) & (y >= 0) & (y < m)
    x, y = tf.clip_by_value(x, 0, n - 1), tf.clip_by_value(y, 0, m - 1)
    place = tf.stack([shower, x, y, layer], 1)
    empty = inside & mesh.of(mesh.exists, layer, mesh.place(x, y)) & (tf.gather(view["planes"], _own(place, mesh)) == 0)
    weight = tf.cast(showers, tf.float32) / (tf.cast(number, tf.float32) * share)
    return place, tf.where(empty, weight, 0.0)
