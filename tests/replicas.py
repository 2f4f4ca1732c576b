"""A training of a tiny model under a strategy, as a program: `python replicas.py DATASET FOLDER`.

A worker of several writes FOLDER/multi-worker.npz. A single process writes one-device.npz, and mirrored.npz with two
devices.

The model has no dropout, no batch normalisation and no noise in its input, and plain gradient descent of rate 1. So the
change of its weights in a step is exactly the sum of the gradients over all replicas. The last loss of its second phase
is the mean of a random number for each shower, which shows the noise that the replicas drew.

The files also have the evaluation of an untrained generator on the same showers: in batches of six, where the last is
smaller and replicas have unequal numbers, and in one batch, where one replica has none.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import training.run.evaluator
from calopipe.showers.cells import Geometry
from preprocessing.dataset import read_manifest
from preprocessing.manifest import Manifest
from preprocessing.reading import decode
from training.configs import FitConfig, named_config
from training.engine.step import Engine
from training.engine.strategies import Team, make_strategy
from training.models.base import Batch, Losses, Model, Phase
from training.models.config import register
from training.models.randomness import Draws
from training.models.showers import ShowerJudge
from training.nodes.workers import Cluster
from training.run.evaluator import Evaluator


class Tiny(Model):
    """A dense network that regresses the energy, in two phases."""

    averaged = ("generator",)
    precision = "float32"

    def __init__(self, geometry: Geometry) -> None:
        cells = keras.Input(geometry.shape)
        self.networks = {"generator": keras.Model(cells, self.answer(keras.layers.Flatten()(cells)))}
        self.weights = {"square": 1.0, "noise": 0.0}
        self.phases = (
            Phase("first", "generator", self._losses, self.weights),
            Phase("second", "generator", self._losses, self.weights),
        )

    def answer(self, cells: Any) -> Any:
        """The outputs of the network (N, 1) of its inputs (N, cells)."""
        return keras.layers.Dense(1)(keras.layers.Dense(8, activation="tanh")(cells))

    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(1.0)

    def decode(self, records: Any, manifest: Manifest) -> Batch:
        return decode(records, manifest)

    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Any]:
        return self._losses(batch, draws), batch["cells"]

    def _losses(self, view: Batch, draws: Draws) -> Losses:
        found = self.networks["generator"](view["cells"], training=True)[:, 0]
        error = ops.cast(found, "float32") - view["energy_gev"] / 100.0
        return {"square": 0.01 * ops.square(error), "noise": draws.normal("noise", error.shape)}


class Normalised(Tiny):
    """Batch normalisation of the cells themselves."""

    def answer(self, cells: Any) -> Any:
        return keras.layers.Dense(1)(keras.layers.BatchNormalization(momentum=0.9)(cells))

    def optimizer(self, *_: Any) -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(1e-3)


@register("tiny")
@dataclass(frozen=True, kw_only=True)
class TinyConfig(FitConfig):
    kind: type[Tiny]

    def build(self, geometry: Geometry) -> Tiny:
        return self.kind(geometry)


def tiny(kind: type[Tiny] = Tiny, **settings: Any) -> FitConfig:
    """The config of a model of this kind."""
    return TinyConfig(model="tiny", kind=kind, **{"epochs": 2, "batch": 8, "learning_rate": 1e-3, **settings})


def collectives(engine: Engine, batches: Any) -> int:
    """The number of operations in the graph of a step that exchange data between replicas."""
    graph = engine._run.get_concrete_function(batches, tf.constant(1), tf.constant(0.0)).graph.as_graph_def()
    nodes = [node for function in graph.library.function for node in function.node_def] + list(graph.node)
    return sum(
        node.op.startswith(("CollectiveReduce", "CollectiveGather", "CollectiveBcast", "Nccl")) for node in nodes
    )


def looks(dataset: Path, strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """Losses, energy sum and numbers of showers of evaluations of the generator, and what this worker did for them.

    The worker's part is the number of batches that it saw, and how often TensorFlow traced the evaluation.
    """
    import layers  # noqa: F401  which makes the config `layers` known; in tests' own processes it is a user's file

    found: dict[str, Any] = {}
    config = named_config("layers")
    for batch in (6, 32):
        training.run.evaluator.BATCH = batch
        evaluator = Evaluator(config, dataset, read_manifest(dataset), "train", strategy)
        with patch.object(ShowerJudge, "add", autospec=True, side_effect=ShowerJudge.add) as add:
            looked = evaluator.evaluate()
        (told,) = looked.findings["metric"]["bins"]
        figures = [*looked.losses.values(), looked.findings["energy_sum"], told["reference"], told["candidate"]]
        traces = evaluator._evaluate.experimental_get_tracing_count()
        found |= {f"look/{batch}": figures, f"batches/{batch}": add.call_count, f"traces/{batch}": traces}
    return found


def train(dataset: Path, folder: Path, strategy: str, cluster: Cluster | None = None) -> None:
    config = tiny(strategy=strategy, batch=16 if strategy == "one-device" else 8)
    engine = Engine(config, dataset, read_manifest(dataset), make_strategy(strategy, cluster))
    before = engine.state()
    batches = iter(engine.batches())
    number = 0
    if strategy == "multi-worker":
        normalised = Engine(tiny(Normalised, strategy=strategy), dataset, read_manifest(dataset), engine.strategy)
        given = iter(normalised.batches())
        if cluster is not None and cluster.chief:  # tracing asks nothing of the other
            number = collectives(normalised, given)
    losses, _ = engine.run(batches, 1)
    looked = looks(dataset, engine.strategy)
    if cluster is None or cluster.chief:
        change = {name: value - before[name] for name, value in engine.state().items() if name.startswith("network")}
        noise = [row["noise"] for row in engine.table(losses).values()]
        path = folder / f"{strategy}.npz"
        np.savez(path, noise=noise, collectives=number, replicas=engine.replicas, **change, **looked)
    Team(engine.strategy, cluster).wait()  # one that ends early fails the other


def main(dataset: Path, folder: Path) -> None:
    if cluster := Cluster.of_process((), None):
        train(dataset, folder, "multi-worker", cluster)
        return
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    for strategy in ("one-device", "mirrored"):
        train(dataset, folder, strategy)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
