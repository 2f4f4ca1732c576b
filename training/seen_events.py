"""Which events a model has seen: events that a model has seen cannot judge it.

A model has seen the events that it was trained on, the events by which its best epoch was chosen, and those that the
model whose weights it began with has seen. Their digests, 8 bytes each, are stored beside its weights.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.splits import Digests
from calopipe.storage import Location
from preprocessing.events import digests_in
from preprocessing.manifest import Manifest
from training.model_folder import SEEN, Card

JUDGES = "test"  # the split for the verdict
_LEARNT_FROM = ("train", "validation")


def require_unseen(model: Path, card: Card, judges: Digests, name: str) -> Digests:
    """Sorted digests of the events that the model of `card` in the folder `model` has seen.

    Raises InputError, which calls the model `name`, if it has seen any of the events `judges`, or if its card does not
    say what it has seen.
    """
    if SEEN not in card.files:
        raise InputError(f"{name}: does not say which events it was trained on; train it again")
    seen: Digests = np.load(model / SEEN)
    if count := int(np.isin(judges, seen).sum()):
        raise InputError(
            f"{name}: was trained on {count} of the {len(judges)} test events, which then cannot judge; give the files "
            "to the splits as they were in its training (--split-file), or begin anew without this model"
        )
    return seen


def seen_after(dataset: Location, manifest: Manifest, warm_start: Path | None, earlier: Card | None) -> Digests:
    """The digests of what a model has seen after a training on `dataset`, from the weights in `warm_start`, if given.

    Raises InputError if the earlier model has seen test events.
    """
    own = digests_in(dataset, manifest, _LEARNT_FROM)
    if warm_start is None or earlier is None:
        return own
    judges = digests_in(dataset, manifest, [JUDGES])
    before = require_unseen(warm_start, earlier, judges, f"--warm-start {warm_start}")
    return np.union1d(own, before)


def write_seen(model: Path, digests: Digests) -> None:
    """Put the sorted `digests` into the folder of a model that is being trained."""
    with storage.replacing(model / SEEN) as temporary, temporary.open("wb") as stream:
        np.save(stream, digests)
