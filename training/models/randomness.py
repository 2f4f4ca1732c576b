"""Random numbers that are a pure function of where they are used, so that a run that stopped can be resumed.

In training and evaluation they are a function of (seed, step, replica, purpose): `Draws`. In generation they are a
function of (seed, shower, purpose), so a shower does not depend on the batch that it is made in: `ShowerDraws`.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_active: ContextVar[Draws] = ContextVar("draws")
_PHILOX = 1  # TensorFlow's number for the algorithm
_WORDS = 4  # words of 32 bits that Philox makes for one value of its counter


class Draws:
    """A source of random tensors. Equal keys give equal numbers in every process; code compiled by XLA gives others."""

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

    def kept(self, purpose: str, values: tf.Tensor, rate: float) -> tf.Tensor:
        """Dropout: each of `values` is 0 with probability `rate`, else it is divided by 1 - rate."""
        kept = self.uniform(purpose, tf.shape(values)) >= rate
        return tf.where(kept, values / (1.0 - rate), tf.zeros((), values.dtype))

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the `Dropout` layers that are called in the block draw from this source."""
        token = _active.set(self)
        try:
            yield
        finally:
            _active.reset(token)


class NoiseDraws(ABC):
    """Random numbers of showers, one row for each. A row does not depend on other rows."""

    @abstractmethod
    def uniform(self, purpose: str, shape: Sequence[Any]) -> tf.Tensor:
        """Numbers in [0, 1) of `shape`, (N, numbers), one row a shower."""

    def normal(self, purpose: str, shape: Sequence[Any]) -> tf.Tensor:
        """Standard normal numbers of `shape`, (N, ...), one row a shower, made of `uniform_for_normal` uniform ones."""
        numbers = math.prod(shape[1:])
        columns = uniform_for_normal(numbers)
        normal = tf.concat(box_muller(*tf.split(self.uniform(purpose, [shape[0], columns]), 2, 1)), axis=1)
        return tf.reshape(normal[:, :numbers], shape)


class GivenNoise(NoiseDraws):
    """Draws from given numbers: `noise` (N, numbers), uniform in [0, 1). A model draws only once."""

    def __init__(self, noise: tf.Tensor) -> None:
        self._noise = noise

    def uniform(self, purpose: str, shape: Sequence[Any]) -> tf.Tensor:  # noqa: ARG002  there is one purpose
        return self._noise[:, : shape[1]]


class ShowerDraws(NoiseDraws):
    """Random numbers of which row i is a pure function of (`seed`, `first` + i, purpose).

    They come from Philox4x32-10: the seed is its key, shower and purpose are its counter. The bits are equal on every
    device and under XLA, and the numbers made of them are equal up to float32 rounding. TensorFlow's own normal numbers
    are not: under XLA it makes other numbers of the same bits.
    """

    def __init__(self, seed: tf.Tensor, first: tf.Tensor) -> None:
        self._seed, self._first = seed, first

    def uniform(self, purpose: str, shape: Sequence[Any]) -> tf.Tensor:
        """Numbers in [0, 1) of `shape`, (N, numbers), multiples of 2^-24; one row a shower."""
        blocks = -(-shape[1] // _WORDS)  # of the counter, for each shower
        first = tf.cast(self._first, tf.uint64) * np.uint64(blocks)
        words = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[shape[0], blocks * _WORDS],
            key=[tf.cast(self._seed, tf.uint64)],
            counter=[first, tf.constant(zlib.crc32(purpose.encode()), tf.uint64)],
            alg=_PHILOX,
            dtype=tf.uint32,
        )
        return _uniform(words[:, : shape[1]])


def uniform_for_normal(numbers: int) -> int:
    """How many uniform numbers are needed for so many normal `numbers`."""
    return -(-numbers // _WORDS) * _WORDS


def box_muller(one: tf.Tensor, two: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Two tensors of standard normal numbers from two of uniform numbers, multiples of 2^-24 in [0, 1)."""
    # half a step is added, because log(0) is infinite; numbers of 32 bits could be rounded to 1
    radius = tf.sqrt(-2.0 * tf.math.log(one + 2.0**-25))
    angle = 2.0 * math.pi * (two + 2.0**-25)
    return radius * tf.cos(angle), radius * tf.sin(angle)


def hashed_uniform(keys: tf.Tensor, counters: tf.Tensor) -> tf.Tensor:
    """Numbers in [0, 1), (..., K), a pure function of `keys` (..., 2) and `counters` (..., K), int32 both.

    The bits come from MurmurHash3's final rounds, done twice. It is for cases where few of many possible numbers are
    wanted: a counter-based generator would make whole blocks.
    """
    one, two = tf.split(keys, 2, -1)
    bits = counters * np.int32(0x9E3779B1 - 2**32) + one
    for first, second, key in ((0x85EBCA6B, 0xC2B2AE35, two), (0xCC9E2D51, 0x1B873593, one)):
        bits = _shifted(bits, 16) * np.int32(first - 2**32)
        bits = _shifted(bits, 13) * np.int32(second - 2**32 if second >= 2**31 else second) + key
    return _uniform(tf.cast(_shifted(bits, 16), tf.uint32))


def _uniform(words: tf.Tensor) -> tf.Tensor:
    """Numbers in [0, 1) from the upper bits of `words` (uint32), as many as float32 holds."""
    return tf.cast(tf.bitwise.right_shift(words, np.uint32(8)), tf.float32) * 2.0**-24


def _shifted(bits: tf.Tensor, by: int) -> tf.Tensor:
    """`bits`, int32, xor the same bits shifted right by `by`."""
    moved = tf.bitwise.right_shift(tf.cast(bits, tf.uint32), np.uint32(by))
    return tf.bitwise.bitwise_xor(bits, tf.cast(moved, tf.int32))


class Dropout(keras.layers.Layer):
    """Dropout whose mask comes from the active `Draws`.

    Keras's own Dropout keeps a counter in a variable: checkpoints leave it out, and all replicas have the same one.
    """

    def __init__(self, rate: float, name: str) -> None:
        super().__init__(name=name)
        self.rate = rate

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training:
            return inputs
        return _active.get().kept(self.name, inputs, self.rate)
