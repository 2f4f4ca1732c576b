"""The auto-encoder: its loss, what it keeps of a shower, and a training through the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from rings import RINGS
from scipy import stats
from showers import SMALL_GEOMETRY, make_dataset, make_file, make_showers, make_toy_showers, measured_angle, write_file

from calopipe.errors import InputError
from calopipe.showers.cells import REFERENCE_UNIT_GEV
from calopipe.showers.files import open_showers
from calopipe.showers.metric import Profiles
from calopipe.showers.positions import voxel_order
from calopipe.showers.selection import Selection
from preprocessing.dataset import read_manifest
from preprocessing.reading import ordered_batches
from training import __main__ as command
from training.configs import named_config
from training.folder import read_card
from training.loading import load
from training.models.autoencoder.model import AutoEncoder, ReconstructionJudge
from training.models.base import build
from training.models.randomness import Draws

DRAWS = Draws.of(1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of showers, their dataset, and the model `m` of 60 steps."""
    place = tmp_path_factory.mktemp("autoencoder")
    make_dataset(place / "ds", make_file(place / "mc.h5", events=300))
    command.main([
        "fit", "--config", "autoencoder", "--dataset", str(place / "ds"), "--output", str(place / "m"), "--steps", "60",
        "--evaluation-steps", "60", "--code", "6",
    ])  # fmt: skip
    return place


def test_it_begins_at_the_mean_shower_and_its_loss_is_the_divergence(tmp_path: Path) -> None:
    make_dataset(tmp_path / "ds", make_file(tmp_path / "mc.h5", events=60))
    manifest = read_manifest(tmp_path / "ds")
    model = build(named_config("autoencoder"), manifest.geometry)
    batches = list(ordered_batches(tmp_path / "ds", manifest, "train", batch=7, decode=model.decode))
    model.adapt(batches, manifest)
    cells = np.concatenate([model.view(batch, DRAWS)["cells"].numpy() for batch in batches]).astype(np.float64)
    mean = (cells / cells.sum(axis=(1, 2, 3), keepdims=True)).mean(axis=0)

    showers = make_showers(events=5, seed=9).cells
    losses, made = model.evaluate({"cells": tf.constant(showers)}, DRAWS)
    energy = showers.sum(axis=(1, 2, 3), keepdims=True)
    np.testing.assert_allclose(made, energy * mean, atol=1e-5 * energy.max())
    expected = stats.entropy(showers.reshape(5, -1), mean.reshape(1, -1) + 1e-8, axis=1)  # normalises both
    np.testing.assert_allclose(losses["divergence"], expected, rtol=1e-3)


def test_showers_keep_their_energy_in_cells_that_exist() -> None:
    """In rings, some layers of which have no angles; an empty shower stays empty."""
    model = AutoEncoder(RINGS, code=3)
    model.adapt([], None)  # type: ignore[arg-type]  # of no showers: all cells alike
    showers = np.concatenate([make_toy_showers(events=3, geometry=RINGS).cells, np.zeros((1, *RINGS.shape))])
    made = model.reconstruct(tf.constant(showers.astype(np.float32))).numpy()
    np.testing.assert_allclose(made.sum(axis=(1, 2, 3)), showers.sum(axis=(1, 2, 3)), rtol=1e-5)
    exists = np.zeros(RINGS.cells, dtype=np.bool_)
    exists[voxel_order(RINGS)] = True
    assert (made[:3].reshape(3, -1) > 0).all(axis=0).tolist() == exists.tolist()
    losses, _ = model.evaluate({"cells": tf.constant(showers.astype(np.float32))}, DRAWS)
    assert np.isfinite(losses["divergence"]).all()


def test_what_is_unexplained_of_observables() -> None:
    """Nothing of the same showers; all of it, and as much again, of showers in another order."""
    showers = make_showers(events=400)
    judge = ReconstructionJudge(400, SMALL_GEOMETRY)
    labels = {"energy_gev": tf.constant(showers.energy_gev), "theta_rad": tf.constant(showers.theta_rad)}
    given = {"cells": tf.constant(showers.cells), **labels}
    same = judge.found(judge.add(given, tf.constant(showers.cells)))
    assert set(same["unexplained"].values()) == {0.0}
    assert len(same["unexplained"]) == 7
    other = judge.found(judge.add(given, tf.constant(np.roll(showers.cells, 1, axis=0))))
    assert other["energy_sum"] == pytest.approx(1.0)
    assert all(1.5 < value < 2.5 for value in other["unexplained"].values())
    depth = Profiles.of(showers.cells, showers.energy_gev, showers.theta_rad, SMALL_GEOMETRY).along[2] @ np.arange(5)
    depth /= showers.cells.sum(axis=(1, 2, 3))
    expected = np.mean((depth - np.roll(depth, 1)) ** 2) / np.var(depth)
    assert other["unexplained"]["centre_depth"] == pytest.approx(expected, rel=1e-4)


def test_a_training_explains_showers_that_it_has_not_seen(trained: Path) -> None:
    history = [json.loads(line) for line in (trained / "m/history.jsonl").read_text().splitlines()]
    first, last = history[0], history[-1]
    assert last["step"] == 60
    assert last["validation"]["divergence"] < 0.8 * first["validation"]["divergence"]
    for name in ("angle", "centre_y"):  # which the angle of a test shower moves; the rest is the noise of its cells
        assert last["unexplained"][name] < 0.1
        assert first["unexplained"][name] > 0.8
    assert last["energy_sum"] == pytest.approx(1.0, abs=1e-4)
    card = read_card(trained / "m")
    assert card.trained["unexplained"] == last["unexplained"]
    assert card.losses["divergence"] == last["validation"]["divergence"]


def test_reconstructed_showers_are_the_models_own_in_their_files_unit(trained: Path) -> None:
    """Of the test split alone, with its labels. Showers that the model was trained on cannot judge it."""
    given = ["--model", str(trained / "m"), "--like", str(trained / "mc.h5"), "--split", "test"]
    command.main(["reconstruct", *given, "--output", str(trained / "again.h5")])
    file, again = (open_showers(trained / name) for name in ("mc.h5", "again.h5"))
    mask, _ = file.chosen(Selection(split="test"))
    showers, found = file.read()[mask], again.read()
    np.testing.assert_array_equal(found.energy_gev, showers.energy_gev)
    np.testing.assert_allclose(found.cells.sum(axis=(1, 2, 3)), showers.cells.sum(axis=(1, 2, 3)), rtol=1e-4)
    _, model = load(trained / "m")
    unit = file.geometry.file_unit_gev / REFERENCE_UNIT_GEV
    expected = model.reconstruct(tf.constant(showers.cells * np.float32(unit))).numpy() / unit
    np.testing.assert_allclose(found.cells, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.mtheta_rad, measured_angle(found.cells), atol=1e-3)
    (trained / "again.h5").touch()
    before = (trained / "again.h5").stat().st_mtime_ns
    command.main(["reconstruct", *given, "--output", str(trained / "again.h5")])
    assert (trained / "again.h5").stat().st_mtime_ns == before  # it stands
    with pytest.raises(InputError, match="no shower of the input is in the test split; give more files"):
        command.main(["reconstruct", *given, "--split-file", "train=mc.h5", "--output", str(trained / "no.h5")])
    with pytest.raises(InputError, match="was trained on"):
        command.main(["reconstruct", *given, "--split-file", "test=mc.h5", "--output", str(trained / "no.h5")])
    assert not (trained / "no.h5").exists()


def test_showers_in_another_unit_are_reconstructed_alike(trained: Path) -> None:
    showers = make_showers(events=12, seed=7)
    found = {}
    for unit in (1.0, 0.001):
        geometry = replace(SMALL_GEOMETRY, file_unit_gev=unit)
        cells = showers.cells * np.float32(SMALL_GEOMETRY.file_unit_gev / unit)
        path = write_file(trained / "other" / f"{unit}.h5", showers, ECAL=cells, geometry=geometry)
        output = trained / "new" / f"again-{unit}.h5"
        command.main(["reconstruct", "--model", str(trained / "m"), "--like", str(path), "--output", str(output)])
        found[unit] = open_showers(output).read().cells
    np.testing.assert_allclose(found[0.001], 1000 * found[1.0], rtol=1e-4)


def test_a_saved_model_gives_showers_in_gev_back(trained: Path) -> None:
    command.main(["export", "--model", str(trained / "m"), "--output", str(trained / "saved")])
    cells = make_showers(events=4, seed=5).cells * np.float32(REFERENCE_UNIT_GEV)
    served = tf.saved_model.load(str(trained / "saved")).signatures["serving_default"](cells_gev=tf.constant(cells))
    _, model = load(trained / "m")
    expected = model.reconstruct(tf.constant(cells / np.float32(REFERENCE_UNIT_GEV))) * REFERENCE_UNIT_GEV
    np.testing.assert_allclose(served["cells_gev"], expected, rtol=1e-4, atol=1e-7)
    angles = [np.degrees(measured_angle(each)) for each in (expected.numpy(), cells)]
    np.testing.assert_allclose(*angles, atol=6)  # of showers at 60 to 120 degrees
    assert np.ptp(angles[1]) > 12
