"""The dataset as tensors: the `tf.data` side of `preprocessing.records`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

from preprocessing.dataset import Manifest
from preprocessing.errors import InputError
from preprocessing.showers import REFERENCE_UNIT_GEV

# Records that are shuffled together: 60 MB of the Geant4 sample's sparse showers.
_SHUFFLE_RECORDS = 10_000


def steps_per_epoch(manifest: Manifest, split: str, batch: int) -> int:
    """Whole batches in one pass over `split`; what does not fill a batch waits for another epoch's shuffle."""
    steps = manifest.count(split) // batch
    if steps == 0:
        raise InputError(
            f"the {split} split holds {manifest.count(split)} showers, too few for one batch of {batch}; "
            "give a smaller --batch or more input"
        )
    return steps


def training_batches(
    folder: Path, manifest: Manifest, *, batch: int, seed: int, epoch: int, start: int = 0,
    replicas: int = 1, worker: int = 0, workers: int = 1,
) -> tf.data.Dataset:  # fmt: skip
    """One replica's batches, one after the other, of one epoch of the train split, from step `start` on.

    A step takes `replicas` batches of `batch` showers; `worker` of `workers` gets its share of them in turn. The order
    is a function of (seed, epoch) alone, so that a run that stops can go on as if it had not, and any number of
    workers sees the same steps. Elements are as in `decode`; shapes are static.
    """
    order = np.random.default_rng([seed, epoch]).permutation([s.name for s in manifest.shards if s.split == "train"])
    files = tf.data.Dataset.from_tensor_slices([str(folder / name) for name in order])
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE)
    records = records.shuffle(_SHUFFLE_RECORDS, seed=int(np.random.default_rng([seed, epoch, 1]).integers(2**31)))
    steps = steps_per_epoch(manifest, "train", batch * replicas)
    batches = records.batch(batch, drop_remainder=True).take(steps * replicas)
    batches = batches.skip(start * replicas).shard(workers, worker)  # undecoded, so that skipping costs little
    return batches.map(lambda chosen: decode(chosen, manifest), tf.data.AUTOTUNE, deterministic=True).prefetch(2)


def ordered_batches(folder: Path, manifest: Manifest, split: str, *, batch: int) -> tf.data.Dataset:
    """Every shower of `split` once, in a fixed order; the last batch may be smaller."""
    names = [str(folder / shard.name) for shard in manifest.shards if shard.split == split]
    return tf.data.TFRecordDataset(names).batch(batch).map(lambda records: decode(records, manifest))


def decode(records: tf.Tensor, manifest: Manifest) -> dict[str, tf.Tensor]:
    """Dense showers of a batch of serialised records (N,), in the graph: all records in one scatter.

    Gives `cells` (N, x, y, layer) in units of 0.02 GeV whatever the files' unit, `energy_gev` (N,), `theta_rad` (N,)
    and `mtheta_rad` (N,).
    """
    scalar = tf.io.FixedLenFeature([], tf.float32)
    blob = tf.io.FixedLenFeature([], tf.string)
    parsed = tf.io.parse_example(
        records, {"index": blob, "value": blob, "energy": scalar, "theta": scalar, "mtheta": scalar}
    )
    showers = records.shape[0] or tf.shape(records)[0]
    index = tf.io.decode_raw(tf.strings.reduce_join(parsed["index"]), manifest.index_type)
    value = tf.io.decode_raw(tf.strings.reduce_join(parsed["value"]), tf.float32)
    hits = tf.strings.length(parsed["value"]) // 4
    row = tf.repeat(tf.range(showers), hits)
    flat = tf.scatter_nd(
        tf.stack([row, tf.cast(index, tf.int32)], axis=1), value, tf.stack([showers, manifest.geometry.cells])
    )
    scale = manifest.geometry.file_unit_gev / REFERENCE_UNIT_GEV
    return {
        "cells": tf.reshape(flat, [showers, *manifest.geometry.shape]) * scale,
        "energy_gev": parsed["energy"],
        "theta_rad": parsed["theta"],
        "mtheta_rad": parsed["mtheta"],
    }
