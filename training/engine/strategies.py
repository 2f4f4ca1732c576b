"""Where a training runs: distribution strategies by name, precisions by name, and what the devices make of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import keras
import tensorflow as tf

from calopipe.errors import InputError
from training.configs import PRECISIONS
from training.nodes.workers import Cluster

logger = logging.getLogger(__name__)

_TPU_SUBLANES, _TPU_LANES = 8, 128  # the tile that a TPU stores the two minor dimensions of an array in


def make_strategy(name: str, cluster: Cluster | None = None, tpu: str = "local") -> tf.distribute.Strategy:
    """The strategy called `name`, one of `training.configs.STRATEGIES`.

    `mirrored` takes all GPUs of this machine (its CPUs without one), `multi-worker` those of all hosts of `cluster`,
    `tpu` the TPU that `tpu` names to TensorFlow's resolver. Raises InputError where there is no such thing.
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
                "--strategy multi-worker: nothing names the workers; give --workers N for processes on this machine, "
                "--hosts and --worker, or set TF_CONFIG"
            )
        try:
            return tf.distribute.MultiWorkerMirroredStrategy()  # reads TF_CONFIG
        except tf.errors.UnknownError as error:
            address = cluster.hosts[cluster.index]
            raise InputError(f"worker {cluster.index} cannot listen at {address}: {error.message}") from None
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"--strategy tpu: TensorFlow finds no TPU called {tpu!r}: {reason}") from None
    return tf.distribute.TPUStrategy(resolver)


def compiled_by_xla(strategy: tf.distribute.Strategy) -> bool:
    """Whether forward and backward pass are compiled by XLA: on GPUs. A TPU compiles the whole step of itself.

    Not on CPUs, where XLA's 3-D convolutions are tens of times slower than oneDNN's.
    """
    return not isinstance(strategy, tf.distribute.TPUStrategy) and "GPU" in strategy.extended.worker_devices[0]


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Layers that are made in the block compute in `precision`, one of `training.configs.PRECISIONS`.

    Every model is made in such a block. Whether GPUs may round the products of float32 is a setting of the process: it
    stays as `precision` says, also after the block, when the model is run.
    """
    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(PRECISIONS[precision])
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def warn_of_slow(precision: str) -> None:
    """Warn where the devices at hand have no fast form of `precision`."""
    if precision in {"tf32", "float16"} and not tf.config.list_physical_devices("GPU"):
        logger.warning("--precision %s pays on GPUs only, and there is none", precision)
    if precision == "bfloat16" and emulates_bfloat16():
        logger.warning("--precision bfloat16: this CPU has no such arithmetic and emulates it, slowly")


def emulates_bfloat16() -> bool:
    """Whether TensorFlow computes here on a CPU that has no bfloat16."""
    if tf.config.list_physical_devices("GPU") or tf.config.list_logical_devices("TPU"):
        return False
    cpu = Path("/proc/cpuinfo")
    known = cpu.read_text() if cpu.is_file() else ""
    return "avx512_bf16" not in known and "amx_bf16" not in known


def tpu_padding(model: keras.Model, batch: int) -> list[str]:
    """What a TPU pads: a line for each convolution and dense layer of `model` at `batch` showers a core.

    A TPU stores arrays in tiles of 8 x 128: XLA puts channels and batch there, whichever way round wastes less.
    The share is of stored numbers that are not padding, an estimate of how much of the matrix unit works.
    """
    lines = []
    for layer in model.layers:
        if not layer.trainable_weights or isinstance(layer, keras.layers.BatchNormalization):
            continue
        channels = layer.output.shape[-1]
        used = max(
            batch / _up(batch, first) * channels / _up(channels, second)
            for first, second in ((_TPU_SUBLANES, _TPU_LANES), (_TPU_LANES, _TPU_SUBLANES))
        )
        lines.append(f"{model.name} {layer.name}: batch {batch}, {channels} channels, {used:.0%} of a tile used")
    return lines


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
