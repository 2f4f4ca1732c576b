"""The steps of a training by Keras's `fit`, one step for each call.

The weights are the same to the last bit. This is not for several workers: Keras 3's `fit` fails (keras issue 20585).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training.engine.step import Engine
from training.run.loop import Loop


def steps(loop: Loop) -> None:
    """Replaces `Loop.steps`."""
    engine = loop.engine
    with engine.strategy.scope():
        model = _FitModel(engine)
        model.compile(jit_compile=False)  # the engine says what is compiled

    def after(_: int, logs: Mapping[str, Any]) -> None:
        model.stop_training = loop.after(np.asarray(logs["losses"]), stop=False)

    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=after)]
    if left := engine.last_step - engine.step:
        model.fit(engine.batches(), steps_per_epoch=left, epochs=1, verbose=0, shuffle=False, callbacks=callbacks)


class _FitModel(keras.Model):
    """The engine's step as a model of Keras."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._step = engine.replica_step
        self.built = True

    def train_step(self, data: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {"losses": self._step(data, tf.constant(0.0))[:-1]}
