"""The quality ladder: how good the model becomes with so many showers and so much training, over several seeds.

    python benchmarks/fidelity.py --train 'train/*.h5' --test 'test/*.h5' --output runs/fidelity \
        [--showers 1000 4000 10000] [--configs fast standard full] [--seeds 1 2 3 4 5] [--without PIECE ...]

For each cell of the ladder and each seed it preprocesses, trains, generates with the labels of the test files, and
judges under both grades with the training files at hand. Each training's numbers are in `CELL/SEED/row.json`, and what
stands is not made again, so that it can be stopped. It prints a row a cell: means and the spread (largest less
smallest) over the seeds. Files of the training and of the test must be of different showers.

The last file of --train chooses the epoch, the others are trained on. --without drops a piece of the model's design:
see PIECES. Times are those of the machine's load.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from calopipe import storage

# Pieces of the design, each with the Python that drops it from a training and from the showers it makes.
PIECES = {
    "budgets": """
from training.models.autoregressive import constants, context, sampling
whole = context.context
def told(*arguments):
    found = whole(*arguments)
    kept = found.shape[1] - len(context.BUDGETS) - 4
    return tf.concat([found[:, :kept], tf.zeros_like(found[:, kept:])], 1)
constants.context = sampling.context = told
""",
    "mixture": """
from training.models.autoregressive import model
whole = model.Autoregressive.optimizer
model.Autoregressive.optimizer = lambda self, network, rate, showers: whole(
    self, network, (lambda: 0.0) if network == "totals" else rate, showers)
""",
    "priors": """
from training.models.autoregressive import cells
cells.prior = lambda table, layer, radius: tf.zeros_like(radius) - 3.0
""",
    "shape-of-place": """
from training.models.autoregressive import cells
whole = cells.place
cells.place = lambda dx, dy, slope: whole(dx, dy, slope) * ([1.0] * (cells.PLACE - 5) + [0.0] * 5)
""",
    "noise-on-promises": """
from training.models.autoregressive import model
model._BUDGET_NOISE = model._AXIS_NOISE = model._SLOPE_NOISE = 0.0
""",
}
_COMMAND = """
import sys
import tensorflow as tf
{patch}
from training.__main__ import main
main(sys.argv[1:])
"""
SHOWN = ("auc_observables", "auc_cells", "fpd", "kpd", "coverage", "angle_deg")


def train(patch: str, *arguments: str) -> None:
    _run(sys.executable, "-c", _COMMAND.format(patch=patch), *arguments)


def _run(*command: str) -> None:
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command[-12:])}\n{found.stderr[-2000:]}")


def some_files(paths: list[str], showers: int) -> list[str]:
    """The first of `paths` that hold `showers` together."""
    chosen: list[str] = []
    events = 0
    for path in paths:
        if events < showers:
            chosen.append(path)
            with h5py.File(path) as file:
                events += len(file["energy"])
    if events < showers:
        raise SystemExit(f"--train holds {events} showers, --showers asks for {showers}")
    return chosen


def one(options: argparse.Namespace, showers: int, config: str, seed: int) -> dict[str, Any]:
    """Train, generate and judge once; the numbers of the row."""
    *train_files, validation_file = options.train
    paths = some_files(train_files, showers)
    name = f"{showers}-{config}" + "".join(f"-without-{piece}" for piece in options.without)
    patch = "\n".join(PIECES[piece] for piece in options.without)
    folder = options.output / name / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "row.json"
    if done.is_file():
        return json.loads(done.read_text())
    dataset, model, generated = options.output / f"dataset-{showers}", folder / "model", folder / "generated.h5"
    splits = [option for path in paths for option in ("--split-file", f"train={Path(path).name}")]
    _run(sys.executable, "-m", "preprocessing", "--input", *paths, validation_file, "--output", str(dataset),
         *splits, "--split-file", f"validation={Path(validation_file).name}")  # fmt: skip
    train(patch, "fit", "--config", config, "--seed", str(seed), "--dataset", str(dataset), "--output", str(model),
          *options.fit)  # fmt: skip
    began = time.monotonic()
    train(patch, "generate", "--model", str(model), "--like", *options.test, "--split", "all", "--seed", str(seed),
          "--output", str(generated))  # fmt: skip
    seconds = time.monotonic() - began
    card = json.loads((model / "card.json").read_text())
    row: dict[str, Any] = {"showers": showers, "config": name, "seed": seed, "minutes": card["trained"]["seconds"] / 60,
                           "losses": card["losses"], "generation_s": seconds}  # fmt: skip
    for grade in ("gan", "precision"):
        verdict = folder / grade
        _run(sys.executable, "-m", "validation", "--reference", *options.test, "--candidate", str(generated),
             "--training", *paths, *splits, "--grade", grade, "--output", str(verdict))  # fmt: skip
        document = json.loads((verdict / "verdict.json").read_text())
        scalars = document["scalars"]
        row[grade] = document["verdict"]
        row[f"{grade}_counts"] = [int(scalars[f"criteria_{each}"]) for each in ("pass", "fail", "inconclusive")]
        row |= {key: scalars.get(key) for key in SHOWN}
        row["memorisation"] = document["memorisation"]
        row["cautions"] = document["cautions"]
    done.write_text(json.dumps(row))
    return row


def table(rows: list[dict[str, Any]]) -> Iterable[str]:
    """A Markdown row for each cell: means over the seeds, and their spread in brackets."""
    yield "| showers | config | seeds | minutes | `gan` pass/fail/undecided | `precision` | " + " | ".join(SHOWN) + " |"
    yield "|---" * (6 + len(SHOWN)) + "|"
    for name in dict.fromkeys(row["config"] for row in rows):
        cell = [row for row in rows if row["config"] == name]
        counts = [
            "; ".join("/".join(map(str, row[f"{grade}_counts"])) for row in cell) for grade in ("gan", "precision")
        ]
        numbers = []
        for key in SHOWN:
            values = [row[key] for row in cell if row[key] is not None]
            numbers.append(f"{np.mean(values):.3g} ({np.ptp(values):.1g})" if values else "none")
        minutes = np.mean([row["minutes"] for row in cell])
        yield (
            f"| {cell[0]['showers']} | {name} | {len(cell)} | {minutes:.1f} | " + " | ".join([*counts, *numbers]) + " |"
        )


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--train", nargs="+", required=True, metavar="FILE",
                         help="HDF5 files or patterns; the last is the validation split")  # fmt: skip
    command.add_argument("--test", nargs="+", required=True, metavar="FILE", help="HDF5 files of other showers")
    command.add_argument("--output", type=Path, required=True, metavar="DIR")
    command.add_argument("--showers", type=int, nargs="+", default=[1000, 4000, 10000], metavar="N")
    command.add_argument("--configs", nargs="+", default=["fast", "standard", "full"], metavar="NAME")
    command.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], metavar="N")
    command.add_argument("--without", nargs="+", default=[], choices=list(PIECES), metavar="PIECE")
    command.add_argument("--fit", nargs=argparse.REMAINDER, default=[], metavar="OPTION", help="more, for the training")
    options = command.parse_args()
    options.train, options.test = (
        [str(each) for each in storage.expand(names)] for names in (options.train, options.test)
    )
    rows = [
        one(options, showers, config, seed)
        for showers in options.showers
        for config in options.configs
        for seed in options.seeds
    ]
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
