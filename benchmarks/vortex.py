"""The study of the vortex street (Lehmann, Schaarschmidt and Karl, PARS-Mitteilungen 2024) on this machine.

    python benchmarks/vortex.py [training rollout] [--config pix2pix] [--batches 8 16 32 64] [--steps 3]

`training` times steps of a global batch on one replica and on two, which are two devices of this process and share its
cores, beside the published seconds, of other frames. `rollout` says which share of the time the network takes when it
simulates on, step by step and in tiles on Beam: the study's TPU was used by the "executor" alone.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

from calopipe.flow.files import open_flow
from calopipe.showers.flaws import Tolerance
from preprocessing.dataset import read_manifest
from preprocessing.flow.manifest import PairSettings
from preprocessing.flow.pairs import discover_pairs
from preprocessing.pipeline import preprocess
from training.configs import named_config
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.fit import fit
from training.rollout.mapreduce import advance
from training.rollout.rollout import roll_out
from training.rollout.stepper import Stepper

# Seconds, "average over 45 epochs", by batch: one RTX A6000, and the eight cores of a TPU v2, v3 and v4.
PUBLISHED = {8: (3451, 2518, 2383, 2130), 16: (3385, 1525, 1438, 1369), 32: (3133, None, None, 1092),
             64: (2790, None, None, 1077)}  # fmt: skip
_FLOWS = "data/vortex/*.h5"


def step_seconds(config: str, dataset: Path, batch: int, replicas: int, steps: int) -> tuple[float, int]:
    """The least seconds of a step of a global `batch`, and the steps of an epoch."""
    strategy = "mirrored" if replicas > 1 else "one-device"
    given = named_config(config, strategy=strategy, batch=batch // replicas)
    engine = Engine(given, dataset, read_manifest(dataset), make_strategy(strategy))
    batches, found = iter(engine.batches()), []
    for _ in range(steps + 1):  # the first compiles
        began = time.perf_counter()
        engine.run(batches, 1)
        found.append(time.perf_counter() - began)
    return min(found[1:]), engine.steps_an_epoch


def training(config: str, dataset: Path, batches: list[int], steps: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    cores, pairs = len(os.sched_getaffinity(0)), read_manifest(dataset).count("train")
    print(f"{config}, {pairs} pairs an epoch, {cores} cores\n")
    print("| batch | s a step, 1 replica | 2 | s an epoch, 1 replica | 2 | published: A6000 | v2-8 | v3-8 | v4-8 |")
    print("|---|---|---|---|---|---|---|---|---|")
    for batch in batches:
        found = [step_seconds(config, dataset, batch, replicas, steps) for replicas in (1, 2)]
        cells = [f"{seconds:.3g}" for seconds, _ in found] + [f"{each * number:.3g}" for each, number in found]
        print(
            f"| {batch} | {' | '.join([*cells, *(str(each or '') for each in PUBLISHED.get(batch, ()))])} |", flush=True
        )


def rollout(config: str, dataset: Path, place: Path) -> None:
    fit(dataset, place / "model", named_config(config, steps=1))
    start = Path("data/vortex/vortex_80_03.h5")
    frames = len(open_flow(start).time)
    step, spent = Stepper.step, list[float]()

    def timed(*given: Any) -> Any:
        began = time.perf_counter()
        made = step(*given)
        spent.append(time.perf_counter() - began)
        return made

    Stepper.step = timed  # type: ignore[method-assign]
    print("\n| | steps of the network | s, all | s, in the network | share | s, the first step, which compiles |")
    print("|---|---|---|---|---|---|")
    for name, make in (
        ("roll-out", lambda: roll_out(place / "model", start, place / "a.h5", steps=frames - 1)),
        ("tiles of 32 x 32", lambda: advance(place / "model", start, (32, 32), place / "b.h5")),
        ("one tile a frame", lambda: advance(place / "model", start, (128, 32), place / "c.h5")),
    ):
        spent.clear()
        began = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            make()
        whole = time.perf_counter() - began
        print(f"| {name} | {len(spent)} | {whole:.2f} | {sum(spent):.2f} | {sum(spent) / whole:.0%} | {spent[0]:.2f} |")


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("what", nargs="*", default=["training", "rollout"], metavar="training, rollout")
    command.add_argument("--config", default="pix2pix", help="pix2pix (default) or pix2pix-small")
    command.add_argument("--batches", type=int, nargs="+", default=list(PUBLISHED), metavar="N", help="global batches")
    command.add_argument("--steps", type=int, default=3, metavar="N", help="timed, after the one that compiles")
    options = command.parse_args()
    settings, tolerance = PairSettings(), Tolerance("stop", "stop")
    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as scratch:
        dataset = Path(scratch) / "ds"
        found = discover_pairs([_FLOWS], settings, tolerance)
        preprocess(found, dataset, settings, tolerance=tolerance)
        if "training" in options.what:
            training(options.config, dataset, options.batches, options.steps)
        if "rollout" in options.what:
            rollout(options.config, dataset, Path(scratch))


if __name__ == "__main__":
    main()
