"""Two steps of pix2pix-small on one replica and on two of a process: `pix2pix_replicas.py DATASET OUTPUT`.

Without noise and mirrors, which replicas draw for themselves, and with plain descent: so the weights of two replicas
are those of one, but for rounding.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

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
    rates = {"generator": 1e-3, "discriminator": 0.1}  # so that changes are far above the rounding of weights
    Pix2Pix.optimizer = lambda _, network, *__: keras.optimizers.SGD(rates[network])
    found: dict[str, Any] = {}
    for strategy, batch in (("one-device", 8), ("mirrored", 4)):
        config = named_config("pix2pix-small", strategy=strategy, batch=batch)
        engine = Engine(config, dataset, read_manifest(dataset), make_strategy(strategy))
        before = engine.state()
        engine.run(iter(engine.batches()), 2)
        found[f"{strategy}/replicas"] = engine.replicas
        for name, value in engine.state().items():
            if name.startswith("network"):
                found[f"{strategy}/{name}"] = value - before[name]
    np.savez(output, **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
