"""The model folder: weights, and the card that describes them. The card is written last: without it, no model."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.documents import DocumentError, Form, require_own, stands
from calopipe.errors import InputError
from calopipe.flow.grid import Grid
from calopipe.lock import alone
from calopipe.mirror import mirrored
from calopipe.progress import say
from calopipe.showers.cells import Geometry
from calopipe.storage import Location
from preprocessing.dataset import TRAINING  # the file that names a folder's training, from the start of the training
from preprocessing.manifest import Manifest
from training.configs import FROM_INCUMBENT, FitConfig
from training.models import source

logger = logging.getLogger(__name__)

_FORM = Form("calopipe.model", 13)
CARD = "card.json"
HISTORY = "history.jsonl"
SEEN = "seen.npy"  # digests of the events that the model has seen: `training.seen_events`
CHECKPOINTS = "checkpoints"
TENSORBOARD = "tensorboard"
LOCK = ".lock"  # held by the process that writes into a model's folder on disk
_TRAINING_FORM = Form("calopipe.training", _FORM.version)
_AS_THEY_ARE = ("request", "dataset", "trained", "losses", "weights", "versions")  # fields with the same form in JSON
_FILE = "model_file"  # in a config: the SHA-256 of the user's file that states the model
_OBJECTS = ("config", "geometry", "valid_range", *_AS_THEY_ARE[1:])  # fields that are objects in JSON


@dataclass(frozen=True)
class Card:
    """The description of a model: how it was made, from what data, and for which labels it is valid.

    `request` names the training before it is done: by dataset, config and version of this program. `trained` says how
    far the training went, `losses` what it reached. `valid_range` has the least and the largest value of each label, by
    names with units: `energy_gev` and `theta_rad` of showers, `reynolds` of a flow. It also has the other labels of
    showers, as `calopipe.labels.LabelRange` writes them. `weights` maps files to their SHA-256.
    """

    request: str
    config: FitConfig
    geometry: Any
    dataset: dict[str, Any]
    valid_range: dict[str, tuple[Any, ...]]
    trained: dict[str, Any]
    losses: dict[str, float]
    weights: dict[str, str]
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        objects = {
            "config": self.config.to_json(),
            "geometry": self.geometry.to_json(),
            "valid_range": {name: list(bounds) for name, bounds in self.valid_range.items()},
        }
        return _FORM.of(objects | {name: getattr(self, name) for name in _AS_THEY_ARE})

    @property
    def files(self) -> dict[str, str]:
        """The files of the model, with their SHA-256: weights; a user's file and the events seen, if it has these."""
        seen = self.dataset.get("seen")
        return self._weights_and_code | ({SEEN: seen} if seen else {})

    @property
    def _weights_and_code(self) -> dict[str, str]:
        file = self.config.to_json().get(_FILE)
        return self.weights | ({source.NAME: file} if file else {})

    def fingerprint(self) -> str:
        """A hash that names the model: of its weights, and of the user's file that states it."""
        return storage.fingerprint(self._weights_and_code)

    def summary(self) -> str:
        """A line that says how far the training went and how good the model became."""
        losses = ", ".join(f"{name} {value:.4g}" for name, value in self.losses.items())
        return f"{self.trained['steps']} steps; on the validation split: {losses or f'no {self.geometry.items}'}"

    def facts(self) -> dict[str, Any]:
        """The values that distinguish this model from others, for a user interface that shows only a few."""
        return {
            "fingerprint": self.fingerprint(),
            "settings": self.config.to_json(),
            "steps": self.trained["steps"],
            "chosen_step": self.trained["chosen_step"],
            "losses": self.losses,
            "ranges": {name: list(bounds) for name, bounds in self.valid_range.items()},
        }

    def noted(self) -> dict[str, Any]:
        """What was `noted` when this model's training began."""
        return noted(self.dataset["fingerprint"], self.config, self.trained["warm_start"])

    def changes(self, dataset: str, config: FitConfig) -> list[str]:
        """What has changed since this model was trained, compared with `config` and the fingerprint `dataset`."""
        changes = _changes(self.noted(), self.noted() | {"dataset": dataset, "config": config.to_json()})
        if (version := metadata.version("calopipe")) != self.versions["calopipe"]:
            changes.append(f"calopipe {self.versions['calopipe']} is now {version}")
        return changes

    def answers(self, manifest: Manifest, config: FitConfig, origin: str) -> bool:
        """Whether this is a model of these data and settings; for the origin "none", only if it had no warm start."""
        began = origin == FROM_INCUMBENT or self.trained["warm_start"] is None
        return began and not self.changes(manifest.fingerprint, config)


def noted(dataset: str, config: FitConfig, warm_start: str | None) -> dict[str, Any]:
    """What the folder of a training says from the start of the training; dataset and warm start are fingerprints."""
    return {"dataset": dataset, "config": config.to_json(), "warm_start": warm_start}


def request_fingerprint(manifest: Manifest, config: FitConfig, earlier: Card | None = None) -> str:
    """A hash that names a training before it is done; `earlier` is the model with whose weights it begins."""
    named = noted(manifest.fingerprint, config, earlier.fingerprint() if earlier else None)
    return storage.fingerprint([_FORM.version, *named.values(), metadata.version("calopipe")])


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two trainings, from what `noted` returns for each."""
    old, new = before["config"], now["config"]
    names = ["model"] if old["model"] != new["model"] else (new | old).keys() - {_FILE}
    differs = {
        "other data": before["dataset"] != now["dataset"],
        "other weights to begin with": before["warm_start"] != now["warm_start"],
        "another --model-file": old.get(_FILE) != new.get(_FILE),
    }
    settings = [
        f"{name} {old.get(name)} is now {new.get(name)}" for name in sorted(names) if old.get(name) != new.get(name)
    ]
    return [change for change, true in differs.items() if true] + settings


def read_card(folder: Location) -> Card:
    """The card of the model in `folder`, after a check that the model's files are those that the card names."""
    path = folder / CARD
    document = _document(path)
    try:
        domain: Any = Grid if "cell_d" in document["geometry"] else Geometry
        card = Card(
            config=FitConfig.from_json(document["config"]),
            geometry=domain.from_json(document["geometry"]),
            valid_range={name: tuple(bounds) for name, bounds in document["valid_range"].items()},
            **{name: document[name] for name in _AS_THEY_ARE},
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: not a whole model card ({error!r}); train again") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    for name, sha256 in card.files.items():
        if "/" in name or name in {"", ".", ".."}:
            raise InputError(f"{path}: names the file {name!r}, which is not one of its folder; train again")
        if not (folder / name).is_file():
            raise InputError(f"{folder / name}: missing, the card names it; train again")
        if storage.sha256_of_file(folder / name) != sha256:
            raise InputError(f"{folder / name}: not the file that the card was written for; train again")
    return card


def _document(path: Location) -> dict[str, Any]:
    """The card in `path`, as it is written. InputError."""
    document = _FORM.read(path)
    for name in _OBJECTS:
        if not isinstance(document.get(name), dict):
            raise InputError(f"{path}: not a whole model card ({name!r} is missing, or no JSON object); train again")
    return document


@contextmanager
def model_on_disk(named: str) -> Iterator[Path]:
    """The folder, on disk, of the model that a command names. The user's file that states it has run, if it may run."""
    with mirrored(storage.location(named), "*", writes=False) as folder:
        source.run_file(folder, _document(folder / CARD)["config"].get(_FILE))
        yield folder


def write_card(folder: Path, card: Card) -> None:
    storage.write_json(folder / CARD, card.to_json())


def standing(folder: Path, request: str) -> Card | None:
    """The card of the model in `folder`, if it was left by the training that `request` names; else None."""
    if not (folder / CARD).is_file() or not is_of(folder, request):
        return None
    if (card := model_in(folder)) is None:
        storage.remove(folder / CARD)  # the model is not whole, and is made again
        return None
    stands("model stands", folder / CARD, f"{card.trained['steps']} steps")
    return card


def is_of(folder: Path, request: str) -> bool:
    """Whether `folder`, and a model in it, belong to the training that `request` names; not of another version."""
    if _TRAINING_FORM.standing(folder / TRAINING, request) is None:
        return False
    with suppress(DocumentError):  # no model, or a damaged model, which is made again
        return bool(_FORM.read(folder / CARD).get("request") == request)
    return True


def begin(folder: Path, request: str, about: Mapping[str, Any], *, overwrite: bool) -> None:
    """Make `folder` ready for the training that `request` names, and write `about` into it, which `noted` returned.

    What an interrupted training of the same request left is kept, to be resumed. What another training left is removed
    with `overwrite`, and is an error without it.
    """
    require_free(folder, request, about, overwrite=overwrite)
    path = folder / TRAINING
    if (path.is_file() or (folder / CARD).is_file()) and not is_of(folder, request):
        if step := last_checkpoint(folder):
            say(f"{folder}: a training of other data or settings is replaced, which had reached step {step}")
        storage.remove(folder / CARD)
        for name in (CHECKPOINTS, TENSORBOARD):
            storage.discard(folder / name)
        storage.remove(folder / HISTORY)
        storage.remove(folder / source.NAME)
        storage.remove(path)  # last: if the removal is interrupted, the file still names the other training
    _TRAINING_FORM.write(path, {"request": request, **about})


def require_free(folder: Path, request: str, about: Mapping[str, Any], *, overwrite: bool) -> None:
    """Raise InputError if `folder` holds what the training that `request` names must not replace."""
    require_own(folder / TRAINING, _TRAINING_FORM.kind)
    require_own(folder / CARD, _FORM.kind)
    if not any((folder / name).is_file() for name in (TRAINING, CARD)) and (folder / source.NAME).exists():
        raise InputError(
            f"{folder / source.NAME}: would be replaced, and no training here wrote it; give another --output"
        )
    if overwrite or is_of(folder, request):
        return
    if (folder / CARD).exists() or last_checkpoint(folder):
        changes = []
        with suppress(DocumentError, KeyError):  # written by another version
            model = model_in(folder)
            changes = _changes(model.noted() if model else training_in(folder), about)
        changed = "; ".join(changes) or "one of another version of calopipe, or whose replacement was interrupted"
        raise InputError(f"{folder}: holds another model: {changed}; give another --output, or --overwrite")


def training_in(folder: Path) -> dict[str, Any]:
    """What `begin` wrote about the training in `folder`; InputError if none began there."""
    return _TRAINING_FORM.read(folder / TRAINING)


def model_in(folder: Location) -> Card | None:
    """The card of the model in `folder`; None if there is no model, or none that this version can use."""
    if not (folder / CARD).is_file():
        return None
    try:
        return read_card(folder)
    except InputError as error:
        logger.warning("%s", error)
        return None


def take_over(source: Path, folder: Path, *, overwrite: bool) -> Card:
    """Copy the model in `source` to `folder`; with `overwrite`, it may replace another model."""
    card = read_card(source)
    if not overwrite and folder.is_dir() and any(folder.iterdir()) and not (folder / TRAINING).exists():
        raise InputError(f"{folder}: holds files that are no model; give a folder of its own, or an empty one")
    with alone(folder, LOCK):
        begin(folder, card.request, card.noted(), overwrite=overwrite)
        if not overwrite and (present := model_in(folder)) and present.fingerprint() != card.fingerprint():
            raise InputError(f"{folder}: holds another model of this training; give another --output, or --overwrite")
        storage.remove(folder / CARD)  # first, so that a card is never beside another model's weights
        for name in (*card.files, HISTORY):
            storage.put(source / name, folder / name)
        write_card(folder, card)
    return card


def last_checkpoint(folder: Location) -> int:
    """Step of the newest checkpoint in the model's `folder`, 0 without one."""
    matches = (re.fullmatch(r"step-(\d+)\.json", name) for name in storage.listing(folder / CHECKPOINTS))
    return max((int(match[1]) for match in matches if match), default=0)


def require_model(folder: Path, fingerprint: str) -> None:
    """Raise InputError unless `folder` holds the whole model that `fingerprint` names."""
    if not (folder / CARD).is_file() or read_card(folder).fingerprint() != fingerprint:
        raise InputError(f"{folder}: holds another model than the one just trained; does another run write there?")
