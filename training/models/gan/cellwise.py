"""What a network does cell by cell between its convolutions: each in one or two passes over the cells, by XLA.

Values are (layer, N, x, y, channel) in the precision of the layers. Weights are (channel,) in their own precision, and
sums are kept in it too. Sums over all cells begin with the sum over layers, for which XLA uses vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import tensorflow as tf


def rectified(values: tf.Tensor, bias: tf.Tensor, slope: float) -> tf.Tensor:
    """The leaky rectifier of values + bias: negative numbers are multiplied by `slope`."""

    @tf.custom_gradient
    def forward(values: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Any]:
        answer = _compiled(_rectified, values.shape)(values, bias, slope)
        return answer, lambda upstream: _compiled(_rectified_back, values.shape)(answer, upstream, bias, slope)

    return forward(values, bias)


def normalised(values: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tuple[tf.Tensor, ...]:
    """Batch normalisation in training (Ioffe and Szegedy, arXiv 1502.03167); and each channel's mean and variance."""

    @tf.custom_gradient
    def forward(values: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Any]:
        answer, mean, variance = _compiled(_normalised, values.shape)(values, gamma, beta, epsilon)

        def back(upstream: tf.Tensor, *_: Any) -> tuple[tf.Tensor, ...]:
            inverse = 1 / tf.sqrt(variance + epsilon)
            return _compiled(_normalised_back, values.shape)(values, upstream, gamma, mean, inverse)

        return (answer, tf.stop_gradient(mean), tf.stop_gradient(variance)), back

    return forward(values, gamma, beta)


@cache
def _compiled(function: Callable[..., Any], shape: tf.TensorShape) -> Callable[..., Any]:  # noqa: ARG001  a key
    """`function`, compiled for values of a `shape`: one for each shape, because TensorFlow warns of many traces."""
    return tf.function(function, jit_compile=True, autograph=False)


def _rectified(values: tf.Tensor, bias: tf.Tensor, slope: float) -> tf.Tensor:
    return _like(values, tf.nn.leaky_relu(_rows(values, bias) + _along_a_row(bias, values), slope))


def _rectified_back(
    answer: tf.Tensor, upstream: tf.Tensor, bias: tf.Tensor, slope: float
) -> tuple[tf.Tensor, tf.Tensor]:
    rows = tf.raw_ops.LeakyReluGrad(gradients=_rows(upstream, bias), features=_rows(answer, bias), alpha=slope)
    return _like(answer, rows), _total(rows, bias)


def _normalised(
    values: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    rows, count = _rows(values, gamma), _count(values, gamma)
    mean = _total(rows, gamma) / count
    rows -= _along_a_row(mean, values)
    variance = _total(tf.square(rows), gamma) / count
    scale = gamma * 1 / tf.sqrt(variance + epsilon)
    return _like(values, rows * _along_a_row(scale, values) + _along_a_row(beta, values)), mean, variance


def _normalised_back(
    values: tf.Tensor, upstream: tf.Tensor, gamma: tf.Tensor, mean: tf.Tensor, inverse: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    count = _count(values, gamma)
    normal = (_rows(values, gamma) - _along_a_row(mean, values)) * _along_a_row(inverse, values)
    rows = _rows(upstream, gamma)
    by_beta, by_gamma = _total(rows, gamma), _total(rows * normal, gamma)
    rows -= _along_a_row(by_beta / count, values) + normal * _along_a_row(by_gamma / count, values)
    return _like(values, rows * _along_a_row(gamma * inverse, values)), by_gamma, by_beta


def _rows(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """`values` as (layer, N * x, y * channel), in the precision of the weights."""
    layers, _, _, y, channels = values.shape
    return tf.cast(tf.reshape(values, (layers, -1, y * channels)), weights.dtype)


def _like(values: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.cast(rows, values.dtype), tf.shape(values))


def _along_a_row(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    return tf.tile(weights, [values.shape[-2]])


def _total(rows: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """The sum over all cells, (channel,)."""
    columns = tf.reduce_sum(tf.add_n(tf.unstack(rows)), 0)
    return tf.reduce_sum(tf.reshape(columns, (-1, *weights.shape)), 0)


def _count(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """The number of cells in each channel."""
    return tf.cast(tf.size(values) / values.shape[-1], weights.dtype)
