"""How fast a trained model makes showers: compared with Geant4, by batch size, and into HDF5; and its use of memory.

    python benchmarks/generation.py --input 'data/geant4/*.h5' [--model runs/model] [--library FILE] [--onnx] [--quick]

Without --model, the model is of the config `fast` after two steps; its showers may take another time than those of a
trained model. Batch sizes are timed by turns, so other work of the machine affects all of them alike; figures are
medians. Memory is the highest resident size of the whole command `python -m training generate` on a calorimeter of
17 x 17 x 5 cells.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from calopipe import storage
from calopipe.errors import run_command
from calopipe.labels import PARTICLE
from calopipe.showers.files import open_all
from calopipe.showers.selection import Selection
from calopipe.showers.writer import shower_writer
from preprocessing.pipeline import preprocess
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings
from training.configs import DEFAULT, named_config
from training.export import export
from training.fit import fit
from training.generation.conditions import Conditions
from training.generation.generate import generate
from training.generation.generator import Generator
from training.model_folder import read_card

_GEANT4 = 1.9  # showers a second on one core: data/geant4/README.md
_BATCHES = (1, 16, 32, 64, 128, 256)
_COARSE = (3, 3, 5)  # cells of the sample (x, y, layer) that make a cell of the small calorimeter

# The system's own figure for an ended child process would include the size of the process that started it.
_TELLING_MEMORY = """
import sys
from training.__main__ import main
main(sys.argv[1:])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def barely_trained(inputs: list[str], folder: Path) -> Path:
    """The folder of a model of the config `fast` after two steps on the showers of `inputs`."""
    with redirect_stdout(sys.stderr):
        preprocess(discover(inputs), folder / "dataset", Settings())
        fit(folder / "dataset", folder / "model", named_config(DEFAULT, steps=2))
    return folder / "model"


def coarse(inputs: list[Path], path: Path) -> Path:
    """Write the showers of `inputs` to `path`, with cells joined to larger ones."""
    files = open_all(inputs)
    shape = tuple(n // joined for n, joined in zip(files[0].geometry.shape, _COARSE, strict=True))
    with shower_writer(path, replace(files[0].geometry, shape=shape), {}) as writer:
        for showers in (file.read() for file in files):
            split = showers.cells.reshape(-1, *(size for pair in zip(shape, _COARSE, strict=True) for size in pair))
            writer.write(replace(showers, cells=split.sum(axis=(2, 4, 6))))
    return path


def rates(model: Path, library: Path | None, showers: int, repeats: int) -> dict[str, list[float]]:
    """Showers a second by batch size, and of the `library` if there is one, in `repeats` passes over <= `showers`."""
    generators = {str(batch): Generator(model, batch) for batch in _BATCHES if batch <= showers}
    if library:
        generators["C++"] = Generator(model, library=library)
    card = next(iter(generators.values())).card
    found: dict[str, list[float]] = {name: [] for name in generators}
    for repeat in range(repeats + 1):  # the first pass traces the graph
        for name, generator in generators.items():
            batch = generator.batch
            count = batch if repeat == 0 else max(showers // batch, 1) * batch
            ends = {name: card.valid_range[name] for name in ("energy_gev", "theta_rad")}
            labels = {name: np.linspace(low, high, count, dtype=np.float32) for name, (low, high) in ends.items()}
            began = time.perf_counter()
            for _ in generator.showers(labels, seed=repeat):
                pass
            if repeat:
                found[name].append(count / (time.perf_counter() - began))
    return found


def onnx_ms(model: Path, file: Path, repeats: int) -> dict[int, list[float]]:
    """Milliseconds a shower of ONNX Runtime on one thread, by batch size, in `repeats` runs after the first."""
    import onnxruntime  # noqa: PLC0415  only --onnx needs it

    export(model, file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session, numbers = onnxruntime.InferenceSession(file, options), np.random.default_rng(1)
    ends: dict[str, Any] = {"noise": [0.0, 1.0], **read_card(model).valid_range}
    found: dict[int, list[float]] = {}
    for batch in (1, 64):
        times = []
        for _ in range(repeats + 1):
            given: dict[str, Any] = {}
            for name, shape in ((taken.name, (batch, *taken.shape[1:])) for taken in session.get_inputs()):
                if name == PARTICLE:
                    given[name] = numbers.choice(ends[name], shape).astype(np.int32)
                else:
                    low, high = ends[name]
                    given[name] = (low + (high - low) * numbers.random(shape)).astype(np.float32)
            began = time.process_time()
            session.run(None, given)
            times.append((time.process_time() - began) / batch * 1e3)
        found[batch] = times[1:]
    return found


def written(model: Path, library: Path | None, inputs: list[Path], output: Path) -> tuple[int, float, float]:
    """The number of showers, showers a second from the start of the command to the whole file, and bytes a shower."""
    began = time.perf_counter()
    with redirect_stdout(sys.stderr):
        showers = generate(model, Conditions(inputs, Selection()), output, library=library)
    return showers, showers / (time.perf_counter() - began), output.stat().st_size / showers


def peak_mib(model: Path, like: Path, per_event: int, output: Path) -> float:
    """The highest resident size of the command that makes `per_event` showers with each label of `like`. Linux only."""
    arguments = ["generate", "--model", model, "--like", like, "--output", output, "--per-event", per_event]
    command = [sys.executable, "-c", _TELLING_MEMORY, *map(str, arguments)]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return int(told.split()[-2]) / 1024


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument(
        "--input", nargs="+", default=["data/geant4/*.h5"], metavar="GLOB", help="(default %(default)s)"
    )
    command.add_argument("--model", type=Path, metavar="DIR", help="time this model, and not the memory")
    command.add_argument("--library", type=Path, metavar="FILE.so", help="time this C++ library too")
    command.add_argument("--onnx", action="store_true", help="time ONNX Runtime on one thread too")
    command.add_argument("--showers", type=int, default=512, metavar="N", help="a pass (default %(default)s)")
    command.add_argument("--repeats", type=int, default=5, metavar="N", help="passes (default %(default)s)")
    command.add_argument("--quick", action="store_true", help="the first file alone, one short pass, no memory")
    options = command.parse_args()
    paths = [Path(str(name)) for name in storage.expand(options.input)][: 1 if options.quick else None]
    names = [str(path) for path in paths]
    showers, repeats = (32, 1) if options.quick else (options.showers, options.repeats)

    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as place:
        folder = Path(place)
        model = options.model or barely_trained(names, folder)
        found = rates(model, options.library, showers, repeats)
        print(f"{'batch':>5} {'showers/s':>10} {'lowest':>8} {'highest':>8}  Geant4 (one core, {_GEANT4}/s) times")
        for name, values in found.items():
            median = statistics.median(values)
            print(f"{name:>5} {median:10.1f} {min(values):8.1f} {max(values):8.1f}  {median / _GEANT4:.0f}")
        if options.onnx:
            for batch, times in onnx_ms(model, folder / "model.onnx", 5 * repeats).items():
                print(f"ONNX Runtime, {batch} at a time: {statistics.median(times):.1f} ms of a core a shower, "
                      f"{min(times):.1f} to {max(times):.1f}")  # fmt: skip
        for name, library in {"TensorFlow": None, "C++": options.library}.items():
            if name == "TensorFlow" or library:
                count, rate, size = written(model, library, paths, folder / f"{name}.h5")
                print(
                    f"{count} showers by {name}, start and HDF5 included: {rate:.0f} showers/s "
                    f"({rate / _GEANT4:.0f} times), {size / 1000:.1f} kB a shower"
                )
        if options.quick or options.model:
            return
        like = coarse(paths, folder / "coarse.h5")
        small = barely_trained([str(like)], folder / "small")
        labels = sum(file.events for file in open_all([like]))
        for total in (10_000, 100_000):
            per_event = -(-total // labels)
            mib = peak_mib(small, like, per_event, folder / f"{total}.h5")
            print(f"{labels * per_event} small showers: at most {mib:.0f} MiB resident")


if __name__ == "__main__":
    run_command(main)
