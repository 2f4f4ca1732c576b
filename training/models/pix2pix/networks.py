"""The U-Net and the PatchGAN of pix2pix, of the sizes in a table.

Source: Isola et al., arXiv 1611.07004. With the sizes of its U-Net-256, for images of 256 x 256 and three channels, the
generator has 54,425,859 parameters and the discriminator 2,770,433, both with their statistics.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

from training.models.pix2pix.tables import Networks2D
from training.models.precision import full_precision
from training.models.randomness import Dropout

_LEAK = 0.2
_DROPPED = 0.5
_BN_EPSILON = 1e-5


def unet(table: Networks2D, inputs: int, outputs: int, unit: float = 1.0) -> keras.Model:
    """From images (N, x, y, inputs) to images (N, x, y, outputs).

    Each channel of the output is multiplied by the weight `Scale.scale`, which is `unit` at first. With `full` filters
    the two `outputs` are the curl of a stream function, free of divergence for any weights (Kim et al., Computer
    Graphics Forum 38, 59 (2019)).
    """
    image = keras.Input((None, None, inputs), dtype=full_precision(), name="image")
    flow = image
    skips = []
    if table.full:
        flow = layers.LeakyReLU(_LEAK)(layers.Conv2D(table.full, 3, padding="same")(flow))
        skips.append(flow)
    for level, filters in enumerate(table.down):
        flow = _convolution(table, layers.Conv2D, filters, normalised=level > 0)(flow)
        flow = layers.LeakyReLU(_LEAK)(flow)
        skips.append(flow)
    flow = skips.pop()
    above = [*([table.full] if table.full else []), *table.down[:-1]]
    for level, filters in enumerate(reversed(above)):
        flow = _convolution(table, layers.Conv2DTranspose, filters, normalised=True)(flow)
        if level < table.dropout:
            flow = Dropout(_DROPPED, name=f"dropout_{level}")(flow)
        flow = layers.Concatenate()([layers.ReLU()(flow), skips.pop()])
    last: dict[str, Any] = {"padding": "same", "kernel_initializer": _initial(table), "dtype": full_precision()}
    if table.full:
        flow = Curl(dtype=full_precision())(layers.Conv2D(1, 3, **last)(flow))
    else:
        flow = layers.Conv2DTranspose(outputs, 4, 2, activation="tanh", **last)(flow)
    made = Scale(unit, dtype=full_precision(), name="scale")(flow)
    return keras.Model(image, made, name="generator")


def patch_gan(table: Networks2D, inputs: int) -> keras.Model:
    """From images with what is made of them, (N, x, y, inputs), to logits of "real", (N, patches x, patches y, 1)."""
    image = keras.Input((None, None, inputs), dtype=full_precision(), name="image")
    flow = image
    for level, filters in enumerate(table.patch):
        flow = layers.LeakyReLU(_LEAK)(_convolution(table, layers.Conv2D, filters, normalised=level > 0)(flow))
    flow = layers.ZeroPadding2D()(flow)
    flow = _convolution(table, layers.Conv2D, table.patch_last, normalised=True, stride=1, padding="valid")(flow)
    flow = layers.ZeroPadding2D()(layers.LeakyReLU(_LEAK)(flow))
    last = layers.Conv2D(1, 4, kernel_initializer=_initial(table), dtype=full_precision())
    return keras.Model(image, last(flow), name="discriminator")


class Curl(layers.Layer):
    """`curl` as a layer."""

    def call(self, stream: Any) -> Any:
        return curl(stream[..., 0])


def curl(stream: Any) -> Any:
    """The velocity (N, x, y, 2) of a `stream` function (N, x, y): its derivative along y, and minus that along x.

    Derivatives are central differences, in units of cells, as in `calopipe.flow.mechanics.divergence`. So this
    divergence is zero up to rounding, except in the first and the last row. Beyond these rows are walls, where the
    stream function is zero: it adds nothing to the flow through a cross-section of the channel.
    """
    first, second, before, last = (stream[:, place, None] for place in (0, 1, -2, -1))
    long = ops.concatenate([2 * first - second, stream, 2 * last - before], 1)
    wide = ops.concatenate([-stream[:, :, :1], stream, -stream[:, :, -1:]], 2)
    return ops.stack([(wide[:, :, 2:] - wide[:, :, :-2]) / 2, (long[:, :-2] - long[:, 2:]) / 2], -1)


class Scale(layers.Layer):
    """Multiplies each channel by a number that is not trained."""

    def __init__(self, unit: float, **layer: Any) -> None:
        super().__init__(**layer)
        self._unit = keras.initializers.Constant(unit)

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(shape[-1],), initializer=self._unit, trainable=False, name="scale")

    def call(self, values: Any) -> Any:
        return values * self.scale


def _convolution(
    table: Networks2D, kind: Any, filters: int, *, normalised: bool, stride: int = 2, padding: str = "same"
) -> Any:
    """A convolution of 4 x 4 without activation; with batch normalisation in the published networks if `normalised`."""
    published = not table.full
    layer = kind(filters, 4, stride, padding=padding, use_bias=not published, kernel_initializer=_initial(table))
    if not (published and normalised):
        return layer
    normalisation = layers.BatchNormalization(epsilon=_BN_EPSILON, gamma_initializer=_published(1.0))
    return lambda flow: normalisation(layer(flow))


def _initial(table: Networks2D) -> Any:
    return "glorot_uniform" if table.full else _published()


def _published(mean: float = 0.0) -> keras.initializers.Initializer:
    return keras.initializers.RandomNormal(mean, 0.02)


def cross_entropy(logits: Any, *, real: bool) -> Any:
    """-log of the probability of the truth, `real` or not: the mean over the patches of an image, (N,)."""
    return ops.mean(ops.softplus(-logits if real else logits), axis=(1, 2, 3))
