"""The reference's 3-D convolutional networks, as tables; and a small sibling of the same form.

Source: svalleco/3Dgan, branch Anglegan: 1,365,047 parameters of the generator (64 of them not trained) and 87,402 of
the discriminator.
"""

from __future__ import annotations

from dataclasses import dataclass

import keras
from keras import layers

from training.models.gan import LATENT
from training.randomness import Dropout

Size = tuple[int, int, int]

_BN_EPSILON = 1e-6
_LEAK = 0.3
_DROPPED = 0.2


@dataclass(frozen=True)
class Convolution:
    """`filters` of size `kernel` without padding of their own, after `pad` zeros on both sides of each axis."""

    filters: int
    kernel: Size
    pad: Size = (0, 0, 0)
    batch_norm: bool = True


@dataclass(frozen=True)
class Networks3D:
    """The networks for one calorimeter of `shape` (x, y, layer).

    The generator starts from a dense `seed` grid of `seed_channels`, repeated `upsample` times along each axis, and
    ends with one channel of `shape`. The discriminator's first layer keeps the shape.
    """

    shape: Size
    seed: Size
    seed_channels: int
    upsample: int
    generator: tuple[Convolution, ...]
    discriminator_first: Convolution
    discriminator: tuple[Convolution, ...]


REFERENCE = Networks3D(
    shape=(51, 51, 25),
    seed=(9, 9, 8),
    seed_channels=8,
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
    discriminator_first=Convolution(16, (5, 6, 6)),
    discriminator=(
        Convolution(8, (5, 6, 6), pad=(0, 0, 1)),  # (47, 46, 22)
        Convolution(8, (5, 6, 6), pad=(0, 0, 1)),  # (43, 41, 19)
        Convolution(8, (5, 6, 6)),  # (39, 36, 14)
    ),
)

# The Geant4 sample's showers, three by three cells and five layers joined. For tests, which it serves in seconds.
SMALL = Networks3D(
    shape=(17, 17, 5),
    seed=(5, 5, 3),
    seed_channels=8,
    upsample=4,  # (20, 20, 12)
    generator=(
        Convolution(8, (3, 3, 4)),  # (18, 18, 9)
        Convolution(6, (3, 3, 4), pad=(1, 1, 0)),  # (18, 18, 6)
        Convolution(6, (3, 3, 3), pad=(1, 1, 1), batch_norm=False),  # (18, 18, 6)
        Convolution(1, (2, 2, 2), batch_norm=False),  # (17, 17, 5)
    ),
    discriminator_first=Convolution(8, (3, 3, 3)),
    discriminator=(
        Convolution(8, (3, 3, 3), pad=(0, 0, 1)),  # (15, 15, 5)
        Convolution(8, (3, 3, 3)),  # (13, 13, 3)
    ),
)


def generator_3d(table: Networks3D, momentum: float) -> keras.Model:
    """(N, 256) to images (N, x, y, layer, 1). `momentum` is the batch normalisation's; the reference's is 0.99."""
    latent = keras.Input((LATENT,), name="latent")
    x, y, z = table.seed
    flow = layers.Dense(x * y * z * table.seed_channels)(latent)
    flow = layers.Reshape((*table.seed, table.seed_channels))(flow)
    flow = layers.UpSampling3D(table.upsample)(flow)
    for row in table.generator:
        last = row is table.generator[-1]
        if any(row.pad):
            flow = layers.ZeroPadding3D(row.pad)(flow)
        flow = layers.Conv3D(row.filters, row.kernel, kernel_initializer="glorot_normal" if last else "he_uniform")(
            flow
        )
        flow = layers.ReLU()(flow)
        if row.batch_norm:
            flow = layers.BatchNormalization(momentum=momentum, epsilon=_BN_EPSILON)(flow)
    return keras.Model(latent, flow, name="generator")


def discriminator_3d(table: Networks3D, momentum: float) -> keras.Model:
    """Images (N, x, y, layer, 1) to (probability of Monte Carlo (N, 1), E / 100 GeV (N, 1))."""
    image = keras.Input((*table.shape, 1), name="image")
    first = table.discriminator_first
    flow = layers.Conv3D(first.filters, first.kernel, padding="same")(image)
    flow = layers.LeakyReLU(negative_slope=_LEAK)(flow)
    flow = Dropout(_DROPPED, name="dropout_0")(flow)
    for number, row in enumerate(table.discriminator, start=1):
        if any(row.pad):
            flow = layers.ZeroPadding3D(row.pad)(flow)
        flow = layers.Conv3D(row.filters, row.kernel)(flow)
        flow = layers.LeakyReLU(negative_slope=_LEAK)(flow)
        flow = layers.BatchNormalization(momentum=momentum, epsilon=_BN_EPSILON)(flow)
        flow = Dropout(_DROPPED, name=f"dropout_{number}")(flow)
    flow = layers.Flatten()(layers.AveragePooling3D(2)(flow))
    generation = layers.Dense(1, activation="sigmoid", name="generation")(flow)
    auxiliary = layers.Dense(1, name="auxiliary")(flow)
    return keras.Model(image, [generation, auxiliary], name="discriminator")
