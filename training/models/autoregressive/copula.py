"""The Gaussian copula of the totals: their means, scales and quantiles, and the correlations of their normal scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from training.models.autoregressive import totals

Array = npt.NDArray[Any]

_RIDGE = 1e-6
_LEAST_KNOWN = 50  # showers of which a total can be regressed on the labels
_SMALLEST_SPREAD = 1e-9


def copula(values: Array, labels: Array, known: Array) -> dict[str, Array]:
    """Mean and scale by least squares, quantiles of the residuals, and the correlations of their normal scores.

    Of each total (showers, D) those that are `known` count; the others have the score 0.
    """
    values, labels = values.astype(np.float64), labels.astype(np.float64)
    knots = np.linspace(-totals.QUANTILE_REACH, totals.QUANTILE_REACH, totals.QUANTILES)
    showers, number = values.shape
    more = labels.shape[1] - totals.MEAN_TERMS  # terms of labels beside energy and theta
    mean, scale = np.zeros((labels.shape[1], number)), np.zeros((totals.SCALE_TERMS + more, number))
    quantiles, scores = np.tile(knots[:, None], (1, number)), np.zeros((showers, number))
    for k in range(number):
        rows = np.flatnonzero(known[:, k])
        if len(rows) < _LEAST_KNOWN:
            mean[0, k] = values[rows, k].mean() if len(rows) else 0.0
            continue
        mean[:, k] = least_squares(labels[rows], values[rows, k])
        residual = values[rows, k] - labels[rows] @ mean[:, k]
        short = labels[rows, : totals.SCALE_TERMS]
        if more:
            short = np.hstack([short, labels[rows, totals.MEAN_TERMS :]])
        scale[:, k] = least_squares(short, np.log(np.abs(residual) + 1e-3 * residual.std() + _SMALLEST_SPREAD))
        residual /= np.exp(short @ scale[:, k])
        levels = ndtri((np.arange(len(rows)) + 0.5) / len(rows))
        order = np.argsort(residual)
        quantiles[:, k] = _rising(np.interp(knots, levels, residual[order]), knots, levels, residual[order])
        scores[rows[order], k] = levels
    spread = np.maximum(scores.std(axis=0), _SMALLEST_SPREAD)
    correlation = np.cov(scores.T, bias=True) / np.outer(spread, spread)
    np.fill_diagonal(correlation, 1.0)
    return {
        "mean": mean, "scale": scale, "quantiles": quantiles,
        "colouring": np.linalg.cholesky(correlation + _RIDGE * np.eye(number)),
    }  # fmt: skip


def _rising(inside: Array, knots: Array, levels: Array, ordered: Array) -> Array:
    """Quantiles that always rise, and continue beyond the sample in a straight line of the slope of its outer parts."""
    reach = max(len(ordered) // 50, 2)
    for side, edge in ((knots < levels[0], 0), (knots > levels[-1], -1)):
        inner = reach if edge == 0 else -1 - reach
        slope = (ordered[edge] - ordered[inner]) / (levels[edge] - levels[inner])
        inside[side] = ordered[edge] + slope * (knots[side] - levels[edge])
    return inside + np.arange(len(knots)) * 1e-6 * max(float(np.ptp(ordered)), 1e-6)


def least_squares(terms: Array, values: Array) -> Array:
    square = terms.T @ terms
    return np.linalg.solve(square + _RIDGE * np.trace(square) * np.eye(len(square)), terms.T @ values)
