"""Numbers measured on finite sets of showers, and their confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from scipy import stats

from calopipe.showers.cells import Array

LEAST_EVENTS = 10  # in either set: with fewer there is no interval, as a resample often holds only one shower


@dataclass(frozen=True)
class Estimate:
    """A number measured on two finite sets of showers; `standard_error` is NaN where it is unknown.

    There is no interval if fewer than `least` events, or groups of events, were resampled. A ratio has `parts`: the
    variances of numerator and denominator, and their covariance, all over the square of the denominator. The first row
    is measured; the second row takes the spread of a set's events from the other set.

    A separation power also has `null`, the mean and standard deviation of S between two samples of one truth, and
    `growth`, the rise of its variance with the true S. The null's part of the error falls as 1/events.
    """

    value: float
    standard_error: float
    events: int  # in the smaller set
    null: tuple[float, float] | None = None
    groups: int | None = None  # number of groups of events, if groups were resampled
    replicates: Array | None = field(default=None, compare=False, repr=False)  # (resamples,): the bootstrap's values
    growth: float = 0.0
    least: int = LEAST_EVENTS
    parts: Array | None = field(default=None, compare=False, repr=False)  # (2, 3)

    def interval(self, level: float) -> tuple[float, float] | None:
        """The two-sided interval at `level` by Student's distribution, or None if there is none.

        The lower end of a separation power allows for the long tail of its null. The null is a sum of squares, and is
        described by a gamma distribution. The upper end is normal in sqrt(null variance + growth S), whose error does
        not depend on S: the error of S itself is too small if S is low by chance. A ratio has Fieller's interval.
        """
        resampled = self.groups or self.events
        error = self.standard_error if self.parts is None else float(self.parts.sum())
        if not (math.isfinite(self.value) and math.isfinite(error)) or resampled < self.least:
            return None
        factor = float(stats.t.ppf((1 + level) / 2, resampled - 1))  # the standard error is uncertain too
        if self.parts is not None:
            low, high = zip(*(_ratios(self.value, parts, factor) for parts in self.parts), strict=True)
            return (min(low), max(high)) if min(low) > -math.inf else None
        below = factor * self.standard_error
        reach = below + factor**2 * self.growth / 4
        if self.null is not None and min(self.null) > 0:
            mean, sigma = self.null
            tail = float(stats.gamma.ppf((1 + level) / 2, (mean / sigma) ** 2, scale=sigma**2 / mean)) - mean
            below = math.hypot(max(tail, factor * sigma), factor * math.sqrt(max(self.standard_error**2 - sigma**2, 0)))
        return self.value - below, self.value + reach

    def events_to_resolve(self, bound: float, level: float) -> int | None:
        """How many events would make the interval at `level` end at `bound`, if the value stayed the same."""
        gap = abs(bound - self.value)
        error = self.standard_error
        if self.parts is not None:
            error = math.sqrt(max(float((self.parts @ (1, bound**2, -2 * bound)).max()), 0.0))
        if not (math.isfinite(error) and math.isfinite(gap)) or gap <= 0 or error <= 0:
            return None
        wanted = (gap / float(stats.norm.ppf((1 + level) / 2))) ** 2
        null = 0.0 if self.null is None else self.null[1] ** 2
        rest = max(error**2 - null, 0.0) + self.growth * gap / 2  # the second term is for the upper end
        # With k times as many events, the variance is null/k^2 + rest/k: solve for 1/k.
        inverse = (math.sqrt(rest**2 + 4 * null * wanted) - rest) / (2 * null) if null > 0 else wanted / rest
        return math.ceil(self.events / inverse) if inverse > 0 else None


def _ratios(value: float, parts: Array, factor: float) -> tuple[float, float]:
    """The interval of ratios r for which numerator - r * denominator is within `factor` errors of 0 (Fieller 1954).

    The error is taken at r. At the measured `value` it is too small if the numerator is low by chance, as for a layer
    that few showers reach. The upper end is infinite if the denominator may be zero, and the lower end too if the
    numerator may also be zero.
    """
    numerator, denominator, covariance = (factor**2 * float(part) for part in parts)
    square, middle, rest = 1 - denominator, value - covariance, value**2 - numerator
    if square <= 0:
        bounded = rest > 0 and value >= 0
        return rest / (middle + math.sqrt(middle**2 - square * rest)) if bounded else -math.inf, math.inf
    reach = math.sqrt(max(middle**2 - square * rest, 0.0))
    return (middle - reach) / square, (middle + reach) / square
