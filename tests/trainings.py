"""Small trainings of showers or flows by the command, and comparisons of two trainings."""

from __future__ import annotations

import json
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from flow_models import GRID, street, write_pairs
from showers import SMALL_GEOMETRY, make_dataset, make_file

from preprocessing.dataset import read_manifest
from training import __main__ as command
from training.configs import FitConfig
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.model_folder import read_card
from training.models.base import build
from training.run.evaluator import Evaluator
from training.run.history import ProgressBar

# By what the dataset holds: a config, and settings that make a training of two epochs, of seven steps in `datasets`.
_SMALL = {
    "showers": ("--config", "small"),
    "pairs of frames": ("--config", "pix2pix-small", "--epochs", "2", "--batch", "8", "--patience", "0"),
}


@contextmanager
def untraced() -> Iterator[None]:
    """Run TensorFlow's functions operation by operation: a quarter of the time if they run only a few times."""
    tf.config.run_functions_eagerly(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* option does not apply to tf.data functions", UserWarning)
            yield
    finally:
        tf.config.run_functions_eagerly(False)


def engine_of(config: FitConfig, dataset: Path, **more: Any) -> Engine:
    """An engine of `dataset` on one device."""
    return Engine(config, dataset, read_manifest(dataset), make_strategy("one-device"), **more)


def evaluator_of(config: FitConfig, dataset: Path, engine: Engine | None = None) -> Evaluator:
    """The evaluator of the validation split of `dataset`, with the weights of `engine`."""
    evaluator = Evaluator(config, dataset, read_manifest(dataset), "validation")
    if engine is not None:
        evaluator.take_over(engine.state())
    return evaluator


def small_dataset(place: Path) -> Path:
    """The dataset of 80 showers; an epoch is seven steps of the small 3DGAN."""
    make_dataset(place / "ds", make_file(place / "a.h5", events=80))
    return place / "ds"


def small_flow(place: Path) -> Path:
    """The dataset of 56 pairs of frames to train on, seven steps of the small pix2pix, and 16 for validation."""
    return write_pairs(place / "flow", street(56 + 16 + 1), GRID, train=56)


LAYERS = ("--model-file", str(Path(__file__).with_name("layers.py")), "--config", "layers")


def small_options(dataset: Path, output: Path, *more: str) -> list[str]:
    """The arguments of the command, for a small training of the field of the `dataset`."""
    settings = _SMALL[read_manifest(dataset).geometry.items]
    return ["fit", "--dataset", str(dataset), "--output", str(output), *settings, *more]


def fit_small(dataset: Path, output: Path, *more: str) -> None:
    command.main(small_options(dataset, output, *more))


def fit_layers(dataset: Path, output: Path, *more: str) -> None:
    """As `fit_small` for showers, with a model of one network: a third of the time, for tests of any model."""
    fit_small(dataset, output, *LAYERS, "--epochs", "2", "--batch", "8", *more)


def layers_model(place: Path) -> Path:
    """A folder with Monte Carlo `mc.h5`, its dataset `ds`, and a barely trained `model` of one network."""
    make_dataset(place / "ds", make_file(place / "mc.h5", events=100))
    fit_layers(place / "ds", place / "model", "--steps", "2")
    return place


def history_of(model: Path) -> list[dict[str, Any]]:
    """The history of the training of `model`, an entry for each epoch."""
    return [json.loads(line) for line in (model / "history.jsonl").read_text().splitlines()]


def same_training(found: Path, expected: Path) -> None:
    assert read_card(found).weights == read_card(expected).weights
    histories = [history_of(place) for place in (found, expected)]
    for entry in (entry for history in histories for entry in history):
        for name in ("seconds", "images_per_s", "evaluation_seconds"):
            entry.pop(name, None)
    assert histories[0] == histories[1]


def same_weights(model: Path, step: int) -> None:
    """Assert that a model of showers has the weights of its checkpoint of this step, and of no other."""
    checkpoints = sorted((model / "checkpoints").glob("*.npz"))
    networks, same = build(read_card(model).config, SMALL_GEOMETRY).networks, []
    for name, network in networks.items():
        network.load_weights(model / f"{name}.weights.h5")
    for path in checkpoints:
        with np.load(path) as state:
            if all(
                np.array_equal(weight, state[f"network/{name}/{number}"])
                for name, network in networks.items()
                for number, weight in enumerate(network.get_weights())
            ):
                same.append(int(path.stem.partition("-")[2]))
    assert len(checkpoints) > 1
    assert same == [step]


def ending(how: Exception | signal.Signals, *, step: int) -> Any:
    """A function that ends a training at `step`; it replaces the progress bar's `update`."""

    def update(bar: ProgressBar, _: object) -> None:
        if bar._engine.step == step:
            if isinstance(how, Exception):
                raise how
            signal.raise_signal(how)

    return update


def command_line(dataset: Path, output: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "training", *small_options(dataset, output, *more)]
