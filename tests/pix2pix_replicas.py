"""Steps of pix2pix-small on one replica and on two: `pix2pix_replicas.py DATASET OUTPUT`.

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
from training.models.pix2pix.model import Pix2Pix


def main(dataset: Path, output: Path) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    Pix2Pix.view = lambda _, batch, __: batch
    Pix2Pix.optimizer = lambda *_: keras.optimizers.SGD(1e-3)
    found = {}
    for strategy, batch in (("one-device", 8), ("mirrored", 4)):
        config = named_config("pix2pix-small", strategy=strategy, batch=batch)
        engine = Engine(config, dataset, read_manifest(dataset), make_strategy(strategy))
        before = engine.state()
        engine.run(iter(engine.batches()), 2)
        found |= {f"{strategy}/{name}": value - before[name] for name, value in engine.state().items()}
    np.savez(output, **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
