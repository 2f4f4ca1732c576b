"""The precision that a model computes in, by name, and whether the devices have a fast form of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import keras
import tensorflow as tf

from training.models.config import PRECISIONS

logger = logging.getLogger(__name__)

in_plain_forms: ContextVar[bool] = ContextVar("in_plain_forms", default=False)  # of layers that are made now


@contextmanager
def plain_forms() -> Iterator[None]:
    """Layers that are made in the block compute by the textbook's formula, not by a form that is fast on the device.

    The operations of a model are counted in these forms (`training.estimate.work`): they are the same on all devices.
    """
    token = in_plain_forms.set(True)
    try:
        yield
    finally:
        in_plain_forms.reset(token)


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Layers that are made in the block compute in `precision`, one of `training.models.config.PRECISIONS`.

    Every model is made in such a block. Whether GPUs may round the products of float32 is a setting of the process. It
    stays as `precision` says after the block, when the model runs.
    """
    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(PRECISIONS[precision])
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)


def full_precision() -> str:
    """The dtype of weights; images and answers have it too, where layers compute in a shorter dtype."""
    return keras.config.dtype_policy().variable_dtype


def warn_of_slow(precision: str) -> None:
    """Warn where the devices of this machine have no fast form of `precision`."""
    if precision in {"tf32", "float16"} and not tf.config.list_physical_devices("GPU"):
        logger.warning("--precision %s pays on GPUs only, and there is none", precision)
    if precision == "bfloat16" and emulates_bfloat16():
        logger.warning("--precision bfloat16: this CPU has no such arithmetic and emulates it, slowly")
    elif precision == "bfloat16" and on_processors() and not has_amx():
        logger.warning("--precision bfloat16: this CPU has it without AMX, and trains no faster than in float32")


def on_processors() -> bool:
    """Whether TensorFlow computes here without an accelerator."""
    return not tf.config.list_logical_devices("GPU") + tf.config.list_logical_devices("TPU")


def on_tpus() -> bool:
    """Whether TensorFlow computes here on TPUs."""
    return bool(tf.config.list_logical_devices("TPU"))


def emulates_bfloat16() -> bool:
    """Whether TensorFlow computes here on a CPU that has no bfloat16."""
    return on_processors() and "avx512_bf16" not in processor() and not has_amx()


def has_amx() -> bool:
    """Whether this machine's processors have AMX, which multiplies matrices of bfloat16 several times as fast."""
    return "amx_bf16" in processor()


def processor() -> str:
    """What Linux says of this machine's processors; nothing on other systems."""
    cpu = Path("/proc/cpuinfo")
    return cpu.read_text() if cpu.is_file() else ""
