"""What is to be promoted: a model, the showers it was judged by, and the verdict on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py

from calopipe import storage
from calopipe.errors import InputError
from calopipe.verdict import VERDICT_FILE, WORSE
from training.folder import Card


@dataclass(frozen=True)
class Candidate:
    """What is to be promoted: a model's folder, the showers it was judged by, the folder of the verdict.

    `request` is what the verdict must answer, so that it is not another run's. `rival` is where the showers of the
    incumbent are that the verdict compares it with, if there was one.
    """

    model: Path
    generated: Path
    judgement: Path
    request: str
    rival: Path

    def check(self, card: Card, verdict: dict[str, Any]) -> None:
        """Raise InputError unless the verdict is on these showers against the test split, and they are of the model."""
        path = self.judgement / VERDICT_FILE
        if verdict["request"] != self.request:
            raise InputError(f"{path}: another verdict than the one just given; does another run write there?")
        judged = [file["sha256"] for file in verdict["inputs"]["candidate"]]
        if judged != [storage.sha256_of_file(self.generated)]:
            raise InputError(f"{path}: not the verdict on {self.generated}; validate again")
        if verdict["inputs"]["split"] != "test":
            raise InputError(f"{path}: of the {verdict['inputs']['split']} split; only the test split judges")
        if _model_of(self.generated) != card.fingerprint():
            raise InputError(f"{self.generated}: not made by the model that is to be promoted; generate again")

    def defeat(self, name: str, fingerprint: str, verdict: dict[str, Any]) -> str | None:
        """Why the verdict does not let it take the place of the current model, of this name; None if it does."""
        judged = [file["sha256"] for file in verdict["inputs"].get("incumbent") or ()]
        at_hand = [storage.sha256_of_file(self.rival)] if self.rival.is_file() else []
        if not judged or judged != at_hand or _model_of(self.rival) != fingerprint:
            return f"the verdict does not compare it with {name}, the current model by now; run again"
        return f"it is worse than {name}, the current model" if verdict["incumbent"]["outcome"] == WORSE else None


def pin(grade: dict[str, Any]) -> str:
    """A verdict's grade by its name and, since files of one name differ, by the hash of its tolerances."""
    return f"{grade['name']} {storage.fingerprint(grade['tolerance'])[:16]}"


def content(pinned: str) -> str:
    """Of what `pin` writes, the hash."""
    return pinned.rpartition(" ")[2]


def _model_of(showers: Path) -> Any:
    """The fingerprint of the model that made the showers in a file."""
    with h5py.File(showers, "r") as file:
        return file.attrs.get("model")
