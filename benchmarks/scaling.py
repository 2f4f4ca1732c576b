"""Cost and gain of several workers: collectives and their model, emulated networks, scaling, parts of an epoch.

    python benchmarks/scaling.py [collectives networks training epoch] [--input 'data/geant4/*.h5'] [--quick]

The model of an all-reduce of S bytes over n workers in a ring (Rabenseifner; Thakur, Rabenseifner and Gropp 2005,
doi 10.1177/1094342005051521): T = 2(n - 1) alpha + 2(n - 1)/n S/B.

`collectives` measures T over loopback, with the operation that training uses, and fits alpha and B. `networks` measures
T between namespaces with the delay and rate of real networks, for single collectives and for steps of the training
(needs root). `training` runs the command with 1, 2 and 4 replicas, at the same batch a replica (weak) and at the same
global batch (strong). `epoch` measures the parts of the whole command. All replicas share the cores of this machine and
have one thread each, so computing does not scale here; processor time is the cost of a replica. Times of collectives
and of steps with them are the least of 15 turns, since other work on the machine only adds; medians are beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from networks import NETWORKS, Network, Switch, hosts

from calopipe.errors import run_command
from preprocessing.pipeline import preprocess
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings
from training.nodes.workers import Cluster

_SIZES = (4, 16_384, 262_144, 1_048_576, 4_194_304, 16_777_216)
_SIZES_ON_NETWORKS = (4, 65_536, 1_048_576, 5_809_796)  # bytes; the last is all weights of the 3DGAN, in float32
_ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2", "OMP_NUM_THREADS": "1"}
Measured = list[dict[str, Any]]


# --- collectives


def _loopback(workers: int) -> tuple[str, ...]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(workers)]
        return tuple(f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes)


@contextmanager
def team(
    workers: int, program: Sequence[str], switch: Switch | None = None, **environment: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """Workers of a `program`, on loopback or on the hosts of `switch`. Workers that run after the block are killed."""
    addresses = tuple(f"{switch.address(worker)}:4000" for worker in range(workers)) if switch else _loopback(workers)
    processes: list[subprocess.Popen[str]] = []
    try:
        for worker in range(workers):
            command = [sys.executable, *program]
            cluster = Cluster(addresses, worker).to_environment() if workers > 1 else {}
            processes.append(
                subprocess.Popen(
                    switch.command(worker, command) if switch else command,
                    env={**os.environ, **_ONE_THREAD, "TF_CPP_MIN_LOG_LEVEL": "3", **cluster, **environment},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()


def finish(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Wait for `processes` to end. If a process fails: SystemExit with the end of its output."""
    for process in processes:
        _, errors = process.communicate()
        if process.returncode:
            raise SystemExit(errors[-2000:])


def measure(
    dataset: Path, config: str, workers: int, sizes: Sequence[int], networks: Sequence[Network] = ()
) -> tuple[Measured, list[int]]:
    """The measurements of benchmarks/collectives.py, and the bytes of each collective of a step.

    Wall time is that of the first worker, processor time the mean over all workers.
    """
    program = Path(__file__).with_name("collectives.py")
    given = [str(program), str(dataset), config, str(len(networks) or 1), *map(str, sizes)]
    with hosts(workers) if networks else nullcontext() as switch, team(workers, given, switch) as processes:
        first = processes[0]
        assert first.stdin is not None
        assert first.stdout is not None
        found = []
        for line in first.stdout:
            found.append(json.loads(line))
            if "ready" in found[-1]:
                if switch:
                    switch.network = networks[found[-1]["ready"]]
                first.stdin.write("\n")
                first.stdin.flush()
        others = [process.communicate()[0] for process in processes[1:]]
        if codes := [process.wait() for process in processes if process.wait()]:
            raise SystemExit(f"{config}, {workers} workers: exit codes {codes}: {first.communicate()[1][-2000:]}")
    of_all = [[entry for entry in found if "seconds" in entry]]
    of_all += [[entry for entry in map(json.loads, lines.splitlines()) if "seconds" in entry] for lines in others]
    merged = [
        entry | {"cpu_s": statistics.mean(each["cpu_s"] for each in same)}
        for entry, same in zip(of_all[0], zip(*of_all, strict=True), strict=True)
    ]
    return merged, found[0]["collectives_bytes"]


def predicted_s(workers: int, size: float, alpha: float, rate: float) -> float:
    """The model's prediction in seconds for an all-reduce of `size` bytes."""
    return 2 * (workers - 1) * alpha + 2 * (workers - 1) / workers * size / rate


def fitted(workers: int, seconds: dict[int, float]) -> tuple[float, float]:
    """alpha in seconds and B in bytes/s, fitted to the `seconds` of all-reduces by size by least relative squares."""
    sizes, times = np.array(list(seconds)), np.array(list(seconds.values()))
    columns = np.stack([np.full(len(sizes), 2.0 * (workers - 1)), 2 * (workers - 1) / workers * sizes], 1)
    (alpha, inverse), *_ = np.linalg.lstsq(columns / times[:, None], np.ones(len(sizes)), rcond=None)
    return float(alpha), float(1 / inverse)


def collectives(dataset: Path, *, quick: bool) -> None:
    print("\n| workers | bytes | ms (median) | model, ms | processor ms of each | alpha, ms | B, MB/s |")
    print("|---|---|---|---|---|---|---|")
    for workers in (2,) if quick else (2, 4, 8):
        found, _ = measure(dataset, "-", workers, _SIZES)
        alpha, rate = fitted(workers, {each["bytes"]: each["seconds"] for each in found if each["bytes"]})
        for each in found:
            if each["bytes"]:
                model = predicted_s(workers, each["bytes"], alpha, rate)
                print(
                    f"| {workers} | {each['bytes']} | {_ms(each)} | {1e3 * model:.2f} | {1e3 * each['cpu_s']:.2f} "
                    f"| {1e3 * alpha:.3f} | {rate / 1e6:.0f} |",
                    flush=True,
                )


def networks(dataset: Path, *, quick: bool) -> None:
    """Single collectives and steps: the time that each network adds to that of `UNSHAPED`, compared with the model."""
    with hosts(2) as switch:
        for network in NETWORKS:
            switch.network = network
            print(f"{network.name}: round trip of a byte {1e6 * switch.round_trip_s():.0f} us", flush=True)
    print("\n| what | workers | network | bytes | ms (median) | added, ms | model, ms | with 2n - 1 delays, ms |")
    print("|---|---|---|---|---|---|---|---|")
    for config, workers in (("fast", 2),) if quick else (("fast", 2), ("fast", 4), ("-", 8), ("3dgan", 2)):
        sizes = () if config == "3dgan" else _SIZES_ON_NETWORKS
        found, of_step = measure(dataset, config, workers, sizes, NETWORKS)
        base = {each["bytes"]: each["seconds"] for each in found if each["turn"] == 0}
        for each in found:
            network, moved = NETWORKS[each["turn"]], [each["bytes"]] if each["bytes"] else of_step
            model = sum(predicted_s(workers, size, network.delay_s, network.rate) for size in moved)
            late = model + len(moved) * network.delay_s
            print(
                f"| {'collective' if each['bytes'] else f'step of {config}'} | {workers} | {network.name} "
                f"| {' + '.join(map(str, moved))} | {_ms(each)} | {1e3 * (each['seconds'] - base[each['bytes']]):.2f} "
                f"| {1e3 * model:.2f} | {1e3 * late:.2f} |",
                flush=True,
            )


def _ms(each: dict[str, Any]) -> str:
    return f"{1e3 * each['seconds']:.2f} ({1e3 * each['median']:.2f})"


# --- the command

_DEVICES = (
    "import runpy, sys, tensorflow as tf; cpu = tf.config.list_physical_devices('CPU')[0];"
    "tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * {});"
    "runpy.run_module('training', {{}}, '__main__')"
)


def trained(program: Sequence[str], workers: int, output: Path) -> tuple[float, float]:
    """Train in `workers` processes. Returns the first one's images a second, and the processor seconds of all."""
    before = os.times()
    with team(workers, [*program, "--output", str(output)]) as processes:
        finish(processes)
    after = os.times()
    last = json.loads((output / "history.jsonl").read_text().splitlines()[-1])
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return last["images_per_s"], cpu_s


def training(dataset: Path, *, quick: bool) -> None:
    """Weak and strong scaling of both approaches. The processor time of a step is from long minus short trainings."""
    short, long = (5, 10) if quick else (10, 200)
    cases = [("weak, strong", "one device", 1, 16)]  # the last number: showers a replica
    for replicas in (2,) if quick else (2, 4):
        for scaling, batch in (("weak", 16), ("strong", 16 // replicas)):
            cases += [(scaling, way, replicas, batch) for way in ("mirrored", "processes")]
    print("\n| scaling | approach | replicas | batch of each | ms a step | processor ms a step |")
    print("|---|---|---|---|---|---|")
    for scaling, approach, replicas, batch in cases:
        fit = ["fit", "--dataset", str(dataset), "--config", "fast", "--batch", str(batch)]
        program, workers = ["-m", "training", *fit], replicas
        if approach == "mirrored":
            program, workers = ["-c", _DEVICES.format(replicas), *fit, "--strategy", "mirrored"], 1
        spent = []
        with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as place:
            for steps in (short, long):
                rate, cpu_s = trained([*program, "--steps", str(steps)], workers, Path(place) / str(steps))
                spent.append(cpu_s)
        wall, cpu = batch * replicas / rate, (spent[1] - spent[0]) / (long - short)
        print(f"| {scaling} | {approach} | {replicas} | {batch} | {1e3 * wall:.0f} | {1e3 * cpu:.0f} |", flush=True)


def epoch(dataset: Path, *, quick: bool) -> None:
    """The parts of the time of a whole training with the config `fast`, as the first worker measures them."""
    steps = 20 if quick else 200
    parts = ("start", "first", "steps", "checkpoint", "evaluation", "between", "end")
    print(f"\n{steps} steps of fast\n\n| replicas | {' | '.join(f'{part}, s (share)' for part in parts)} |")
    print(f"|---|{'---|' * len(parts)}")
    for workers in (1, 2):
        with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as place:
            given = [
                str(Path(__file__).with_name("timed_fit.py")), "fit", "--dataset", str(dataset), "--output",
                f"{place}/m", "--steps", str(steps), "--batch", str(32 // workers),
            ]  # fmt: skip
            with team(workers, given, CLOCK=f"{place}/clock") as processes:
                finish(processes)
            found = json.loads(Path(f"{place}/clock").read_text())
        whole = sum(found.get(part, 0.0) for part in parts)
        shares = " | ".join(f"{found.get(part, 0.0):.1f} ({found.get(part, 0.0) / whole:.1%})" for part in parts)
        print(f"| {workers} | {shares} |", flush=True)


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = {"collectives": collectives, "networks": networks, "training": training, "epoch": epoch}
    command.add_argument("studies", nargs="*", metavar="STUDY", help="(default: all)")
    command.add_argument(
        "--input", nargs="+", default=["data/geant4/*.h5"], metavar="GLOB", help="(default %(default)s)"
    )
    command.add_argument("--quick", action="store_true", help="two workers, few steps")
    options = command.parse_args()
    chosen = options.studies or list(studies)
    if unknown := set(chosen) - set(studies):
        command.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(studies)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that hosts and workers are removed
    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as place:
        preprocess(discover(options.input), Path(place) / "ds", Settings())
        for name, study in studies.items():
            if name in chosen:
                began = time.monotonic()
                print(f"\n## {name}", flush=True)
                study(Path(place) / "ds", quick=options.quick)
                print(f"\n{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    run_command(main)
