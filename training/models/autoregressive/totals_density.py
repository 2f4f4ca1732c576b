"""The density of the totals of a shower."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from training.models.autoregressive.densities import draw_mixture, log_mixture, mixture_of
from training.models.base import Tensor

_LAST, _SUMS, _PRESENT, _BEFORE, _AHEAD, _HATS = 4, 2, 3, 4, 3, 6  # what a layer of `_Chain` is given
_SHAPE = 2 + _HATS  # numbers of where among the layers a shower's energy is
_LEAST = 1e-4  # of the visible energy, added to what a layer holds before the logarithm
_FAR = 8.0  # layers to the next one that is not empty, at most


def interpolated(places: int, knots: int) -> Any:
    """Weights (places, knots) of linear interpolation at `places` between `knots`, both even over the same range."""
    at = np.linspace(0, knots - 1, places)
    return np.maximum(1 - np.abs(at[:, None] - np.arange(knots)), 0).astype(np.float32)


class _Ladder(keras.layers.Layer):
    """`steps` small networks, the k-th of which sees the first k of `steps` numbers and all of `others` more.

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
        """Outputs (chosen, N, outputs) of the networks that `chosen` (chosen,) counts, given `known` (N, inputs)."""
        weights = (self._first, self._first_bias, self._second, self._second_bias, self._last, self._last_bias)
        first, first_bias, second, second_bias, last, last_bias = (tf.gather(part.value, chosen) for part in weights)
        hidden = tf.nn.silu(tf.einsum("ni,dih->dnh", known, first * tf.gather(self._mask, chosen)) + first_bias)
        hidden += tf.nn.silu(tf.matmul(hidden, second) + second_bias)
        return tf.matmul(hidden, last) + last_bias


class _Layers(NamedTuple):
    """Of the layers of N showers: which are `present`, 1 or 0, and their `share` of the visible energy, (N, layers)
    each; and what is `ahead` of each, (N, layers, _AHEAD).
    """

    present: Tensor
    share: Tensor
    ahead: Tensor


class _Chain(keras.layers.Layer):
    """One small network for all of `steps` layers, each of which is given those before it, the nearest best.

    It sees the numbers of the last four, two sums over all before, which of its own layer and the next two are present,
    what share of the visible energy each of the four layers before holds, what is to come (`_ahead`), the labels, and
    where along the depth it is. So it knows how far the shower has come: a photon may convert late, and has its
    whole shower deeper then. Showers are few, layers many: what layers have in common is learned from all of them. Only
    the biases are of each layer alone. It computes in float32 in every precision, as `_Ladder` does.
    """

    def __init__(self, name: str, steps: int, labels: int, *, width: int, bias: Any) -> None:
        super().__init__(name=name, dtype="float32")
        self._numbers = steps
        self._where = interpolated(steps, _HATS)
        inputs = _LAST + _SUMS + _PRESENT + _BEFORE + _AHEAD + labels + _HATS
        normal = keras.initializers.RandomNormal
        self._first = self.add_weight((inputs, width), normal(stddev=inputs**-0.5), name="first")
        self._first_bias = self.add_weight((steps, 1, width), "zeros", name="first_bias")
        self._second = self.add_weight((width, width), normal(stddev=width**-0.5), name="second")
        self._second_bias = self.add_weight((width,), "zeros", name="second_bias")
        self._outputs = self.add_weight((width, len(bias)), normal(stddev=0.02 * width**-0.5), name="last")
        self._outputs_bias = self.add_weight((steps, 1, len(bias)), keras.initializers.Constant(bias), name="last_bias")
        self.built = True

    def call(self, values: Tensor, layers: _Layers, labels: Tensor, chosen: Any) -> Tensor:
        """Outputs (chosen, N, outputs) for the layers that `chosen` counts, given `values` (N, at least steps)."""
        row = tf.transpose(values[:, : self._numbers])  # (steps, N)
        padded = tf.pad(row, [[_LAST, 0], [0, 0]])
        last = [tf.gather(padded, chosen + back) for back in range(_LAST)]
        at = np.arange(self._numbers, dtype=np.float32)[:, None] / self._numbers
        before = tf.sqrt(tf.cast(tf.maximum(chosen, 1), tf.float32))[:, None]
        sums = [tf.gather(tf.cumsum(terms, 0, exclusive=True), chosen) / before for terms in (row, row * at)]
        padded = tf.transpose(tf.pad(layers.present - 1, [[0, 0], [0, _PRESENT - 1]]))
        presence = [tf.gather(padded, chosen + k) for k in range(_PRESENT)]
        logs, none = (tf.math.log(held + _LEAST) / 2 + 2 for held in (tf.transpose(layers.share), 0.0))
        padded = tf.pad(logs, [[_BEFORE, 0], [0, 0]], constant_values=none)
        before = [tf.gather(padded, chosen + back) for back in range(_BEFORE)]
        numbers = tf.stack([*last, *sums, *presence, *before], -1)
        to_come = tf.gather(tf.transpose(layers.ahead, [1, 0, 2]), chosen)
        showers = tf.zeros_like(numbers[..., :1])
        given = tf.concat([numbers, to_come, showers + labels, showers + tf.gather(self._where, chosen)[:, None]], -1)
        hidden = tf.nn.silu(given @ self._first + tf.gather(self._first_bias.value, chosen))
        hidden += tf.nn.silu(hidden @ self._second + self._second_bias)
        return hidden @ self._outputs + tf.gather(self._outputs_bias.value, chosen)


def _ahead(present: Tensor) -> Tensor:
    """What is to come after each layer, (N, layers, _AHEAD): how many layers that are `present` (N, layers), and how
    far the last and the next of them are.
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
    """p(layers that are not empty) and p(v) of the D totals that `totals.to_normal` gives.

    Each layer is present with a probability given those before it and the labels. v_k is a mixture of normals (Bishop,
    1994), given v_<k, the labels, and what share of the energy each layer before holds. First come the layers but the
    last, which take part of what reaches them. They have a network in common. The others are told what each layer
    holds, and have a network each, as in Uria et al. (arXiv 1605.02226). Training begins at independent layers of the
    `prior` odds, and at the standard normal distribution: at the copula.
    """

    def __init__(self, totals: int, layers: int, labels: int, *, width: int, components: int) -> None:
        super().__init__(name="totals")
        self.totals, self.layers_seen, self._first = totals, layers, layers - 1  # the first that is of no layer
        self._presence = _Ladder("presence", layers, labels, width=width, bias=[0.0])
        normal = np.concatenate(
            [np.zeros(components), np.linspace(-0.6, 0.6, components), np.full(components, math.log(0.9))]
        )
        self._of_layers = _Chain("of_layers", max(self._first, 1), labels, width=64, bias=normal)
        self._others = _Ladder("others", totals - self._first, _HATS + _SHAPE + labels, width=width, bias=normal)
        self.built = True

    def log_presence(self, present: Tensor, labels: Tensor, prior: Tensor) -> Tensor:
        """log p (N,) of the layers `present` (N, layers), 1 or 0; `prior` (layers,) are log odds."""
        odds = self._presence(tf.concat([present - 1, labels], 1), tf.range(self.layers_seen))[..., 0]
        return -tf.reduce_sum(tf.nn.softplus((1 - 2 * present) * (tf.transpose(odds) + prior)), 1)

    def log_density(self, normal: Tensor, present: Tensor, share: Tensor, labels: Tensor) -> Tensor:
        """log p(v_k | v_<k, present, labels), (N, D); `share` (N, layers) of the visible energy that each layer holds
        follows from v.
        """
        outputs = [
            self._of_layers(normal, _Layers(present, share, _ahead(present)), labels, tf.range(self._first)),
            self._of_others(normal, self._told(normal, share, labels), tf.range(self._first, self.totals)),
        ]
        mixtures = mixture_of(tf.concat(outputs, 0))
        return tf.transpose(log_mixture(tf.transpose(normal), *mixtures))

    def sample_presence(self, labels: Tensor, prior: Tensor, choice: Tensor) -> Tensor:
        """Which layers are not empty, (N, layers), 1 or 0, by uniform numbers `choice`; the first if none is."""

        def step(k: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
            odds = self._presence(tf.concat([drawn, labels], 1), k[None])[0, :, 0] + tf.gather(prior, k)
            empty = tf.cast(tf.gather(choice, k, axis=1) >= tf.sigmoid(odds), tf.float32)
            return k + 1, drawn - empty[:, None] * tf.one_hot(k, self.layers_seen)

        start = (tf.constant(0), tf.zeros_like(choice))
        drawn = (
            1 + tf.while_loop(lambda k, _: k < self.layers_seen, step, start, maximum_iterations=self.layers_seen)[1]
        )
        none = tf.cast(tf.reduce_sum(drawn, 1, keepdims=True) == 0, tf.float32)
        return drawn + none * tf.one_hot(0, self.layers_seen)

    def sample(
        self, present: Tensor, known: Tensor, labels: Tensor, choice: Tensor, noise: Tensor,
        *, share_taken: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:  # fmt: skip
        """v (N, D) drawn with uniform numbers `choice` and normal ones `noise`, (N, D) each; 0 where not `known`.

        `share_taken(v, k)` is the share (N,) of what reaches it that layer k takes if it is not the last.
        """
        first, ahead = self._first, _ahead(present)
        later = tf.cumsum(present, 1, reverse=True, exclusive=True)

        def draw(k: Tensor, drawn: Tensor, outputs: Tensor) -> Tensor:
            weights, means, widths = (part[0] for part in mixture_of(outputs))
            value = draw_mixture(weights, means, widths, choice[:, k], noise[:, k]) * tf.gather(known, k, axis=1)
            return drawn + value[:, None] * tf.one_hot(k, self.totals)

        def of_layer(k: Tensor, drawn: Tensor, share: Tensor, left: Tensor) -> tuple[Tensor, ...]:
            drawn = draw(k, drawn, self._of_layers(drawn, _Layers(present, share, ahead), labels, k[None]))
            taken = tf.where(later[:, k] > 0, share_taken(drawn, k), 1.0) * present[:, k]
            held = left * taken
            return k + 1, drawn, share + held[:, None] * tf.one_hot(k, self.layers_seen), left - held

        start = (tf.constant(0), tf.zeros_like(noise), tf.zeros_like(present), tf.ones_like(present[:, 0]))
        k, drawn, share, left = tf.while_loop(lambda k, *_: k < first, of_layer, start, maximum_iterations=first)
        told = self._told(drawn, tf.concat([share[:, :-1], left[:, None]], 1), labels)
        return tf.while_loop(
            lambda k, _: k < self.totals,
            lambda k, drawn: (k + 1, draw(k, drawn, self._of_others(drawn, told, k[None]))),
            (k, drawn),
            maximum_iterations=self.totals - first,
        )[1]

    def _of_others(self, normal: Tensor, told: Tensor, chosen: Any) -> Tensor:
        """Outputs (chosen, N, outputs) for the totals that `chosen` counts, which are of no layer."""
        return self._others(tf.concat([normal[:, self._first :], told], 1), chosen - self._first)

    def _told(self, normal: Tensor, share: Tensor, labels: Tensor) -> Tensor:
        """What they are told beside each other: sums over those of the layers, `_shape`, and the labels."""
        where = interpolated(self._first, _HATS)
        sums = normal[:, : self._first] @ (where / np.sqrt(np.maximum((where**2).sum(0), 1)))
        return tf.concat([sums, _shape(share), labels], 1)


def _shape(share: Tensor) -> Tensor:
    """Where among the layers the energy is, (N, _SHAPE), by each layer's `share` (N, layers) of it: mean and width in
    parts of their number, and the logarithms of what groups of layers hold.
    """
    layers = share.shape[1]
    at = np.arange(layers, dtype=np.float32) / layers
    mean = tf.reduce_sum(share * at, 1, keepdims=True)
    width = tf.sqrt(tf.reduce_sum(share * tf.square(at - mean), 1, keepdims=True))
    groups = share @ interpolated(layers, _HATS)
    return tf.concat([4 * mean - 1, 8 * width - 1, tf.math.log(groups + _LEAST) / 2 + 1], 1)
