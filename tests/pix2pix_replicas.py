"""Two steps of pix2pix-small under a strategy, on one replica or on two: `pix2pix_replicas.py STRATEGY DATASET OUTPUT`.

Without noise and mirrors, which replicas draw for themselves, and with plain descent: so the weights of two replicas
are those of one, but for rounding.
"""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from preprocessing.dataset import read_manifest
from training.configs import named_config
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.engine.team import Team
from training.models.pix2pix.model import Pix2Pix
from training.nodes.workers import Cluster


def main(strategy: str, dataset: Path, output: Path) -> None:
    if strategy == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    cluster = Cluster.here((), None)
    Pix2Pix.view = lambda _, batch, __: batch
    rates = {"generator": 1e-3, "discriminator": 0.1}  # so that changes are far above the rounding of weights
    Pix2Pix.optimizer = lambda _, network, *__: keras.optimizers.SGD(rates[network])
    config = named_config("pix2pix-small", strategy=strategy, batch=8 if strategy == "one-device" else 4)
    engine = Engine(config, dataset, read_manifest(dataset), make_strategy(strategy, cluster))
    before = engine.state()
    engine.run(iter(engine.batches()), 2)
    if cluster is None or cluster.chief:
        changed = {name: value - before[name] for name, value in engine.state().items() if name.startswith("network")}
        np.savez(output, replicas=engine.replicas, **changed)
    Team(engine.strategy, cluster).wait()  # one that ends early fails the other


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
