"""Trainings of either field, showers and a flow: their engine goes on as if it had not stopped."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import keras_fit
import numpy as np
import pytest
from trainings import DATASETS, fit_small, same_training

from training.folder import read_card
from training.nodes.workers import PREEMPTED
from training.run.history import ProgressBar
from training.run.loop import Loop


@pytest.fixture(scope="module", params=DATASETS)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return DATASETS[request.param](tmp_path_factory.mktemp("fields"))


@pytest.fixture(scope="module")
def model(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs of seven steps."""
    place = tmp_path_factory.mktemp("model") / "model"
    fit_small(dataset, place)
    assert read_card(place).trained["steps"] == 14
    return place


def test_a_model_that_stands_is_left(dataset: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in model.iterdir() if path.is_file()}
    fit_small(dataset, model)
    assert "model stands" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in model.iterdir() if path.is_file()}


@pytest.mark.parametrize("dataset", ["showers"], indirect=True)  # of the flow, so do the last two tests
def test_the_same_seed_gives_the_same_weights(dataset: Path, model: Path, tmp_path: Path) -> None:
    fit_small(dataset, tmp_path / "again")
    assert read_card(tmp_path / "again").weights == read_card(model).weights


@pytest.mark.slow
def test_a_training_that_is_told_to_stop_saves_and_goes_on_from_the_step(
    dataset: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "m"
    told = {3: signal.SIGTERM, 10: signal.SIGINT}  # within the first epoch, and within the second
    update = ProgressBar.update

    def telling(bar: ProgressBar, losses: np.ndarray) -> None:
        update(bar, losses)
        if (number := told.pop(bar._engine.step, None)) is not None:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(ProgressBar, "update", telling)
    for step, code in ((3, PREEMPTED), (10, 130)):
        with pytest.raises(SystemExit) as caught:
            fit_small(dataset, output)
        assert caught.value.code == code
        assert f"stopped at step {step} as told, and saved" in capsys.readouterr().out
    fit_small(dataset, output)
    assert "steps 10 to 14" in capsys.readouterr().out
    same_training(output, model)


@pytest.mark.parametrize("dataset", ["showers"], indirect=True)  # checkpoints of both are one
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    dataset: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(model, tmp_path / "m")
    (tmp_path / "m/card.json").unlink()
    damaged = tmp_path / "m/checkpoints/step-000000014.npz"
    damaged.write_bytes(damaged.read_bytes()[:-1000])
    fit_small(dataset, tmp_path / "m")
    assert str(damaged) in caplog.text
    assert "steps 7 to 14" in capsys.readouterr().out
    same_training(tmp_path / "m", model)


@pytest.mark.parametrize("dataset", ["flow"], indirect=True)  # the engine of both is one
def test_kerass_fit_ends_in_the_same_weights(
    dataset: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loop, "steps", keras_fit.steps)
    fit_small(dataset, tmp_path / "m")
    same_training(tmp_path / "m", model)


@pytest.mark.parametrize("dataset", ["flow"], indirect=True)
def test_several_steps_a_call_are_the_same_steps(dataset: Path, model: Path, tmp_path: Path) -> None:
    """Three a call do not divide the seven of an epoch."""
    fit_small(dataset, tmp_path / "m", "--steps-a-call", "3")
    same_training(tmp_path / "m", model)
