"""What the replicas of a training exchange in a step: each function is called on all of them, and is one collective."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf


def total_over_replicas(value: tf.Tensor) -> tf.Tensor:
    """The sum of a tensor over the replicas."""
    here = tf.identity(value)  # on the replica's device, which the reduction asks for
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, here)


def summed(gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """Sums of `gradients` over the replicas."""
    if _replicas() == 1 or not gradients:
        return gradients
    with tf.name_scope("all_reduce"):
        packed = total_over_replicas(tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0))
        parts = tf.split(packed, [gradient.shape.num_elements() for gradient in gradients])
        return [tf.reshape(part, gradient.shape) for part, gradient in zip(parts, gradients, strict=True)]


def shared(scalars: list[tf.Tensor], networks: Sequence[keras.Model]) -> tf.Tensor:
    """Sums of `scalars` over the replicas, as a vector; gives all replicas the mean of the `networks`' statistics."""
    replicas = _replicas()
    if replicas == 1:
        return tf.stack(scalars)
    with tf.name_scope("all_reduce"):
        changing = [variable for network in networks for variable in statistics(network)]
        shares = [tf.reshape(variable.value, [-1]) / replicas for variable in changing]
        packed = total_over_replicas(
            tf.concat([tf.stack(scalars), *(tf.cast(share, tf.float32) for share in shares)], 0)
        )
        sums, *means = tf.split(packed, [len(scalars), *(share.shape[0] for share in shares)])
        for variable, mean in zip(changing, means, strict=True):
            variable.assign(tf.reshape(tf.cast(mean, variable.dtype), variable.shape))
        return sums


def statistics(network: keras.Model) -> list[keras.Variable]:
    """What a forward pass of `network` may change, such as the moving means of its batch normalisation.

    Weights that are frozen are none, nor are the numbers of the layers that hold them. Whole numbers, such as the state
    of a random generator, have no mean over replicas and are left out.
    """
    held = (v for layer in network._flatten_layers() if layer.trainable for v in layer._non_trainable_variables)
    return [variable for variable in held if keras.backend.is_float_dtype(variable.dtype)]


def _replicas() -> int:
    replicas: int = tf.distribute.get_replica_context().num_replicas_in_sync
    return replicas
