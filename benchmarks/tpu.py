"""What a TPU would pad of the networks of a config, layer by layer: `python benchmarks/tpu.py [--config 3dgan]`."""

from __future__ import annotations

import argparse

import keras

from calopipe.showers.cells import REFERENCE_GEOMETRY
from training.configs import named_config
from training.models.base import build

_SUBLANES, _LANES = 8, 128  # the tile that a TPU stores the two minor dimensions of an array in


def tpu_padding(model: keras.Model, batch: int) -> list[str]:
    """A line for each convolution and dense layer of `model` at `batch` showers a core.

    A TPU stores arrays in tiles of 8 x 128: XLA puts channels and batch there, whichever way round wastes less.
    The share is of stored numbers that are not padding, an estimate of how much of the matrix unit works.
    """
    lines = []
    for layer in model.layers:
        if not layer.trainable_weights or isinstance(layer, keras.layers.BatchNormalization):
            continue
        channels = layer.output.shape[-1]
        used = max(
            batch / _up(batch, first) * channels / _up(channels, second)
            for first, second in ((_SUBLANES, _LANES), (_LANES, _SUBLANES))
        )
        lines.append(f"{model.name} {layer.name}: batch {batch}, {channels} channels, {used:.0%} of a tile used")
    return lines


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("--config", default="3dgan", metavar="NAME", help="of showers of 51 x 51 x 25 cells")
    config = named_config(command.parse_args().config)
    for network in build(config, REFERENCE_GEOMETRY).networks.values():
        print("\n".join(tpu_padding(network, config.batch)))


if __name__ == "__main__":
    main()
