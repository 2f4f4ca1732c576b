"""The registry of promoted models: only what a verdict accepted, whole or not at all. No TensorFlow in here."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import h5py

from preprocessing import storage
from preprocessing.errors import InputError
from training import folder
from validation.verdict import REPORT_FILE, VERDICT_FILE, read_verdict

CURRENT = "current.json"
_KIND = "calopipe.registry"
_SCHEMA_VERSION = 1


def promote(model: Path, generated: Path, judgement: Path, registry: Path) -> str:
    """Copy the model in folder `model` to `registry` if `judgement`/verdict.json accepts it; say what was done.

    The verdict must be of the showers in `generated`, and they of this model; InputError otherwise. A promoted model
    stands with its verdict and report in a folder named by both; current.json names the newest.
    """
    card = folder.read_card(model)
    verdict = read_verdict(judgement / VERDICT_FILE)
    _check_chain(card, generated, verdict, judgement / VERDICT_FILE)
    if verdict["verdict"] != "accepted":
        return f"not promoted: the verdict is {verdict['verdict']} (grade {verdict['grade']['name']})"
    name = storage.fingerprint([card.fingerprint(), verdict["request"]])[:16]
    place = registry / name
    if not place.is_dir():
        registry.mkdir(parents=True, exist_ok=True)
        whole = Path(tempfile.mkdtemp(dir=registry, prefix=f".{name}."))
        try:
            for source in [model / folder.CARD, model / folder.HISTORY, *(model / file for file in card.weights)]:
                shutil.copy2(source, whole)
            for file in (VERDICT_FILE, REPORT_FILE):
                shutil.copy2(judgement / file, whole)
            whole.chmod(0o755)
            whole.rename(place)
        finally:
            shutil.rmtree(whole, ignore_errors=True)
    storage.write_json(registry / CURRENT, {"kind": _KIND, "schema_version": _SCHEMA_VERSION, "model": name})
    return f"promoted to {place}"


def _check_chain(card: folder.Card, generated: Path, verdict: dict[str, Any], verdict_path: Path) -> None:
    """The verdict is on these showers against the test split, and these showers are of this model."""
    judged = [file["sha256"] for file in verdict["inputs"]["candidate"]]
    if judged != [storage.sha256_of_file(generated)]:
        raise InputError(f"{verdict_path}: not the verdict on {generated}; validate again")
    if verdict["inputs"]["split"] != "test":
        raise InputError(f"{verdict_path}: of the {verdict['inputs']['split']} split; only the test split judges")
    with h5py.File(generated, "r") as file:
        if file.attrs.get("model") != card.fingerprint():
            raise InputError(f"{generated}: not made by the model that is to be promoted; generate again")
