"""From HDF5 files to a dataset: carry out through Beam the plans that are not yet done, then compose the manifest."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from calopipe import storage
from calopipe.documents import stands
from calopipe.errors import InputError
from calopipe.events.splits import matches
from calopipe.events.tolerance import KEEP, SKIP, STOP, Tolerance
from calopipe.progress import say
from calopipe.storage import Location
from preprocessing import dataset
from preprocessing.field import FieldSettings, Plan, Receipt
from preprocessing.inputs import InputFile, Inputs
from preprocessing.manifest import BAD_FILE, COPY, DROPPED, BadEvent, BadFile, Manifest, Shard, Source

logger = logging.getLogger(__name__)


def preprocess(
    inputs: Inputs,
    output: Location,
    settings: FieldSettings,
    beam_options: Sequence[str] = (),
    *,
    tolerance: Tolerance | None = None,
    on_copies: str = SKIP,
) -> Manifest:
    """Write the dataset of `inputs` into `output`, unless it is already there.

    `beam_options` are Beam's own ("--runner=...", "--direct_num_workers=2"); without a runner the pipeline runs in
    this process. `on_copies` says what happens to showers that are equal to an earlier one: stop, skip or keep.
    Raises InputError.
    """
    allowed = tolerance or Tolerance()
    dataset.require_own_folder(output)
    files = inputs.files
    for split, pattern in settings.rule.by_file:
        if not any(matches(file.path.name, pattern) for file in files):
            raise InputError(f"--split-file {split}={pattern}: matches none of the {len(files)} input files by name")
    if (standing := _standing(output, inputs, settings, allowed, on_copies=on_copies)) is not None:
        items = f"{standing.events['written']} {standing.domain.items}"
        stands("dataset stands", output / dataset.MANIFEST, items)
        return standing
    from preprocessing import runner, shards  # noqa: PLC0415  load HDF5, which a finished dataset does not need

    storage.require_writable(output / dataset.SHARDS)
    storage.sweep(output)
    plans = shards.plan(files, settings)
    receipts = shards.receipts(output, plans, settings)
    missing = [plan for plan in plans if plan.key not in receipts or receipts[plan.key]["bad_file"]]
    new = len({plan.sha256 for plan in missing})
    items = f"{sum(file.events for file in files)} {files[0].geometry.items}"
    print(
        f"preprocessing {items} of {len(files)} files, {new} of them new: {len(missing)} of {len(plans)} pieces to do"
    )
    if missing:
        runner.carry_out(missing, output, settings, allowed, beam_options)
        receipts = shards.receipts(output, plans, settings)
    if not settings.keeps_copies and on_copies != KEEP and len(receipts) == len(plans):
        plans = _without_copies(plans, receipts, on_copies)
        receipts = shards.receipts(output, plans, settings)
        if again := [plan for plan in plans if plan.key not in receipts]:
            runner.carry_out(again, output, settings, allowed, beam_options)
            receipts = shards.receipts(output, plans, settings)
    manifest = _compose(inputs, plans, receipts, settings, allowed)
    for doubt in manifest.doubts():
        logger.warning(doubt)
    storage.write_json(output / dataset.MANIFEST, manifest.to_json())
    say(manifest.summary())
    return manifest


def _without_copies(plans: list[Plan], receipts: Mapping[str, Receipt], on_copies: str) -> list[Plan]:
    """The plans without events that are equal to an earlier one. InputError: there is one, and `on_copies` is stop."""
    from preprocessing.events import later_copies  # noqa: PLC0415

    left_out = {plan.path for plan in plans if receipts[plan.key]["bad_file"]}
    of = later_copies([(plan, receipts[plan.key]) for plan in plans if plan.path not in left_out])
    if not of:
        return plans
    total = sum(map(len, of.values()))
    first = next(plan for plan in plans if plan.key in of)
    copy = f"{first.path}: event {of[first.key][0]} is equal to one before it, as are {total - 1} more"
    if on_copies == STOP:
        raise InputError(f"{copy}; leave the copies out with --on-copies skip, or keep them with --on-copies keep")
    logger.warning("%s: left out (--on-copies)", copy)
    return [plan.without(of.get(plan.key, ())) for plan in plans]


def _standing(
    output: Location, inputs: Inputs, settings: FieldSettings, tolerance: Tolerance, *, on_copies: str
) -> Manifest | None:
    """The manifest of the dataset in `output`, if the dataset is complete and is the one that is asked for."""
    if not (output / dataset.MANIFEST).is_file():
        return None
    try:
        manifest = dataset.read_manifest(output)
    except InputError as error:
        logger.warning("%s", error)
        return None
    try:
        _require_tolerable(manifest, tolerance, "")
    except InputError:  # raised again when the receipts are read, as they name the bad event
        return None
    left_out, kept = manifest.events["dropped"].get(COPY, 0), manifest.events["repeated"]
    unlike = {KEEP: left_out, SKIP: kept, STOP: left_out or kept}[on_copies]
    if manifest.request != dataset.fingerprint_of(inputs.files, settings) or (unlike and not settings.keeps_copies):
        return None
    read = {file.path.name for file in inputs.files}
    never_read = {file for file in manifest.bad_files if file.name not in read}
    return manifest if never_read <= set(inputs.bad) <= set(manifest.bad_files) else None


def _compose(
    inputs: Inputs,
    plans: Sequence[Plan],
    receipts: Mapping[str, Receipt],
    settings: FieldSettings,
    tolerance: Tolerance,
) -> Manifest:
    """The manifest of the receipts of all plans. InputError: more is corrupt than `tolerance` allows."""
    from preprocessing.events import later_copies  # noqa: PLC0415

    if len(receipts) != len(plans):
        raise InputError(
            f"{len(plans) - len(receipts)} pieces of the dataset are not there after they were made; run again, and if "
            "workers are other machines, give a folder that all share"
        )
    good: list[InputFile] = []
    used: list[tuple[InputFile, Plan, Receipt]] = []
    bad_files, bad_events, first_bad = list(inputs.bad), [], ""
    dropped = dict.fromkeys(DROPPED, 0)
    for file, (_, pieces) in zip(inputs.files, groupby(plans, key=lambda plan: plan.path), strict=True):
        made = [(plan, receipts[plan.key]) for plan in pieces]
        if reason := next((receipt["bad_file"] for _, receipt in made if receipt["bad_file"]), ""):
            logger.warning("left out: %s", reason)
            bad_files.append(BadFile(file.path.name, reason))
            dropped[BAD_FILE] += file.events
            continue
        settings.require_any_left(file, [receipt["events"] for _, receipt in made])
        if any(receipt["shards"] or not receipt["events"]["dropped"].get(COPY) for _, receipt in made):
            good.append(file)
            used += [(file, *piece) for piece in made]
        for _, receipt in made:
            first_bad = first_bad or receipt["first_bad_event"]
            bad_events += [BadEvent(file.path.name, event, reason) for event, reason in receipt["bad_events"]]
            for reason, count in receipt["events"]["dropped"].items():
                dropped[reason] += count
    written = sum(receipt["events"]["written"] for *_, receipt in used)
    if not written:
        raise InputError(f"{inputs.files[0].path}: none of the {len(inputs.files)} input files holds a good event")
    repeated = sum(map(len, later_copies([(plan, receipt) for _, plan, receipt in used]).values()))
    read = sum(file.events for file in inputs.files)
    common: dict[str, Any] = {
        "fingerprint": dataset.fingerprint_of(good, settings, copies=repeated),
        "request": dataset.fingerprint_of(inputs.files, settings),
        "settings": settings.to_json(),
        "geometry": inputs.files[0].geometry,
        "events": {"read": read, "written": written, "repeated": repeated, "dropped": dropped},
        "inputs": tuple(Source(file.path.name, file.sha256, file.events) for file in good),
        "bad_files": tuple(bad_files),
        "bad_events": tuple(bad_events),
        "shards": tuple(Shard(**shard) for *_, receipt in used for shard in receipt["shards"]),
    }
    manifest = settings.composed([(file, receipt) for file, _, receipt in used], common)
    _require_tolerable(manifest, tolerance, first_bad)
    return manifest


def _require_tolerable(manifest: Manifest, tolerance: Tolerance, first_bad_event: str) -> None:
    """Raise InputError if more was left out than `tolerance` allows."""
    first_bad_file = manifest.bad_files[0].reason if manifest.bad_files else ""
    files = len(manifest.inputs) + len(manifest.bad_files)
    tolerance.require("file", len(manifest.bad_files), files, first_bad_file)
    tolerance.require("event", len(manifest.bad_events), manifest.events["read"], first_bad_event)
