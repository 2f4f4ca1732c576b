"""Numbers measured on finite sets of showers, and the intervals that hold their truth."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from scipy import stats

from calopipe.showers.cells import Array

LEAST_EVENTS = 10  # in either set, below which no interval is given: a resample often holds one shower only


@dataclass(frozen=True)
class Estimate:
    """A number measured on two finite sets of showers; `standard_error` is NaN where it is unknown.

    There is no interval where fewer than `least` events, or groups of them, were resampled. A ratio has `parts`: the
    variances of numerator and denominator, and their covariance, over the square of the denominator, as measured and as
    they would be if the other set told the spread of its events.

    A separation power also has `null`, the mean and standard deviation of S between two samples of one truth, and
    `growth`, by which its variance rises with the true S. The null's part of the error falls as 1/events.
    """

    value: float
    standard_error: float
    events: int  # in the smaller set
    null: tuple[float, float] | None = None
    groups: int | None = None  # of events, where these are what was resampled
    replicates: Array | None = field(default=None, compare=False, repr=False)  # (resamples,): the bootstrap's values
    growth: float = 0.0
    least: int = LEAST_EVENTS
    parts: Array | None = field(default=None, compare=False, repr=False)  # (2, 3)

    def interval(self, level: float) -> tuple[float, float] | None:
        """The two-sided interval at `level` by Student's distribution, or None where there is none.

        A separation power's lower end allows for the long tail of its null, a sum of squares: a gamma distribution.
        Its upper end is normal in sqrt(null variance + growth S), whose error does not depend on S: the error of S
        itself is too small where S came out low by chance. A ratio's interval is Fieller's.
        """
        resampled = self.groups or self.events
        known = self.standard_error if self.parts is None else float(self.parts.sum())
        if not (math.isfinite(self.value) and math.isfinite(known)) or resampled < self.least:
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
        """How many events would make the interval at `level` end at `bound`, were the value to stay."""
        gap = abs(bound - self.value)
        error = self.standard_error
        if self.parts is not None:
            error = math.sqrt(max(float((self.parts @ (1, bound**2, -2 * bound)).max()), 0.0))
        if not (math.isfinite(error) and math.isfinite(gap)) or gap <= 0 or error <= 0:
            return None
        wanted = (gap / float(stats.norm.ppf((1 + level) / 2))) ** 2
        null = 0.0 if self.null is None else self.null[1] ** 2
        rest = max(error**2 - null, 0.0) + self.growth * gap / 2  # the latter for the upper end
        # With k times the events the variance is null/k^2 + rest/k: solve for 1/k.
        inverse = (math.sqrt(rest**2 + 4 * null * wanted) - rest) / (2 * null) if null > 0 else wanted / rest
        return math.ceil(self.events / inverse) if inverse > 0 else None


def _ratios(value: float, parts: Array, factor: float) -> tuple[float, float]:
    """The ratios r for which numerator less r times denominator is within `factor` errors of zero (Fieller 1954).

    The error is that at r. The error at the measured `value` is too small where the numerator is low by chance, as of a
    layer that few showers reach. There is no upper end where the denominator may be zero, and no lower one where the
    numerator may be too.
    """
    numerator, denominator, covariance = (factor**2 * float(part) for part in parts)
    square, middle, rest = 1 - denominator, value - covariance, value**2 - numerator
    if square <= 0:
        known = rest > 0 and value >= 0
        return rest / (middle + math.sqrt(middle**2 - square * rest)) if known else -math.inf, math.inf
    reach = math.sqrt(max(middle**2 - square * rest, 0.0))
    return (middle - reach) / square, (middle + reach) / square
