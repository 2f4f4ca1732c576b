"""The exported model: the same showers in GeV, in a program that uses only TensorFlow; refusals."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from commands import refused
from servers import said, store

from calopipe import storage
from calopipe.errors import InputError
from calopipe.showers.files import open_showers
from training import __main__ as command
from training import model_folder
from training.export import export
from training.load_model import load_model


@pytest.fixture(scope="module")
def saved(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("export") / "saved"
    export(trained / "model", output)
    return output


@pytest.fixture(scope="module")
def loaded(saved: Path) -> Any:
    return tf.saved_model.load(str(saved))


_CLIENT = """
import sys
for name in ("training", "preprocessing", "keras", "h5py"):
    sys.modules[name] = None  # importing it is an error
import numpy as np, tensorflow as tf
labels = np.load(sys.argv[2])
made = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](
    energy_gev=tf.constant(labels[0]), theta_rad=tf.constant(labels[1]), seed=tf.constant(4)
)
np.save(sys.argv[3], made["cells_gev"].numpy())
"""


def test_a_program_of_tensorflow_alone_makes_the_showers_of_generate(
    trained: Path, saved: Path, tmp_path: Path
) -> None:
    generated = tmp_path / "g.h5"
    arguments = ["--model", trained / "model", "--like", trained / "mc.h5", "--output", generated, "--seed", 4]
    command.main(["generate", *map(str, arguments)])
    expected = open_showers(generated).read()
    np.save(tmp_path / "labels.npy", [expected.energy_gev, expected.theta_rad])
    said(sys.executable, "-I", "-c", _CLIENT, saved, "labels.npy", "cells.npy", cwd=tmp_path)
    cells_gev = np.load(tmp_path / "cells.npy")
    assert cells_gev.dtype == np.float32
    in_gev = expected.cells * 0.02  # the file's unit is that of the Monte Carlo
    np.testing.assert_allclose(cells_gev, in_gev, rtol=1e-4, atol=1e-5 * in_gev.max())


def test_the_weights_are_those_of_the_generator_alone(trained: Path, loaded: Any) -> None:
    found = sum(int(np.prod(weight.shape)) for weight in loaded.weights)
    _, model = load_model(trained / "model")
    assert found == model.networks["generator"].count_params()


def test_a_label_outside_the_range_is_told_with_the_range(loaded: Any) -> None:
    """The limits of accepted labels are tested in test_autoregressive_export.py."""
    serve = loaded.signatures["serving_default"]
    for energy, theta, told in (
        (500.0, 1.5, r"valid for energy_gev from 10\d.*\[500\]"),
        (150.0, 0.1, r"valid for theta_rad from 1\..*\[0\.1\]"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=told):
            serve(energy_gev=tf.constant([150.0, energy]), theta_rad=tf.constant([1.5, theta]), seed=tf.constant(1))


def test_the_card_travels_with_it_and_what_stands_is_left(
    trained: Path, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((saved / "assets.extra/card.json").read_text())
    assert document["card"] == json.loads((trained / "model/card.json").read_text())
    assert document["model"] == model_folder.read_card(trained / "model").fingerprint()
    assert document["cells_unit_gev"] == 1
    before = saved.stat()
    export(trained / "model", saved)
    assert "export stands" in capsys.readouterr().out
    assert saved.stat() == before
    assert not list(saved.parent.glob(".*"))


def test_in_a_bucket_is_the_export_and_nothing_beside_it(
    trained: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with store("runs"):
        command.main(["export", "--model", str(trained / "model"), "--output", "gs://runs/saved"])
        there = storage.listing(storage.location("gs://runs"))
        card = storage.location("gs://runs/saved/assets.extra/card.json").read_text()
    assert set(there) == {f"saved/{name}" for name in storage.listing(saved)}
    assert card == (saved / "assets.extra/card.json").read_text()


def test_nothing_else_is_replaced(trained: Path, saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "other")
    path = tmp_path / "other/assets.extra/card.json"
    path.write_text(path.read_text().replace('"model": "', '"model": "0'))
    with pytest.raises(InputError, match="other: the export of another model"):
        export(trained / "model", tmp_path / "other")
    with pytest.raises(InputError, match=r"card\.json: no such file"):
        export(tmp_path, tmp_path / "saved")
    for taken in (trained / "model", trained / "mc.h5"):
        with pytest.raises(InputError, match=f"{taken}: exists, and is not an export"):
            export(trained / "model", taken)


def test_a_full_disk(trained: Path, small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(100)
    assert "the disk is full" in refused(trained / "model", disk / "saved", command=export)
    assert not list(disk.iterdir())
