"""Whether a generator is good enough: each criterion passes, fails or is inconclusive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from calopipe.documents import finite
from validation.statistics.estimates import Estimate

Answer = Literal["pass", "fail", "inconclusive"]

LEVEL = 0.95  # confidence level of the interval that must lie inside the tolerance to pass
ERROR_RATE = 0.05  # chance that a perfect candidate is rejected, for all criteria together; it is shared among them


@dataclass(frozen=True)
class Measurement:
    """What a criterion judges: `estimates` that must all lie within `tolerance` of `target`.

    Most criteria have one estimate; if there are many, as for correlations, the worst is shown. `side`: 1 if only an
    excess counts, -1 if only a deficit counts, 0 for both. `floor`: the typical distance of Monte Carlo from the
    target, from halves of the reference. More than `most_events` events would not improve the estimates.
    """

    name: str
    key: str  # the key of its tolerance in the grade
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
        """The distance of `value` (a number or an array) from the target, in units of the tolerance: 1 is its end."""
        away = (value - self.target) / self.tolerance
        return away * self.side if self.side else abs(away)


@dataclass(frozen=True)
class Criterion:
    """A measurement and its answer.

    `value`, `interval` (95 %: inside the tolerance to pass) and `strict_interval` (outside to fail) are those of the
    estimate that decides. Among several estimates, a failed one decides, or else the one whose interval reaches
    farthest.
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
        """The distance of the worst estimate from the target, in units of the tolerance."""
        values = [estimate.value for estimate in self.measurement.estimates if math.isfinite(estimate.value)]
        return max(map(self.measurement.excess, values), default=0.0)

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
    is outside. Otherwise inconclusive, with the number of events that would decide if the value stayed the same.

    A criterion of several estimates passes if all pass. It fails if one fails at a level corrected for their number.
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
    """Every criterion, the worst first: failures, inconclusive criteria, passes, and each of these by `excess`."""
    criteria = [judge(measurement, len(measurements)) for measurement in measurements]
    order = ("pass", "inconclusive", "fail")
    return sorted(criteria, key=lambda each: (order.index(each.verdict), each.excess), reverse=True)


def scalars(criteria: Sequence[Criterion]) -> dict[str, float]:
    """Numbers for a user interface to plot: the count of each answer, and the worst value of each kind of criterion."""
    answers = [criterion.verdict for criterion in criteria]
    counts = {f"criteria_{answer}": float(answers.count(answer)) for answer in get_args(Answer)}
    known = sorted((judged for judged in criteria if math.isfinite(judged.value)), key=lambda judged: judged.excess)
    return counts | {judged.measurement.key: judged.value for judged in known}  # the worst of its kind comes last


def _events_needed(measurement: Measurement, strict: float) -> int | None:
    """The number of events, in each set and in this bin, that would decide if every value stayed the same.

    None if the number is unknown, or not larger than the number of events in the bin.
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
    """The distances from the target of the far end of the 95 % interval, and of the value, in tolerances."""
    if math.isnan(estimate.value):
        return -math.inf, -math.inf
    interval, value = estimate.interval(LEVEL), float(measurement.excess(estimate.value))
    return max(float(measurement.excess(end)) for end in interval) if interval else math.inf, value
