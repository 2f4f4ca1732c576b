"""Models of other kinds, each in its own file: training, evaluation and export."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import tensorflow as tf
from replicas import Tiny
from servers import said
from showers import (
    SMALL_GEOMETRY,
    make_dataset,
    make_file,
    make_ring_showers,
    make_showers,
    write_file,
    write_whole,
)
from trainings import LAYERS, fit_layers, fit_small, history_of, same_training

from calopipe.errors import InputError
from calopipe.showers.cells import Geometry, Layer
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from training import __main__ as command
from training import model_folder
from training.generation.conditions import Conditions
from training.generation.generate import generate
from training.generation.generator import Generator
from training.load_model import load_model
from training.model_folder import read_card
from training.models.randomness import ShowerDraws

_NOISE = 4
CLASSIFIER = Path(__file__).with_name("classifier.py")
_PION_FROM_GEV = 150.0  # as the classifier has it
_TWO_DEVICES = """
import sys, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from training.__main__ import main
main(sys.argv[1:])
"""


def make_particles(path: Path, *, events: int) -> Path:
    """A file of showers. Those of higher energy, the pions, are reversed in depth: they begin late."""
    showers = make_showers(events=events)
    late = showers.cells[..., ::-1]
    pion = (showers.energy_gev > _PION_FROM_GEV)[:, None, None, None]
    return write_file(path, replace(showers, cells=np.where(pion, late, showers.cells)))


def test_another_generator_is_trained_judged_and_generates(tmp_path: Path) -> None:
    path = make_file(tmp_path / "mc.h5", events=200)
    make_dataset(tmp_path / "ds", path)
    arguments = (*LAYERS, "--hidden", "24", "--steps", "60", "--evaluation-steps", "60")
    fit_small(tmp_path / "ds", tmp_path / "m", *arguments)
    history = history_of(tmp_path / "m")
    assert history[-1]["step"] == 60
    assert history[-1]["train"]["fit"]["square"] < 0.5 * history[1]["train"]["fit"]["square"]
    card = read_card(tmp_path / "m")
    assert card.losses["square"] == card.losses["total"] == history[-1]["validation"]["square"]
    assert list(card.weights) == ["layers.weights.h5"]
    generator = Generator(tmp_path / "m")
    energy, theta = np.float32([120, 150, 190]), np.float32([1.4, 1.5, 1.6])
    (made,) = generator.showers({"energy_gev": energy, "theta_rad": theta}, seed=3)
    network = generator.model.networks["layers"]
    noise = ShowerDraws(tf.constant(3), tf.constant(0, tf.int64)).normal("showers", [3, _NOISE])
    expected = network(tf.concat([tf.constant(np.stack([energy / 100, theta], 1)), noise], 1))
    np.testing.assert_allclose(made.cells[:, 8, 8], expected, rtol=1e-5)
    assert made.cells.sum() == pytest.approx(np.sum(expected), rel=1e-5)

    # ONNX has no operation for the exact gelu of its hidden layer
    with pytest.raises(InputError, match=r"m.onnx: ONNX cannot say what .* \(.*Erfc.*export a SavedModel"):
        command.main(["export", "--model", str(tmp_path / "m"), "--output", str(tmp_path / "m.onnx")])
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("self.networks = ", "networks = ", r"the model Layers does not state `networks`; set it in __init__"),
        ("noise_numbers = ", "noise = ", "the model Layers does not state `noise_numbers`"),
        ("def evaluate", "def judged", "abstract class Layers .* method '?evaluate"),
        ('averaged = ("layers",)', 'averaged = ("cells",)', "`averaged` names the network cells, .* has layers"),
        ('"fit", "layers"', '"fit", "cells"', "the phase fit names the network cells, `networks` has layers"),
        ("{\"layers\": ", "{\"a/b\": ", "the network a/b is to be the name of a file; leave the slash out"),
        # it would count 1/N of itself
        ('"layers", self._losses', '"layers", lambda *given: {"square": ops.mean(self._losses(*given)["square"])}',
         r"^the loss square is one number; give one a shower, \(N,\)"),
        ('"layers", self._losses', '"layers", lambda *given: {"cube": self._losses(*given)["square"]}',
         "^there is a weight of the loss square, but the losses are cube"),
        ("return self._losses(batch, draws)", 'return {"square": batch["cells"]}',
         r"^Layers.evaluate: the loss square has shape \(.*, 17, 17, 5\); give one number a shower"),
        ("[(0, 0), *self._around, (0, 0)]", "[(0, 0)] * 4",
         r"made showers of shape \(.*, 1, 1, 5\), expected \(.*, 17, 17, 5\)"),
    ],
)  # fmt: skip
def test_models_that_are_not_whole_and_losses_and_showers_of_another_shape_are_refused(
    dataset: Path, before: str, after: str, told: str, tmp_path: Path
) -> None:
    text = Path(LAYERS[1]).read_text()
    assert text.count(before) == 1
    (tmp_path / "model.py").write_text(text.replace(before, after))
    given = ("--model-file", str(tmp_path / "model.py"), "--config", "layers", "--steps", "1", "--batch", "8")
    with pytest.raises(InputError, match=told):
        fit_small(dataset, tmp_path / "m", *given)


def test_a_generator_of_a_cylinder_writes_the_layout_of_its_input(tmp_path: Path) -> None:
    """Voxels and energies in MeV, the labels the same to the bit. No training on another calorimeter starts from it."""
    edges = (0.0, 5.0, 15.0, 40.0)
    thin, thick = (Layer(pitch, x0, (4, 3), r_edges_mm=edges) for pitch, x0 in ((3.0, 1.0), (6.0, 2.0)))
    geometry = Geometry.of_layers([thin] * 6 + [thick] * 8, 1e-3)
    path = write_whole(tmp_path / "mc.h5", make_ring_showers(events=150, geometry=geometry), geometry)
    make_dataset(tmp_path / "ds", path)
    fit_layers(tmp_path / "ds", tmp_path / "m", "--steps", "4")
    selection = Selection("test", cut_gev=0)
    assert generate(tmp_path / "m", Conditions([tmp_path / "mc.h5"], selection), tmp_path / "g.h5") > 16
    like, made = (open_showers(tmp_path / name) for name in ("mc.h5", "g.h5"))
    assert (made.geometry, made.deposits) == (geometry, "showers")
    chosen, _ = like.chosen(selection)
    np.testing.assert_array_equal(made.energy_gev, like.energy_gev[chosen])
    np.testing.assert_array_equal(made.theta_rad, like.theta_rad[chosen])
    with h5py.File(tmp_path / "g.h5") as file:
        stored = file["showers"][()]
        np.testing.assert_allclose(file["incident_energies"][:, 0], like.energy_gev[chosen] * 1e3, rtol=1e-6)
    labels = {"energy_gev": made.energy_gev[:16], "theta_rad": made.theta_rad[:16]}
    shown = next(Generator(tmp_path / "m").showers(labels, seed=1))
    # the middle of 4 angles x 3 rings, in MeV
    np.testing.assert_allclose(stored[:16, 2 * 3 + 1 :: 12], shown.cells[:, 2, 1] * 20, rtol=1e-5)

    thinner = Geometry.of_layers([thin] * 6 + [thick] * 7 + [thin], 1e-3)
    write_whole(tmp_path / "other.h5", make_ring_showers(events=40, geometry=thinner), thinner)
    make_dataset(tmp_path / "ds2", tmp_path / "other.h5")
    with pytest.raises(InputError, match=r"--warm-start .*: layer 13 is .* 6 mm .* in its training, and .* 3 mm"):
        fit_layers(tmp_path / "ds2", tmp_path / "m2", "--warm-start", str(tmp_path / "m"))


@pytest.fixture(scope="module")
def particles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of showers of two particles, their dataset, and a classifier `m` trained on two replicas."""
    place = tmp_path_factory.mktemp("particles")
    make_dataset(place / "ds", make_particles(place / "mc.h5", events=200))
    _on_two_replicas(place / "ds", place / "m")
    return place


def _on_two_replicas(dataset: Path, output: Path) -> str:
    program = [sys.executable, "-c", _TWO_DEVICES, "fit", "--model-file", CLASSIFIER, "--config", "particles"]
    options = ["--strategy", "mirrored", "--average", "0.9", "--hidden", "6", "--checkpoint-steps", "5"]
    return said(*program, *options, "--dataset", dataset, "--output", output)


def test_a_classifier_is_trained_on_two_replicas_and_judged(particles: Path) -> None:
    card, history = read_card(particles / "m"), history_of(particles / "m")
    assert (card.trained["replicas"], card.config.model, card.config.to_json()["hidden"]) == (2, "classifier", 6)
    judged = history[1:]
    best = max(judged, key=lambda entry: entry["accuracy"])  # the first of several
    assert best["accuracy"] > 0.9
    assert card.trained["chosen_step"] == best["step"]
    assert (card.trained["particles"], card.trained["accuracy"]) == (["electron", "pion"], best["accuracy"])
    assert card.losses == best["validation"]
    steps = judged[0]["step"]
    expected = [epoch + np.mean(np.arange(steps) / steps) for epoch in range(4)]
    assert [entry["train"]["fit"]["epoch"] for entry in judged] == pytest.approx(expected)


def test_a_classifier_goes_on_from_its_checkpoint(particles: Path, tmp_path: Path) -> None:
    """The last checkpoint is damaged, so that the training goes on from the one before, within an epoch."""
    shutil.copytree(particles / "m", tmp_path / "m")
    (tmp_path / "m" / model_folder.CARD).unlink()
    *_, before, last = sorted((tmp_path / "m/checkpoints").glob("*.npz"))
    last.write_bytes(last.read_bytes()[:-100])
    steps = [int(path.stem.removeprefix("step-")) for path in (before, last)]
    assert steps[0] not in {entry["step"] for entry in history_of(particles / "m")}
    assert f"steps {steps[0]} to {steps[1]}" in _on_two_replicas(particles / "ds", tmp_path / "m")
    same_training(tmp_path / "m", particles / "m")


def test_a_classifier_is_exported_and_generates_nothing(particles: Path, tmp_path: Path) -> None:
    command.main(["export", "--model", str(particles / "m"), "--output", str(tmp_path / "saved")])
    cells = open_showers(particles / "mc.h5").read().cells[:5]
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"](cells=tf.constant(cells))
    _, model = load_model(particles / "m")
    energy = cells.sum((1, 2))
    expected = model.networks["classifier"](energy / energy.sum(1, keepdims=True))
    np.testing.assert_allclose(served["pion"], expected[:, 0], rtol=1e-5)
    card = json.loads((tmp_path / "saved/assets.extra/card.json").read_text())
    assert card["particles"] == ["electron", "pion"]
    with pytest.raises(InputError, match="a model classifier, which makes no showers; give another"):
        Generator(particles / "m")


def test_a_model_that_states_no_export_says_so() -> None:
    with pytest.raises(InputError, match="a model of the kind Tiny cannot be exported"):
        Tiny(SMALL_GEOMETRY).onnx({})  # as an ONNX file, which is made of `serving` too
