"""How good the model becomes for different numbers of showers and amounts of training, over several seeds.

    python benchmarks/fidelity.py --train 'train/*.h5' --test 'test/*.h5' --output runs/fidelity \
        [--showers 1000 4000 10000] [--configs fast standard full] [--seeds 1 2 3 4 5]

A cell is a number of showers and a config. For each cell and each seed the program preprocesses, trains, generates with
the labels of the test files, and judges under both grades, with the training files. Each training's numbers are in
`CELL/SEED/row.json`. What exists is not made again, so the program can be stopped. It prints a row for each cell: means
and the spread (largest minus smallest) over the seeds. Training and test files must hold different showers.

The last file of --train chooses the epoch, the others are trained on. Times depend on the load of the machine.
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

import numpy as np

from calopipe import storage
from calopipe.showers.files import open_showers

SHOWN = ("auc_observables", "auc_cells", "fpd", "coverage", "hottest_kept", "overlap", "cells_by_energy")
OF_CRITERIA = {"Hottest cell kept to the next layer": "hottest_kept", "Overlap of neighbouring layers": "overlap",
               "Cells by energy": "cells_by_energy"}  # fmt: skip


def _run(*command: str) -> None:
    found = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    if found.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command[-12:])}\n{found.stderr[-2000:]}")


def some_files(paths: list[str], showers: int, geometry: str) -> list[str]:
    """The first files of `paths`, of this `geometry`, that together hold `showers` showers."""
    chosen: list[str] = []
    events = 0
    for path in paths:
        if events < showers:
            chosen.append(path)
            events += open_showers(Path(path), geometry).events
    if events < showers:
        raise SystemExit(f"--train holds {events} showers, --showers asks for {showers}")
    return chosen


def one(options: argparse.Namespace, showers: int, config: str, seed: int) -> dict[str, Any]:
    """Train, generate and judge once. Returns the numbers of the row."""
    *train_files, validation_file = options.train
    paths = some_files(train_files, showers, options.geometry)
    name = f"{showers}-{config}"
    geometry = ["--geometry", options.geometry] if options.geometry else []
    folder = options.output / name / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "row.json"
    if done.is_file():
        return json.loads(done.read_text())
    dataset, model, generated = options.output / f"dataset-{showers}", folder / "model", folder / "generated.h5"
    splits = [option for path in paths for option in ("--split-file", f"train={Path(path).name}")]
    _run("preprocessing", "--input", *paths, validation_file, "--output", str(dataset), *splits, *geometry,
         "--split-file", f"validation={Path(validation_file).name}")  # fmt: skip
    _run("training", "fit", "--config", config, "--seed", str(seed), "--dataset", str(dataset), "--output", str(model),
         *options.fit)  # fmt: skip
    began = time.monotonic()
    _run("training", "generate", "--model", str(model), "--like", *options.test, "--split", "all", "--seed", str(seed),
         "--output", str(generated), "--outside", "skip", *geometry)  # fmt: skip
    seconds = time.monotonic() - began
    card = json.loads((model / "card.json").read_text())
    row: dict[str, Any] = {"showers": showers, "config": name, "seed": seed, "minutes": card["trained"]["seconds"] / 60,
                           "losses": card["losses"], "generation_s": seconds}  # fmt: skip
    for grade in ("gan", "precision"):
        verdict = folder / grade
        _run("validation", "--reference", *options.test, "--candidate", str(generated), "--training", *paths, *splits,
             "--grade", grade, "--output", str(verdict), *geometry)  # fmt: skip
        document = json.loads((verdict / "verdict.json").read_text())
        scalars = document["scalars"]
        row[grade] = document["verdict"]
        row[f"{grade}_counts"] = [int(scalars[f"criteria_{each}"]) for each in ("pass", "fail", "inconclusive")]
        row |= {key: scalars.get(key) for key in SHOWN if key not in OF_CRITERIA.values()}
        first = {each["name"]: each["value"] for each in reversed(document["criteria"])}  # of the first bin of energy
        row |= {key: first[name] for name, key in OF_CRITERIA.items()}
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
            values = [row[key] for row in cell if row.get(key) is not None]
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
    command.add_argument("--geometry", default="", help="of the files, if they do not say")
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
