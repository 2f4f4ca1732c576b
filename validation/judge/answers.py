"""When a generator is good enough: each criterion passes, fails or is inconclusive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from calopipe.documents import finite
from validation.statistics.estimates import Estimate

Answer = Literal["pass", "fail", "inconclusive"]

LEVEL = 0.95  # of the interval that must lie inside the tolerance to pass
ERROR_RATE = 0.05  # chance that a perfect candidate is rejected, all criteria together: a share of it falls to each


@dataclass(frozen=True)
class Measurement:
    """What a criterion judges: `estimates` that must all lie within `tolerance` of `target`.

    Most have one estimate; of many, such as the correlations, the worst is shown. `side`: 1 if only an excess counts,
    -1 if only a deficit does, 0 for both. `floor`: the typical distance of Monte Carlo from the target, between halves
    of the reference. More than `most_events` would not improve the estimates.
    """

    name: str
    key: str  # of its tolerance
    bin: str
    unit: str
    target: float
    tolerance: float
    estimates: tuple[Estimate, ...]
    floor: dict[str, Any]
    side: int = 0
    most_events: int | None = None
    labels: tuple[str, ...] = ()

    @property
    def bounds(self) -> tuple[float, float]:
        low = -math.inf if self.side > 0 else self.target - self.tolerance
        return low, math.inf if self.side < 0 else self.target + self.tolerance

    def nearest_bound(self, value: float) -> float:
        """The end of the tolerance that is nearest to `value`."""
        return min(filter(math.isfinite, self.bounds), key=lambda bound: abs(bound - value))

    def excess(self, value: Any) -> Any:
        """How far `value`, a number or an array, is from the target, in units of the tolerance: above 1 is outside."""
        away = (value - self.target) / self.tolerance
        return away * self.side if self.side else abs(away)


@dataclass(frozen=True)
class Criterion:
    """A measurement and its answer.

    `value`, `interval` (95 %: inside the tolerance to pass) and `strict_interval` (outside to fail) are those of the
    estimate that decides: of many, one that failed, or the one whose interval reaches farthest.
    """

    measurement: Measurement
    verdict: Answer
    value: float
    interval: tuple[float, float] | None
    strict_interval: tuple[float, float] | None
    events_needed: int | None
    worst: str

    @property
    def excess(self) -> float:
        """How far out the worst estimate is, in units of the tolerance."""
        finite = [estimate.value for estimate in self.measurement.estimates if math.isfinite(estimate.value)]
        return max(map(self.measurement.excess, finite), default=0.0)

    @property
    def severity(self) -> tuple[int, float]:
        """Sorts the worst first when reversed: failures, then the undecided, each by how far out they are."""
        return ("pass", "inconclusive", "fail").index(self.verdict), self.excess

    def to_json(self) -> dict[str, Any]:
        measured = self.measurement
        return {
            **{name: getattr(measured, name) for name in ("name", "key", "bin", "unit")},
            "verdict": self.verdict,
            "value": finite(self.value),
            "interval": self.interval and [finite(end) for end in self.interval],
            "strict_interval": self.strict_interval and [finite(end) for end in self.strict_interval],
            "tolerance": [finite(bound) for bound in measured.bounds],
            "floor": measured.floor,
            "events": min((estimate.events for estimate in measured.estimates), default=0),
            "events_needed": self.events_needed,
            "worst": self.worst,
        }


def judge(measurement: Measurement, criteria: int) -> Criterion:
    """Pass: the whole 95 % interval is inside the tolerance. Fail: the whole interval at level 1 - 0.05/`criteria`
    is outside. Otherwise inconclusive, with the number of events that would decide, were the value to stay.

    Many estimates pass when all pass, and fail when one fails at a level that allows for their number.
    """
    low, high = measurement.bounds
    strict = 1 - ERROR_RATE / (criteria * max(len(measurement.estimates), 1))
    inside, outside = [], []
    for estimate in measurement.estimates:
        narrow, wide = estimate.interval(LEVEL), estimate.interval(strict)
        inside.append(narrow is not None and low <= narrow[0] and narrow[1] <= high)
        outside.append(wide is not None and (wide[1] < low or wide[0] > high))
    answer: Answer = "fail" if any(outside) else "pass" if inside and all(inside) else "inconclusive"

    order = [(out, _reach(measurement, e)) for out, e in zip(outside, measurement.estimates, strict=True)]
    place = order.index(max(order)) if order else None
    shown = Estimate(math.nan, math.nan, 0) if place is None else measurement.estimates[place]
    return Criterion(
        measurement=measurement,
        verdict=answer,
        value=shown.value,
        interval=shown.interval(LEVEL),
        strict_interval=shown.interval(strict),
        events_needed=_events_needed(measurement, strict) if answer == "inconclusive" else None,
        worst=measurement.labels[place] if measurement.labels and place is not None else "",
    )


def judge_all(measurements: Sequence[Measurement]) -> list[Criterion]:
    """Every criterion, the worst first."""
    criteria = [judge(measurement, len(measurements)) for measurement in measurements]
    return sorted(criteria, key=lambda criterion: criterion.severity, reverse=True)


def scalars(criteria: Sequence[Criterion]) -> dict[str, float]:
    """A few numbers for a user interface to plot: how many answers of each, and the worst of each kind of criterion."""
    answers = [criterion.verdict for criterion in criteria]
    counts = {f"criteria_{answer}": float(answers.count(answer)) for answer in get_args(Answer)}
    known = sorted((judged for judged in criteria if math.isfinite(judged.value)), key=lambda judged: judged.excess)
    return counts | {judged.measurement.key: judged.value for judged in known}  # the worst of its kind comes last


def _events_needed(measurement: Measurement, strict: float) -> int | None:
    """Events, in each set and in this bin, that would decide if every value stayed where it is.

    None where that is unknown, or not more than there are.
    """
    outside = [e for e in measurement.estimates if measurement.excess(e.value) > 1]
    level = strict if outside else LEVEL
    needed = [
        estimate.events_to_resolve(measurement.nearest_bound(estimate.value), level)
        for estimate in outside or measurement.estimates
    ]
    numbers = [number for number in needed if number is not None]
    if not numbers or len(numbers) < len(needed) or any(e.interval(LEVEL) is None for e in measurement.estimates):
        return None
    number = min(numbers) if outside else max(numbers)
    return number if measurement.estimates[0].events < number <= (measurement.most_events or math.inf) else None


def _reach(measurement: Measurement, estimate: Estimate) -> tuple[float, float]:
    """How far the 95 % interval reaches from the target, and how far the value is, in tolerances."""
    if math.isnan(estimate.value):
        return -math.inf, -math.inf
    interval, value = estimate.interval(LEVEL), float(measurement.excess(estimate.value))
    return max(float(measurement.excess(end)) for end in interval) if interval else math.inf, value
