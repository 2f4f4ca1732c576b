"""The registry of promoted models: models that a verdict accepted, one after the other, with their history.

A promotion is a numbered document. The document with the highest number names the current model. Documents are never
changed, so the history cannot be rewritten. If two runs promote at once, only one can create the next number. The
models are stored beside the documents, under names made from their content. The grade of the first model is the
registry's grade: a model that was accepted under other tolerances is not promoted. The registry is a folder or a gs://
address. No TensorFlow in here.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.documents import DocumentError, Form
from calopipe.errors import InputError
from calopipe.mirror import mirrored
from calopipe.storage import Location
from calopipe.verdict import REPORT_FILE, VERDICT_FILE, read_verdict
from training import model_folder
from training.model_folder import CARD, HISTORY, Card
from training.registry.candidate import Candidate, content, pin

PROMOTED, ROLLED_BACK, REGRADED = "promoted", "rolled back", "grade changed"
_FORM = Form("calopipe.promotion", 1)
_PROMOTIONS, _MODELS = "promotions", "models"
_NUMBERED = re.compile(r"\d{6}\.json")


@dataclass(frozen=True)
class Promotion:
    """A change of the registry: a model became the current one, or from now on another grade is required.

    `model` is the name of the current model in the registry, and `fingerprint` that of the model. `replaced` names the
    model that was current before, None for the first. `why` is PROMOTED, ROLLED_BACK or REGRADED, `at` a time in UTC,
    `id` unique. `grade`, as `pin` writes it, is the grade under which the next model must be accepted.
    """

    number: int
    model: str
    fingerprint: str
    replaced: str | None
    why: str
    at: str
    id: str
    grade: str


@dataclass(frozen=True)
class Registry:
    """The promoted models at `place`, which need not exist yet."""

    place: Location

    def require_usable(self) -> None:
        """Raise InputError or OSError if it is clear, without writing anything, that no model can be promoted here."""
        self.current()
        place = self.place
        if isinstance(place, Path):
            if place.exists() and not place.is_dir():
                raise InputError(f"--registry {place}: a file, not a folder; give another")
            existing = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
            if not os.access(existing, os.W_OK | os.X_OK):
                raise InputError(f"--registry {place}: {existing} cannot be written; give another")

    def history(self) -> list[Promotion]:
        """All promotions, the oldest first."""
        return storage.at_once(self._read, self._names())

    def current(self) -> Promotion | None:
        """The promotion of the model that is in use; None before the first."""
        names = self._names()
        return self._read(names[-1]) if names else None

    def in_use(self) -> str:
        """A line with the current model, since when it is in use, and its grade, if another grade is required now.

        Empty before the first promotion.
        """
        history = self.history()
        if not history:
            return ""
        current = history[-1]
        began = next(entry for entry in reversed(history) if entry.why != REGRADED)
        grade = next(
            entry.grade for entry in reversed(history) if (entry.model, entry.why) == (current.model, PROMOTED)
        )
        other = f" (accepted under the grade {grade})" if content(grade) != content(current.grade) else ""
        return f"{current.model}, since {began.at}{other}"

    def _names(self) -> list[str]:
        return sorted(filter(_NUMBERED.fullmatch, storage.listing(self.place / _PROMOTIONS)))

    def incumbent(self, challenger: str | None = None) -> Promotion | None:
        """The promotion of the model that the model with the fingerprint `challenger` has to beat: the current model.

        If the challenger is the current model itself, it is the model that the challenger replaced when it was
        promoted. So a repeated run is judged against the same model as before.
        """
        history = self.history()
        if not history or history[-1].fingerprint != challenger:
            return history[-1] if history else None
        promoted = [i for i, entry in enumerate(history) if entry.fingerprint == challenger and entry.why == PROMOTED]
        return history[promoted[-1] - 1] if promoted[-1] else None

    def withdrawn(self) -> dict[str, Promotion]:
        """The rollbacks that took models out of use, by the fingerprint of the model that each took out of use."""
        withdrawn: dict[str, Promotion] = {}
        for before, entry in pairwise(self.history()):
            withdrawn.pop(entry.fingerprint, None)
            if entry.why == ROLLED_BACK:
                withdrawn[before.fingerprint] = entry
        return withdrawn

    def regrade(self, grade: dict[str, Any]) -> Promotion:
        """Require another `grade`, a verdict's, from now on; the current model stays. InputError without a model."""
        current = self.current()
        if current is None:
            raise InputError(f"{self.place}: no model was promoted there yet; the first one brings its grade")
        return self._require_first(self._append(current, current.model, current.fingerprint, REGRADED, pin(grade)))

    def fetch(self, promotion: Promotion, to: Path, *, overwrite: bool = True, unread: bool = True) -> Card:
        """Copy a promoted model to the folder `to`, unless it is there already; returns the model's card.

        InputError: another model or training is in `to`, and `overwrite` is false; or a user's file states the model,
        this process was not given the file, and `unread` is false. In `to` that file would run, so this is checked
        before it is copied.
        """
        present = model_folder.model_in(to)
        if present is not None and present.fingerprint() == promotion.fingerprint:
            self._require_read(present, unread)
            return present
        with self._local(promotion) as (model, card):
            self._require_read(card, unread)
            return model_folder.take_over(model, to, overwrite=overwrite)

    def _require_read(self, card: Card, unread: bool) -> None:
        if not unread:
            card.config.require_read(f"--registry {self.place}: its current model", "give another --registry")

    @contextmanager
    def _local(self, promotion: Promotion) -> Iterator[tuple[Path, Card]]:
        """A promoted model's folder on a local disk, and its card. InputError: damaged, or of another version."""
        source = self.place / _MODELS / promotion.model
        with mirrored(source, "*", writes=False) as local:
            if not (local / CARD).is_file():
                raise InputError(f"{source}: the promoted model is not there, or not whole; roll back to another")
            try:
                card = model_folder.read_card(local)
            except DocumentError:
                raise InputError(
                    f"{source}: a model of another version of calopipe, which can neither be trained from nor compared "
                    "with; give another --registry"
                ) from None
            yield local, card

    def promote(self, candidate: Candidate) -> str:
        """Make the candidate the current model if its verdict accepts it and finds it no worse. Returns what was done.

        The verdict must be on the candidate's showers, the showers must be made by its model, and the verdict must
        compare it with the current model of this registry. InputError if these files contradict each other. A model
        that was rolled back is not promoted again. If several runs promote at once, one succeeds.
        """
        card = model_folder.read_card(candidate.model)
        verdict = read_verdict(candidate.judgement / VERDICT_FILE)
        candidate.check(card, verdict)
        current = self.current()
        if current is not None and current.fingerprint == card.fingerprint():
            return _stands(current) + ("" if verdict["verdict"] == "accepted" else f"; by now {_judged(verdict)}")
        if (refusal := self._refusal(current, card, candidate, verdict)) is not None:
            return f"not promoted: {refusal}"
        name = storage.fingerprint([card.fingerprint(), verdict["request"]])[:16]
        self._store(candidate, name, card)
        needed = current.grade if current else pin(verdict["grade"])
        if self._append(current, name, card.fingerprint(), PROMOTED, needed) is not None:
            return f"promoted to {self.place / _MODELS / name}"
        winner = self.current()
        if winner is not None and winner.fingerprint == card.fingerprint():  # the same step, started twice
            return _stands(winner)
        return "not promoted: another run promoted a model at the same time; run again, against that one"

    def rollback(self, to: str | None = None) -> Promotion:
        """Make an earlier model current again: `to`, or the one that was in use before the current one was promoted.

        InputError if there is no such model.
        """
        history = self.history()
        if not history:
            raise InputError(f"{self.place}: no model was promoted there yet; nothing to roll back")
        current, away = history[-1], self.withdrawn()
        past = [entry for entry in history if entry.fingerprint != current.fingerprint]
        began = max(entry.number for entry in history if (entry.model, entry.why) == (current.model, PROMOTED))
        # the newest earlier model that was not rolled back; later ones were skipped by an earlier `--to`
        earlier = [entry for entry in past if entry.number < began and entry.fingerprint not in away]
        chosen = [entry for entry in past if entry.model == to] if to else earlier
        if not chosen:
            past_models = ", ".join(dict.fromkeys(entry.model for entry in past)) or "none"
            raise InputError(
                f"{self.place}: "
                + (f"no earlier model {to!r}" if to else "no earlier model is left")
                + f" to roll back to; known besides the current {current.model}, for --to: {past_models}"
            )
        target = chosen[-1]
        with self._local(target):  # a damaged model is not brought back
            done = self._append(current, target.model, target.fingerprint, ROLLED_BACK, current.grade)
        return self._require_first(done)

    def _require_first(self, done: Promotion | None) -> Promotion:
        if done is None:
            raise InputError(f"{self.place}: a model was promoted at the same time; look at the history, and try again")
        return done

    def _read(self, name: str) -> Promotion:
        path = self.place / _PROMOTIONS / name
        document = _FORM.read(path)
        try:
            return Promotion(**{key: value for key, value in document.items() if key not in {"kind", "schema_version"}})
        except TypeError as error:
            raise InputError(
                f"{path}: not a whole {_FORM.kind} ({error}); restore it, or use another registry"
            ) from None

    def _refusal(
        self, current: Promotion | None, card: Card, candidate: Candidate, verdict: dict[str, Any]
    ) -> str | None:
        """Why the candidate does not replace the `current` model; None if it does."""
        if verdict["verdict"] != "accepted":
            return _judged(verdict)
        if rollback := self.withdrawn().get(card.fingerprint()):
            return (
                f"this model was rolled back on {rollback.at}; to bring it back, run "
                f"python -m training rollback --registry {self.place} --to {rollback.replaced}"
            )
        if current is None:
            return None
        needed, used = current.grade, pin(verdict["grade"])
        if content(needed) != content(used):
            return (
                f"it was accepted under the grade {used}, and this registry asks for {needed}; to change that, run "
                f"python -m training regrade --registry {self.place} --grade {used.rpartition(' ')[0]}"
            )
        return candidate.defeat(current.model, current.fingerprint, verdict)

    def _store(self, candidate: Candidate, name: str, card: Card) -> None:
        """Copy the model with its verdict under `name`, the card last."""
        files = [candidate.model / name for name in (*card.files, HISTORY)]
        files += [candidate.judgement / VERDICT_FILE, candidate.judgement / REPORT_FILE, candidate.model / CARD]
        for file in files:
            storage.put(file, self.place / _MODELS / name / file.name)

    def _append(
        self, current: Promotion | None, model: str, fingerprint: str, why: str, grade: str
    ) -> Promotion | None:
        """Write the promotion after `current` and return it; None if another run was faster."""
        promotion = Promotion(
            number=current.number + 1 if current else 1,
            model=model,
            fingerprint=fingerprint,
            replaced=current.model if current else None,
            why=why,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            id=uuid.uuid4().hex,
            grade=grade,
        )
        path = self.place / _PROMOTIONS / f"{promotion.number:06d}.json"
        return promotion if storage.create_json(path, _FORM.of(asdict(promotion))) else None


def _stands(current: Promotion) -> str:
    return f"promotion stands: {current.model} is the current model, promotion {current.number}"


def _judged(verdict: dict[str, Any]) -> str:
    return f"the verdict is {verdict['verdict']} (grade {verdict['grade']['name']})"
