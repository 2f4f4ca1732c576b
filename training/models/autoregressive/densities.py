"""The densities of single numbers: of a cell, and of how the energy of a layer is shared.

The share of the even colour comes first; it may be nothing or all. Then comes the number of cells of a colour that are
hit, at least one where the colour has energy. Then comes the score of the deposit of each of these cells.

The spectrum of the hits of a layer has edges, which a mixture of a few normals cannot follow: thin silicon seldom holds
half the deposit of a minimum ionising particle, and hits begin at a threshold. The score of an energy is the normal
quantile of the fraction of the layer's hits below it. So scores have no edges, and smooth densities of scores give a
spectrum with its edges in place. Above the score 1, a score rises with the logarithm: no edge is in that sixth of hits.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training.models.base import Tensor

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
Mixture = tuple[Tensor, Tensor, Tensor]  # log weights, means and log widths
NOTHING, ALL, BETWEEN = range(3)  # cases of the share of a colour
CASES = 3
REACH = 9.2  # the logit -REACH stands for the share 0, and REACH for 1
BETWEEN_REACH = 9.0  # the logits of all other shares are cut here
_LEAST_EXPECTED = 0.3  # expected hits beyond the first, at the least
_TINY = 1e-6
# Tables of quantiles, of totals and of hits, have SCORES normal scores from -SCORE_REACH to SCORE_REACH.
SCORES, SCORE_REACH = 129, 4.0
SCORE_STEP = 2 * SCORE_REACH / (SCORES - 1)
# The integral over a shift: its points, in units of the integrand's width; steps that look for the largest value.
_STEPS, _SHIFT_STEPS = np.linspace(-5, 5, 17, dtype=np.float32), 2
_POWERS = np.stack([_STEPS**0, _STEPS, _STEPS**2])


def mixture_of(outputs: Tensor) -> Mixture:
    weights, means, widths = tf.split(outputs, 3, -1)
    return tf.nn.log_softmax(weights), means, tf.clip_by_value(widths, -4.0, 2.0)


def log_mixture(values: Tensor, weights: Tensor, means: Tensor, widths: Tensor) -> Tensor:
    """Log density (...) of `values` (...) under mixtures (..., components)."""
    pull = (values[..., None] - means) * tf.exp(-widths)
    return tf.reduce_logsumexp(weights - widths - 0.5 * pull * pull, -1) - _HALF_LOG_2PI


class NumberDensity(keras.Model):
    """The density of a number, a mixture of distributions, and the chances of `cases`; some cases have no number."""

    def __init__(self, name: str, contexts: int, *, width: int, components: int, cases: int = 0) -> None:
        super().__init__(name=name)
        self._cases = cases
        self._first = keras.layers.Dense(2 * width, "silu", name="first")
        self._second = keras.layers.Dense(width, "silu", name="second")
        small = keras.initializers.RandomNormal(stddev=0.05 * width**-0.5)
        self._last = keras.layers.Dense(
            cases + 3 * components, kernel_initializer=small, bias_initializer=_spread(components, cases), name="last"
        )
        for layer, inputs in ((self._first, contexts), (self._second, 2 * width), (self._last, width)):
            layer.build((None, inputs))
        self.built = True

    def mixture(self, contexts: Tensor) -> Mixture:
        """Log weights, means and log widths, (M, components), of numbers with these `contexts` (M, contexts)."""
        return self.cases_and_mixture(contexts)[1]

    def cases_and_mixture(self, contexts: Tensor) -> tuple[Tensor, Mixture]:
        """The log chances (M, cases) of the cases, and what `mixture` returns."""
        outputs = tf.cast(self._last(self._second(self._first(contexts))), tf.float32)
        return tf.nn.log_softmax(outputs[:, : self._cases]), mixture_of(outputs[:, self._cases :])


class CellDensity(keras.Model):
    """p(non-zero) of a cell, and the density of the x that the score of its deposit follows from: a mixture of normals.

    The cell's input is `neighbours` numbers about itself and `contexts` numbers about its layer. The latter are
    processed once for all cells of the layer. Both densities are corrections to a prior by layer and radius.
    """

    def __init__(self, name: str, *, neighbours: int, contexts: int, width: int, depth: int, components: int) -> None:
        super().__init__(name=name)
        self.components = components
        dense = keras.layers.Dense
        self._context_in = dense(2 * width, "silu", name="context_in")
        self._context_out = dense(width, name="context_out")
        self._cell_in = dense(width, use_bias=False, name="cell_in")
        self._hidden = [dense(width, "silu", name=f"hidden_{number}") for number in range(depth)]
        small = keras.initializers.RandomNormal(stddev=0.05 * width**-0.5)
        self._occupied = dense(1, kernel_initializer=small, name="occupied")
        self._deposit = dense(
            3 * components, kernel_initializer=small, bias_initializer=_spread(components), name="deposit"
        )
        for layer, inputs in (
            (self._context_in, contexts), (self._context_out, 2 * width), (self._cell_in, neighbours),
            *((layer, width) for layer in self._hidden), (self._occupied, width), (self._deposit, width),
        ):  # fmt: skip
            layer.build((None, inputs))
        self.built = True

    def of_layers(self, contexts: Tensor) -> Tensor:
        """What the cells of a layer have in common, (layers, width), from its `contexts` (layers, contexts)."""
        return self._context_out(self._context_in(contexts))

    def hidden(self, cells: Tensor, shared: Tensor) -> Tensor:
        """The features (R, width) of `cells` (R, neighbours), where `of_layers` gave `shared` (R, width)."""
        features = tf.nn.silu(self._cell_in(cells) + shared)
        for layer in self._hidden:
            features += layer(features)
        return features

    def log_odds(self, hidden: Tensor, prior: Tensor) -> Tensor:
        """log p / (1 - p), (R,), where p is the probability that the cell is not zero."""
        return tf.cast(self._occupied(hidden), tf.float32)[:, 0] + prior

    def score(self, hidden: Tensor, prior: Tensor) -> Mixture:
        """Log weights, means and log widths, (R, components), of the x of a deposit; `prior` (R,) is the usual score.

        Where several cells share an energy, only differences of x count. The score of a hit alone is x itself.
        """
        weights, means, widths = mixture_of(tf.cast(self._deposit(hidden), tf.float32))
        return weights, means + prior[:, None], widths


def _spread(components: int, cases: int = 0) -> keras.initializers.Initializer:
    """Initial biases: `cases` and components are all equally likely; the means of the components differ."""
    means, widths = np.linspace(-1.2, 1.0, components), np.full(components, -0.5)
    return keras.initializers.Constant(np.concatenate([np.zeros(cases + components), means, widths]))


def normal_scores(values: Tensor, quantiles: Tensor) -> Tensor:
    """The normal scores (...) of `values` (...): linear between the `quantiles` (..., SCORES) of each, and beyond."""
    right = tf.searchsorted(quantiles, values[..., None], side="right")
    left = tf.clip_by_value(right - 1, 0, SCORES - 2)
    low, high = (tf.gather(quantiles, left + k, batch_dims=values.shape.rank)[..., 0] for k in (0, 1))
    place = tf.cast(left[..., 0], tf.float32) + tf.math.divide_no_nan(values - low, high - low)
    return place * SCORE_STEP - SCORE_REACH


def scores(energy: Tensor, layer: Tensor, spectra: Tensor) -> Tensor:
    """The scores (R,), at least -2 SCORE_REACH, of energies (R,) in layers (R,), by the log energies `spectra`."""
    return tf.maximum(normal_scores(tf.math.log(energy), tf.gather(spectra, layer)), -2 * SCORE_REACH)


def share_logit(even: Tensor, energy: Tensor) -> Tensor:
    """The logit (...) of the share `even` / `energy`, (...) each: REACH if the share is all, -REACH if nothing."""
    odd = energy - even
    logit = tf.math.log(tf.maximum(even, _TINY)) - tf.math.log(tf.maximum(odd, _TINY))
    logit = tf.clip_by_value(logit, -BETWEEN_REACH, BETWEEN_REACH)
    return tf.where(even <= 0, -REACH, tf.where(odd <= 0, REACH, logit))


def share_of(logit: Tensor) -> Tensor:
    """The share (...) that has this `logit` (...): the inverse of `share_logit`."""
    return tf.where(tf.abs(logit) < REACH, tf.sigmoid(logit), tf.cast(logit > 0, tf.float32))


def log_share(logit: Tensor, cases: Tensor, mixture: Mixture) -> Tensor:
    """log p (M,) of shares with these logits (M,), by log chances `cases` (M, CASES) and the `mixture` of logits."""
    between = tf.abs(logit) < REACH
    case = tf.where(between, BETWEEN, tf.where(logit > 0, ALL, NOTHING))
    return tf.gather(cases, case, batch_dims=1) + tf.where(between, log_mixture(logit, *mixture), 0.0)


def expected_logit(expected: Tensor, most: Tensor) -> Tensor:
    """About the x (M,) of `log_count`, where `expected` (M,) of `most` (M,) cells are expected to be hit."""
    beyond = tf.maximum(tf.minimum(expected, most) - 0.5, _LEAST_EXPECTED)
    return tf.math.log(beyond) - tf.math.log(tf.maximum(most - beyond, _LEAST_EXPECTED))


def log_count(count: Tensor, expected: Tensor, most: Tensor, mixture: Mixture) -> Tensor:
    """log p (M,) of `count` (M,) hits, from 1 to `most` (M,); about `expected` (M,) hits are expected.

    count - 1 = floor(most * sigmoid(x)). The density of x is a mixture of logistic distributions (Salimans et al.,
    arXiv 1701.05517, in the logit). So few hits, and hits in all cells, have chances of their own; other numbers have a
    smooth distribution. Where few of many cells are hit, x is about a logarithm.
    """
    weights, means, widths = mixture
    means, scale = means + expected_logit(expected, most)[:, None], tf.exp(-widths)
    count, left = count[:, None], tf.maximum(most - count, 0.0)[:, None]
    upper = tf.math.log(count) - tf.math.log(tf.maximum(left, 0.5))
    lower = tf.math.log(tf.maximum(count - 1, 0.5)) - tf.math.log(left + 1)
    gap = tf.math.log1p(1 / tf.maximum(left, 1.0)) - tf.math.log1p(-1 / tf.maximum(count, 2.0))  # upper - lower
    high, low = (upper - means) * scale, (lower - means) * scale
    several = (
        high + tf.math.log(-tf.math.expm1(-gap * scale)) - tf.nn.softplus(high - gap * scale) - tf.nn.softplus(high)
    )
    first, last = tf.where(left > 0, -tf.nn.softplus(-high), 0.0), -tf.nn.softplus(low)
    found = tf.where(count > 1, tf.where(left > 0, several, last), first)
    return tf.reduce_logsumexp(weights + found, 1)


def log_shared(score: Tensor, mixture: Mixture, group: Tensor, groups: Any) -> Tensor:
    """log p (groups,) of deposits that share an energy, from the `score` (R,) and the `group` (R,) of each deposit.

    A score is x - c. Each x is drawn from its `mixture` (R, components). With the shift c, the deposits of the group
    sum to its energy. So p is the integral over c of prod p(score + c), up to a factor that does not depend on the
    mixtures: prod dy/de times the sum of de/dy, for energies e and scores y. The integral is a sum over even steps
    about the largest value of the integrand. Other maxima are left out: mixtures of narrow components have them where
    the data are unlikely. Rows that do not count have a `group` of `groups` or more.
    """
    middle, width = (tf.stop_gradient(tensor) for tensor in _shift(score, mixture, group, groups))
    weights, means, widths = mixture
    place, inside = tf.minimum(group, groups - 1), (group < groups)[:, None]
    narrow = tf.exp(-widths)
    pull = ((score + tf.gather(middle, place))[:, None] - means) * narrow
    step = tf.gather(width, place)[:, None] * narrow
    # The logarithm of a component is a parabola in the step, so one product of matrices gives its values at all steps.
    parabola = tf.stack([weights - widths - 0.5 * pull * pull, -pull * step, -0.5 * step * step], -1)
    values = tf.reshape(tf.reshape(parabola, [-1, len(_POWERS)]) @ _POWERS, [-1, weights.shape[1], len(_STEPS)])
    log_p = tf.where(inside, tf.reduce_logsumexp(values, 1) - _HALF_LOG_2PI, 0.0)
    log_p = tf.math.unsorted_segment_sum(log_p, place, groups)
    return tf.reduce_logsumexp(log_p + tf.math.log(_STEPS[1] - _STEPS[0]), 1) + tf.math.log(width)


def _shift(score: Tensor, mixture: Mixture, group: Tensor, groups: Any) -> tuple[Tensor, Tensor]:
    """The shift (groups,) at about which the integrand of `log_shared` is largest, and the width (groups,) there."""
    weights, means, widths = mixture
    inside = tf.cast(group < groups, tf.float32)
    place = tf.minimum(group, groups - 1)

    def summed(values: Tensor) -> Tensor:
        return tf.math.unsorted_segment_sum(values * inside, place, groups)

    chance = tf.exp(weights)
    mean = tf.reduce_sum(chance * means, 1)
    variance = tf.reduce_sum(chance * (tf.exp(2 * widths) + tf.square(means - mean[:, None])), 1)
    total = summed(1 / variance) + _TINY
    middle = summed((mean - score) / variance) / total
    for _ in range(_SHIFT_STEPS):
        away = means - (score + tf.gather(middle, place))[:, None]
        chance = tf.nn.softmax(weights - widths - 0.5 * tf.square(away * tf.exp(-widths)), 1) * tf.exp(-2 * widths)
        total = summed(tf.reduce_sum(chance, 1)) + _TINY
        middle += summed(tf.reduce_sum(chance * away, 1)) / total
    return middle, tf.math.rsqrt(total)
