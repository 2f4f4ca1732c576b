"""Where the time of a training step goes: TensorFlow's own trace, for TensorBoard."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import tensorflow as tf

from training.engine.step import Engine

_STEPS = 10


def trace(engine: Engine, board: Path | None) -> None:
    """Leave TensorFlow's trace of ten steps in `board`, the log folder of TensorBoard, and undo the steps.

    All workers do the steps; those without a `board` leave nothing.
    """
    before, batches = engine.state(), iter(engine.batches())
    engine.run(batches, 1)  # builds the graph and compiles, which is no part of a step
    with tf.profiler.experimental.Profile(str(board)) if board else nullcontext():
        engine.run(batches, _STEPS)
    engine.restore(before, "the state before")
