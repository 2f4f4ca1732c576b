"""How a training is observed: TensorBoard, the progress bar, the guards, the trace of its steps."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from matplotlib.figure import Figure
from replicas import tiny
from trainings import engine_of

from calopipe.errors import InputError
from training.models.gan.model import GUARDS
from training.run import history as module
from training.run.history import History
from training.run.loop import Guards


def _shown(board: Path) -> dict[str, tuple[int, Any]]:
    """The only step and value of each tag in a run of TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = EventAccumulator(str(board))
    run.Reload()
    events = {tag: run.Tensors(tag) for tag in run.Tags()["tensors"]}
    return {tag: (event.step, tf.make_ndarray(event.tensor_proto)) for tag, (event,) in events.items()}


def test_a_loss_has_one_name_in_training_and_validation(tmp_path: Path) -> None:
    """So TensorBoard shows the two curves in one plot. In training several phases may have the same loss."""
    history = History(tmp_path, 0)
    history.add({"step": 3, "train": {"a": {"total": 1.0, "hits": 2.0}, "b": {"total": 3.0}}, "seconds": 9.0})
    history.amend({"validation": {"total": 4.0, "hits": 5.0}, "found": {"value": 6.0}, "evaluations_begun": None})
    assert {tag: float(value) for tag, (_, value) in _shown(tmp_path / "tensorboard").items()} == {
        "loss/total/a": 1, "loss/hits": 2, "loss/total/b": 3, "seconds": 9, "found/value": 6, "step": 3,
    }  # fmt: skip
    validation = {tag: float(value) for tag, (_, value) in _shown(tmp_path / "tensorboard/validation").items()}
    assert validation == {"loss/total": 4, "loss/hits": 5}


def test_the_bar_counts_showers_and_names_the_losses_of_the_last_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step is shown at once, however soon it ends; later steps at most once a second."""
    clock, made = [0.0], Mock()
    monkeypatch.setattr(module, "progress_bar", made)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    domain = SimpleNamespace(items="showers")
    table = {"a": {"total": 9.0}, "b": {"total": 0.12345, "hits": 3.0}}
    engine: Any = SimpleNamespace(
        step=2, last_step=10, global_batch=8, config=SimpleNamespace(domain=domain), table=lambda _: table
    )
    progress = module.ProgressBar(engine)
    for step, now in ((5, 0.1), (6, 1.0), (7, 1.5)):
        engine.step, clock[0] = step, now
        progress.update(np.zeros(3))
    assert made.call_args.args == ("train", 80, "showers", 16)
    told = [call.args for call in made.return_value.method_calls]
    losses = ("total 0.123 hits 3",)
    assert told == [losses, (24,), (8,), losses, (8,)]


def test_the_log_holds_the_image(tmp_path: Path) -> None:
    figure = Figure(figsize=(3, 2), dpi=100)
    figure.subplots().imshow(np.arange(20).reshape(4, 5))
    history = History(tmp_path, 7)
    history.add({"step": 7})
    history.draw({"frames": figure})
    shown = _shown(tmp_path / "tensorboard")
    assert shown.keys() == {"frames", "step"}
    step, (width, height, png) = shown["frames"]  # and no second image
    assert step == 7
    image = tf.io.decode_png(png).numpy()
    assert image.shape == (200, 300, 3)
    assert (int(width), int(height)) == image.shape[1::-1]
    assert len(np.unique(image)) > 10


Table = dict[str, dict[str, float]]


def _table(**changed: float) -> Table:
    """The losses of a healthy training, except for those that are `changed`."""
    loss = {"real": 0.4, "fake": 0.5, "fooled": 1.2, "ecal": 30.0, "spread": 0.0, "total": 1.0} | changed
    generator = {"total": loss["total"], "generation": loss["fooled"], "ecal": loss["ecal"]}
    answers = {"total": 1.0, "spread": loss["spread"]}
    return {
        "discriminator_real": {**answers, "generation": loss["real"], "ecal": 0.0},
        "discriminator_fake": {**answers, "generation": loss["fake"], "ecal": loss["ecal"]},
        "generator_first": generator,
        "generator_second": generator,
    }


def _check(guards: Guards, table: Table, step: int = 1) -> None:
    guards.check(table, step=step, last_good=lambda: "step-000000007.npz")


def test_a_loss_that_is_not_finite_stops_at_once() -> None:
    with pytest.raises(InputError, match=r"step 9 \(discriminator_real generation\).*checkpoint: step-000000007\.npz"):
        _check(Guards(GUARDS), _table(real=math.nan), step=9)
    with pytest.raises(InputError, match="generator_first ecal, generator_second ecal"):
        _check(Guards(GUARDS), _table(ecal=math.inf))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (_table(ecal=100.0), "the generator makes empty showers"),
        (_table(real=math.log(2) + 2e-3, fake=math.log(2) - 1e-3), "the discriminator is dead"),
        (_table(fooled=16.1), "the generator gets no gradient"),
    ],
)
def test_a_failure_stops_once_it_lasts(table: Table, told: str) -> None:
    guards = Guards(GUARDS, patience=3)
    _check(guards, table)
    _check(guards, table)
    _check(guards, _table())  # recovered: the count begins anew
    _check(guards, table)
    _check(guards, table)
    with pytest.raises(InputError, match=f"{told}.*in 3 checks up to step 6; .*last good checkpoint: step-000000007"):
        _check(guards, table, step=6)


_COIN = {"real": math.log(2), "fake": math.log(2)}


def test_a_discriminator_is_dead_once_the_generator_no_longer_improves() -> None:
    guards, noise = Guards(GUARDS, patience=20), np.random.default_rng(1)
    for step in range(100):
        _check(guards, _table(**_COIN, total=10 - 0.05 * step + noise.normal(0, 0.1)))

    def stand_still() -> None:
        for _ in range(60):
            _check(guards, _table(**_COIN, total=5 + noise.normal(0, 0.1)))

    with pytest.raises(InputError, match=r"the discriminator is dead.*in 20 checks"):
        stand_still()


@pytest.mark.parametrize(
    "table",
    [
        _table(), _table(ecal=99.9), _table(real=0.68, fake=0.7), _table(ecal=3500.0),
        # answers of .48 to .52 have a loss within 2e-4 of a coin's, and a variance of 1e-4
        _table(**_COIN, spread=1e-4),
    ],
)  # fmt: skip
def test_a_training_that_only_looks_ill_goes_on(table: Table) -> None:
    guards = Guards(GUARDS, patience=1)
    for _ in range(5):
        _check(guards, table)


def test_steps_are_traced_and_undone(dataset: Path, tmp_path: Path) -> None:
    """TensorFlow's file is there, and the training continues as if the steps had not been done."""
    engine = engine_of(tiny(batch=4), dataset, compiled=False)
    engine.run(iter(engine.batches()), 1)
    before = engine.state()
    engine.trace(tmp_path / "board")
    after = engine.state()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)
    assert [path.suffixes for path in (tmp_path / "board").glob("plugins/profile/*/*")] == [[".xplane", ".pb"]]
