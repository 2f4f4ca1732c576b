"""How good the model is at this moment, on the split that watches the training; and the weights that are judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from preprocessing.dataset import Manifest
from preprocessing.reading import ordered_batches
from training.engine.step import State, with_total
from training.models.base import Batch, Judge, build
from training.models.config import FitConfig
from training.models.randomness import Draws

_BATCH = 32
_EVALUATION = -1  # the step number of the evaluation's draws: the same noise every time, and no training step's
_STATISTICS_SHOWERS = 1024  # of the train split, which give the averaged networks their statistics


@dataclass(frozen=True)
class Evaluation:
    """What one look at the model gave: mean losses, what its judge found, and the judge, who can draw."""

    losses: dict[str, float]
    found: dict[str, Any]
    judge: Judge


class Evaluator:
    """A copy of the model in inference mode, outside any strategy, that takes over what an engine has trained.

    `split` is the one that watches, of which there are `showers`; without any it evaluates nothing.
    """

    def __init__(self, config: FitConfig, folder: Path, manifest: Manifest, split: str) -> None:
        self._config, self._folder, self._manifest, self._split = config, folder, manifest, split
        keras.utils.clear_session()
        self.model = build(config, manifest.geometry)
        self.showers = manifest.count(split)
        self._evaluate = tf.function(self._batch, reduce_retracing=True)
        self._in_training = tf.function(self._collect, reduce_retracing=True)
        self._exercises: list[Batch] = []  # that statistics are collected with, read when first needed

    def take_over(self, state: State) -> None:
        """Copy the weights in `state`: of the generator the averages, if any, with statistics of their own."""
        for name, network in self.model.networks.items():
            for number, weight in enumerate(network.weights):
                weight.assign(state[f"network/{name}/{number}"])
        if self._config.average:
            for number, weight in enumerate(v for network in self._averaged() for v in network.trainable_variables):
                weight.assign(state[f"average/{number}"])
            self._renew_statistics()

    def _averaged(self) -> list[keras.Model]:
        return [self.model.networks[name] for name in self.model.averaged]

    def evaluate(self) -> Evaluation:
        """Mean losses over all showers of the split, and what the model's judge finds."""
        sums: dict[str, float] = {}
        judge = self.model.judge(self.showers, self._manifest.geometry)
        batches = ordered_batches(
            self._folder, self._manifest, self._split, batch=_BATCH, decode=self.model.decode_judged
        )
        for number, batch in enumerate(batches):
            losses, made = self._evaluate(batch, tf.constant(number))
            for name, value in losses.items():
                sums[name] = sums.get(name, 0.0) + float(value)
            judge.add(batch, made)
        means = {name: value / self.showers for name, value in sums.items()}
        return Evaluation(with_total(means, self.model.weights), judge.found(), judge)

    def score(self, found: Evaluation) -> float | None:
        """What chooses among looks, the smaller the better; None leaves this one out."""
        return self.model.score(found.losses, found.found, self.showers)

    def _batch(self, batch: Batch, number: tf.Tensor) -> tuple[dict[str, tf.Tensor], Any]:
        losses, made = self.model.evaluate(batch, Draws.of(self._config.seed, _EVALUATION, number))
        return {name: tf.reduce_sum(value) for name, value in losses.items()}, made

    def _collect(self, batch: Batch, number: tf.Tensor) -> None:
        draws = Draws.of(self._config.seed, _EVALUATION, number).fold("statistics")
        with draws.active():
            self.model.exercise(batch, draws)

    def _renew_statistics(self) -> None:
        """Give the averaged networks the batch normalisation statistics of their weights, from the train split.

        Each batch leaves its own mean and variance; those of all are the mean of the means, and the mean of the
        variances with the variance of the means. As in training, a batch holds showers from all over the split.
        """
        layers = [
            layer for network in self._averaged() for layer in network.layers
            if isinstance(layer, keras.layers.BatchNormalization)
        ]  # fmt: skip
        if not layers:
            return
        for layer in layers:
            layer.momentum = 0.0  # which leaves the statistics of the last batch alone
        seen: list[list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]] = [[] for _ in layers]
        self._exercises = self._exercises or self._spread()
        for number, batch in enumerate(self._exercises):
            self._in_training(batch, tf.constant(number))
            for layer, collected in zip(layers, seen, strict=True):
                collected.append((layer.moving_mean.numpy(), layer.moving_variance.numpy()))
        for layer, collected in zip(layers, seen, strict=True):
            means, variances = (np.stack(values) for values in zip(*collected, strict=True))
            layer.moving_mean.assign(means.mean(axis=0))
            layer.moving_variance.assign(variances.mean(axis=0) + means.var(axis=0))

    def _spread(self) -> list[Batch]:
        """Batches, as like in size as can be, of showers from all over the train split."""
        every = -(-self._manifest.count("train") // _STATISTICS_SHOWERS)
        (chosen,) = ordered_batches(
            self._folder, self._manifest, "train", batch=_STATISTICS_SHOWERS, every=every,
            decode=self.model.decode_exercise,
        )  # fmt: skip
        batches = -(-len(next(iter(chosen.values()))) // _BATCH)
        return [{name: values[number::batches] for name, values in chosen.items()} for number in range(batches)]
