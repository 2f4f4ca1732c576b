"""Pairs of frames as tensors of TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from preprocessing.manifest import Manifest


def decode_pairs(records: tf.Tensor, manifest: Manifest) -> dict[str, tf.Tensor]:
    """Pairs of a batch of serialised records (N,): velocities `now` and one interval later, `next`, (N, x, y, 2) in U.

    `solid` (N, x, y) is 1.0 in the obstacle and 0.0 elsewhere; `reynolds` (N,).
    """
    blob = tf.io.FixedLenFeature([], tf.string)
    parsed = tf.io.parse_example(
        records, {"now": blob, "next": blob, "solid": blob, "reynolds": tf.io.FixedLenFeature([], tf.float32)}
    )
    shape = manifest.geometry.shape
    frames = {name: tf.reshape(tf.io.decode_raw(parsed[name], tf.float32), [-1, *shape, 2]) for name in ("now", "next")}
    solid = tf.cast(tf.reshape(tf.io.decode_raw(parsed["solid"], tf.uint8), [-1, *shape]), tf.float32)
    pairs = {**frames, "solid": solid, "reynolds": parsed["reynolds"]}
    return {name: tf.ensure_shape(value, [records.shape[0], *value.shape[1:]]) for name, value in pairs.items()}
