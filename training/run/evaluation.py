"""How good the model is at this moment, on the split that watches the training; and the weights that are judged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from calopipe.showers.angle import measured_angle
from calopipe.showers.cells import Showers
from calopipe.showers.metric import LEAST_EVENTS, MetricBin, Profiles, metric
from preprocessing.dataset import Manifest
from preprocessing.reading import decode, decode_hits, ordered_batches
from training import models
from training.configs import FitConfig
from training.engine.step import State, with_total
from training.models.randomness import Draws

_BATCH = 32
_EVALUATION = -1  # the step number of the evaluation's draws: the same noise every time, and no training step's
_STATISTICS_SHOWERS = 1024  # of the train split, whose labels give the averaged generator its statistics
_SHOWN = 100  # showers that are kept to be drawn
# Of the energy, that a slice of a profile must hold to count in the metric. Those at the edges hold 0.5 % of it all
# together, and their relative errors would be 99.9 % of the figure.
_LEAST_SHARE = 1e-3


@dataclass(frozen=True)
class Evaluation:
    """What one look at the model gave: `metric` is that of `calopipe.showers.metric`; some showers to be drawn.

    `energy_sum` is the mean visible energy of the showers generated over that of the Monte Carlo of the same labels.
    """

    losses: dict[str, float]
    metric: dict[str, Any]
    energy_sum: float
    reference: Showers
    generated: Showers


class Evaluator:
    """A copy of the model in inference mode, outside any strategy, that takes over what an engine has trained.

    `split` is the one that watches; it must hold showers. `chosen_by` says what chooses among looks: the model's
    `chosen_by`, but the losses where the split is too small for the metric.
    """

    def __init__(self, config: FitConfig, folder: Path, manifest: Manifest, split: str) -> None:
        self._config, self._folder, self._manifest, self._split = config, folder, manifest, split
        keras.utils.clear_session()
        # momentum 0 leaves the statistics of the last batch alone, which is how new ones are collected
        self.model = models.build(replace(config, momentum=0.0), manifest.geometry)
        self._enough = manifest.count(split) >= LEAST_EVENTS
        self.chosen_by = self.model.chosen_by if self._enough else "losses"
        self._evaluate = tf.function(self._batch, reduce_retracing=True)
        self._in_training = tf.function(self._collect, reduce_retracing=True)
        self._labels: list[dict[str, tf.Tensor]] = []  # that statistics are collected with, read when first needed

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
        """Losses, weighted by showers, and metric of showers generated with the labels of every shower of the split."""
        sums: dict[str, float] = {}
        reference: list[Profiles] = []
        generated: list[Profiles] = []
        shown: list[tuple[npt.NDArray[Any], ...]] = []  # cells, energies, angles, generated cells
        every = -(-self._manifest.count(self._split) // _SHOWN)
        for number, batch in enumerate(self._batches(self._split)):
            losses, cells = self._evaluate(batch, tf.constant(number))
            for name, value in losses.items():
                sums[name] = sums.get(name, 0.0) + float(value)
            labels = batch["energy_gev"].numpy(), batch["theta_rad"].numpy()
            made = cells.numpy().astype(np.float32)
            reference.append(Profiles.of(batch["cells"].numpy(), *labels))
            generated.append(Profiles.of(made, *labels))
            kept = slice(-number * _BATCH % every, None, every)
            shown.append((batch["cells"].numpy()[kept], labels[0][kept], labels[1][kept], made[kept]))
        mine, theirs = _joined(reference), _joined(generated)
        bins = selection_bins(mine.energy_gev, mine.theta_rad)
        least = LEAST_EVENTS // 2 if self._enough else LEAST_EVENTS  # empty showers do not count; half of them may be
        return Evaluation(
            with_total({name: value / len(mine.energy_gev) for name, value in sums.items()}, self.model.weights),
            metric(mine, theirs, bins=bins, least_events=least, least_share=_LEAST_SHARE),
            float(theirs.along[2].sum() / mine.along[2].sum()),
            *_pair(*(np.concatenate(values) for values in zip(*shown, strict=True))),
        )

    def _batches(self, split: str) -> tf.data.Dataset:
        def decoded(records: tf.Tensor, manifest: Manifest) -> dict[str, tf.Tensor]:
            return {**decode(records, manifest), **self.model.decode(records, manifest)}

        return ordered_batches(self._folder, self._manifest, split, batch=_BATCH, decode=decoded)

    def _batch(self, batch: dict[str, tf.Tensor], number: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        losses, cells = self.model.evaluate(batch, Draws.of(self._config.seed, _EVALUATION, number))
        return {name: tf.reduce_sum(value) for name, value in losses.items()}, cells

    def _collect(self, batch: dict[str, tf.Tensor], number: tf.Tensor) -> None:
        draws = Draws.of(self._config.seed, _EVALUATION, number).fold("statistics")
        with draws.active():
            self.model.exercise(batch, draws)

    def _renew_statistics(self) -> None:
        """Give the averaged networks the batch normalisation statistics of their weights, from train labels.

        Each batch leaves its own mean and variance; those of all are the mean of the means, and the mean of the
        variances with the variance of the means. As in training, a batch holds showers from all over the split.
        """
        layers = [
            layer for network in self._averaged() for layer in network.layers
            if isinstance(layer, keras.layers.BatchNormalization)
        ]  # fmt: skip
        if not layers:
            return
        seen: list[list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]] = [[] for _ in layers]
        self._labels = self._labels or self._spread_labels()
        for number, batch in enumerate(self._labels):
            self._in_training(batch, tf.constant(number))
            for layer, collected in zip(layers, seen, strict=True):
                collected.append((layer.moving_mean.numpy(), layer.moving_variance.numpy()))
        for layer, collected in zip(layers, seen, strict=True):
            means, variances = (np.stack(values) for values in zip(*collected, strict=True))
            layer.moving_mean.assign(means.mean(axis=0))
            layer.moving_variance.assign(variances.mean(axis=0) + means.var(axis=0))

    def _spread_labels(self) -> list[dict[str, tf.Tensor]]:
        """Batches, as like in size as can be, of energies and angles from all over the train split."""

        def decoded(records: tf.Tensor, manifest: Manifest) -> dict[str, tf.Tensor]:
            hits = decode_hits(records, manifest)
            return {"energy_gev": hits["energy_gev"], "theta_rad": hits["theta_rad"]}

        every = -(-self._manifest.count("train") // _STATISTICS_SHOWERS)
        (labels,) = ordered_batches(
            self._folder, self._manifest, "train", batch=_STATISTICS_SHOWERS, every=every, decode=decoded
        )
        batches = -(-len(labels["energy_gev"]) // _BATCH)
        return [{name: values[number::batches] for name, values in labels.items()} for number in range(batches)]


def selection_bins(energy_gev: npt.NDArray[Any], theta_rad: npt.NDArray[Any]) -> list[MetricBin]:
    """Bins of energy and angle for the metric, as fine as the showers at hand allow: 3 x 3, 3 x 1, or one of all.

    The reference's bins, a tenth of the energies and a hundredth of the angles wide, are for tens of thousands of
    showers. These are of equal widths, and each of a finer grid must hold `LEAST_EVENTS` showers.
    """
    for energies, angles in ((3, 3), (3, 1)):
        bins = [
            MetricBin(energy, theta, energy_reach_gev=energy_reach, theta_reach_rad=theta_reach)
            for energy, energy_reach in _grid(energy_gev, energies)
            for theta, theta_reach in _grid(theta_rad, angles)
        ]
        counts = [
            np.sum(
                (abs(energy_gev - each.energy_gev) <= each.energy_reach_gev)
                & (abs(theta_rad - each.theta_rad) <= each.theta_reach_rad)
            )
            for each in bins
        ]
        if min(counts) >= LEAST_EVENTS:
            return bins
    return [MetricBin(0.0, 0.0, energy_reach_gev=math.inf, theta_reach_rad=math.inf)]


def _grid(values: npt.NDArray[Any], cells: int) -> Iterator[tuple[float, float]]:
    """Middle and reach of each of `cells` equal parts of the range of `values`."""
    low, width = float(values.min()), float(np.ptp(values)) / cells
    reach = width / 2 * (1 + 1e-6)  # labels are float32, and the ends belong to a bin
    return ((low + width * (number + 0.5), reach) for number in range(cells))


def _joined(parts: list[Profiles]) -> Profiles:
    x, y, layer = (np.concatenate([part.along[axis] for part in parts]) for axis in range(3))
    return Profiles(
        np.concatenate([part.energy_gev for part in parts]),
        np.concatenate([part.theta_rad for part in parts]),
        (x, y, layer),
        np.concatenate([part.angle_rad for part in parts]),
    )


def _pair(
    reference: npt.NDArray[Any], energy_gev: npt.NDArray[Any], theta_rad: npt.NDArray[Any], made: npt.NDArray[Any]
) -> Iterator[Showers]:
    return (Showers(cells, energy_gev, theta_rad, measured_angle(cells)) for cells in (reference, made))
