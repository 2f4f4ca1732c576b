"""Deposits of cells that are drawn independently, and that must sum to an energy.

Rows, (R, ...), are cells; `shower` (R,) says of which of N showers each is. Energies are in units of 0.02 GeV, and
`least` is the smallest deposit that a cell may have.
"""

from __future__ import annotations

import tensorflow as tf

from training.models.autoregressive.mesh import Tensor

# By which the logarithm of a draw's energy may be off where there is no hit; twice as much where there are three.
_OFF, _FEW = 0.3, 3.0
# Deposits are changed in so many steps, each in proportion to how free it is, and that at least.
_NEWTON_STEPS, _LEAST_FREE = 4, 0.1


def fitting(expected: Tensor, hits: Tensor, energy: Tensor, least: Tensor, chance: Tensor) -> Tensor:
    """Which of K draws (N,) to keep, with chances in proportion to exp(-off^2 / 2).

    `expected` (N, K) are the energies that the cells hit in each draw are expected to have, `energy` (N,) is what they
    are to have, and off the difference of the logarithms over 0.3 (1 + h / 3), where h is the mean over the draws of
    the numbers of `hits` (N, K). `chance` (N, K) are uniform numbers.

    Cells know the energy that they share only by their contexts: a layer whose energy is that of one hit would often
    have two, or none. Of many hits the number is what the contexts say, and the energies make up for it.
    """
    allowed = _OFF * (1 + tf.reduce_mean(hits, 1, keepdims=True) / _FEW)
    off = tf.math.log((expected + least) / (energy[:, None] + least)) / allowed
    # the largest number of these has those chances (Gumbel)
    return tf.argmax(-0.5 * off * off - tf.math.log(-tf.math.log(chance + 2.0**-26)), 1, tf.int32)


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
