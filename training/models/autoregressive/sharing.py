"""How the energy of a layer is shared: between its two colours, and among the cells of a colour that are hit.

First comes the share of the colour that the axis meets, which may be nothing or all; then how many cells of a colour
are hit, one at least where it has energy; then, for each of them, its share of the colour's energy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from training.models.autoregressive.mesh import Tensor
from training.models.autoregressive.networks import Mixture, draw_mixture, log_mixture
from training.models.randomness import box_muller

NOTHING, ALL, BETWEEN = range(3)  # cases of a colour's share
CASES = 3
REACH = 9.2  # the logit that stands for nothing (-) and all (+); that of another share is cut just below it
_BETWEEN_REACH = 9.0
_LEAST_EXPECTED = 0.3  # hits beyond the first
_MOST_LOG = 12.0  # of the number of hits
_TINY = 1e-6
# How the integral over the shift of a group's logarithms is taken: steps in units of its width.
_STEPS, _SHIFT_STEPS = np.linspace(-5, 5, 17, dtype=np.float32), 2
# added to uniform numbers, multiples of 2^-24, whose logarithms are taken; and the greatest below 1
_HALF_STEP, _BELOW_ONE = 2.0**-25, 1 - 2.0**-24


def share_logit(even: Tensor, energy: Tensor) -> Tensor:
    """The logit (...) of the share that `even` (...) is of `energy` (...): REACH or -REACH for all or nothing."""
    odd = energy - even
    logit = tf.math.log(tf.maximum(even, _TINY)) - tf.math.log(tf.maximum(odd, _TINY))
    logit = tf.clip_by_value(logit, -_BETWEEN_REACH, _BETWEEN_REACH)
    return tf.where(even <= 0, -REACH, tf.where(odd <= 0, REACH, logit))


def share_of(logit: Tensor) -> Tensor:
    """The share (...) that has this `logit` (...): the inverse of `share_logit`."""
    return tf.where(tf.abs(logit) < REACH, tf.sigmoid(logit), tf.cast(logit > 0, tf.float32))


def log_share(logit: Tensor, cases: Tensor, mixture: Mixture) -> Tensor:
    """log p (M,) of shares with these logits (M,): a case of `cases` (M, CASES) each, and a density in between."""
    between = tf.abs(logit) < REACH
    case = tf.where(between, BETWEEN, tf.where(logit > 0, ALL, NOTHING))
    return tf.gather(cases, case, batch_dims=1) + tf.where(between, log_mixture(logit, *mixture), 0.0)


def drawn_share(cases: Tensor, mixture: Mixture, numbers: Tensor) -> Tensor:
    """The logits (N,) of shares drawn by uniform `numbers` (N, 4)."""
    case, choice, one, two = tf.unstack(numbers, axis=1)
    logit = draw_mixture(*mixture, choice, box_muller(one, two)[0])
    logit = tf.clip_by_value(logit, -_BETWEEN_REACH, _BETWEEN_REACH)
    nothing, all_of_it = tf.exp(cases[:, NOTHING]), tf.exp(cases[:, ALL])
    return tf.where(case < nothing, -REACH, tf.where(case < nothing + all_of_it, REACH, logit))


def _log_expected(expected: Tensor) -> Tensor:
    """About where (M,) the logarithm of the hits beyond the first is, of which one and all are `expected` (M,)."""
    return tf.math.log(tf.maximum(expected - 0.5, _LEAST_EXPECTED))


def log_count(count: Tensor, expected: Tensor, mixture: Mixture) -> Tensor:
    """log p (M,) of `count` (M,) hits, 1 or more, where about so many are `expected` (M,).

    count - 1 = floor(exp(x)), and the density of x is a mixture of logistic ones, so that small numbers have chances
    of their own and large ones a smooth distribution (Salimans et al., arXiv 1701.05517, in the logarithm).
    """
    weights, means, widths = mixture
    means, scale = means + _log_expected(expected)[:, None], tf.exp(-widths)
    upper = tf.math.log(count)[:, None]
    gap = -tf.math.log1p(-1 / tf.maximum(count, 2.0))[:, None]  # log(count) - log(count - 1)
    high, low = (upper - means) * scale, (upper - gap - means) * scale
    several = high + tf.math.log(-tf.math.expm1(-gap * scale)) - tf.nn.softplus(low) - tf.nn.softplus(high)
    return tf.reduce_logsumexp(weights + tf.where(count[:, None] > 1, several, -tf.nn.softplus(-high)), 1)


def drawn_count(expected: Tensor, mixture: Mixture, numbers: Tensor) -> Tensor:
    """Numbers of hits (N,), 1 or more, drawn by uniform `numbers` (N, 2 or more)."""
    weights, means, widths = mixture
    place = tf.minimum(numbers[:, 1] + _HALF_STEP, _BELOW_ONE)  # to which float32 would round
    logistic = tf.math.log(place) - tf.math.log(1 - place)  # ONNX has no log1p
    beyond = draw_mixture(weights, means, widths, numbers[:, 0], logistic) + _log_expected(expected)
    return 1.0 + tf.floor(tf.exp(tf.minimum(beyond, _MOST_LOG)))


def log_shares(log_value: Tensor, mixture: Mixture, group: Tensor, groups: Any) -> Tensor:
    """log p (groups,) of the shares of an energy that are in proportion to exp(`log_value`) (R,), of one group each.

    Shares are exp(x) over their sum, each x drawn from its `mixture` (R, components). So log p is the integral over
    the shift c of all x of a group: the sum of exp(log p(log_value + c)), up to a constant of the shares. It is a sum
    over even steps about where the integrand is largest; other maxima of it, which mixtures of narrow components have
    where the data are unlikely, are left out. `group` (R,) is `groups` or more for rows that do not count.
    """
    middle, width = (tf.stop_gradient(tensor) for tensor in _shift(log_value, mixture, group, groups))
    shift = middle[:, None] + width[:, None] * tf.constant(_STEPS)
    weights, means, widths = (part[:, None] for part in mixture)
    at = log_value[:, None] + tf.gather(shift, tf.minimum(group, groups - 1))
    log_p = log_mixture(at, weights, means, widths)
    inside = (group < groups)[:, None]
    log_p = tf.math.unsorted_segment_sum(tf.where(inside, log_p, 0.0), tf.minimum(group, groups - 1), groups)
    return tf.reduce_logsumexp(log_p + tf.math.log(_STEPS[1] - _STEPS[0]), 1) + tf.math.log(width)


def _shift(log_value: Tensor, mixture: Mixture, group: Tensor, groups: Any) -> tuple[Tensor, Tensor]:
    """About where (groups,), and over which width (groups,), the integrand of `log_shares` is largest."""
    weights, means, widths = mixture
    inside = tf.cast(group < groups, tf.float32)
    place = tf.minimum(group, groups - 1)

    def summed(values: Tensor) -> Tensor:
        return tf.math.unsorted_segment_sum(values * inside, place, groups)

    chance = tf.exp(weights)
    mean = tf.reduce_sum(chance * means, 1)
    variance = tf.reduce_sum(chance * (tf.exp(2 * widths) + tf.square(means - mean[:, None])), 1)
    total = summed(1 / variance) + _TINY
    middle = summed((mean - log_value) / variance) / total
    for _ in range(_SHIFT_STEPS):
        away = means - (log_value + tf.gather(middle, place))[:, None]
        chance = tf.nn.softmax(weights - widths - 0.5 * tf.square(away * tf.exp(-widths)), 1) * tf.exp(-2 * widths)
        total = summed(tf.reduce_sum(chance, 1)) + _TINY
        middle += summed(tf.reduce_sum(chance * away, 1)) / total
    return middle, tf.math.rsqrt(total)
