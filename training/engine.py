"""The machinery of a training step, for every model and every device: strategy, gradients, updates, losses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy.typing as npt
import tensorflow as tf

from preprocessing.dataset import Manifest
from preprocessing.reading import TrainingSplit, ordered_batches
from training import models
from training.configs import FitConfig
from training.randomness import Draws

LossTable = dict[str, dict[str, float]]  # phase -> loss -> mean over the showers

_EVALUATION_BATCH = 32
_EVALUATION = -1  # the step number of the evaluation's draws: the same noise every time, and no training step's


def make_strategy(name: str) -> tf.distribute.Strategy:
    """The strategy called `name`: `one-device`, or `mirrored` for all GPUs of this machine (its CPUs without one)."""
    if name == "one-device":
        device = "/GPU:0" if tf.config.list_logical_devices("GPU") else "/CPU:0"
        return tf.distribute.OneDeviceStrategy(device)
    gpus = tf.config.list_logical_devices("GPU")
    return tf.distribute.MirroredStrategy([d.name for d in gpus or tf.config.list_logical_devices("CPU")])


class Engine:
    """A model under a strategy, one optimizer a network, and the step that trains them.

    `cache` holds the records of the train split in memory (`preprocessing.reading.TrainingSplit`).
    """

    def __init__(self, config: FitConfig, folder: Path, manifest: Manifest, *, cache: bool = False) -> None:
        self.config = config
        self.strategy = make_strategy(config.strategy)
        self.global_batch = config.batch * self.strategy.num_replicas_in_sync
        self._folder, self._manifest = folder, manifest
        self._train = TrainingSplit(folder, manifest, cache=cache)
        keras.utils.clear_session()  # layers are numbered from the first again, so that equal models are equal files
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        with self.strategy.scope():
            self.model = models.build(config, manifest.geometry)
            self.optimizers = {name: keras.optimizers.RMSprop(config.learning_rate) for name in self.model.networks}
            for name, network in self.model.networks.items():
                self.optimizers[name].build(network.trainable_variables)
        self._loss_names: dict[str, tuple[str, ...]] = {}  # filled when the step is traced
        self._distributed_step = tf.function(self._every_replica)
        self._evaluation = tf.function(self._evaluate, reduce_retracing=True)

    def checkpoint(self, epoch: tf.train.experimental.PythonState) -> tf.train.Checkpoint:
        """All that a run needs to go on as if it had not stopped: weights, optimizers, the step, the running epoch."""
        parts = {f"network_{name}": network for name, network in self.model.networks.items()}
        parts |= {f"optimizer_{name}": optimizer for name, optimizer in self.optimizers.items()}
        return tf.train.Checkpoint(step=self.step, epoch=epoch, **parts)

    def batches(self) -> Any:
        """The batches from the present step on, without end, spread over the replicas."""
        step = int(self.step)

        def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return self._train.batches(
                batch=self.config.batch, seed=self.config.seed, step=step,
                replicas=context.num_replicas_in_sync, worker=context.input_pipeline_id,
                workers=context.num_input_pipelines,
            )  # fmt: skip

        return self.strategy.distribute_datasets_from_function(of_worker)

    def train_step(self, batch: Any) -> tf.Tensor:
        """One step on a batch that `batches` gave; the mean losses, to be named by `table`."""
        losses = self._distributed_step(batch, self.step)
        self.step.assign_add(1)
        return losses

    def table(self, losses: npt.NDArray[Any]) -> LossTable:
        """The losses of `train_step` by phase and name, with each phase's weighted total."""
        rows: LossTable = {}
        values = iter(losses.tolist())
        for phase, names in self._loss_names.items():
            rows[phase] = self._with_total({name: next(values) for name in names})
        return rows

    def evaluate(self, split: str) -> dict[str, float]:
        """Mean losses of showers generated with the labels of every shower of `split`, in inference mode.

        Empty where the split holds no shower.
        """
        sums: dict[str, float] = {}
        showers = 0
        for number, batch in enumerate(ordered_batches(self._folder, self._manifest, split, batch=_EVALUATION_BATCH)):
            showers += int(batch["energy_gev"].shape[0])
            for name, value in self._evaluation(batch, tf.constant(number)).items():
                sums[name] = sums.get(name, 0.0) + float(value)
        return self._with_total({name: value / showers for name, value in sums.items()}) if showers else {}

    def _with_total(self, losses: dict[str, float]) -> dict[str, float]:
        weights = self.model.loss_weights
        return {"total": sum(weights.get(name, 0.0) * value for name, value in losses.items())} | losses

    def _evaluate(self, batch: Mapping[str, tf.Tensor], number: tf.Tensor) -> dict[str, tf.Tensor]:
        draws = Draws.of(self.config.seed, _EVALUATION, number)
        return {name: tf.reduce_sum(value) for name, value in self.model.evaluate(batch, draws).items()}

    def _every_replica(self, batch: Any, step: tf.Tensor) -> tf.Tensor:
        losses = self.strategy.run(self._one_replica, args=(batch, step))
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def _one_replica(self, batch: Mapping[str, tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """All phases on one replica. Losses are divided by the global batch, so sums over replicas are means."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        draws = Draws.of(self.config.seed, step, replica)
        view = self.model.view(batch, draws.fold("view"))
        reported = []
        for phase in self.model.phases:
            network = self.model.networks[phase.network]
            variables = network.trainable_variables
            phase_draws = draws.fold(phase.name)
            with tf.GradientTape() as tape, phase_draws.active():
                losses = {
                    name: tf.reduce_sum(value) / self.global_batch
                    for name, value in phase.losses(view, phase_draws).items()
                }
                total = sum(self.model.loss_weights[name] * value for name, value in losses.items())
            gradients = tape.gradient(total, [variable.value for variable in variables])
            self.optimizers[phase.network].apply(gradients, variables)  # sums the gradients over replicas
            self._loss_names[phase.name] = tuple(losses)
            reported += list(losses.values())
        return tf.stack(reported)  # one vector, so one reduction
