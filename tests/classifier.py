"""A model that is not a generator, in one file: it finds which of two particles made a shower.

python -m training fit --model-file classifier.py --config particles ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from calopipe.errors import InputError
from calopipe.options import setting
from calopipe.showers.cells import Geometry
from preprocessing.manifest import Manifest
from preprocessing.reading import decode
from training.models.base import Batch, Guard, Judge, Losses, Model, Phase, Rows, ValidRange
from training.models.config import CONFIGS, FitConfig, register
from training.models.randomness import Draws

PARTICLES = ("electron", "pion")
_PION_FROM_GEV = 150.0  # records hold no particle; in these files the showers of higher energy are pions


@register("classifier")
@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(FitConfig):
    """`smoothing` is the share of a label that goes to the other particle at first; it fades within an epoch."""

    hidden: int = setting(8, help="width of the classifier's hidden layer", least=1)
    smoothing: float = setting(0.2, help="of the classifier's labels, at first", least=0, below=1)

    def check_shape(self, geometry: Geometry) -> None:
        if geometry.shape[2] < 2:
            raise InputError(f"the showers have {geometry.shape[2]} layer, a classifier needs two to tell them apart")

    def build(self, geometry: Geometry) -> Classifier:
        return Classifier(geometry, self.hidden, self.smoothing)


CONFIGS["particles"] = ClassifierConfig(model="classifier", batch=8, epochs=4, learning_rate=0.03)


class Accuracy(Judge):
    """The share of showers whose particle is found correctly."""

    def add(self, batch: Batch, made: Any) -> Rows:
        right = (made.numpy() > 0.5) == (batch["pion"].numpy() > 0.5)
        return np.reshape(right, (-1, 1)).astype(np.float64)

    def found(self, rows: Rows) -> dict[str, Any]:
        return {"accuracy": float(rows.mean())}


class Classifier(Model):
    """The probability of a pion from normalised layer energies. Batch normalisation gives the averages statistics."""

    averaged = ("classifier",)
    guards = (Guard("the classifier is certain, and wrong", lambda table: table["fit"]["cross_entropy"] > 15.0),)

    def __init__(self, geometry: Geometry, hidden: int, smoothing: float) -> None:
        inputs = keras.Input((geometry.shape[2],))
        hidden_layer = keras.layers.Dense(hidden, activation="tanh")(inputs)
        flow = keras.layers.BatchNormalization(momentum=0.9)(hidden_layer)  # trainings have tens of steps
        answer = keras.layers.Dense(1, activation="sigmoid")(flow)
        self.networks = {"classifier": keras.Model(inputs, answer)}
        self.weights, self.exported = {"cross_entropy": 1.0}, {"particles": list(PARTICLES)}
        self.phases = (Phase("fit", "classifier", self._losses, {"cross_entropy": 1.0, "epoch": 0.0}),)
        self._smoothing, self._shape = smoothing, geometry.shape

    def decode(self, records: Any, manifest: Manifest) -> Batch:
        found = decode(records, manifest)
        pion = tf.cast(found["energy_gev"] > _PION_FROM_GEV, tf.float32)
        return {"layers": _layers(found["cells"]), "pion": pion}

    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Any]:
        probability = self._probability(batch["layers"], training=False)
        return {"cross_entropy": _cross_entropy(batch["pion"], probability)}, probability

    def judge(self, showers: int, geometry: Geometry, workers: int = 1) -> Accuracy:
        return Accuracy()

    def score(self, losses: Mapping[str, float], found: Mapping[str, Any], showers: int) -> float | None:
        return -float(found["accuracy"])

    def card(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {"particles": list(PARTICLES), "accuracy": found.get("accuracy")}

    def serving(self, valid: ValidRange) -> Any:
        @tf.function(input_signature=[tf.TensorSpec([None, *self._shape], tf.float32)], autograph=False)
        def classify(cells: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"pion": self._probability(_layers(cells), training=False)}

        return classify

    def _probability(self, layers: Any, *, training: bool) -> Any:
        return self.networks["classifier"](layers, training=training)[:, 0]

    def _losses(self, view: Batch, draws: Draws) -> Losses:
        smoothing = self._smoothing * ops.maximum(1.0 - view["epoch"], 0.0)
        label = view["pion"] * (1 - smoothing) + (1 - view["pion"]) * smoothing
        probability = self._probability(view["layers"], training=True)
        return {
            "cross_entropy": _cross_entropy(label, probability),
            "epoch": ops.zeros_like(probability) + view["epoch"],
        }


def _layers(cells: Any) -> Any:
    """The shares of the layers (N, layer) in the energy of showers (N, x, y, layer)."""
    energy = tf.reduce_sum(cells, [1, 2])
    return energy / tf.reduce_sum(energy, 1, keepdims=True)


def _cross_entropy(label: Any, probability: Any) -> Any:
    return keras.losses.binary_crossentropy(label[:, None], probability[:, None])
