"""What TensorBoard shows: losses by their names, and a figure as an image."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from matplotlib.figure import Figure

from training.run import history as module
from training.run.history import History


def test_a_loss_has_one_name_in_training_and_validation(tmp_path: Path) -> None:
    """So that TensorBoard lays the two curves over each other; in training several phases may have it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    history = History(tmp_path, 0)
    history.add({"step": 3, "train": {"a": {"total": 1.0, "hits": 2.0}, "b": {"total": 3.0}}, "seconds": 9.0})
    history.amend({"validation": {"total": 4.0, "hits": 5.0}, "found": {"value": 6.0}, "evaluations_begun": None})
    found = {}
    for run in (".", "validation"):
        board = EventAccumulator(str(tmp_path / "tensorboard" / run))
        board.Reload()
        for tag in board.Tags()["tensors"]:
            (event,) = board.Tensors(tag)
            found[run, tag] = float(tf.make_ndarray(event.tensor_proto))
    assert {key: value for key, value in found.items() if key != (".", "step")} == {
        (".", "loss/total/a"): 1, (".", "loss/hits"): 2, (".", "loss/total/b"): 3, (".", "seconds"): 9,
        ("validation", "loss/total"): 4, ("validation", "loss/hits"): 5, (".", "found/value"): 6,
    }  # fmt: skip


def test_a_history_goes_on_from_the_step_of_a_checkpoint(tmp_path: Path) -> None:
    history = History(tmp_path, 0)
    for step in (0, 7, 14):
        history.add({"step": step})
    assert [entry["step"] for entry in History(tmp_path, 7).entries] == [0, 7]
    assert History(tmp_path / "new", 7).entries == []


def test_the_bar_counts_showers_and_names_the_losses_of_the_last_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each second at most."""
    clock, told = [0.0], []
    bar = SimpleNamespace(update=told.append, set_postfix_str=lambda text, **_: told.append(text))

    def made(*given: Any, **_: str) -> Any:
        told.append(given)
        return bar

    monkeypatch.setattr(module, "progress_bar", made)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    domain = SimpleNamespace(items="showers")
    table = {"a": {"total": 9.0}, "b": {"total": 0.12345, "hits": 3.0}}
    engine: Any = SimpleNamespace(
        step=2, last_step=10, global_batch=8, config=SimpleNamespace(domain=domain), table=lambda _: table
    )
    progress = module.ProgressBar(engine)
    for step, now in ((5, 0.5), (6, 1.5), (7, 2.0)):
        engine.step, clock[0] = step, now
        progress.update(np.zeros(3))
    assert told == [("train", 80, "showers", 16), 24, "total 0.123 hits 3", 8, 8]


def test_the_log_holds_the_image(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    figure = Figure(figsize=(3, 2), dpi=100)
    figure.subplots().imshow(np.arange(20).reshape(4, 5))
    history = History(tmp_path, 7)
    history.add({"step": 7})
    history.draw({"frames": figure})
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert set(board.Tags()["tensors"]) == {"frames", "step"}
    (event,) = board.Tensors("frames")
    assert event.step == 7
    width, height, png = tf.make_ndarray(event.tensor_proto)  # and no second image
    image = tf.io.decode_png(png).numpy()
    assert image.shape == (200, 300, 3)
    assert (int(width), int(height)) == image.shape[1::-1]
    assert len(np.unique(image)) > 10
