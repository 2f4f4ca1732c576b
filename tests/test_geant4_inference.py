"""The C++ library draws the same showers as TensorFlow from the same labels and noise."""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import struct
import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from likelihoods import CONFIG, uneven
from safetensors.numpy import load_file
from servers import said
from showers import make_dataset, make_ring_showers, make_rings, make_showers, write_file, write_whole
from trainings import untraced

from calopipe.errors import InputError
from calopipe.showers.cells import FloatArray, Geometry, Layer
from training.export import arrays_file, export
from training.fit import fit
from training.generation.generator import Generator
from training.models.randomness import GivenNoise
from training.models.showers import allowed

_LIBRARY = Path(__file__).parent.parent / "geant4"
_SHOWERS = 40
# Rounding may decide otherwise in the last bit: whether a cell is hit, and with it the rest of a shower.
_ALIKE = 0.95
_UNEVEN = Geometry.of_layers(
    [Layer(4.0, 1.0, (9, 7), size_mm=(6.0, 8.0))] * 2
    + [Layer(8.0, 2.0, (5, 5), size_mm=(12.0, 12.0))] * 5
    + [Layer(8.0, 2.0, (1, 1), size_mm=(60.0, 60.0))],
    0.02,
)


_COMMA = """
#include <clocale>
#include <cstdio>
#include "calopipe/showers.hh"
int main(int, char** words) {
  if (!std::setlocale(LC_ALL, "de_DE.utf8")) return 77;
  calopipe::Model::load(words[1]);
  std::printf("%.1f", 1.5);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared library that generates batches."""
    built = tmp_path_factory.mktemp("build") / "libcalopipe_batches.so"
    _compiled(built, *(_LIBRARY / "src").glob("*.cc"), _LIBRARY / "tools" / "batches.cc", options=["-shared", "-fPIC"])
    return built


@pytest.fixture(scope="module")
def program(library: Path) -> Path:
    built = library.with_name("calopipe-showers")
    _compiled(built, _LIBRARY / "tools" / "showers.cc", library, options=[f"-Wl,-rpath,{library.parent}"])
    return built


def _compiled(output: Path, *sources: Path, options: Sequence[str]) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if not compiler:
        pytest.skip("there is no C++ compiler")
    includes = [f"-I{_LIBRARY / each}" for each in ("include", "src")]
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run([compiler, "-std=c++17", "-O2", *warnings, *includes, *sources, *options, "-o", output], check=True)


def _trained(place: Path, files: Path, *, judged: bool = False) -> tuple[Generator, Path]:
    """A model after one step, and its export. If asked for, it is also evaluated, which takes longer."""
    make_dataset(place / "ds", files, split_files=[] if judged else ["train=*"])
    with untraced():
        fit(place / "ds", place / "model", replace(CONFIG, steps=1))
    export(place / "model", place / "model.safetensors")
    return Generator(place / "model"), place / "model.safetensors"


@pytest.fixture(scope="module")
def squares(tmp_path_factory: pytest.TempPathFactory) -> tuple[Generator, Path]:
    place = tmp_path_factory.mktemp("squares")
    return _trained(place, write_file(place / "a.h5", make_showers(events=120)))


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Generator, Path]:
    """A model of layers that differ, of showers of two kinds, with an azimuth."""
    place = tmp_path_factory.mktemp("labelled")
    rng, made = np.random.default_rng(1), make_ring_showers(events=150, geometry=_UNEVEN)
    theta, phi = (rng.uniform(*ends, len(made)).astype(np.float32) for ends in ((1.2, 1.9), (-0.3, 0.3)))
    more = {"phi_rad": phi, "particle": rng.choice(np.array([11, 22], np.int32), len(made))}
    showers = write_whole(place / "a.h5", replace(made, theta_rad=theta, more=more), _UNEVEN)
    trained, file = _trained(place, showers, judged=True)
    assert trained.card.losses["total"] > 0
    return trained, file


def _labels(generator: Generator) -> dict[str, Any]:
    """Labels by name, as the model's card has them, of `_SHOWERS` showers."""
    rng, valid = np.random.default_rng(3), dict(generator.card.valid_range)
    kinds = valid.pop("particle", None)
    labels = {name: rng.uniform(*ends, _SHOWERS).astype(np.float32) for name, ends in valid.items()}
    return labels if kinds is None else labels | {"particle": rng.choice(np.array(kinds, np.int32), _SHOWERS)}


def _drawn(program: Path, file: Path, labels: dict[str, Any], noise: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    none = np.zeros(_SHOWERS, np.int32)
    columns = (labels.get(name, none) for name in ("energy_gev", "theta_rad", "phi_rad", "particle"))
    rows = zip(*columns, noise, strict=True)
    text = "\n".join(" ".join(repr(each.item()) for each in (*row[:4], *row[4])) for row in rows)
    words = iter(said(program, file, input=text).split())
    cells = np.zeros((_SHOWERS, *shape), np.float32)
    for shower in cells:
        for _ in range(int(next(words))):
            place = tuple(int(next(words)) for _ in range(3))
            assert shower[place] == 0  # a cell comes once
            shower[place] = float(next(words))
    assert next(words, None) is None
    return cells


def _check(program: Path, generator: Generator, file: Path, *, hits: float = 10) -> FloatArray:
    """Check the program against TensorFlow: in nearly all showers the same cells are hit, with the same energies."""
    labels = _labels(generator)
    whole = np.random.default_rng(4).integers(0, 2**24, (_SHOWERS, generator.model.noise_numbers))
    noise = (whole * 2.0**-24).astype(np.float32)
    expected = generator.model.generate(labels, GivenNoise(tf.constant(noise))).numpy() * 0.02
    found = _drawn(program, file, labels, noise, generator.card.geometry.shape)
    assert (expected > 0).sum(axis=(1, 2, 3)).mean() > hits
    _same_showers(found, expected, 1e-6)
    return np.asarray(expected)


def _same_showers(found: FloatArray, expected: FloatArray, atol: float) -> None:
    same = ((found > 0) == (expected > 0)).all(axis=(1, 2, 3))
    assert same.mean() >= _ALIKE
    np.testing.assert_allclose(found[same], expected[same], rtol=2e-3, atol=atol)


@pytest.mark.parametrize("lower", [0.0, 8.0])
def test_of_scores_far_from_zero(program: Path, squares: tuple[Generator, Path], tmp_path: Path, lower: float) -> None:
    """Training does not fix the level of the deposits' scores. Some deposits are beyond the table of scores."""
    generator = Generator(squares[1].parent / "model")
    generator.model._store.set({"spectra": generator.model._store["spectra"] - lower})
    bias = generator.model.networks["odd"]._deposit.bias
    bias.assign(bias + np.repeat(np.array([0, 300, 0], np.float32), bias.shape[0] // 3))
    (tmp_path / "far.safetensors").write_bytes(arrays_file(generator.model, generator.card))
    _check(program, generator, tmp_path / "far.safetensors")


@pytest.mark.parametrize("which", ["squares", "labelled"])
def test_of_an_empty_layer_and_of_shares_that_decide(
    program: Path, which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Layer 2 is empty, and of the others many; what the layers before held weighs much in totals, shares, and the cell
    at the same place.
    """
    generator = Generator(request.getfixturevalue(which)[1].parent / "model")
    for name in ("totals", "share"):
        uneven(generator.model.networks[name].trainable_weights, 0.1)
    presence = np.full_like(generator.model._store["presence"], 0.3)
    presence[2] = -50
    generator.model._store.set({"presence": presence})
    for name, first in (("even", 50), ("odd", 75)):
        kernel = generator.model.networks[name]._cell_in.kernel
        weights = kernel.numpy()
        weights[first : first + 2] *= 30
        kernel.assign(weights)
    (tmp_path / "empty.safetensors").write_bytes(arrays_file(generator.model, generator.card))
    expected = _check(program, generator, tmp_path / "empty.safetensors", hits=5)
    layers = expected.any((1, 2))
    assert not layers[:, 2].any()
    assert layers.any(0).sum() == layers.shape[1] - 1
    assert not layers.all(0).any()


def test_of_rings(program: Path, tmp_path: Path) -> None:
    _check(program, *_trained(tmp_path, make_rings(tmp_path / "a.h5", events=150, seed=1)))


def test_of_layers_that_differ_with_azimuth_and_kinds(program: Path, labelled: tuple[Generator, Path]) -> None:
    _check(program, *labelled)


def _made(generator: Generator, seed: int) -> FloatArray:
    return np.concatenate([each.cells for each in generator.showers(_labels(generator), seed)])


@pytest.mark.parametrize("which", ["squares", "labelled"])
def test_a_generator_makes_the_same_showers_with_the_library(
    library: Path, which: str, request: pytest.FixtureRequest
) -> None:
    trained, file = request.getfixturevalue(which)
    with untraced():
        expected = _made(trained, seed=7)
    made = _made(Generator(file.parent / "model", batch=4, library=library), seed=7)
    _same_showers(made, expected, 1e-4)
    assert not np.array_equal(made, _made(Generator(file.parent / "model", library=library), seed=8))


def test_what_the_library_cannot_do_is_told(library: Path, squares: tuple[Generator, Path], tmp_path: Path) -> None:
    model = squares[1].parent / "model"
    (tmp_path / "text.so").write_text("no library")
    for path in (tmp_path / "text.so", tmp_path / "none.so", Path(ctypes.util.find_library("m") or "libm.so.6")):
        with pytest.raises(InputError, match=r"not the shared library of geant4/ .*; build it by cmake"):
            Generator(model, library=path)
    with pytest.raises(InputError, match="--library draws on processors, and --strategy is mirrored"):
        Generator(model, strategy="mirrored", library=library)
    far = {"energy_gev": np.array([900.0], np.float32), "theta_rad": np.array([1.5], np.float32)}
    with pytest.raises(InputError, match="the model was not trained for showers of 900"):
        next(Generator(model, library=library).showers(far, seed=1))


def _refused(program: Path, file: Path, request: str = "", *options: str) -> str:
    found = subprocess.run([program, *options, file], input=request, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.count("\n") == 1
    return found.stderr


def test_what_the_model_does_not_cover_is_refused(program: Path, squares: tuple[Generator, Path]) -> None:
    file = squares[1]
    numbers = squares[0].model.noise_numbers
    assert "the model was not trained for showers of 900.0" in _refused(program, file, "900 1.5 0 11")
    low, _ = allowed("energy_gev", squares[0].card.valid_range["energy_gev"])
    assert "the model was not trained for showers of" in _refused(program, file, f"{low * 0.99999} 1.5 0 11")
    assert f"{numbers}" in _refused(program, file, f"{low * 1.00001} 1.5 0 11 0.1 0.2 0.3")
    assert f"3 numbers of noise, expected {numbers}" in _refused(program, file, "150 1.5 0 11 0.1 0.2 0.3")
    assert "noise must be from 0 to 1, found 1.5" in _refused(program, file, "150 1.5 0 11" + " 1.5" * numbers)


def test_words_that_are_no_numbers_are_told(program: Path, squares: tuple[Generator, Path]) -> None:
    for request in ("50 1.57 0 11 abc", "50 1.57 0 11 0.5 x"):
        assert ": a request has something else than numbers" in _refused(program, squares[1], request)
    for times in ("0", "-5", "3x", "abc"):
        assert "--time takes a" in _refused(program, squares[1], "", "--time", times)


def test_a_program_that_writes_numbers_with_a_comma_reads_a_model(
    library: Path, squares: tuple[Generator, Path], tmp_path: Path
) -> None:
    """Numbers in JSON have a decimal point, whatever the program's locale."""
    (tmp_path / "comma.cc").write_text(_COMMA)
    _compiled(tmp_path / "comma", tmp_path / "comma.cc", library, options=[f"-Wl,-rpath,{library.parent}"])
    subprocess.run(["localedef", "-f", "UTF-8", "-i", "de_DE", tmp_path / "de_DE.utf8"], check=False)
    done = subprocess.run(
        [tmp_path / "comma", squares[1]], env={"LOCPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    if done.returncode == 77:
        pytest.skip("this system has no locale with a decimal comma, and makes none")
    assert (done.returncode, done.stdout.strip()) == (0, "1,5")


def test_files_that_are_no_models_are_refused(program: Path, squares: tuple[Generator, Path], tmp_path: Path) -> None:
    whole = squares[1].read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])

    def changed(change: Any, arrays: bytes = whole[8 + length :]) -> bytes:
        document = json.loads(json.dumps(header))
        change(document)
        text = json.dumps(document).encode()
        return struct.pack("<Q", len(text)) + text + arrays

    def with_arrays(place: str, value: bytes) -> bytes:
        """A file that holds only an array of these bytes, as from another program that also writes a checksum."""
        begin, end = header[place]["data_offsets"]
        arrays = whole[8 + length :]
        arrays = arrays[:begin] + value * (end - begin) + arrays[end:]
        crc = {"calopipe_crc32": str(zlib.crc32(arrays))}
        return changed(lambda document: document["__metadata__"].update(crc), arrays)

    def of_another_version(document: Any) -> None:
        said = document["__metadata__"]
        said["calopipe_export"] = json.dumps(json.loads(said["calopipe_export"]) | {"schema_version": 5})

    begin, end = (8 + length + each for each in header["even.cell_in.kernel"]["data_offsets"])
    damaged = whole[:begin] + bytes(end - begin) + whole[end:]
    bad = {
        damaged: "its arrays are not those that were written",
        b"": "is empty",
        changed(of_another_version): "the export of another version",
        with_arrays("mesh.short_side", b"\0"): '"mesh.short_side" is not what this version',
        with_arrays("mesh.spare", b"\x7f"): '"mesh.spare" is not what this version',
        b"\xff" * 8: "not a whole file of safetensors",
        whole[:100]: "not a whole file of safetensors",
        whole[:-4]: "its arrays are not those that were written",
        struct.pack("<Q", 4) + b"{{{{": "not a JSON document",
        changed(lambda document: document.pop("even.cell_in.kernel")): '"even.cell_in.kernel" is missing',
        changed(lambda document: document.pop("__metadata__")): '"__metadata__" is missing',
        changed(lambda document: document["mesh.x"].update(shape=[1, 2])): '"mesh.x" is not what this version',
    }
    for number, (content, reason) in enumerate(bad.items()):
        file = tmp_path / f"{number}.safetensors"
        file.write_bytes(content)
        assert reason in _refused(program, file)
    assert "cannot be opened" in _refused(program, tmp_path / "none.safetensors")
    assert "no model of showers" in _refused(program, tmp_path)
    (tmp_path / "damaged.safetensors").write_bytes(damaged)
    with pytest.raises(InputError, match="its arrays are not those that were written"):
        export(squares[1].parent / "model", tmp_path / "damaged.safetensors")


def test_an_output_that_cannot_be_written_is_told(program: Path, squares: tuple[Generator, Path]) -> None:
    request = "150 1.5 0 11" + " 0.5" * squares[0].model.noise_numbers
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [program, squares[1]], input=request, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ended.returncode, ended.stderr) == (2, "calopipe-showers: the output cannot be written\n")


def test_a_file_holds_what_showers_are_drawn_from(squares: tuple[Generator, Path], tmp_path: Path) -> None:
    generator, file = squares
    arrays = load_file(file)
    assert {str(each.dtype) for each in arrays.values()} == {"float32", "int32"}
    np.testing.assert_array_equal(arrays["even.cell_in.kernel"], generator.model.networks["even"].get_weights()[4])
    assert "constants.proposal" not in arrays
    before = file.stat().st_mtime_ns
    export(file.parent / "model", file)
    assert file.stat().st_mtime_ns == before
    (tmp_path / "a.safetensors").write_text("another's")
    with pytest.raises(InputError, match="is not an export of a model"):
        export(file.parent / "model", tmp_path / "a.safetensors")
