"""The 3-D convolution of the networks, in forms in which processors and GPUs are fast.

`Conv3D` computes the same as keras.layers.Conv3D with the same weights; its input is first repeated (`upsample`) or
padded with zeros (`pad`). Two identities make it fast.

A convolution of an upsampled grid sees each input cell many times. Its output at f t + r, for a factor f and a phase
r, is sum_j w[j] x[(f t + r + j) // f]: a convolution of the small grid. For each phase its kernel is a sum of the
original kernel's taps (`_phases`). In the reference it takes 1/19 of the multiplications.

A convolution along one axis is a product in the frequencies of that axis (`transforms`):

    y = C (A w * B x),

with fixed matrices A, B, C; * is a complex product for each frequency. If it is used along the layers only, each of
these products is a 2-D convolution over x and y with twice as many channels: real and imaginary parts. For 22 outputs
and 6 taps there are 13 complex products, which cost 52 real ones; the sum over taps takes 132. The transforms are
matrix products, which are fast when layers are the first axis. So the 3-D networks keep their tensors as (layer, N, x,
y, channel). Twice the channels suit a processor too: with few channels its registers are half empty. On an H100, whose
library computes 3-D convolutions of few channels slowly, a step takes an eighth of the time in float32, a fifth in tf32
and a third in bfloat16 (docs/log/training.md).

On TPUs, where this is not measured, tensors stay as (N, x, y, layer, channel), and only the first identity is used. The
same holds in float16, and in bfloat16 on processors without AMX. Half precision rounds the frequencies as it rounds the
values around them.

In bfloat16, products are exact; their sums are kept in float32 and rounded once, as on accelerators. TensorFlow's CPU
kernels for bfloat16 add in bfloat16, where ones sum to 256 at most. So they get the rounded numbers in float32.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from keras import ops

from training.models.gan import cellwise
from training.models.precision import emulates_bfloat16, has_amx, in_plain_forms, on_processors, on_tpus

Size = tuple[int, int, int]
Matrix = npt.NDArray[np.float64]


def layers_first() -> bool:
    """Whether networks that are built now have layers as the first axis: on processors and GPUs, in fast precisions."""
    if in_plain_forms.get() or on_tpus():
        return False
    dtype = keras.config.dtype_policy().compute_dtype
    return dtype in ("float32", "float64") or (dtype == "bfloat16" and (has_amx() or not on_processors()))


def arrange(images: keras.KerasTensor) -> keras.KerasTensor:
    """`images` (N, x, y, layer, c) with the order of axes that `Conv3D` takes."""
    return ops.transpose(images, (3, 0, 1, 2, 4)) if layers_first() else images


def restore(arranged: keras.KerasTensor) -> keras.KerasTensor:
    """The inverse of `arrange`: (N, x, y, layer, c)."""
    return ops.transpose(arranged, (1, 2, 3, 0, 4)) if layers_first() else arranged


@lru_cache
def transforms(length: int, taps: int, pad: tuple[int, int]) -> tuple[Matrix, Matrix, Matrix]:
    """Matrices A (2F, taps), B (2F, length), C (outputs, 2F) for a convolution in the frequencies of one axis.

    A and B make F complex numbers, the real parts first. C makes length + pad[0] + pad[1] - taps + 1 real outputs
    from F products: sum_j w[j] x[t + j - pad[0]] = (C (A w * B x))[t], with x zero outside [0, length).
    """
    # The padding zeros of one side may also serve as those of the other. The period is even, and frequencies lie
    # halfway between the usual ones, so none of them is its own conjugate: F products for 2F real numbers.
    frequencies = (length + max(pad) + 1) // 2
    omega = np.pi * (np.arange(frequencies)[:, None] + 0.5) / frequencies
    w, x = np.exp(1j * omega * np.arange(taps)), np.exp(-1j * omega * (np.arange(length) + pad[0]))
    y = np.exp(-1j * omega * np.arange(length + sum(pad) - taps + 1)) / frequencies
    of_kernel, of_values, back = (np.concatenate([matrix.real, matrix.imag]) for matrix in (w, x, y))
    return of_kernel, of_values, back.T


def convolve(values: tf.Tensor, kernel: tf.Tensor, pads: tuple[tuple[int, int], ...]) -> tf.Tensor:
    """Convolution of (layer, N, x, y, c) with a kernel (kx, ky, kz, c, d) after `pads` of zeros in x, y and layer."""
    values = tf.pad(values, ((0, 0), (0, 0), *pads[:2], (0, 0)))
    depth, _, x, y, channels = values.shape
    matrices = transforms(depth, kernel.shape[2], pads[2])
    of_values, back = (tf.constant(matrix, values.dtype) for matrix in matrices[1:])
    frequencies = back.shape[1] // 2

    flat = tf.reshape(of_values @ tf.reshape(values, (depth, -1)), (2, frequencies, -1, channels))
    planes = tf.reshape(tf.transpose(flat, (1, 2, 0, 3)), (frequencies, -1, x, y, 2 * channels))
    full = tf.cast(kernel, "float32") if kernel.dtype == tf.bfloat16 else kernel
    real, imaginary = tf.split(tf.tensordot(tf.constant(matrices[0], full.dtype), full, (1, 2)), 2)
    # (F, kx, ky, 2 c, 2 d): a complex product is a real product with the channels (real, imaginary).
    kernels = tf.concat([tf.concat([real, imaginary], -1), tf.concat([-imaginary, real], -1)], -2)
    kernels = tf.cast(kernels, values.dtype)
    pairs = zip(tf.unstack(planes), tf.unstack(kernels), strict=True)
    products = tf.stack([tf.nn.conv2d(plane, weights, 1, "VALID") for plane, weights in pairs])
    *_, x, y, filters = products.shape
    flat = tf.transpose(tf.reshape(products, (frequencies, -1, 2, filters // 2)), (2, 0, 1, 3))
    return tf.reshape(back @ tf.reshape(flat, (2 * frequencies, -1)), (back.shape[0], -1, x, y, filters // 2))


def _phases(taps: int, factor: int) -> Matrix:
    """S (offset, phase, tap): 1 where the tap of an output of this phase meets the input at this offset, else 0."""
    offsets = (factor + taps - 2) // factor + 1
    offset, phase, tap = np.ogrid[:offsets, :factor, :taps]
    return ((phase + tap) // factor == offset).astype(np.float64)


def convolve_upsampled(values: tf.Tensor, kernel: tf.Tensor, factor: int, *, first: bool) -> tf.Tensor:
    """Convolution, without padding, of (N, x, y, layer, c) upsampled by `factor`, with a kernel (kx, ky, kz, c, d).

    Returns (layer, N, x, y, d) if layers come `first`, else (N, x, y, layer, d).
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
    windows = [tf.slice(values, [0, *start, 0], [-1, *blocks, -1]) for start in np.ndindex(*offsets)]
    flat = tf.reshape(tf.concat(windows, -1), (-1, len(windows) * channels))
    flow = flat @ tf.reshape(kernel, (len(windows) * channels, -1))
    flow = tf.reshape(flow, (-1, *blocks, factor, factor, factor, filters))  # (N, x, y, layer, phase x, y, layer, d)
    (x, y, z), (long_x, long_y, long_z) = outputs, [factor * count for count in blocks]
    if first:
        flow = tf.transpose(flow, (3, 6, 0, 1, 4, 2, 5, 7))
        flow = tf.reshape(flow, (long_z, -1, long_x, long_y, filters))
        return tf.slice(flow, [0] * 5, [z, -1, x, y, -1])
    flow = tf.transpose(flow, (0, 1, 4, 2, 5, 3, 6, 7))
    return tf.reshape(flow, (-1, long_x, long_y, long_z, filters))[:, :x, :y, :z]


class Conv3D(keras.layers.Conv3D):
    """keras.layers.Conv3D of an input that is upsampled by `upsample`, or padded: by `pad` on both sides, or to "same".

    Negative outputs are multiplied by `slope`: 0 makes a rectifier, 1 leaves them as they are. The input is
    (N, x, y, layer, c), or (layer, N, x, y, c) where layers come first and nothing is upsampled.
    Weights, initializers and names are those of Keras's layer.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: Size,
        *,
        pad: Size | str = (0, 0, 0),
        upsample: int = 1,
        slope: float = 1.0,
        kernel_initializer: str = "glorot_uniform",
    ) -> None:
        super().__init__(filters, kernel_size, kernel_initializer=kernel_initializer)
        self._upsample, self._slope = upsample, slope
        self._first, self._plain = layers_first(), in_plain_forms.get()
        self._pads = (
            tuple((p, p) for p in pad)
            if not isinstance(pad, str)
            else tuple(((taps - 1) // 2, taps // 2) for taps in kernel_size)
        )

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
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

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        kernel = ops.convert_to_tensor(self.kernel)
        if self._plain:
            for axis in (1, 2, 3):
                inputs = ops.repeat(inputs, self._upsample, axis)
        if self._upsample > 1 and not self._plain:
            flow = convolve_upsampled(inputs, kernel, self._upsample, first=self._first)
        elif self._first:
            flow = convolve(inputs, kernel, self._pads)
        else:
            padded = tf.pad(inputs, ((0, 0), *self._pads, (0, 0)))
            wide = tf.float32 if padded.dtype == tf.bfloat16 and emulates_bfloat16() else padded.dtype
            flow = tf.nn.conv3d(tf.cast(padded, wide), tf.cast(kernel, wide), [1] * 5, "VALID")
        # in the precision of the weights, because the gradient of the bias is a sum over all cells
        bias = tf.cast(ops.convert_to_tensor(self.bias), self.variable_dtype)
        if training and self._first:
            return cellwise.rectified(tf.cast(flow, self.compute_dtype), bias, self._slope)
        flow = tf.nn.bias_add(tf.cast(flow, self.variable_dtype), bias)
        return tf.cast(flow if self._slope == 1 else tf.nn.leaky_relu(flow, self._slope), self.compute_dtype)


class BatchNormalization(keras.layers.BatchNormalization):
    """keras.layers.BatchNormalization of the last axis; in training it takes few operations, forward and backward."""

    def __init__(self, *, momentum: float, epsilon: float = 1e-3) -> None:
        super().__init__(momentum=momentum, epsilon=epsilon)
        self._first = layers_first()

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not (training and self._first):
            return super().call(inputs, training=training)
        gamma, beta = (tf.cast(ops.convert_to_tensor(term), self.variable_dtype) for term in (self.gamma, self.beta))
        normalised, mean, variance = cellwise.normalised(inputs, gamma, beta, self.epsilon)
        for moving, of_batch in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(moving * self.momentum + of_batch * (1.0 - self.momentum))
        return normalised
