"""The work of preprocessing, divided into plans, and how a plan's shards are made: plain functions that Beam calls.

A plan is a range of one input file. Its output has a name that follows from the file's content and the settings, so no
shard is made twice. A plan writes a shard for each split and then, atomically, a receipt: a JSON document with the
content of the shards, the digest and split of each event, and the corrupt events. A shard without a receipt does not
count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from typing import Any

import numpy as np

from calopipe import storage
from calopipe.documents import DocumentError
from calopipe.errors import InputError, describe
from calopipe.events.splits import SPLITS
from calopipe.events.tolerance import FLAWS, BadFileError, Tolerance
from calopipe.storage import Location
from preprocessing import records
from preprocessing.dataset import RECEIPT, SHARDS, ranges
from preprocessing.events import EMPTIED, NOT_WRITTEN, packed
from preprocessing.field import FieldSettings, Plan, Receipt
from preprocessing.inputs import InputFile
from preprocessing.manifest import BELOW_CUT, BELOW_THRESHOLD, COPY, Shard


def plan(files: Sequence[InputFile], settings: FieldSettings) -> list[Plan]:
    """A plan for each range of each file."""
    return [
        Plan(str(file.path.absolute()), file.stamp, file.sha256, *piece)
        for file in files
        for piece in ranges(file, settings)
    ]


def receipts(folder: Location, plans: Sequence[Plan], settings: FieldSettings) -> dict[str, Receipt]:
    """The receipts of `plans` by their keys. A receipt that is not whole, or whose shards are not, is left out."""
    sizes = storage.listing(folder / SHARDS)

    def whole(shard: dict[str, Any]) -> bool:
        return bool(sizes.get(shard["name"].removeprefix(f"{SHARDS}/")) == shard["bytes"])

    def read(key: str) -> Receipt | None:
        try:
            receipt = RECEIPT.read(folder / SHARDS / f"{key}.json")
            complete = receipt["bad_file"] or settings.says <= receipt.keys()
            return receipt if complete and all(whole(shard) for shard in receipt["shards"]) else None
        except (DocumentError, KeyError, TypeError):  # damaged: the work is done again
            return None

    keys = [plan.key for plan in plans if f"{plan.key}.json" in sizes]
    return {key: receipt for key, receipt in zip(keys, storage.at_once(read, keys), strict=True) if receipt}


def write_shards(
    folder: str, plan: Plan, settings: FieldSettings, tolerance: Tolerance, *, version: str, stop: str
) -> None:
    """Carry out `plan`: read, check, cut, threshold, encode, shuffle, write.

    Corrupt events and a file that cannot be read are left out, and listed in the receipt. An error that must stop the
    run is written to the file `stop` in a line. If this file exists, plans do nothing: so the other plans stop too,
    finished plans are kept, and the whole line reaches the user from any runner. The run also stops if this package has
    another version on a worker than `version`, the version at the command.
    """
    output, stopped = storage.location(folder), storage.location(stop)
    if stopped.is_file():
        return
    try:
        if (used := metadata.version("calopipe")) != version:
            raise InputError(f"calopipe is {used} on a worker, but {version} at the command; give all the same version")
        receipt = _make(output, plan, settings)
        RECEIPT.write(output / SHARDS / f"{plan.key}.json", receipt)
        if receipt["bad_file"]:
            tolerance.require_none("file", receipt["bad_file"])
        if receipt["bad_events"]:
            tolerance.require_none("event", receipt["first_bad_event"])
    except (InputError, OSError) as error:
        line = describe(error)
        if line is None:
            raise
        try:
            storage.create_json(stopped, line)
        except (InputError, OSError):  # for example a full disk: then the runner must pass the line on
            raise InputError(line) from None


def _make(folder: Location, plan: Plan, settings: FieldSettings) -> Receipt:
    """Write the plan's shards, or none for a file that cannot be read. Returns the receipt."""
    path = storage.location(plan.path)
    try:
        content = settings.read(plan)
    except BadFileError as error:
        storage.require_unchanged(path, plan.stamp)
        return {"bad_file": str(error), "bad_events": [], "shards": []}
    storage.require_unchanged(path, plan.stamp)
    split_of = np.full(len(content.digests), NOT_WRITTEN, dtype=np.int8)
    rows = content.events - plan.start
    split_of[content.emptied - plan.start] = EMPTIED
    split_of[rows] = settings.rule.assign(path.name, content.split_by)
    chosen = {split: np.flatnonzero(split_of[rows] == number) for number, split in enumerate(SPLITS)}
    dropped = {reason: sum(flaw == reason for _, flaw in content.bad_events) for reason in FLAWS[1:]}
    dropped |= {BELOW_THRESHOLD: len(content.emptied), COPY: len(plan.skip)}
    dropped[BELOW_CUT] = plan.stop - plan.start - len(rows) - sum(dropped.values())
    most = (
        {}
        if content.hits is None
        else {"most_hits": {split: int(content.hits[places].max(initial=0)) for split, places in chosen.items()}}
    )
    return {
        "events": {"read": plan.stop - plan.start, "written": len(rows), "dropped": dropped},
        "digests": packed(content.digests, split_of),
        **content.in_receipt,
        **most,
        "bad_file": "",
        "bad_events": content.bad_events,
        "first_bad_event": content.first_bad,
        "shards": [
            asdict(_write(folder, plan, split, [content.encoded[place] for place in places]))
            for split, places in chosen.items()
            if len(places)
        ],
    }


def _write(folder: Location, plan: Plan, split: str, encoded: list[bytes]) -> Shard:
    """Write the records of one split in an order that depends only on the plan and the split."""
    order = np.random.default_rng(list(f"{plan.key}-{split}".encode())).permutation(len(encoded))
    content = b"".join(records.framed(encoded[position]) for position in order)
    name = f"{SHARDS}/{plan.key}-{split}.tfrecord"
    with storage.replacing(folder / name) as temporary:
        temporary.write_bytes(content)
    return Shard(name, split, len(encoded), len(content), hashlib.sha256(content).hexdigest())
