"""A warm start goes on from the model that it begins with: its losses stay where they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from likelihoods import CONFIG
from showers import make_dataset, make_file

from preprocessing.dataset import read_manifest
from preprocessing.reading import ordered_batches
from training import folder
from training.configs import FitConfig, named_config
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.models.randomness import Draws
from training.run.evaluation import Evaluator

_WATCHED = 200  # showers
_GAN = named_config("small", epochs=100)
_LIKELIHOODS = replace(CONFIG, epochs=100, learning_rate=1e-2, schedule="cosine", average=0.99)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("warm")
    files = [str(make_file(place / name, events=events)) for name, events in (("a.h5", 400), ("b.h5", _WATCHED))]
    make_dataset(place / "ds", *files, split_files=["train=a*", "validation=b*"])
    return place / "ds"


def _judge(evaluator: Evaluator, dataset: Path) -> Callable[[Engine], dict[str, npt.NDArray[np.float64]]]:
    """What gives the losses of each validation shower, (N,), of an engine's model."""
    decode = evaluator.model.decode_judged
    (batch,) = ordered_batches(dataset, read_manifest(dataset), "validation", batch=_WATCHED, decode=decode)
    evaluate = tf.function(lambda: evaluator.model.evaluate(batch, Draws.of(1))[0], autograph=False)

    def judge(engine: Engine) -> dict[str, npt.NDArray[np.float64]]:
        evaluator.take_over(engine.state())
        return {name: loss.numpy() for name, loss in evaluate().items() if evaluator.model.weights[name]}

    return judge


@pytest.mark.slow
@pytest.mark.parametrize(("config", "steps"), [(_GAN, 60), (_LIKELIHOODS, 200)], ids=["3dgan", "likelihoods"])
def test_the_first_hundred_steps_leave_the_losses_where_they_were(
    dataset: Path, tmp_path: Path, config: FitConfig, steps: int
) -> None:
    """Up to twice the standard error of their mean over the showers."""
    manifest, strategy = read_manifest(dataset), make_strategy("one-device")
    evaluator = Evaluator(config, dataset, manifest, "validation")
    incumbent = Engine(replace(config, steps=steps), dataset, manifest, strategy)
    incumbent.run(iter(incumbent.batches()), steps)
    judge = _judge(evaluator, dataset)
    before = judge(incumbent)
    folder.save_weights(tmp_path, evaluator.model.networks)

    engine = Engine(config, dataset, manifest, strategy, warm_start=tmp_path)
    batches, done = iter(engine.batches()), 0
    for step in (1, 5, 25, 100):
        engine.run(batches, step - done)
        done = step
        for name, values in judge(engine).items():
            noise = before[name].std() / np.sqrt(_WATCHED)
            assert values.mean() < before[name].mean() + 2 * noise, (name, step)


def test_the_rate_rises_after_a_warm_start_and_not_for_longer_than_a_quarter(dataset: Path, tmp_path: Path) -> None:
    manifest, strategy = read_manifest(dataset), make_strategy("one-device")
    folder.save_weights(tmp_path, Engine(_GAN, dataset, manifest, strategy).model.networks)
    rates = []
    for steps, warm_start in ((4000, None), (4000, tmp_path), (40, tmp_path)):
        engine = Engine(replace(_GAN, steps=steps), dataset, manifest, strategy, warm_start=warm_start)
        rate = engine.optimizers["discriminator"]._learning_rate  # of two updates a step
        rates.append([float(rate(2 * step)) for step in (0, 9, 499, 500)])
    full = _GAN.learning_rate
    expected = [[full] * 4, [full / 500, full / 50, full, full], [full / 10, full, full, full]]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)  # single precision
