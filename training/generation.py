"""Showers from a trained model, in the layout and units of the Monte Carlo they imitate."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import chain
from pathlib import Path

import numpy as np

from calopipe import storage
from calopipe.errors import InputError, require_seed
from calopipe.progress import progress_bar, say
from calopipe.showers.cells import REFERENCE_UNIT_GEV, FloatArray, Geometry, Showers
from calopipe.showers.files import REQUEST, ShowerFile, open_showers
from calopipe.showers.flaws import SKIP
from calopipe.showers.writer import shower_writer
from preprocessing.dataset import SCHEMA_VERSION
from training import folder
from training.conditions import Conditions
from training.folder import Card
from training.generator import Generator
from training.seen import JUDGES, require_unseen

logger = logging.getLogger(__name__)

_PART_SHOWERS = 1000  # that are made again at most if a run is killed, but for what a batch holds more
_SHOWERS_COPIED = 100  # at a time, from a part to the file: 26 MB of the reference's showers


@dataclass(frozen=True)
class Share:
    """What one of `count` processes that generate together makes: the one of this `number`, from 0."""

    number: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Share:
        """The share of "I/N". Raises InputError."""
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
            raise InputError(f"--share is {text!r}, expected I/N: a process, from 0, of N")
        return cls(int(number), int(count))


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
    """Write to `output` showers with the energies and angles of the `conditions`; their number.

    Each event's labels are used `per_event` times, one after the other. The cells are in the unit of its file. Each
    device of `strategy` makes `batch` showers at a time, or as many as suits the model if it is 0, while the ones
    before them are written, so that memory does not grow with their number.

    They are written in parts, into a hidden folder beside `output` that takes as much space and is removed at the end:
    a run that was killed goes on after its last whole part, and ends in the same bytes. With a `share`, only its parts
    are made. Several shares may be made at once, on hosts that have the folder in common; a last run without a share
    makes what is missing, and writes the file.

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
    request = storage.fingerprint(
        [
            metadata.version("calopipe"), card.fingerprint(), [file.sha256 for file in files], selection.split,
            selection.rule.by_file, per_event, seed, selection.cut_gev, selection.geometry, selection.bad_event,
            SCHEMA_VERSION,
        ]
    )  # fmt: skip
    # the batch is not part of the request: it changes no shower by more than rounding
    if (standing := _standing(output, request)) is not None:
        say(f"showers stand: {output}, {standing} of them; nothing to do")
        return standing
    events = conditions.events
    if selection.split == JUDGES and require_unseen(model, card, events.digests, str(model)) is None:
        logger.warning("%s does not say which events it was trained on: test events may be among them", model)
    energy, theta = (np.repeat(label, per_event) for label in (events.energy_gev, events.theta_rad))
    if len(energy) == 0:
        raise InputError(
            f"{files[0].path}: no shower of the input is in the {selection.split} split and above the cut; give more "
            "files"
        )
    generator = Generator(model, batch, strategy)
    if not extrapolate:
        generator.check_labels(energy, theta)
    attributes = {
        "generator": f"calopipe {card.config.model}", "model": card.fingerprint(), "seed": seed, REQUEST: request,
    }  # fmt: skip
    parts = output.with_name(f".{output.name}.parts")
    parts.mkdir(exist_ok=True)
    whole = _write_parts(
        parts, request, generator, energy, theta, geometry=files[0].geometry, seed=seed, share=share or Share()
    )
    if share is not None:
        say(f"share {share.number} of {share.count} is made: {parts}")
        return 0
    with shower_writer(output, files[0].geometry, attributes) as writer:
        for showers in chain.from_iterable(map(_stored, whole)):
            writer.write(showers)
    shutil.rmtree(parts)
    say(f"{len(energy)} showers: {output}")
    return len(energy)


def _write_parts(
    folder: Path,
    request: str,
    generator: Generator,
    energy_gev: FloatArray,
    theta_rad: FloatArray,
    *,
    geometry: Geometry,
    seed: int,
    share: Share,
) -> list[Path]:
    """The parts of the showers in `folder`, in order; those of the `share` that are missing are made, others' removed.

    Cells are in the unit of `geometry`.
    """
    scale = np.float32(REFERENCE_UNIT_GEV / geometry.file_unit_gev)
    whole = generator.showers_at_a_time
    size = -(-_PART_SHOWERS // whole) * whole  # whole batches: no part depends on another
    name = f"{request[:16]}-{size}"
    parts = {start: folder / f"{name}-{start}.h5" for start in range(0, len(energy_gev), size)}
    for other in folder.iterdir():
        if name not in other.name:  # what another process is writing stays
            other.unlink(missing_ok=True)
    mine = list(parts)[share.number :: share.count]
    missing = [start for start in mine if not parts[start].exists()]
    total, to_do = (sum(len(energy_gev[start : start + size]) for start in starts) for starts in (mine, missing))
    with progress_bar("generate", total, "showers", total - to_do) as bar:
        for start in missing:
            labels = energy_gev[start : start + size], theta_rad[start : start + size]
            with shower_writer(parts[start], geometry, {}) as writer:
                for showers in generator.showers(*labels, seed, index=start, extrapolate=True):
                    writer.write(replace(showers, cells=showers.cells * scale))
                    bar.update(len(showers))
    return list(parts.values())


def _stored(part: Path) -> Iterator[Showers]:
    """The showers of a part, good or bad, some at a time."""
    found = open_showers(part, bad_event=SKIP)
    for first in range(0, found.events, _SHOWERS_COPIED):
        chosen = slice(first, first + _SHOWERS_COPIED)
        cells = found.cells(first, first + _SHOWERS_COPIED)
        assert found.mtheta_rad is not None
        yield Showers(cells, found.energy_gev[chosen], found.theta_rad[chosen], found.mtheta_rad[chosen])


def _check_geometry(file: ShowerFile, card: Card) -> None:
    """The model must be of the same detector; the unit of the cells may differ."""
    for name, value in card.geometry.to_json().items():
        found = getattr(file.geometry, name)
        if name != "file_unit_gev" and found != value:
            raise InputError(
                f"{file.path}: {name} is {found}, the model was trained on {value}; use files of one detector"
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
