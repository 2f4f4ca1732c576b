"""Random numbers that are a pure function of (seed, step, replica, purpose), so that a run can stop and go on."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf

_active: ContextVar[Draws] = ContextVar("draws")


class Draws:
    """A source of random tensors. Equal keys give equal numbers in every process; what XLA compiles draws others."""

    def __init__(self, key: tf.Tensor) -> None:
        self.key = key

    @classmethod
    def of(cls, seed: int, *counters: Any) -> Draws:
        """The source of `seed` and the `counters` (integers or integer tensors), such as step and replica."""
        key = tf.constant([seed, 0], tf.int32)
        for counter in counters:
            key = tf.random.fold_in(key, tf.cast(counter, tf.int32))
        return cls(key)

    def fold(self, purpose: str) -> Draws:
        """An independent source for `purpose`."""
        return Draws(tf.random.fold_in(self.key, zlib.crc32(purpose.encode()) & 0x7FFFFFFF))

    def normal(self, purpose: str, shape: Sequence[int]) -> tf.Tensor:
        """Standard normal numbers."""
        return tf.random.stateless_normal(shape, self.fold(purpose).key)

    def uniform(self, purpose: str, shape: Sequence[int]) -> tf.Tensor:
        """Numbers uniform in [0, 1)."""
        return tf.random.stateless_uniform(shape, self.fold(purpose).key)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the `Dropout` layers that are called in the block draw from this source."""
        token = _active.set(self)
        try:
            yield
        finally:
            _active.reset(token)


class Dropout(keras.layers.Layer):
    """Dropout whose mask comes from the active `Draws`.

    Keras's own keeps a counter in a variable, which checkpoints leave out and which is the same on every replica.
    """

    def __init__(self, rate: float, name: str) -> None:
        super().__init__(name=name)
        self.rate = rate

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training:
            return inputs
        kept = _active.get().uniform(self.name, inputs.shape) >= self.rate
        return keras.ops.where(kept, inputs / (1.0 - self.rate), 0.0)
