"""The Gaussian copula of the totals: their means, scales and quantiles, and the correlations of their normal scores.

Also the spectra: the energies of hits at given normal scores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from scipy.special import ndtr, ndtri

from training.models.autoregressive import totals
from training.models.autoregressive.densities import SCORE_REACH, SCORE_STEP, SCORES
from training.models.autoregressive.frame import MEAN_TERMS, SCALE_TERMS, scale_terms
from training.models.base import Array

_RIDGE = 1e-6
_LEAST_KNOWN = 50  # the fewest showers with a total from which it is regressed on the labels
_LEAST_ABOUT = 300  # the fewest showers, by their weights in the interpolation, about an energy with quantiles
_LEAST_WEIGHT = 1e-3  # a shower of less weight does not count
_STEP = 0.5  # the least difference of the logs of two energies with quantiles
_SMALLEST_SPREAD = 1e-9
# In a layer's spectrum, _LIKE_ALL hits as in all layers count too; in that of all layers, _LIKE_NORMAL of a normal.
_LIKE_ALL, _LIKE_NORMAL = 1000, 100
# Above the score 1, logarithms rise as they do over the last _NEAR below it; but by _LEAST to _MOST standard deviations
# of all logarithms for each score: with a read-out of few steps, many hits have one energy there, or none.
_NEAR, _LEAST, _MOST = 0.25, 0.5, 2.0
_WIDTHS, _GRID = 6, 4001  # the grid of log energies: its reach in standard deviations, and its number of points


def copula(values: Array, labels: Array, known: Array, log_energies: float, budget_terms: Array) -> dict[str, Array]:
    """Mean and scale by least squares, quantiles of the residuals, and the correlations of their normal scores.

    The means of the last totals, budgets and moments, depend on `budget_terms` (showers, T) too. Of the totals `values`
    (showers, D) those that are `known` count; the others have the score 0. Quantiles are taken at several energies if
    the range of log E, `log_energies`, is wide and the showers are many.
    """
    values, labels, budget_terms = (array.astype(np.float64) for array in (values, labels, budget_terms))
    knots = np.linspace(-SCORE_REACH, SCORE_REACH, SCORES)
    showers, number = values.shape
    more = labels.shape[1] - MEAN_TERMS  # terms of labels other than energy and theta
    mean, scale = np.zeros((labels.shape[1], number)), np.zeros((SCALE_TERMS + more, number))
    of_terms = np.zeros((budget_terms.shape[1], totals.LAST))
    quantiles, scores = np.tile(knots[:, None], (totals.ENERGIES, 1, number)), np.zeros((showers, number))
    for k in range(number):
        rows = np.flatnonzero(known[:, k])
        if len(rows) < _LEAST_KNOWN:
            mean[0, k] = values[rows, k].mean() if len(rows) else 0.0
            continue
        given = values[rows, k]
        if (last := k - number + totals.LAST) >= 0:
            coefficients = least_squares(np.hstack([labels[rows], budget_terms[rows]]), given)
            of_terms[:, last] = coefficients[labels.shape[1] :]
            given = given - budget_terms[rows] @ of_terms[:, last]
        mean[:, k], scale[:, k], residual = mean_and_scale(given, labels[rows])
        quantiles[:, :, k] = _quantiles(residual, _about_energies(labels[rows, 1], log_energies), knots)
        given = (residual[:, None], labels[rows], quantiles[..., k : k + 1])
        scores[rows, k] = totals.scores(*(tf.constant(array, tf.float32) for array in given))[:, 0]
    spread = np.maximum(scores.std(axis=0), _SMALLEST_SPREAD)
    correlation = np.cov(scores.T, bias=True) / np.outer(spread, spread)
    np.fill_diagonal(correlation, 1.0)
    return {
        "mean": mean,
        "scale": scale,
        "quantiles": quantiles,
        "mean_of_budgets": of_terms,
        "colouring": np.linalg.cholesky(correlation + _RIDGE * np.eye(number)),
    }


def spectra(hits: Sequence[tuple[Array, Array]], layers: int) -> Array:
    """The log energies (layers, SCORES) at each score. `hits` of a split come in parts: their layers and log energies.

    Beside a layer's own hits some of all layers count, so a layer of few hits has a spectrum too; and a few of a normal
    distribution, so no spectrum has an end. Above the score 1 the logarithm rises as it does just below: the core is
    few hits with most of the energy, and their energies rise in proportion to the shower's.
    """
    number = sum(len(logs) for _, logs in hits)
    mean, square = (sum((logs.astype(np.float64) ** power).sum() for _, logs in hits) / number for power in (1, 2))
    width = max(np.sqrt(max(square - mean * mean, 0.0)), _SMALLEST_SPREAD)
    ends = [float(end) for _, logs in hits for end in (logs.min(), logs.max())]
    grid = np.linspace(min(*ends, mean - _WIDTHS * width), max(*ends, mean + _WIDTHS * width), _GRID)
    held = np.zeros(layers * _GRID)
    for layer, logs in hits:
        held += np.bincount(layer * _GRID + np.searchsorted(grid, logs), minlength=len(held))
    below = np.cumsum(held.reshape(layers, _GRID), axis=1)
    every = below.sum(axis=0) + _LIKE_NORMAL * ndtr((grid - mean) / width)
    share = below + _LIKE_ALL * every / every[-1]
    levels = ndtr(np.linspace(-SCORE_REACH, SCORE_REACH, SCORES))
    found = np.array([np.interp(levels, each / each[-1], grid) for each in share])
    one, near = (round(score / SCORE_STEP) for score in (SCORE_REACH + 1, _NEAR))
    slope = np.clip((found[:, one] - found[:, one - near]) / (near * SCORE_STEP), _LEAST * width, _MOST * width)
    found[:, one:] = found[:, one, None] + slope[:, None] * np.arange(SCORES - one) * SCORE_STEP
    return found


def mean_and_scale(values: Array, labels: Array) -> tuple[Array, Array, Array]:
    """Coefficients of the mean and of the log scale of `values` (N,) at `labels`; and the scaled residuals (N,)."""
    mean = least_squares(labels, values)
    residual = values - labels @ mean
    short = scale_terms(tf.constant(labels)).numpy()
    scale = least_squares(short, np.log(np.abs(residual) + 1e-3 * residual.std() + _SMALLEST_SPREAD))
    return mean, scale, residual / np.exp(short @ scale)


def _about_energies(energy: Array, log_energies: float) -> Array:
    """Weights (N, energies) of showers of scaled log `energy` (N,) in the quantiles at 9, 5 or 3 energies, or at 1."""
    for number in (totals.ENERGIES, 5, 3):
        weights = np.asarray(totals.interpolation(tf.constant(energy, tf.float32), number), np.float64)
        if (number - 1) * _STEP <= log_energies and weights.sum(axis=0).min() >= _LEAST_ABOUT:
            return weights
    return np.ones((len(energy), 1))


def _quantiles(residual: Array, weights: Array, knots: Array) -> Array:
    """Quantiles (ENERGIES, knots) of `residual` (N,) at the normal scores `knots`, by `weights` (N, energies)."""
    order = np.argsort(residual)
    quantiles = []
    for weight in weights.T:
        rows = order[weight[order] > _LEAST_WEIGHT]
        levels = ndtri((np.cumsum(weight[rows]) - weight[rows] / 2) / weight[rows].sum())
        quantiles.append(_rising(np.interp(knots, levels, residual[rows]), knots, levels, residual[rows]))
    ends = totals.interpolation(tf.linspace(-1.0, 1.0, totals.ENERGIES), len(quantiles)).numpy()
    return np.asarray(ends @ np.stack(quantiles))


def _rising(inside: Array, knots: Array, levels: Array, ordered: Array) -> Array:
    """Quantiles that always rise. Beyond the sample they go on in a straight line, with the slope of its outer part."""
    reach = max(len(ordered) // 50, 2)
    for side, edge in ((knots < levels[0], 0), (knots > levels[-1], -1)):
        inner = reach if edge == 0 else -1 - reach
        slope = (ordered[edge] - ordered[inner]) / (levels[edge] - levels[inner])
        inside[side] = ordered[edge] + slope * (knots[side] - levels[edge])
    return inside + np.arange(len(knots)) * 1e-6 * max(float(np.ptp(ordered)), 1e-6)


def least_squares(terms: Array, values: Array) -> Array:
    square = terms.T @ terms
    return np.linalg.solve(square + _RIDGE * np.trace(square) * np.eye(len(square)), terms.T @ values)
