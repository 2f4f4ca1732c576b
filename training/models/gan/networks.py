"""The reference's 3-D convolutional networks, as tables; and small networks of the same form.

Source: svalleco/3Dgan, branch Anglegan. The generator has 1,365,047 parameters (64 of them not trained), the
discriminator 87,402.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import keras
from keras import layers, ops

from training.models.gan.convolutions import BatchNormalization, Conv3D, Size, arrange, restore
from training.models.gan.model import LATENT
from training.models.precision import full_precision
from training.models.randomness import Dropout

_BN_EPSILON = 1e-6
_LEAK = 0.3
_DROPPED = 0.2
_SEED_CHANNELS = 8


@dataclass(frozen=True)
class Convolution:
    """`filters` of size `kernel`, after padding each axis by `pad` zeros on both sides, or to keep the "same" size."""

    filters: int
    kernel: Size
    pad: Size | Literal["same"] = (0, 0, 0)
    batch_norm: bool = True


@dataclass(frozen=True)
class Networks3D:
    """The networks for one calorimeter of `shape` (x, y, layer).

    The generator starts from a dense `seed` grid of 8 channels, repeated `upsample` times along each axis, and ends
    with one channel of `shape`.
    """

    shape: Size
    seed: Size
    upsample: int
    generator: tuple[Convolution, ...]
    discriminator: tuple[Convolution, ...]


REFERENCE = Networks3D(
    shape=(51, 51, 25),
    seed=(9, 9, 8),
    upsample=6,  # (54, 54, 48)
    generator=(
        Convolution(8, (6, 6, 8)),  # (49, 49, 41)
        Convolution(6, (4, 4, 6), pad=(2, 2, 1)),  # (50, 50, 38)
        Convolution(6, (4, 4, 6), pad=(2, 2, 1)),  # (51, 51, 35)
        Convolution(6, (4, 4, 6), pad=(2, 2, 1)),  # (52, 52, 32)
        Convolution(6, (3, 3, 5), pad=(1, 1, 0)),  # (52, 52, 28)
        Convolution(6, (3, 3, 3), pad=(1, 1, 0), batch_norm=False),  # (52, 52, 26)
        Convolution(1, (2, 2, 2), batch_norm=False),  # (51, 51, 25)
    ),
    discriminator=(
        Convolution(16, (5, 6, 6), pad="same", batch_norm=False),  # (51, 51, 25)
        Convolution(8, (5, 6, 6), pad=(0, 0, 1)),  # (47, 46, 22)
        Convolution(8, (5, 6, 6), pad=(0, 0, 1)),  # (43, 41, 19)
        Convolution(8, (5, 6, 6)),  # (39, 36, 14)
    ),
)

# For the Geant4 sample's showers, with three by three cells and five layers joined: tests train it in seconds.
SMALL = Networks3D(
    shape=(17, 17, 5),
    seed=(5, 5, 3),
    upsample=4,  # (20, 20, 12)
    generator=(
        Convolution(8, (3, 3, 4)),  # (18, 18, 9)
        Convolution(6, (3, 3, 4), pad=(1, 1, 0)),  # (18, 18, 6)
        Convolution(6, (3, 3, 3), pad=(1, 1, 1), batch_norm=False),  # (18, 18, 6)
        Convolution(1, (2, 2, 2), batch_norm=False),  # (17, 17, 5)
    ),
    discriminator=(
        Convolution(8, (3, 3, 3), pad="same", batch_norm=False),  # (17, 17, 5)
        Convolution(8, (3, 3, 3), pad=(0, 0, 1)),  # (15, 15, 5)
        Convolution(8, (3, 3, 3)),  # (13, 13, 3)
    ),
)


def generator_3d(table: Networks3D, momentum: float) -> keras.Model:
    """From (N, 256) to images (N, x, y, layer, 1). `momentum` is that of the batch normalisation."""
    latent = keras.Input((LATENT,), dtype=full_precision(), name="latent")
    seed = (*table.seed, _SEED_CHANNELS)
    flow = layers.Reshape(seed)(layers.Dense(math.prod(seed))(latent))
    for row in table.generator:
        first, last = row is table.generator[0], row is table.generator[-1]
        initializer = "glorot_normal" if last else "he_uniform"
        flow = Conv3D(
            row.filters, row.kernel, pad=row.pad, upsample=table.upsample if first else 1, slope=float(last),
            kernel_initializer=initializer,
        )(flow)  # fmt: skip
        if row.batch_norm:
            flow = BatchNormalization(momentum=momentum, epsilon=_BN_EPSILON)(flow)
    image = layers.ReLU(dtype=full_precision())(restore(flow))
    return keras.Model(latent, image, name="generator")


def discriminator_3d(table: Networks3D, momentum: float) -> keras.Model:
    """From images (N, x, y, layer, 1) to (probability of Monte Carlo (N, 1), E / 100 GeV (N, 1))."""
    image = keras.Input((*table.shape, 1), dtype=full_precision(), name="image")
    flow = arrange(image)
    for number, row in enumerate(table.discriminator):
        flow = Conv3D(row.filters, row.kernel, pad=row.pad, slope=_LEAK)(flow)
        if row.batch_norm:
            flow = BatchNormalization(momentum=momentum, epsilon=_BN_EPSILON)(flow)
        flow = Dropout(_DROPPED, name=f"dropout_{number}")(flow)
    flow = layers.Flatten()(_average_pool(restore(flow)))
    generation = layers.Dense(1, activation="sigmoid", dtype=full_precision(), name="generation")(flow)
    auxiliary = layers.Dense(1, dtype=full_precision(), name="auxiliary")(flow)
    return keras.Model(image, [generation, auxiliary], name="discriminator")


def _average_pool(flow: keras.KerasTensor) -> keras.KerasTensor:
    """Means of blocks of 2 x 2 x 2 cells. keras.layers.AveragePooling3D does the same, without float64 and bfloat16."""
    for axis in (1, 2, 3):
        shape = list(flow.shape)
        shape[axis] //= 2
        even = ops.split(flow, [2 * shape[axis]], axis=axis)[0]
        flow = ops.mean(ops.reshape(even, (-1, *shape[1 : axis + 1], 2, *shape[axis + 1 :])), axis=axis + 1)
    return flow
