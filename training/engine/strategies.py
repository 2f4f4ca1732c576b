"""Where a training runs: distribution strategies by name, whether XLA compiles for their devices, and the workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from calopipe.errors import InputError
from training.engine.exchange import total_over_replicas
from training.nodes.workers import Cluster


def make_strategy(name: str, cluster: Cluster | None = None) -> tf.distribute.Strategy:
    """The strategy called `name`, one of `training.models.config.STRATEGIES`.

    `mirrored` takes all GPUs of this machine (its CPUs if it has no GPU), `multi-worker` the GPUs of all hosts of
    `cluster`. `tpu` takes the chips of this machine only: TensorFlow reads the dataset where the chips are, and another
    machine does not see its files. Raises InputError where the devices or workers are missing.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if name == "one-device":
        return tf.distribute.OneDeviceStrategy("/GPU:0" if gpus else "/CPU:0")
    if name == "mirrored":
        devices = tf.config.list_logical_devices("GPU" if gpus else "CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    if name == "multi-worker":
        if cluster is None:
            raise InputError(
                "--strategy multi-worker: nothing names the workers; give --hosts and --worker, or set TF_CONFIG"
            )
        try:
            return tf.distribute.MultiWorkerMirroredStrategy()  # reads TF_CONFIG
        except tf.errors.UnknownError as error:
            address = cluster.hosts[cluster.index]
            raise InputError(f"worker {cluster.index} cannot listen at {address}: {error.message}") from None
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"--strategy tpu: TensorFlow finds no TPU in this machine: {reason}") from None
    return tf.distribute.TPUStrategy(resolver)


def computes_on_processors(strategy: tf.distribute.Strategy) -> bool:
    """Whether none of the strategy's devices is an accelerator."""
    return "CPU" in strategy.extended.worker_devices[0]


def compiled_by_xla(strategy: tf.distribute.Strategy) -> bool:
    """Whether XLA compiles forward and backward pass: on GPUs. A TPU compiles the whole step.

    On CPUs it does not: there XLA's 3-D convolutions are tens of times slower than oneDNN's.
    """
    return not isinstance(strategy, tf.distribute.TPUStrategy) and "GPU" in strategy.extended.worker_devices[0]


def perhaps_compiled(function: Callable[..., Any], compiled: bool) -> Callable[..., Any]:
    """`function`, which XLA compiles if `compiled` is true."""
    return tf.function(function, jit_compile=True, autograph=False) if compiled else function


class Team:
    """The workers of `cluster` under `strategy`; without a cluster, this process, which is `alone`.

    The `chief` writes and decides. `total`, `agree` and `wait` are collectives: all workers call them, in one order.
    """

    def __init__(self, strategy: tf.distribute.Strategy, cluster: Cluster | None = None) -> None:
        self.strategy = strategy
        self.alone = cluster is None or cluster.size == 1
        self.chief = cluster is None or cluster.chief
        self._total = tf.function(lambda value: strategy.run(total_over_replicas, args=(value,)), autograph=False)

    def total(self, value: float) -> float:
        """The sum of `value` over all replicas; all replicas of a worker have the same value."""
        totals = self.strategy.experimental_local_results(self._total(tf.constant(float(value))))
        return float(totals[0].numpy())

    def agree(self, answer: bool) -> bool:
        """Whether any worker's `answer` is yes."""
        return answer if self.alone else self.total(answer) > 0

    def wait(self) -> None:
        """Return once all workers have called this."""
        if not self.alone:
            self.total(0.0)
