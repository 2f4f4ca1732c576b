"""What the replicas of a training exchange in a step. The functions are collectives: all replicas call them."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from training.models.base import Model


def total_over_replicas(value: tf.Tensor) -> tf.Tensor:
    """The sum of a tensor over the replicas."""
    on_device = tf.identity(value)  # the reduction needs it on the replica's device
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, on_device)


def summed(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Sums of `tensors`, all of one type, over the replicas."""
    if tf.distribute.get_replica_context().num_replicas_in_sync == 1 or not tensors:
        return tensors
    with tf.name_scope("all_reduce"):
        packed = total_over_replicas(tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0))
        parts = tf.split(packed, [tensor.shape.num_elements() for tensor in tensors])
        return [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def shared(
    gradients: list[tf.Tensor], scalars: list[tf.Tensor], networks: Sequence[keras.Model]
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Sums of `gradients`, and of `scalars` as a vector. Sets the `networks`' statistics to the mean over replicas."""
    replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    if replicas == 1:
        return gradients, tf.stack(scalars)
    changing = [variable for network in networks for variable in statistics(network)]
    sent = [*gradients, tf.stack(scalars), *(variable.value / replicas for variable in changing)]
    received = summed([tf.cast(tensor, sent[0].dtype) for tensor in sent])
    sums, *means = received[len(gradients) :]
    for variable, mean in zip(changing, means, strict=True):
        variable.assign(tf.cast(mean, variable.dtype))
    return received[: len(gradients)], tf.cast(sums, tf.float32)


def statistics(network: keras.Model) -> list[keras.Variable]:
    """What a forward pass of `network` may change, such as the moving means of its batch normalisation.

    Frozen weights are left out, and so are all numbers of frozen layers. Whole numbers, such as the state of a random
    generator, have no mean over replicas and are left out too.
    """
    variables = (v for layer in network._flatten_layers() if layer.trainable for v in layer._non_trainable_variables)
    return [variable for variable in variables if keras.backend.is_float_dtype(variable.dtype)]


def averaged(model: Model) -> list[keras.Variable]:
    """What the config's `average` averages: the trained weights and the `statistics` of the networks that the model
    names in `averaged`. Statistics belong to the weights that made them, so both are averaged alike (Cai et al., arXiv
    2101.08482).
    """
    networks = [model.networks[name] for name in model.averaged]
    return [variable for network in networks for variable in (*network.trainable_variables, *statistics(network))]
