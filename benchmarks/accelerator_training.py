"""Whole trainings that `exported_training.py` wrote, on this machine's accelerator.

    python benchmarks/accelerator_training.py DIR [DIR ...] --output RESULTS [--limit SECONDS]

The program needs only JAX and NumPy, and `accelerator.py` beside it. A training is one loop on the device. Each step
takes its showers from the lists of hits on the device. An epoch is a new order of all showers; showers that do not fill
a batch are left out. After each quarter of the training, the losses on the validation split (whole batches only) are
computed with the averages of the weights. RESULTS/DIR/SEED.npz has the best averages. No training begins after
`--limit` seconds, which include compilation.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# The programs have many small matrix products. XLA would take minutes to choose among implementations of them.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0")

import jax
import jax.numpy as jnp
import numpy as np
from accelerator import exported

_EVALUATIONS = 4  # of a training; its number of steps is rounded down to a multiple of this
_BEGAN = time.perf_counter()


def say(*words: Any) -> None:
    print(f"[{time.perf_counter() - _BEGAN:.0f} s]", *words, flush=True)


def showers_of(folder: Path, split: str, names: list[str], longest: int) -> dict[str, Any]:
    """All showers of `split` as arrays with the entries of a batch, where lists of hits are padded to `longest`."""
    parts = [dict(np.load(file)) for file in sorted(folder.glob(f"{split}_*.npz"))]
    lists = {name: np.concatenate([part[name] for part in parts]) for name in (*names, "length")}
    there = np.arange(longest) < lists["length"][:, None]
    for name, filler in (("cell", np.int32(-1)), ("value", np.float32(0))):
        rows = np.full(there.shape, filler)
        rows[there] = lists[name]
        lists[name] = rows
    return {name: lists[name] for name in names}


class Training:
    """The programs of one folder, and its trainings by seed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.about = folder, json.loads((folder / "about.json").read_text())

    def compile(self) -> None:
        about, began = self.about, time.perf_counter()
        names, longest = about["names"], about["hits"]
        train, watched = (showers_of(self.folder, split, names, longest) for split in ("train", "validation"))
        batches = len(watched["cell"]) // about["evaluated"]
        whole = {name: array[: batches * about["evaluated"]] for name, array in watched.items()}
        self.watched_showers = batches * about["evaluated"]
        self.showers = len(train["cell"])
        shapes = {name: jax.ShapeDtypeStruct(tuple(shape), kind) for name, (shape, kind) in about["shapes"].items()}
        step, losses = (
            self._exported(name, {key: array[: about[showers]] for key, array in train.items()}, shapes)
            for name, showers in (("step", "batch"), ("losses", "evaluated"))
        )
        changed = about["step_program"]["changed"]

        def some_steps(variables: list[Any], data: dict[str, Any], order: Any, seed: Any) -> Any:
            def one(variables: list[Any], rows: Any) -> Any:
                result, *new = step.call(seed, *[jnp.take(data[name], rows, axis=0) for name in names], *variables)
                variables = list(variables)
                for number, value in zip(changed, new, strict=True):
                    variables[number] = value
                return variables, result

            return jax.lax.scan(one, variables, order)[0]

        def evaluate(variables: list[Any], data: dict[str, Any]) -> Any:
            def one(number: Any, batch: dict[str, Any]) -> Any:
                return number + 1, losses.call(number, *[batch[name] for name in names], *variables)[0]

            return jax.lax.scan(one, jnp.int32(0), data)[1].sum(0)

        self.train = {name: jnp.asarray(array) for name, array in train.items()}
        self.watched = {
            name: jnp.asarray(array.reshape(batches, about["evaluated"], *array.shape[1:]))
            for name, array in whole.items()
        }
        self.between = about["steps"] // _EVALUATIONS
        order = jax.ShapeDtypeStruct((self.between, about["batch"]), np.int32)
        variables = {
            name: [shapes[each] for each in about[f"{name}_program"]["variables"]] for name in ("step", "losses")
        }
        steps = jax.jit(some_steps, donate_argnums=0)
        self.steps = steps.lower(variables["step"], self.train, order, np.int32(0)).compile()
        self.evaluate = jax.jit(evaluate).lower(variables["losses"], self.watched).compile()
        say(f"{self.folder.name}: compiled in {time.perf_counter() - began:.0f} s")

    def _exported(self, name: str, batch: dict[str, Any], shapes: dict[str, Any]) -> Any:
        program = self.about[f"{name}_program"]
        inputs = [np.int32(0), *(batch[key] for key in self.about["names"])]
        inputs += [shapes[each] for each in program["variables"]]
        return exported(self.folder / f"{name}.mlir.gz", inputs, len(self.about["names"]) + 1, program)

    def begun(self, seed: int) -> dict[str, Any]:
        """The variables of the engine before the first step."""
        weights = dict(np.load(self.folder / f"weights_{seed}.npz"))
        weights |= {average: weights[name] for name, average in self.about["averages"].items()}
        shapes = self.about["shapes"].items()
        return {name: weights.get(name, np.zeros(shape, kind)) for name, (shape, kind) in shapes}

    def run(self, seed: int, output: Path) -> None:
        """Train with `seed`, and write the best averages of the weights."""
        about, state = self.about, self.begun(seed)
        names, averages = about["step_program"]["variables"], about["averages"]
        random, an_epoch = np.random.default_rng(seed), self.showers // about["batch"] * about["batch"]
        epochs = -(-about["steps"] * about["batch"] // an_epoch)
        order = np.concatenate([random.permutation(self.showers)[:an_epoch] for _ in range(epochs)]).astype(np.int32)
        order = order[: _EVALUATIONS * self.between * about["batch"]].reshape(_EVALUATIONS, -1, about["batch"])
        variables = [jnp.asarray(state[name]) for name in names]
        began, totals, best, step = time.perf_counter(), [], np.inf, 0
        kept: dict[str, Any] = {}
        for number, rows in enumerate(order, 1):
            variables = self.steps(variables, self.train, jnp.asarray(rows), np.int32(seed))
            now = dict(zip(names, variables, strict=True))
            seen = [
                jnp.asarray(now.get(averages.get(name, name), state[name]))
                for name in about["losses_program"]["variables"]
            ]
            losses = np.asarray(self.evaluate(seen, self.watched), np.float64) / self.watched_showers
            totals.append(f"{losses.sum():.2f}")
            if losses.sum() < best:
                best, step = losses.sum(), number * self.between
                kept = {name: np.asarray(now[name]) for name in averages.values()}
        seconds = time.perf_counter() - began
        if kept:  # otherwise no loss was finite
            output.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(output / f"{seed}.npz", step=step, **kept)
        say(f"{self.folder.name} {seed}: {seconds:.1f} s, {1e3 * seconds / about['steps']:.2f} ms a step,", *totals)


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    command.add_argument("--output", type=Path, metavar="DIR", required=True)
    command.add_argument("--limit", type=float, metavar="S", default=np.inf)
    options = command.parse_args()
    say(jax.devices())
    trainings = [Training(folder) for folder in options.folders]
    with ThreadPoolExecutor(len(trainings)) as threads:
        compiled = [threads.submit(training.compile) for training in trainings]
        for training, done in zip(trainings, compiled, strict=True):
            if failure := done.exception():  # the other programs must still run
                say(f"{training.folder.name}: {str(failure)[:500]}")
                continue
            for file in sorted(training.folder.glob("weights_*.npz")):
                if time.perf_counter() - _BEGAN < options.limit:
                    training.run(int(file.stem.split("_")[1]), options.output / training.folder.name)
                else:
                    say(f"{training.folder.name}: no time for {file.stem}")
            training.train = training.watched = {}


if __name__ == "__main__":
    main()
