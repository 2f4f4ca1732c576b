"""A generator of showers in one file: it generates only the energy of each layer.

python -m training fit --model-file layers.py ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from calopipe.options import setting
from calopipe.showers.cells import Geometry
from preprocessing.reading import dense
from training.models.base import Batch, Losses, Phase
from training.models.config import CONFIGS, FitConfig, register
from training.models.randomness import Draws, NoiseDraws, uniform_for_normal
from training.models.showers import NOISE, ShowerModel

_NUMBERS = 4


@register("layers")
@dataclass(frozen=True, kw_only=True)
class LayersConfig(FitConfig):
    hidden: int = setting(16, help="width of the hidden layer")

    def build(self, geometry: Geometry) -> Layers:
        return Layers(geometry, width=self.hidden)


CONFIGS["layers"] = LayersConfig(model="layers", batch=32, epochs=20, learning_rate=0.03)


class Layers(ShowerModel):
    """One network that gives the energy of each layer of a shower. All of it is in the middle cell of the layer."""

    averaged = ("layers",)
    noise_numbers = uniform_for_normal(_NUMBERS)

    def __init__(self, geometry: Geometry, *, width: int) -> None:
        inputs = keras.Input((2 + _NUMBERS,))
        hidden = keras.layers.Dense(width, activation="gelu")(inputs)
        energies = keras.layers.Dense(geometry.shape[2], activation="softplus")(hidden)
        self.networks = {"layers": keras.Model(inputs, energies)}
        self.weights = {"square": 1.0}
        self.phases = (Phase("fit", "layers", self._losses, self.weights),)
        self._shape = geometry.shape
        nx, ny, _ = geometry.shape
        self._around = [(nx // 2, nx - nx // 2 - 1), (ny // 2, ny - ny // 2 - 1)]

    def view(self, batch: Batch, draws: Draws) -> Batch:
        return {**batch, "cells": dense(batch, self._shape)}

    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Any]:
        return self._losses(batch, draws), self.generate(batch, draws)

    def generate(self, labels: Batch, draws: Draws | NoiseDraws) -> Any:
        layers = self._energies(labels, draws)
        return ops.pad(layers[:, None, None], [(0, 0), *self._around, (0, 0)])

    def _energies(self, labels: Batch, draws: Draws | NoiseDraws) -> Any:
        given = ops.stack([labels["energy_gev"] / 100.0, labels["theta_rad"]], 1)
        noise = draws.normal(NOISE, [ops.shape(given)[0], _NUMBERS])
        return self.networks["layers"](ops.concatenate([given, noise], 1))

    def _losses(self, view: Batch, draws: Draws) -> Losses:
        found = self._energies(view, draws)
        return {"square": ops.mean(ops.square(found - ops.sum(view["cells"], [1, 2])), 1)}
