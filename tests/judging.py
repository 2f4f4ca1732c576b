"""Functions to judge two sets: showers as tables, their resampled means, their criteria, and the command's verdict."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from showers import SAMPLE, SMALL_GEOMETRY, make_showers, observed

from calopipe.grade import Grade, load_grade
from calopipe.showers.cells import Array, Geometry, Showers
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from calopipe.verdict import read_verdict
from validation.__main__ import main
from validation.judge.answers import Criterion, Measurement, judge_all
from validation.judge.criteria import measure_criteria
from validation.measure.observables import Observables
from validation.measure.sets import Rows, ShowerSet, Tables
from validation.statistics.binning import Binning
from validation.statistics.estimates import Estimate
from validation.statistics.resampling import Resampled, resample


@cache
def table(events: int, seed: int = 0) -> Observables:
    """The observables of `make_showers`. The table is shared, so copy it before a change."""
    return observed(make_showers(events=events, seed=seed))


def geant4(number: int) -> Showers:
    """The 500 showers of a file of the sample."""
    return open_showers(sorted(SAMPLE.glob("*.h5"))[number]).read()


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def drawn(reference: Array, candidate: Array, *, per_event: int = 0, seed: int = 0) -> Resampled:
    """The means of the columns `f` of both sets, resampled."""
    sides = [lambda rows: {"f": rows}] * 2
    return resample((reference, candidate, per_event), sides, rng=np.random.default_rng(seed))


def measurement(
    *estimates: Estimate,
    name: str = "m",
    key: str = "response",
    target: float = 1.0,
    tolerance: float = 0.1,
    **more: Any,
) -> Measurement:
    """A measurement with these estimates; by default its target is 1 and its tolerance 0.1."""
    return Measurement(name, key, "", "", target, tolerance, estimates, {"value": None}, **more)


def opened(*paths: Path, name: str = "", **selection: Any) -> ShowerSet:
    """The set of showers in the files, with the name `name` or that of the first file, and this `Selection`."""
    return ShowerSet.open(list(paths), name or paths[0].stem, Selection(**selection))


def validated(reference: Path, candidate: Path, output: Path, *options: str) -> dict[str, Any]:
    """The verdict of the command on files of these names or patterns."""
    main(["--reference", str(reference), "--candidate", str(candidate), "--output", str(output), *options])
    return read_verdict(output / "verdict.json")


def criteria_of(
    reference: Rows,
    candidate: Rows,
    *,
    per_event: int = 0,
    grade: str | Grade = "gan",
    geometry: Geometry = SMALL_GEOMETRY,
) -> dict[str, Criterion]:
    """The criteria by name. If several bins have a criterion of one name, the last bin counts."""
    limits = load_grade(grade) if isinstance(grade, str) else grade
    binning = Binning.of(reference, min(len(reference), len(candidate)), geometry, limits)
    tables, rng = Tables(reference, candidate, per_event), np.random.default_rng(0)
    found = judge_all(measure_criteria(tables, binning=binning, grade=limits, rng=rng))
    return {each.measurement.name: each for each in found}


def failed(found: dict[str, Criterion]) -> set[str]:
    """The names of the criteria that failed."""
    return {name for name, each in found.items() if each.verdict == "fail"}
