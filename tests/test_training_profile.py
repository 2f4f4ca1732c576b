"""The trace of a training's steps: TensorFlow's file is there, and training is as if the steps had not been done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from replicas import tiny
from trainings import small_dataset

from preprocessing.dataset import read_manifest
from training.engine.profile import trace
from training.engine.step import Engine
from training.engine.strategies import make_strategy


def test_steps_are_traced_and_undone(tmp_path: Path) -> None:
    dataset, config = small_dataset(tmp_path), tiny(batch=4)
    engine = Engine(config, dataset, read_manifest(dataset), make_strategy("one-device"), compiled=False)
    engine.run(iter(engine.batches()), 1)
    before = engine.state()
    trace(engine, tmp_path / "board")
    after = engine.state()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)
    assert [path.suffixes for path in (tmp_path / "board").glob("plugins/profile/*/*")] == [[".xplane", ".pb"]]
