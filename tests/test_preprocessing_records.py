"""Records against TensorFlow's own: its Example, its TFRecord reader; and back to dense showers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from showers import SMALL_GEOMETRY, make_dataset, make_file, make_showers

from calopipe.showers.cells import Showers
from calopipe.showers.hits import Hits
from preprocessing import records
from preprocessing.reading import decode, decode_hits
from preprocessing.showers.encoding import encode


def _labels(showers: Showers, events: Sequence[int]) -> dict[str, Any]:
    labels = {"energy": showers.energy_gev, "theta": showers.theta_rad, "mtheta": showers.mtheta_rad}
    return {**labels, "event": np.array(events)}


def test_a_record_is_a_tensorflow_example() -> None:
    showers = make_showers(events=2)
    encoded = list(encode(Hits.of(showers.cells), _labels(showers, [7, 9])))
    example = tf.train.Example.FromString(encoded[1])
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
    assert records.index_type(256 * 256) == "uint16"
    assert records.index_type(256 * 256 + 1) == "int32"


def _encoded(showers: Showers) -> tf.Tensor:
    """The records (N,) of `showers`, as they are in the shards."""
    return tf.constant(list(encode(Hits.of(showers.cells), _labels(showers, range(len(showers))))))


@pytest.mark.parametrize("shape", [(17, 17, 5), (60, 60, 20)])  # indices of two and of four bytes
def test_lists_of_hits_are_the_dense_showers(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    """Scattered into empty showers they are those that were encoded and those of `decode`, in a graph as well."""
    geometry = replace(SMALL_GEOMETRY, shape=shape, file_unit_gev=0.04)
    manifest = make_dataset(tmp_path / "ds", make_file(tmp_path / "a.h5", events=12, geometry=geometry))
    showers = make_showers(events=12, geometry=geometry)
    encoded = _encoded(showers)
    dense = decode(encoded, manifest)
    assert dense.keys() == {"cells", "energy_gev", "theta_rad", "mtheta_rad"}
    in_graph = tf.function(lambda records: decode_hits(records, manifest))
    for decoded in (decode_hits(encoded, manifest), in_graph(encoded)):
        found = {name: tensor.numpy() for name, tensor in decoded.items()}
        assert found.keys() == {"cell", "value", "energy_gev", "theta_rad", "mtheta_rad"}
        assert found["cell"].dtype == np.int32
        assert found["cell"].shape == found["value"].shape
        scattered = np.zeros((12, geometry.cells), np.float32)
        row, column = np.nonzero(found["cell"] >= 0)
        assert len(np.unique(row * geometry.cells + found["cell"][row, column])) == len(row)  # no cell comes twice
        scattered[row, found["cell"][row, column]] = found["value"][row, column]
        np.testing.assert_array_equal(scattered.reshape(-1, *shape), dense["cells"])
        np.testing.assert_allclose(scattered.reshape(-1, *shape), showers.cells * 2)  # in units of 0.02 GeV
        assert (found["value"][found["cell"] < 0] == 0).all()
        assert (found["cell"][found["cell"] < 0] == -1).all()
        for label in ("energy_gev", "theta_rad", "mtheta_rad"):
            np.testing.assert_array_equal(found[label], getattr(showers, label))
            np.testing.assert_array_equal(dense[label], getattr(showers, label))


@pytest.mark.parametrize(
    ("hits", "width"), [([1, 0], 128), ([5, 128], 128), ([129, 0, 3], 256), ([400], 512), ([0, 0], 0)]
)
def test_lists_of_hits_are_as_long_as_the_longest_rounded_up(tmp_path: Path, hits: list[int], width: int) -> None:
    manifest = make_dataset(tmp_path / "ds", make_file(tmp_path / "a.h5", events=12))
    rng = np.random.default_rng(1)
    cells = np.zeros((len(hits), SMALL_GEOMETRY.cells), np.float32)
    for shower, number in zip(cells, hits, strict=True):
        shower[rng.choice(len(shower), number, replace=False)] = rng.uniform(0.1, 5.0, number)
    labels = (np.full(len(hits), value, np.float32) for value in (150.0, 1.5, 1.5))
    showers = Showers(cells.reshape(-1, *SMALL_GEOMETRY.shape), *labels)
    found = decode_hits(_encoded(showers), manifest)
    assert found["cell"].shape == found["value"].shape == (len(hits), width)
    for row, (shower, number) in enumerate(zip(cells, hits, strict=True)):
        np.testing.assert_array_equal(found["cell"][row, :number], np.flatnonzero(shower))  # padded at the end
        np.testing.assert_array_equal(found["value"][row, :number], shower[shower > 0])
        assert (found["cell"].numpy()[row, number:] == -1).all()
        assert (found["value"].numpy()[row, number:] == 0).all()
