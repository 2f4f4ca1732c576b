"""The work of preprocessing as plans, and the making of a plan's shards. Plain functions; Beam only calls them.

A plan is a range of one input file. Its output is named by the file's content and the settings, so that no shard is
made twice. A plan writes a shard for each split and then, last and atomically, a receipt: the JSON that says what they
hold, the digest and split of each event, and which events are corrupt. A shard without a receipt does not count.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from calopipe import storage
from calopipe.errors import InputError, describe
from calopipe.labels import LabelRange, taken
from calopipe.showers.angle import angle_of_hits
from calopipe.showers.cells import FloatArray
from calopipe.showers.files import ShowerFile, open_showers
from calopipe.showers.flaws import FLAWS, SKIP, BadFileError, Tolerance, flaws_of_hits
from calopipe.showers.hits import Digests, Hits
from calopipe.showers.splits import SPLITS
from calopipe.storage import Location
from preprocessing import records
from preprocessing.dataset import BELOW_CUT, RECEIPT_KIND, SHARDS, AnySettings, Settings, ranges
from preprocessing.events import NOT_WRITTEN, packed
from preprocessing.flow.manifest import PairSettings
from preprocessing.flow.pairs import read_pairs
from preprocessing.inputs import InputFile
from preprocessing.manifest import SCHEMA_VERSION, Content, Shard

Receipt = dict[str, Any]  # as in JSON; docs/formats.md describes it
_NOTES = "notes"
_NOTE_KIND = "calopipe.note"


@dataclass(frozen=True)
class Plan:
    """Events `start` to `stop` of the file `path`, of this stamp (`storage.stamp`) and hash. `key` names the output."""

    path: str
    stamp: tuple[int, int]
    sha256: str
    start: int
    stop: int
    key: str


@dataclass(frozen=True)
class Attempt:
    """One run of preprocessing: what it does about corrupt input, and the name of the folder for notes that stop it."""

    tolerance: Tolerance
    name: str = field(default_factory=lambda: uuid.uuid4().hex)


def plan(files: Sequence[InputFile], settings: AnySettings) -> list[Plan]:
    """A plan for each range of each file."""
    return [
        Plan(str(file.path.absolute()), file.stamp, file.sha256, *each)
        for file in files
        for each in ranges(file, settings)
    ]


def receipts(folder: Location, plans: Sequence[Plan]) -> list[Receipt | None]:
    """Each plan's receipt, or None where it is missing or its shards are incomplete."""
    sizes = storage.listing(folder / SHARDS)

    def whole(shard: dict[str, Any]) -> bool:
        return bool(sizes.get(shard["name"].removeprefix(f"{SHARDS}/")) == shard["bytes"])

    def read(plan: Plan) -> Receipt | None:
        if f"{plan.key}.json" not in sizes:
            return None
        try:
            receipt = storage.read_json(_receipt_path(folder, plan), kind=RECEIPT_KIND, schema_version=SCHEMA_VERSION)
            return receipt if all(whole(shard) for shard in receipt["shards"]) else None
        except (storage.DocumentError, KeyError, TypeError):  # damaged: the work is done again
            return None

    return storage.at_once(read, plans)


def done(folder: Location, plans: Sequence[Plan]) -> set[str]:
    """The keys of those `plans` that have a receipt."""
    names = storage.listing(folder / SHARDS)
    return {plan.key for plan in plans if f"{plan.key}.json" in names}


def notes(folder: Location, attempt: Attempt) -> list[str]:
    """Why plans stopped the attempt, a line each. Removes the notes."""
    place = folder / _NOTES / attempt.name
    lines = [
        storage.read_json(place / name, kind=_NOTE_KIND, schema_version=SCHEMA_VERSION)["line"]
        for name in sorted(storage.listing(place))
    ]
    storage.discard(place)
    return lines


def write_shards(folder: str, plan: Plan, settings: AnySettings, attempt: Attempt) -> None:
    """Carry out `plan`: read, check, threshold, cut, encode, shuffle, write.

    Corrupt events and a file that cannot be read are left out, and listed in the receipt. What must stop the run
    becomes a note beside the dataset: so its text reaches the user whole from any runner, the other plans stop too, and
    finished ones are kept.
    """
    output = storage.location(folder)
    place = output / _NOTES / attempt.name
    if storage.listing(place):
        return
    try:
        receipt = _make(output, plan, settings)
        storage.write_json(_receipt_path(output, plan), receipt)
        if receipt["bad_file"]:
            attempt.tolerance.require_none("file", receipt["bad_file"])
        if receipt["bad_events"]:
            attempt.tolerance.require_none("event", receipt["first_bad_event"])
    except Exception as error:
        line = describe(error)
        if line is None:
            raise
        note = {"kind": _NOTE_KIND, "schema_version": SCHEMA_VERSION, "line": line}
        try:
            storage.write_json(place / f"{plan.key}.json", note)
        except (InputError, OSError):  # such as a full disk: then the runner has to pass it on
            raise InputError(line) from None


def _receipt_path(folder: Location, plan: Plan) -> Location:
    return folder / SHARDS / f"{plan.key}.json"


def _make(folder: Location, plan: Plan, settings: AnySettings) -> Receipt:
    """Write the plan's shards, none for a file that cannot be read; the receipt."""
    receipt: Receipt = {"kind": RECEIPT_KIND, "schema_version": SCHEMA_VERSION}
    path = storage.location(plan.path)
    try:
        if isinstance(settings, PairSettings):
            content = read_pairs(path, plan.start, plan.stop, settings)
        else:
            content = _showers(path, plan, settings)
    except BadFileError as error:
        storage.require_unchanged(path, plan.stamp)
        return receipt | {"bad_file": str(error), "bad_events": [], "shards": []}
    storage.require_unchanged(path, plan.stamp)
    split_of = np.full(len(content.digests), NOT_WRITTEN, dtype=np.int8)
    rows = content.events - plan.start
    split_of[rows] = settings.rule.assign(path.name, content.split_by)
    chosen = {split: np.flatnonzero(split_of[rows] == number) for number, split in enumerate(SPLITS)}
    dropped = {reason: sum(flaw == reason for _, flaw in content.bad_events) for reason in FLAWS[1:]}
    dropped[BELOW_CUT] = plan.stop - plan.start - len(rows) - len(content.bad_events)
    most = (
        {}
        if content.hits is None
        else {"most_hits": {split: int(content.hits[places].max(initial=0)) for split, places in chosen.items()}}
    )
    return receipt | {
        "events": {"read": plan.stop - plan.start, "written": len(rows), "dropped": dropped},
        "digests": packed(content.digests, split_of),
        **content.said,
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


def _showers(path: Location, plan: Plan, settings: Settings) -> Content:
    file = open_showers(path, settings.selection.geometry, SKIP, plan.sha256)
    pieces = [_piece(file, first, cells, settings) for first, cells in file.pieces(plan.start, plan.stop)]
    bad_events = [bad for piece in pieces for bad in piece.bad_events]
    digests = np.concatenate([piece.digests for piece in pieces])
    written = np.concatenate([piece.events for piece in pieces])
    return Content(
        digests=digests,
        events=written,
        split_by=digests[written - plan.start],
        encoded=[record for piece in pieces for record in piece.encoded],
        bad_events=bad_events,
        first_bad=file.flaw(bad_events[0][0]) if bad_events else "",
        said={
            "energy_gev": _range(file.energy_gev[written]),
            "theta_rad": _range(file.theta_rad[written]),
            **LabelRange.of(taken(file.more, written)).to_json(),
        },
        hits=np.concatenate([piece.hits for piece in pieces]),
    )


def _range(labels: FloatArray) -> list[float] | None:
    return [float(labels.min()), float(labels.max())] if len(labels) else None


class _Piece(NamedTuple):
    """The digests of all showers of one reading; of those kept indices, records and numbers of hits; indices and flaws
    of bad ones.
    """

    digests: Digests
    events: npt.NDArray[np.int64]
    encoded: list[bytes]
    hits: npt.NDArray[np.intp]
    bad_events: list[tuple[int, str]]


def _piece(file: ShowerFile, first: int, cells: FloatArray, settings: Settings) -> _Piece:
    hits = Hits.of(cells)
    events = first + np.arange(len(cells))
    digests = file.digests(hits, events)
    in_cells = flaws_of_hits(hits)
    flaws = np.where(in_cells != 0, in_cells, file.label_flaws[events])
    bad_events = [(int(events[row]), FLAWS[flaws[row]]) for row in np.flatnonzero(flaws)]
    kept = (flaws == 0) & settings.selection.above_cut(hits, file.geometry)
    hits, events = hits[kept], events[kept]
    if settings.threshold_gev > 0:
        hits = hits.at_least(settings.threshold_gev / file.geometry.file_unit_gev)
    # without a measured angle in the file, that of the cells that the model will see
    mtheta = angle_of_hits(hits, file.geometry) if file.mtheta_rad is None else file.mtheta_rad[events]
    labels = file.energy_gev[events], file.theta_rad[events], mtheta
    encoded = list(records.encode(hits, *labels, events, more=taken(file.more, events)))
    return _Piece(digests, events, encoded, np.diff(hits.edges()), bad_events)


def _write(folder: Location, plan: Plan, split: str, encoded: list[bytes]) -> Shard:
    """Write the records of one split in an order that depends on the plan alone."""
    order = np.random.default_rng(list(f"{plan.key}-{split}".encode())).permutation(len(encoded))
    content = b"".join(records.framed(encoded[position]) for position in order)
    name = f"{SHARDS}/{plan.key}-{split}.tfrecord"
    with storage.replacing(folder / name) as temporary:
        temporary.write_bytes(content)
    return Shard(name, split, len(encoded), len(content), hashlib.sha256(content).hexdigest())
