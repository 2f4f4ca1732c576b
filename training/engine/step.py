"""The machinery of a training step, for every model and every device: gradients, collectives, updates, state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from calopipe.errors import InputError
from preprocessing.manifest import Manifest
from preprocessing.reading import TrainingSplit, ordered_batches, steps_per_epoch
from training.engine.exchange import averaged, shared, summed
from training.engine.schedules import learning_rate
from training.engine.strategies import compiled_by_xla, computes_on_processors, perhaps_compiled
from training.models.base import LossTable, Model, Phase, build, require_losses
from training.models.config import FitConfig
from training.models.precision import warn_of_slow
from training.models.randomness import Draws
from training.models.weights import load_weights

State = dict[str, npt.NDArray[Any]]

# A model's constants are computed from at most so many showers, evenly spread over the train split, in such batches.
_ADAPTED_TO, _ADAPTED_AT_ONCE = 20_000, 256
# After a warm start the learning rate rises over so many steps, or over a quarter of the training if that is less. The
# first update of a new optimizer is up to three times the rate on every weight, and would undo what was learnt.
_WARM_UP_STEPS = 500
_TRACED = 10  # steps in a trace


class Engine:
    """A model under a strategy, one optimizer for each network, and the step that trains them.

    A step has one collective for each phase, which sums gradients. The collective of the last phase also sums the
    losses of all phases and averages the batch normalisation's statistics. So a checkpoint of one replica is a
    checkpoint of all. The model begins with the weights in the folder `warm_start`, if one is given. `compiled`
    overrides whether XLA compiles forward and backward pass. AutoGraph, which takes a quarter of the tracing time, is
    off: a model has no `if` or `for` over values of the graph.
    """

    def __init__(
        self,
        config: FitConfig,
        dataset: Path,
        manifest: Manifest,
        strategy: tf.distribute.Strategy,
        *,
        warm_start: Path | None = None,
        compiled: bool | None = None,
    ) -> None:
        self.config, self.strategy = config, strategy
        self.replicas: int = strategy.num_replicas_in_sync
        self.on_processors = computes_on_processors(strategy)
        self.global_batch = config.batch * self.replicas
        self.steps_an_epoch = steps_per_epoch(manifest, "train", self.global_batch)
        self.last_step = config.last_step(self.steps_an_epoch)
        self.showers = manifest.count("train")
        self._rate = partial(
            learning_rate, config, global_batch=self.global_batch, total_steps=self.last_step,
            steps_an_epoch=self.steps_an_epoch,
            warm_up_steps=min(_WARM_UP_STEPS, self.last_step // 4) if warm_start else 0,
        )  # fmt: skip
        self._rate_of_step = tf.zeros([])  # a tensor of the graph that is traced; all replicas have the same rate
        warn_of_slow(config.precision)
        keras.utils.clear_session()  # layers are numbered from the first again, so that equal models are equal files
        with strategy.scope():
            self.model = build(config, manifest.geometry, manifest.valid_range)
            trained = dict.fromkeys(phase.network for phase in self.model.phases)
            self.optimizers = {name: self._optimizer(name) for name in trained}
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
            self._reported = sum(len(phase.weights) for phase in self.model.phases)
            self._sums = tf.Variable(tf.zeros([self._reported]), trainable=False, name="sums")  # over the epoch
        compiled = compiled_by_xla(strategy) if compiled is None else compiled
        static = compiled or not self.on_processors  # a TPU compiles too
        self._train = TrainingSplit(dataset, manifest, decode=self.model.decode, static=static)
        every = -(-self.showers // _ADAPTED_TO)
        self.model.adapt(
            ordered_batches(dataset, manifest, "train", batch=_ADAPTED_AT_ONCE, every=every, decode=self.model.decode),
            manifest,
        )
        if warm_start is not None:
            load_weights(warm_start, self.model.networks)
        with strategy.scope():  # averages begin with what the model begins with
            begun = averaged(self.model) if config.average else []
            self._average = [tf.Variable(variable.value, trainable=False) for variable in begun]

        self.view = perhaps_compiled(self._make_view, compiled)
        backward = {phase.name: partial(self._backward, phase) for phase in self.model.phases}
        self.gradients = {name: perhaps_compiled(function, compiled) for name, function in backward.items()}
        self._run = tf.function(self._steps, autograph=False)
        self.has_run = False

    @property
    def step(self) -> int:
        """How many optimisation steps are done."""
        return int(self._step.numpy())

    def batches(self) -> Any:
        """The batches from the present step on, without end, spread over the replicas."""
        step = self.step

        def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
            return self._train.batches(
                batch=self.config.batch,
                seed=self.config.seed,
                step=step,
                replicas=context.num_replicas_in_sync,
                worker=context.input_pipeline_id,
                workers=context.num_input_pipelines,
            )

        return self.strategy.distribute_datasets_from_function(of_worker)

    def run(self, batches: Any, steps: int, *, stop: bool = False) -> tuple[npt.NDArray[np.float32], bool]:
        """Do `steps` steps on batches from the iterator `batches`, all in the graph.

        Returns the losses of the last step, which `table` names, and whether any worker said `stop`.
        """
        answer = self._run(batches, tf.constant(steps), tf.constant(float(stop))).numpy()
        self.has_run = True
        return answer[:-1], bool(answer[-1] > 0)

    def table(self, losses: npt.NDArray[Any]) -> LossTable:
        """The losses of a step by phase and name, with each phase's weighted total."""
        values = iter(losses.tolist())
        rows = {phase.name: {name: next(values) for name in phase.weights} for phase in self.model.phases}
        return {phase.name: with_total(rows[phase.name], phase.weights) for phase in self.model.phases}

    def take_sums(self) -> npt.NDArray[np.float32]:
        """The losses summed over the steps since the last call; begins new sums."""
        sums = self._sums.numpy().copy()
        self._sums.assign(tf.zeros_like(sums))
        return sums

    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return float(self._rate(self._step))

    def state(self) -> State:
        """A copy of every variable, by name: all that is needed to resume the training."""
        return {name: variable.numpy().copy() for name, variable in self._variables().items()}

    def restore(self, state: Mapping[str, npt.NDArray[Any]], origin: str) -> None:
        """Set all variables to `state`. InputError, which names `origin`: the state is of another model."""
        variables = self._variables()
        shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
        if shapes != {name: value.shape for name, value in state.items()}:
            raise InputError(f"{origin}: a state of another model; give another --output, or --overwrite")
        for name, variable in variables.items():
            variable.assign(state[name])

    def trace(self, board: Path | None) -> None:
        """Write TensorFlow's trace of ten steps to `board`, the log folder of TensorBoard, and undo the steps.

        All workers do the steps; workers without a `board` write nothing.
        """
        before, batches = self.state(), iter(self.batches())
        self.run(batches, 1)  # builds and compiles the graph, which is not part of a step
        with tf.profiler.experimental.Profile(str(board)) if board else nullcontext():
            self.run(batches, _TRACED)
        self.restore(before, "the state before")

    def _variables(self) -> dict[str, Any]:
        variables: dict[str, Any] = {"step": self._step, "sums": self._sums}
        groups: dict[str, Sequence[Any]] = {"average": self._average}
        groups |= {f"network/{name}": network.weights for name, network in self.model.networks.items()}
        groups |= {f"optimizer/{name}": optimizer.variables for name, optimizer in self.optimizers.items()}
        for group, members in groups.items():
            for number, member in enumerate(members):
                variables[f"{group}/{number}"] = member.value if isinstance(member, keras.Variable) else member
        return variables

    def _optimizer(self, network: str) -> keras.optimizers.Optimizer:
        # one tensor is the rate of all updates of a step: a schedule would be traced anew for every weight
        optimizer = self.model.optimizer(network, lambda: self._rate_of_step, self.showers)
        # The engine sums the gradients, in one collective; Keras would sum them again.
        optimizer._all_reduce_sum_gradients = lambda pairs: pairs
        if self.config.precision == "float16":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        optimizer.build(self.model.networks[network].trainable_variables)
        return optimizer

    def _steps(self, batches: Any, steps: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        def step(done: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return done + 1, self.step_on(next(batches), stop)

        return tf.while_loop(lambda done, _: done < steps, step, (0, tf.zeros([self._reported + 1])))[1]

    def step_on(self, batch: Any, stop: tf.Tensor) -> tf.Tensor:
        """One step on the batches of all replicas, in the graph; returns what `replica_step` returns."""
        per_replica = self.strategy.run(self.replica_step, args=(batch, stop))
        return self.strategy.experimental_local_results(per_replica)[0]

    def replica_step(self, batch: Mapping[str, tf.Tensor], stop: tf.Tensor) -> tf.Tensor:
        """Do all phases on one replica. Returns one vector: the mean losses over all replicas, and the sum of `stop`.

        Losses are divided by the global batch, so their sums over replicas are means.
        """
        view, key = self.view_of(batch)
        with tf.name_scope("optimizer"):
            self._rate_of_step = self._rate(self._step)
        trained = [self.model.networks[name] for name in self.optimizers]  # the weights of others do not change
        reported: list[tf.Tensor] = []
        for number, phase in enumerate(self.model.phases, 1):
            losses, gradients = self.gradients[phase.name](view, key)
            weights = self.model.networks[phase.network].trainable_variables
            # a weight on which no loss depends has no gradient, and is left as it is
            reached = [weight for weight, gradient in zip(weights, gradients, strict=True) if gradient is not None]
            gradients = [gradient for gradient in gradients if gradient is not None]
            reported += [tf.cast(loss, tf.float32) for loss in losses]
            if number < len(self.model.phases):
                gradients = summed(gradients)
            else:  # no forward pass, which would change statistics, follows in this step
                gradients, losses_and_stop = shared(gradients, [*reported, stop], trained)
            with tf.name_scope("optimizer"):
                self.optimizers[phase.network].apply(gradients, reached)
        with tf.name_scope("optimizer"):
            self._update_averages()
            self._sums.assign_add(losses_and_stop[:-1])
            self._step.assign_add(1)
        return losses_and_stop

    def view_of(self, batch: Mapping[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """What the phases of this step share on one replica, and the key of the replica's random numbers."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        key = Draws.of(self.config.seed, self._step, replica).key
        step = tf.convert_to_tensor(self._step)
        progress = {"step": step, "epoch": tf.cast(step, tf.float32) / self.steps_an_epoch}
        return {**self.view(batch, key), **progress}, key

    def _make_view(self, batch: Mapping[str, tf.Tensor], key: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.name_scope("forward"):
            return dict(self.model.view(batch, Draws(key).fold("view")))

    def _backward(
        self, phase: Phase, view: Mapping[str, tf.Tensor], key: tf.Tensor
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """The losses of `phase` that are reported, and the gradients for the network that the phase trains."""
        scaled = self.optimizers[phase.network].scale_loss  # scales in float16 only
        return gradients_of(self.model, phase, view, Draws(key), showers=self.global_batch, scaled=scaled)

    def _update_averages(self) -> None:
        """Update the averages of weights after a step."""
        if not self._average:
            return
        step = tf.cast(self._step, tf.float32)
        # with less decay at first: in a short training, the initial weights would remain in the average
        decay = tf.minimum(self.config.average, (1.0 + step) / (10.0 + step))
        for average, variable in zip(self._average, averaged(self.model), strict=True):
            average.assign_sub(tf.cast(1.0 - decay, average.dtype) * (average - variable.value))


def gradients_of(
    model: Model,
    phase: Phase,
    view: Mapping[str, tf.Tensor],
    draws: Draws,
    *,
    showers: int,
    scaled: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The losses of `phase` in `phase.weights`, divided by `showers`; and the gradients for the network that it trains.

    The gradients are of the weighted sum, `scaled`, of the losses whose weight is not 0. The gradient of a network's
    weight is None if this sum does not depend on it.
    """
    variables = [variable.value for variable in model.networks[phase.network].trainable_variables]
    draws = draws.fold(phase.name)
    with tf.GradientTape() as tape:
        with tf.name_scope("forward"), draws.active():
            losses = phase.losses(view, draws)
            require_losses(losses, phase.weights)
            reported = [tf.reduce_sum(losses[name]) / showers for name in phase.weights]
        weighted = zip(phase.weights.values(), reported, strict=True)
        total = scaled(tf.add_n([weight * loss for weight, loss in weighted if weight]))
    with tf.name_scope("backward"):
        return reported, tape.gradient(total, variables)


def with_total(losses: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """The weighted `total` of the `losses`, followed by the `losses`, by name."""
    return {"total": sum(weight * losses[name] for name, weight in weights.items()), **losses}
