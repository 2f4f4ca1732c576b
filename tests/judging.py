"""The criteria of two sets of showers, judged."""

from __future__ import annotations

import numpy as np

from calopipe.grade import Grade, load_grade
from calopipe.showers.cells import Geometry
from validation.judge.answers import Criterion, judge_all
from validation.judge.criteria import measure_criteria
from validation.measure.sets import Rows, Tables
from validation.statistics.binning import Binning


def criteria_of(
    reference: Rows,
    candidate: Rows,
    *,
    per_event: int = 0,
    grade: str | Grade = "gan",
    geometry: Geometry | None = None,
) -> dict[str, Criterion]:
    """By name; of bins of one name the last."""
    binning = Binning.of(reference, min(len(reference), len(candidate)), geometry)
    limits = load_grade(grade) if isinstance(grade, str) else grade
    tables, rng = Tables(reference, candidate, per_event), np.random.default_rng(0)
    found = judge_all(measure_criteria(tables, binning=binning, grade=limits, rng=rng))
    return {each.measurement.name: each for each in found}


def failed(found: dict[str, Criterion]) -> set[str]:
    """The names of those that failed."""
    return {name for name, each in found.items() if each.verdict == "fail"}
