"""Which cells a training step looks at: some hits and some empty cells, with weights that keep the likelihood right.

A shower has a thousand hits and sixty thousand empty cells, nearly all of them far from its axis and certain to be
empty. Hits are drawn evenly, empty cells the more often the more likely they are to be hit.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from calopipe.showers.cells import Geometry
from training.models.autoregressive import cells
from training.models.autoregressive.frame import Constants, Hits, Tensor, colour, middle
from training.models.base import Batch
from training.models.randomness import Draws


def planes(hits: Hits, constants: Constants, geometry: Geometry) -> Tensor:
    """The showers (N * (layers + 2) * (nx + 4) * (ny + 4),), scaled, with a margin of empty cells and layers."""
    nx, ny, layers = geometry.shape
    showers = tf.shape(hits.value)[0]
    shower = tf.zeros_like(hits.x) + tf.range(showers)[:, None]
    place = tf.reshape(tf.stack([shower, hits.x, hits.y, hits.layer], -1), [-1, 4])
    # hits of no energy, at the end of a shower, add nothing to a cell
    values = tf.reshape(cells.scaled(hits.value, constants), [-1])
    size = showers * (layers + 2) * (nx + 2 * cells.MARGIN) * (ny + 2 * cells.MARGIN)
    return tf.math.unsorted_segment_sum(values, _own(place, geometry), size)


def known(view: Batch, place: Tensor, geometry: Geometry, *, odd: bool) -> tuple[Tensor, Tensor]:
    """What is known of cells `place` (R, 4), which are shower, x, y, layer; and their radii (R,).

    `view` holds the `planes` and where the `axis` (N, layers, 2) meets the layers.
    """
    nx, ny, layers = geometry.shape
    row, plane = ny + 2 * cells.MARGIN, (nx + 2 * cells.MARGIN) * (ny + 2 * cells.MARGIN)
    around = tf.constant([x * row + y for x, y in cells.AROUND])
    at = _own(place, geometry)[:, None] + tf.concat([around - plane, around - 2 * plane, *([around] if odd else [])], 0)
    neighbours = tf.gather(view["planes"], at)
    if odd:
        before = [True] * (2 * len(cells.AROUND))
        neighbours *= tf.cast(tf.constant(before + cells.OTHER_COLOUR), tf.float32)
    axis = tf.gather(tf.reshape(view["axis"], [-1, 2]), place[:, 0] * layers + place[:, 3])
    dx, dy = (tf.cast(place[:, 1 + k], tf.float32) - middle(geometry.shape[k]) - axis[:, k] for k in (0, 1))
    slope = tf.gather((view["axis"][:, -1, 1] - view["axis"][:, 0, 1]) / max(layers - 1, 1), place[:, 0])
    return tf.concat([neighbours, cells.place(dx, dy, slope)], 1), tf.sqrt(dx * dx + dy * dy)


def _own(place: Tensor, geometry: Geometry) -> Tensor:
    """Where cells `place` (R, 4) are in the planes."""
    nx, ny, layers = geometry.shape
    row, column = ny + 2 * cells.MARGIN, nx + 2 * cells.MARGIN
    shower, x, y, layer = tf.unstack(place, axis=1)
    return ((shower * (layers + 2) + layer + 2) * column + x + cells.MARGIN) * row + y + cells.MARGIN


def some_hits(view: Batch, parity: int, number: int, draws: Draws) -> tuple[Tensor, Tensor, Tensor]:
    """`number` hits of the colour `parity`, at even distances in the list of all showers' hits.

    `view` holds the hits' `place` (N, K, 3) and `value` (N, K). Gives places (number, 4), log energies (number,), and
    how many hits each represents.
    """
    place, value = tf.reshape(view["place"], [-1, 3]), tf.reshape(view["value"], [-1])
    of_colour = (value > 0) & (colour(place[:, 0], place[:, 1]) == parity)
    counted = tf.cumsum(tf.cast(of_colour, tf.int32))
    step = tf.cast(counted[-1], tf.float32) / tf.cast(number, tf.float32)
    targets = (tf.cast(tf.range(number), tf.float32) + draws.uniform("hits", [])) * step
    wanted = tf.minimum(tf.cast(targets, tf.int32) + 1, counted[-1])
    chosen = tf.minimum(
        tf.searchsorted(counted, wanted), tf.size(counted) - 1
    )  # the first at which so many are counted
    shower = chosen // tf.shape(view["value"])[1]
    log_energy = tf.math.log(tf.maximum(tf.gather(value, chosen), 1e-12))
    return tf.concat([shower[:, None], tf.gather(place, chosen)], 1), log_energy, step


def some_empty(
    view: Batch, parity: int, number: Any, draws: Draws, *, constants: Constants, geometry: Geometry
) -> tuple[Tensor, Tensor]:
    """`number` cells of the colour `parity`, by the proposal, and how many empty cells each represents.

    The proposal is of pairs of neighbours along y, one of each colour, about the axis; random numbers, one in each of
    `number` equal intervals, choose among its pairs. The showers have the intervals in turn, and which one begins is
    random. Cells that are hit or outside of the calorimeter represent none.
    Gives places (number, 4) and weights (number,).
    """
    nx, ny, layers = geometry.shape
    showers = tf.shape(view["axis"])[0]
    first = tf.cast(draws.uniform("first", []) * tf.cast(showers, tf.float32), tf.int32)
    shower = (tf.range(number) + first) % showers
    cumulative = constants["proposal"]  # (layers * pairs,), rising to 1, float64
    even = tf.cast(tf.range(number), tf.float64) + tf.cast(draws.uniform("empty", [number]), tf.float64)
    drawn = tf.searchsorted(cumulative, even / tf.cast(number, tf.float64), side="right")
    drawn = tf.minimum(drawn, cumulative.shape[0] - 1)
    below = tf.where(drawn > 0, tf.gather(cumulative, tf.maximum(drawn - 1, 0)), 0.0)
    share = tf.cast(tf.gather(cumulative, drawn) - below, tf.float32)
    pairs_a_layer, pairs_a_row = cumulative.shape[0] // layers, ny // 2 + 1
    layer, pair = drawn // pairs_a_layer, drawn % pairs_a_layer
    axis = tf.gather(tf.reshape(view["axis"], [-1, 2]), shower * layers + layer)
    around = tf.cast(tf.round(axis), tf.int32)
    x = around[:, 0] + pair // pairs_a_row - nx // 2 + int(middle(nx))
    y = around[:, 1] + 2 * (pair % pairs_a_row) - ny // 2 + int(middle(ny))
    y = tf.where(colour(x, y) == parity, y, y + 1)
    inside = (x >= 0) & (x < nx) & (y >= 0) & (y < ny)
    x, y = tf.clip_by_value(x, 0, nx - 1), tf.clip_by_value(y, 0, ny - 1)
    place = tf.stack([shower, x, y, layer], 1)
    empty = inside & (tf.gather(view["planes"], _own(place, geometry)) == 0)
    weight = tf.cast(showers, tf.float32) / (tf.cast(number, tf.float32) * share)
    return place, tf.where(empty, weight, 0.0)
