"""The density of the totals of a shower."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training.models.autoregressive.densities import log_mixture, mixture_of
from training.models.base import Tensor

_LAST, _PRESENT, _BEFORE, _AHEAD, _HATS = 4, 3, 4, 3, 6  # how many numbers of each sort `_Chain` sees for a layer
SHAPE = 2 + _HATS  # how many numbers `shape` returns for a shower
_LEAST = 1e-4  # added to the share of the visible energy that a layer holds, before the logarithm
_FAR = 8.0  # the most layers to the next layer that is not empty; more count as this many


def interpolated(places: int, knots: int) -> Any:
    """Weights (places, knots) of linear interpolation at `places` between `knots`, both equidistant in one range."""
    at = np.linspace(0, knots - 1, places)
    return np.maximum(1 - np.abs(at[:, None] - np.arange(knots)), 0).astype(np.float32)


class _Ladder(keras.layers.Layer):
    """`steps` small networks. Network k, from 0, sees the first k of `steps` numbers, and all of `others` more numbers.

    They compute in float32 in every precision: they are small, and all of a shower follows from them.
    """

    def __init__(self, name: str, steps: int, others: int, *, width: int, bias: Any) -> None:
        super().__init__(name=name, dtype="float32")
        inputs, outputs = steps + others, len(bias)
        normal = keras.initializers.RandomNormal
        self._first = self.add_weight((steps, inputs, width), normal(stddev=inputs**-0.5), name="first")
        self._first_bias = self.add_weight((steps, 1, width), "zeros", name="first_bias")
        self._second = self.add_weight((steps, width, width), normal(stddev=width**-0.5), name="second")
        self._second_bias = self.add_weight((steps, 1, width), "zeros", name="second_bias")
        self._last = self.add_weight((steps, width, outputs), normal(stddev=0.02 * width**-0.5), name="last")
        self._last_bias = self.add_weight((steps, 1, outputs), keras.initializers.Constant(bias), name="last_bias")
        mask = np.tril(np.ones((steps, steps), np.float32), -1)
        self._mask = np.concatenate([mask, np.ones((steps, others), np.float32)], 1)[:, :, None]
        self.built = True

    def call(self, known: Tensor, chosen: Any) -> Tensor:
        """Outputs (chosen, N, outputs) of the networks with the numbers `chosen`, given `known` (N, inputs)."""
        others = (self._first_bias, self._second, self._second_bias, self._last, self._last_bias)
        weights = (self._first * self._mask, *(weight.value for weight in others))
        first, first_bias, second, second_bias, last, last_bias = (tf.gather(part, chosen) for part in weights)
        hidden = tf.nn.silu(tf.matmul(known, first) + first_bias)
        hidden += tf.nn.silu(tf.matmul(hidden, second) + second_bias)
        return tf.matmul(hidden, last) + last_bias


class _Chain(keras.layers.Layer):
    """One small network for the totals of all `layers` but the last.

    For a layer it sees the totals of the four layers before, two sums over all layers before, which of the layer and
    the next two are present, the shares of the visible energy of the four layers before, what is to come (`ahead`), the
    labels, and where along the depth the layer is. Showers are few and layers many, so layers share all weights but the
    biases. It computes in float32, as `_Ladder` does.
    """

    def __init__(self, name: str, layers: int, labels: int, *, width: int, bias: Any) -> None:
        super().__init__(name=name, dtype="float32")
        steps = max(layers - 1, 1)
        self._given = _given(steps, layers, labels)
        inputs = self._given.shape[2]
        normal = keras.initializers.RandomNormal
        self._first = self.add_weight((inputs, width), normal(stddev=inputs**-0.5), name="first")
        self._first_bias = self.add_weight((steps, 1, width), "zeros", name="first_bias")
        self._second = self.add_weight((width, width), normal(stddev=width**-0.5), name="second")
        self._second_bias = self.add_weight((width,), "zeros", name="second_bias")
        self._outputs = self.add_weight((width, len(bias)), normal(stddev=0.02 * width**-0.5), name="last")
        self._outputs_bias = self.add_weight((steps, 1, len(bias)), keras.initializers.Constant(bias), name="last_bias")
        self.built = True

    def call(
        self, values: Tensor, labels: Tensor, *, present: Tensor, share: Tensor, to_come: Tensor, chosen: Any
    ) -> Tensor:
        """Outputs (chosen, N, outputs) for the layers with the numbers `chosen`, given `values` (N, at least steps).

        `present` (N, layers) are 1 or 0; `share` (N, layers), of the visible energy; `to_come` is from `ahead`.
        """
        shares = (tf.math.log(share + _LEAST) - math.log(_LEAST)) / 2  # 0 for no energy
        to_come = tf.reshape(to_come, [-1, _AHEAD * to_come.shape[1]])
        values, one = values[:, : len(self._given)], tf.ones_like(values[:, :1])
        known = [values, present - 1, shares, to_come, labels, one]
        given = tf.matmul(tf.concat(known, 1), tf.gather(self._given, chosen))
        hidden = tf.nn.silu(given @ self._first + tf.gather(self._first_bias.value, chosen))
        hidden += tf.nn.silu(hidden @ self._second + self._second_bias)
        return hidden @ self._outputs + tf.gather(self._outputs_bias.value, chosen)


def _given(steps: int, layers: int, labels: int) -> Any:
    """The matrices (steps, known, inputs) that select and sum the inputs for each layer from what is known of all."""
    step, number = np.arange(steps)[:, None, None], np.arange(layers)[:, None]
    last, present, shares, itself = (
        number == step + first + np.arange(count)
        for first, count in ((-_LAST, _LAST), (0, _PRESENT), (-_BEFORE, _BEFORE), (0, 1))
    )
    before = (number < step) / np.sqrt(np.maximum(step, 1))
    parts = [
        np.concatenate([last, before, before * number / steps], 2)[:, :steps], present, shares,
        np.kron(itself, np.eye(_AHEAD)), np.tile(np.eye(labels), (steps, 1, 1)), interpolated(steps, _HATS)[:, None],
    ]  # fmt: skip
    rows, columns = (np.cumsum([0, *(part.shape[axis] for part in parts)]) for axis in (1, 2))
    given = np.zeros((steps, rows[-1], columns[-1]), np.float32)
    for part, row, column in zip(parts, rows, columns, strict=False):
        given[:, row : row + part.shape[1], column : column + part.shape[2]] = part
    given[:, -1, columns[2] : columns[3]] = math.log(_LEAST) / 2 + 2  # of no share
    return given


def ahead(present: Tensor) -> Tensor:
    """What is to come after each layer, (N, layers, _AHEAD): how many of the later layers are `present` (N, layers),
    and how far the last and the next of these are.
    """
    layers = present.shape[1]
    number = tf.range(layers, dtype=tf.float32)
    later = tf.cumsum(present, 1, reverse=True, exclusive=True)
    last = tf.reduce_max(present * number, 1, keepdims=True)
    away = number - number[:, None]
    following = tf.reduce_min(tf.where((away > 0) & (present[:, None] > 0), tf.minimum(away, _FAR), _FAR), 2)
    return tf.stack(
        [tf.math.log(later + 0.5) - 2, 4 * tf.nn.relu(last - number) / layers - 1, following / (_FAR / 2)], -1
    )


class TotalsDensity(keras.Model):
    """p(layers that are not empty) and p(v) of the D normal totals v from `totals.to_normal`.

    Each layer is present with a probability given the layers before it and the labels. v_k has a mixture of normals
    (Bishop, 1994), given v_<k, the labels, and which shares of the energy the layers before hold. The totals of all
    layers but the last come first, and have one network in common. The other totals have a network each, as in Uria et
    al. (arXiv 1605.02226), which is told what each layer holds. Training begins with independent layers of the `prior`
    odds, and with standard normal totals v: with the copula.
    """

    def __init__(self, totals: int, layers: int, labels: int, *, width: int, components: int) -> None:
        super().__init__(name="totals")
        self.totals, self.layers_seen, self.first = totals, layers, layers - 1  # `first` total that is of no layer
        self._presence = _Ladder("presence", layers, labels, width=width, bias=[0.0])
        normal = np.concatenate(
            [np.zeros(components), np.linspace(-0.6, 0.6, components), np.full(components, math.log(0.9))]
        )
        self.of_layers = _Chain("of_layers", layers, labels, width=64, bias=normal)
        self._others = _Ladder("others", totals - self.first, _HATS + SHAPE + labels, width=width, bias=normal)
        self.built = True

    def log_presence(self, present: Tensor, labels: Tensor, prior: Tensor) -> Tensor:
        """log p (N,) that these layers are `present` (N, layers), 1 or 0; `prior` (layers,) are log odds."""
        odds = self.presence_odds(present - 1, labels, prior, tf.range(self.layers_seen))
        return -tf.reduce_sum(tf.nn.softplus((1 - 2 * present) * tf.transpose(odds)), 1)

    def presence_odds(self, missed: Tensor, labels: Tensor, prior: Tensor, chosen: Any) -> Tensor:
        """Log odds (chosen, N) that `chosen` layers are present; `missed` (N, layers) is -1 for empty layers, or 0."""
        return self._presence(tf.concat([missed, labels], 1), chosen)[..., 0] + tf.gather(prior, chosen)[:, None]

    def log_density(self, normal: Tensor, present: Tensor, share: Tensor, labels: Tensor) -> Tensor:
        """log p(v_k | v_<k, present, labels), (N, D), of v, `normal` (N, D). The `share` (N, layers) of the visible
        energy that each layer holds follows from v.
        """
        layers = self.of_layers(
            normal, labels, present=present, share=share, to_come=ahead(present), chosen=tf.range(self.first)
        )
        others = self.of_others(normal, self.told(normal, share, labels), tf.range(self.first, self.totals))
        mixtures = mixture_of(tf.concat([layers, others], 0))
        return tf.transpose(log_mixture(tf.transpose(normal), *mixtures))

    def of_others(self, normal: Tensor, told: Tensor, chosen: Any) -> Tensor:
        """Outputs (chosen, N, outputs) for the totals that are of no layer, with the numbers `chosen`."""
        return self._others(tf.concat([normal[:, self.first :], told], 1), chosen - self.first)

    def told(self, normal: Tensor, share: Tensor, labels: Tensor) -> Tensor:
        """What `of_others` is told in addition to v: sums over the totals of the layers, `shape`, and the labels."""
        where = interpolated(self.first, _HATS)
        sums = normal[:, : self.first] @ (where / np.sqrt(np.maximum((where**2).sum(0), 1)))
        return tf.concat([sums, shape(share), labels], 1)


def mean_and_width(share: Tensor, at: Any) -> tuple[Tensor, Tensor]:
    """The mean and the width, (N, 1) each, of numbers `at` (layers,), where each counts by its `share` (N, layers)."""
    mean = tf.reduce_sum(share * at, 1, keepdims=True)
    return mean, tf.sqrt(tf.reduce_sum(share * tf.square(at - mean), 1, keepdims=True))


def shape(share: Tensor) -> Tensor:
    """Where along the layers the energy is, (N, SHAPE), from the `share` (N, layers) of each layer: the mean and the
    width, over the number of layers, and the logarithms of what groups of layers hold.
    """
    layers = share.shape[1]
    mean, width = mean_and_width(share, np.arange(layers, dtype=np.float32) / layers)
    groups = share @ interpolated(layers, _HATS)
    return tf.concat([4 * mean - 1, 8 * width - 1, tf.math.log(groups + _LEAST) / 2 + 1], 1)
