"""A training that ended early yields a model; a look at the model that fails is neither lost nor repeated for ever."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from showers import SMALL_GEOMETRY, make_dataset, make_file
from trainings import fit_layers, same_training, small_dataset

from calopipe.errors import InputError
from preprocessing.dataset import ShowerManifest
from training import __main__ as command
from training.folder import read_card
from training.models.base import build
from training.run import evaluations
from training.run.evaluation import Evaluation, Evaluator
from training.run.history import ProgressBar


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_dataset(tmp_path_factory.mktemp("keep"))


@pytest.fixture(scope="module")
def stopped(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints, of which that of step 7, the first epoch, was judged; none of them is the model."""
    place = tmp_path_factory.mktemp("stopped") / "m"
    with pytest.MonkeyPatch.context() as planted:
        planted.setattr(ProgressBar, "update", _ending("guard", step=12))
        with pytest.raises(InputError):
            fit_layers(dataset, place, "--checkpoint-steps", "5")
    assert sorted(path.stem for path in (place / "checkpoints").glob("*.npz")) == [
        "step-000000005",
        "step-000000007",
        "step-000000010",
    ]
    return place


def _ending(how: str, *, step: int) -> Any:
    """What ends a training at `step`, in place of the progress bar's `update`."""

    def update(bar: ProgressBar, _: object) -> None:
        if bar._engine.step == step:
            if how == "guard":
                raise InputError("the discriminator is dead")
            if how == "crash":
                raise RuntimeError("planted")
            os.kill(os.getpid(), signal.SIGTERM)

    return update


@pytest.mark.parametrize("how", ["guard", "signal", "crash"])
def test_the_message_names_a_command_that_makes_a_model_of_the_best_epoch(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    output = tmp_path / "a model"  # a name that a shell would take apart
    with monkeypatch.context() as planted:
        planted.setattr(ProgressBar, "update", _ending(how, step=10))
        with pytest.raises((InputError, RuntimeError, SystemExit)) as caught:
            fit_layers(dataset, output)
    told = (
        capsys.readouterr().out
        if how == "signal"
        else " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    )
    named = re.search("`(.*)` makes a model of the best epoch so far", told)
    assert named
    program, *arguments = shlex.split(named[1])
    assert [program, *arguments[:2]] == ["python", "-m", "training"]
    command.main(arguments[2:])
    card = read_card(output)
    assert card.trained["chosen_step"] == 7
    assert card.trained["steps"] == (10 if how == "signal" else 7)
    networks = build(card.config, SMALL_GEOMETRY).networks
    with np.load(output / "checkpoints/step-000000007.npz") as state:
        for name, network in networks.items():
            network.load_weights(output / f"{name}.weights.h5")
            for number, weight in enumerate(network.get_weights()):
                np.testing.assert_array_equal(weight, state[f"network/{name}/{number}"])
    judged = [json.loads(line) for line in (output / "history.jsonl").read_text().splitlines()][-1]
    assert card.losses == judged["validation"]
    fit_layers(dataset, output)
    assert "model stands" in capsys.readouterr().out


def test_a_checkpoint_that_was_not_judged_is_a_model_without_losses(
    dataset: Path, stopped: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And any model is valid where the dataset has whole showers alone."""
    whole = {"energy_gev": (120.0, 150.0), "theta_rad": (1.2, 1.8)}
    monkeypatch.setattr(ShowerManifest, "whole_range", whole)
    shutil.copytree(stopped, tmp_path / "m")
    for step in (7, 10):  # the best, and the last
        damaged = tmp_path / f"m/checkpoints/step-{step:09d}.npz"
        damaged.write_bytes(damaged.read_bytes()[:-1000])
    command.main(["keep", "--dataset", str(dataset), "--output", str(tmp_path / "m")])
    card = read_card(tmp_path / "m")
    assert (card.trained["chosen_step"], card.losses, card.trained["metric"]) == (5, {}, None)
    assert card.valid_range == whole
    assert "step-000000007.npz: not the checkpoint that was written" in caplog.text


def test_what_cannot_be_kept_is_refused(dataset: Path, stopped: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"training\.json: no such file"):
        command.main(["keep", "--dataset", str(dataset), "--output", str(tmp_path / "none")])
    shutil.copytree(stopped, tmp_path / "m")
    make_dataset(tmp_path / "ds", make_file(tmp_path / "b.h5", events=60, seed=5))
    with pytest.raises(InputError, match=r"ds: not the one that the training in .*m is on; give that one"):
        command.main(["keep", "--dataset", str(tmp_path / "ds"), "--output", str(tmp_path / "m")])
    shutil.rmtree(tmp_path / "m/checkpoints")
    with pytest.raises(InputError, match="no whole checkpoint is left; train again"):
        command.main(["keep", "--dataset", str(dataset), "--output", str(tmp_path / "m")])
    assert not (tmp_path / "m/card.json").exists()


@pytest.mark.slow
def test_a_look_that_fails_comes_after_the_checkpoint_and_is_repeated(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look fails, once; in the end all is as if it had not."""
    evaluate, looks = Evaluator.evaluate, iter(range(9))

    def failing(evaluator: Evaluator) -> Evaluation:
        if next(looks) == 1:
            raise MemoryError
        return evaluate(evaluator)

    fit_layers(dataset, tmp_path / "whole", "--epochs", "1")
    monkeypatch.setattr(Evaluator, "evaluate", failing)
    with pytest.raises(MemoryError):
        fit_layers(dataset, tmp_path / "m", "--epochs", "1")
    assert (tmp_path / "m/checkpoints/step-000000007.npz").exists()
    fit_layers(dataset, tmp_path / "m", "--epochs", "1")
    same_training(tmp_path / "m", tmp_path / "whole")
    documents = [
        json.loads((tmp_path / name / "checkpoints/step-000000007.json").read_text()) for name in ("m", "whole")
    ]
    assert documents[0]["metric"] == documents[1]["metric"] > 0


def test_a_look_that_finds_no_number_ends_the_training(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves nothing that is not JSON."""
    evaluate = Evaluator.evaluate

    def without_number(evaluator: Evaluator) -> Evaluation:
        found = evaluate(evaluator)
        return replace(found, losses={**found.losses, "total": math.nan})

    monkeypatch.setattr(Evaluator, "evaluate", without_number)
    with pytest.raises(InputError, match="step 0: total on the validation split is nan, expected a finite number"):
        fit_layers(dataset, tmp_path / "m", "--epochs", "1")
    json.loads((tmp_path / "m/history.jsonl").read_text(), parse_constant=pytest.fail)


@pytest.mark.slow
def test_a_look_that_always_fails_is_not_repeated_for_ever(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_: Evaluator) -> Evaluation:
        raise MemoryError

    monkeypatch.setattr(Evaluator, "evaluate", failing)
    monkeypatch.setattr(evaluations, "_AT_MOST", 1)
    for _ in (0, 7):  # the model before the training, and that of the epoch
        with pytest.raises(MemoryError):
            fit_layers(dataset, tmp_path / "m", "--epochs", "1")
    fit_layers(dataset, tmp_path / "m", "--epochs", "1")
    assert "step 7: the model is not judged; 1 evaluations began, and none ended" in caplog.text
    assert (read_card(tmp_path / "m").trained["chosen_step"], read_card(tmp_path / "m").losses) == (7, {})
