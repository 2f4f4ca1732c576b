"""A challenger against an incumbent: which of two candidates is nearer to the same Monte Carlo, with an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from calopipe.showers.cells import Array
from calopipe.verdict import ALIKE, BETTER, WORSE
from validation.judge.answers import LEVEL, Measurement
from validation.statistics.estimates import Estimate

_ROUNDING = 1e-12  # in units of the tolerance
_Distance = tuple[float, Array]  # the square of a distance, and the noise of this square around zero, (resamples,)


def _distance(measurement: Measurement) -> _Distance | None:
    """The squared distance from Monte Carlo by one criterion: 0 at the target, 1 at the tolerance.

    It is the mean over the finite estimates; None if there are none.
    """
    parts = [
        (_of_separation if estimate.null else _of_difference)(
            measurement.excess(estimate.value), estimate.standard_error / measurement.tolerance, scatter
        )
        for estimate in measurement.estimates
        if (scatter := _scatter(estimate, measurement)) is not None
    ]
    return _mean(parts) if parts else None


def _mean(parts: Sequence[_Distance]) -> _Distance:
    values, scatters = zip(*parts, strict=True)
    return float(np.mean(values)), np.mean(scatters, axis=0)


def _scatter(estimate: Estimate, measurement: Measurement) -> Array | None:
    """The bootstrap's values less their mean, positive away from the target, in units of the tolerance."""
    if (
        estimate.replicates is None
        or not np.isfinite([estimate.value, estimate.standard_error, *estimate.replicates]).all()
    ):
        return None
    inward = estimate.value < measurement.target and not measurement.side
    away = (estimate.replicates - estimate.replicates.mean()) / measurement.tolerance
    return -away if inward or measurement.side < 0 else away


def _of_difference(excess: float, error: float, scatter: Array) -> _Distance:
    """The square of a difference with measured value d and error s: d^2 - s^2, which has no bias for any size of a set.

    If t is the true difference, the variance is 4 t^2 s^2 + 2 s^4; t^2 is estimated by d^2 - s^2.
    """
    square = excess**2 - error**2
    return square, 2 * math.sqrt(max(square, 0.0)) * scatter + scatter**2 - float(np.mean(scatter**2))


def _of_separation(excess: float, error: float, scatter: Array) -> _Distance:
    """A separation power is already a square without bias. `scatter`, too wide near the null, is scaled to `error`.

    Where the resamples are alike but for rounding, as those of a set against itself, there is no noise.
    """
    width = float(scatter.std(ddof=1))
    return excess, scatter * (error / width if width > _ROUNDING else 0.0)


def against_incumbent(
    challenger: Sequence[Measurement],
    incumbent: Sequence[Measurement],
    *,
    hard_failures: tuple[int, int] = (0, 0),
) -> dict[str, Any]:
    """Compare two candidates by their measurements against one reference, which were made with the same seed.

    By each criterion a candidate has a squared distance q in units of the tolerance. The difference of the candidates
    is (q_challenger - q_incumbent) / (1 + their mean). It is between -2 and 2, so no criterion decides alone. The mean
    difference over the criteria has a 95 % interval from resampled events. The reference is resampled in the same way
    for both, so its noise cancels. The challenger is better if the whole interval is below zero, worse if it is above.
    A candidate with `hard_failures` (one number for each) loses to a candidate without.
    """
    new, old = (
        {(each.name, each.bin): distance for each in criteria if (distance := _distance(each))}
        for criteria in (challenger, incumbent)
    )
    differences = {key: _difference(new[key], old[key]) for key in new if key in old}
    rows: list[dict[str, Any]] = [
        {"name": key[0], "bin": key[1], "challenger": new[key][0], "incumbent": old[key][0]} | _decided(*difference)
        for key, difference in differences.items()
    ]
    rows.sort(key=lambda row: abs(row["difference"]), reverse=True)
    overall: dict[str, Any] = {"difference": None, "interval": None, "outcome": ALIKE}
    if differences:
        overall = _decided(*_mean([*differences.values()]))
    if min(hard_failures) == 0 < max(hard_failures):
        overall["outcome"] = WORSE if hard_failures[0] else BETTER
    return overall | {"criteria": rows}


def _difference(challenger: _Distance, incumbent: _Distance) -> _Distance:
    """The difference of the two, and its resampled values, (resamples,)."""

    def scaled(q_new: Any, q_old: Any) -> Any:
        return (q_new - q_old) / (1 + (np.maximum(q_new, 0) + np.maximum(q_old, 0)) / 2)

    (new, of_new), (old, of_old) = challenger, incumbent
    return float(scaled(new, old)), scaled(new + of_new, old + of_old)


def _decided(difference: float, scatter: Array) -> dict[str, Any]:
    reach = float(stats.norm.ppf((1 + LEVEL) / 2) * np.std(scatter, ddof=1))
    low, high = difference - reach, difference + reach
    outcome = BETTER if high < 0 else WORSE if low > 0 else ALIKE
    return {"difference": difference, "interval": [low, high], "outcome": outcome}
