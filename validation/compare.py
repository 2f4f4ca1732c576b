"""Compare a candidate's showers with Monte Carlo's: the report, and the verdict, which is written last."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from preprocessing import storage
from preprocessing.dataset import CUT_GEV
from preprocessing.errors import require_seed
from preprocessing.flaws import STOP
from preprocessing.splits import SplitRule
from preprocessing.storage import Location
from validation import faults, plots, report
from validation.criteria import Criterion, judge_all, load_grade
from validation.curves import Compared, summarise
from validation.displays import draw_pairs
from validation.measurements import measure
from validation.metric import Profiles, metric
from validation.observables import SCALARS, Observables
from validation.sets import Measured, ShowerSet, measure_set, showers_per_event
from validation.statistics import distances
from validation.verdict import KIND, REPORT_FILE, SCHEMA_VERSION, VERDICT_FILE, overall, read_verdict

_SIDES = ("reference", "candidate")
_BUILT_ON = ("angle.py", "layouts.py", "showers.py", "splits.py")  # of preprocessing
OVERVIEW_FILE = "overview.png"


def validate(
    reference: Sequence[Location],
    candidate: Sequence[Location],
    output: Path,
    *,
    split: str = "all",
    rule: SplitRule | None = None,
    grade: str = "precision",
    cut_gev: float = CUT_GEV,
    geometry: str = "",
    bad_event: str = STOP,
    seed: int = 1,
) -> dict[str, Any]:
    """Judge the showers of `candidate` by those of `reference` that are in `split`, under `grade` (a name or a file).

    Showers of the reference that deposit `cut_gev` or less are left out, as preprocessing leaves them out, and
    corrupt ones where `bad_event` is "skip".

    Writes `report.html`, `overview.png` and, last, `verdict.json` into `output`, and gives back the verdict document.
    Where a verdict on the very same request stands there already, with its report, nothing is computed again.
    InputError: files that cannot be read or compared, an unknown grade, an empty split.
    """
    limits = load_grade(grade)
    require_seed(seed)
    split_rule = rule or SplitRule()
    ours = ShowerSet.open(
        reference, split=split, rule=split_rule, geometry=geometry, cut_gev=cut_gev, bad_event=bad_event
    )
    theirs = ShowerSet.open(candidate, rule=split_rule, geometry=geometry)
    per_event = showers_per_event(ours, theirs)
    inputs: dict[str, Any] = {
        "reference": ours.describe(),
        "candidate": theirs.describe(),
        "split": split,
        "split_files": [list(pair) for pair in split_rule.by_file],
        "cut_gev": cut_gev,
        "bad_event": bad_event,
        "geometry": ours.geometry.to_json(),
        "seed": seed,
        "code_version": code_version(),
    }
    contents = {side: [{**file, "file": Path(file["file"]).name} for file in inputs[side]] for side in _SIDES}
    request = storage.fingerprint({**inputs, **contents, "grade": limits.to_json(), "schema_version": SCHEMA_VERSION})
    if (standing := _standing(output, request)) is not None:
        print(f"verdict stands: {output / VERDICT_FILE} answers this very request; nothing to do")
        return standing

    storage.require_writable(output)  # before the minutes that measuring may take
    mine = measure_set(ours, tolerate_bad_cells=False)
    found = measure_set(theirs, tolerate_bad_cells=True)
    kept, kept_found = _without_empty(mine.observables, found.observables, per_event)
    rng = np.random.default_rng(seed)
    criteria = judge_all(measure(kept, kept_found, per_event=per_event, grade=limits, rng=rng))
    hard_failures = _hard_failures(mine, found)
    cautions = [caution] if (caution := faults.copied(mine.digests, found.digests)) else []
    document = {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "verdict": overall([criterion.verdict for criterion in criteria], hard_failures, cautions),
        "grade": limits.to_json(),
        "paired": per_event > 0,
        "per_event": per_event,
        "events": {"reference": len(ours), "candidate": len(theirs)},
        "empty": {side: int(each.observables.empty.sum()) for side, each in zip(_SIDES, (mine, found), strict=True)},
        "hard_failures": hard_failures,
        "cautions": cautions,
        "criteria": [criterion.to_json() for criterion in criteria],
        "metric": metric(_profiles(mine.observables), _profiles(found.observables)),
        "distances": _distances(kept, kept_found),
        "scalars": _scalars(criteria),
        "inputs": inputs,
        "request": request,
    }
    images: list[plots.Plot] = []
    if len(kept) and len(kept_found):
        summary = summarise(Compared(kept, kept_found, kept, kept_found, ours.geometry))
        images = [*plots.draw_all(summary), *draw_pairs(mine.gallery, found.gallery, ours.geometry)]
        with storage.replacing(output / OVERVIEW_FILE) as temporary:
            temporary.write_bytes(plots.overview(summary))
    with storage.replacing(output / REPORT_FILE) as temporary:
        temporary.write_text(report.page(document, images), encoding="utf-8")
    document["report_sha256"] = storage.sha256_of_file(output / REPORT_FILE)
    storage.write_json(output / VERDICT_FILE, document)
    return document


def code_version() -> str:
    """The release, and a fingerprint of the code that the verdict depends on, which changes between releases."""
    stage = Path(__file__).parent
    sources = [*sorted(stage.glob("*.py")), *(stage.parent / "preprocessing" / name for name in _BUILT_ON)]
    contents = storage.fingerprint([path.read_text(encoding="utf-8") for path in sources])
    return f"{importlib.metadata.version('calopipe')}+{contents[:12]}"


def _standing(output: Path, request: str) -> dict[str, Any] | None:
    """The verdict on `request` that stands in `output` with the report that belongs to it."""
    verdict, page = output / VERDICT_FILE, output / REPORT_FILE
    try:
        document = read_verdict(verdict)
    except ValueError:  # none, or one that this program does not take for a verdict: make it anew
        return None
    whole = page.is_file() and storage.sha256_of_file(page) == document.get("report_sha256")
    return document if whole and document["request"] == request else None


def _without_empty(reference: Observables, candidate: Observables, per_event: int) -> tuple[Observables, Observables]:
    """Showers that have something to average. Of paired sets an event goes with all its showers if one is empty."""
    mine, theirs = ~reference.empty, ~candidate.empty
    if per_event:
        mine = mine & theirs.reshape(-1, per_event).all(axis=1)
        theirs = np.repeat(mine, per_event)
    return reference[mine], candidate[theirs]


def _hard_failures(reference: Measured, candidate: Measured) -> list[dict[str, Any]]:
    tables = reference.observables, candidate.observables
    found = [
        faults.bad_cells(candidate.bad_events, candidate.first_bad, len(candidate.observables)),
        faults.too_many_empty(*tables),
        faults.no_rise_with_energy(*tables),
        faults.repeated(candidate.digests),
    ]
    return [failure for failure in found if failure is not None]


def _profiles(table: Observables) -> Profiles:
    return Profiles(
        table.energy_gev, table.theta_rad, (table.along_x, table.along_y, table.layers), table.index_angle_rad
    )


def _distances(reference: Observables, candidate: Observables) -> dict[str, Any] | None:
    if not len(reference) or not len(candidate):
        return None
    observables = {
        scalar.name: {"label": scalar.label, "unit": scalar.unit}
        | {
            name: {"value": value, "p_value": None, "floor": None}
            for name, value in distances(reference.column(scalar.name), candidate.column(scalar.name)).items()
        }
        for scalar in SCALARS
    }
    return {"observables": observables, "showers": {"reference": len(reference), "candidate": len(candidate)}}


def _scalars(criteria: Sequence[Criterion]) -> dict[str, float]:
    """A few numbers for a user interface to plot: the worst of each kind over all bins."""
    scalars: dict[str, float] = {
        f"criteria_{answer}": float(sum(criterion.verdict == answer for criterion in criteria))
        for answer in ("pass", "fail", "inconclusive")
    }
    known = [criterion for criterion in criteria if math.isfinite(criterion.value)]
    for criterion in sorted(known, key=lambda criterion: criterion.excess):
        scalars[criterion.measurement.key] = criterion.value  # the worst of its kind comes last, and stays
    return scalars
