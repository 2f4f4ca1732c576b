"""The judgement of a candidate by Monte Carlo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calopipe.grade import Grade
from calopipe.showers.metric import REFERENCE_BINS, Profiles, metric
from calopipe.verdict import overall
from validation.judge import faults
from validation.judge.answers import Criterion, Measurement, judge_all
from validation.judge.criteria import RING_NAMES, measure_criteria
from validation.measure.reader import Measured
from validation.measure.table import SAMPLE_SHOWERS, Rows, Tables, selected, thinned
from validation.statistics.binning import Binning

_METRIC_SHOWERS = 5_000  # of each set in a bin: the figure depends on their number, and would not change with more


@dataclass(frozen=True)
class Judgement:
    """What is said of a candidate; `compared` are the showers with energy."""

    compared: Tables
    measurements: list[Measurement]
    criteria: list[Criterion]
    hard_failures: list[dict[str, Any]]
    cautions: list[dict[str, Any]]

    @classmethod
    def of(
        cls,
        reference: Measured,
        candidate: Measured,
        *,
        paired: tuple[int, Rows],
        binning: Binning,
        grade: Grade,
        seed: int,
        ring_names: Sequence[str] = RING_NAMES,
    ) -> Judgement:
        """Judge the `candidate` by the Monte Carlo `reference` under `grade`; `paired` is the answer of `pairing`."""
        per_event, rows = paired
        compared = _without_empty(rows, candidate.table, per_event)
        rng = np.random.default_rng(seed)
        measurements = measure_criteria(compared, binning=binning, grade=grade, rng=rng, ring_names=ring_names)
        failures = (
            faults.bad_cells(candidate.bad, candidate.first_bad, len(candidate.table)),
            faults.too_many_empty(reference.table, candidate.table),
            faults.no_rise_with_energy(*(thinned(side, SAMPLE_SHOWERS, rng) for side in compared[:2])),
            faults.repeated(candidate.digests),
        )
        cautions = (
            faults.copied(candidate.digests, reference.digests, "Showers of the reference"),
            faults.repeated(reference.digests, "The same shower twice in Monte Carlo"),
        )
        return cls(
            compared,
            measurements,
            judge_all(measurements),
            [failure for failure in failures if failure],
            [caution for caution in cautions if caution],
        )

    @property
    def verdict(self) -> str:
        """accepted, rejected or inconclusive."""
        return overall([criterion.verdict for criterion in self.criteria], self.hard_failures, self.cautions)

    def metric(self) -> dict[str, Any]:
        """The reference's figure of merit."""
        return metric(_profiles(self.compared.reference), _profiles(self.compared.candidate))


def _without_empty(reference: Rows, candidate: Rows, per_event: int) -> Tables:
    """The showers with energy; in paired sets, the events of which all showers have energy."""
    events, showers = ~reference.empty, ~candidate.empty
    if per_event:
        events = events & showers.reshape(-1, per_event).all(axis=1)
        showers = np.repeat(events, per_event)
    return Tables(selected(reference, events), selected(candidate, showers), per_event)


def _profiles(rows: Rows) -> Profiles:
    """At most 5,000 showers, evenly spread, in each bin of the metric; the bins share no shower."""
    parts = []
    for chosen in REFERENCE_BINS:
        inside = np.flatnonzero(chosen.holds(rows.energy_gev, rows.theta_rad))
        taken = min(len(inside), _METRIC_SHOWERS)
        inside = inside[np.arange(taken) * len(inside) // max(taken, 1)]  # files come in order, perhaps of angles
        part = rows[inside]
        profiles = part.along_x, part.along_y, part.layers
        parts.append((part.energy_gev, part.theta_rad, *profiles, part.index_angle_rad))
    energy, theta, along_x, along_y, layers, angle = map(np.concatenate, zip(*parts, strict=True))
    return Profiles(energy, theta, (along_x, along_y, layers), angle)
