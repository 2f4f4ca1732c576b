"""HDF5 files to a dataset: carry out what is not yet done through Beam, then compose the manifest."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from calopipe import storage
from calopipe.documents import stands
from calopipe.errors import InputError
from calopipe.labels import LabelRange
from calopipe.progress import say
from calopipe.showers.cells import Geometry
from calopipe.showers.flaws import KEEP, STOP, Tolerance
from calopipe.showers.splits import SPLITS
from calopipe.storage import Location
from preprocessing import dataset
from preprocessing.dataset import (
    BAD_FILE,
    BELOW_CUT,
    BELOW_THRESHOLD,
    COPY,
    DROPPED,
    AnySettings,
    Settings,
    ShowerManifest,
)
from preprocessing.doubts import cut
from preprocessing.flow.manifest import FlowManifest
from preprocessing.inputs import InputFile, Inputs
from preprocessing.manifest import BadEvent, BadFile, Manifest, Shard, Source

if TYPE_CHECKING:
    from preprocessing.shards import Plan, Receipt

logger = logging.getLogger(__name__)


def preprocess(
    inputs: Inputs,
    output: Location,
    settings: AnySettings,
    beam_options: Sequence[str] = (),
    *,
    tolerance: Tolerance | None = None,
) -> Manifest:
    """Write the dataset of `inputs` into `output`, unless it is already there.

    `beam_options` are Beam's own ("--runner=...", "--direct_num_workers=2"); without a runner the pipeline runs in
    this process. Raises InputError.
    """
    allowed = tolerance or Tolerance()
    files = inputs.files
    for split, pattern in settings.rule.by_file:
        if not any(fnmatch.fnmatch(file.path.name, pattern) for file in files):
            raise InputError(f"--split-file {split}={pattern}: matches none of the {len(files)} input files by name")
    request = dataset.fingerprint_of([Source.of(file) for file in files], settings)
    if (standing := _standing(output, request, inputs, allowed)) is not None:
        items = f"{standing.events['written']} {standing.domain.items}"
        stands("dataset stands", output / dataset.MANIFEST, items)
        return standing
    from preprocessing import runner, shards  # noqa: PLC0415  load HDF5, which a finished dataset does not need

    storage.require_writable(output / dataset.SHARDS)
    storage.sweep(output)
    plans = shards.plan(files, settings)
    found = shards.receipts(output, plans)
    missing = [plan for plan, receipt in zip(plans, found, strict=True) if receipt is None or receipt["bad_file"]]
    new = len({plan.sha256 for plan in missing})
    items = f"{sum(file.events for file in files)} {files[0].geometry.items}"
    print(
        f"preprocessing {items} of {len(files)} files, {new} of them new: {len(missing)} of {len(plans)} pieces to do"
    )
    if missing:
        runner.carry_out(missing, output, settings, allowed, beam_options)
        found = shards.receipts(output, plans)
    if isinstance(settings, Settings) and allowed.copies != KEEP and None not in found:
        plans = _without_copies(plans, found, allowed.copies)
        again = [plan for plan, receipt in zip(plans, shards.receipts(output, plans), strict=True) if receipt is None]
        if again:
            runner.carry_out(again, output, settings, allowed, beam_options)
        found = shards.receipts(output, plans)
    manifest = _compose(inputs, plans, found, settings, allowed)
    for doubt in manifest.doubts():
        logger.warning(doubt)
    storage.write_json(output / dataset.MANIFEST, manifest.to_json())
    say(manifest.summary())
    return manifest


def _without_copies(plans: Sequence[Plan], found: Sequence[Receipt | None], on_copies: str) -> list[Plan]:
    """The plans for what is not equal to an event before. InputError: there is such an event, and it is to stop."""
    from preprocessing.events import later_copies  # noqa: PLC0415

    read = [(plan, receipt) for plan, receipt in zip(plans, found, strict=True) if receipt and not receipt["bad_file"]]
    copies = later_copies([(plan.path, plan.start, receipt["digests"]) for plan, receipt in read]) if read else []
    of = {plan.key: events for (plan, _), events in zip(read, copies, strict=True) if len(events)}
    if not of:
        return list(plans)
    total = sum(map(len, of.values()))
    first = next(plan for plan in plans if plan.key in of)
    told = f"{first.path}: event {of[first.key][0]} is equal to one before it, as are {total - 1} more"
    if on_copies == STOP:
        raise InputError(f"{told}; leave the copies out with --on-copies skip, or keep them with --on-copies keep")
    logger.warning("%s: left out (--on-copies)", told)
    return [plan.without(of.get(plan.key, ())) for plan in plans]


def _standing(output: Location, request: str, inputs: Inputs, tolerance: Tolerance) -> Manifest | None:
    """The dataset in `output`, if it is complete and the one that is asked for."""
    if not (output / dataset.MANIFEST).is_file():
        return None
    try:
        manifest = dataset.read_manifest(output)
    except InputError as error:
        logger.warning("%s", error)
        return None
    try:
        _require_tolerable(manifest, tolerance, "")
    except InputError:  # raised again once the receipts are read, which name the place
        return None
    left_out, kept = manifest.events["dropped"].get(COPY, 0), manifest.events["repeated"]
    if manifest.domain is Geometry and (left_out if tolerance.copies == KEEP else kept):
        return None
    if left_out and tolerance.copies == STOP:
        return None
    unread = {file.path.name for file in inputs.files}
    same = set(inputs.bad) <= set(manifest.bad_files) and all(
        file in inputs.bad or file.name in unread for file in manifest.bad_files
    )
    return manifest if manifest.request == request and same else None


def _compose(
    inputs: Inputs, plans: Sequence[Plan], found: Sequence[Receipt | None], settings: AnySettings, tolerance: Tolerance
) -> Manifest:
    """The manifest of the receipts of all plans. InputError: more is corrupt than `tolerance` allows."""
    from preprocessing.events import later_copies  # noqa: PLC0415

    receipts = [receipt for receipt in found if receipt is not None]
    if len(receipts) != len(plans):
        raise InputError(
            f"{len(plans) - len(receipts)} pieces of the dataset are not there after they were made; run again, and if "
            "workers are other machines, give a folder that all share"
        )
    good: list[InputFile] = []
    used: list[tuple[Plan, Receipt]] = []
    bad_files, bad_events = list(inputs.bad), []
    dropped = dict.fromkeys(DROPPED, 0)
    by_file = groupby(zip(plans, receipts, strict=True), key=lambda each: each[0].path)
    for file, (_, pieces) in zip(inputs.files, by_file, strict=True):
        made = list(pieces)
        if reason := next((receipt["bad_file"] for _, receipt in made if receipt["bad_file"]), ""):
            logger.warning("left out: %s", reason)
            bad_files.append(BadFile(file.path.name, reason))
            dropped[BAD_FILE] += file.events
            continue
        if isinstance(settings, Settings):
            _require_any_left(file, [receipt["events"] for _, receipt in made], settings)
        if any(receipt["shards"] or not receipt["events"]["dropped"].get(COPY) for _, receipt in made):
            good.append(file)
            used += made
        for _, receipt in made:
            bad_events += [BadEvent(file.path.name, event, reason) for event, reason in receipt["bad_events"]]
            for reason, count in receipt["events"]["dropped"].items():
                dropped[reason] += count
    written = sum(receipt["events"]["written"] for _, receipt in used)
    if not written:
        raise InputError(f"{inputs.files[0].path}: none of the {len(inputs.files)} input files holds a good event")
    copies = later_copies([(plan.path, plan.start, receipt["digests"]) for plan, receipt in used])
    repeated = sum(map(len, copies))
    read = sum(file.events for file in inputs.files)
    used_files = [Source.of(file) for file in good]
    common: dict[str, Any] = {
        "fingerprint": dataset.fingerprint_of(used_files, settings, copies=repeated),
        "request": dataset.fingerprint_of([Source.of(file) for file in inputs.files], settings),
        "settings": settings.to_json(),
        "geometry": inputs.files[0].geometry,
        "events": {"read": read, "written": written, "repeated": repeated, "dropped": dropped},
        "inputs": tuple(used_files),
        "bad_files": tuple(bad_files),
        "bad_events": tuple(bad_events),
        "shards": tuple(Shard(**shard) for _, receipt in used for shard in receipt["shards"]),
    }
    manifest = _of_showers(good, used, common) if isinstance(settings, Settings) else _of_pairs(used, common)
    first_bad = next((receipt["first_bad_event"] for _, receipt in used if receipt["bad_events"]), "")
    _require_tolerable(manifest, tolerance, first_bad)
    return manifest


def _of_showers(
    files: Sequence[InputFile], used: Sequence[tuple[Plan, Receipt]], common: dict[str, Any]
) -> ShowerManifest:
    from preprocessing.records import index_type  # noqa: PLC0415

    most = [receipt.get("most_hits", {}) for _, receipt in used]  # of each split; version 0.2 does not say
    return ShowerManifest(
        **common,
        index_type=index_type(common["geometry"].cells),
        energy_gev=_range(used, "energy_gev"),
        theta_rad=_range(used, "theta_rad"),
        **vars(LabelRange.joined(LabelRange.from_json(receipt) for _, receipt in used)),
        cut_by_energy=cut.table(each.get("cut_by_energy", {}) for _, each in used),
        plausibility=tuple({"name": file.path.name} | asdict(file.look) for file in files if file.look),
        most_hits={split: max(each[split] for each in most) for split in SPLITS} if all(most) else {},
    )


def _of_pairs(used: Sequence[tuple[Plan, Receipt]], common: dict[str, Any]) -> FlowManifest:
    """InputError: a flow is in two splits, which can happen where whole files were given to splits by name."""
    splits: dict[str, tuple[str, str]] = {}  # of each flow, and the first file of it
    for plan, receipt in used:
        for shard in receipt["shards"]:
            split, path = splits.setdefault(receipt["flow"], (shard["split"], plan.path))
            if split != shard["split"]:
                raise InputError(
                    f"--split-file: {plan.path} is in {shard['split']} and {path} in {split}, but both are of one "
                    "obstacle and Reynolds number; leave one of them out, or give both to one split"
                )
    return FlowManifest(**common, reynolds=_range(used, "reynolds"))


def _require_any_left(file: InputFile, events: Sequence[dict[str, Any]], settings: Settings) -> None:
    """Raise InputError if cut and threshold left nothing of `file`, whose pieces have these counts of events."""
    if any(each["written"] for each in events):
        return
    unit = f"its unit may be another than {file.geometry.file_unit_gev} GeV (--geometry file_unit_gev=...)"
    if any(each["dropped"].get(BELOW_THRESHOLD) for each in events):
        raise InputError(
            f"{file.path}: no shower has a cell of {settings.threshold_gev} GeV; {unit}, or lower --threshold-gev"
        )
    if any(each["dropped"][BELOW_CUT] for each in events):
        raise InputError(
            f"{file.path}: no shower is above the cut of {settings.selection.cut_gev} GeV; {unit}, or lower --cut-gev"
        )


def _require_tolerable(manifest: Manifest, tolerance: Tolerance, first_bad_event: str) -> None:
    """Raise InputError if more was left out than `tolerance` allows."""
    first_bad_file = manifest.bad_files[0].reason if manifest.bad_files else ""
    files = len(manifest.inputs) + len(manifest.bad_files)
    tolerance.require("file", len(manifest.bad_files), files, first_bad_file)
    tolerance.require("event", len(manifest.bad_events), manifest.events["read"], first_bad_event)


def _range(used: Sequence[tuple[Plan, Receipt]], label: str) -> tuple[float, float]:
    """Lowest and highest value of a label over the receipts that hold showers."""
    bounds = [receipt[label] for _, receipt in used if receipt[label] is not None]
    return min(low for low, _ in bounds), max(high for _, high in bounds)
