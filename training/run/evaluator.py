"""How good the model is at this moment: its losses and its judge's findings on a split."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from preprocessing.manifest import Manifest
from preprocessing.reading import ordered_records
from training.engine.exchange import averaged, total_over_replicas
from training.engine.step import State, with_total
from training.engine.strategies import compiled_by_xla, computes_on_processors, make_strategy, perhaps_compiled
from training.models.base import Batch, Judge, build, require_losses
from training.models.config import FitConfig
from training.models.randomness import Draws

BATCH = 32  # showers a replica
_EVALUATION = -1  # the step number for random numbers of evaluations: always the same noise, and of no training step


@dataclass(frozen=True)
class Evaluation:
    """What one evaluation gave: mean losses, what the judge found, the judge, which makes figures, and the seconds."""

    losses: dict[str, float]
    findings: dict[str, Any]
    judge: Judge
    seconds: float


class Evaluator:
    """A copy of the model in inference mode, which takes over the weights that an engine has trained.

    It evaluates one of `every` showers of `split`, `showers` in all: so many that an evaluation takes about the share
    of the time that the config allows. The replicas of `strategy`, by default one, share the work. Each worker has an
    Evaluator, and all workers call `evaluate` together.
    """

    def __init__(
        self,
        config: FitConfig,
        folder: Path,
        manifest: Manifest,
        split: str,
        strategy: tf.distribute.Strategy | None = None,
    ) -> None:
        self.config, self.manifest, self._folder, self._split = config, manifest, folder, split
        self._strategy = strategy = strategy or make_strategy("one-device")
        keras.utils.clear_session()
        with strategy.scope():
            self.model = build(config, manifest.geometry, manifest.valid_range)
        self._replicas: int = strategy.num_replicas_in_sync
        self._own_replicas = [int(number) for number in self._local(self._on_replicas(tf.constant))]
        self._workers = self._replicas // len(self._own_replicas)
        self.every = config.evaluated_one_of(
            train=manifest.count("train"),
            watched=manifest.count(split),
            replicas=self._replicas,
            cost=self.model.evaluation_cost,
        )
        self.showers = -(-manifest.count(split) // self.every)
        self._batch_showers = min(BATCH, max(self.showers, 1))
        if not computes_on_processors(strategy):  # on accelerators shapes must not change
            self.showers -= self.showers % self._batch_showers
        self._of_replica = perhaps_compiled(self._batch, compiled_by_xla(strategy))
        # a batch for each replica, in turn
        self._batches = tf.data.Dataset.zip(tuple(map(self._part, self._own_replicas)))
        # one trace for batches of any size and any number of hits: each further trace would take seconds
        signature = self._batches.element_spec, tf.TensorSpec([], tf.int32)
        self._evaluate = tf.function(self._of_replicas, input_signature=signature, autograph=False)
        self._total = tf.function(lambda values: strategy.run(total_over_replicas, args=(values,)), autograph=False)

    def take_over(self, state: State) -> None:
        """Copy the weights in `state`; where it has averages, these take the place of the weights."""
        for name, network in self.model.networks.items():
            for number, weight in enumerate(network.weights):
                weight.assign(state[f"network/{name}/{number}"])
        if self.config.average:
            for number, variable in enumerate(averaged(self.model)):
                variable.assign(state[f"average/{number}"])

    def evaluate(self) -> Evaluation:
        """Evaluate the model on the chosen showers: mean losses, and what its judge finds.

        A batch is the same, and has the same noise, for any number of replicas.
        """
        began = time.monotonic()
        judge = self.model.judge(self.showers, self.manifest.geometry, self._workers)
        batches = -(-self.showers // self._batch_showers)
        names: list[str] = []
        sums, rows = np.zeros((batches, 0)), np.zeros((self.showers, 0))  # losses of each batch, rows of each shower
        rounds = range(0, batches, self._replicas)
        for first, inputs in zip(rounds, self._batches.take(len(rounds)), strict=True):
            answers = self._evaluate(inputs, tf.constant(first))
            for replica, batch, (losses, made) in zip(self._own_replicas, inputs, self._local(answers), strict=True):
                number = first + replica
                if names and number >= batches:
                    continue  # a batch that came again, because each replica needs one
                features = judge.add(batch, made)
                if not names:
                    names = list(losses)
                    sums, rows = np.zeros((batches, len(names))), np.zeros((self.showers, features.shape[1]))
                if number < batches:
                    sums[number] = [losses[name] for name in names]
                    rows[number * self._batch_showers :][: len(features)] = features
        sums, rows = self._of_all_workers(sums), self._of_all_workers(rows)
        means = {name: sum(column) / self.showers for name, column in zip(names, sums.T.tolist(), strict=True)}
        losses = with_total(means, self.model.weights)
        return Evaluation(losses, judge.found(rows), judge, time.monotonic() - began)

    def score(self, evaluation: Evaluation) -> float | None:
        """The number that chooses among evaluations, the smaller the better; None leaves this evaluation out."""
        return self.model.score(evaluation.losses, evaluation.findings, self.showers)

    def _of_replicas(self, batches: tuple[Batch, ...], first: tf.Tensor) -> Any:
        """What each replica of this worker makes of its batch; `first` is the number of the first replica's batch."""
        arguments = self._on_replicas(lambda replica: (batches[self._own_replicas.index(replica)], first + replica))
        return self._strategy.run(self._of_replica, args=arguments)

    def _batch(self, batch: Batch, number: tf.Tensor) -> tuple[dict[str, tf.Tensor], Any]:
        losses, made = self.model.evaluate(batch, Draws.of(self.config.seed, _EVALUATION, number))
        require_losses(losses, self.model.weights, f"{type(self.model).__name__}.evaluate: ")
        return {name: tf.reduce_sum(value) for name, value in losses.items()}, made

    def _part(self, replica: int) -> tf.data.Dataset:
        """The batches of one `replica`, every n-th of all for n replicas. After the last one the first comes again."""
        records = ordered_records(self._folder, self.manifest, self._split, every=self.every)
        batches = records.take(self.showers).batch(
            self._batch_showers, drop_remainder=self.showers % self._batch_showers == 0
        )
        part = batches.repeat().shard(self._replicas, replica)
        return part.map(lambda chosen: self.model.decode_judged(chosen, self.manifest), tf.data.AUTOTUNE)

    def _on_replicas(self, value_of: Callable[[int], Any]) -> Any:
        """The value that `value_of` returns for each replica of this worker, by its number, as a strategy's value."""
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: value_of(int(context.replica_id_in_sync_group))
        )

    def _local(self, values: Any) -> tuple[Any, ...]:
        """The `values` of the replicas of this worker, one for each."""
        return self._strategy.experimental_local_results(values)

    def _of_all_workers(self, own: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The sum of the workers' arrays `own`, of one shape; at each place, all workers but one have 0."""
        if self._workers == 1 or not own.size:
            return own
        values = self._on_replicas(lambda replica: own if replica == self._own_replicas[0] else np.zeros_like(own))
        return self._local(self._total(values))[0].numpy()
