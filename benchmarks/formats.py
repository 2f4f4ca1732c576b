"""The record's form, by measurement: bytes a shower, writing, reading into dense batches of 64, exactness.

    python benchmarks/formats.py --input 'data/geant4/*.h5' [--quick]

Each form is written as TFRecords of `tf.train.Example` and read back by the graph that suits it; forms take turns, and
figures are medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import numpy as np
import tensorflow as tf

from calopipe import storage
from calopipe.errors import run_command
from calopipe.showers.cells import FloatArray

_BATCH = 64
_PASSES = 4  # over a file at a time, so that the start of a reading counts little

Parsed = dict[str, tf.Tensor]  # the features of a batch of records, (64,) strings each


@dataclass(frozen=True)
class Form:
    """`pack` makes the features of one flat shower (cells,), `place` and `value` give the hits of a batch back."""

    pack: Callable[[FloatArray], dict[str, bytes]]
    hits: Callable[[Parsed, int], tuple[tf.Tensor, tf.Tensor]] | None = None  # None: the value is the dense shower
    compression: str = ""


def _sparse(integer: str, real: str) -> Callable[[FloatArray], dict[str, bytes]]:
    def pack(cells: FloatArray) -> dict[str, bytes]:
        index = np.flatnonzero(cells != 0)
        return {"index": index.astype(integer).tobytes(), "value": _bytes_of(cells[index], real)}

    return pack


def _bytes_of(values: FloatArray, real: str) -> bytes:
    return values.astype(tf.as_dtype(real).as_numpy_dtype).tobytes()


def _deltas(cells: FloatArray) -> dict[str, bytes]:
    """Steps between positions as one byte each; 255 stands for a step of 255 without a hit."""
    index = np.flatnonzero(cells != 0)
    steps = np.diff(index, prepend=-1)
    jumps = (steps - 1) // 255
    deltas = np.full(len(steps) + jumps.sum(), 255, np.uint8)
    deltas[np.cumsum(jumps + 1) - 1] = (steps - 1) % 255
    return {"index": deltas.tobytes(), "value": cells[index].tobytes()}


def _bitmask(cells: FloatArray) -> dict[str, bytes]:
    return {"index": np.packbits(cells != 0, bitorder="little").tobytes(), "value": cells[cells != 0].tobytes()}


def _dense(cells: FloatArray) -> dict[str, bytes]:
    return {"index": b"", "value": cells.tobytes()}


def _by_index(integer: str, real: str) -> Callable[[Parsed, int], tuple[tf.Tensor, tf.Tensor]]:
    def hits(parsed: Parsed, cells: int) -> tuple[tf.Tensor, tf.Tensor]:
        index = tf.io.decode_raw(tf.strings.reduce_join(parsed["index"]), integer)
        counts = tf.strings.length(parsed["index"]) // tf.as_dtype(integer).size
        place = tf.repeat(tf.range(_BATCH) * cells, counts) + tf.cast(index, tf.int32)
        return place, tf.cast(_joined(parsed["value"], real), tf.float32)

    return hits


def _joined(values: tf.Tensor, real: str) -> tf.Tensor:
    if real == "bfloat16":  # which decode_raw does not know
        return tf.bitcast(tf.io.decode_raw(tf.strings.reduce_join(values), tf.uint16), tf.bfloat16)
    return tf.io.decode_raw(tf.strings.reduce_join(values), real)


def _by_deltas(parsed: Parsed, cells: int) -> tuple[tf.Tensor, tf.Tensor]:
    deltas = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(parsed["index"]), tf.uint8), tf.int32)
    lengths = tf.strings.length(parsed["index"])
    hit = deltas < 255
    reached = tf.cumsum(deltas + tf.cast(hit, tf.int32))
    before = tf.gather(tf.concat([[0], reached], 0), tf.cumsum(lengths, exclusive=True))
    place = reached - 1 + tf.repeat(tf.range(_BATCH) * cells - before, lengths)
    return tf.boolean_mask(place, hit), _joined(parsed["value"], "float32")


def _by_bitmask(parsed: Parsed, cells: int) -> tuple[tf.Tensor, tf.Tensor]:
    mask = tf.cast(tf.io.decode_raw(parsed["index"], tf.uint8), tf.int32)  # (64, cells / 8)
    bits = tf.bitwise.right_shift(mask[..., None], tf.range(8)) & 1
    place = tf.where(tf.reshape(bits, [_BATCH, -1])[:, :cells] > 0)
    return tf.cast(place[:, 0] * cells + place[:, 1], tf.int32), _joined(parsed["value"], "float32")


FORMS = {
    "sparse: uint16, float32 (chosen)": Form(_sparse("u2", "float32"), _by_index("uint16", "float32")),
    "the same, GZIP": Form(_sparse("u2", "float32"), _by_index("uint16", "float32"), "GZIP"),
    "the same, ZLIB": Form(_sparse("u2", "float32"), _by_index("uint16", "float32"), "ZLIB"),
    "sparse: uint8 deltas, float32": Form(_deltas, _by_deltas),
    "sparse: bitmask, float32": Form(_bitmask, _by_bitmask),
    "sparse: uint16, float16": Form(_sparse("u2", "float16"), _by_index("uint16", "float16")),
    "sparse: uint16, bfloat16": Form(_sparse("u2", "bfloat16"), _by_index("uint16", "bfloat16")),
    "dense: float32": Form(_dense),
    "dense: float32, GZIP": Form(_dense, compression="GZIP"),
}


def write(path: Path, form: Form, showers: FloatArray) -> None:
    options = tf.io.TFRecordOptions(form.compression) if form.compression else None
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for cells in showers:
            lists = {name: tf.train.BytesList(value=[value]) for name, value in form.pack(cells).items()}
            features = {name: tf.train.Feature(bytes_list=values) for name, values in lists.items()}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def read(path: Path, form: Form, cells: int, passes: int = 1) -> tf.data.Dataset:
    """Dense batches (64, cells) of `passes` over the file's records, in order."""
    blob = tf.io.FixedLenFeature([], tf.string)

    def decode(records: tf.Tensor) -> tf.Tensor:
        parsed = tf.io.parse_example(records, {"index": blob, "value": blob})
        if form.hits is None:
            return tf.io.decode_raw(parsed["value"], tf.float32)
        place, value = form.hits(parsed, cells)
        flat = tf.raw_ops.SparseToDense(
            sparse_indices=place,
            output_shape=[_BATCH * cells],
            sparse_values=value,
            default_value=0.0,
            validate_indices=False,
        )
        return tf.reshape(flat, [_BATCH, cells])

    records = tf.data.TFRecordDataset([str(path)] * passes, form.compression).batch(_BATCH, drop_remainder=True)
    return records.map(decode, tf.data.AUTOTUNE).prefetch(2)


def error(batches: tf.data.Dataset, showers: FloatArray) -> tuple[float, int]:
    """The largest relative error of a deposit, and how many of the non-zero ones became zero."""
    worst, lost = 0.0, 0
    for number, batch in enumerate(batches):
        true, found = showers[number * _BATCH : (number + 1) * _BATCH], batch.numpy()
        hit = true != 0
        if (found[~hit] != 0).any():
            raise SystemExit("a cell without energy was given some")
        lost += int((found[hit] == 0).sum())
        kept = hit & (found != 0)
        worst = max(worst, float(np.max(np.abs(found[kept] / true[kept] - 1.0))))
    return worst, lost


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument(
        "--input", nargs="+", default=["data/geant4/*.h5"], metavar="GLOB", help="(default %(default)s)"
    )
    command.add_argument("--quick", action="store_true", help="the first file alone, one repeat")
    options = command.parse_args()
    names = [str(path) for path in storage.expand(options.input)][: 1 if options.quick else 6]  # 3,000 showers: 800 MB
    stored = []
    for name in names:
        with h5py.File(name, "r") as file:
            stored.append(file["ECAL"][:].astype(np.float32))
    showers = np.concatenate(stored)
    showers = showers.reshape(len(showers), -1)
    writing: dict[str, list[float]] = {name: [] for name in FORMS}
    reading: dict[str, list[float]] = {name: [] for name in FORMS}
    print(f"{len(showers)} showers, {np.mean(showers != 0):.2%} of the cells hold energy\n")
    print(f"{'form':34} {'bytes':>8} {'write/s':>8} {'read/s':>8}  largest error, deposits lost")
    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as place:
        folder = Path(place)
        for _ in range(1 if options.quick else 3):
            for name, form in FORMS.items():
                began = time.perf_counter()
                write(folder / name, form, showers)
                wrote = time.perf_counter()
                count = sum(len(batch) for batch in read(folder / name, form, showers.shape[1], _PASSES))
                reading[name].append(count / (time.perf_counter() - wrote))
                writing[name].append(len(showers) / (wrote - began))
        for name, form in FORMS.items():
            size = (folder / name).stat().st_size / len(showers)
            worst, lost = error(read(folder / name, form, showers.shape[1]), showers)
            speed = f"{statistics.median(writing[name]):8.0f} {statistics.median(reading[name]):8.0f}"
            print(f"{name:34} {size:8.0f} {speed}  {f'{worst:.1g}, {lost}' if worst or lost else 'exact'}")


if __name__ == "__main__":
    run_command(main)
