"""The two ways of the study to run the steps: a loop of our own, and Keras's `fit`. And where their time goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from training.engine.profile import Profile, profiled
from training.engine.step import Engine

# Told the losses of the last step of each call, and whether any worker was told to stop; says whether to.
After = Callable[[npt.NDArray[np.float32], bool], bool]


def custom(engine: Engine, steps_a_call: int, after: After, told_to_stop: Callable[[], bool]) -> None:
    """Train to the engine's last step, `steps_a_call` steps a call; no call passes the end of an epoch."""
    batches = iter(engine.batches())
    while (step := engine.step) < engine.last_step:
        epoch_end = (step // engine.steps_an_epoch + 1) * engine.steps_an_epoch
        steps = min(steps_a_call, min(epoch_end, engine.last_step) - step)
        if after(*engine.run(batches, steps, stop=told_to_stop())):
            return


def builtin(engine: Engine, after: After) -> None:
    """Train to the engine's last step with `keras.Model.fit`, a step a call."""
    steps = engine.last_step - engine.step
    if steps == 0:
        return
    _fit_model(engine).fit(
        engine.batches(), steps_per_epoch=steps, epochs=1, verbose=0, shuffle=False, callbacks=[_After(after)]
    )


def profile(engine: Engine, approach: str, trace: Path | None) -> Profile:
    """Where the time of a step goes. The steps that show it are undone, so that training is as without them.

    `trace` keeps TensorFlow's own trace. Of several workers all do the same number of steps, however slow.
    """
    before = engine.state()
    batches = iter(engine.batches())
    if approach == "builtin":
        model = _fit_model(engine)
        model.make_train_function()

        def run(steps: int) -> None:
            for _ in range(steps):
                np.asarray(model.train_function(batches)["losses"])
    else:

        def run(steps: int) -> None:
            engine.run(batches, steps)

    several = engine.config.strategy == "multi-worker"
    found = profiled(run, trace=trace, longest_s=math.inf if several else 60.0)
    engine.restore(before, "the state before")
    return found


def _fit_model(engine: Engine) -> keras.Model:
    with engine.strategy.scope():
        model = _FitModel(engine)
        model.compile(jit_compile=False)  # the engine says what is compiled
    return model


class _FitModel(keras.Model):
    """The engine's step as Keras wants it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._step = engine.replica_step
        self.built = True

    def train_step(self, data: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {"losses": self._step(data, tf.constant(0.0))[:-1]}


class _After(keras.callbacks.Callback):
    def __init__(self, after: After) -> None:
        super().__init__()
        self._after = after

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002  Keras's
        assert logs is not None
        self.model.stop_training = self._after(np.asarray(logs["losses"]), False)
