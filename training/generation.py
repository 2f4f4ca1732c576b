"""Showers from a trained model, in the layout and units of the Monte Carlo they imitate, and how long they take."""

from __future__ import annotations

import logging
import os
import shutil
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from calopipe import storage
from calopipe.errors import InputError, require_seed
from calopipe.labels import MoreLabels
from calopipe.progress import say
from calopipe.showers.angle import angle_of_cells
from calopipe.showers.cells import REFERENCE_UNIT_GEV, FloatArray
from calopipe.showers.files import MADE_BY, REQUEST, ShowerFile, open_all, open_showers
from calopipe.showers.hits import Digests
from calopipe.showers.selection import Selection
from calopipe.showers.writer import shower_writer
from calopipe.storage import Location
from calopipe.verdict import GIVEN_VERSION, TIMING_KIND
from preprocessing.events import receipts_of
from preprocessing.manifest import SCHEMA_VERSION
from training import folder
from training.folder import Card
from training.generator import Generator
from training.loading import load
from training.models.autoencoder.model import AutoEncoder
from training.parts import Parts, Share
from training.seen import JUDGES, require_unseen

logger = logging.getLogger(__name__)

_BATCHES = {1: 30, 100: 3, 10_000: 1}  # as CaloChallenge states times, and how often each is timed


@dataclass(frozen=True)
class Events:
    """Labels and digests of events, (N,) each."""

    energy_gev: FloatArray
    theta_rad: FloatArray
    digests: Digests
    more: MoreLabels = field(kw_only=True)


class Conditions:
    """The events of the files `like` that a `selection` chooses, for one model or several that are asked alike.

    The files are opened at once; the events are found when they are first needed, and only once. The dataset
    `selection.memory` tells them from its receipts; of files that it does not hold all cells are read. Raises
    InputError.
    """

    def __init__(self, like: Sequence[Location], selection: Selection) -> None:
        self.selection = selection
        self.files = open_all(like, selection)

    @cached_property
    def events(self) -> Events:
        told = receipts_of(self.files, self.selection)
        chosen = [found or file.chosen(self.selection) for file, found in zip(self.files, told, strict=True)]
        labels = [
            (file.energy_gev[mask], file.theta_rad[mask], digests[mask])
            for file, (mask, digests) in zip(self.files, chosen, strict=True)
        ]
        more = {
            name: np.concatenate([file.more[name][mask] for file, (mask, _) in zip(self.files, chosen, strict=True)])
            for name in self.files[0].more
        }
        return Events(*(np.concatenate(parts) for parts in zip(*labels, strict=True)), more=more)


def generate(
    model: Path,
    conditions: Conditions,
    output: Path,
    *,
    per_event: int = 1,
    seed: int = 1,
    batch: int = 0,
    strategy: str = "one-device",
    share: Share | None = None,
    extrapolate: bool = False,
) -> int:
    """Write to `output` showers with the labels of the `conditions`; their number.

    Each event's labels are used `per_event` times, one after the other. The cells are in the unit of its file. Each
    device of `strategy` makes `batch` showers at a time, or as many as suits the model if it is 0, while the ones
    before them are written, so that memory does not grow with their number.

    They are written in parts, into a hidden folder beside `output` that takes as much space and is removed at the end:
    a run that was killed goes on after its last whole part, and ends in the same bytes. With a `share`, only its parts
    are made. Several shares may be made at once, on hosts that have the folder in common; a last run without a share
    makes what is missing, and joins the parts without compressing them again.

    A file that stands for the same model, labels and seed is left as it is, and one of other generated showers
    replaced. Labels outside the range of the training are an error, unless it may `extrapolate`, and so are test events
    that the model was trained on. Raises InputError.
    """
    if per_event < 1:
        raise InputError(f"--per-event is {per_event}, expected at least 1")
    require_seed(seed)
    storage.require_writable(output.parent)
    files, selection = conditions.files, conditions.selection
    card = folder.read_card(model)
    _check_geometry(files[0], card)
    request = _request(card, files, selection, per_event, seed)
    # the batch is not part of the request: it changes no shower by more than rounding
    if (standing := _standing(output, request)) is not None:
        say(f"showers stand: {output}, {standing} of them; nothing to do")
        return standing
    events = conditions.events
    if selection.split == JUDGES and require_unseen(model, card, events.digests, str(model)) is None:
        logger.warning("%s does not say which events it was trained on: test events may be among them", model)
    energy, theta = (np.repeat(label, per_event) for label in (events.energy_gev, events.theta_rad))
    more = {name: np.repeat(label, per_event) for name, label in events.more.items()}
    if len(energy) == 0:
        raise InputError(
            f"{files[0].path}: no shower of the input is in the {selection.split} split and above the cut; give more "
            "files"
        )
    generator = Generator(model, batch, strategy)
    generator.check_kinds(more)
    if not extrapolate:
        generator.check_labels(energy, theta, more)
    attributes = _attributes(card, request) | {"seed": seed}
    parts = Parts(output.with_name(f".{output.name}.parts"), request, generator, len(energy), like=files[0])
    parts.make(share or Share(), energy, theta, seed, more)
    if share is not None:
        say(f"share {share.number} of {share.count} is made: {parts.folder}")
        return 0
    with shower_writer(output, files[0].geometry, attributes, files[0].deposits) as writer:
        for part in parts.paths:
            writer.append(part)
    shutil.rmtree(parts.folder)
    say(f"{len(energy)} showers: {output}")
    return len(energy)


def reconstruct(model: Path, like: Sequence[Location], output: Path, selection: Selection) -> int:
    """Write to `output` what the auto-encoder `model` makes of the showers that `selection` chooses; their number.

    They have the labels, the order, the unit and the layout of the files `like`. As in `generate`, a file that stands
    is left as it is, and one of other showers that this program made replaced. InputError: no auto-encoder, showers of
    another detector, test showers that it was trained on, none at all, or an output that holds something else.
    """
    card, found = load(model)
    if not isinstance(found, AutoEncoder):
        raise InputError(f"{model}: a model {card.config.model}, which reconstructs no showers; give an auto-encoder")
    files = open_all(like, selection)
    _check_geometry(files[0], card)
    chosen = [file.chosen(selection) for file in files]
    if selection.split == JUDGES:
        require_unseen(model, card, np.concatenate([digests[mask] for mask, digests in chosen]), str(model))
    if not (showers := sum(int(mask.sum()) for mask, _ in chosen)):
        raise InputError(f"{files[0].path}: no shower of the input is in the {selection.split} split; give more files")
    request = _request(card, files, selection)
    if (standing := _standing(output, request)) is not None:
        say(f"reconstructed showers stand: {output}, {standing} of them; nothing to do")
        return standing
    storage.require_writable(output.parent)
    compiled = tf.function(found.reconstruct, reduce_retracing=True)
    geometry = files[0].geometry
    unit = np.float32(geometry.file_unit_gev / REFERENCE_UNIT_GEV)
    with shower_writer(output, geometry, _attributes(card, request), files[0].deposits) as writer:
        for file, (mask, _) in zip(files, chosen, strict=True):
            for given in file.selected(mask):
                cells = compiled(tf.constant(given.cells * unit)).numpy() / unit
                writer.write(replace(given, cells=cells, mtheta_rad=angle_of_cells(cells, geometry)))
    say(f"{showers} reconstructed showers: {output}")
    return showers


def _request(card: Card, files: Sequence[ShowerFile], selection: Selection, *more: int) -> str:
    """What identifies showers that the model of `card` makes of the chosen showers of `files`, and of `more`."""
    chosen = selection.split, selection.rule.by_file, selection.cut_gev, selection.geometry, selection.bad_event
    version = metadata.version("calopipe"), SCHEMA_VERSION
    return storage.fingerprint([version, card.fingerprint(), [file.sha256 for file in files], chosen, more])


def _attributes(card: Card, request: str) -> dict[str, Any]:
    config, trained = card.config, card.trained
    made_by = (
        f"{config.model}, {trained['steps']:,} steps of {config.batch * trained['replicas']}, the weights of step "
        f"{trained['chosen_step']:,}, trained in {trained['seconds'] / 60:.3g} min"
    )
    return {"generator": f"calopipe {config.model}", MADE_BY: made_by, "model": card.fingerprint(), REQUEST: request}


def _check_geometry(file: ShowerFile, card: Card) -> None:
    """The model must be of the same detector; the unit of the cells may differ."""
    if differs := file.geometry.difference(card.geometry):
        name, found, trained_on = differs
        raise InputError(
            f"{file.path}: {name} is {found}, the model was trained on {trained_on}; use files of one detector"
        )


def _standing(output: Path, request: str) -> int | None:
    """Number of showers in `output`, if it was made for `request`. InputError if it is no file of generated showers."""
    if not output.exists():
        return None
    hint = "generated showers would take its place; give another --output"
    if output.is_dir():
        raise InputError(f"{output}: a folder, and {hint}")
    try:
        found = open_showers(output)
    except InputError:
        raise InputError(f"{output}: not a file of showers, and {hint}, or remove it") from None
    if found.request is None:
        raise InputError(f"{output}: showers that this program did not generate, and {hint}")
    return found.events if found.request == request else None


def time_generation(model: Path, conditions: Conditions, output: Path) -> dict[str, Any]:
    """Write to `output`, a JSON file, the median time of a shower in ms for each batch, on one device.

    The labels are those of the `conditions`, again and again. Start, tracing, reading and writing are left out. A batch
    is made at once: 10,000 showers of 65,025 cells are 2.6 GB. A file of this model and device is left as it is.
    """
    batches = {batch: Generator(model, batch) for batch in _BATCHES}
    device = _device()
    request = storage.fingerprint([next(iter(batches.values())).card.fingerprint(), device])
    with suppress(InputError):
        earlier = storage.read_json(output, kind=TIMING_KIND, schema_version=GIVEN_VERSION)
        if earlier.get("request") == request:
            say(f"times stand: {output}; nothing to do")
            return earlier
    times = [
        {"batch": batch, "ms_per_shower": 1000 * _seconds(generator, conditions, _BATCHES[batch]) / batch}
        for batch, generator in batches.items()
    ]
    document = {
        "kind": TIMING_KIND, "schema_version": GIVEN_VERSION, **device, "times": times, "request": request,
    }  # fmt: skip
    storage.write_json(output, document)
    say("; ".join(f"batch {each['batch']:,}: {each['ms_per_shower']:.3g} ms a shower" for each in times))
    return document


def _seconds(generator: Generator, conditions: Conditions, repeats: int) -> float:
    events = conditions.events
    energy, theta = (np.resize(label, generator.batch) for label in (events.energy_gev, events.theta_rad))
    more = {name: np.resize(label, generator.batch) for name, label in events.more.items()}
    seconds = []
    for repeat in range(repeats + 1):  # the first traces
        began = time.perf_counter()
        for _ in generator.showers(energy, theta, seed=repeat, more=more):
            pass
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def _device() -> dict[str, Any]:
    """The name of the accelerator, or of the processor, and the cores of this process."""
    cores = len(os.sched_getaffinity(0))
    accelerators = [each for each in tf.config.list_physical_devices() if each.device_type != "CPU"]
    if accelerators:
        details = tf.config.experimental.get_device_details(accelerators[0])
        name = str(details.get("device_name", accelerators[0].device_type))
    else:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "processor")
    return {"device": name, "accelerator": bool(accelerators), "cores": cores}
