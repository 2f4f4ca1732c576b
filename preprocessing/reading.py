"""The dataset as tensors of TensorFlow: reads the records that `preprocessing.records` writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from calopipe.errors import InputError
from calopipe.labels import DATASETS, PARTICLE, PHI
from calopipe.showers.cells import REFERENCE_UNIT_GEV
from preprocessing.manifest import Manifest
from preprocessing.records import index_type

# How much a replica shuffles together: 64 MiB of records, but at least 4 batches, and at most 10,000 records (60 MB in
# the Geant4 sample).
_SHUFFLE_BYTES, _SHUFFLE_BATCHES, _SHUFFLE_RECORDS = 64 * 2**20, 4, 10_000
_SHARDS_AT_ONCE = 16  # mixes the input files within a shuffle, and hides a remote file's latency
_PREFETCHED_STEPS = 2
# Features of a record that are labels, by the names that models know them by.
_LABELS = {"energy": "energy_gev", "theta": "theta_rad", "mtheta": "mtheta_rad", PHI: PHI, PARTICLE: PARTICLE}
_HITS_ROUNDED = 128  # the length of lists of hits is rounded up to a multiple of this


def steps_per_epoch(manifest: Manifest, split: str, batch: int) -> int:
    """Whole batches in one pass over `split`. An epoch leaves out the events that do not fill a batch."""
    events, items = manifest.count(split), manifest.geometry.items
    if events == 0:
        raise InputError(f"the {split} split holds no {items}; preprocess more input, or give another --split-file")
    if events < batch:
        raise InputError(
            f"the {split} split holds {events} {items}, too few for one batch of {batch}; give a smaller --batch or "
            "more input"
        )
    return events // batch


def shuffled_together(manifest: Manifest, batch: int) -> int:
    """How many records of the train split a replica shuffles together if it trains on batches of `batch` showers."""
    shards = [shard for shard in manifest.shards if shard.split == "train"]
    fitting = _SHUFFLE_BYTES * sum(shard.events for shard in shards) // sum(shard.bytes for shard in shards)
    return min(max(fitting, _SHUFFLE_BATCHES * batch), _SHUFFLE_RECORDS)


def decode_hits(records: tf.Tensor, manifest: Manifest) -> dict[str, tf.Tensor]:
    """Showers of a batch of serialised records (N,) as lists of their non-zero cells, in the graph.

    Returns `cell` (N, K), positions in the flattened (x, y, layer) array or -1 for no cell, `value` (N, K) in units of
    0.02 GeV, and the labels as `decode` does. K is the largest number of hits, rounded up, so there are few shapes.
    """
    kinds = {"index": tf.string, "value": tf.string, **dict.fromkeys(_LABELS, tf.float32), PARTICLE: tf.int64}
    stored = [name for name in kinds if name not in DATASETS or name in manifest.valid_range]
    parsed = tf.io.parse_example(records, {name: tf.io.FixedLenFeature([], kinds[name]) for name in stored})
    # the hits of all showers, one shower after the other
    index = tf.io.decode_raw(tf.strings.reduce_join(parsed["index"]), index_type(manifest.geometry.cells))
    value = tf.io.decode_raw(tf.strings.reduce_join(parsed["value"]), tf.float32)
    value *= manifest.geometry.file_unit_gev / REFERENCE_UNIT_GEV
    hits = tf.strings.length(parsed["value"]) // 4  # of each shower
    labels = {label: parsed[feature] for feature, label in _LABELS.items() if feature in stored}
    if PARTICLE in labels:
        labels[PARTICLE] = tf.cast(labels[PARTICLE], tf.int32)

    def padded(numbers: tf.Tensor, filler: Any) -> tf.Tensor:
        rows = tf.RaggedTensor.from_row_lengths(numbers, hits).to_tensor(filler)
        rows = tf.pad(rows, [[0, 0], [0, -tf.shape(rows)[1] % _HITS_ROUNDED]], constant_values=filler)
        return tf.ensure_shape(rows, [records.shape[0], None])

    return {"cell": padded(tf.cast(index, tf.int32), -1), "value": padded(value, 0.0), **labels}


def dense(hits: Mapping[str, tf.Tensor], shape: tuple[int, int, int]) -> tf.Tensor:
    """Dense showers (N, x, y, layer) of the `cell` and `value` (N, K) of `decode_hits`, on any device and under XLA.

    Every value is unchanged, as no cell of a shower comes twice. Lists of hits take a few per cent of the bytes of
    dense showers. So send lists to the device, and make them dense there, in `training.models.base.Model.view`.
    """
    cell, cells = hits["cell"], math.prod(shape)
    showers = cell.shape[0] or tf.shape(cell)[0]
    place = tf.where(cell < 0, -1, tf.range(showers)[:, None] * cells + cell)  # a negative place is left out
    flat = tf.math.unsorted_segment_sum(tf.reshape(hits["value"], [-1]), tf.reshape(place, [-1]), showers * cells)
    return tf.reshape(flat, [showers, *shape])


def decode(records: tf.Tensor, manifest: Manifest) -> dict[str, tf.Tensor]:
    """Dense showers of a batch of serialised records (N,), for the host.

    Returns `cells` (N, x, y, layer) in units of 0.02 GeV whatever the files' unit, `energy_gev` (N,), `theta_rad` (N,),
    `mtheta_rad` (N,), and the labels of `calopipe.labels` that the manifest names.
    """
    hits = decode_hits(records, manifest)
    labels = {name: values for name, values in hits.items() if name not in {"cell", "value"}}
    return {"cells": dense(hits, manifest.geometry.shape), **labels}


def decode_pairs(records: tf.Tensor, manifest: Manifest) -> dict[str, tf.Tensor]:
    """Pairs of a batch of serialised records (N,): the velocities `now` and `next`, (N, x, y, 2) in U.

    `next` is one interval after `now`. `solid` (N, x, y) is 1.0 in the obstacle and 0.0 elsewhere; `reynolds` is (N,).
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


Decode = Callable[[tf.Tensor, Manifest], Mapping[str, tf.Tensor]]


class TrainingSplit:
    """The train split of the dataset in `folder`. In every epoch it is divided anew among the replicas of a training.

    `decode` turns a batch of records into tensors, like the function of that name. If `static`, all lists of hits have
    one length, that of the split's largest shower, and XLA compiles only once.
    """

    def __init__(self, folder: Path, manifest: Manifest, *, decode: Decode = decode, static: bool = False) -> None:
        self._manifest, self._decode = manifest, decode
        longest = manifest.most_hits.get("train", 0) if static else 0
        self._longest = -(-longest // _HITS_ROUNDED) * _HITS_ROUNDED
        shards = [shard for shard in manifest.shards if shard.split == "train"]
        self._events = np.array([shard.events for shard in shards], dtype=np.int64)
        self._paths = [str(folder / shard.name) for shard in shards]

    def batches(
        self, *, batch: int, seed: int, step: int = 0, replicas: int = 1, worker: int = 0, workers: int = 1
    ) -> tf.data.Dataset:
        """The endless batches of this worker's replicas, from the training's step `step` on.

        In a step each replica has one batch, in turn. An epoch has as many whole steps as the split allows, and no
        shower twice. A replica's batches of `batch` showers are a function of (seed, epoch, replica, replicas) and of
        TensorFlow's global seed. So a run can be resumed exactly, on any number of workers. Elements are as in
        `decode`, with a static batch size.
        """
        steps = steps_per_epoch(self._manifest, "train", batch * replicas)
        first_epoch, start = divmod(step, steps)
        together = shuffled_together(self._manifest, batch)

        def of_replica(replica: int) -> tf.data.Dataset:
            def of_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
                order = tf.random.stateless_uniform([], [seed, epoch], 0, 2**31, tf.int64, "philox") + replica
                records = self._records(seed, epoch, replica, replicas)
                shuffled = records.shuffle(together, seed=order, reshuffle_each_iteration=False)
                # batches are not decoded yet, so it costs little to skip them
                whole = shuffled.batch(batch, drop_remainder=True).take(steps)
                return whole.skip(tf.where(epoch == first_epoch, tf.constant(start, tf.int64), 0))

            # one dataset for all epochs: the buffer of the next shuffle fills while the last batches are trained on
            return tf.data.Dataset.counter(first_epoch).flat_map(of_epoch)

        of_worker = range(worker * replicas // workers, (worker + 1) * replicas // workers)
        turns = tf.data.Dataset.range(len(of_worker)).repeat()
        batches = tf.data.Dataset.choose_from_datasets([of_replica(replica) for replica in of_worker], turns)
        decoded = batches.map(self._decoded, tf.data.AUTOTUNE, deterministic=True)
        # If the dataset could end, workers would ask each other at every step, and no shape would be static.
        endless = decoded.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return endless.prefetch(_PREFETCHED_STEPS * len(of_worker))

    def _decoded(self, records: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = dict(self._decode(records, self._manifest))
        if self._longest:
            for name, filler in (("cell", -1), ("value", 0.0)):
                if name in batch:
                    missing = self._longest - tf.shape(batch[name])[1]
                    longer = tf.pad(batch[name], [[0, 0], [0, missing]], constant_values=filler)
                    batch[name] = tf.ensure_shape(longer, [records.shape[0], self._longest])
        return batch

    def _records(self, seed: int, epoch: tf.Tensor, replica: int, replicas: int) -> tf.data.Dataset:
        """The serialised records of one replica: its share of the shards in this epoch's order, interleaved."""
        order = tf.random.experimental.stateless_shuffle(tf.range(len(self._events)), [seed, epoch], "philox")
        first, last = share(tf.gather(self._events, order), replica, replicas)
        stretches = tf.data.Dataset.from_tensor_slices((order, first, last)).filter(lambda _, low, high: low < high)
        return stretches.interleave(
            self._stretch, cycle_length=_SHARDS_AT_ONCE, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )

    def _stretch(self, shard: tf.Tensor, first: tf.Tensor, last: tf.Tensor) -> tf.data.Dataset:
        return tf.data.TFRecordDataset(tf.gather(self._paths, shard)).skip(first).take(last - first)


def share(events: tf.Tensor, replica: int, replicas: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Where in each shard the records of `replica` begin and end, (shards,) each, for shards of `events` (shards,).

    The shards, laid end to end, are cut into `replicas` equal parts. So a replica shares few shards with others.
    """
    ends = tf.cumsum(events)
    begins = ends - events
    low, high = (ends[-1] * number // replicas for number in (replica, replica + 1))
    return tf.clip_by_value(low - begins, 0, events), tf.clip_by_value(high - begins, 0, events)


def ordered_batches(
    folder: Path, manifest: Manifest, split: str, *, batch: int, every: int = 1, decode: Decode = decode
) -> tf.data.Dataset:
    """Batches of `split` in a fixed order: every event once, or one of `every` events. The last may be smaller."""
    records = ordered_records(folder, manifest, split, every=every)
    return records.batch(batch).map(lambda records: decode(records, manifest))


def ordered_records(folder: Path, manifest: Manifest, split: str, *, every: int = 1) -> tf.data.Dataset:
    """The serialised records of `split` in a fixed order: each record once, or one of `every` records."""
    names = [str(folder / shard.name) for shard in manifest.shards if shard.split == split]
    return tf.data.TFRecordDataset(names).shard(every, 0)
