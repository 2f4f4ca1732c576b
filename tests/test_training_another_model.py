"""A model of another kind goes through training, judging and generation by what `Model` asks alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from showers import SMALL_GEOMETRY, make_file
from trainings import fit_small

from calopipe.showers.cells import Geometry
from preprocessing.dataset import Manifest, Settings
from preprocessing.inputs import discover
from preprocessing.pipeline import preprocess
from preprocessing.reading import decode
from training import models
from training.folder import read_card
from training.generation import Generator
from training.models.base import Batch, Losses, Model, Phase
from training.models.randomness import Draws, NoiseDraws, ShowerDraws, uniform_for_normal

_NOISE = 4


class Layers(Model):
    """One network that says how much each layer of a shower holds, all of it in the middle cell of the layer."""

    averaged = ("layers",)
    chosen_by = "losses"
    generation_batch = 16
    noise_numbers = uniform_for_normal(_NOISE)

    def __init__(self, geometry: Geometry, *, width: int) -> None:
        inputs = keras.Input((2 + _NOISE,))
        hidden = keras.layers.Dense(width, activation="gelu")(inputs)
        energies = keras.layers.Dense(geometry.shape[2], activation="softplus")(hidden)
        self.networks = {"layers": keras.Model(inputs, energies)}
        self.weights = {"square": 1.0}
        self.phases = (Phase("fit", "layers", self._losses, self.weights),)
        nx, ny, _ = geometry.shape
        self._around = [(nx // 2, nx - nx // 2 - 1), (ny // 2, ny - ny // 2 - 1)]

    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:
        return keras.optimizers.Adam(learning_rate)

    def decode(self, records: Any, manifest: Manifest) -> Batch:
        return decode(records, manifest)

    def view(self, batch: Batch, draws: Draws) -> Batch:
        return batch

    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Any]:
        return self._losses(batch, draws), self.generate(batch["energy_gev"], batch["theta_rad"], draws)

    def generate(self, energy_gev: Any, theta_rad: Any, draws: Draws | NoiseDraws) -> Any:
        layers = self._energies(energy_gev, theta_rad, draws)
        return ops.pad(layers[:, None, None], [(0, 0), *self._around, (0, 0)])

    def _energies(self, energy_gev: Any, theta_rad: Any, draws: Draws | NoiseDraws) -> Any:
        labels = ops.stack([energy_gev / 100.0, theta_rad], 1)
        noise = draws.normal("noise", [ops.shape(energy_gev)[0], _NOISE])
        return self.networks["layers"](ops.concatenate([labels, noise], 1))

    def _losses(self, view: Batch, draws: Draws) -> Losses:
        found = self._energies(view["energy_gev"], view["theta_rad"], draws)
        return {"square": ops.mean(ops.square(found - ops.sum(view["cells"], [1, 2])), 1)}


def test_another_model_is_trained_judged_and_generates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models, "Autoregressive", Layers)
    path = make_file(tmp_path / "mc.h5", events=200)
    preprocess(discover([str(path)]), tmp_path / "ds", Settings())
    arguments = (tmp_path / "ds", tmp_path / "m", "--config", "fast", "--steps", "60", "--learning-rate", "0.03")
    fit_small(*arguments)
    history = [json.loads(line) for line in (tmp_path / "m/history.jsonl").read_text().splitlines()]
    assert history[-1]["step"] == 60
    assert history[-1]["train"]["fit"]["square"] < 0.5 * history[1]["train"]["fit"]["square"]
    card = read_card(tmp_path / "m")
    assert card.losses["square"] == card.losses["total"] == history[-1]["validation"]["square"]
    assert list(card.weights) == ["layers.weights.h5"]
    capsys.readouterr()
    fit_small(*arguments)
    assert "model stands" in capsys.readouterr().out

    generator = Generator(tmp_path / "m")
    energy, theta = np.float32([120, 150, 190]), np.float32([1.4, 1.5, 1.6])
    (made,) = generator.showers(energy, theta, seed=3)
    network = Layers(SMALL_GEOMETRY, width=card.config.width).networks["layers"]
    network.load_weights(tmp_path / "m/layers.weights.h5")
    noise = ShowerDraws(tf.constant(3), tf.constant(0, tf.int64)).normal("noise", [3, _NOISE])
    expected = network(tf.concat([tf.constant(np.stack([energy / 100, theta], 1)), noise], 1))
    np.testing.assert_allclose(made.cells[:, 8, 8], expected, rtol=1e-5)
    assert made.cells.sum() == pytest.approx(np.sum(expected), rel=1e-5)
