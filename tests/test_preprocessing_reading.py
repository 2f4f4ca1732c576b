"""Reading for training: every shower once, in a reproducible order, for any number of readers and any first step."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from showers import SMALL_GEOMETRY, make_dataset, make_file, make_showers, upright

from calopipe.errors import InputError
from calopipe.showers.cells import Showers
from calopipe.showers.hits import Hits
from preprocessing import records
from preprocessing.dataset import read_manifest
from preprocessing.manifest import Manifest, Shard
from preprocessing.reading import (
    TrainingSplit,
    decode,
    decode_hits,
    dense,
    ordered_batches,
    share,
    shuffled_together,
    steps_per_epoch,
)
from preprocessing.showers.encoding import encode


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with six shards of the train split, of about fourteen showers each."""
    folder = tmp_path_factory.mktemp("reading")
    paths = [make_file(folder / f"{seed}.h5", events=60, seed=seed) for seed in range(2)]
    make_dataset(folder / "ds", *paths, shard_events=20)
    return folder / "ds"


@pytest.fixture(scope="module")
def manifest(dataset: Path) -> Manifest:
    return read_manifest(dataset)


@pytest.fixture(scope="module")
def split(dataset: Path, manifest: Manifest) -> TrainingSplit:
    return TrainingSplit(dataset, manifest)


def _energies(batches: tf.data.Dataset, count: int = -1) -> list[tuple[float, ...]]:
    """The energies of the showers in each of the first `count` batches; energies identify showers."""
    return [tuple(batch["energy_gev"].numpy().tolist()) for batch in batches.take(count)]


@pytest.fixture(scope="module")
def every_train(dataset: Path, manifest: Manifest) -> list[float]:
    """The showers of the train split in the order of the shards."""
    return [e for batch in _energies(ordered_batches(dataset, manifest, "train", batch=64)) for e in batch]


def test_an_epoch_gives_every_shower_once_in_an_order_of_its_own(
    every_train: list[float], manifest: Manifest, split: TrainingSplit
) -> None:
    assert len(set(every_train)) == len(every_train) == manifest.count("train")
    steps = steps_per_epoch(manifest, "train", 10)
    found = _energies(split.batches(batch=10, seed=1), 3 * steps)
    assert found == _energies(split.batches(batch=10, seed=1), 3 * steps)
    assert found != _energies(split.batches(batch=10, seed=2), 3 * steps)
    epochs = [found[epoch * steps : (epoch + 1) * steps] for epoch in range(3)]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    for epoch in epochs:
        seen = [energy for batch in epoch for energy in batch]
        assert len(set(seen)) == len(seen) == 10 * steps
        assert set(seen) <= set(every_train)


def test_a_split_without_showers_is_told_of(manifest: Manifest) -> None:
    others = tuple(shard for shard in manifest.shards if shard.split != "train")
    with pytest.raises(InputError, match="the train split holds no showers; preprocess more input"):
        steps_per_epoch(replace(manifest, shards=others), "train", 1)


def test_a_replica_gets_other_showers_in_every_epoch(manifest: Manifest, split: TrainingSplit) -> None:
    """The shards have another order in each epoch, so each of two replicas sees all showers in a few epochs."""
    steps = steps_per_epoch(manifest, "train", 20)
    found = _energies(split.batches(batch=10, seed=1, replicas=2, worker=0, workers=2), 5 * steps)
    seen = [{e for batch in found[epoch * steps : (epoch + 1) * steps] for e in batch} for epoch in range(5)]
    assert max(map(len, seen)) <= manifest.count("train") / 2
    assert len(set.union(*seen)) > 0.8 * manifest.count("train")


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_training_can_be_entered_at_any_step(manifest: Manifest, split: TrainingSplit, replicas: int) -> None:
    steps = steps_per_epoch(manifest, "train", 10 * replicas)
    whole = _energies(split.batches(batch=10, seed=1, replicas=replicas), 2 * steps * replicas)
    for step in (steps - 1, steps, steps + 1):
        rest = split.batches(batch=10, seed=1, step=step, replicas=replicas)
        assert _energies(rest, (2 * steps - step) * replicas) == whole[step * replicas :]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_replicas_share_an_epoch_whatever_the_workers(manifest: Manifest, split: TrainingSplit, workers: int) -> None:
    """Replica r gets the same batches in one process as in many, each worker's replicas taking turns."""
    replicas, steps = 4, steps_per_epoch(manifest, "train", 20)
    own, reading = replicas // workers, {"batch": 5, "seed": 1, "replicas": replicas}
    expected = [_energies(split.batches(**reading, worker=each, workers=replicas), steps) for each in range(replicas)]
    seen = [energy for batches in expected for batch in batches for energy in batch]
    assert len(set(seen)) == len(seen)
    for worker in range(workers):
        found = _energies(split.batches(**reading, worker=worker, workers=workers), steps * own)
        for local in range(own):
            assert found[local::own] == expected[worker * own + local]


@pytest.mark.parametrize("replicas", [1, 2, 3, 7])
def test_shares_are_equal_stretches_of_the_shards_end_to_end(replicas: int) -> None:
    events = np.array([3, 1, 14, 0, 5, 2])
    records = [(shard, event) for shard, count in enumerate(events) for event in range(count)]
    found = []
    for replica in range(replicas):
        stretches = enumerate(zip(*(edges.numpy() for edges in share(events, replica, replicas)), strict=True))
        own = [(shard, event) for shard, (first, last) in stretches for event in range(first, last)]
        assert len(own) in (25 // replicas, 25 // replicas + 1)
        found += own
    assert found == records


def test_a_replica_opens_its_own_shards_alone(
    dataset: Path, manifest: Manifest, split: TrainingSplit, tmp_path: Path
) -> None:
    """Of three replicas and six shards of similar size, the middle one needs three at most; others may be missing."""
    train = [shard.name for shard in manifest.shards if shard.split == "train"]
    assert len(train) == 6
    needed, reading = 0, {"batch": 2, "seed": 1, "replicas": 3, "worker": 1, "workers": 3}
    steps = steps_per_epoch(manifest, "train", 6)
    whole = _energies(split.batches(**reading), steps)
    for name in train:
        shutil.copytree(dataset, tmp_path / "less", dirs_exist_ok=True)
        (tmp_path / "less" / name).unlink()
        try:
            assert _energies(TrainingSplit(tmp_path / "less", manifest).batches(**reading), steps) == whole
        except tf.errors.NotFoundError:
            needed += 1
    assert 2 <= needed <= 3


@pytest.mark.parametrize("every", [3, 7])
def test_one_of_so_many_showers_in_the_order_of_all(
    dataset: Path, manifest: Manifest, every_train: list[float], every: int
) -> None:
    """The first of every three showers, counted through the shards. All batches but the last are full."""
    batches = _energies(ordered_batches(dataset, manifest, "train", batch=4, every=every))
    assert [energy for batch in batches for energy in batch] == every_train[::every]
    assert {len(batch) for batch in batches[:-1]} == {4}


@pytest.mark.parametrize(("compiled", "static"), [(False, False), (True, False), (True, True)])
def test_dense_showers_are_those_of_loops_over_the_hits(compiled: bool, static: bool) -> None:
    """An empty shower, a full one, one whose list is full and not in order, and some whose lists have free places."""
    shape, rng = (3, 4, 2), np.random.default_rng(1)
    hits = [0, 24, 1, 7, 23, 12]
    cell, value = np.full((6, 24), -1, np.int32), np.zeros((6, 24), np.float32)
    expected = np.zeros((6, 24), np.float32)
    for shower, number in enumerate(hits):
        cell[shower, :number] = rng.permutation(24)[:number]
        value[shower, :number] = rng.lognormal(0, 9, number)
        for place, deposit in zip(cell[shower, :number], value[shower, :number], strict=True):
            expected[shower, place] = deposit
    length = 24 if static else None
    lists = {"cell": tf.TensorSpec([6, length], tf.int32), "value": tf.TensorSpec([6, length], tf.float32)}
    made = tf.function(lambda lists: dense(lists, shape), input_signature=[lists], jit_compile=compiled)
    np.testing.assert_array_equal(made({"cell": cell, "value": value}), expected.reshape(6, *shape))
    nothing = {"cell": cell[:, :0], "value": value[:, :0]}  # K of a batch of empty showers
    np.testing.assert_array_equal(dense(nothing, shape), np.zeros((6, *shape)))


def test_the_manifest_knows_the_largest_shower_of_each_split(dataset: Path, manifest: Manifest) -> None:
    for split in ("train", "validation", "test"):
        cells = np.concatenate([batch["cells"] for batch in ordered_batches(dataset, manifest, split, batch=64)])
        assert manifest.most_hits[split] == (cells > 0).sum((1, 2, 3)).max() > 0


def test_shapes_are_static_and_lists_of_hits_have_one_length_where_they_must(dataset: Path, manifest: Manifest) -> None:
    length = -(-manifest.most_hits["train"] // 128) * 128
    alike = TrainingSplit(dataset, manifest, decode=decode_hits, static=True).batches(batch=5, seed=1)
    showers = TrainingSplit(dataset, manifest).batches(batch=5, seed=1)
    labels = dict.fromkeys(("energy_gev", "theta_rad", "mtheta_rad"), (5,))
    lists = {"cell": (5, length), "value": (5, length)}
    for batches, expected in ((alike, lists), (showers, {"cells": (5, *manifest.geometry.shape)})):
        assert {name: tuple(spec.shape) for name, spec in batches.element_spec.items()} == expected | labels
    shorter = TrainingSplit(dataset, manifest, decode=decode_hits).batches(batch=5, seed=1)
    for batch, other in zip(alike.take(20), shorter.take(20), strict=True):
        for name, values in other.items():
            begun = tuple(slice(length) for length in values.shape)
            np.testing.assert_array_equal(batch[name][begun], values)
        assert (batch["cell"].numpy()[:, other["cell"].shape[1] :] == -1).all()
        assert (batch["value"].numpy()[:, other["value"].shape[1] :] == 0).all()
    earlier = TrainingSplit(dataset, replace(manifest, most_hits={}), decode=decode_hits, static=True)
    unknown = earlier.batches(batch=5, seed=1)
    assert unknown.element_spec["cell"].shape.as_list() == [5, None]


@pytest.mark.parametrize(
    ("record_bytes", "batch", "records"),
    [
        (5_900, 64, 10_000),  # the Geant4 sample's, of which 64 MiB hold 11,374
        (20_000, 64, 3_355),
        (390_234, 16, 171),  # all of 51 x 51 x 25 cells hit, six bytes each
        (390_234, 96, 384),  # four batches
        (5_900, 4_000, 10_000),
    ],
)
def test_a_shuffle_takes_so_many_bytes_and_not_so_many_records(
    manifest: Manifest, record_bytes: int, batch: int, records: int
) -> None:
    """Only records of the train split count: records of other splits may be larger."""
    made = ("train", 1_000_000, record_bytes), ("test", 9_000, 7 * record_bytes), ("train", 11, record_bytes)
    shards = [Shard("", split, events, events * size, "") for split, events, size in made]
    found = shuffled_together(replace(manifest, shards=tuple(shards)), batch)
    assert found == records
    assert found * record_bytes <= max(64 * 2**20, 4 * batch * record_bytes)


def test_index_type_counts_every_cell() -> None:
    assert records.index_type(256 * 256) == "uint16"
    assert records.index_type(256 * 256 + 1) == "int32"


def _encoded(showers: Showers) -> tf.Tensor:
    """The records (N,) of `showers`, as in the shards."""
    labels = {"energy": showers.energy_gev, "theta": showers.theta_rad, "mtheta": showers.mtheta_rad}
    return tf.constant(list(encode(Hits.of(showers.cells), labels | {"event": np.arange(len(showers.energy_gev))})))


@pytest.mark.parametrize("shape", [(17, 17, 5), (60, 60, 20)])  # indices of two and of four bytes
def test_showers_are_those_that_were_encoded(manifest: Manifest, shape: tuple[int, int, int]) -> None:
    geometry = replace(SMALL_GEOMETRY, shape=shape, file_unit_gev=0.04)
    showers = make_showers(events=12, geometry=geometry)
    decoded = decode(_encoded(showers), replace(manifest, geometry=geometry))
    assert decoded.keys() == {"cells", "energy_gev", "theta_rad", "mtheta_rad"}
    np.testing.assert_allclose(decoded["cells"], showers.cells * 2)  # in units of 0.02 GeV
    for label in ("energy_gev", "theta_rad", "mtheta_rad"):
        np.testing.assert_array_equal(decoded[label], getattr(showers, label))


@pytest.mark.parametrize(
    ("hits", "width"), [([1, 0], 128), ([5, 128], 128), ([129, 0, 3], 256), ([400], 512), ([0, 0], 0)]
)
def test_lists_of_hits_are_as_long_as_the_longest_rounded_up(manifest: Manifest, hits: list[int], width: int) -> None:
    rng = np.random.default_rng(1)
    cells = np.zeros((len(hits), SMALL_GEOMETRY.cells), np.float32)
    for shower, number in zip(cells, hits, strict=True):
        shower[rng.choice(len(shower), number, replace=False)] = rng.uniform(0.1, 5.0, number)
    found = decode_hits(_encoded(upright(cells.reshape(-1, *SMALL_GEOMETRY.shape))), manifest)
    assert found["cell"].shape == found["value"].shape == (len(hits), width)
    for row, (shower, number) in enumerate(zip(cells, hits, strict=True)):
        np.testing.assert_array_equal(found["cell"][row, :number], np.flatnonzero(shower))  # padded at the end
        np.testing.assert_array_equal(found["value"][row, :number], shower[shower > 0])
        assert (found["cell"].numpy()[row, number:] == -1).all()
        assert (found["value"].numpy()[row, number:] == 0).all()
