"""Roll-outs from the simulations that a model was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from calopipe import storage
from calopipe.errors import InputError
from calopipe.flow.files import FlowFile, open_flow
from calopipe.progress import say
from calopipe.showers.splits import SPLITS, SplitRule
from training import folder


def roll_out_held_out(model: Path, files: Sequence[str], output: Path, rule: SplitRule, steps: int) -> str:
    """Roll out `steps` from the first frame of each simulation of the test split among `files`, into `output`.

    With 0 steps, or more than a simulation has, as many as that. A roll-out has the name of its simulation, and a movie
    beside it; one that is there is kept. Returns the fingerprint of `rollouts`. InputError: the split is empty.
    """
    made, flows = 0, held_out(files, rule)
    for flow in flows:
        frames = min(steps or len(flow.time), len(flow.time) - 1)
        path = output / flow.path.name
        if not _stands(path, folder.read_card(model).fingerprint(), frames):
            from training.rollout.rollout import roll_out  # noqa: PLC0415  TensorFlow, which what stands needs not

            output.mkdir(parents=True, exist_ok=True)
            roll_out(model, Path(str(flow.path)), path, frame=0, steps=frames, movie=path.with_suffix(".gif"))
            made += 1
    names = {flow.path.name for flow in flows}
    for other in output.glob("*.h5"):
        if other.name not in names:
            other.unlink()  # of another split
    say(f"{len(flows)} roll-outs of the test split, {made} of them new")
    return rollouts(output)[1]


def rollouts(output: Path) -> tuple[list[Path], str]:
    """The roll-outs in the folder `output`, and a fingerprint of their content."""
    paths = sorted(output.glob("*.h5"))
    return paths, storage.fingerprint([[path.name, storage.sha256_of_file(path)] for path in paths])


def held_out(files: Sequence[str], rule: SplitRule) -> list[FlowFile]:
    """The simulations of the test split. InputError: there is none."""
    flows = [open_flow(storage.location(file)) for file in files]
    found = [flow for flow in flows if SPLITS[rule.assign(flow.path.name, _digests(flow))[0]] == "test"]
    if not found:
        raise InputError(f"{files[0]}: none of the {len(files)} simulations is in the test split; give more of them")
    return found


def _digests(flow: FlowFile) -> npt.NDArray[np.uint64]:
    return np.array([flow.digest], dtype=np.uint64)


def _stands(path: Path, fingerprint: str, frames: int) -> bool:
    """Whether `path` is a roll-out of so many frames, after its first, by the model with this fingerprint."""
    if not path.is_file():
        return False
    with h5py.File(path) as file:
        return file.attrs.get("model") == fingerprint and len(file["time"]) == frames + 1
