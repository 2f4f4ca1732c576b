"""How long a shower of a likelihood model takes a core: the C++ library, ONNX Runtime and TensorFlow, in turn.

    python benchmarks/inference.py --model runs/model --program build/geant4/calopipe-showers [--onnx]

Figures are milliseconds of processor time a shower, medians of rounds in which all are timed one after the other, so
that what else the machine does meets all alike. Labels are spread evenly over the model's range. The conversion to ONNX
takes half a minute.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from calopipe.errors import run_command
from calopipe.showers.cells import FloatArray
from training.export import export
from training.generator import Generator
from training.models.randomness import GivenNoise

_ROUNDS, _SHOWERS, _BATCHES = 3, 64, (1, 64)


def _labels(generator: Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Energies, angles and noise of the showers; without azimuth and kinds, which the models timed here have not."""
    ends = generator.card.valid_range
    (least, most), (first, last) = ends["energy_gev"], ends["theta_rad"]
    energy = np.linspace(least, most, _SHOWERS, dtype=np.float32)
    theta = np.linspace(first, last, _SHOWERS, dtype=np.float32)
    whole = np.random.default_rng(1).integers(0, 2**24, (_SHOWERS, generator.model.noise_numbers))
    return energy, np.random.default_rng(2).permutation(theta), (whole * 2.0**-24).astype(np.float32)


def _of_program(program: Path, file: Path, labels: tuple[FloatArray, ...]) -> Callable[[], float]:
    energy, theta, noise = labels
    rows = (
        "{} {} 0 0 {}".format(*row[:2], " ".join(map(str, row[2]))) for row in zip(energy, theta, noise, strict=True)
    )
    requests = "\n".join(rows)

    def timed() -> float:
        command = [str(program), "--time", "4", str(file)]
        return float(subprocess.run(command, input=requests, capture_output=True, text=True, check=True).stdout)

    return timed


def _of_batches(make: Callable[..., object], labels: tuple[FloatArray, ...], batch: int) -> Callable[[], float]:
    def timed() -> float:
        begin = time.process_time()
        for first in range(0, _SHOWERS, batch):
            make(*(each[first : first + batch] for each in labels))
        return 1e3 * (time.process_time() - begin) / _SHOWERS

    make(*(each[:batch] for each in labels))  # what is made once is not timed
    return timed


def _onnx(file: Path) -> Callable[..., object]:
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = ("energy_gev", "theta_rad", "noise")
    return lambda *labels: session.run(["cells_gev"], dict(zip(names, labels, strict=True)))


def measure(options: argparse.Namespace) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    generator = Generator(options.model)
    labels = _labels(generator)
    make = tf.function(
        lambda energy, theta, noise: generator.model.generate(energy, theta, GivenNoise(noise)),
        reduce_retracing=True,
        autograph=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        export(options.model, file)
        timed = {"C++ library, one at a time": _of_program(options.program, file, labels)}
        timed |= {f"TensorFlow, batches of {batch}": _of_batches(make, labels, batch) for batch in _BATCHES}
        if options.onnx:
            export(options.model, file.with_suffix(".onnx"))
            run = _onnx(file.with_suffix(".onnx"))
            timed |= {f"ONNX Runtime, batches of {batch}": _of_batches(run, labels, batch) for batch in _BATCHES}
        rounds = [{name: each() for name, each in timed.items()} for _ in range(_ROUNDS)]
    for name in timed:
        found = sorted(each[name] for each in rounds)
        print(f"{name}: {statistics.median(found):.2f} ms a shower ({found[0]:.2f} to {found[-1]:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="a likelihood model")
    parser.add_argument("--program", type=Path, required=True, metavar="FILE", help="calopipe-showers, compiled")
    parser.add_argument("--onnx", action="store_true", help="time ONNX Runtime too")
    measure(parser.parse_args())


if __name__ == "__main__":
    run_command(main)
