"""A training that ended early gives a model. An evaluation that fails is neither lost nor repeated for ever."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from showers import make_dataset, make_file
from trainings import ending, fit_layers, history_of, same_weights

from calopipe import storage
from calopipe.errors import InputError
from calopipe.lock import alone
from preprocessing.showers.manifest import ShowerManifest
from training import __main__ as command
from training import model_folder
from training.best_model import names_the_command
from training.configs import RunOptions, named_config
from training.engine.strategies import Team, make_strategy
from training.model_folder import read_card
from training.nodes.workers import PREEMPTED
from training.run import loop
from training.run.evaluations import Evaluations
from training.run.evaluator import Evaluation
from training.run.history import History, ProgressBar, entries_until


@pytest.fixture(scope="module")
def stopped(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training with three checkpoints. That of step 7, the first epoch, was evaluated; none is the model yet.

    The message with which a guard ends a training names the command that makes a model of a checkpoint.
    """
    place = tmp_path_factory.mktemp("stopped") / "m"
    with pytest.MonkeyPatch.context() as planted:
        planted.setattr(ProgressBar, "update", ending(InputError("the discriminator is dead"), step=12))
        with pytest.raises(InputError) as caught:
            fit_layers(dataset, place, "--checkpoint-steps", "5")
    left = sorted(path.stem for path in (place / "checkpoints").glob("*.npz"))
    assert left == [f"step-{step:09d}" for step in (5, 7, 10)]
    assert re.match("the discriminator is dead; `python -m training .*` makes a model", str(caught.value))
    return place


def test_a_training_that_was_stopped_names_the_command_that_makes_a_model_of_the_best_epoch(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "a model"  # a name that a shell would take apart
    with monkeypatch.context() as planted:
        planted.setattr(ProgressBar, "update", ending(signal.SIGTERM, step=10))
        with pytest.raises(SystemExit) as caught:
            fit_layers(dataset, output)
    assert caught.value.code == PREEMPTED
    named = re.search("`(.*)` makes a model of the best epoch so far", capsys.readouterr().out)
    assert named
    program, *arguments = shlex.split(named[1])
    assert [program, *arguments[:2]] == ["python", "-m", "training"]
    command.main(arguments[2:])  # as the message says
    card = read_card(output)
    assert (card.trained["chosen_step"], card.trained["steps"]) == (7, 10)
    same_weights(output, 7)
    assert card.losses == history_of(output)[-1]["validation"]
    fit_layers(dataset, output)
    assert "model stands" in capsys.readouterr().out


def test_a_checkpoint_that_was_not_judged_is_a_model_without_losses(
    dataset: Path,
    stopped: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also: every model is valid only where the dataset is whole."""
    whole = {"energy_gev": (120.0, 150.0), "theta_rad": (1.2, 1.8)}
    monkeypatch.setattr(ShowerManifest, "whole_range", whole)
    shutil.copytree(stopped, tmp_path / "m")
    noted = json.loads((tmp_path / "m/training.json").read_text())
    (tmp_path / "m/training.json").write_text(json.dumps(noted | {"warm_start": "earlier weights"}))
    for step in (7, 10):  # the best, and the last
        damaged = tmp_path / f"m/checkpoints/step-{step:09d}.npz"
        damaged.write_bytes(damaged.read_bytes()[:-1000])
    command.main(["keep", "--dataset", str(dataset), "--output", str(tmp_path / "m")])
    card = read_card(tmp_path / "m")
    assert (card.trained["chosen_step"], card.losses, card.trained["metric"]) == (5, {}, None)
    assert (card.valid_range, card.trained["warm_start"]) == (whole, "earlier weights")
    assert "step-000000007.npz: not the checkpoint that was written" in caplog.text


def test_a_folder_where_a_training_runs_is_left_to_it(dataset: Path, stopped: Path, tmp_path: Path) -> None:
    """Also if it is to be replaced."""
    shutil.copytree(stopped, tmp_path / "m")
    before = storage.listing(tmp_path / "m")
    with alone(tmp_path / "m", model_folder.LOCK):
        for asked in (command.main, lambda _: fit_layers(dataset, tmp_path / "m", "--seed", "2", "--overwrite")):
            with pytest.raises(InputError, match=r"another run writes there.*, or give another --output$"):
                asked(["keep", "--dataset", str(dataset), "--output", str(tmp_path / "m")])
    assert storage.listing(tmp_path / "m") == before


def test_what_cannot_be_kept_is_refused(dataset: Path, stopped: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"training\.json: no such file"):
        command.main(["keep", "--dataset", str(dataset), "--output", str(tmp_path / "none")])
    shutil.copytree(stopped, tmp_path / "m")
    make_dataset(tmp_path / "ds", make_file(tmp_path / "b.h5", events=60, seed=5))
    with pytest.raises(InputError, match=r"ds: not the one that the training in .*m is on; give that one"):
        command.main(["keep", "--dataset", str(tmp_path / "ds"), "--output", str(tmp_path / "m")])
    noted = (tmp_path / "m/training.json").read_text()
    unsaid = {name: value for name, value in json.loads(noted).items() if name != "config"}
    (tmp_path / "m/training.json").write_text(json.dumps(unsaid))
    with pytest.raises(InputError, match="holds no config of its training; start the training once more"):
        command.main(["keep", "--dataset", str(dataset), "--output", str(tmp_path / "m")])
    (tmp_path / "m/training.json").write_text(noted)
    shutil.rmtree(tmp_path / "m/checkpoints")
    with pytest.raises(InputError, match="no whole checkpoint is left; train again"):
        command.main(["keep", "--dataset", str(dataset), "--output", str(tmp_path / "m")])
    assert not (tmp_path / "m/card.json").exists()


def test_a_command_is_named_where_it_would_find_something_also_beside_a_crash(tmp_path: Path) -> None:
    """No command is named before the first checkpoint, or if the checkpoints are another training's."""
    for left in ("", "another", "this"):
        model_folder.begin(tmp_path, left or "this", {}, overwrite=True)
        if left:
            (tmp_path / model_folder.CHECKPOINTS).mkdir(exist_ok=True)
            (tmp_path / model_folder.CHECKPOINTS / "step-000000007.json").touch()
        error = RuntimeError if left == "this" else InputError
        with pytest.raises(error, match="dead") as caught, names_the_command(tmp_path / "ds", tmp_path, "this"):
            raise error("dead")
        assert caught.value.args == ("dead",)  # itself
    (note,) = caught.value.__notes__
    assert note.endswith("` makes a model of the best epoch so far")


class _Judged:
    """Evaluations whose numbers the test sets, in epochs of seven of 35 steps; they may fail."""

    def __init__(
        self, place: Path, *, showers: int = 3, patience: int = 0, best: tuple[int, float] = (0, math.inf)
    ) -> None:
        self.history, self.judge, self.checkpoints = History(place, 0), Mock(), Mock()
        self.judge.figures.return_value, self.checkpoints.best_metric.return_value = {}, best
        self.evaluator = Mock(showers=showers, every=2)
        self.evaluator.score.return_value = 0.5
        self.evaluate = self.evaluator.evaluate
        self.evaluate.return_value = Evaluation({"total": 4.0}, {"metric": {"value": None}}, self.judge, 1.5)
        config = named_config("small", patience=patience, epochs=5)
        self.engine: Any = SimpleNamespace(config=config, steps_an_epoch=7, last_step=35, step=0)
        team = Team(make_strategy("one-device"))
        self.evaluations = Evaluations(self.engine, self.evaluator, self.history, self.checkpoints, team)

    @property
    def marked(self) -> list[tuple[int, float | None]]:
        return [call.args for call in self.checkpoints.mark.call_args_list]

    def at(self, step: int, *, noted: bool = True) -> None:
        """The end of an epoch."""
        self.engine.step = step
        if noted:
            self.history.add({"step": step, "epoch": step // 7})
        self.evaluations.evaluate({})


def test_an_evaluation_is_noted_and_not_repeated(tmp_path: Path) -> None:
    """Its picture is drawn at the end of the training, not after each epoch."""
    judged = _Judged(tmp_path)
    judged.at(7)
    assert judged.history.entries[-1] == {
        "step": 7, "epoch": 1, "validation": {"total": 4.0}, "metric": {"value": None},
        "evaluated": {"showers": 3, "one_of": 2}, "evaluation_seconds": 1.5,
    }  # fmt: skip
    judged.at(7, noted=False)
    judged.history.add({"step": 10})
    judged.at(14, noted=False)  # of which the history does not tell
    assert (judged.evaluate.call_count, judged.marked, judged.judge.figures.call_count) == (1, [(7, 0.5)], 0)
    judged.at(35)
    assert (judged.marked, judged.judge.figures.call_count) == ([(7, 0.5), (35, 0.5)], 1)


def test_an_evaluation_that_finds_no_number_ends_the_training(tmp_path: Path) -> None:
    """It leaves no file that is not valid JSON."""
    judged = _Judged(tmp_path)
    judged.evaluate.return_value.losses["total"] = math.nan
    with pytest.raises(InputError, match="step 7: total on the validation split is nan, expected a finite number"):
        judged.at(7)
    for line in (tmp_path / "history.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


@pytest.mark.parametrize("line", ['{"step": 3', "[]", '{"epoch": 1}', '{"step": "3"}'])
def test_a_history_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "history.jsonl").write_text('{"step": 3}\n{"step": 5}\n')
    assert entries_until(tmp_path, 3) == [{"step": 3}]
    (tmp_path / "history.jsonl").write_text(f'{{"step": 3}}\n{line}\n')
    with pytest.raises(InputError, match=r"history.jsonl: not the history of a training"):
        entries_until(tmp_path, 3)


def test_an_evaluation_that_fails_begins_three_times(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    judged = _Judged(tmp_path)
    judged.evaluate.side_effect = MemoryError
    for again in range(3):
        with pytest.raises(MemoryError):
            judged.at(7, noted=not again)
    judged.at(7, noted=False)
    assert "step 7: the model is not judged; 3 evaluations began, and none ended" in caplog.text
    assert len(judged.history.entries[-1]["evaluations_begun"]) == 3
    judged.evaluate.side_effect = None
    judged.at(14)
    assert judged.marked == [(14, 0.5)]


def test_a_split_without_showers_is_not_evaluated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    judged = _Judged(tmp_path, showers=0)
    judged.at(7)
    assert (judged.history.entries[-1]["validation"], judged.evaluate.call_count, judged.marked) == ({}, 0, [])
    assert "the validation split holds no showers" in caplog.text


@pytest.mark.parametrize(
    ("patience", "best", "over"),
    [
        (2, (14, 1.0), True),
        (3, (14, 1.0), False),  # the epoch after the last evaluation is none without a better metric
        (3, (7, 1.0), True),
        (1, (0, math.inf), False),
        (0, (0, 1.0), False),
    ],
)
def test_patience_counts_the_epochs_up_to_the_last_evaluation(
    tmp_path: Path, patience: int, best: tuple[int, float], *, over: bool
) -> None:
    judged = _Judged(tmp_path, patience=patience, best=best)
    for step in (7, 14, 21, 28):
        judged.at(step)
    judged.history.add({"step": 35, "epoch": 5})
    assert judged.evaluations.patience_is_over() == over


class _Steps:
    """A loop over an engine whose steps the test sets, as it sets the clock: epochs of seven of 24 steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, signals: tuple[int, ...] = (), **options: Any) -> None:
        self.now, self.state, self.done = 100.0, {"network/a/0": np.zeros(3)}, Mock()
        monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.engine: Any = SimpleNamespace(
            step=0, steps_an_epoch=7, last_step=24, global_batch=8, replicas=2, model=SimpleNamespace(guards=()),
            config=SimpleNamespace(domain=SimpleNamespace(items="showers")), state=lambda: self.state,
            table=lambda losses: {"fit": {"total": float(losses[0])}}, take_sums=lambda: np.array([21.0]),
            learning_rate=lambda: 0.25,
        )  # fmt: skip
        checkpoints: Any = SimpleNamespace(save=self.done.save, wait=lambda: None, last_named=lambda: "step-4")
        evaluations: Any = SimpleNamespace(
            history=Mock(), due=lambda step: step != 14, patience_is_over=lambda: False, evaluate=self.done.judge
        )
        self.noted = evaluations.history.add
        self.loop = loop.Loop(
            self.engine, checkpoints, evaluations, RunOptions(**options), Team(make_strategy("one-device")),
            signals=signals, seconds=5.0,
        )  # fmt: skip

    @property
    def saved(self) -> list[tuple[int, dict[str, Any]]]:
        return [(call.kwargs["step"], call.kwargs["facts"]) for call in self.done.save.call_args_list]

    def after(self, step: int, *, seconds: float) -> None:
        self.engine.step = step
        self.now += seconds
        self.loop.after(np.array([1.0], np.float32), stop=False)


def test_what_is_noted_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds before an interruption count for the first epoch; the last epoch has three steps."""
    steps = _Steps(monkeypatch)
    for step, seconds in ((4, 3.0), (7, 2.0), (14, 1.0), (24, 6.0)):
        steps.after(step, seconds=seconds)
    columns = ("epoch", "step", "seconds", "images_per_s", "learning_rate", "train")
    rows = [
        (1, 7, 10.0, 5.6, 0.25, {"fit": {"total": 3.0}}),
        (2, 14, 1.0, 56.0, 0.25, {"fit": {"total": 3.0}}),
        (4, 24, 6.0, 4.0, 0.25, {"fit": {"total": 7.0}}),
    ]
    noted = [call.args[0] for call in steps.noted.call_args_list]
    assert noted == [dict(zip(columns, row, strict=True)) for row in rows]
    assert steps.saved == [(step, {"replicas": 2, "seconds": 0.0}) for step in (7, 24)]  # where an evaluation is due
    assert [call.args for call in steps.done.judge.call_args_list] == [(steps.state,)] * 2
    names = [name for name, *_ in steps.done.method_calls]
    assert names == ["save", "judge"] * 2  # an evaluation that fails loses nothing


def test_a_checkpoint_is_due_by_the_clock_and_by_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Steps(monkeypatch, checkpoint_seconds=10.0)
    for step, seconds in ((1, 9.0), (2, 2.0), (3, 9.0), (4, 2.0), (14, 11.0)):
        clock.after(step, seconds=seconds)
    assert [(step, facts["seconds"]) for step, facts in clock.saved] == [(2, 16.0), (4, 27.0), (14, 0.0)]
    # of several a call; after 14, which is not judged, no multiple is new
    for every, steps, saved in (
        (3, range(1, 10), [3, 6, 7, 9]),
        (6, (5, 7, 12, 14, 19, 21, 24), [7, 12, 19, 21, 24]),
        (6, (5, 7, 14), [7, 14]),
    ):
        counted = _Steps(monkeypatch, checkpoint_steps=every)
        for step in steps:
            counted.after(step, seconds=1.0)
        assert [step for step, _ in counted.saved] == saved


@pytest.mark.parametrize(
    ("signals", "code"), [((signal.SIGINT,), 130), ((signal.SIGINT, signal.SIGTERM), PREEMPTED), ((), PREEMPTED)]
)
def test_the_last_signal_decides_how_a_training_that_is_told_to_stop_ends(
    monkeypatch: pytest.MonkeyPatch, signals: tuple[int, ...], code: int
) -> None:
    steps = _Steps(monkeypatch, signals=signals)
    steps.engine.step = 4
    for _ in range(2):  # saved once
        with pytest.raises(SystemExit) as stopped:
            steps.loop._stop(4)
        assert stopped.value.code == code
    assert [step for step, _ in steps.saved] == [4]


def test_weights_that_are_no_numbers_are_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _Steps(monkeypatch)
    steps.state["network/b/0"] = np.array([1.0, np.inf])
    with pytest.raises(
        InputError, match=r"a weight is not a finite number after step 7; .*last good checkpoint: step-4"
    ):
        steps.after(7, seconds=1.0)
    assert steps.saved == []
