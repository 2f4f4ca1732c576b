"""Training through its command: what it leaves, that it goes on as if it had not stopped, what it refuses."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from showers import make_file

from preprocessing.dataset import Settings, read_manifest
from preprocessing.errors import InputError, run_command
from preprocessing.inputs import discover
from preprocessing.pipeline import preprocess
from training import __main__ as command
from training import fit, folder
from training.folder import read_card
from training.history import ProgressBar


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fit")
    preprocess(discover([str(make_file(place / "a.h5", events=80))]), place / "ds", Settings())
    return place / "ds"


def _fit(dataset: Path, output: Path, *more: str) -> None:
    command.main(["fit", "--config", "small", "--dataset", str(dataset), "--output", str(output), *more])


@pytest.fixture(scope="module")
def model(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs of seven steps."""
    place = tmp_path_factory.mktemp("model") / "model"
    _fit(dataset, place)
    return place


def test_what_a_training_leaves(dataset: Path, model: Path) -> None:
    card = read_card(model)
    assert card.trained["steps"] == 14
    assert card.config.model == "3dgan-small"
    assert card.dataset["fingerprint"] == json.loads((dataset / "manifest.json").read_text())["fingerprint"]
    assert 100 <= card.energy_gev[0] < card.energy_gev[1] <= 200
    assert list((model / "tensorboard").iterdir())
    assert list((model / "checkpoints").iterdir())
    history = [json.loads(line) for line in (model / "history.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in history] == [0, 7, 14]
    assert history[-1]["validation"] == card.losses
    for phase in ("discriminator_real", "discriminator_fake", "generator_first", "generator_second"):
        losses = history[-1]["train"][phase]
        weighted = 3 * losses["generation"] + 0.1 * losses["auxiliary"] + 25 * losses["angle"] + 0.1 * losses["ecal"]
        assert losses["total"] == pytest.approx(weighted)
    assert history[-1]["images_per_s"] == pytest.approx(56 / history[-1]["seconds"])


def test_tensorboard_holds_the_same_numbers(model: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(model / "tensorboard"))
    board.Reload()
    last = json.loads((model / "history.jsonl").read_text().splitlines()[-1])
    assert "validation/ecal" in board.Tags()["tensors"]
    event = board.Tensors("validation/ecal")[-1]
    assert event.step == 14
    assert tf.make_ndarray(event.tensor_proto) == pytest.approx(last["validation"]["ecal"])


def test_a_model_that_stands_is_left(dataset: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in model.iterdir() if path.is_file()}
    _fit(dataset, model)
    assert "model stands" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in model.iterdir() if path.is_file()}


def test_a_folder_of_another_training_is_refused_and_overwritten_when_told(dataset: Path, tmp_path: Path) -> None:
    _fit(dataset, tmp_path / "m", "--steps", "1")
    with pytest.raises(InputError, match="holds a model of another dataset, other settings"):
        _fit(dataset, tmp_path / "m", "--steps", "1", "--seed", "2")
    assert read_card(tmp_path / "m").config.seed == 1
    _fit(dataset, tmp_path / "m", "--steps", "1", "--seed", "2", "--overwrite")
    assert read_card(tmp_path / "m").config.seed == 2


def test_the_same_seed_gives_the_same_weights_from_disk_and_from_memory(
    dataset: Path, model: Path, tmp_path: Path
) -> None:
    _fit(dataset, tmp_path / "again", "--cache")
    assert read_card(tmp_path / "again").weights == read_card(model).weights


def _same_training(found: Path, expected: Path) -> None:
    assert read_card(found).weights == read_card(expected).weights
    histories = [
        [json.loads(line) for line in (place / "history.jsonl").read_text().splitlines()] for place in (found, expected)
    ]
    for entry in (entry for history in histories for entry in history):
        entry.pop("seconds", None)
        entry.pop("images_per_s", None)
    assert histories[0] == histories[1]


def test_a_killed_training_goes_on_as_if_it_had_not_stopped(
    dataset: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "m"
    arguments = ["fit", "--config", "small", "--dataset", str(dataset), "--output", str(output)]
    with subprocess.Popen([sys.executable, "-m", "training", *arguments], stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not (output / "checkpoints/checkpoint").exists():  # which names the first epoch's, once that is whole
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not (output / "card.json").exists()
    with pytest.raises(InputError, match=r"card\.json: no such file"):
        read_card(output)
    _fit(dataset, output)
    assert "steps 7 to 14" in capsys.readouterr().out
    _same_training(output, model)


def test_a_training_stopped_within_an_epoch_goes_on_from_the_step(
    dataset: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies at its tenth step; a checkpoint of the ninth stands."""
    monkeypatch.setattr(fit, "_CHECKPOINT_SECONDS", 0.0)
    update = ProgressBar.update

    def dying(bar: ProgressBar, losses: np.ndarray) -> None:
        update(bar, losses)
        if int(bar._engine.step) == 10:
            raise KeyboardInterrupt

    with monkeypatch.context() as dies:
        dies.setattr(ProgressBar, "update", dying)
        with pytest.raises(KeyboardInterrupt):
            _fit(dataset, tmp_path / "m")
    _fit(dataset, tmp_path / "m")
    assert "steps 9 to 14" in capsys.readouterr().out
    _same_training(tmp_path / "m", model)


def _interrupted(path: Path) -> None:
    raise KeyboardInterrupt


def test_a_replacement_that_is_interrupted_takes_nothing_over(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fit(dataset, tmp_path / "m", "--steps", "1")
    with monkeypatch.context() as dies:
        dies.setattr(folder.shutil, "rmtree", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            _fit(dataset, tmp_path / "m", "--steps", "1", "--seed", "2", "--overwrite")
    with pytest.raises(InputError, match="holds a model of another dataset, other settings"):
        _fit(dataset, tmp_path / "m", "--steps", "1", "--seed", "2")
    _fit(dataset, tmp_path / "m", "--steps", "1", "--seed", "2", "--overwrite")
    _fit(dataset, tmp_path / "afresh", "--steps", "1", "--seed", "2")
    assert read_card(tmp_path / "m").weights == read_card(tmp_path / "afresh").weights


def test_an_altered_model_is_refused_by_name(dataset: Path, tmp_path: Path) -> None:
    _fit(dataset, tmp_path / "m", "--steps", "1")
    weights = tmp_path / "m/generator.weights.h5"
    data = bytearray(weights.read_bytes())
    data[-100] ^= 1
    weights.write_bytes(data)
    with pytest.raises(InputError, match=str(weights)):
        read_card(tmp_path / "m")


def test_an_altered_shard_is_refused_by_name(dataset: Path, tmp_path: Path) -> None:
    shutil.copytree(dataset, tmp_path / "ds")
    shard = tmp_path / "ds" / read_manifest(dataset).shards[0].name
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(InputError, match=f"{shard}: altered since it was written"):
        _fit(tmp_path / "ds", tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_shard_altered_while_it_trains_is_refused_by_name(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(dataset, tmp_path / "ds")
    shards = read_manifest(dataset).shards
    shard = tmp_path / "ds" / next(shard.name for shard in shards if shard.split == "train")
    engine = fit.Engine

    def altering(*arguments: Any, **more: Any) -> fit.Engine:
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)
        return engine(*arguments, **more)

    monkeypatch.setattr(fit, "Engine", altering)
    for more in ((), ("--cache", "--overwrite")):
        shutil.copy(dataset / shard.relative_to(tmp_path / "ds"), shard)
        with pytest.raises(InputError, match=f"{shard}: altered since it was written"):
            _fit(tmp_path / "ds", tmp_path / "m", *more)


def test_a_full_disk(dataset: Path, small_disk: Callable[[int], Path], capsys: pytest.CaptureFixture[str]) -> None:
    disk = small_disk(700)
    with pytest.raises(SystemExit) as caught:
        run_command(lambda: _fit(dataset, disk / "m", "--steps", "1"))
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {disk / 'm'}: the disk is full")
    assert not (disk / "m/card.json").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--batch", "5000"), "too few for one batch of 5000"),
        (("--output", "DATASET"), "holds a dataset"),
        (("--config", "none"), "--config 'none' is unknown; known: 3dgan, quick, small"),
        (("--config", "3dgan"), "choose --config quick"),
        (("--dataset", "/nowhere"), "manifest.json: no such file"),
    ],
)
def test_bad_arguments(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], told: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        run_command(lambda: _fit(dataset, tmp_path / "m", *(str(dataset) if m == "DATASET" else m for m in more)))
    assert caught.value.code == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert told in error[-1]
    assert error[-1].startswith("error: ")
    assert not (tmp_path / "m").exists()


_MIRRORED = """
import sys, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from training.__main__ import main
main(sys.argv[1:])
"""


def test_two_replicas_train_together(dataset: Path, tmp_path: Path) -> None:
    """Two replicas of four see the showers of one of eight; their noise differs, so the losses are only alike."""
    arguments = ["fit", "--config", "small", "--dataset", str(dataset), "--output", str(tmp_path / "m"), "--batch", "4"]
    command_line = [sys.executable, "-c", _MIRRORED, *arguments, "--strategy", "mirrored"]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "8 images each over 2 replica(s)" in done.stdout
    card = read_card(tmp_path / "m")
    assert card.trained["steps"] == 14
    assert all(np.isfinite(value) for value in card.losses.values())
    first = json.loads((tmp_path / "m/history.jsonl").read_text().splitlines()[1])["train"]
    assert first["discriminator_real"]["ecal"] == pytest.approx(0, abs=1e-3)
    assert first["discriminator_real"]["auxiliary"] < 200  # a mean over the showers, not a sum over replicas
