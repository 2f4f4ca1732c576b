"""The networks of CaloChallenge's classifiers, and their inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from calopipe.showers.calochallenge.highlevel import high_level, layers_with_angles
from calopipe.showers.cells import REFERENCE_UNIT_GEV, Geometry
from calopipe.showers.positions import voxel_order
from preprocessing.manifest import Manifest
from preprocessing.reading import decode, decode_hits, dense
from training.models.base import Batch, Judge, Losses, Model, Phase, Rows
from training.models.randomness import Draws

_PERCENT = 100.0  # cells are given as percent of the incident energy, as published
_MEV = 1e3  # in a GeV
_SLOPE = 0.01  # slope of the leaky ReLU for negative numbers, as in PyTorch


class Accuracy(Judge):
    """Finds the `accuracy`, the share of showers whose origin the classifier tells right."""

    def add(self, batch: Batch, made: Any) -> Rows:
        correct = (made.numpy() > 0) == (batch["monte_carlo"].numpy() > 0.5)
        return np.reshape(correct, (-1, 1)).astype(np.float64)

    def found(self, rows: Rows) -> dict[str, Any]:
        return {"accuracy": float(rows.mean())}


class Discriminator(Model):
    """Tells whether a shower is Monte Carlo's. In its dataset Monte Carlo's showers have even numbers in their file.

    Low-level inputs are log10 of the incident energy in MeV, and each cell in percent of this energy. High-level inputs
    are the vector of `calopipe.showers.calochallenge.highlevel`.
    """

    averaged = ("discriminator",)

    def __init__(self, geometry: Geometry, *, high: bool, hidden: int, layers: int, dropout: float) -> None:
        self._geometry, self._high = geometry, high
        self._cells = voxel_order(geometry).astype(np.int32)
        of_high = 2 + 4 * geometry.shape[2] + 4 * len(layers_with_angles(geometry))
        self._size = of_high if high else 1 + len(self._cells)
        self.networks = {"discriminator": _network(self._size, hidden, layers, dropout)}
        self.weights = {"cross_entropy": 1.0}
        self.phases = (Phase("fit", "discriminator", self._losses, self.weights),)

    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:  # noqa: ARG002
        return keras.optimizers.Adam(learning_rate, epsilon=1e-8)  # PyTorch's

    def decode(self, records: Any, manifest: Manifest) -> Batch:
        number = tf.io.parse_example(records, {"event": tf.io.FixedLenFeature([], tf.int64)})["event"]
        monte_carlo = {"monte_carlo": tf.cast(number % 2 == 0, tf.float32)}
        if not self._high:
            return decode_hits(records, manifest) | monte_carlo
        showers = decode(records, manifest)
        inputs = tf.numpy_function(self._features, [showers["cells"], showers["energy_gev"]], tf.float32)
        return {"inputs": tf.ensure_shape(inputs, [records.shape[0], self._size])} | monte_carlo

    def view(self, batch: Batch, draws: Draws) -> Batch:  # noqa: ARG002
        return {"inputs": self._inputs(batch), "monte_carlo": batch["monte_carlo"]}

    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Any]:  # noqa: ARG002
        answer = self.answer(batch)
        return {"cross_entropy": ops.binary_crossentropy(batch["monte_carlo"], answer, from_logits=True)}, answer

    def judge(self, showers: int, geometry: Geometry, workers: int = 1) -> Accuracy:  # noqa: ARG002
        return Accuracy()

    def score(self, losses: Mapping[str, float], found: Mapping[str, Any], showers: int) -> float | None:  # noqa: ARG002
        return -float(found["accuracy"])

    def answer(self, batch: Batch) -> Any:
        """The log odds (N,) that showers, in a `batch` of `decode`, are Monte Carlo's."""
        return self.networks["discriminator"](self._inputs(batch), training=False)[:, 0]

    def _features(self, cells: Any, energy_gev: Any) -> Any:
        in_file_units = cells * np.float32(REFERENCE_UNIT_GEV / self._geometry.file_unit_gev)
        return high_level(in_file_units, energy_gev, self._geometry).vector().astype(np.float32)

    def _inputs(self, batch: Batch) -> Any:
        if self._high:
            return batch["inputs"]
        showers = dense(batch, self._geometry.shape)
        cells = tf.gather(tf.reshape(showers, [-1, self._geometry.cells]), self._cells, axis=1)
        energy = batch["energy_gev"][:, None]
        share = cells * (REFERENCE_UNIT_GEV * _PERCENT) / energy
        return tf.concat([ops.log10(energy * _MEV), share], axis=1)

    def _losses(self, view: Batch, draws: Draws) -> Losses:  # noqa: ARG002
        answer = self.networks["discriminator"](view["inputs"], training=True)[:, 0]
        return {"cross_entropy": ops.binary_crossentropy(view["monte_carlo"], answer, from_logits=True)}


def _network(inputs: int, hidden: int, layers: int, dropout: float) -> keras.Model:
    flow = given = keras.Input((inputs,))
    for size in (inputs, *([hidden] * layers)):
        flow = keras.layers.LeakyReLU(_SLOPE)(_dense(size, hidden)(flow))
        flow = keras.layers.Dropout(dropout)(flow) if dropout else flow
    return keras.Model(given, _dense(hidden, 1)(flow))


def _dense(inputs: int, units: int) -> keras.layers.Dense:
    """A layer whose weights and biases begin as PyTorch's: uniform within 1/sqrt(inputs)."""
    bound = 1 / math.sqrt(inputs)
    begin = [keras.initializers.RandomUniform(-bound, bound) for _ in range(2)]
    return keras.layers.Dense(units, kernel_initializer=begin[0], bias_initializer=begin[1])
