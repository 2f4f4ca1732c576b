"""Which simulations a model is rolled out from: those of the dataset's test split, once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from flows import write_flow

from calopipe.errors import InputError
from calopipe.flow.files import flow_writer, open_flow
from calopipe.showers.splits import SplitRule
from preprocessing.__main__ import main as preprocess
from preprocessing.dataset import read_manifest
from training import folder
from training.rollout import rollout
from training.rollout.held_out import roll_out_held_out, rollouts


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The simulations and steps that a model which makes no change was rolled out from and for."""
    found: list[tuple[str, int]] = []

    def roll_out(model: Path, start: Path, output: Path, *, frame: int, steps: int, movie: Path) -> None:
        found.append((start.name, steps))
        flow = open_flow(start)
        with flow_writer(output, flow, attributes={"model": model.name}) as write:
            write(flow.velocity(frame, frame + 1).repeat(steps + 1, axis=0))
        movie.touch()

    def read_card(place: Path) -> Any:
        return SimpleNamespace(fingerprint=lambda: place.name)

    monkeypatch.setattr(rollout, "roll_out", roll_out)
    monkeypatch.setattr(folder, "read_card", read_card)
    return found


def test_the_test_split_is_rolled_out_once(tmp_path: Path, asked: list[tuple[str, int]]) -> None:
    files = [str(write_flow(tmp_path / f"s{n}.h5", reynolds=60.0 + 7 * n, strouhal=0.19)) for n in range(12)]
    preprocess(["--input", *files, "--output", str(tmp_path / "ds")])
    shards = [
        str(tmp_path / "ds" / each.name) for each in read_manifest(tmp_path / "ds").shards if each.split == "test"
    ]
    examples = [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(shards)]
    numbers = {each.features.feature["reynolds"].float_list.value[0] for each in examples}
    held_out = [f"s{n}.h5" for n in range(12) if 60.0 + 7 * n in numbers]
    assert 0 < len(held_out) < 12
    made = roll_out_held_out(tmp_path / "m1", files, tmp_path / "out", SplitRule(), 5)
    assert asked == [(name, 5) for name in held_out]
    assert made == rollouts(tmp_path / "out")[1]
    assert roll_out_held_out(tmp_path / "m1", files, tmp_path / "out", SplitRule(), 5) == made
    assert len(asked) == len(held_out)  # they stand
    roll_out_held_out(tmp_path / "m2", files, tmp_path / "out", SplitRule(), 0)
    assert asked[len(held_out) :] == [(name, 23) for name in held_out]  # another model, and as long as the simulation


def test_roll_outs_of_another_split_go_and_an_empty_split_is_one_line(
    tmp_path: Path, asked: list[tuple[str, int]]
) -> None:
    files = [str(write_flow(tmp_path / f"{name}.h5")) for name in "ab"]
    roll_out_held_out(tmp_path / "m", files, tmp_path / "out", SplitRule.parse(["test=a.h5", "train=b.h5"]), 3)
    roll_out_held_out(tmp_path / "m", files, tmp_path / "out", SplitRule.parse(["test=b.h5", "train=a.h5"]), 3)
    assert [path.name for path in rollouts(tmp_path / "out")[0]] == ["b.h5"]
    with pytest.raises(InputError, match=r"a.h5: none of the 2 simulations is in the test split"):
        roll_out_held_out(tmp_path / "m", files, tmp_path / "out", SplitRule.parse(["train=*"]), 3)
