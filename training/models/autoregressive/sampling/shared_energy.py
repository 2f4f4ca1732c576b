"""What the cells of a colour share: their part of the energy; how many of them are hit, and which; and their deposits.

Rows, (R, ...), are cells; `shower` (R,) says of which of N showers each is. Energies are in units of 0.02 GeV, and
`least` is the smallest deposit that a cell may have.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from training.models.autoregressive.densities import (
    ALL,
    BETWEEN_REACH,
    NOTHING,
    REACH,
    SCORE_REACH,
    SCORE_STEP,
    SCORES,
    Mixture,
    expected_logit,
)
from training.models.base import Tensor
from training.models.randomness import box_muller

_SUREST, _RAREST = 1 - 2.0**-24, 1e-30  # chances whose odds are neither 0 nor infinite in float32
_NEWTON_STEPS, _MOST_SHIFT = 4, 2.0  # steps for the logarithm of the factor of the odds, and the largest of them
# added to uniform numbers, multiples of 2^-24, before their logarithm is taken; and the greatest float32 below 1
_HALF_STEP, _BELOW_ONE = 2.0**-25, 1 - 2.0**-24
# Steps of Newton's method for the scores of hits that share an energy; limits, in steps of the table.
_SHIFT_STEPS, _MOST_STEP, _MOST_APART = 3, 1.5 / SCORE_STEP, 3.0 / SCORE_STEP
# Scores about their mean, and logarithms, are cut here: exponentials and their sums are not 0 or infinite in float32.
_FAR = 60.0


def draw_mixture(weights: Tensor, means: Tensor, widths: Tensor, choice: Tensor, noise: Tensor) -> Tensor:
    """One number (R,) of each mixture (R, components), by `choice` (R,) uniform and `noise` (R,) normal."""
    passed = tf.cumsum(tf.exp(weights), axis=1)[:, :-1] < choice[:, None]
    chosen = tf.reduce_sum(tf.cast(passed, tf.int32), 1, keepdims=True) == tf.range(weights.shape[1])
    return tf.reduce_sum(tf.where(chosen, means + tf.exp(widths) * noise[:, None], 0.0), 1)


def drawn_share(cases: Tensor, mixture: Mixture, numbers: Tensor) -> Tensor:
    """The logits (N,) of shares drawn by uniform `numbers` (N, 4)."""
    case, choice, one, two = tf.unstack(numbers, axis=1)
    logit = draw_mixture(*mixture, choice, box_muller(one, two)[0])
    logit = tf.clip_by_value(logit, -BETWEEN_REACH, BETWEEN_REACH)
    nothing, all_of_it = tf.exp(cases[:, NOTHING]), tf.exp(cases[:, ALL])
    return tf.where(case < nothing, -REACH, tf.where(case < nothing + all_of_it, REACH, logit))


def drawn_count(expected: Tensor, most: Tensor, mixture: Mixture, numbers: Tensor) -> Tensor:
    """Numbers of hits (N,), from 1 to `most` (N,), drawn by uniform `numbers` (N, 2 or more)."""
    weights, means, widths = mixture
    place = tf.minimum(numbers[:, 1] + _HALF_STEP, _BELOW_ONE)  # float32 may round the sum to 1
    logistic = tf.math.log(place) - tf.math.log(1 - place)  # ONNX has no log1p
    logit = draw_mixture(weights, means, widths, numbers[:, 0], logistic) + expected_logit(expected, most)
    beyond = tf.floor(most / (1 + tf.exp(tf.clip_by_value(-logit, -_FAR, _FAR))))
    return tf.minimum(1.0 + beyond, most)


def hit(chance: Tensor, shower: Tensor, number: Tensor, uniform: Tensor, start: Tensor) -> Tensor:
    """Which cells (R,) are hit: `number` (N,) of each shower, and each with its `chance` (R,).

    This is systematic sampling in a random order (Goodman and Kish 1950): the chances are laid end to end, and a cell
    is hit if it holds one of the points that are 1 apart. Where the chances of a shower do not sum to the number, one
    factor changes their odds first. `uniform` (R,) decide the order, `start` (N,) the first point; both are multiples
    of 2^-24. If fewer cells have a chance than are to be hit, all of these are hit.
    """
    chance = tf.where(chance > 0, tf.clip_by_value(chance, _RAREST, _SUREST), 0.0)
    missed, odds, factor, showers = 1 - chance, chance, 1.0, tf.size(number)
    for _ in range(_NEWTON_STEPS):
        likely = odds / (odds + missed)
        expected, variance = _sums(shower, showers, likely, likely * (1 - likely))
        factor *= tf.exp(tf.clip_by_value((number - expected) / (variance + 1e-3), -_MOST_SHIFT, _MOST_SHIFT))
        odds = chance * tf.gather(factor, shower)
    likely = tf.cast(odds / (odds + missed), tf.float64)
    (expected,) = _sums(shower, showers, likely)
    likely *= tf.gather(tf.math.divide_no_nan(tf.cast(number, tf.float64), expected), shower)
    # doubles hold shower, random number and row in one number
    rows = tf.size(shower)
    place = tf.cast(shower, tf.float64) + tf.cast(uniform, tf.float64) + tf.cast(tf.range(rows), tf.float64) * 2.0**-45
    order = tf.math.top_k(-place, rows).indices
    own = tf.gather(likely, order)
    # each shower's chances sum to a whole number, so one cumulative sum is enough for all showers
    end = tf.cumsum(own) + tf.cast(tf.gather(start, tf.gather(shower, order)), tf.float64) + 2.0**-25
    crossed = tf.cast(tf.floor(end) > tf.floor(end - own), tf.int32)
    return tf.math.unsorted_segment_sum(crossed, order, rows) > 0


def _sums(shower: Tensor, showers: Any, *columns: Tensor) -> list[Tensor]:
    """For each of `columns` (R,), its sums (N,) over the cells of each of the N `showers`."""
    rows = tf.concat([shower + number * showers for number in range(len(columns))], 0)
    return tf.split(tf.math.unsorted_segment_sum(tf.concat(columns, 0), rows, len(columns) * showers), len(columns))


def deposits(score: Tensor, is_hit: Tensor, shower: Tensor, energy: Tensor, spectrum: Tensor) -> Tensor:
    """Energies (R,) of hits with these scores (R,), in a layer with this `spectrum` (SCORES,); 0 for cells without hit.

    The scores of each of N showers are shifted together, until its hits sum to `energy` (N,); `scaled` mends the rest.
    Only differences of scores count. Training leaves their level free, and the level may become hundreds. Newton's
    method finds the shift. Its last step, at most one of the table, moves each logarithm along its own straight line.
    """
    counts, showers = tf.cast(is_hit, tf.float32), tf.size(energy)
    hits, level = _sums(shower, showers, counts, tf.where(is_hit, score, 0.0))
    score -= tf.gather(tf.math.divide_no_nan(level, hits), shower)
    score = tf.clip_by_value(score, -_FAR, _FAR) / SCORE_STEP  # in steps of the table
    wanted = tf.math.log(tf.maximum(energy, _RAREST))
    (squares,) = _sums(shower, showers, counts * tf.square(score))
    mean = wanted - tf.math.log(tf.maximum(hits, 1.0))
    below = tf.reduce_sum(tf.cast(spectrum < mean[:, None], tf.float32), 1)
    rises = spectrum[1:] - spectrum[:-1]
    of_mean = tf.gather(rises, tf.cast(tf.minimum(below, SCORES - 2.0), tf.int32))
    shift = below + tf.math.divide_no_nan(tf.maximum(mean - spectrum[-1], 0.0), of_mean)  # the place of the mean
    # for normal numbers x of mean 0, the mean of exp(rise x) is exp(rise^2 variance / 2)
    shift -= tf.minimum(of_mean * tf.math.divide_no_nan(squares, hits), _MOST_APART) / 2
    step = tf.zeros_like(shift)
    for _ in range(_SHIFT_STEPS):
        shift += step
        log_value, rise = log_energies(score + tf.gather(shift, shower), spectrum, rises)
        value = counts * tf.exp(tf.clip_by_value(log_value, -_FAR, _FAR))
        total, slope = _sums(shower, showers, value, value * rise)
        step = (wanted - tf.math.log(tf.maximum(total, _RAREST))) * tf.math.divide_no_nan(total, slope)
        step = tf.clip_by_value(step, -_MOST_STEP, _MOST_STEP)
    log_value += rise * tf.gather(tf.clip_by_value(step, -1.0, 1.0), shower)
    return counts * tf.exp(tf.clip_by_value(log_value, -_FAR, _FAR))


def log_energies(place: Tensor, spectrum: Tensor, rises: Tensor) -> tuple[Tensor, Tensor]:
    """The log energies (R,) at each `place` (R,) of a layer's `spectrum` (SCORES,), and their rise (R,) per place.

    A place is a score, counted from -SCORE_REACH in units of SCORE_STEP. `rises` (SCORES - 1,) are the differences of
    the spectrum from each place to the next. The logarithms are linear between places, and beyond the spectrum's ends.
    """
    at = tf.cast(tf.where(place > 0, tf.minimum(place, SCORES - 2.0), 0.0), tf.int32)  # 0 for NaN too
    rise = tf.gather(rises, at)
    return tf.gather(spectrum, at) + (place - tf.cast(at, tf.float32)) * rise, rise


def energies(score: Tensor, spectrum: Tensor) -> Tensor:
    """The energies (R,) with these scores (R,) in a layer with this `spectrum` (SCORES,)."""
    place = (tf.clip_by_value(score, -2 * SCORE_REACH, 3 * SCORE_REACH) + SCORE_REACH) / SCORE_STEP
    return tf.exp(tf.clip_by_value(log_energies(place, spectrum, spectrum[1:] - spectrum[:-1])[0], -_FAR, _FAR))


def scaled(value: Tensor, shower: Tensor, energy: Tensor, least: Tensor, showers: Any) -> Tensor:
    """The deposits (R,) scaled to sum to the `energy` (N,) of the N `showers`; then none is less than `least`."""
    total = tf.math.unsorted_segment_sum(value, shower, showers)
    value *= tf.gather(tf.math.divide_no_nan(energy, total), shower)
    return tf.where(value > 0, tf.maximum(value, least), 0.0)
