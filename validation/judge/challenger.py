"""A challenger against an incumbent: which of two candidates is nearer to the same Monte Carlo, and is it certain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from calopipe.verdict import ALIKE, BETTER, WORSE
from validation.judge.answers import LEVEL, Measurement
from validation.statistics.estimates import Array, Estimate


@dataclass(frozen=True)
class _Distance:
    """The squared distance from Monte Carlo by one criterion, in units of the tolerance: 0 at the target, 1 at the
    tolerance; and how it scatters, (resamples,) about zero.
    """

    name: str
    bin: str
    square: float
    scatter: Array

    @classmethod
    def of(cls, measurement: Measurement) -> _Distance | None:
        """None where nothing is known: no finite estimate. Of many estimates the mean is taken."""
        parts = [
            (_of_separation if estimate.null else _of_difference)(
                measurement.excess(estimate.value), estimate.standard_error / measurement.tolerance, scatter
            )
            for estimate in measurement.estimates
            if (scatter := _scatter(estimate, measurement)) is not None
        ]
        if not parts:
            return None
        squares, scatters = zip(*parts, strict=True)
        return cls(measurement.name, measurement.bin, float(np.mean(squares)), np.mean(scatters, axis=0))


def _scatter(estimate: Estimate, measurement: Measurement) -> Array | None:
    """The bootstrap's values about their mean, towards the outside, in units of the tolerance."""
    if estimate.replicates is None:
        return None
    if not np.isfinite([estimate.value, estimate.standard_error, *estimate.replicates]).all():
        return None
    inward = estimate.value < measurement.target and not measurement.side
    away = (estimate.replicates - estimate.replicates.mean()) / measurement.tolerance
    return -away if inward or measurement.side < 0 else away


def _of_difference(excess: float, error: float, scatter: Array) -> tuple[float, Array]:
    """The square of a noisy number d is too large by the variance s^2 of the noise, and more so for the smaller set of
    two: d^2 - s^2 is without bias. With the truth t it scatters by 4 t^2 s^2 + 2 s^4, of which t^2 is known as well.
    """
    square = excess**2 - error**2
    return square, 2 * math.sqrt(max(square, 0.0)) * scatter + scatter**2 - float(np.mean(scatter**2))


def _of_separation(excess: float, error: float, scatter: Array) -> tuple[float, Array]:
    """A separation power is a square already, its bias taken off; the bootstrap's spread is too wide near the null."""
    return excess, scatter * (error / max(float(scatter.std(ddof=1)), 1e-300))


def against_incumbent(
    challenger: Sequence[Measurement],
    incumbent: Sequence[Measurement],
    *,
    hard_failures: tuple[int, int] = (0, 0),
) -> dict[str, Any]:
    """Compare two candidates by what was measured of each against one reference, with the same seed.

    By each criterion a candidate has a squared distance q in units of the tolerance. The difference of two is
    (q_challenger - q_incumbent) / (1 + their mean), so that no single criterion decides alone: near -2 or 2 where one
    is far off and the other is not, small where both are well inside the tolerance. Over all criteria the mean is
    taken, lower is better, with the 95 % interval over resampled events; the reference's are resampled alike for
    both, so that what they add to both drops out. The challenger is better where the whole interval is below zero,
    worse where it is above. `hard_failures` of each come first: who has them loses to who has none.
    """
    ours, theirs = ({(d.name, d.bin): d for d in map(_Distance.of, each) if d} for each in (challenger, incumbent))
    pairs = [(ours[key], theirs[key]) for key in ours if key in theirs]
    differences = [_difference(*pair) for pair in pairs]
    rows: list[dict[str, Any]] = [
        {"name": mine.name, "bin": mine.bin, "challenger": mine.square, "incumbent": its.square}
        | _decided(value, scatter)
        for (mine, its), (value, scatter) in zip(pairs, differences, strict=True)
    ]
    rows.sort(key=lambda row: abs(row["difference"]), reverse=True)
    whole: dict[str, Any] = {"difference": None, "interval": None, "outcome": ALIKE}
    if differences:
        values, scatters = zip(*differences, strict=True)
        whole = _decided(float(np.mean(values)), np.mean(scatters, axis=0))
    if min(hard_failures) == 0 < max(hard_failures):
        whole["outcome"] = WORSE if hard_failures[0] else BETTER
    return whole | {"criteria": rows}


def _difference(challenger: _Distance, incumbent: _Distance) -> tuple[float, Array]:
    """The difference, and the values around it, (resamples,)."""

    def scaled(ours: Any, theirs: Any) -> Any:
        return (ours - theirs) / (1 + (np.maximum(ours, 0) + np.maximum(theirs, 0)) / 2)

    around = scaled(challenger.square + challenger.scatter, incumbent.square + incumbent.scatter)
    return float(scaled(challenger.square, incumbent.square)), around


def _decided(difference: float, scatter: Array) -> dict[str, Any]:
    reach = float(stats.norm.ppf((1 + LEVEL) / 2) * np.std(scatter, ddof=1))
    low, high = difference - reach, difference + reach
    outcome = BETTER if high < 0 else WORSE if low > 0 else ALIKE
    return {"difference": difference, "interval": [low, high], "outcome": outcome}
