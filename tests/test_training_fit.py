"""Training by its command: its output, a resumed training, and what it refuses."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from commands import refused
from replicas import tiny
from trainings import ending, engine_of, fit_layers, fit_small, history_of, same_training, same_weights

from calopipe.errors import InputError
from calopipe.showers.metric import LEAST_EVENTS
from preprocessing.dataset import read_manifest
from training import fit, model_folder
from training.model_folder import read_card
from training.models.showers import ShowerModel
from training.nodes.workers import PREEMPTED, Cluster
from training.run.checkpoints import Checkpoints
from training.run.evaluator import Evaluator
from training.run.history import ProgressBar

_LOOKS = ("--epochs", "5", "--evaluation-steps", "14")  # epochs are of seven steps


@pytest.fixture(scope="module")
def model(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five epochs of seven steps, evaluated after every 14 steps, and at the end."""
    place = tmp_path_factory.mktemp("model") / "model"
    fit_layers(dataset, place, *_LOOKS)
    return place


def test_what_a_training_leaves(dataset: Path, model: Path) -> None:
    """The training is evaluated when it is due, and at its end."""
    card = read_card(model)
    assert card.config.model == "layers"
    trained = {"steps": 35, "epochs": 5, "replicas": 1, "warm_start": None}
    assert card.trained.items() >= trained.items()
    train = read_manifest(dataset).count("train")
    assert (card.dataset["train_events"], card.dataset["cut_gev"], card.dataset["split_files"]) == (train, 0, [])
    packages = {name: metadata.version(name) for name in ("calopipe", "keras")}
    assert card.versions == packages | {"tensorflow": tf.__version__}
    assert card.dataset["fingerprint"] == json.loads((dataset / "manifest.json").read_text())["fingerprint"]
    low, high = card.valid_range["energy_gev"]
    assert 100 <= low < high <= 200
    assert list((model / "tensorboard").iterdir())
    kept = {int(path.stem.partition("-")[2]) for path in (model / "checkpoints").glob("*.npz")}
    assert kept == {14, 28, 35}  # an epoch that is not judged leaves none, unless one is due
    history = history_of(model)
    assert [(entry["epoch"], entry["step"]) for entry in history] == [(epoch, 7 * epoch) for epoch in range(6)]
    assert card.trained["seconds"] == pytest.approx(sum(entry["seconds"] for entry in history[1:]))
    judged = [entry for entry in history if "metric" in entry]
    assert [entry["step"] for entry in judged] == [0, 14, 28, 35]
    assert judged == [entry for entry in history if "validation" in entry]
    best = min(judged[1:], key=lambda entry: entry["validation"]["total"])
    assert (card.trained["chosen_step"], card.trained["metric"]) == (best["step"], best["metric"])
    assert card.losses == best["validation"]
    assert [told["reference"] for told in card.trained["metric"]["bins"]] == [3]  # as many as the split holds
    assert [entry["metric"]["value"] for entry in judged] == [None] * 4  # which are too few for a figure
    assert all(entry["energy_sum"] > 0 for entry in judged)
    assert all(entry["train"]["fit"]["total"] == entry["train"]["fit"]["square"] > 0 for entry in history[1:])
    assert history[-1]["images_per_s"] == pytest.approx(56 / history[-1]["seconds"])


def test_ctrl_c_ends_a_training_that_still_builds_its_graph(dataset: Path, tmp_path: Path) -> None:
    """There is no step to wait for, and nothing to save."""
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in the background
    program += "from training.__main__ import command; command()"
    options = ["fit", "--dataset", str(dataset), "--output", str(tmp_path / "m"), "--config", "small"]
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        started, building = process.stdout.readline(), process.stdout.readline()
        assert started.endswith("8 showers each over 1 replica(s) on processors\n")
        assert building.startswith("building the graph")
        process.send_signal(signal.SIGINT)
        out, told = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert told == "interrupted; finished work is kept\n"


def test_a_folder_of_another_training_is_refused_and_overwritten_when_told(
    dataset: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(model, tmp_path / "m")
    with pytest.raises(InputError, match=r"holds another model: .*; seed 1 is now 2; .*; give another --output"):
        fit_layers(dataset, tmp_path / "m", "--steps", "1", "--seed", "2")
    with pytest.raises(InputError, match="is also the --output"):
        fit_layers(dataset, tmp_path / "m", "--warm-start", str(tmp_path / "m"), "--overwrite")
    assert read_card(tmp_path / "m") == read_card(model)
    fit_layers(dataset, tmp_path / "m", "--steps", "1", "--seed", "2", "--overwrite")
    assert read_card(tmp_path / "m").config.seed == 2
    replaced = f"{tmp_path / 'm'}: a training of other data or settings is replaced, which had reached step 35"
    assert replaced in capsys.readouterr().out


def test_a_copy_of_a_model_is_replaced_only_when_told(dataset: Path, model: Path, tmp_path: Path) -> None:
    """A registry keeps models without the other files of a training's folder."""
    place = tmp_path / "m"
    place.mkdir()
    for name in (model_folder.CARD, *read_card(model).files):
        shutil.copy(model / name, place)
    with pytest.raises(InputError, match=r"/m: holds another model: epochs 5 is now 1; .* or --overwrite"):
        fit_layers(dataset, place, "--epochs", "1")
    assert read_card(place) == read_card(model)
    training = json.loads((model / model_folder.TRAINING).read_text())
    (place / model_folder.TRAINING).write_text(
        json.dumps(training | {"request": "another"})
    )  # of a training beside which it came
    assert model_folder.standing(place, "another") is None
    with pytest.raises(InputError, match="/m: holds another model"):
        model_folder.require_free(place, "another", model_folder.training_in(place), overwrite=False)
    model_folder.begin(place, "another", {}, overwrite=True)  # and is then interrupted
    assert model_folder.standing(place, "another") is None
    assert not (place / model_folder.CARD).exists()


def test_a_model_whose_weights_are_damaged_is_made_again_of_its_checkpoints(
    dataset: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = shutil.copytree(model, tmp_path / "m")
    (place / "layers.weights.h5").write_bytes(b"cut off")
    fit_layers(dataset, place, *_LOOKS)
    assert "steps 35 to 35" in capsys.readouterr().out
    assert read_card(place).fingerprint() == read_card(model).fingerprint()


def test_a_model_is_replaced_only_once_the_next_can_be_trained(dataset: Path, model: Path, tmp_path: Path) -> None:
    place = shutil.copytree(model, tmp_path / "m")
    with pytest.raises(InputError, match=r"layers\.weights\.h5: not the weights of the network layers .* the settings"):
        fit_layers(dataset, place, "--hidden", "3", "--warm-start", str(model), "--overwrite")
    assert read_card(place) == read_card(model)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/model.py").write_text("# of somebody")
    with pytest.raises(InputError, match=r"mine/model\.py: would be replaced, and no training"):
        fit_layers(dataset, tmp_path / "mine", "--steps", "1")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["model.py"]


def test_what_other_replicas_trained_is_refused_and_begun_anew_when_told(
    dataset: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of the other replicas is left before the first step; the weights are those of a new engine."""
    shutil.copytree(model, tmp_path / "m")
    (tmp_path / "m/card.json").unlink()
    theirs = Checkpoints(tmp_path / "m/checkpoints", request=read_card(model).request, kept=2)
    last = theirs.newest()
    theirs.save(last.state, step=last.step, facts={**last.facts, "replicas": 2})
    theirs.wait()
    told = "trained by 2 replicas until step 35, now there are 1"
    with pytest.raises(InputError, match=told):
        fit_layers(dataset, tmp_path / "m", *_LOOKS)
    with pytest.MonkeyPatch.context() as dies:
        dies.setattr(fit.Loop, "run", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit_layers(dataset, tmp_path / "m", *_LOOKS, "--overwrite")
    assert f"{told}: the training begins anew" in caplog.text
    assert "steps 0 to 35" in capsys.readouterr().out
    assert list((tmp_path / "m/checkpoints").iterdir()) == []


def test_a_checkpoint_of_another_model_is_refused(dataset: Path, model: Path) -> None:
    engine = engine_of(tiny(batch=4), dataset)
    with np.load(model / "checkpoints/step-000000035.npz") as state, pytest.raises(InputError, match="another model"):
        engine.restore(dict(state), "step-000000035.npz")


def test_a_collective_that_fails_is_the_loss_of_another_worker(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one worker, the error itself is raised, and so are errors that no other worker causes."""
    lost = list[str]()
    monkeypatch.setattr(fit, "exit_lost", lambda _, reason: lost.append(reason))
    team, alone = Cluster(("a:1", "b:2"), 0), Cluster(("a:1",), 0)
    losses = (
        tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError, tf.errors.CancelledError
    )  # fmt: skip
    for kind in losses:
        with fit._plain_errors(dataset, tmp_path, team):
            raise kind(None, None, "Socket closed")
        for cluster in (alone, None):
            with pytest.raises(kind), fit._plain_errors(dataset, tmp_path, cluster):
                raise kind(None, None, "Socket closed")
    assert lost == ["Socket closed"] * len(losses)
    restarted = "/job:worker/task:1 current incarnation doesn't match with one in the group"
    with fit._plain_errors(dataset, tmp_path, team):
        raise tf.errors.FailedPreconditionError(None, None, restarted)
    assert lost.pop() == restarted
    for kind in (tf.errors.InternalError, tf.errors.FailedPreconditionError):
        with pytest.raises(kind), fit._plain_errors(dataset, tmp_path, team):
            raise kind(None, None, "a defect")


def test_the_best_epoch_is_kept_and_patience_ends_the_training(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test sets the scores, so that the second of five epochs is the best."""
    told = iter([9.0, 3.0, 1.0, 2.0, 2.5, 0.1])
    monkeypatch.setattr(Evaluator, "score", lambda *_: next(told))
    fit_layers(dataset, tmp_path / "m", "--epochs", "5", "--patience", "2")
    card = read_card(tmp_path / "m")
    assert (card.trained["chosen_step"], card.trained["steps"]) == (14, 28)
    assert "no better metric for 2 epochs since step 14" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "m/checkpoints").glob("*.npz")) == [
        f"step-{step:09d}.npz" for step in (14, 21, 28)
    ]
    same_weights(tmp_path / "m", 14)
    # killed between the last epoch and the card, it does not train on
    (tmp_path / "m/card.json").unlink()
    fit_layers(dataset, tmp_path / "m", "--epochs", "5", "--patience", "2")
    assert read_card(tmp_path / "m").trained == card.trained


def test_losses_choose_among_the_epochs_of_models_that_are_no_gans() -> None:
    """Also if there are enough showers for the metric."""
    assert ShowerModel.score(SimpleNamespace(), {"total": 1.0}, {"metric": {"value": 2.0}}, LEAST_EVENTS) == 1.0


@pytest.mark.slow
def test_to_be_judged_more_often_changes_no_weight(dataset: Path, tmp_path: Path) -> None:
    """For a GAN, whose evaluations renew the statistics of its batch normalisation."""
    for name, more in (("often", ()), ("seldom", _LOOKS[2:])):
        fit_small(dataset, tmp_path / name, "--epochs", "5", *more)
    states = [np.load(tmp_path / name / "checkpoints/step-000000035.npz") for name in ("often", "seldom")]
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], err_msg=name)
    for state in states:
        state.close()


@pytest.mark.slow
def test_a_training_goes_on_from_the_end_of_an_epoch_that_is_not_judged(
    dataset: Path,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "m"
    for step in (7, 17):  # the end of the first epoch, and a step of the third
        monkeypatch.setattr(ProgressBar, "update", ending(signal.SIGTERM, step=step))
        with pytest.raises(SystemExit) as caught:
            fit_layers(dataset, output, *_LOOKS)
        assert caught.value.code == PREEMPTED
        assert f"stopped at step {step} as told, and saved" in capsys.readouterr().out
    fit_layers(dataset, output, *_LOOKS)
    assert "steps 17 to 35" in capsys.readouterr().out
    same_training(output, model)


def _interrupted(_: object) -> None:
    raise KeyboardInterrupt


def test_a_replacement_that_is_interrupted_takes_nothing_over(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, noted = tmp_path / "m", read_card(model).noted()
    shutil.copytree(model, output)
    with monkeypatch.context() as dies:
        dies.setattr(model_folder.storage, "discard", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            model_folder.begin(output, "another", noted, overwrite=True)
    assert model_folder.standing(output, read_card(model).request) is None
    document = json.loads((output / "training.json").read_text())
    bare = {name: document[name] for name in ("kind", "schema_version", "request")}
    for left in (document, document | {"schema_version": 12}, bare):
        model_folder.storage.write_json(output / "training.json", left)
        with pytest.raises(InputError, match="another model: one of another version of calopipe, or whose"):
            model_folder.begin(output, "another", noted, overwrite=False)
    model_folder.begin(output, "another", noted, overwrite=True)
    left = {"training.json", "seen.npy", "layers.weights.h5"}
    assert {path.name for path in output.iterdir()} == left


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
    with pytest.raises(InputError, match=f"{shard}: altered since it was written"):
        fit_layers(tmp_path / "ds", tmp_path / "m")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--batch", "5000"), "too few for one batch of 5000"),
        (("--output", "DATASET"), "holds manifest.json, as a dataset's folder does"),
        (("--config", "3dgan"), "(17, 17, 5) cells, the model 3dgan is for (51, 51, 25); choose --config fast"),
        (("--dataset", "/nowhere"), "manifest.json: no such file"),
        (("--strategy", "tpu"), "finds no TPU in this machine"),
        (("--warm-start", ""), "an empty path was given"),
    ],
)
def test_bad_arguments(dataset: Path, tmp_path: Path, more: tuple[str, ...], told: str) -> None:
    arguments = (str(dataset) if m == "DATASET" else m for m in more)
    assert told in refused(dataset, tmp_path / "m", *arguments, command=fit_small)
    assert not (tmp_path / "m").exists()


def test_a_full_disk(dataset: Path, tmp_path: Path) -> None:
    """In the form in which TensorFlow reports it."""
    with pytest.raises(OSError, match="No space left") as full, fit._plain_errors(dataset, tmp_path, None):
        raise tf.errors.ResourceExhaustedError(None, None, f"{tmp_path}/x; No space left on device")
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, str(tmp_path))
