"""The densities: of the totals of a shower, and of a cell."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from training.models.autoregressive.mesh import Tensor

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
Mixture = tuple[Tensor, Tensor, Tensor]  # log weights, means and log widths
_LAST, _SUMS, _PRESENT, _HATS = 4, 2, 3, 6  # what a number of `_Chain` is given


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
        self._last_bias = self.add_weight((steps, 1, outputs), _constant(bias), name="last_bias")
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


class _Chain(keras.layers.Layer):
    """One small network for all of `steps` numbers in a row, each of which is given those before it, the nearest best.

    It sees the last four, two sums over all before, the first one, which of its own layer and the next two are present,
    the labels, and where in the row it is. Showers are few, layers many: what layers have in common is learned from all
    of them. Only the biases are of each number alone. It computes in float32 in every precision, as `_Ladder` does.
    """

    def __init__(self, name: str, steps: int, labels: int, *, width: int, bias: Any) -> None:
        super().__init__(name=name, dtype="float32")
        self._numbers = steps
        hats = interpolated(max(steps - 1, 1), _HATS)
        self.where = np.zeros((steps, 1 + _HATS), np.float32)  # the first is no layer's
        self.where[0, 0] = 1
        self.where[1:, 1:] = hats[: steps - 1]
        inputs, normal = _LAST + _SUMS + 1 + _PRESENT + labels + 1 + _HATS, keras.initializers.RandomNormal
        self._first = self.add_weight((inputs, width), normal(stddev=inputs**-0.5), name="first")
        self._first_bias = self.add_weight((steps, 1, width), "zeros", name="first_bias")
        self._second = self.add_weight((width, width), normal(stddev=width**-0.5), name="second")
        self._second_bias = self.add_weight((width,), "zeros", name="second_bias")
        self._outputs = self.add_weight((width, len(bias)), normal(stddev=0.02 * width**-0.5), name="last")
        self._outputs_bias = self.add_weight((steps, 1, len(bias)), _constant(bias), name="last_bias")
        self.built = True

    def call(self, values: Tensor, present: Tensor, labels: Tensor, chosen: Any) -> Tensor:
        """Outputs (chosen, N, outputs) for the numbers that `chosen` counts, given `values` (N, at least steps)."""
        row = tf.transpose(values[:, : self._numbers])  # (steps, N)
        padded = tf.pad(row, [[_LAST, 0], [0, 0]])
        last = [tf.gather(padded, chosen + back) for back in range(_LAST)]
        at = np.arange(self._numbers, dtype=np.float32)[:, None] / self._numbers
        before = tf.sqrt(tf.cast(tf.maximum(chosen, 1), tf.float32))[:, None]
        sums = [tf.gather(tf.cumsum(terms, 0, exclusive=True), chosen) / before for terms in (row, row * at)]
        first = row[:1] * tf.cast(chosen > 0, tf.float32)[:, None]
        padded = tf.transpose(tf.pad(present - 1, [[0, 0], [1, _PRESENT - 1]]))
        presence = [tf.gather(padded, chosen + k) for k in range(_PRESENT)]
        numbers = tf.stack([*last, *sums, first, *presence], -1)
        showers = tf.zeros_like(numbers[..., :1])
        given = tf.concat([numbers, showers + labels, showers + tf.gather(self.where, chosen)[:, None]], -1)
        hidden = tf.nn.silu(given @ self._first + tf.gather(self._first_bias.value, chosen))
        hidden += tf.nn.silu(hidden @ self._second + self._second_bias)
        return hidden @ self._outputs + tf.gather(self._outputs_bias.value, chosen)


class TotalsDensity(keras.Model):
    """p(layers that are not empty) and p(v) of the D totals that `totals.to_normal` gives.

    Each layer is present with a probability given those before it and the labels; v_k is a mixture of normals, given
    v_<k, the layers that are present and the labels. Each k has a network of its own, as in Uria et al. (arXiv
    1605.02226), with the mixtures of Bishop (1994). It begins as independent layers of the `prior` odds, and the
    standard normal distribution, so that training begins at the copula.
    """

    def __init__(self, totals: int, layers: int, labels: int, *, width: int, components: int) -> None:
        super().__init__(name="totals")
        self.totals, self.layers_seen = totals, layers
        self._presence = _Ladder("presence", layers, labels, width=width, bias=[0.0])
        normal = np.concatenate(
            [np.zeros(components), np.linspace(-0.6, 0.6, components), np.full(components, math.log(0.9))]
        )
        self._of_layers = _Chain("of_layers", layers, labels, width=64, bias=normal)
        self._others = _Ladder("others", totals - layers, 1 + _HATS + labels, width=width, bias=normal)
        self.built = True

    def log_presence(self, present: Tensor, labels: Tensor, prior: Tensor) -> Tensor:
        """log p (N,) of the layers `present` (N, layers), 1 or 0; `prior` (layers,) are log odds."""
        odds = self._presence(tf.concat([present - 1, labels], 1), tf.range(self.layers_seen))[..., 0]
        return -tf.reduce_sum(tf.nn.softplus((1 - 2 * present) * (tf.transpose(odds) + prior)), 1)

    def log_density(self, normal: Tensor, present: Tensor, labels: Tensor) -> Tensor:
        """log p(v_k | v_<k, present, labels), (N, D)."""
        layers = self.layers_seen
        outputs = [
            self._of_layers(normal, present, labels, tf.range(layers)),
            self._others(self._known(normal, labels), tf.range(self.totals - layers)),
        ]
        mixtures = _mixture(tf.concat(outputs, 0))
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

    def sample(self, present: Tensor, known: Tensor, labels: Tensor, choice: Tensor, noise: Tensor) -> Tensor:
        """v (N, D) drawn with uniform numbers `choice` and normal ones `noise`, (N, D) each; 0 where not `known`."""

        def step(k: Tensor, drawn: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
            weights, means, widths = (part[0] for part in _mixture(outputs))
            value = draw_mixture(weights, means, widths, choice[:, k], noise[:, k]) * tf.gather(known, k, axis=1)
            return k + 1, drawn + value[:, None] * tf.one_hot(k, self.totals)

        layers = self.layers_seen
        state = tf.while_loop(
            lambda k, _: k < layers,
            lambda k, drawn: step(k, drawn, self._of_layers(drawn, present, labels, k[None])),
            (tf.constant(0), tf.zeros_like(noise)),
            maximum_iterations=layers,
        )
        return tf.while_loop(
            lambda k, _: k < self.totals,
            lambda k, drawn: step(k, drawn, self._others(self._known(drawn, labels), k[None] - layers)),
            state,
            maximum_iterations=self.totals - layers,
        )[1]

    def _known(self, normal: Tensor, labels: Tensor) -> Tensor:
        """What the numbers beside those of the layers are given: each other, sums over the layers, and the labels."""
        where = self._of_layers.where / np.sqrt(np.maximum((self._of_layers.where**2).sum(0), 1))
        return tf.concat([normal[:, self.layers_seen :], normal[:, : self.layers_seen] @ where, labels], 1)


class NumberDensity(keras.Model):
    """The density of a number: a mixture of distributions; and the chances of `cases`, some without such a number."""

    def __init__(self, name: str, contexts: int, *, width: int, components: int, cases: int = 0) -> None:
        super().__init__(name=name)
        self._cases = cases
        self._first = keras.layers.Dense(2 * width, "silu", name="first")
        self._second = keras.layers.Dense(width, "silu", name="second")
        small = keras.initializers.RandomNormal(stddev=0.05 * width**-0.5)
        self._last = keras.layers.Dense(
            cases + 3 * components, kernel_initializer=small, bias_initializer=_spread(components, cases), name="last"
        )
        for layer, inputs in ((self._first, contexts), (self._second, 2 * width), (self._last, width)):
            layer.build((None, inputs))
        self.built = True

    def mixture(self, contexts: Tensor) -> Mixture:
        """Log weights, means and log widths, (M, components), of numbers with these `contexts` (M, contexts)."""
        return self.cases_and_mixture(contexts)[1]

    def cases_and_mixture(self, contexts: Tensor) -> tuple[Tensor, Mixture]:
        """Also the log chances (M, cases) of the cases."""
        outputs = tf.cast(self._last(self._second(self._first(contexts))), tf.float32)
        return tf.nn.log_softmax(outputs[:, : self._cases]), _mixture(outputs[:, self._cases :])


class CellDensity(keras.Model):
    """p(non-zero) of a cell, and, if it is, the density of the logarithm that its share of its colour's energy goes by:
    a mixture of normals.

    `neighbours` numbers are known of a cell itself, `contexts` of its layer, which are worked up once for all cells of
    the layer. Both densities are corrections to a prior that depends on layer and radius.
    """

    def __init__(self, name: str, *, neighbours: int, contexts: int, width: int, depth: int, components: int) -> None:
        super().__init__(name=name)
        self.components = components
        dense = keras.layers.Dense
        self._context_in = dense(2 * width, "silu", name="context_in")
        self._context_out = dense(width, name="context_out")
        self._cell_in = dense(width, use_bias=False, name="cell_in")
        self._hidden = [dense(width, "silu", name=f"hidden_{number}") for number in range(depth)]
        small = keras.initializers.RandomNormal(stddev=0.05 * width**-0.5)
        self._occupied = dense(1, kernel_initializer=small, name="occupied")
        self._deposit = dense(
            3 * components, kernel_initializer=small, bias_initializer=_spread(components), name="deposit"
        )
        for layer, inputs in (
            (self._context_in, contexts), (self._context_out, 2 * width), (self._cell_in, neighbours),
            *((layer, width) for layer in self._hidden), (self._occupied, width), (self._deposit, width),
        ):  # fmt: skip
            layer.build((None, inputs))
        self.built = True

    def of_layers(self, contexts: Tensor) -> Tensor:
        """What the cells of a layer have in common, (layers, width), of `contexts` (layers, contexts)."""
        return self._context_out(self._context_in(contexts))

    def hidden(self, cells: Tensor, shared: Tensor) -> Tensor:
        """The features (R, width) of cells, of what is known of each (R, neighbours) and of its layer (R, width)."""
        features = tf.nn.silu(self._cell_in(cells) + shared)
        for layer in self._hidden:
            features += layer(features)
        return features

    def log_odds(self, hidden: Tensor, prior: Tensor) -> Tensor:
        """log p / (1 - p) of being non-zero, (R,)."""
        return tf.cast(self._occupied(hidden), tf.float32)[:, 0] + prior

    def log_deposit(self, hidden: Tensor, prior: Tensor) -> Mixture:
        """Log weights, means and log widths, (R, components), of the log of a deposit, which `prior` (R,) is usually.

        Only differences count between cells that share an energy.
        """
        weights, means, widths = _mixture(tf.cast(self._deposit(hidden), tf.float32))
        return weights, means + prior[:, None], widths


def _mixture(outputs: Tensor) -> Mixture:
    weights, means, widths = tf.split(outputs, 3, -1)
    return tf.nn.log_softmax(weights), means, tf.clip_by_value(widths, -4.0, 2.0)


def log_mixture(values: Tensor, weights: Tensor, means: Tensor, widths: Tensor) -> Tensor:
    """Log density (...) of `values` (...) under mixtures (..., components)."""
    pull = (values[..., None] - means) * tf.exp(-widths)
    return tf.reduce_logsumexp(weights - widths - 0.5 * pull * pull, -1) - _HALF_LOG_2PI


def draw_mixture(weights: Tensor, means: Tensor, widths: Tensor, choice: Tensor, noise: Tensor) -> Tensor:
    """One number (R,) of each mixture (R, components), by `choice` (R,) uniform and `noise` (R,) normal."""
    passed = tf.cumsum(tf.exp(weights), axis=1)[:, :-1] < choice[:, None]
    chosen = tf.one_hot(tf.reduce_sum(tf.cast(passed, tf.int32), 1), weights.shape[1])
    return tf.reduce_sum(chosen * means, 1) + tf.exp(tf.reduce_sum(chosen * widths, 1)) * noise


def _constant(bias: Any) -> Any:
    def values(shape: Any, dtype: Any = None) -> Tensor:
        return tf.constant(np.broadcast_to(np.asarray(bias), shape).copy(), dtype)

    return values


def _spread(components: int, cases: int = 0) -> Any:
    def values(shape: Any, dtype: Any = None) -> Tensor:
        means, widths = np.linspace(-1.2, 1.0, components), np.full(components, -0.5)
        bias = np.concatenate([np.zeros(cases + components), means, widths])
        return tf.constant(bias.reshape(shape), dtype)

    return values
