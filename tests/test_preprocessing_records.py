"""Records against TensorFlow's own: its Example, its TFRecord reader; and back to dense showers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from showers import SMALL_GEOMETRY, make_file, make_showers

from preprocessing import records
from preprocessing.dataset import Settings, read_manifest
from preprocessing.errors import InputError
from preprocessing.pipeline import discover, preprocess
from preprocessing.reading import decode, ordered_batches, steps_per_epoch, training_batches


def test_a_record_is_a_tensorflow_example() -> None:
    showers = make_showers(events=2)
    example = tf.train.Example.FromString(list(records.encode(showers, np.array([7, 9]), SMALL_GEOMETRY))[1])
    feature = example.features.feature
    dense = np.zeros(SMALL_GEOMETRY.cells, np.float32)
    index = np.frombuffer(feature["index"].bytes_list.value[0], "<u2")
    dense[index] = np.frombuffer(feature["value"].bytes_list.value[0], "<f4")
    np.testing.assert_array_equal(dense.reshape(SMALL_GEOMETRY.shape), showers.cells[1])
    assert feature["energy"].float_list.value == [showers.energy_gev[1]]
    assert feature["theta"].float_list.value == [showers.theta_rad[1]]
    assert feature["mtheta"].float_list.value == [showers.mtheta_rad[1]]
    assert feature["event"].int64_list.value == [9]


def test_frames_are_read_by_tensorflow(tmp_path: Path) -> None:
    lines = [b"", b"one", bytes(range(256)) * 300]
    (tmp_path / "a").write_bytes(b"".join(records.framed(line) for line in lines))
    assert list(tf.data.TFRecordDataset(str(tmp_path / "a")).as_numpy_iterator()) == lines


def test_index_type_counts_every_cell() -> None:
    assert records.index_type(replace(SMALL_GEOMETRY, shape=(256, 256, 1))) == "uint16"
    assert records.index_type(replace(SMALL_GEOMETRY, shape=(257, 256, 1))) == "int32"


@pytest.mark.parametrize("shape", [(17, 17, 5), (60, 60, 20)])  # indices of two and of four bytes
def test_decoding_gives_the_showers_back(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    geometry = replace(SMALL_GEOMETRY, shape=shape, file_unit_gev=0.04)
    path = make_file(tmp_path / "a.h5", events=12, geometry=geometry)
    files = discover([str(path)])
    manifest = preprocess(files, tmp_path / "ds", Settings())
    showers = files[0].read()
    for split in ("train", "validation", "test"):
        names = [str(tmp_path / "ds" / shard.name) for shard in manifest.shards if shard.split == split]
        for record in tf.data.TFRecordDataset(names) if names else []:
            event = tf.train.Example.FromString(record.numpy()).features.feature["event"].int64_list.value[0]
            found = decode(tf.stack([record, record]), manifest)
            for row in range(2):
                np.testing.assert_allclose(found["cells"][row], showers.cells[event] * 2)  # in units of 0.02 GeV
                assert found["energy_gev"][row] == showers.energy_gev[event]
                assert found["mtheta_rad"][row] == showers.mtheta_rad[event]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reading")
    paths = [make_file(folder / f"{seed}.h5", events=60, seed=seed) for seed in range(2)]
    preprocess(discover([str(path) for path in paths]), folder / "ds", Settings(shard_events=20))
    return folder / "ds"


def _energies(batches: tf.data.Dataset) -> list[list[float]]:
    return [batch["energy_gev"].numpy().tolist() for batch in batches]


def test_an_epoch_gives_every_shower_once_in_an_order_of_its_own(dataset: Path) -> None:
    manifest = read_manifest(dataset)
    every = {e for batch in _energies(ordered_batches(dataset, manifest, "train", batch=64)) for e in batch}
    assert len(every) == manifest.count("train")
    epochs = [
        _energies(training_batches(dataset, manifest, batch=10, seed=1, epoch=epoch)) for epoch in (0, 0, 1)
    ]  # fmt: skip
    assert epochs[0] == epochs[1] != epochs[2]
    seen = [energy for batch in epochs[0] for energy in batch]
    assert len(set(seen)) == len(seen) == 10 * steps_per_epoch(manifest, "train", 10)
    assert set(seen) <= every


def test_an_epoch_can_be_entered_at_any_step(dataset: Path) -> None:
    manifest = read_manifest(dataset)
    whole = _energies(training_batches(dataset, manifest, batch=10, seed=1, epoch=3))
    assert _energies(training_batches(dataset, manifest, batch=10, seed=1, epoch=3, start=4)) == whole[4:]


def test_workers_and_replicas_share_the_same_steps(dataset: Path) -> None:
    manifest = read_manifest(dataset)
    alone = _energies(training_batches(dataset, manifest, batch=20, seed=1, epoch=0))
    shares = [
        _energies(training_batches(dataset, manifest, batch=5, seed=1, epoch=0, replicas=4, worker=worker, workers=2))
        for worker in range(2)
    ]
    for step, batch in enumerate(alone):
        together = [energy for share in shares for part in share[2 * step : 2 * step + 2] for energy in part]
        assert sorted(together) == sorted(batch)


def test_too_few_showers_for_a_batch(dataset: Path) -> None:
    with pytest.raises(InputError, match="too few for one batch of 1000"):
        steps_per_epoch(read_manifest(dataset), "train", 1000)
