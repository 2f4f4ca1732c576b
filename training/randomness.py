"""Random numbers that are a pure function of (seed, step, replica, purpose), so that a run can stop and go on."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_active: ContextVar[Draws] = ContextVar("draws")


class Draws:
    """A source of random tensors. Equal keys give equal numbers, on every device and in every process."""

    def __init__(self, key: tf.Tensor) -> None:
        self._key = key

    @classmethod
    def of(cls, seed: int, *counters: Any) -> Draws:
        """The source of `seed` and the `counters` (integers or integer tensors), such as step and replica."""
        key = tf.constant([seed, 0], tf.int32)
        for counter in counters:
            key = tf.random.fold_in(key, tf.cast(counter, tf.int32))
        return cls(key)

    def fold(self, purpose: str) -> Draws:
        """An independent source for `purpose`."""
        return Draws(tf.random.fold_in(self._key, zlib.crc32(purpose.encode()) & 0x7FFFFFFF))

    def normal(self, purpose: str, shape: Sequence[int]) -> tf.Tensor:
        """Standard normal numbers."""
        return tf.random.stateless_normal(shape, self.fold(purpose)._key)

    def uniform(self, purpose: str, shape: Sequence[int]) -> tf.Tensor:
        """Numbers uniform in [0, 1)."""
        return tf.random.stateless_uniform(shape, self.fold(purpose)._key)

    def kept(self, purpose: str, values: tf.Tensor, rate: float) -> tf.Tensor:
        """Dropout: values / (1 - rate), but zero with probability `rate`, cell by cell."""
        return _drop(values, tf.cast(self.fold(purpose)._key, tf.uint32), rate)

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
        return _active.get().kept(self.name, inputs, self.rate)


def _drop(values: tf.Tensor, key: tf.Tensor, rate: float) -> tf.Tensor:
    """Dropout with a mask that is a hash of `key` and a cell's number, drawn again on the way back, not kept."""

    @tf.custom_gradient
    def drop(values: tf.Tensor) -> tuple[tf.Tensor, Any]:
        return _masked(values, key, rate), lambda upstream: _masked(upstream, key, rate)

    return drop(values)


@tf.function(jit_compile=True)  # one pass over the values
def _masked(values: tf.Tensor, key: tf.Tensor, rate: float) -> tf.Tensor:
    cells = tf.reshape(tf.range(tf.size(values), dtype=tf.int32), tf.shape(values))
    bits = tf.cast(cells, tf.uint32) * np.uint32(0x9E3779B1) + key[0]
    for factor, word in ((0x85EBCA6B, key[1]), (0xC2B2AE35, key[0])):  # the rounds that end MurmurHash3
        bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, np.uint32(16))) * np.uint32(factor)
        bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, np.uint32(13))) + word
    bits = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, np.uint32(16)))
    kept = bits >= np.uint32(rate * 2**32)
    return tf.where(kept, values / (1.0 - rate), tf.zeros((), values.dtype))
