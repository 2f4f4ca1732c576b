"""The cost of a million showers at each step: seconds, processor seconds and peak memory, by the size of the dataset.

    nice -n 19 python benchmarks/million.py --input 'data/geant4/*.h5' --folder runs/million \\
        --showers 10000 100000 1000000

The showers are altered showers of `--input` (`altered.py`), stored without byte shuffle. Files of 5,000 are added to
FOLDER/showers until there are enough. The folder is kept; it has 13 GB for a million showers. Steps that would take
hours at full size are done on a part of the showers, which the table states.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import psutil
from altered import PER_FILE, make

from calopipe import storage
from calopipe.errors import InputError, run_command
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from preprocessing.dataset import MANIFEST, SHARDS, at_hand, read_manifest, require_unaltered
from preprocessing.events import digests_in

_WORKERS = 2
_STEPS = 200  # of training, after the first
_EVALUATED = 2_000  # showers of the evaluation
_LIKE = 1  # number of files whose test split is generated
_LOOK_SECONDS = 0.5


def spent(function: Callable[..., dict[str, Any]], *arguments: Any) -> str:
    """Run `function` in a new process. Returns cells of the table, with what the function returned. Linux only.

    The cells are seconds; processor seconds; the peak resident memory of the process, and of the largest process that
    it started. Started processes are sampled many times; what they do after the last sample is missed.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_told, args=(there, function, arguments))
    began = time.perf_counter()
    process.start()
    there.close()
    peaks: dict[int, float] = {}
    of_others: dict[int, float] = {}
    while not here.poll(_LOOK_SECONDS):
        for other in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, OSError, IndexError):  # the process has ended, or is ending
                peaks[other.pid] = _peak_mib(other.pid)
                times = other.cpu_times()
                of_others[other.pid] = times.user + times.system
    told, used, own = here.recv()
    process.join()
    seconds = time.perf_counter() - began
    used += sum(of_others.values())
    remark = ", ".join(
        f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in told.items()
    )
    return f"{seconds:,.1f} | {used:,.1f} | {own:,.0f} | {max(peaks.values(), default=0):,.0f} | {remark} |"


def _told(pipe: Any, function: Callable[..., dict[str, Any]], arguments: Sequence[Any]) -> None:
    told: dict[str, Any] = {"ended": "early"}
    try:
        with redirect_stdout(sys.stderr):
            told = function(*arguments)
    finally:
        pipe.send((told, time.process_time(), _peak_mib()))


class Clock:
    """Processor seconds of this process since the last call. Work of other processes hardly changes them."""

    def __init__(self) -> None:
        self._last = time.process_time()

    def __call__(self) -> float:
        before, self._last = self._last, time.process_time()
        return self._last - before


def preprocessed(paths: list[Path], dataset: Path) -> dict[str, Any]:
    from preprocessing.__main__ import main as preprocess  # noqa: PLC0415

    preprocess(["--input", *map(str, paths), "--output", str(dataset), "--workers", str(_WORKERS)])
    manifest, clock = read_manifest(dataset), Clock()
    preprocess(["--input", *map(str, paths), "--output", str(dataset)])
    return {
        "repeated": manifest.events["repeated"],
        "shards": len(manifest.shards),
        "MB": sum(shard.bytes for shard in manifest.shards) / 1e6,
        "again s": clock(),
        "manifest MB": (dataset / MANIFEST).stat().st_size / 1e6,
        "receipts MB": sum(path.stat().st_size for path in (dataset / SHARDS).glob("*.json")) / 1e6,
    }


def checks(dataset: Path) -> dict[str, Any]:
    """The seconds of the work that every training does before it begins."""
    clock, found = Clock(), {}
    manifest = read_manifest(dataset)
    found["manifest s"] = clock()
    seen = digests_in(dataset, manifest, ("train", "validation"))
    found["digests s"] = clock()
    require_unaltered(dataset, manifest, ("train", "validation"))
    found["hashes s"] = clock()
    judges = digests_in(dataset, manifest, ["test"])
    assert not np.isin(judges, seen).any()
    found["test unseen s"] = clock()
    return found | {"seen.npy MB": seen.nbytes / 1e6}


def trained(dataset: Path) -> dict[str, Any]:
    """Seconds until the first step of a training, of the steps after it, and of the evaluation of some showers."""
    from training.configs import DEFAULT, named_config  # noqa: PLC0415
    from training.engine.step import Engine  # noqa: PLC0415
    from training.engine.strategies import make_strategy  # noqa: PLC0415
    from training.run.evaluator import Evaluator  # noqa: PLC0415
    from training.seen_events import seen_after  # noqa: PLC0415

    clock, found = Clock(), {}
    manifest, config = read_manifest(dataset), named_config(DEFAULT)
    seen_after(dataset, manifest, None, None)
    with at_hand(dataset, manifest, ("train", "validation")) as local:
        found["checked s"] = clock()
        engine = Engine(config, local, manifest, make_strategy(config.strategy))
        found["engine s"] = clock()
        batches = iter(engine.batches())
        engine.run(batches, 1)
        found["first step s"] = clock()
        for _ in range(_STEPS):
            engine.run(batches, 1)
        found["steps/s"], found["MiB before evaluation"] = _STEPS / clock(), _peak_mib()
        watching = [shard for shard in manifest.shards if shard.split == "validation"]
        before = np.cumsum([0, *(shard.events for shard in watching)])
        taken = [shard for shard, first in zip(watching, before, strict=False) if first < _EVALUATED]
        evaluator = Evaluator(config, local, replace(manifest, shards=tuple(taken)), "validation")
        evaluator.take_over(engine.state())
        clock()
        evaluator.evaluate()
        seconds = clock()
    share = evaluator.showers / manifest.count("validation")
    return found | {"evaluated": evaluator.showers, "evaluation s": seconds, "of the split s": seconds / share}


def _peak_mib(process: int | str = "self") -> float:
    return int(Path(f"/proc/{process}/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def chosen(paths: list[Path], dataset: Path) -> dict[str, Any]:
    """The seconds of the work that a generation does before it begins."""
    from training.generation.conditions import Conditions  # noqa: PLC0415

    clock, found = Clock(), {}
    conditions = Conditions(paths, Selection(split="test", memory=dataset))
    found["opened s"] = clock()
    showers = len(conditions.events.digests)
    return found | {"chosen s": clock(), "showers": showers}


def barely_trained(dataset: Path, model: Path) -> None:
    command = [sys.executable, "-m", "training", "fit", "--steps", str(_STEPS)]
    subprocess.run([*command, "--dataset", str(dataset), "--output", str(model)], check=True, stdout=sys.stderr)


def generated(paths: list[Path], dataset: Path, model: Path, output: Path) -> dict[str, Any]:
    """Generate the test split of `paths` by a model of a few steps, which may take another time than a good model."""
    from training.__main__ import main as training  # noqa: PLC0415

    clock = Clock()
    training(
        ["generate", "--model", str(model), "--dataset", str(dataset), "--split", "test", "--output", str(output),
         "--like", *map(str, paths)]
    )  # fmt: skip
    showers, seconds = open_showers(output).events, clock()
    return {"generated": showers, "showers/s": showers / seconds, "MB": output.stat().st_size / 1e6}


def validated(reference: list[Path], candidate: list[Path], output: Path) -> dict[str, Any]:
    from calopipe.verdict import VERDICT_FILE, read_verdict  # noqa: PLC0415
    from validation.__main__ import main as validation  # noqa: PLC0415

    validation(["--reference", *map(str, reference), "--candidate", *map(str, candidate), "--output", str(output)])
    size = sum(path.stat().st_size for path in output.iterdir())
    return {"verdict": read_verdict(output / VERDICT_FILE)["verdict"], "report MB": size / 1e6}


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument(
        "--input", nargs="+", default=["data/geant4/*.h5"], metavar="GLOB", help="(default %(default)s)"
    )
    command.add_argument("--folder", type=Path, required=True, metavar="DIR", help="for showers, datasets and results")
    command.add_argument(
        "--showers", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], metavar="N", help="sizes"
    )
    steps = ("preprocess", "check", "train", "choose", "generate", "validate")
    command.add_argument("--only", nargs="+", choices=steps, default=steps, help="steps (default: all)")
    options = command.parse_args()
    if min(options.showers) < 2 * PER_FILE:
        raise InputError(f"--showers {min(options.showers)}: give {2 * PER_FILE} or more, two files to compare")
    inputs = tuple(Path(str(path)) for path in storage.expand(options.input))
    print("| step | showers | s | CPU s | first process MiB | largest other MiB | CPU s of parts, and more |")
    print("|---|---|---|---|---|---|---|")
    for showers in sorted(options.showers):
        paths = make(inputs, options.folder / "showers", showers, shuffle=False)
        place = options.folder / f"of-{showers}"
        place.mkdir(exist_ok=True)
        dataset = place / "dataset"
        half = len(paths) // 2
        tasks: dict[str, tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = {
            "preprocess": (preprocessed, (paths, dataset)),
            "check": (checks, (dataset,)),
            "train": (trained, (dataset,)),
            "choose": (chosen, (paths, dataset)),
            "generate": (generated, (paths[:_LIKE], dataset, options.folder / "model", place / "generated.h5")),
            "validate": (validated, (paths[:half], paths[half:], place / "verdict")),
        }
        for step in options.only:
            if step == "generate" and not (options.folder / "model").exists():
                barely_trained(dataset, options.folder / "model")
            function, arguments = tasks[step]
            print(f"| {step} | {showers:,} | {spent(function, *arguments)}", flush=True)


if __name__ == "__main__":
    run_command(main)
