"""Steps of a likelihood model on two replicas and on one, as a program: `autoregressive_replicas.py DATASET OUTPUT`.

The choice of cells depends on each shower alone, the noise is the same for every shower, and the optimizer is plain
gradient descent. So two replicas have the same weights as one, up to rounding.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from likelihoods import CONFIG

from preprocessing.dataset import read_manifest
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.models.autoregressive import cells, model
from training.models.autoregressive.mesh import colour
from training.models.base import Batch
from training.models.randomness import Draws

STEPS = 3


def _hits(view: Batch, parity: int, number: int, draws: Any) -> Any:
    """The first hits of each shower; hits of the colour `parity` have a weight."""
    shower = tf.repeat(tf.range(view["value"].shape[0]), model.HITS_A_SHOWER)
    place = tf.reshape(view["place"][:, : model.HITS_A_SHOWER], [-1, 3])
    value = tf.reshape(view["value"][:, : model.HITS_A_SHOWER], [-1])
    found = tf.reshape(view["colour"][:, : model.HITS_A_SHOWER], [-1])
    weight = tf.cast((value > 0) & (found == parity), tf.float32)
    return tf.concat([shower[:, None], place], 1), tf.maximum(value, 1e-3), weight


def _empty(view: Batch, parity: int, number: int, draws: Any, constants: Any) -> Any:
    """The same cells of every shower, where they are empty."""
    mesh = constants.mesh
    nx, ny, layers = mesh.geometry.shape
    cell = tf.range(model.EMPTY_A_SHOWER) * 7 % (nx * ny * layers)
    place = tf.stack([cell // (ny * layers), cell // layers % ny, cell % layers], 1)
    showers = view["value"].shape[0]
    place = tf.concat([tf.repeat(tf.range(showers), cell.shape[0])[:, None], tf.tile(place, [showers, 1])], 1)
    met = mesh.met(tf.gather_nd(view["axis"], place[:, ::3]), place[:, 3])
    empty = tf.gather(view["planes"], cells._own(place, mesh)) == 0
    return place, tf.cast(empty & (colour(place[:, 1], place[:, 2], met) == parity), tf.float32)


def _normal(self: Draws, purpose: str, shape: Any) -> Any:
    """The same noise for every shower."""
    return tf.broadcast_to(tf.cos(tf.cast(tf.range(shape[-1]), tf.float32)), shape)


def main(dataset: Path, output: Path) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    cells.some_hits, cells.some_empty = _hits, _empty
    Draws.normal = _normal  # type: ignore[method-assign]
    model.Autoregressive.optimizer = lambda *_: keras.optimizers.SGD(1e-5)  # type: ignore[method-assign]
    found: dict[str, Any] = {}
    for strategy, batch in (("one-device", 16), ("mirrored", 8)):
        config = replace(CONFIG, strategy=strategy, batch=batch, average=0.0, epochs=STEPS)
        engine = Engine(config, dataset, read_manifest(dataset), make_strategy(strategy))
        before = engine.state()
        losses, _ = engine.run(iter(engine.batches()), STEPS)
        found[f"{strategy}/losses"], found[f"{strategy}/replicas"] = losses, engine.replicas
        for name, value in engine.state().items():
            if name.startswith("network/"):
                found[f"{strategy}/before/{name}"], found[f"{strategy}/after/{name}"] = before[name], value
    np.savez(output, **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
