"""How fast a dataset is read: against HDF5 prepared at every epoch, against dense records, and against a training step.

    python benchmarks/reading.py --input 'data/geant4/*.h5' [--quick] [--device]

All forms hold the same showers, which is checked, and are read in turn, so that what else the machine does meets all
alike; figures are medians. Dense records take 260 kB a shower of disk, twice, while it runs. `--device` measures how
showers reach the training step instead: dense, or as lists of hits that are made dense on the device.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import h5py
import numpy as np
import tensorflow as tf

from calopipe import storage
from calopipe.errors import run_command
from calopipe.events.splits import SplitRule
from calopipe.showers.cells import FloatArray, Geometry
from calopipe.showers.selection import Selection
from preprocessing.manifest import Manifest
from preprocessing.pipeline import preprocess
from preprocessing.reading import TrainingSplit, decode, decode_hits, ordered_batches, steps_per_epoch
from preprocessing.reading import dense as dense_of_hits
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings
from training.configs import CONFIGS, DEFAULT, named_config
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.models.base import Batch
from training.models.config import register
from training.models.gan import GANConfig
from training.models.gan.model import ConditionalGAN
from training.models.gan.physics import CELL_POWER, image_of
from training.models.randomness import Draws

_BATCH = 64
_THRESHOLD, _CUT = 1e-4, 10.0  # the reference's, in units of 0.02 GeV
_UNIT_GEV = 0.02

Form = Callable[[], Iterable[FloatArray | tf.Tensor]]


def prepared(paths: list[Path], power: float) -> Iterator[FloatArray]:
    """What the reference's training does at every epoch: open, threshold, cut, power, batch."""
    for path in paths:
        with h5py.File(path, "r") as file:
            cells = file["ECAL"][:].astype(np.float32)
        cells[cells < _THRESHOLD] = 0
        cells = cells[cells.sum(axis=(1, 2, 3)) > _CUT]
        if power != 1:
            cells = cells**power
        for start in range(0, len(cells), _BATCH):
            yield cells[start : start + _BATCH]


def write_dense(folder: Path, showers: tf.data.Dataset) -> None:
    """The dense records of each shower, one file a form: its cells as a list of floats, and as bytes."""
    with (
        tf.io.TFRecordWriter(str(folder / "floats")) as floats,
        tf.io.TFRecordWriter(str(folder / "raw")) as raw,
    ):
        for batch in showers:
            for cells, energy in zip(batch["cells"].numpy(), batch["energy_gev"].numpy(), strict=True):
                label = tf.train.Feature(float_list=tf.train.FloatList(value=[energy]))
                values = tf.train.BytesList(value=[cells.tobytes()])
                packed = tf.train.Feature(bytes_list=values)
                # One value of bytes and a packed list of floats are the same on the wire; one by one they take minutes.
                floats_of = tf.train.FloatList.FromString(values.SerializeToString())
                listed = tf.train.Feature(float_list=floats_of)
                for writer, feature in ((floats, listed), (raw, packed)):
                    features = tf.train.Features(feature={"cells": feature, "energy": label})
                    writer.write(tf.train.Example(features=features).SerializeToString())


def dense(path: Path, shape: tuple[int, int, int]) -> tf.data.Dataset:
    """The showers of `write_dense`, unshuffled, which is to their advantage."""
    as_bytes = path.name == "raw"
    cells = tf.io.FixedLenFeature([], tf.string) if as_bytes else tf.io.FixedLenFeature(shape, tf.float32)
    features = {"cells": cells, "energy": tf.io.FixedLenFeature([], tf.float32)}

    def decode(records: tf.Tensor) -> tf.Tensor:
        found = tf.io.parse_example(records, features)["cells"]
        return tf.reshape(tf.io.decode_raw(found, tf.float32), [-1, *shape]) if as_bytes else found

    records = tf.data.TFRecordDataset(str(path), buffer_size=8 << 20)
    return records.batch(_BATCH).map(decode, tf.data.AUTOTUNE).prefetch(2)


def digests(batches: Iterable[FloatArray | tf.Tensor]) -> list[bytes]:
    return sorted(hashlib.sha1(cells.tobytes()).digest() for batch in batches for cells in np.asarray(batch))  # noqa: S324


def rate(form: Form) -> float:
    """Showers a second of one epoch: of the dataset in a training that runs, of others from the first file on."""
    began = time.perf_counter()
    showers = sum(int(batch.shape[0]) for batch in form())
    return showers / (time.perf_counter() - began)


def waiting(folder: Path, manifest: Manifest, steps: int) -> tuple[float, float, float]:
    """Share of the steps' time that the trainer waits for batches, seconds for the first one, and images a second."""
    engine = Engine(CONFIGS[DEFAULT], folder, manifest, make_strategy("one-device"))
    endless, stop = engine.batches(), tf.constant(0.0)
    # traced once, whatever the length of a batch's lists of hits
    step = tf.function(engine.step_on, input_signature=[endless.element_spec, tf.TensorSpec([])], autograph=False)
    step(next(iter(endless)), stop).numpy()
    began = time.perf_counter()
    batches = iter(engine.batches())
    next(batches)
    first = time.perf_counter() - began
    began, waited = time.perf_counter(), 0.0
    for _ in range(steps):
        asked = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - asked
        step(batch, stop).numpy()
    seconds = time.perf_counter() - began
    return waited / seconds, first, steps * engine.global_batch / seconds


class DenseFromHost(ConditionalGAN):
    """The 3DGAN given dense showers by the host."""

    def decode(self, records: tf.Tensor, manifest: Manifest) -> Batch:
        return decode(records, manifest)

    def view(self, batch: Batch, draws: Draws) -> Batch:
        labels = self._labels(batch, batch["cells"])
        return labels | {"image": image_of(batch["cells"]), "fake": self._made(labels, draws, training=False)}


@register("3dgan-from-host")
@dataclass(frozen=True, kw_only=True)
class FromHostConfig(GANConfig):
    def build(self, geometry: Geometry) -> DenseFromHost:
        model = self.with_values({"model": "3dgan"}).build(geometry)
        return DenseFromHost(model.generator, model.discriminator)


def to_the_device(folder: Path, manifest: Manifest, batch: int, repeats: int) -> None:
    """Print, for both ways, what travels to the device for a shower, and what it costs to have it dense there."""
    shape, device = manifest.geometry.shape, make_strategy("one-device").extended.worker_devices[0]
    ways: dict[str, tuple[Callable[..., Batch], Callable[[Batch], tf.Tensor]]] = {
        "dense": (decode, lambda given: given["cells"]),
        "lists of hits": (decode_hits, lambda given: dense_of_hits(given, shape)),
    }
    batches, sums, sizes = {}, {}, {}
    for name, (decoded, made) in ways.items():
        source = TrainingSplit(folder, manifest, decode=decoded, static=True)
        batches[name] = iter(source.batches(batch=batch, seed=1))
        sums[name] = tf.function(lambda given, made=made: tf.reduce_sum(made(given), [1, 2, 3]))
        first = next(batches[name])
        sizes[name] = sum(values.numpy().nbytes for values in first.values()) / batch
        with tf.device(device):
            sums[name](first).numpy()
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name in ways:
            time.sleep(0.5)  # in which what was read ahead of the other way ends
            processor, began = time.process_time(), time.perf_counter()
            for _ in range(20):
                with tf.device(device):
                    sums[name](next(batches[name])).numpy()
            spent = (time.process_time() - processor, time.perf_counter() - began)
            costs[name].append((spent[0] / 20 / batch, spent[1] / 20 / batch))
    for name, found in costs.items():
        processor, wall = (statistics.median(each) * 1e6 for each in zip(*found, strict=True))
        print(
            f"batch {batch:3}, {name:14} {sizes[name]:8.0f} bytes a shower to {device}; decoded, copied, made dense "
            f"and summed in {processor:.0f} us of processors, {wall:.0f} us of time a shower"
        )


def step_ratio(folder: Path, manifest: Manifest, batch: int, repeats: int) -> None:
    """Print the processor time of a step of the 3DGAN: one that makes its showers dense, and one that is given them."""
    steps, batches = [], []
    spent: tuple[list[float], list[float]] = [], []
    for model in ("3dgan", "3dgan-from-host"):
        config = named_config("3dgan", model=model, batch=batch)
        engine = Engine(config, folder, manifest, make_strategy("one-device"))
        batches.append(iter(engine.batches()))
        signature = [batches[-1].element_spec, tf.TensorSpec([])]
        steps.append(tf.function(engine.step_on, input_signature=signature, autograph=False))
        steps[-1](next(batches[-1]), tf.constant(0.0)).numpy()
    for repeat in range(repeats):
        for number in (0, 1) if repeat % 2 else (1, 0):
            given = next(batches[number])
            began = time.process_time()
            steps[number](given, tf.constant(0.0)).numpy()
            spent[number].append(time.process_time() - began)
    pairs = ", ".join(f"{one:.2f}/{other:.2f}" for one, other in zip(*spent, strict=True))
    ratio = statistics.median(spent[0]) / statistics.median(spent[1])
    print(
        f"3dgan, batch {batch}: processor seconds of a step, dense showers made in it / given to it: {pairs}; "
        f"ratio of the medians {ratio:.3f}"
    )


def options_given() -> argparse.Namespace:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument(
        "--input", nargs="+", default=["data/geant4/*.h5"], metavar="GLOB", help="(default %(default)s)"
    )
    command.add_argument(
        "--repeats", type=int, default=5, metavar="N", help="passes of each form (default %(default)s)"
    )
    command.add_argument("--quick", action="store_true", help="the first file alone, one repeat, a few steps")
    command.add_argument("--device", action="store_true", help="how showers reach the training step")
    return command.parse_args()


def main() -> None:
    options = options_given()
    names = [str(name) for name in storage.expand(options.input)][: 1 if options.quick else None]
    repeats, steps = (1, 10) if options.quick else (options.repeats, 60)

    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as place:
        folder = Path(place)
        selection = Selection(rule=SplitRule.parse(["train=*"]), cut_gev=_CUT * _UNIT_GEV)
        settings = Settings(selection, threshold_gev=_THRESHOLD * _UNIT_GEV)
        manifest = preprocess(discover(names), folder, settings)
        if options.device:
            to_the_device(folder, manifest, 16, repeats)
            to_the_device(folder, manifest, 96, repeats)
            step_ratio(folder, manifest, 4, repeats)
            return
        paths = [Path(name) for name in names]
        write_dense(folder, ordered_batches(folder, manifest, "train", batch=_BATCH))
        split = TrainingSplit(folder, manifest)
        per_epoch = steps_per_epoch(manifest, "train", _BATCH)
        running = iter(split.batches(batch=_BATCH, seed=1))

        def ours() -> Iterator[tf.Tensor]:
            return (batch["cells"] for batch in itertools.islice(running, per_epoch))

        def filled() -> tf.data.Dataset:
            numbers = tf.data.Dataset.range(per_epoch)
            return numbers.map(lambda n: tf.fill([_BATCH, *shape], tf.cast(n, tf.float32)), tf.data.AUTOTUNE).prefetch(
                2
            )

        expected = digests(prepared(paths, 1.0))
        ordered = (batch["cells"] for batch in ordered_batches(folder, manifest, "train", batch=_BATCH))
        shape = manifest.geometry.shape
        others = {"dataset": ordered, "floats": dense(folder / "floats", shape), "raw": dense(folder / "raw", shape)}
        for name, batches in others.items():
            if digests(batches) != expected:
                raise SystemExit(f"{name}: holds other showers than the HDF5 files")

        forms: dict[str, Form] = {
            "dataset": ours,
            "the limit: dense memory, filled": filled,
            "dataset, then the power 0.85": lambda: (tf.pow(cells, CELL_POWER) for cells in ours()),
            "HDF5 at every epoch": lambda: prepared(paths, CELL_POWER),
            "HDF5, without the power": lambda: prepared(paths, 1.0),
            "dense records, float list": lambda: dense(folder / "floats", shape),
            "dense records, raw bytes": lambda: dense(folder / "raw", shape),
        }
        rates: dict[str, list[float]] = {name: [] for name in forms}
        began = time.perf_counter()
        next(ours())
        print(f"the first batch takes {time.perf_counter() - began:.2f} s, TensorFlow's own start included")
        rate(ours)
        for _ in range(repeats):
            for name, form in forms.items():
                rates[name].append(rate(form))
        medians = {name: statistics.median(found) for name, found in rates.items()}
        targets = {"HDF5 at every epoch": 50, "dense records, float list": 3, "dense records, raw bytes": 3}
        showers = len(expected)
        print(f"\n{showers} showers, {repeats} passes of each form\n")
        print(f"{'form':30} {'showers/s':>10} {'lowest':>8} {'highest':>8}  dataset is faster by (target)")
        for name, median in medians.items():
            target = f" ({targets[name]})" if name in targets else ""
            low, high = min(rates[name]), max(rates[name])
            print(f"{name:30} {median:10.0f} {low:8.0f} {high:8.0f}  {medians['dataset'] / median:.1f}{target}")
        bytes_ours = sum(shard.bytes for shard in manifest.shards)
        bytes_dense = (folder / "raw").stat().st_size
        print(
            f"\nbytes a shower: dataset {bytes_ours / showers:.0f}, dense {bytes_dense / showers:.0f}: "
            f"1/{bytes_dense / bytes_ours:.1f} (target 1/30)"
        )
        share, first, images = waiting(folder, manifest, min(steps, showers // CONFIGS[DEFAULT].batch))
        print(
            f"training, config {DEFAULT}, {images:.0f} images/s: waits {share:.2%} of the time (target under 1 %), "
            f"and once {first:.2f} s for the first batch"
        )


if __name__ == "__main__":
    run_command(main)
