"""Exports of a likelihood model: SavedModel and ONNX give the showers of generation, and refuse the same labels."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from likelihoods import CONFIG, noise_of
from showers import SMALL_GEOMETRY, make_dataset, make_showers, write_file
from trainings import untraced

from calopipe.errors import InputError
from calopipe.showers.cells import FloatArray
from training import model_folder
from training.export import export
from training.fit import fit
from training.generation.generator import Generator
from training.models.randomness import GivenNoise
from training.models.showers import allowed

_SEED = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one step on showers of 110 to 190 GeV. None are left for an evaluation, which would take longer."""
    place = tmp_path_factory.mktemp("narrow")
    made = make_showers(events=120)
    narrow = made[(made.energy_gev > 110) & (made.energy_gev < 190)]
    make_dataset(place / "ds", write_file(place / "a.h5", narrow), split_files=["train=*"])
    with untraced():
        fit(place / "ds", place / "model", replace(CONFIG, steps=1))
    return place / "model"


@pytest.fixture(scope="module")
def generator(model: Path) -> Generator:
    return Generator(model, batch=6)


@pytest.fixture(scope="module")
def saved(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    output = tmp_path_factory.mktemp("export") / "saved"
    export(model, output)
    loaded = tf.saved_model.load(str(output))
    return lambda energy, theta: loaded.signatures["serving_default"](
        energy_gev=tf.constant(energy), theta_rad=tf.constant(theta), seed=tf.constant(_SEED)
    )["cells_gev"].numpy()


@pytest.fixture(scope="module")
def onnx_file(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("onnx") / "model.onnx"
    export(model, output)
    return output


def _run_onnx(path: Path, energy: FloatArray, theta: FloatArray, noise: FloatArray) -> FloatArray:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (cells,) = session.run(["cells_gev"], {"energy_gev": energy, "theta_rad": theta, "noise": noise})
    return np.asarray(cells)


def _asked(energy: FloatArray, theta: FloatArray) -> dict[str, FloatArray]:
    return {"energy_gev": energy, "theta_rad": theta}


def _labels(generator: Generator, showers: int) -> tuple[FloatArray, FloatArray]:
    card = generator.card
    return (
        np.linspace(*card.valid_range["energy_gev"], showers, dtype=np.float32)[::-1].copy(),
        np.linspace(*card.valid_range["theta_rad"], showers, dtype=np.float32),
    )


def test_a_saved_model_makes_the_showers_of_generation(generator: Generator, saved: Any) -> None:
    energy, theta = _labels(generator, 10)
    batches = list(generator.showers(_asked(energy, theta), _SEED))
    expected = np.concatenate([showers.cells for showers in batches]) * 0.02
    assert [len(showers) for showers in batches] == [6, 4]
    found = saved(energy, theta)
    np.testing.assert_array_equal(found > 0, expected > 0)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    assert saved(energy[:0], theta[:0]).shape == (0, *SMALL_GEOMETRY.shape)


def test_an_onnx_file_makes_the_showers_of_the_same_noise(generator: Generator, onnx_file: Path) -> None:
    energy, theta = _labels(generator, 9)
    noise = noise_of(generator.model, 9)
    expected = generator.model.generate(_asked(energy, theta), GivenNoise(tf.constant(noise))) * 0.02
    found = _run_onnx(onnx_file, energy, theta, noise)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found > 0, expected > 0)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-6)
    alone = _run_onnx(onnx_file, energy[4:5], theta[4:5], noise[4:5])
    np.testing.assert_allclose(alone[0], found[4], rtol=1e-3, atol=1e-6)


def _refused_and_taken(generator: Generator) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Labels for a model of 110 to 190 GeV: 100 and 200 are outside; a thousandth beyond the ends is not outside."""
    (low, high), (least, most) = (generator.card.valid_range[name] for name in ("energy_gev", "theta_rad"))
    assert 110 < low < 115
    assert 185 < high < 190
    ratio, opening = high / low, most - least
    refused = [(100, 1.5), (200, 1.5), (low / ratio**2e-3, 1.5), (high * ratio**2e-3, 1.5), (np.nan, 1.5)]
    refused += [(150, least - 2e-3 * opening), (150, most + 2e-3 * opening), (150, np.nan), (np.inf, 1.5)]
    taken = [(low / ratio**9e-4, 1.5), (high * ratio**9e-4, 1.5), (150, least - 9e-4 * opening), (low, most)]
    return refused, taken


def test_a_thousandth_of_a_range_is_of_logarithms_for_energies() -> None:
    """If a range spans decades, a thousandth of the range itself is more than its lower end."""
    for name, bounds, ends in (
        ("energy_gev", (1.0, 1000.0), (10**-0.003, 10**3.003)),
        ("energy_gev", (50.0, 50.0), (50.0, 50.0)),
        ("theta_rad", (1.0, 2.0), (0.999, 2.001)),
    ):
        np.testing.assert_allclose(allowed(name, bounds), ends, rtol=2e-7)


def test_labels_outside_the_training_are_refused(generator: Generator, saved: Any) -> None:
    refused, taken = _refused_and_taken(generator)
    for label in refused:
        energy, theta = (np.array([each], np.float32) for each in label)
        with pytest.raises(InputError, match="shower 0 is asked for with"):
            generator.require_inside(_asked(energy, theta))
        with pytest.raises(tf.errors.InvalidArgumentError, match="the model is valid for"):
            saved(energy, theta)
    energy, theta = (np.array(each, np.float32) for each in zip(*taken, strict=True))
    for cells in (next(generator.showers(_asked(energy, theta), _SEED)).cells, saved(energy, theta)):
        assert np.isfinite(cells).all()
        assert (cells.sum(axis=(1, 2, 3)) > 0).all()


@pytest.mark.slow
def test_labels_outside_the_training_are_not_a_number_in_onnx(generator: Generator, onnx_file: Path) -> None:
    """Such labels do not change the other showers of their batch."""
    refused, taken = _refused_and_taken(generator)
    energy, theta = (np.array(each, np.float32) for each in zip(*refused, *taken, strict=True))
    inside, noise = np.arange(len(energy)) >= len(refused), noise_of(generator.model, len(energy))
    found = _run_onnx(onnx_file, energy, theta, noise)
    np.testing.assert_array_equal(np.isnan(found).all(axis=(1, 2, 3)), ~inside)
    labels = _asked(energy[inside], theta[inside])
    expected = generator.model.generate(labels, GivenNoise(tf.constant(noise[inside]))) * 0.02
    np.testing.assert_array_equal(found[inside] > 0, expected > 0)
    np.testing.assert_allclose(found[inside], expected, rtol=2e-3, atol=1e-6)


def test_noise_that_is_not_uniform_is_not_a_number(generator: Generator) -> None:
    """It does not change the other showers. The ends 0 and 1 are taken: doubles below 1 may be rounded up to 1.

    1 counts as the last float32 below 1.
    """
    energy, theta = (each[[0, 1, 2, 3, 3, 3]] for each in _labels(generator, 4))
    noise = noise_of(generator.model, 6)
    made = generator.model.onnx(generator.card.valid_range)
    expected = made(energy, theta, noise)["cells_gev"].numpy()
    noise[1, 5], noise[2, 7], noise[3, ::2], noise[3, 1::2] = -1.2, np.nan, 0, 1
    noise[4], noise[5] = 1, np.nextafter(np.float32(1), np.float32(0))
    found = made(energy, theta, noise)["cells_gev"].numpy()
    np.testing.assert_array_equal(np.isnan(found).all(axis=(1, 2, 3)), [False, True, True, False, False, False])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4)  # a batch's sums may be rounded in another order
    np.testing.assert_allclose(found[4], found[5], rtol=1e-4)


def test_an_onnx_file_says_what_it_is(model: Path, onnx_file: Path) -> None:
    import onnx

    document = onnx.load(onnx_file)
    told = {each.key: json.loads(each.value) for each in document.metadata_props}
    assert told["calopipe_card"] == json.loads((model / "card.json").read_text())
    assert told["calopipe_export"]["model"] == model_folder.read_card(model).fingerprint()
    assert told["calopipe_export"]["cells_unit_gev"] == 1
    assert [each.name for each in document.graph.input] == ["energy_gev", "theta_rad", "noise"]
    assert [each.name for each in document.graph.output] == ["cells_gev"]
    values = [*document.graph.input, *document.graph.output]
    assert [each.type.tensor_type.shape.dim[0].dim_param for each in values] == ["batch"] * 4
    assert [each.domain for each in document.opset_import if each.domain not in ("", "ai.onnx.ml")] == []


@pytest.mark.slow
def test_nothing_else_is_replaced_by_an_onnx_file(model: Path, onnx_file: Path, tmp_path: Path) -> None:
    import onnx

    other = onnx.load(onnx_file)
    onnx.helper.set_model_props(other, {"calopipe_export": json.dumps({"model": "another"})})
    onnx.save(other, tmp_path / "other.onnx")
    with pytest.raises(InputError, match=r"other\.onnx: the export of another model"):
        export(model, tmp_path / "other.onnx")
    (tmp_path / "folder.onnx").mkdir()
    for name, content in (("text.onnx", b"not a graph"), ("empty.onnx", b"")):
        (tmp_path / name).write_bytes(content)
    for name in ("folder.onnx", "text.onnx", "empty.onnx"):
        with pytest.raises(InputError, match=f"{name}: exists, and is not an export of a model"):
            export(model, tmp_path / name)
    assert (tmp_path / "text.onnx").read_bytes() == b"not a graph"


def test_a_model_that_is_altered_is_not_exported(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "m")
    weights = tmp_path / "m/even.weights.h5"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="not the file that the card was written for"):
        export(tmp_path / "m", tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()
