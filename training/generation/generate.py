"""Showers from a trained model, in the layout and units of the Monte Carlo files whose labels they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from calopipe import storage
from calopipe.documents import stands
from calopipe.errors import InputError, require_least, require_seed
from calopipe.events.tolerance import SKIP, STOP
from calopipe.lock import alone
from calopipe.mirror import address
from calopipe.progress import say
from calopipe.showers.files import CUT, MADE_BY, REQUEST, open_showers
from calopipe.showers.selection import Selection
from calopipe.storage import Location
from preprocessing.manifest import SCHEMA_VERSION
from training import model_folder
from training.generation.conditions import Conditions, Events, LabelsAlone
from training.generation.generator import Generator
from training.generation.part_files import Parts, Share
from training.model_folder import Card
from training.seen_events import JUDGES, require_unseen

EXTRAPOLATE = "extrapolate"  # another choice than STOP and SKIP


def generate(
    model: Path,
    conditions: Conditions | LabelsAlone,
    output: Path,
    *,
    per_event: int = 1,
    seed: int = 1,
    share: Share | None = None,
    outside: str = STOP,
    measured: Callable[[str, float], None] | None = None,
    **made: Any,
) -> int:
    """Write to `output` showers with the labels of the `conditions`; returns the number of showers.

    Each event's labels are used `per_event` times in a row. The cells are in the unit of the conditions' files.
    `made` are the arguments of the `Generator` beside the model: `batch`, `strategy`, `library`. Memory does not grow
    with the number of showers.

    Showers are written in parts, into a hidden folder beside `output` that takes as much space as `output` and is
    removed at the end. A run that was killed goes on after its last whole part, and ends in the same bytes. With a
    `share`, only the share's parts are made. Several shares may be made at once, on hosts that have the folder in
    common. A last run without a share makes what is missing, and joins the parts without compressing them again.

    A file of the same model, labels and seed is left as it is; a file of other generated showers is replaced. Labels
    `outside` the range of the training are an error (STOP), are left out (SKIP), or are used too (EXTRAPOLATE). A cut
    other than that of the training is an error, except with EXTRAPOLATE. Test events that the model has seen are an
    error. `measured` is called with the rate, if showers were made. Raises InputError.
    """
    require_least("--per-event", per_event, 1)
    require_seed(seed)
    storage.require_writable(output.parent)
    selection, card = conditions.selection, model_folder.read_card(model)
    layout = conditions.layout(card)
    if outside != EXTRAPOLATE and isinstance(conditions, Conditions):
        _check_cut(card, selection)
    request = _request(card, conditions.contents, selection, per_event, seed, *([SKIP] if outside == SKIP else []))
    pieces = output.with_name(f".{output.name}.parts")
    # the size of batches is not part of the request: it changes showers only by rounding
    if (standing := _standing(output, request)) is not None:
        if share is None:  # left by a run that was killed after it had joined them
            storage.discard(pieces)
        return standing
    if isinstance(conditions, Conditions) and any(_is_at(file.path, output) for file in conditions.files):
        raise InputError(f"{output}: is also of --like, and would be lost; give another --output")
    events = conditions.events
    if selection.split == JUDGES:
        require_unseen(model, card, events.digests, str(model))
    generator = Generator(model, **made)
    events = _answered(events, generator, outside, per_event)
    parts = Parts(pieces, request, generator, len(events), layout=layout)
    with alone(output.parent, f".{output.name}.lock") if share is None else nullcontext():
        rate = parts.make(share or Share(), events.labels, seed)
        if measured is not None and rate:
            measured("showers a second", rate)
        if share is not None:
            say(f"share {share.number} of {share.count} is made: {parts.folder}")
            return 0
        parts.join(output, _attributes(card, request) | {"seed": seed, CUT: selection.cut_gev})
    say(f"{len(events)} showers: {output}")
    return len(events)


def _is_at(path: Location, output: Path) -> bool:
    return path.resolve() == output.resolve() if isinstance(path, Path) else str(path) == address(output)


def _request(card: Card, contents: Sequence[str], selection: Selection, *more: int | str) -> str:
    """Identifies the showers of a run: by the model of `card`, the files' `contents`, the `selection`, and `more`."""
    chosen = selection.split, selection.rule.by_file, selection.cut_gev, selection.geometry, selection.bad_event
    version = metadata.version("calopipe"), SCHEMA_VERSION
    return storage.fingerprint([version, card.fingerprint(), list(contents), chosen, more])


def _attributes(card: Card, request: str) -> dict[str, Any]:
    config, trained = card.config, card.trained
    made_by = (
        f"{config.model}, {trained['steps']:,} steps of {config.batch * trained['replicas']}, the weights of step "
        f"{trained['chosen_step']:,}, trained in {trained['seconds'] / 60:.3g} min"
    )
    return {"generator": f"calopipe {config.model}", MADE_BY: made_by, "model": card.fingerprint(), REQUEST: request}


def _answered(events: Events, generator: Generator, outside: str, per_event: int) -> Events:
    """The `events` for which showers are made, each so often in a row. InputError: the model cannot, or is not to."""
    if outside == SKIP:
        inside = generator.inside(events.labels)
        if inside.any() and not inside.all():
            say(f"{int((~inside).sum())} of {len(inside)} showers are outside the range of the training: left out")
            events = events[inside]
    if outside == EXTRAPOLATE:
        generator.require_kinds(events.labels)
    else:
        generator.require_inside(events.labels)
    return events[np.repeat(np.arange(len(events)), per_event)]


def _check_cut(card: Card, selection: Selection) -> None:
    """InputError unless the cut is that of the training."""
    trained = card.dataset["cut_gev"]
    if selection.cut_gev != trained:
        raise InputError(
            f"--cut-gev is {selection.cut_gev:g}, the model was trained on showers above {trained:g} GeV; leave it out"
        )


def _standing(output: Path, request: str) -> int | None:
    """The number of showers in `output` if it was made for `request`, else None. A line says that they are kept.

    InputError if `output` exists and is not a file of generated showers.
    """
    if not output.exists():
        return None
    hint = "give another --output, or remove it"
    try:
        showers = open_showers(output)
    except (InputError, IsADirectoryError):
        raise InputError(f"{output}: exists, and is not a file of showers; {hint}") from None
    if showers.request is None:
        raise InputError(f"{output}: holds showers that this program did not generate; {hint}")
    if showers.request != request:
        return None
    stands("showers stand", output, f"{showers.events} of them")
    return showers.events
