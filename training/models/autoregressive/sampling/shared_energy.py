"""Cells that are drawn independently: how many of them are hit, and deposits that must sum to an energy.

Rows, (R, ...), are cells; `shower` (R,) says of which of N showers each is. Energies are in units of 0.02 GeV, and
`least` is the smallest deposit that a cell may have.
"""

from __future__ import annotations

import tensorflow as tf

from training.models.autoregressive.mesh import Tensor

# Deposits are changed in so many steps, each in proportion to how free it is, and that at least.
_NEWTON_STEPS, _LEAST_FREE = 4, 0.1
_RARE = 1e-9  # the least chance of a number of hits


COUNTS = 5  # of hits that are told apart: 0, 1, 2, 3, and more


def log_chances(chance: Tensor, shower: Tensor, showers: Tensor) -> Tensor:
    """Of how likely each of COUNTS is, (N, COUNTS), where cells are hit independently, each with its `chance` (R,).

    The chance of n hits is that of none times the n-th elementary symmetric polynomial of the odds, here by Newton's
    identities.
    """
    chance = tf.cast(tf.minimum(chance, 0.999), tf.float64)  # of surer cells the polynomials are lost in rounding
    odds = chance / (1 - chance)
    parts = tf.stack([tf.math.log(1 - chance), odds, odds**2, odds**3], 1)
    none, one, two, three = tf.unstack(tf.math.unsorted_segment_sum(parts, shower, showers), axis=1)
    symmetric = [tf.ones_like(one), one, (one**2 - two) / 2, (one**3 - 3 * one * two + 2 * three) / 6]
    few = tf.exp(none)[:, None] * tf.maximum(tf.stack(symmetric, 1), 0.0)
    more = 1 - tf.reduce_sum(few, 1, keepdims=True)
    return tf.cast(tf.math.log(tf.maximum(tf.concat([few, more], 1), _RARE)), tf.float32)


def kept(hits: Tensor, told: Tensor, independent: Tensor, chance: Tensor) -> Tensor:
    """Which of K draws (N,) to keep, so that the number of hits is as likely as it is `told` (N, COUNTS) to be.

    The K draws of independent cells have `hits` (N, K), numbers that are as likely as `independent` (N, COUNTS). Both
    are logs. A draw is kept with a chance in proportion to the ratio of the two; `chance` (N, K) are uniform numbers.
    Given the number, cells remain independent, and none is hit more or less often on the whole. Of a layer with the
    energy of one hit, independent draws have none in 37 %, and two or more in 26 %.
    """
    number = tf.minimum(tf.cast(hits, tf.int32), COUNTS - 1)
    # the largest of these has those chances (Gumbel)
    score = tf.gather(told - independent, number, batch_dims=1) - tf.math.log(-tf.math.log(chance + 2.0**-26))
    return tf.argmax(score, 1, tf.int32)


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
