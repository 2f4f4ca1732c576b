"""However the steps of a training are called, they are the same steps: of a flow, whose engine is that of showers."""

from __future__ import annotations

from pathlib import Path

import keras_fit
import pytest
from trainings import fit_small, same_training, small_flow

from training.folder import read_card
from training.run.loop import Loop


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_flow(tmp_path_factory.mktemp("flow"))


@pytest.fixture(scope="module")
def model(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs of seven steps, one a call."""
    place = tmp_path_factory.mktemp("model") / "model"
    fit_small(dataset, place)
    assert read_card(place).trained["steps"] == 14
    return place


def test_kerass_fit_ends_in_the_same_weights(
    dataset: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loop, "steps", keras_fit.steps)
    fit_small(dataset, tmp_path / "m")
    same_training(tmp_path / "m", model)


def test_several_steps_a_call_are_the_same_steps(dataset: Path, model: Path, tmp_path: Path) -> None:
    """Three a call do not divide the seven of an epoch."""
    fit_small(dataset, tmp_path / "m", "--steps-a-call", "3")
    same_training(tmp_path / "m", model)
