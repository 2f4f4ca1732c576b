"""Compare a candidate's showers with Monte Carlo: the report, and the verdict, which is written last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calopipe import storage
from calopipe.errors import require_seed
from calopipe.events.splits import ALL
from calopipe.grade import Grade, load_grade
from calopipe.showers.cells import Geometry
from calopipe.showers.selection import Selection
from calopipe.storage import Location
from calopipe.verdict import OVERVIEW_FILE, Comparison, overall
from validation.calochallenge.numbers import Documents, numbers
from validation.judge import faults
from validation.judge.answers import Criterion, Measurement, judge_all, scalars
from validation.judge.challenger import against_incumbent
from validation.judge.criteria import measure_criteria
from validation.judge.similarity import figure_of_merit, memorised, similarity
from validation.measure.pairing import pairing, require_comparable, require_one_detector
from validation.measure.sets import (
    COUNT,
    SAMPLE_SHOWERS,
    Measured,
    Rows,
    Samples,
    ShowerSet,
    Tables,
    measure,
    samples,
    selected,
    thinned,
)
from validation.report import page as report
from validation.report import plots
from validation.report.curves import summarise
from validation.statistics.binning import Binning

_JUDGED = ("candidate", "incumbent")


def validate(
    reference: Sequence[Location],
    candidate: Sequence[Location],
    output: Path,
    *,
    incumbent: Sequence[Location] = (),
    training: Sequence[Location] = (),
    training_split: str = "train",
    selection: Selection | None = None,
    grade: str = "precision",
    challenge: Documents | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """Judge the showers of `candidate` by the showers of `reference` in `selection`, under `grade` (a name or a file).

    The candidate is also compared with an `incumbent`, and with the `training` showers (of `training_split`), which it
    should not repeat, if these are given. `challenge` asks for the numbers of CaloChallenge.

    Writes `report.html`, `overview.png` and, last, `verdict.json` into `output`, and returns the verdict document. If
    the verdict on the same request is there already, with its report, nothing is computed again.
    InputError: files that cannot be read or compared, an unknown grade, an empty split.
    """
    limits = load_grade(grade)
    require_seed(seed)
    chosen = selection or Selection()
    files = {"reference": reference, "candidate": candidate, "incumbent": incumbent, "training": training}
    sets = _opened(files, chosen, training_split)
    if challenge is not None:
        challenge.require_of(sets["reference"], sets["candidate"])
    inputs: dict[str, Any] = {
        **{name: sets[name].describe() if name in sets else [] for name in files},
        "split": chosen.split,
        "training_split": training_split,
        "split_files": [list(pair) for pair in chosen.rule.by_file],
        "cut_gev": chosen.cut_gev,
        "bad_event": chosen.bad_event,
        "challenge": None if challenge is None else vars(challenge),
        "geometry": sets["reference"].geometry.to_json(),
        "seed": seed,
    }
    comparison = Comparison(output, limits, inputs)
    if (earlier := comparison.standing()) is not None:
        return earlier

    storage.require_writable(output)  # checked first, as measuring may take minutes
    measured: dict[str, Measured] = {}
    compared: dict[str, Tables] = {}
    for name, showers in sets.items():
        measured[name] = measure(showers)
        if name in _JUDGED:  # before the next set is measured for minutes, since another beam is refused
            per_event, rows = pairing(measured["reference"].table, measured[name].table, showers.files[0].path)
            compared[name] = without_empty(rows, measured[name].table, per_event)
    sample, document = _judged(sets["reference"].geometry, measured, compared, limits, seed)
    document["challenge"] = None if challenge is None else numbers(sets["reference"], sets["candidate"], challenge)
    pictures = _plots(measured, sample, document, sets["reference"].geometry, output)
    return comparison.write(document, lambda whole: report.page(whole, pictures))


def _opened(files: Mapping[str, Sequence[Location]], chosen: Selection, training_split: str) -> dict[str, ShowerSet]:
    """The given sets by name. InputError: they are not of one detector, or not of the reference's beam."""
    counted = replace(chosen, split=ALL, bad_event=COUNT, memory=None)
    how = {
        "reference": ("Monte Carlo", chosen), "candidate": ("candidate", counted), "incumbent": ("incumbent", counted),
        "training": ("training", replace(chosen, split=training_split)),
    }  # fmt: skip
    sets = {name: ShowerSet.open(paths, *how[name]) for name, paths in files.items() if paths}
    for other in (sets[name] for name in _JUDGED if name in sets):
        require_comparable(sets["reference"], other)
    if "training" in sets:
        require_one_detector(sets["reference"], sets["training"])
    return sets


def _judged(
    geometry: Geometry, measured: Mapping[str, Measured], compared: Mapping[str, Tables], grade: Grade, seed: int
) -> tuple[Samples, dict[str, Any]]:
    """A sample of the compared showers, and the verdict's document, which is about all of them."""
    reference, candidate = measured["reference"], measured["candidate"]
    events = min(len(measured[name].table) for name in ("reference", *compared))
    binning = Binning.of(reference.table, events, geometry, grade)
    judged, *previous = (
        Judgement.of(reference, measured[name], tables, binning=binning, grade=grade, seed=seed)
        for name, tables in compared.items()
    )
    rng = np.random.default_rng(seed)
    sample = samples(judged.compared, SAMPLE_SHOWERS, rng)
    alike = similarity(sample, rng=rng)
    repeating = None
    if "training" in measured:
        repeating, cautions = memorised(measured["training"], reference.digests, candidate.digests, sample, rng=rng)
        judged.cautions.extend(cautions)
    document = {
        "verdict": judged.verdict,
        "paired": judged.compared.per_event > 0,
        "per_event": judged.compared.per_event,
        "events": {"reference": len(reference.table), "candidate": len(candidate.table)},
        "empty": {"reference": int(reference.table.empty.sum()), "candidate": int(candidate.table.empty.sum())},
        "hard_failures": judged.hard_failures,
        "cautions": judged.cautions,
        "criteria": [criterion.to_json() for criterion in judged.criteria],
        "metric": figure_of_merit(judged.compared),
        **alike,
        "memorisation": repeating,
        "resolution": None,
        "incumbent": _challenged(judged, *previous) if previous else None,
        "scalars": scalars(judged.criteria) | _scalars(alike),
    }
    return sample, document


@dataclass(frozen=True)
class Judgement:
    """The criteria, failures and cautions of a candidate; `compared` are the showers with energy."""

    compared: Tables
    measurements: list[Measurement]
    criteria: list[Criterion]
    hard_failures: faults.Findings
    cautions: faults.Findings

    @classmethod
    def of(
        cls, reference: Measured, candidate: Measured, compared: Tables, *, binning: Binning, grade: Grade, seed: int
    ) -> Judgement:
        """Judge the `candidate` by the Monte Carlo `reference` under `grade`."""
        rng = np.random.default_rng(seed)
        measurements = measure_criteria(compared, binning=binning, grade=grade, rng=rng)
        failures = [
            *faults.bad_cells(candidate.bad, candidate.first_bad, len(candidate.table)),
            *faults.too_many_empty(reference.table, candidate.table),
            *faults.no_rise_with_energy(*(thinned(side, SAMPLE_SHOWERS, rng) for side in compared[:2])),
            *faults.repeated_more(reference.digests, candidate.digests),
        ]
        cautions = [
            *faults.copied(candidate.digests, reference.digests, "Showers of the reference"),
            *faults.repeated(reference.digests, "The same shower twice in Monte Carlo"),
            *faults.mostly_empty(reference.table),
        ]
        return cls(compared, measurements, judge_all(measurements), failures, cautions)

    @property
    def verdict(self) -> str:
        """accepted, rejected or inconclusive."""
        return overall([criterion.verdict for criterion in self.criteria], self.hard_failures, self.cautions)


def without_empty(reference: Rows, candidate: Rows, per_event: int) -> Tables:
    """The showers with energy; in paired sets, the events in which all showers have energy."""
    events, showers = ~reference.empty, ~candidate.empty
    if per_event:
        events = events & showers.reshape(-1, per_event).all(axis=1)
        showers = np.repeat(events, per_event)
    return Tables(selected(reference, events), selected(candidate, showers), per_event)


def _challenged(challenger: Judgement, incumbent: Judgement) -> dict[str, Any]:
    """The candidate as a challenger of the incumbent, and the incumbent's own verdict."""
    failures = len(challenger.hard_failures), len(incumbent.hard_failures)
    outcome = against_incumbent(challenger.measurements, incumbent.measurements, hard_failures=failures)
    return outcome | {"verdict": incumbent.verdict, "cautions": incumbent.cautions}


def _scalars(alike: dict[str, Any]) -> dict[str, float]:
    """Numbers that state how alike the sets are, for a user interface to plot."""
    numbers = {name: alike["distances"][name]["value"] for name in ("fpd", "kpd")}
    numbers |= {f"auc_{name}": score["value"] for name, score in alike["classifier"].items()}
    return {name: value for name, value in numbers.items() if value is not None}


def _plots(
    measured: Mapping[str, Measured], sample: Samples, document: dict[str, Any], geometry: Geometry, output: Path
) -> list[plots.Plot]:
    """The report's pictures. Also writes `overview.png`, and adds `resolution` to the document."""
    if not (len(sample.reference) and len(sample.candidate)):
        return []
    summary = summarise(sample.reference, sample.candidate, geometry)
    document["resolution"] = summary.resolution
    galleries = measured["reference"].gallery, measured["candidate"].gallery
    with storage.replacing(output / OVERVIEW_FILE) as temporary:
        temporary.write_bytes(plots.overview(summary))
    return [*plots.draw_all(summary), *plots.draw_pairs(*galleries, geometry)]
