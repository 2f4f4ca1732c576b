"""Roll-outs that start from the simulations of the test split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

import numpy as np

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.hdf5 import opened_file
from calopipe.events.splits import SplitRule
from calopipe.flow.files import START, FlowFile, open_flow
from calopipe.progress import say
from training import model_folder


def roll_out_held_out(model: Path, files: Sequence[str], output: Path, rule: SplitRule, steps: int) -> str:
    """Roll out `steps` from the first frame of each simulation of the test split among `files`, into `output`.

    With 0 steps, or more than the simulation has, a roll-out has as many steps as the simulation. Its file has the name
    of the simulation, and a movie beside it. An earlier roll-out of the same model, simulation and steps is kept.
    Returns the fingerprint of `rollouts`. InputError: the split is empty.
    """
    card, made = model_folder.read_card(model), 0
    places = _places(held_out(files, rule), output)
    for path, (flow, sha256) in places.items():
        stride = round(card.geometry.interval_d / flow.grid.interval_d)  # frames of the simulation for each step
        lasts = (len(flow.time) - 1) // max(stride, 1)
        frames = min(steps or lasts, lasts)
        if not _stands(path, {"model": card.fingerprint(), START: sha256}, frames):
            from training.rollout.rollout import roll_out  # noqa: PLC0415  TensorFlow, which what stands needs not

            output.mkdir(parents=True, exist_ok=True)
            for old in (path, movie := path.with_suffix(".gif")):  # files of another model or length, or damaged ones
                storage.remove(old)
            roll_out(model, Path(str(flow.path)), path, frame=0, steps=frames, movie=movie)
            made += 1
    for other in output.glob("*.h5"):
        if other not in places:  # of another split
            storage.remove(other)
            storage.remove(other.with_suffix(".gif"))
    say(f"{len(places)} roll-outs of the test split, {made} of them new")
    return rollouts(output)[1]


def _places(flows: Sequence[FlowFile], output: Path) -> dict[Path, tuple[FlowFile, str]]:
    """Each simulation and the hash of its file, by the roll-out's path, which has the hash if several share a name."""
    places = {}
    names = [PurePath(flow.path.name).stem for flow in flows]
    for name, flow in zip(names, flows, strict=True):
        sha256 = storage.sha256_of_file(flow.path)
        places[output / (f"{name}.h5" if names.count(name) == 1 else f"{name}-{sha256[:8]}.h5")] = flow, sha256
    return places


def rollouts(output: Path) -> tuple[list[Path], str]:
    """The roll-outs in the folder `output`, and a fingerprint of their content."""
    paths = sorted(output.glob("*.h5"))
    return paths, storage.fingerprint([[path.name, storage.sha256_of_file(path)] for path in paths])


def held_out(files: Sequence[str], rule: SplitRule) -> list[FlowFile]:
    """The simulations of the test split. InputError: there is none."""
    flows = [open_flow(storage.location(file)) for file in files]
    tested = [flow for flow in flows if rule.mask("test", flow.path.name, np.array([flow.digest]))[0]]
    if not tested:
        raise InputError(f"{files[0]}: none of the {len(files)} simulations is in the test split; give more of them")
    return tested


def _stands(path: Path, attributes: Mapping[str, str], frames: int) -> bool:
    """Whether `path` is a roll-out with so many `frames` after its first, these `attributes`, and a movie."""
    if not (path.is_file() and path.with_suffix(".gif").is_file()):
        return False
    with suppress(InputError, KeyError), opened_file(path) as file:
        same = all(file.attrs.get(name) == value for name, value in attributes.items())
        return same and len(file["time"]) == frames + 1
    return False
