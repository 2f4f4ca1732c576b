"""What TensorBoard shows: losses by their names, and a figure as an image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

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
