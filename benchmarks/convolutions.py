"""How fast the 3DGAN trains here: whole steps of its fast networks against those of stock Keras layers.

    python benchmarks/convolutions.py --input 'data/geant4/*.h5' [--quick]

A step is the project's own, all four phases, on real showers through preprocessing and the training's reader. Forms
take their steps in turn, so that what else the machine does meets all alike; figures are medians. Shares of the peak
count the operations of the plain mathematics, 80 GFLOP an image and step, even where a form needs fewer, against a
large float32 matrix product, measured in the same turns. TF_ENABLE_ONEDNN_OPTS=0 in the environment shows what
TensorFlow does by itself on processors without AVX-512.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as the package training does, here before TensorFlow is loaded

import stock  # noqa: F401  which makes the model 3dgan-plain known
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from calopipe import storage
from calopipe.errors import run_command
from calopipe.events.splits import SplitRule
from calopipe.showers.selection import Selection
from preprocessing.manifest import Manifest
from preprocessing.pipeline import preprocess
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings
from training.configs import CONFIGS, named_config
from training.engine.step import Engine
from training.engine.strategies import make_strategy

_STEP_GFLOP = 80.0  # an image: one pass of the generator, two trainings each of it and of the discriminator
_MATRIX = 2048
_UNIT_GEV = 0.02
_COPIES = "Pad|Transpose|Concat|Pack|Unpack|Slice|Split|StridedSlice|Tile|Cast|Gather|Reshape|Broadcast"
# Classes of operations, by what their thread and name hold; the first that fits.
_CLASSES = {
    "input": "tf_data",
    "optimizer": "optimizer",
    "normalisation": "batch_normalization",
    "convolutions": "Conv[23]D",
    "matrix products": "MatMul|Einsum",
    "activations, biases, dropout": "Relu|BiasAdd|Sigmoid|Softplus|Tanh|dropout|_fusion",
    "padding, copies, casts": f":(_Mkl)?({_COPIES})",
}


@dataclass
class Form:
    """A way to carry out the step, and what it took so far, in seconds."""

    name: str
    config: str
    model: str
    batch: int
    steps: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)  # of all processors
    classes: list[Counter[str]] = field(default_factory=list)  # of the operations of the steps that were traced

    def start(self, folder: Path, manifest: Manifest) -> None:
        """Build the engine and take the first step, which traces it."""
        config = named_config(self.config, model=self.model, batch=self.batch)
        engine = Engine(config, folder, manifest, make_strategy("one-device"))
        self._batches: Any = iter(engine.batches())
        self._step = tf.function(
            lambda batch: engine.strategy.run(engine.replica_step, args=(batch, tf.constant(0.0))), autograph=False
        )
        self._step(next(self._batches)).numpy()

    def step(self) -> None:
        began, used = time.perf_counter(), time.process_time()
        batch = next(self._batches)
        waited = time.perf_counter()
        self._step(batch).numpy()
        self.waits.append(waited - began)
        self.steps.append(time.perf_counter() - began)
        self.used.append(time.process_time() - used)

    def traced_step(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            with tf.profiler.experimental.Profile(place):
                self.step()
            (trace,) = Path(place).rglob("*.xplane.pb")
            self.classes.append(seconds_by_class(trace))
        self.used.pop()  # the profiler's work is in it

    @property
    def rate(self) -> float:
        """Images a second."""
        return self.batch / statistics.median(self.steps)


def seconds_by_class(trace: Path) -> Counter[str]:
    """Wall seconds of the operations of TensorFlow's `trace` of a step, by class. Two of them may run at once."""
    space = xplane_pb2.XSpace()
    space.ParseFromString(trace.read_bytes())
    found: Counter[str] = Counter()
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = f"{line.name} {plane.event_metadata[event.metadata_id].name}"
                if re.search(r"[^:]:\w+$|_fusion", name):  # an operation, or what XLA made of several
                    kind = next((kind for kind, form in _CLASSES.items() if re.search(form, name)), "rest")
                    found[kind] += event.duration_ps * 1e-12
    return found


def shares(folder: Path, manifest: Manifest, batch: int, steps: int) -> None:
    """Print where the time of a step goes, by class of operation."""
    sizes = {"3dgan": batch, "fast": CONFIGS["fast"].batch}
    forms = [Form(name, name, CONFIGS[name].model, size) for name, size in sizes.items()]
    for form in forms:
        form.start(folder, manifest)
        form.step()  # while the input fills its buffers
        form.used.clear()
    for _ in range(steps):
        for form in forms:
            form.step()
            form.traced_step()
    print(f"\n| share of the time in operations | {' | '.join(f'{f.name}, batch {f.batch}' for f in forms)} |")
    print("|---|" + "---|" * len(forms))
    for kind in (*_CLASSES, "rest"):
        parts = [statistics.median(each[kind] / each.total() for each in form.classes) for form in forms]
        print(f"| {kind} | {' | '.join(f'{part:.1%}' for part in parts)} |")
    print(f"| processor s a step | {' | '.join(f'{statistics.median(form.used):.2f}' for form in forms)} |")


def product_seconds() -> float:
    """Seconds of one large matrix product in float32."""
    factor = tf.random.normal((_MATRIX, _MATRIX))
    began = time.perf_counter()
    tf.matmul(factor, factor).numpy()
    return time.perf_counter() - began


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument(
        "--input", nargs="+", default=["data/geant4/*.h5"], metavar="GLOB", help="(default %(default)s)"
    )
    command.add_argument(
        "--steps", type=int, default=5, metavar="N", help="timed steps of each form (default %(default)s)"
    )
    command.add_argument("--shares", action="store_true", help="only where the time of a step goes")
    command.add_argument("--quick", action="store_true", help="the first file alone, batch 4, two steps")
    options = command.parse_args()
    names = [str(name) for name in storage.expand(options.input)][: 1 if options.quick else None]
    batches, steps = ((4,), 2) if options.quick else ((8, 16), options.steps)

    kinds = [("plain Keras", "3dgan", "3dgan-plain"), ("ours", "3dgan", "3dgan")]
    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as place:
        folder = Path(place)
        selection = Selection(rule=SplitRule.parse(["train=*"]), cut_gev=10 * _UNIT_GEV)
        settings = Settings(selection, threshold_gev=1e-4 * _UNIT_GEV)
        manifest = preprocess(discover(names), folder, settings)
        shares(folder, manifest, batches[-1], steps)
        if options.shares:
            return
        products = [product_seconds() for _ in range(3)]
        print("\n| batch | form | images/s (lowest-highest) | times plain | of peak | waits for input |")
        print("|---|---|---|---|---|---|")
        for batch in batches:
            forms = [Form(*kind, batch) for kind in kinds]
            for form in forms:
                form.start(folder, manifest)
            for _ in range(steps):
                products.append(product_seconds())
                for form in forms:
                    form.step()
            peak = 2e-9 * _MATRIX**3 / statistics.median(products)
            for form in forms:
                print(
                    f"| {batch} | {form.name} | {form.rate:.2f} "
                    f"({batch / max(form.steps):.2f}-{batch / min(form.steps):.2f}) "
                    f"| {form.rate / forms[0].rate:.2f} | {form.rate * _STEP_GFLOP / peak:.0%} "
                    f"| {sum(form.waits) / sum(form.steps):.2%} |",
                    flush=True,
                )
    print(f"\nmatrix product of {_MATRIX} x {_MATRIX} in float32: {peak:.0f} GFLOP/s")


if __name__ == "__main__":
    run_command(main)
