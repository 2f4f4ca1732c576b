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
from calopipe.verdict import Comparison
from validation.challenge.numbers import Asked, numbers
from validation.judge.answers import scalars
from validation.judge.challenger import against_incumbent
from validation.judge.judgement import Judgement
from validation.judge.similarity import memorised, similarity
from validation.measure.edges import ring_labels
from validation.measure.reader import Measured, measure
from validation.measure.sets import (
    COUNT,
    ShowerSet,
    pairing,
    require_comparable,
    require_one_detector,
    require_same_cut,
)
from validation.measure.table import SAMPLE_SHOWERS, Rows, Samples, samples
from validation.report import page as report
from validation.report import plots
from validation.report.curves import summarise
from validation.report.plots import draw_pairs
from validation.statistics.binning import Binning

OVERVIEW_FILE = "overview.png"


@dataclass(frozen=True)
class Sets:
    """Monte Carlo, the candidate and, if given, the incumbent and the showers that the generator was trained on."""

    reference: ShowerSet
    candidate: ShowerSet
    incumbent: ShowerSet | None
    training: ShowerSet | None

    def describe(self) -> dict[str, list[dict[str, Any]]]:
        named = vars(self).items()
        return {name: [] if showers is None else showers.describe() for name, showers in named}


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
    challenge: Asked | None = None,
    seed: int = 1,
) -> dict[str, Any]:
    """Judge the showers of `candidate` by the `selection` of those of `reference`, under `grade` (a name or a file).

    The candidate is compared with an `incumbent`, and with the `training` showers (of `training_split`), which it
    should not repeat. The numbers of CaloChallenge are added where `challenge` asks for them.

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
        challenge.require_of(sets.reference, sets.candidate)
    inputs: dict[str, Any] = {
        **sets.describe(),
        "split": chosen.split,
        "training_split": training_split,
        "split_files": [list(pair) for pair in chosen.rule.by_file],
        "cut_gev": chosen.cut_gev,
        "bad_event": chosen.bad_event,
        "challenge": None if challenge is None else vars(challenge),
        "geometry": sets.reference.geometry.to_json(),
        "seed": seed,
    }
    comparison = Comparison(output, limits, inputs)
    if (earlier := comparison.standing()) is not None:
        return earlier

    storage.require_writable(output)  # before the minutes that measuring may take
    measured = _measured(sets)
    some, document = _judged(measured, limits, seed)
    document["challenge"] = None if challenge is None else numbers(sets.reference, sets.candidate, challenge)
    pictures = _plots(measured, some, document, output)
    return comparison.write(document, lambda whole: report.page(whole, pictures))


def _opened(files: Mapping[str, Sequence[Location]], chosen: Selection, training_split: str) -> Sets:
    """The sets by their names. InputError: not of one detector, or not of the reference's beam."""
    counted = replace(chosen, split=ALL, bad_event=COUNT, memory=None)
    learned_from = replace(chosen, split=training_split)
    sets = Sets(
        reference=ShowerSet.open(files["reference"], "Monte Carlo", chosen),
        candidate=ShowerSet.open(files["candidate"], "candidate", counted),
        incumbent=ShowerSet.open(files["incumbent"], "incumbent", counted) if files["incumbent"] else None,
        training=ShowerSet.open(files["training"], "training", learned_from) if files["training"] else None,
    )
    for other in (sets.candidate, sets.incumbent):
        if other is not None:
            require_comparable(sets.reference, other)
            require_same_cut(other, chosen.cut_gev)
    if sets.training is not None:
        require_one_detector(sets.reference, sets.training)
    return sets


@dataclass(frozen=True)
class _Found:
    """What was measured of the sets. `candidates`: the candidate, then the incumbent; `paired`: each with Monte Carlo,
    as `pairing` says.
    """

    reference: Measured
    candidates: list[Measured]
    paired: list[tuple[int, Rows]]
    training: Measured | None
    geometry: Geometry


def _measured(sets: Sets) -> _Found:
    reference = measure(sets.reference)
    candidates = [shower_set for shower_set in (sets.candidate, sets.incumbent) if shower_set is not None]
    pairs = [pairing(reference.table, other) for other in candidates]  # before the minutes that measuring them may take
    measured = [measure(candidate) for candidate in candidates]
    training = None if sets.training is None else measure(sets.training)
    return _Found(reference, measured, pairs, training, sets.reference.geometry)


def _judged(measured: _Found, grade: Grade, seed: int) -> tuple[Samples, dict[str, Any]]:
    """A sample of the showers that are compared, and what the document says of them all."""
    reference, candidate = measured.reference, measured.candidates[0]
    events = min(len(showers.table) for showers in (reference, *measured.candidates))
    # Particles come along the axis of rings, and whichever way their showers lean is chance.
    binning = Binning.of(reference.table, events, angles=not measured.geometry.rings)
    names = ring_labels(measured.geometry)
    judged, *previous = (
        Judgement.of(reference, showers, paired=paired, binning=binning, grade=grade, seed=seed, ring_names=names)
        for showers, paired in zip(measured.candidates, measured.paired, strict=True)
    )
    rng = np.random.default_rng(seed)
    some = samples(judged.compared, SAMPLE_SHOWERS, rng)
    alike = similarity(some, rng=rng)
    repeating = None
    if measured.training is not None:
        repeating, cautions = memorised(measured.training, reference.digests, candidate.digests, some, rng=rng)
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
        "metric": judged.metric(),
        **alike,
        "memorisation": repeating,
        "resolution": None,
        "incumbent": _challenged(judged, *previous) if previous else None,
        "scalars": scalars(judged.criteria) | _scalars(alike),
    }
    return some, document


def _challenged(challenger: Judgement, incumbent: Judgement) -> dict[str, Any]:
    """The candidate as a challenger of the incumbent, and the incumbent's own verdict."""
    failures = len(challenger.hard_failures), len(incumbent.hard_failures)
    outcome = against_incumbent(challenger.measurements, incumbent.measurements, hard_failures=failures)
    return outcome | {"verdict": incumbent.verdict, "cautions": incumbent.cautions}


def _scalars(alike: dict[str, Any]) -> dict[str, float]:
    """How alike the sets are, as numbers for a user interface to plot."""
    numbers = {name: alike["distances"][name]["value"] for name in ("fpd", "kpd")}
    numbers |= {f"auc_{name}": score["value"] for name, score in alike["classifier"].items()}
    return {name: value for name, value in numbers.items() if value is not None}


def _plots(measured: _Found, some: Samples, document: dict[str, Any], output: Path) -> list[plots.Plot]:
    """The report's pictures. Writes `overview.png`, too, and the document gets `resolution`."""
    if not (len(some.reference) and len(some.candidate)):
        return []
    summary = summarise(some.reference, some.candidate, measured.geometry)
    document["resolution"] = {side: widths.fit(summary.factor) for side, widths in summary.resolutions.items()}
    galleries = measured.reference.gallery, measured.candidates[0].gallery
    with storage.replacing(output / OVERVIEW_FILE) as temporary:
        temporary.write_bytes(plots.overview(summary))
    return [*plots.draw_all(summary, document["resolution"]), *draw_pairs(*galleries, measured.geometry)]
