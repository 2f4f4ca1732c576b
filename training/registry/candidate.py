"""What may be promoted: a model, its showers, and the verdict on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from calopipe import storage
from calopipe.errors import InputError
from calopipe.verdict import VERDICT_FILE, WORSE
from training.model_folder import Card


@dataclass(frozen=True)
class Candidate:
    """The folder of a model, the file of its showers, and the folder of the verdict on them.

    `verdict_id` is the `request` of that verdict, by which another run's verdict is recognised. `incumbent` is the file
    of the incumbent's showers; it exists if the verdict compares candidate and incumbent.
    """

    model: Path
    generated: Path
    judgement: Path
    verdict_id: str
    incumbent: Path

    def check(self, card: Card, verdict: dict[str, Any]) -> None:
        """Raise InputError unless the verdict is on these showers and the test split, and the model made these."""
        path = self.judgement / VERDICT_FILE
        if verdict["request"] != self.verdict_id:
            raise InputError(f"{path}: another verdict than the one just given; does another run write there?")
        judged = [file["sha256"] for file in verdict["inputs"]["candidate"]]
        if judged != [storage.sha256_of_file(self.generated)]:
            raise InputError(f"{path}: not the verdict on {self.generated}; validate again")
        if verdict["inputs"]["split"] != "test":
            raise InputError(f"{path}: of the {verdict['inputs']['split']} split; only the test split judges")
        if _model_of(self.generated) != card.fingerprint():
            raise InputError(f"{self.generated}: not made by the model that is to be promoted; generate again")

    def defeat(self, name: str, fingerprint: str, verdict: dict[str, Any]) -> str | None:
        """Why the candidate may not replace the current model, of this `name` and `fingerprint`; None if it may."""
        judged = [file["sha256"] for file in verdict["inputs"].get("incumbent") or ()]
        present = [storage.sha256_of_file(self.incumbent)] if self.incumbent.is_file() else []
        if not judged or judged != present or _model_of(self.incumbent) != fingerprint:
            return f"the verdict does not compare it with {name}, the current model by now; run again"
        return f"it is worse than {name}, the current model" if verdict["incumbent"]["outcome"] == WORSE else None


def pin(grade: dict[str, Any]) -> str:
    """The name of a verdict's grade with the hash of its tolerances, since grades of one name can differ."""
    return f"{grade['name']} {storage.fingerprint(grade['tolerance'])[:16]}"


def content(pinned: str) -> str:
    """The hash in `pinned`, which `pin` returned."""
    return pinned.rpartition(" ")[2]


def _model_of(showers: Path) -> Any:
    """The fingerprint of the model that made the showers in the file `showers`."""
    with h5py.File(showers, "r") as file:
        return file.attrs.get("model")
