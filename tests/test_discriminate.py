"""CaloChallenge's classifiers: the network in NumPy, planted differences, and bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rings import RINGS, make_rings
from showers import SMALL_GEOMETRY, make_file

from calopipe import storage
from calopipe.errors import InputError
from calopipe.showers.positions import voxel_order
from training.challenge.discriminate import discriminate
from training.models.classifier import ClassifierConfig
from training.models.classifier.model import Discriminator


def test_the_network_in_numpy() -> None:
    model = Discriminator(RINGS, high=False, hidden=5, layers=2, dropout=0.0)
    weights = [weight.numpy().astype(np.float64) for weight in model.networks["discriminator"].weights]
    inputs = 1 + 3 + 3 * 24
    assert [weight.shape for weight in weights] == [(inputs, 5), (5,), (5, 5), (5,), (5, 5), (5,), (5, 1), (1,)]
    assert 0.9 / np.sqrt(inputs) < np.abs(weights[0]).max() <= 1 / np.sqrt(inputs)  # PyTorch's first weights
    rng = np.random.default_rng(4)
    order = voxel_order(RINGS)
    deposits = rng.exponential(200, (2, len(order)))  # MeV
    energy = np.array([10.0, 40.0], np.float32)
    cell = np.tile(order, (2, 1)).astype(np.int32)
    batch = {"cell": cell, "value": (deposits / 20).astype(np.float32), "energy_gev": energy}
    flow = np.concatenate([np.log10(energy * 1e3)[:, None], 100 * deposits / (energy[:, None] * 1e3)], axis=1)
    for weight, bias in zip(weights[0:6:2], weights[1:6:2], strict=True):
        flow = flow @ weight + bias
        flow = np.where(flow > 0, flow, 0.01 * flow)
    expected = (flow @ weights[6] + weights[7])[:, 0]
    import tensorflow as tf

    found = model.answer({name: tf.constant(values) for name, values in batch.items()})
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_planted_differences_are_found_and_none_where_there_is_none(tmp_path: Path) -> None:
    reference = make_rings(tmp_path / "geant4.h5", events=300, seed=1)
    wider = make_rings(tmp_path / "wider.h5", events=330, seed=2, width_mm=30.0)
    settings = {"epochs": 12, "batch": 36, "learning_rate": 3e-3, "hidden": 64}
    found = discriminate([reference], [wider], tmp_path / "result.json", **settings)  # type: ignore[arg-type]
    assert found["showers"] == 300
    assert found["inputs"]["candidate"] == [storage.sha256_of_file(wider)]
    for level in ("low", "high"):
        each = found["classifiers"][level]
        assert each["tested"] == 120  # a fifth of either set
        assert each["auc"] > 0.85, level
        assert each["jsd"] > 0.2, level
    assert discriminate([reference], [wider], tmp_path / "result.json", **settings) == found  # type: ignore[arg-type]
    alike = make_rings(tmp_path / "alike.h5", events=300, seed=3)
    found = discriminate([reference], [alike], tmp_path / "result.json", levels=["high"], **settings | {"epochs": 3})  # type: ignore[arg-type]
    assert 0.34 < found["classifiers"]["high"]["auc"] < 0.66  # three standard errors of 60 against 60
    assert "low" not in found["classifiers"]


def test_bad_input(tmp_path: Path) -> None:
    rings = make_rings(tmp_path / "rings.h5", events=30, seed=1)
    few = make_rings(tmp_path / "few.h5", events=19, seed=1)
    square = make_file(tmp_path / "square.h5", events=30)
    with pytest.raises(InputError, match="of another detector"):
        discriminate([rings], [square], tmp_path / "result.json")
    with pytest.raises(InputError, match="share 19 showers, a classifier needs 20"):
        discriminate([rings], [few], tmp_path / "result.json")
    with pytest.raises(InputError, match="rectangular"):
        discriminate([square], [square], tmp_path / "result.json", levels=["high"])
    with pytest.raises(InputError, match="--dropout is 1"):
        ClassifierConfig(model="low-level-classifier", dropout=1.0)
    assert SMALL_GEOMETRY.cells == len(voxel_order(SMALL_GEOMETRY))  # rectangular cells are all inputs
