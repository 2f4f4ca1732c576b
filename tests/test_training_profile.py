"""Where a step's time goes: parts of a step made to measure, and that the steps which show it are undone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import Tiny
from showers import make_file

from calopipe.showers.selection import Selection
from calopipe.showers.splits import SplitRule
from preprocessing.dataset import Settings, read_manifest
from preprocessing.inputs import discover
from preprocessing.pipeline import preprocess
from training.configs import named_config
from training.engine.profile import PARTS, Profile, profile
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.models.base import Batch, Losses
from training.models.randomness import Draws


def test_table() -> None:
    seconds = dict.fromkeys(PARTS, 0.0) | {"forward": 0.0125, "optimizer": 0.0375}
    table, collectives = Profile(4, seconds, 5).table().split("\n\n")
    assert collectives == "5 collectives a step, over the replicas of this process"
    lines = table.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["medians of 4", "ms a step", "share"]
    assert rows[2] == ["forward", "12.50", "25.0%"]
    assert rows[-1] == ["step", "50.00", "100.0%"]
    assert len({len(line) for line in lines}) == 1


def _slept(seconds: float) -> Callable[[Any], Any]:
    """A function of a tensor that gives it back after so many `seconds`."""

    def sleep(value: Any) -> Any:
        time.sleep(seconds)
        return value

    return lambda value: tf.ensure_shape(tf.numpy_function(sleep, [value], tf.float32, stateful=True), value.shape)


class Slow(Tiny):
    """A forward pass of 2 x 40 ms, and a backward pass of 2 x 80 ms, on batches that take 60 ms each."""

    def _losses(self, view: Batch, draws: Draws) -> Losses:
        @tf.custom_gradient
        def slow(value: tf.Tensor) -> tuple[tf.Tensor, Any]:
            return _slept(0.04)(value), _slept(0.08)

        losses = super()._losses(view, draws)
        return {**losses, "square": slow(losses["square"])}


def test_the_parts_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(Selection(rule=SplitRule.parse(["train=*"])))
    preprocess(discover([str(make_file(tmp_path / "a.h5", events=16))]), tmp_path / "ds", settings)
    config = named_config("small", batch=4)
    engine = Engine(
        config, tmp_path / "ds", read_manifest(tmp_path / "ds"), make_strategy("one-device"), build=Slow, compiled=False
    )
    batches = engine.batches

    def late() -> Any:
        for batch in batches():
            time.sleep(0.06)
            yield batch

    monkeypatch.setattr(engine, "batches", late)
    engine.run(iter(batches()), 1)
    before = engine.state()
    found = profile(engine, tmp_path / "board")
    assert found.steps == 10
    assert list(found.seconds) == list(PARTS)
    assert 0.08 <= found.seconds["forward"] < 0.16
    assert 0.12 <= found.seconds["backward"] < 0.4
    assert 0.06 <= found.seconds["waiting for input"] < 0.12
    assert found.seconds["optimizer"] < 0.08
    assert found.collectives == 0
    after = engine.state()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)
    assert [path.suffixes for path in (tmp_path / "board").glob("plugins/profile/*/*")] == [[".xplane", ".pb"]]
