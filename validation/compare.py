"""Compare a candidate's showers with Monte Carlo's: the report, and the verdict, which is written last."""

from __future__ import annotations

import importlib.metadata
import logging
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calopipe import storage
from calopipe.errors import require_seed
from calopipe.grade import load_grade
from calopipe.progress import say
from calopipe.showers.selection import Selection
from calopipe.showers.splits import ALL
from calopipe.storage import Location
from calopipe.verdict import KIND, REPORT_FILE, SCHEMA_VERSION, VERDICT_FILE, read_verdict, summary_line
from validation.judge import faults
from validation.judge.challenger import against_incumbent
from validation.judge.judgement import Judgement
from validation.judge.similarity import SAMPLE_SHOWERS, memorised, similarity
from validation.measure.reader import open_reader
from validation.measure.sets import COUNT, ShowerSet, pairing, require_comparable, require_one_detector
from validation.measure.table import samples
from validation.report import page as report
from validation.report import plots
from validation.report.curves import Compared, edge_intervals, summarise
from validation.statistics.binning import Binning

logger = logging.getLogger(__name__)

OVERVIEW_FILE = "overview.png"


@dataclass(frozen=True)
class Sets:
    """What is compared: Monte Carlo, the candidate and, where they are given, the incumbent and the showers that the
    candidate's generator was trained on.
    """

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
    fine_classifier: bool = False,
    workers: int = 1,
    seed: int = 1,
) -> dict[str, Any]:
    """Judge the showers of `candidate` by the `selection` of those of `reference`, under `grade` (a name or a file).

    The showers of an `incumbent` are judged beside the candidate's, and the
    two compared. With the `training` showers (those of its `training_split`) it is asked whether the candidate
    repeats them. A `fine_classifier` also tries to tell the sets apart by their cells about the axis. `workers`
    processes read the files.

    Writes `report.html`, `overview.png` and, last, `verdict.json` into `output`, and gives back the verdict document.
    Where a verdict on the very same request stands there already, with its report, nothing is computed again.
    InputError: files that cannot be read or compared, an unknown grade, an empty split.
    """
    limits = load_grade(grade)
    require_seed(seed)
    chosen = selection or Selection()
    counted = replace(chosen, split=ALL, bad_event=COUNT, memory=None)
    learned_from = replace(chosen, split=training_split)
    sets = Sets(
        reference=ShowerSet.open(reference, "Monte Carlo", chosen),
        candidate=ShowerSet.open(candidate, "candidate", counted),
        incumbent=ShowerSet.open(incumbent, "incumbent", counted) if incumbent else None,
        training=ShowerSet.open(training, "training", learned_from) if training else None,
    )
    for other in (sets.candidate, sets.incumbent):
        if other is not None:
            require_comparable(sets.reference, other)
    if sets.training is not None:
        require_one_detector(sets.reference, sets.training)
    inputs: dict[str, Any] = {
        **sets.describe(),
        "split": chosen.split,
        "training_split": training_split,
        "split_files": [list(pair) for pair in chosen.rule.by_file],
        "cut_gev": chosen.cut_gev,
        "bad_event": chosen.bad_event,
        "fine_classifier": fine_classifier,
        "geometry": sets.reference.geometry.to_json(),
        "seed": seed,
        "code_version": code_version(),
    }
    contents = {name: [{**file, "file": Path(file["file"]).name} for file in inputs[name]] for name in vars(sets)}
    request = storage.fingerprint({**inputs, **contents, "grade": limits.to_json(), "schema_version": SCHEMA_VERSION})
    if (standing := _standing(output, request)) is not None:
        say(f"verdict stands: {summary_line(standing)}, {output / VERDICT_FILE}; nothing to do")
        return standing

    storage.require_writable(output)  # before the minutes that measuring may take
    with open_reader(workers) as reader:
        mine = reader.measure(sets.reference, fine=fine_classifier)
        rivals = [each for each in (sets.candidate, sets.incumbent) if each is not None]
        pairs = [pairing(mine.table, each) for each in rivals]  # before the minutes that measuring them may take
        found = [reader.measure(each, fine=fine_classifier and each is sets.candidate) for each in rivals]
        learned = None if sets.training is None else reader.measure(sets.training)
    if hint := faults.another_unit(mine.table, found[0].table):
        logger.warning("%s", hint)
    binning = Binning.of(mine.table, min(len(mine.table), *(len(each.table) for each in found)))
    judged, *previous = (
        Judgement.of(mine, each, paired=paired, binning=binning, grade=limits, seed=seed)
        for each, paired in zip(found, pairs, strict=True)
    )
    rng = np.random.default_rng(seed)
    some = samples(judged.reference, judged.candidate, per_event=judged.per_event, showers=SAMPLE_SHOWERS, rng=rng)
    alike = similarity(*some, rng=rng)
    repeating = None
    if learned is not None:
        repeating, cautions = memorised(learned, mine.digests, found[0].digests, some, rng=rng)
        judged.cautions.extend(cautions)
    document: dict[str, Any] = {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "verdict": judged.verdict,
        "grade": limits.to_json(),
        "paired": judged.per_event > 0,
        "per_event": judged.per_event,
        "events": {"reference": len(mine.table), "candidate": len(found[0].table)},
        "empty": {name: int(each.table.empty.sum()) for name, each in (("reference", mine), ("candidate", found[0]))},
        "hard_failures": judged.hard_failures,
        "cautions": judged.cautions,
        "criteria": [criterion.to_json() for criterion in judged.criteria],
        "metric": judged.metric(),
        **alike,
        "memorisation": repeating,
        "edges": None,
        "incumbent": _challenged(judged, *previous) if previous else None,
        "scalars": judged.scalars() | _scalars(alike),
        "inputs": inputs | {"versions": _versions()},
        "request": request,
    }
    images: list[plots.Plot] = []
    if len(some.reference) and len(some.candidate):
        summary = summarise(
            Compared(judged.reference, judged.candidate, some.reference, some.candidate, sets.reference.geometry)
        )
        document["edges"] = edge_intervals(summary)
        images = [*plots.draw_all(summary), *plots.draw_pairs(mine.gallery, found[0].gallery, sets.reference.geometry)]
        with storage.replacing(output / OVERVIEW_FILE) as temporary:
            temporary.write_bytes(plots.overview(summary))
    with storage.replacing(output / REPORT_FILE) as temporary:
        temporary.write_text(report.page(document, images), encoding="utf-8")
    document["report_sha256"] = storage.sha256_of_file(output / REPORT_FILE)
    storage.write_json(output / VERDICT_FILE, document)
    say(summary_line(document))
    return document


def code_version() -> str:
    """The release, and a fingerprint of the code that the verdict depends on, which changes between releases."""
    stage = Path(__file__).parent
    ground = stage.parent / "calopipe"
    sources = sorted(
        [*stage.rglob("*.py"), *stage.rglob("*.css"), *(ground / "showers").glob("*.py"), *ground.glob("*.py")]
    )
    contents = storage.fingerprint([path.read_text(encoding="utf-8") for path in sources])
    return f"{importlib.metadata.version('calopipe')}+{contents[:12]}"


def _versions() -> dict[str, str]:
    """Of what computed the numbers. Another version of a library is no other request."""
    libraries = {name: importlib.metadata.version(name) for name in ("numpy", "scipy", "scikit-learn", "h5py", "hist")}
    return {"python": platform.python_version()} | libraries


def _standing(output: Path, request: str) -> dict[str, Any] | None:
    """The verdict on `request` that stands in `output` with the report that belongs to it."""
    verdict, page = output / VERDICT_FILE, output / REPORT_FILE
    try:
        document = read_verdict(verdict)
    except ValueError:  # none, or one that this program does not take for a verdict: make it anew
        return None
    whole = page.is_file() and storage.sha256_of_file(page) == document.get("report_sha256")
    return document if whole and document["request"] == request else None


def _challenged(challenger: Judgement, incumbent: Judgement) -> dict[str, Any]:
    """The candidate as a challenger of the incumbent, and the incumbent's own verdict."""
    failures = len(challenger.hard_failures), len(incumbent.hard_failures)
    outcome = against_incumbent(challenger.measurements, incumbent.measurements, hard_failures=failures)
    return outcome | {"verdict": incumbent.verdict, "cautions": incumbent.cautions}


def _scalars(alike: dict[str, Any]) -> dict[str, float]:
    """How alike the sets are, as numbers for a user interface to plot."""
    numbers = {
        "fpd": alike["distances"]["fpd"]["value"],
        "kpd": alike["distances"]["kpd"]["value"],
        **{f"auc_{name}": found["value"] for name, found in alike["classifier"].items()},
    }
    return {name: value for name, value in numbers.items() if value is not None}
