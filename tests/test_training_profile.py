"""Where a step's time goes: parts of a step made to measure, and that the steps which show it are undone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from replicas import Tiny
from showers import make_file

from calopipe.events.splits import SplitRule
from calopipe.showers.selection import Selection
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


class Clock:
    """Time that passes only where the test lets it, so that a busy machine changes no figure."""

    def __init__(self) -> None:
        self._now, self._lock = 0.0, threading.Lock()

    def perf_counter(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        with self._lock:  # TensorFlow may run two operations at once
            self._now += seconds


CLOCK = Clock()


def _taking(seconds: float) -> Callable[[Any], Any]:
    """A function of a tensor that gives it back when so many `seconds` have passed."""

    def take(value: Any) -> Any:
        CLOCK.advance(seconds)
        return value

    return lambda value: tf.ensure_shape(tf.numpy_function(take, [value], tf.float32, stateful=True), value.shape)


class Slow(Tiny):
    """A forward pass of 2 x 40 ms and a backward pass of 2 x 80 ms."""

    def _losses(self, view: Batch, draws: Draws) -> Losses:
        @tf.custom_gradient
        def slow(value: tf.Tensor) -> tuple[tf.Tensor, Any]:
            return _taking(0.04)(value), _taking(0.08)

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
            CLOCK.advance(0.06)
            yield batch

    monkeypatch.setattr(engine, "batches", late)
    monkeypatch.setattr("training.engine.profile.time", CLOCK)
    engine.run(iter(batches()), 1)
    before = engine.state()
    found = profile(engine, tmp_path / "board")
    assert found.steps == 10
    expected = {"forward": 0.08, "backward": 0.16, "all-reduce": 0, "optimizer": 0, "waiting for input": 0.06}
    assert found.seconds == pytest.approx(expected)
    assert list(found.seconds) == list(PARTS)
    assert found.collectives == 0
    after = engine.state()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)
    assert [path.suffixes for path in (tmp_path / "board").glob("plugins/profile/*/*")] == [[".xplane", ".pb"]]
