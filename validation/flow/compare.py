"""Compare roll-outs with the solver's simulations: the report, and the verdict, which is written last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calopipe import storage
from calopipe.documents import finite
from calopipe.errors import InputError
from calopipe.flow.files import FlowFile, open_flow
from calopipe.grade import Grade, load_grade
from calopipe.storage import Location
from calopipe.verdict import Comparison, overall
from validation.flow.measurements import Measured, measure
from validation.flow.pairing import Pair, floor_frames, pair_of
from validation.flow.report import page
from validation.judge.answers import Measurement, judge_all, scalars
from validation.judge.faults import Findings, finding
from validation.statistics.estimates import Estimate

# The criteria: each is the mean over simulations of `Measured.values[key]`. Of a target of 0, only an excess counts.
_RULES = {  # key -> name, target, unit
    "strouhal": ("Strouhal number, ratio", 1.0, ""),
    "fluctuation": ("Energy of the fluctuations, ratio", 1.0, ""),
    "kinetic_energy": ("Kinetic energy, ratio", 1.0, ""),
    "divergence": ("Divergence above the solver's", 0.0, ""),
    "spectrum": ("Spectrum, rms difference", 0.0, "decades"),
    "relative_l2": ("Relative L2, first period", 0.0, ""),
}


def validate(
    reference: Sequence[Location],
    candidate: Sequence[Location],
    output: Path,
    *,
    floor: Sequence[Location] = (),
    grade: str = "precision",
) -> dict[str, Any]:
    """Judge the roll-outs `candidate` by the simulations `reference` that they were started from, under `grade`.

    `floor`: runs of the same flows by another solver, or at another resolution. They show how far two solvers are
    from each other. References without a roll-out are left out.

    Writes `report.html` and, last, `verdict.json` into `output`, and returns the verdict document. If the verdict on
    the same request is there already, with its report, nothing is computed again.
    InputError: files that cannot be read or compared, two roll-outs of one simulation, an unknown grade.
    """
    limits = load_grade(grade, "flow")
    sides = {"reference": reference, "candidate": candidate, "floor": floor}
    opened = {side: [open_flow(path) for path in paths] for side, paths in sides.items()}
    inputs: dict[str, Any] = {
        side: [
            {"file": str(file.path), "sha256": storage.sha256_of_file(file.path), "events": len(file.time)}
            for file in files
        ]
        for side, files in opened.items()
    }
    comparison = Comparison(output, limits, inputs)
    if (verdict := comparison.standing()) is not None:
        return verdict

    pairs = _pairs(opened["candidate"], opened["reference"])
    measured = [measure(pair, pair.candidate.path.name, pair.candidate.velocity(0, pair.count)) for pair in pairs]
    floors = _floors(pairs, opened["floor"])
    storage.require_writable(output)  # only now, so that bad input makes no folder
    seen = sum(rollout.start_seen for rollout in opened["candidate"])
    detail = f"{seen} of {len(candidate)} roll-outs start from a simulation that their model was trained on"
    document = _judged(measured, floors, limits, finding("Training simulations", seen, detail))
    return comparison.write(document, lambda whole: page(whole, measured, floors))


def _pairs(candidates: Sequence[FlowFile], references: Sequence[FlowFile]) -> list[Pair]:
    """Each roll-out with its simulation. InputError: two roll-outs of one simulation, which are not independent."""
    pairs: dict[Location, Pair] = {}
    for candidate in candidates:
        pair = pair_of(candidate, references)
        if (first := pairs.setdefault(pair.reference.path, pair)) is not pair:
            raise InputError(
                f"{candidate.path}: a roll-out of {pair.reference.path}, like {first.candidate.path}; give one "
                "roll-out of each simulation, since only such roll-outs are independent"
            )
    return list(pairs.values())


def _floors(pairs: Sequence[Pair], files: Sequence[FlowFile]) -> list[Measured]:
    """Each run of another solver, compared with the simulations of its flow. InputError: a run has no simulation."""
    measured = []
    for file in files:
        frames = [(pair, floor_frames(pair, file)) for pair in pairs]
        of_file = [
            measure(replace(pair, count=len(rollout)), file.path.name, rollout)
            for pair, rollout in frames
            if rollout is not None
        ]
        if not of_file:
            raise InputError(
                f"{file.path}: no compared simulation has the Reynolds number {file.reynolds:g} and the obstacle "
                f"{file.obstacle_d} D of this --floor; leave the file out"
            )
        measured += of_file
    return measured


def _judged(
    measured: Sequence[Measured], floors: Sequence[Measured], grade: Grade, cautions: Findings
) -> dict[str, Any]:
    limit = grade.tolerance["relative_l2"]
    measurements = [
        Measurement(
            name, key, "all", unit, target, grade.tolerance[key],
            (_mean([rollout.values[key] for rollout in measured]),), _floor(floors, key, target),
            side=0 if target else 1,
        )
        for key, (name, target, unit) in _RULES.items()
        if math.isfinite(grade.tolerance[key])
    ]  # fmt: skip
    criteria = judge_all(measurements)
    answers = [criterion.verdict for criterion in criteria]
    return {
        "samples": "simulations",
        "verdict": overall(answers, [], cautions),
        "paired": True,
        "events": {"reference": len(measured), "candidate": len(measured)},
        "hard_failures": [],
        "cautions": cautions,
        "criteria": [criterion.to_json() for criterion in criteria],
        "simulations": [rollout.to_json(limit) for rollout in measured],
        "floors": [floor.to_json(limit) for floor in floors],
        "scalars": scalars(criteria),
    }


def _mean(values: Sequence[float]) -> Estimate:
    """The mean over simulations, each an independent sample. Student's interval needs two simulations."""
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Estimate(float(np.mean(values)), error, len(values), least=2)


def _floor(floors: Sequence[Measured], key: str, target: float) -> dict[str, Any]:
    """The root mean square distance of the other solver from the target."""
    away = [floor.values[key] - target for floor in floors]
    value = finite(math.sqrt(np.mean(np.square(away)))) if away else None
    return {"value": value, "scaled": False, "events": len(away)}
