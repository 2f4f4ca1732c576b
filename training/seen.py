"""Which events a model has seen, it or the models whose weights it began with: these cannot judge it.

A model has seen the events it was trained on and those its best epoch was chosen by. Their digests, 8 bytes each,
are beside its weights.
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
from training.folder import SEEN, Card

JUDGES = "test"  # the split that the verdict is on
_LEARNT_FROM = ("train", "validation")


def require_unseen(model: Path, card: Card, judges: Digests, name: str) -> Digests | None:
    """Sorted digests of the events that the model in the folder `model` has seen; None where its `card` knows of none.

    Raises InputError, which calls the model by `name`, if any of the events `judges` is among them.
    """
    if SEEN not in card.files:
        return None
    seen: Digests = np.load(model / SEEN)
    if count := int(np.isin(judges, seen).sum()):
        raise InputError(
            f"{name}: was trained on {count} of the {len(judges)} test events, which then cannot judge; give the files "
            "to the splits as they were in its training (--split-file), or begin anew without this model"
        )
    return seen


def seen_after(dataset: Location, manifest: Manifest, warm_start: Path | None, earlier: Card | None) -> Digests:
    """What a model will have seen that is trained on `dataset`, from the weights in `warm_start`, if one is given.

    Raises InputError where the earlier model has seen test events, or does not say what it has seen.
    """
    own = digests_in(dataset, manifest, _LEARNT_FROM)
    if warm_start is None or earlier is None:
        return own
    name = f"--warm-start {warm_start}"
    before = require_unseen(warm_start, earlier, digests_in(dataset, manifest, [JUDGES]), name)
    if before is None:
        raise InputError(
            f"{name}: was made by a version that did not note which events a model is trained on, and test events may "
            "be among them; train without --warm-start"
        )
    return np.union1d(own, before)


def write_seen(model: Path, digests: Digests) -> None:
    """Put the sorted `digests` into the folder of a model that is being trained."""
    with storage.replacing(model / SEEN) as temporary, temporary.open("wb") as stream:
        np.save(stream, digests)
