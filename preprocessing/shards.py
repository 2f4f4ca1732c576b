"""The work of preprocessing as a plan of shards, and the making of one shard. Plain functions; Beam only calls them.

A plan is a range of one input file. Everything that names its output follows from the file's content and the
settings, so a shard that stands is never made again, whoever asks. A plan leaves a shard for each split and then, last
and atomically, a receipt: the JSON that says what they hold. No receipt, no shard.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocessing import records, storage
from preprocessing.angle import measured_angle
from preprocessing.dataset import SCHEMA_VERSION, SHARDS, Settings, Shard, Source
from preprocessing.errors import InputError, describe
from preprocessing.layouts import ShowerFile, above_cut, open_showers
from preprocessing.showers import Showers
from preprocessing.splits import SPLITS

RECEIPT_KIND = "calopipe.shards"
_READ_EVENTS = 100  # showers made dense at a time: 26 MB of the reference's


@dataclass(frozen=True)
class Plan:
    """Events `start` to `stop` of the file `path`, whose content hashes to `sha256`. `key` names the output.

    `stamp` is the file's as it was opened (`storage.stamp`).
    """

    path: str
    stamp: tuple[int, int]
    sha256: str
    start: int
    stop: int
    key: str


def plan(files: Sequence[ShowerFile], settings: Settings) -> list[Plan]:
    """Ranges of at most `settings.shard_events` showers (or one chunk), aligned to the chunks of each file."""
    plans = []
    for file in files:
        step = max(settings.shard_events // file.chunk_events, 1) * file.chunk_events
        source = Source(file.path.name, file.sha256, file.events)
        name = storage.fingerprint([SCHEMA_VERSION, settings.identity(source), settings.to_json()])[:16]
        for start in range(0, file.events, step):
            stop = min(start + step, file.events)
            plans.append(Plan(str(file.path), file.stamp, file.sha256, start, stop, f"{name}-{start:08d}-{stop:08d}"))
    return plans


def receipt_path(folder: Path, key: str) -> Path:
    return folder / SHARDS / f"{key}.json"


def read_receipt(folder: Path, key: str) -> dict[str, Any] | None:
    """What the plan `key` left, or None where it is not done or its shards are no longer whole."""
    path = receipt_path(folder, key)
    if not path.is_file():
        return None
    receipt = storage.read_json(path, kind=RECEIPT_KIND, schema_version=SCHEMA_VERSION)
    shards = [(folder / shard["name"], shard["bytes"]) for shard in receipt.get("shards", ())]
    whole = all(shard.is_file() and shard.stat().st_size == size for shard, size in shards)
    return receipt if whole else None


def write_shards(folder: Path, plan: Plan, settings: Settings) -> None:
    """Carry out `plan`: read, check, threshold, cut, encode, shuffle, write.

    An error that the user can mend (a corrupt event, a full disk) becomes the receipt's "error": it reaches the user
    whole from any runner, and the other plans' work is kept.
    """
    receipt: dict[str, Any] = {"kind": RECEIPT_KIND, "schema_version": SCHEMA_VERSION}
    try:
        receipt |= _make(folder, plan, settings)
    except Exception as error:
        line = describe(error)
        if line is None:
            raise
        receipt["error"] = line
    storage.write_json(receipt_path(folder, plan.key), receipt)


def _make(folder: Path, plan: Plan, settings: Settings) -> dict[str, Any]:
    file = open_showers(Path(plan.path), settings.geometry)
    split_of = settings.split_rule.assign(file.path.name, plan.sha256, range(plan.start, plan.stop))
    encoded: dict[str, list[bytes]] = {split: [] for split in SPLITS}
    energies, thetas = [], []
    for events, showers in _kept(file, plan, settings):
        energies.append(showers.energy_gev)
        thetas.append(showers.theta_rad)
        for event, record in zip(events, records.encode(showers, events, file.geometry), strict=True):
            encoded[SPLITS[split_of[event - plan.start]]].append(record)
    if storage.stamp(file.path) != plan.stamp:
        raise InputError(f"{file.path}: changed while it was read; run again when nothing writes to it")
    energy, theta = np.concatenate(energies), np.concatenate(thetas)
    read, written = plan.stop - plan.start, len(energy)
    return {
        "events": {"read": read, "written": written, "dropped": {"below_cut": read - written}},
        "energy_gev": [float(energy.min()), float(energy.max())] if written else None,
        "theta_rad": [float(theta.min()), float(theta.max())] if written else None,
        "shards": [asdict(_write(folder, plan, split, lines)) for split, lines in encoded.items() if lines],
    }


def _kept(file: ShowerFile, plan: Plan, settings: Settings) -> Iterator[tuple[npt.NDArray[np.int64], Showers]]:
    """The plan's range piece by piece: the indices of the showers that pass the cut, and these after the threshold."""
    for first in range(plan.start, plan.stop, _READ_EVENTS):
        stored = file.read(first, min(first + _READ_EVENTS, plan.stop))
        kept = above_cut(stored.cells, settings.cut_gev, file.geometry)
        showers = stored[kept]
        if settings.threshold_gev > 0:
            showers.cells[showers.cells < settings.threshold_gev / file.geometry.file_unit_gev] = 0
            if file.mtheta_rad is None:  # the angle of what the model will see
                showers = replace(showers, mtheta_rad=measured_angle(showers.cells))
        yield first + np.flatnonzero(kept), showers


def _write(folder: Path, plan: Plan, split: str, encoded: list[bytes]) -> Shard:
    """Write the records of one split in an order that depends on the plan alone."""
    order = np.random.default_rng(list(f"{plan.key}-{split}".encode())).permutation(len(encoded))
    name = f"{SHARDS}/{plan.key}-{split}.tfrecord"
    digest = hashlib.sha256()
    size = 0
    with storage.replacing(folder / name) as temporary, temporary.open("wb") as stream:
        for position in order:
            frame = records.framed(encoded[position])
            digest.update(frame)
            size += len(frame)
            stream.write(frame)
    return Shard(name, split, len(encoded), size, digest.hexdigest())
