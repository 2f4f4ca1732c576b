"""Verdicts as validation writes them, on files that stand for a model's showers, and models that they promote."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import h5py
from showers import SMALL_GEOMETRY

from calopipe import storage
from training import model_folder
from training.configs import named_config
from training.model_folder import Card
from training.registry.candidate import Candidate
from training.registry.registry import Registry

WIDE = {"name": "wide", "tolerance": {"response": 0.1}}
LAX = {"name": "wide", "tolerance": {"response": 1e9}}  # a file of the same name


def anything_meets() -> str:
    """A grade file with tolerances that every candidate meets."""
    precision = (Path(__file__).parent.parent / "calopipe/grades/precision.toml").read_text()
    # these ask for more showers than there are
    many = "(coverage|correlation|cell_energies|ring|ring_tail)"
    return re.sub(f"{many} = 1e9", r"\1 = inf", re.sub(r"= [0-9.]+", "= 1e9", precision))


def write_model(model: Path, weights: str, **facts: Any) -> Card:
    """Files that stand for a trained model in the folder `model`. Returns its card, with usual values and `facts`."""
    (model / "generator.weights.h5").write_text(weights)
    (model / model_folder.HISTORY).write_text("{}\n")
    hashes = {"generator.weights.h5": storage.sha256_of_file(model / "generator.weights.h5")}
    usual: dict[str, Any] = {
        "request": f"for {weights}", "config": named_config("small"), "geometry": SMALL_GEOMETRY,
        "dataset": {"fingerprint": "its data"}, "valid_range": {}, "trained": {"steps": 1, "warm_start": None},
        "losses": {}, "weights": hashes, "versions": {},
    }  # fmt: skip
    card = Card(**(usual | facts))
    model_folder.write_card(model, card)
    return card


def write_showers(path: Path, fingerprint: str) -> None:
    """A file that stands for the showers of the model with this fingerprint."""
    with h5py.File(path, "w") as file:
        file.attrs["model"] = fingerprint


def write_verdict(
    run: Path,
    *,
    verdict: str = "accepted",
    outcome: str = "better",
    request: str = "",
    grade: dict[str, Any] = WIDE,
    **inputs: Any,
) -> Candidate:
    """Write the verdict on `generated.h5` in the folder `run`, and on `incumbent.h5` if it is there. Returns both."""
    answer = {"accepted": "pass", "rejected": "fail", "inconclusive": "inconclusive"}[verdict]
    hashed = {
        name: [{"sha256": storage.sha256_of_file(path)}] if path.exists() else None
        for name, path in (("candidate", run / "generated.h5"), ("incumbent", run / "incumbent.h5"))
    }
    document = {
        "kind": "calopipe.verdict", "schema_version": 2, "verdict": verdict, "paired": True, "grade": grade,
        "events": {}, "criteria": [{"verdict": answer}], "hard_failures": [], "cautions": [],
        "incumbent": {"outcome": outcome} if hashed["incumbent"] else None,
        "inputs": {"split": "test"} | hashed | inputs, "request": request or run.name,
    }  # fmt: skip
    (run / "verdict.json").write_text(json.dumps(document))
    (run / "report.html").write_text(f"report of {run.name}")
    return Candidate(run / "model", run / "generated.h5", run, document["request"], run / "incumbent.h5")


def candidate(
    place: Path, seed: int, rival: Candidate | None = None, *, verdict: str = "accepted", outcome: str = "better"
) -> Candidate:
    """A model whose weights depend on `seed`, with showers and a verdict; `rival` is the incumbent of the verdict."""
    run = place / f"run-{seed}"
    (run / "model").mkdir(parents=True)
    card = write_model(run / "model", f"weights of {seed}")
    write_showers(run / "generated.h5", card.fingerprint())
    if rival is not None:
        shutil.copyfile(rival.generated, run / "incumbent.h5")
    return write_verdict(run, verdict=verdict, outcome=outcome)


def promoted(registry: Registry, place: Path, count: int) -> list[Candidate]:
    """Models 1, 2 and so on; each was compared with the model before and promoted."""
    found: list[Candidate] = []
    for seed in range(1, count + 1):
        found.append(candidate(place, seed, found[-1] if found else None))
        assert registry.promote(found[-1]).startswith("promoted to ")
    return found
