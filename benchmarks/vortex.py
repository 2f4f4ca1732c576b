"""The study of the vortex street (Lehmann, Schaarschmidt and Karl, PARS-Mitteilungen 2024) on this machine.

    python benchmarks/vortex.py [training rollout tiles estimate] [--config pix2pix] [--batches 8 16 32 64] [--steps 3]
        [--model runs/vortex/model] [--prism FILE]

`training` times steps of a global batch on one replica and on two, which are two devices of this process and share its
cores, beside the published seconds, of other frames. `rollout` says which share of the time the network takes when it
simulates on, step by step and in tiles on Beam: the study's TPU was used by the "executor" alone. `tiles` compares
tiles on several runners of Beam with whole frames, and times them by tiles of a frame and workers. Without `--model`
a training of one step makes the model of both. `estimate` sets the study's times beside those of `training estimate`.
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

import numpy as np
import tensorflow as tf
from distributed import LocalCluster

from calopipe.events.tolerance import Tolerance
from calopipe.flow.files import open_flow
from calopipe.flow.grid import Grid
from preprocessing.dataset import read_manifest
from preprocessing.flow.manifest import PairSettings
from preprocessing.pipeline import preprocess
from training.configs import named_config
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.estimate.catalogue import load_catalogue
from training.estimate.model import estimate
from training.estimate.work import work_of
from training.fit import fit
from training.rollout.mapreduce import advance
from training.rollout.mapreduce import tiles as cut_into_tiles
from training.rollout.rollout import roll_out
from training.rollout.stepper import Stepper

# Seconds, "average over 45 epochs", by batch: one RTX A6000, and the eight cores of a TPU v2, v3 and v4.
PUBLISHED = {8: (3451, 2518, 2383, 2130), 16: (3385, 1525, 1438, 1369), 32: (3133, None, None, 1092),
             64: (2790, None, None, 1077)}  # fmt: skip
_STUDY = (("a6000", 1), ("tpu-v2", 8), ("tpu-v3", 8), ("tpu-v4", 4))
_FLOWS, _START = "data/vortex/*.h5", Path("data/vortex/vortex_80_03.h5")


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


def estimates() -> None:
    """How many images an epoch of the study had, by each of its times, if `training estimate` were right.

    It does not say how many, nor of which size: the U-Net-256 is for 256 x 256. A v4-8 has four chips.
    """
    catalogue, grid = load_catalogue(), Grid((256, 256), cell_d=0.1, interval_d=0.1)
    print("\n| batch | " + " | ".join(f"{count} x {kind}" for kind, count in _STUDY) + " |")
    print("|---" * (1 + len(_STUDY)) + "|")
    for batch, published in PUBLISHED.items():
        cells = []
        for (kind, count), seconds in zip(_STUDY, published, strict=True):
            config = named_config("pix2pix", batch=batch // count)
            found = estimate(work_of(config, grid), config, catalogue, kind, count, train=10_000, validation=0).epoch_s
            images = [f"{10_000 * (seconds or 0) / each:,.0f}" for each in (found.likely, found.most, found.least)]
            cells.append("{} ({}-{})".format(*images) if seconds else "")
        print(f"| {batch} | {' | '.join(cells)} |", flush=True)


def rollout(model: Path, place: Path) -> None:
    frames = len(open_flow(_START).time)
    step, spent = Stepper.step, list[float]()

    def timed(*given: Any) -> Any:
        began = time.perf_counter()
        made = step(*given)
        spent.append(time.perf_counter() - began)
        return made

    Stepper.step = timed  # type: ignore[method-assign, assignment]
    print("\n| | steps of the network | s, all | s, in the network | share | s, the first step, which compiles |")
    print("|---|---|---|---|---|---|")
    for name, make in (
        ("roll-out", lambda: roll_out(model, _START, place / "a.h5", steps=frames - 1)),
        ("tiles of 32 x 32", lambda: advance(model, _START, (32, 32), place / "b.h5")),
        ("one tile a frame", lambda: advance(model, _START, (128, 32), place / "c.h5")),
    ):
        spent.clear()
        began = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            make()  # type: ignore[no-untyped-call]
        whole = time.perf_counter() - began
        print(f"| {name} | {len(spent)} | {whole:.2f} | {sum(spent):.2f} | {sum(spent) / whole:.0%} | {spent[0]:.2f} |")


def tiles(model: Path, place: Path, prism: Path | None) -> None:
    flow, stepper = open_flow(_START), Stepper(model)
    frames = len(flow.time)
    given = flow.velocity(0, frames), np.stack([flow.solid] * frames), np.full(frames, flow.reynolds, np.float32)
    whole = stepper.step(*given)
    print(f"\n{frames} frames; the largest velocity is {np.abs(whole).max():.3g} U")
    print("\n| runner | tiles a frame | cells of their windows over the frame's | s | largest difference, U |")
    print("|---|---|---|---|---|")
    runners = {
        "this process": [],
        "two processes": ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
    }
    if prism:
        runners["Prism"] = ["--runner=PrismRunner", f"--prism_location={prism}"]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        runners["Dask, two processes"] = ["--runner=DaskRunner", f"--dask_client_address={cluster.scheduler_address}"]
        for name, options in runners.items():
            for side in ((128, 32), (32, 32), (16, 16), (8, 8)):
                cut = cut_into_tiles(flow.grid.shape, side, reach=stepper.model.reach, stride=stepper.model.stride)
                width, height = (part.stop - part.start for part in cut[0].window)
                began = time.perf_counter()
                with contextlib.redirect_stdout(io.StringIO()):
                    advance(model, _START, side, place / "tiles.h5", options)
                seconds = time.perf_counter() - began
                away = np.abs(open_flow(place / "tiles.h5").velocity(0, frames) - whole).max()
                work = len(cut) * width * height / flow.grid.cells
                print(f"| {name} | {len(cut)} | {work:.1f} | {seconds:.2f} | {away:.1e} |", flush=True)


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("what", nargs="*", default=["training", "rollout"], help="training, rollout, tiles, estimate")
    command.add_argument("--config", default="pix2pix", help="pix2pix (default) or pix2pix-small")
    command.add_argument("--batches", type=int, nargs="+", default=list(PUBLISHED), metavar="N", help="global batches")
    command.add_argument("--steps", type=int, default=3, metavar="N", help="timed, after the one that compiles")
    command.add_argument("--model", type=Path, metavar="DIR", help="that makes the frames")
    command.add_argument("--prism", type=Path, metavar="FILE", help="Beam's program, for its runner")
    options = command.parse_args()
    settings, tolerance = PairSettings(), Tolerance()
    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as scratch:
        dataset = Path(scratch) / "ds"
        found = settings.discover([_FLOWS], tolerance)
        preprocess(found, dataset, settings, tolerance=tolerance)
        if "training" in options.what:
            training(options.config, dataset, options.batches, options.steps)
        if options.model is None and {"rollout", "tiles"} & {*options.what}:
            options.model = Path(scratch) / "model"
            fit(dataset, options.model, named_config(options.config, steps=1))
        if "rollout" in options.what:
            rollout(options.model, Path(scratch))
        if "tiles" in options.what:
            tiles(options.model, Path(scratch), options.prism)
    if "estimate" in options.what:
        estimates()


if __name__ == "__main__":
    main()
