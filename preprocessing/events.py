"""The events of a dataset by their content: copies of others, events in a split, and events of a file in it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from calopipe import storage
from calopipe.documents import DocumentError
from calopipe.errors import InputError
from calopipe.events.contents import Header
from calopipe.events.splits import SPLITS, Digests
from calopipe.events.tolerance import STOP
from calopipe.showers.selection import Selection
from calopipe.storage import Location
from preprocessing.dataset import RECEIPT, SHARDS, ranges, read_manifest
from preprocessing.field import Plan, Receipt
from preprocessing.manifest import Manifest
from preprocessing.showers.manifest import Settings

NOT_WRITTEN = -1  # in place of the split, for an event that was not written
EMPTIED = -2  # in place of the split, for an event that the selection chooses, but whose cells are all below threshold
_EVENT = np.dtype([("digest", "<u8"), ("split", "i1")])


def packed(digests: Digests, splits: npt.NDArray[np.int8]) -> str:
    """The entry of a receipt for the events of its range: the digest (N,) of each, and its split or EMPTIED or
    NOT_WRITTEN, (N,).
    """
    events = np.empty(len(digests), dtype=_EVENT)
    events["digest"], events["split"] = digests, splits
    return base64.b64encode(events.tobytes()).decode()


def _unpacked(text: str) -> npt.NDArray[np.void]:
    return np.frombuffer(base64.b64decode(text), dtype=_EVENT)


def later_copies(made: Sequence[tuple[Plan, Receipt]]) -> dict[str, npt.NDArray[np.intp]]:
    """The indices in the file of the written events that are equal to an event before them, by the key of the plan.

    A plan without such an event is left out. InputError: an event is in two splits, which can happen if whole files
    were assigned to splits by name.
    """
    parts = [_unpacked(receipt["digests"]) for _, receipt in made]
    events = np.concatenate([np.empty(0, _EVENT), *parts])
    written = np.flatnonzero(events["split"] >= 0)
    order = written[np.argsort(events["digest"][written], kind="stable")]
    digest, split = events["digest"][order], events["split"][order]
    again = digest[1:] == digest[:-1]
    torn = np.flatnonzero(again & (split[1:] != split[:-1]))
    begins = np.cumsum([0, *map(len, parts)])
    if len(torn):

        def place(position: int) -> str:
            number = int(np.searchsorted(begins, position, side="right")) - 1
            plan, _ = made[number]
            event = plan.start + position - begins[number]
            return f"event {event} of {plan.path} is in {SPLITS[events['split'][position]]}"

        first, second = (place(int(position)) for position in order[torn[0] : torn[0] + 2])
        raise InputError(
            f"--split-file: {first}, and {second}, but they are one event, and {len(np.unique(digest[torn])) - 1} more "
            "are in two splits; leave one of the files out, or give both to one split"
        )
    copies = np.sort(order[1:][again])
    edges = np.searchsorted(copies, begins)
    return {
        plan.key: plan.start + copies[low:high] - begin
        for (plan, _), begin, low, high in zip(made, begins[:-1], edges[:-1], edges[1:], strict=True)
        if low < high
    }


def digests_in(folder: Location, manifest: Manifest, splits: Sequence[str]) -> Digests:
    """The digests of the events in `splits` of the dataset in `folder`, sorted, each once. Raises InputError."""
    names = sorted({shard.receipt for shard in manifest.shards})
    expected = sum(shard.events for shard in manifest.shards if shard.split in splits)

    def read(name: str) -> Digests:
        receipt = RECEIPT.read(folder / name)
        events = _unpacked(receipt["digests"])
        return events["digest"][np.isin(events["split"], [SPLITS.index(split) for split in splits])]

    try:
        parts = storage.at_once(read, names)
    except (DocumentError, KeyError, ValueError) as error:
        raise InputError(f"{folder}: what it holds of each event cannot be read ({error}); preprocess again") from None
    listed = sum(map(len, parts))
    if listed != expected:
        raise InputError(
            f"{folder}: its receipts list {listed} events in {splits}, its manifest {expected}; preprocess again"
        )
    return np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))


def receipts_of(files: Sequence[Header], selection: Selection) -> list[tuple[npt.NDArray[np.bool_], Digests] | None]:
    """What `ShowerFile.chosen` returns for each of `files`, from the receipts of the dataset `selection.memory`.

    That is whether each event is in the selection, and its digest, (events,) both; no cell is read. None for a file
    whose cells must be read: the dataset does not hold the whole file, or was made with another cut or geometry, or
    left out corrupt events at which the selection is to stop.
    """
    if selection.memory:
        with suppress(InputError, KeyError, TypeError, ValueError):  # not finished, or of another version
            settings = Settings.from_json(read_manifest(selection.memory).settings)
            made_for = settings.selection.cut_gev, settings.selection.geometry
            if made_for == (selection.cut_gev, selection.geometry):
                return [_receipts_of(selection.memory, file, settings, selection) for file in files]
    return [None] * len(files)


def _receipts_of(
    folder: Location, file: Header, settings: Settings, selection: Selection
) -> tuple[npt.NDArray[np.bool_], Digests] | None:
    def read(name: str) -> npt.NDArray[np.void]:
        receipt = RECEIPT.read(folder / SHARDS / f"{name}.json")
        if selection.bad_event == STOP and receipt["bad_events"]:
            raise ValueError(f"{name}: the selection stops at a corrupt event")
        return _unpacked(receipt["digests"])  # the receipt of a file that could not be read has no digests

    try:
        events = np.concatenate(storage.at_once(read, [name for _, _, name in ranges(file, settings)]))
    except (InputError, KeyError, ValueError):
        return None
    if len(events) != file.events:
        return None
    in_split = selection.rule.mask(selection.split, file.path.name, events["digest"])
    return (events["split"] != NOT_WRITTEN) & in_split, events["digest"]
