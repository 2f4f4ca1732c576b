"""How the learning rate goes with the steps of a training."""

from __future__ import annotations

import math

import tensorflow as tf

from training.models.config import FitConfig

_END = 0.01  # what the falling schedules end at, as a share of the full learning rate


class LearningRate:
    """The learning rate of `config` over `total_steps` steps of `global_batch` showers each.

    It rises over `warm_up_steps` at least, whatever the config says.
    """

    def __init__(
        self,
        config: FitConfig,
        *,
        global_batch: int,
        total_steps: int,
        steps_an_epoch: int,
        warm_up_steps: int = 0,
    ) -> None:
        scale = global_batch / config.linear_scaling if config.linear_scaling else 1.0
        self.full = config.learning_rate * scale
        self._schedule = config.schedule
        self._warm_up = max(round(config.warm_up_epochs * steps_an_epoch), warm_up_steps)
        self._falling = max(total_steps - self._warm_up, 1)

    def __call__(self, done: tf.Tensor) -> tf.Tensor:
        """The rate of the step after so many that are done; a scalar, float32."""
        step = tf.cast(done, tf.float32)
        rising = (step + 1.0) / max(self._warm_up, 1)
        fallen = tf.clip_by_value((step - self._warm_up) / self._falling, 0.0, 1.0)
        if self._schedule == "cosine":
            falling = _END + (1.0 - _END) * 0.5 * (1.0 + tf.cos(math.pi * fallen))
        elif self._schedule == "exponential":
            falling = tf.pow(_END, fallen)
        else:
            falling = tf.ones_like(fallen)
        return self.full * tf.where(step < self._warm_up, rising, falling)
