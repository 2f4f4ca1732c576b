"""Compare a candidate's showers with Monte Carlo: the report, and the verdict, which is written last."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calopipe import storage
from calopipe.errors import require_seed
from calopipe.grade import Grade, load_grade
from calopipe.progress import say
from calopipe.showers.cells import Geometry
from calopipe.showers.selection import Selection
from calopipe.showers.splits import ALL
from calopipe.storage import Location
from calopipe.verdict import KIND, REPORT_FILE, SCHEMA_VERSION, VERDICT_FILE, read_verdict, summary_line
from validation.challenge.numbers import Asked, numbers
from validation.judge.challenger import against_incumbent
from validation.judge.judgement import Judgement
from validation.judge.similarity import memorised, similarity
from validation.measure.edges import ring_labels
from validation.measure.reader import Measured, open_reader
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
from validation.report.single import draw_pairs
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
    workers: int = 1,
    seed: int = 1,
) -> dict[str, Any]:
    """Judge the showers of `candidate` by the `selection` of those of `reference`, under `grade` (a name or a file).

    The candidate is compared with an `incumbent`, and with the `training` showers (of `training_split`), which it
    should not repeat. The numbers of CaloChallenge are added where `challenge` asks for them. `workers` processes read
    the files.

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
        "code_version": code_version(),
    }
    contents = {name: [{**file, "file": Path(file["file"]).name} for file in inputs[name]] for name in vars(sets)}
    request = storage.fingerprint({**inputs, **contents, "grade": limits.to_json(), "schema_version": SCHEMA_VERSION})
    if (earlier := standing(output, request)) is not None:
        say(f"verdict stands: {summary_line(earlier)}, {output / VERDICT_FILE}; nothing to do")
        return earlier

    storage.require_writable(output)  # before the minutes that measuring may take
    found = _measured(sets, workers)
    some, document = _judged(found, limits, seed)
    document["challenge"] = None if challenge is None else numbers(sets.reference, sets.candidate, challenge)
    document |= {"inputs": inputs | {"versions": versions()}, "request": request}
    _write_report(document, output, some, found)
    storage.write_json(output / VERDICT_FILE, document)
    say(summary_line(document))
    return document


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


def _measured(sets: Sets, workers: int) -> _Found:
    with open_reader(workers) as reader:
        mine = reader.measure(sets.reference)
        candidates = [each for each in (sets.candidate, sets.incumbent) if each is not None]
        pairs = [pairing(mine.table, each) for each in candidates]  # before the minutes that measuring them may take
        found = [reader.measure(each) for each in candidates]
        training = None if sets.training is None else reader.measure(sets.training)
    return _Found(mine, found, pairs, training, sets.reference.geometry)


def _judged(found: _Found, grade: Grade, seed: int) -> tuple[Samples, dict[str, Any]]:
    """A sample of the showers that are compared, and what the document says of them all."""
    mine, candidate = found.reference, found.candidates[0]
    events = min(len(each.table) for each in (mine, *found.candidates))
    # Particles come along the axis of rings, and whichever way their showers lean is chance.
    binning, names = Binning.of(mine.table, events, angles=not found.geometry.rings), ring_labels(found.geometry)
    judged, *previous = (
        Judgement.of(mine, each, paired=paired, binning=binning, grade=grade, seed=seed, ring_names=names)
        for each, paired in zip(found.candidates, found.paired, strict=True)
    )
    rng = np.random.default_rng(seed)
    some = samples(judged.compared, SAMPLE_SHOWERS, rng)
    alike = similarity(some, rng=rng)
    repeating = None
    if found.training is not None:
        repeating, cautions = memorised(found.training, mine.digests, candidate.digests, some, rng=rng)
        judged.cautions.extend(cautions)
    document = {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "verdict": judged.verdict,
        "grade": grade.to_json(),
        "paired": judged.compared.per_event > 0,
        "per_event": judged.compared.per_event,
        "events": {"reference": len(mine.table), "candidate": len(candidate.table)},
        "empty": {"reference": int(mine.table.empty.sum()), "candidate": int(candidate.table.empty.sum())},
        "hard_failures": judged.hard_failures,
        "cautions": judged.cautions,
        "criteria": [criterion.to_json() for criterion in judged.criteria],
        "metric": judged.metric(),
        **alike,
        "memorisation": repeating,
        "resolution": None,
        "incumbent": _challenged(judged, *previous) if previous else None,
        "scalars": judged.scalars() | _scalars(alike),
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
    numbers |= {f"auc_{name}": found["value"] for name, found in alike["classifier"].items()}
    return {name: value for name, value in numbers.items() if value is not None}


def _write_report(document: dict[str, Any], output: Path, some: Samples, found: _Found) -> None:
    """Write `overview.png` and `report.html`; the document gets `resolution` and the report's SHA-256."""
    images: list[plots.Plot] = []
    if len(some.reference) and len(some.candidate):
        summary = summarise(some.reference, some.candidate, found.geometry)
        fits = {side: found.fit(summary.factor) for side, found in summary.resolutions.items()}
        document["resolution"] = fits
        galleries = found.reference.gallery, found.candidates[0].gallery
        images = [
            *plots.draw_all(summary, fits),
            *draw_pairs(*galleries, found.geometry),
        ]
        with storage.replacing(output / OVERVIEW_FILE) as temporary:
            temporary.write_bytes(plots.overview(summary))
    with storage.replacing(output / REPORT_FILE) as temporary:
        temporary.write_text(report.page(document, images), encoding="utf-8")
    document["report_sha256"] = storage.sha256_of_file(output / REPORT_FILE)


def code_version() -> str:
    """The release, and a fingerprint of the code that the verdict depends on, which changes between releases."""
    stage = Path(__file__).parent
    ground = stage.parent / "calopipe"
    own = (each for kind in ("py", "css", "html", "toml") for each in stage.rglob(f"*.{kind}"))
    sources = sorted([*own, *ground.rglob("*.py")])
    contents = storage.fingerprint([path.read_text(encoding="utf-8") for path in sources])
    return f"{importlib.metadata.version('calopipe')}+{contents[:12]}"


def versions() -> dict[str, str]:
    """Of what computed the numbers; they are not part of the request."""
    libraries = {name: importlib.metadata.version(name) for name in ("numpy", "scipy", "scikit-learn", "h5py", "hist")}
    return {"python": platform.python_version()} | libraries


def standing(output: Path, request: str) -> dict[str, Any] | None:
    """The verdict on `request` that is in `output` already, with its report."""
    verdict, page = output / VERDICT_FILE, output / REPORT_FILE
    try:
        document = read_verdict(verdict)
    except ValueError:  # none, or not a valid one: make it anew
        return None
    if document["request"] != request or not page.is_file():
        return None
    return document if storage.sha256_of_file(page) == document.get("report_sha256") else None
