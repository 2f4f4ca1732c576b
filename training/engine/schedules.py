"""How the learning rate depends on the step of a training."""

from __future__ import annotations

import math

import tensorflow as tf

from training.models.config import FitConfig

_END = 0.01  # the end of the falling schedules, as a share of the full learning rate


def learning_rate(
    config: FitConfig,
    done: tf.Tensor,
    *,
    global_batch: int,
    total_steps: int,
    steps_an_epoch: int,
    warm_up_steps: int = 0,
) -> tf.Tensor:
    """The learning rate of `config` for the next step, a float32 scalar, after `done` of `total_steps` steps.

    A step is of `global_batch` showers. The rate rises over at least `warm_up_steps`, whatever the config says.
    """
    full = config.learning_rate * (global_batch / config.linear_scaling if config.linear_scaling else 1.0)
    warm_up = max(round(config.warm_up_epochs * steps_an_epoch), warm_up_steps)
    step = tf.cast(done, tf.float32)
    rising = (step + 1.0) / max(warm_up, 1)
    fallen = tf.clip_by_value((step - warm_up) / max(total_steps - warm_up, 1), 0.0, 1.0)
    if config.schedule == "cosine":
        falling = _END + (1.0 - _END) * 0.5 * (1.0 + tf.cos(math.pi * fallen))
    elif config.schedule == "exponential":
        falling = tf.pow(_END, fallen)
    else:
        falling = tf.ones_like(fallen)
    return full * tf.where(step < warm_up, rising, falling)
