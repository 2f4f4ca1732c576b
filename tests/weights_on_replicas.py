"""A step of models with weights of all kinds on one replica and on two: `weights_on_replicas.py DATASET OUTPUT`.

OUTPUT gets, for each model, the weights of every replica after a step: on one replica of 16 showers, and on two of 8,
also with forward and backward pass compiled by XLA; and the cells that each replica was given.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from replicas import Normalised, Tiny, tiny

from preprocessing.dataset import read_manifest
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.models.base import Batch, Losses


class Mixed(Tiny):
    """A frozen teacher, which does not change; a matrix that is normalised at every forward pass; and two heads.

    Each phase trains one head, and leaves the other without gradient. The optimizer has momentum, and a weight decay.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.phases = tuple(
            replace(phase, losses=lambda view, _, head=head: self._of_head(head, view))
            for head, phase in enumerate(self.phases)
        )

    def answer(self, cells: Any) -> Any:
        inputs = keras.Input(cells.shape[1:])
        features = keras.layers.Dense(8, activation="tanh")(inputs)
        teacher = keras.Model(inputs, keras.layers.BatchNormalization()(features))
        teacher.trainable = False
        normalised = keras.layers.SpectralNormalization(keras.layers.Dense(8, activation="tanh"))
        flow = normalised(teacher(cells))
        return [keras.layers.Dense(1)(flow), keras.layers.Dense(1)(flow)]

    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(learning_rate, momentum=0.9, weight_decay=0.01)

    def _of_head(self, head: int, view: Batch) -> Losses:
        error = self.networks["generator"](view["cells"], training=True)[head][:, 0] - view["energy_gev"] / 100.0
        return {"square": ops.square(error), "noise": ops.zeros_like(error)}


class Overflowing(Tiny):
    """A model in float16: the gradients of its first phase overflow, those of its second phase do not."""

    precision = "float16"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        first, second = self.phases
        self.phases = (replace(first, weights={"square": 2.0**25, "noise": 0.0}), second)

    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(learning_rate, momentum=0.9)


MODELS = (Overflowing, Mixed, Normalised)


def main(dataset: Path, output: Path) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    found: dict[str, Any] = {}
    # one of each: the exchanges of two strategies of a process have the same numbers, and their shapes would clash
    strategies = {name: make_strategy(name) for name in ("one-device", "mirrored")}
    for model in MODELS:
        for name, strategy, batch, compiled in (
            ("one", "one-device", 16, False),
            ("two", "mirrored", 8, False),
            ("xla", "mirrored", 8, True),
        ):
            config = tiny(model, strategy=strategy, batch=batch, precision=model.precision, learning_rate=0.1)
            engine = Engine(config, dataset, read_manifest(dataset), strategies[strategy], compiled=compiled)
            weights = engine.model.networks["generator"].weights
            before = [weight.numpy() for weight in weights]
            given = next(iter(engine.batches()))["cells"]  # what the step is given too: a function of its number
            engine.run(iter(engine.batches()), 1)
            of_replicas = engine.strategy.experimental_local_results
            found[f"{model.__name__}/{name}/cells"] = np.stack(of_replicas(given))
            for number, weight in enumerate(weights):
                found[f"{model.__name__}/before/{number:02}"] = before[number]
                found[f"{model.__name__}/{name}/{number:02}"] = np.stack(of_replicas(weight.value))
    np.savez(output, **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
