"""The reference's adversaries in a form that two cores can train: 2-D convolutions, the layers as channels.

A 3-D convolution of few channels runs far below a processor's matrix rate; a 2-D one of many runs near it. Inputs,
outputs, heads and losses are those of the 3-D networks, so that the same phases train it. Not a published model.
"""

from __future__ import annotations

import math

import keras
from keras import layers

from training.convolutions import BatchNormalization, full_precision
from training.models.gan import LATENT
from training.randomness import Dropout

_CHANNELS = 32
_BN_EPSILON = 1e-6
_LEAK = 0.3
_DROPPED = 0.2


def generator_2d(shape: tuple[int, int, int], momentum: float) -> keras.Model:
    """(N, 256) to images (N, x, y, layer, 1) for any `shape` (x, y, layer)."""
    x, y, depth = shape
    grid = (math.ceil(x / 4), math.ceil(y / 4))
    latent = keras.Input((LATENT,), dtype=full_precision(), name="latent")
    flow = layers.Dense(grid[0] * grid[1] * _CHANNELS)(latent)
    flow = layers.Reshape((*grid, _CHANNELS))(flow)
    for upsample in (2, 2, 1):
        flow = layers.UpSampling2D(upsample)(flow) if upsample > 1 else flow
        flow = layers.Conv2D(_CHANNELS, 3, padding="same", kernel_initializer="he_uniform")(flow)
        flow = layers.ReLU()(flow)
        flow = BatchNormalization(momentum=momentum, epsilon=_BN_EPSILON)(flow)
    flow = layers.Cropping2D(((0, 4 * grid[0] - x), (0, 4 * grid[1] - y)))(flow)
    flow = layers.Conv2D(depth, 3, padding="same", kernel_initializer="glorot_normal")(flow)
    flow = layers.ReLU(dtype=full_precision())(flow)
    return keras.Model(latent, layers.Reshape((*shape, 1), dtype=full_precision())(flow), name="generator")


def discriminator_2d(shape: tuple[int, int, int], momentum: float) -> keras.Model:
    """Images (N, x, y, layer, 1) to (probability of Monte Carlo (N, 1), E / 100 GeV (N, 1))."""
    image = keras.Input((*shape, 1), dtype=full_precision(), name="image")
    flow = layers.Reshape(shape)(image)
    for number, strides in enumerate((1, 2, 2)):
        flow = layers.Conv2D(_CHANNELS, 3, strides=strides, padding="same")(flow)
        flow = layers.LeakyReLU(negative_slope=_LEAK)(flow)
        if number > 0:
            flow = BatchNormalization(momentum=momentum, epsilon=_BN_EPSILON)(flow)
        flow = Dropout(_DROPPED, name=f"dropout_{number}")(flow)
    flow = layers.Flatten()(flow)
    generation = layers.Dense(1, activation="sigmoid", dtype=full_precision(), name="generation")(flow)
    auxiliary = layers.Dense(1, dtype=full_precision(), name="auxiliary")(flow)
    return keras.Model(image, [generation, auxiliary], name="discriminator")
