"""The 3-D convolution of the networks in the forms in which processors carry it out fast.

`Conv3D` is keras.layers.Conv3D with the same weights and the same function of them, of an input that is first repeated
(`upsample`) or padded with zeros (`pad`). Two identities make it fast.

A convolution of an upsampled grid sees each input cell many times. Its output at f t + r, for a factor f and a phase
r, is sum_j w[j] x[(f t + r + j) // f]: a convolution of the small grid whose kernel is, for each phase, a sum of the
original's taps (`_phases`). In the reference it takes 1/19 of the multiplications.

A convolution along one axis is a product in the frequencies of that axis (`products`):

    y = C (A w * B x),

with A, B, C fixed real matrices from the discrete Fourier transform and * a product row by row. A complex product is
three real ones. Along the layers alone, each of those products is a 2-D convolution over x and y: for 22 layers and 6
taps 38 of them, where the sum over taps takes 132. Both transforms are matrix products, which run at the processor's
full rate when layers are the first axis. So on CPUs the 3-D networks keep their tensors as (layer, N, x, y, channel).

Accelerators have fast 3-D convolutions, and half precision would round the frequencies: there tensors stay as
(N, x, y, layer, channel), and only the first identity is used.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from keras import ops

Size = tuple[int, int, int]
Matrix = npt.NDArray[np.float64]


def layers_first() -> bool:
    """Whether networks built now are to keep their layers first: where there is no accelerator, in full precision."""
    accelerators = tf.config.list_logical_devices("GPU") + tf.config.list_logical_devices("TPU")
    return not accelerators and keras.config.dtype_policy().compute_dtype in ("float32", "float64")


def arrange(images: keras.KerasTensor) -> keras.KerasTensor:
    """(N, x, y, layer, c) in the order of axes in which the layers of `Conv3D` take it."""
    return ops.transpose(images, (3, 0, 1, 2, 4)) if layers_first() else images


def restore(arranged: keras.KerasTensor) -> keras.KerasTensor:
    """(N, x, y, layer, c) of what `arrange` gave."""
    return ops.transpose(arranged, (1, 2, 3, 0, 4)) if layers_first() else arranged


def full_precision() -> str:
    """The dtype of weights, which is also that of images and answers where layers compute in a shorter one."""
    return keras.config.dtype_policy().variable_dtype


@lru_cache
def products(length: int, taps: int, pad: tuple[int, int]) -> tuple[Matrix, Matrix, Matrix]:
    """Matrices A (R, taps), B (R, length), C (outputs, R) with sum_j w[j] x[t + j - pad[0]] = (C (A w * B x))[t].

    x is zero outside [0, length); there are length + pad[0] + pad[1] - taps + 1 outputs. The transform's period is
    the padded length less the shorter pad, as the zeros of one side may stand for those of the other.
    """
    period = length + max(pad)
    tap, cell = np.arange(taps), np.arange(length) + pad[0]
    output = np.arange(length + sum(pad) - taps + 1)
    a, b, c = [], [], []
    for frequency in range(period // 2 + 1):
        angle = 2 * np.pi * frequency / period
        if frequency in (0, period / 2):  # real
            a += [np.cos(angle * tap)]
            b += [np.cos(angle * cell)]
            c += [np.cos(angle * output) / period]
            continue
        w_real, w_imaginary = np.cos(angle * tap), np.sin(angle * tap)  # conjugate: a correlation
        x_real, x_imaginary = np.cos(angle * cell), -np.sin(angle * cell)
        real, imaginary = np.cos(angle * output) * 2 / period, -np.sin(angle * output) * 2 / period
        # Gauss: p, q, s = w_r (x_r + x_i), (w_i - w_r) x_r, (w_r + w_i) x_i; real part p - s, imaginary part p + q
        a += [w_real, w_imaginary - w_real, w_real + w_imaginary]
        b += [x_real + x_imaginary, x_real, x_imaginary]
        c += [real + imaginary, imaginary, -real]
    return np.array(a), np.array(b), np.array(c).T


def _along_layers(matrix: Matrix, values: tf.Tensor) -> tf.Tensor:
    """The matrix (m, n) times values (n, N, x, y, channel): (m, N, x, y, channel)."""
    flat = tf.reshape(values, (matrix.shape[1], -1))
    return tf.reshape(tf.matmul(tf.constant(matrix, values.dtype), flat), (matrix.shape[0], -1, *values.shape[2:]))


def convolve(values: tf.Tensor, kernel: tf.Tensor, pads: tuple[tuple[int, int], ...]) -> tf.Tensor:
    """Convolution of (layer, N, x, y, c) with a kernel (kx, ky, kz, c, d) after `pads` of zeros in x, y and layer."""
    a, b, c = products(values.shape[0], kernel.shape[2], pads[2])
    transformed = _along_layers(b, tf.pad(values, ((0, 0), (0, 0), *pads[:2], (0, 0))))
    kernels = tf.tensordot(tf.constant(a, kernel.dtype), kernel, (1, 2))  # (R, kx, ky, c, d)
    planes = [
        tf.nn.conv2d(plane, weights, 1, "VALID")
        for plane, weights in zip(tf.unstack(transformed), tf.unstack(kernels), strict=True)
    ]
    return _along_layers(c, tf.stack(planes))


def _phases(taps: int, factor: int) -> Matrix:
    """S (offset, phase, tap): whether the tap of an output of that phase falls on the input at that offset."""
    offsets = (factor + taps - 2) // factor + 1
    offset, phase, tap = np.ogrid[:offsets, :factor, :taps]
    return ((phase + tap) // factor == offset).astype(np.float64)


def convolve_upsampled(values: tf.Tensor, kernel: tf.Tensor, factor: int, *, first: bool) -> tf.Tensor:
    """Convolution, without padding, of (N, x, y, layer, c) upsampled by `factor`, with a kernel (kx, ky, kz, c, d).

    The answer is (layer, N, x, y, d) where `first`, else (N, x, y, layer, d).
    """
    *taps, channels, filters = kernel.shape
    phases = [_phases(count, factor) for count in taps]
    outputs = [factor * size - count + 1 for size, count in zip(values.shape[1:4], taps, strict=True)]
    blocks = [-(-count // factor) for count in outputs]
    offsets = [len(phase) for phase in phases]
    missing = [b + o - 1 - size for b, o, size in zip(blocks, offsets, values.shape[1:4], strict=True)]
    values = tf.pad(values, ((0, 0), *((0, max(count, 0)) for count in missing), (0, 0)))
    constants = [tf.constant(phase, kernel.dtype) for phase in phases]
    kernel = tf.einsum("aru,bsv,ctw,uvwio->abcirsto", *constants, kernel)
    kernel = tf.reshape(kernel, (*offsets, channels, factor**3 * filters))
    flow = tf.nn.conv3d(values, kernel, [1] * 5, "VALID")[:, : blocks[0], : blocks[1], : blocks[2]]
    flow = tf.reshape(flow, (-1, *blocks, factor, factor, factor, filters))  # (N, x, y, layer, phase x, y, layer, d)
    (x, y, z), (long_x, long_y, long_z) = outputs, [factor * count for count in blocks]
    if first:
        flow = tf.transpose(flow, (3, 6, 0, 1, 4, 2, 5, 7))
        return tf.reshape(flow, (long_z, -1, long_x, long_y, filters))[:z, :, :x, :y]
    flow = tf.transpose(flow, (0, 1, 4, 2, 5, 3, 6, 7))
    return tf.reshape(flow, (-1, long_x, long_y, long_z, filters))[:, :x, :y, :z]


class Conv3D(keras.layers.Conv3D):
    """keras.layers.Conv3D, of its input upsampled by `upsample`, or padded: by `pad` on both sides, or to be "same".

    The input is (N, x, y, layer, c); where layers come first, (layer, N, x, y, c), unless it is to be upsampled.
    Weights, initializers and names are those of the stock layer.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Size,
        *,
        pad: Size | str = (0, 0, 0),
        upsample: int = 1,
        kernel_initializer: str = "glorot_uniform",
    ) -> None:
        super().__init__(filters, kernel_size, kernel_initializer=kernel_initializer)
        self._upsample = upsample
        self._first = layers_first()
        self._pads = tuple((p, p) for p in pad) if not isinstance(pad, str) else tuple(
            ((taps - 1) // 2, taps // 2) for taps in kernel_size
        )

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        if self._first and self._upsample == 1:
            depth, batch, *rest = input_shape
            input_shape = (batch, *rest[:2], depth, rest[2])
        batch, *sizes, _ = input_shape
        grown = [
            self._upsample * size + sum(pad) - taps + 1
            for size, pad, taps in zip(sizes, self._pads, self.kernel_size, strict=True)
        ]
        shape = (batch, *grown, self.filters)
        return (shape[3], batch, *shape[1:3], self.filters) if self._first else shape

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        kernel = ops.convert_to_tensor(self.kernel)
        if self._upsample > 1:
            flow = convolve_upsampled(inputs, kernel, self._upsample, first=self._first)
        elif self._first:
            flow = convolve(inputs, kernel, self._pads)
        else:
            flow = tf.nn.conv3d(tf.pad(inputs, ((0, 0), *self._pads, (0, 0))), kernel, [1] * 5, "VALID")
        return flow + self.bias
