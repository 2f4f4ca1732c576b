"""Cells that share an energy: which of them are hit, and deposits that must sum to it.

Rows, (R, ...), are cells; `shower` (R,) says of which of N showers each is. Energies are in units of 0.02 GeV, and
`least` is the smallest deposit that a cell may have.
"""

from __future__ import annotations

import tensorflow as tf

from training.models.autoregressive.mesh import Tensor

# Deposits are changed in so many steps, each in proportion to how free it is, and that at least.
_NEWTON_STEPS, _LEAST_FREE = 4, 0.1
_SUREST, _RAREST = 1 - 2.0**-24, 1e-30  # chances whose odds are neither 0 nor infinite in float32
_SHIFT_STEPS, _MOST_SHIFT = 4, 2.0  # of the log odds of a shower's cells


def hit(chance: Tensor, shower: Tensor, number: Tensor, uniform: Tensor, start: Tensor) -> Tensor:
    """Which cells (R,) are hit, `number` (N,) of each shower and each with its `chance` (R,).

    Systematic sampling in a random order (Goodman and Kish 1950): the chances are laid end to end, and the cells hit in
    which the points lie that are 1 apart. Chances that do not sum to the number are changed by one factor of the odds
    first. `uniform` (R,) decide the order, `start` (N,) the first point; multiples of 2^-24. Where more are to be hit
    than have a chance, all these are.
    """
    chance = tf.where(chance > 0, tf.clip_by_value(chance, _RAREST, _SUREST), 0.0)
    missed, factor = 1 - chance, tf.ones_like(number)
    for _ in range(_SHIFT_STEPS):
        likely = _with_odds(chance * tf.gather(factor, shower), missed)
        got, give = _sums(shower, number, likely, likely * (1 - likely))
        factor *= tf.exp(tf.clip_by_value((number - got) / (give + 1e-3), -_MOST_SHIFT, _MOST_SHIFT))
    likely = tf.cast(_with_odds(chance * tf.gather(factor, shower), missed), tf.float64)
    (got,) = _sums(shower, number, likely)
    likely *= tf.gather(tf.math.divide_no_nan(tf.cast(number, tf.float64), got), shower)
    # doubles hold shower, random number and row in one number
    rows = tf.cast(tf.range(tf.size(shower)), tf.float64)
    order = tf.argsort(tf.cast(shower, tf.float64) + tf.cast(uniform, tf.float64) + rows * 2.0**-45)
    own = tf.gather(likely, order)
    # each shower's sum is a whole number, so that one sum serves all
    end = tf.cumsum(own) + tf.cast(tf.gather(start + 2.0**-25, tf.gather(shower, order)), tf.float64)
    crossed = tf.cast(tf.floor(end) > tf.floor(end - own), tf.int32)
    return tf.scatter_nd(order[:, None], crossed, tf.shape(order)) > 0


def _with_odds(hit: Tensor, missed: Tensor) -> Tensor:
    """The chance (R,) whose odds are `hit` to `missed`, (R,) each."""
    return hit / (hit + missed)


def _sums(shower: Tensor, like: Tensor, *columns: Tensor) -> list[Tensor]:
    """Of each of `columns` (R,) the sums (N,) of the showers; `like` has N."""
    return [tf.math.unsorted_segment_sum(each, shower, tf.size(like)) for each in columns]


def stretched(value: Tensor, mean: Tensor, shower: Tensor, energy: Tensor, least: Tensor) -> Tensor:
    """The deposits `value` (R,) changed so that they sum to about `energy` (N,); `mean` (R,) is what each is expected
    to be.

    One that is above its mean changes less, in proportion: where a cell far from the axis has got much, the many about
    the axis have less. If all were scaled alike, such deposits would be too small.
    """
    free, showers = tf.clip_by_value(tf.math.divide_no_nan(mean, value), _LEAST_FREE, 1.0), tf.shape(energy)[0]
    for _ in range(_NEWTON_STEPS):
        got, give = (tf.math.unsorted_segment_sum(each, shower, showers) for each in (value, value * free))
        step = tf.math.log((energy + least) / (got + least)) * tf.math.divide_no_nan(got, give)
        value *= tf.exp(free * tf.gather(tf.clip_by_value(step, -3.0, 3.0), shower))
    return value


def scaled(value: Tensor, shower: Tensor, energy: Tensor, least: Tensor) -> Tensor:
    """The deposits (R,) scaled to sum to `energy` (N,), and none of less than `least`."""
    got = tf.math.unsorted_segment_sum(value, shower, tf.shape(energy)[0])
    value *= tf.gather(tf.math.divide_no_nan(energy, got), shower)
    return tf.where(value > 0, tf.maximum(value, least), 0.0)
