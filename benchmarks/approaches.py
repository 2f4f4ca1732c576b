"""Keras's `fit` against a loop of our own, the central comparison of the study: rate and memory.

    python benchmarks/approaches.py --input 'data/geant4/*.h5' [--config fast] [--steps 40] [--repeats 3] [--quick]

Each case is a training of its own through the command, `python -m training fit`, so that memory is that of one case;
cases take turns. A global batch is the same 16 showers whatever the number of replicas, and all replicas share the
machine's cores: on one machine of CPUs two replicas show what replicas cost, not what they gain.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from calopipe import storage
from calopipe.errors import run_command
from preprocessing.pipeline import preprocess
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings
from training.configs import DEFAULT

_BATCH = 16
_DEVICES = (
    "import runpy, sys, tensorflow as tf; cpu = tf.config.list_physical_devices('CPU')[0];"
    "tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * {});"
)


@dataclass
class Case:
    """One way to train, with `batch` images a replica, and what each of its turns gave; `cpu_s` is of all processes."""

    name: str
    arguments: tuple[str, ...]
    replicas: int = 1
    builtin: bool = False
    batch: int = _BATCH
    rates: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def turn(
        self, dataset: Path, output: Path, config: str, steps: int, environments: Sequence[Mapping[str, str]] = ({},)
    ) -> None:
        """Train in one process for each of the `environments`; what the first says counts."""
        keras_fit = Path(__file__).with_name("keras_fit.py")
        program = [keras_fit] if self.builtin else ["-m", "training"]
        if "mirrored" in self.arguments:
            run = f"runpy.run_path({str(keras_fit)!r}, {{}}, '__main__')"
            program = [
                "-c",
                _DEVICES.format(self.replicas)
                + (run if self.builtin else "runpy.run_module('training', {}, '__main__')"),
            ]
        command = [
            sys.executable, *program, "fit", "--dataset", dataset, "--output", output, "--config", config,
            "--steps", str(steps), "--batch", str(self.batch), *self.arguments,
        ]  # fmt: skip
        with tempfile.TemporaryFile("w+") as errors:
            processes: list[subprocess.Popen[bytes]] = []
            try:
                for more in environments:
                    environment = {**os.environ, **more}
                    processes.append(
                        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
                    )
                ends = [os.wait4(process.pid, 0) for process in processes]
            except BaseException:  # an interruption: workers die with it
                for process in processes:
                    process.kill()
                raise
            errors.seek(0)
            if any(status for _, status, _ in ends):
                raise SystemExit(f"{self.name}: {errors.read()[-2000:]}")
        self.cpu_s.append(sum(usage.ru_utime + usage.ru_stime for _, _, usage in ends))
        self.memory_mib.append(max(usage.ru_maxrss for _, _, usage in ends) / 1024)
        last = json.loads((output / "history.jsonl").read_text().splitlines()[-1])
        self.rates.append(last["images_per_s"])

    def row(self) -> str:
        return (
            f"| {self.name} | {statistics.median(self.rates):.1f} ({min(self.rates):.1f}-{max(self.rates):.1f}) "
            f"| {statistics.median(self.memory_mib):.0f} |"
        )


def cases() -> list[Case]:
    return [
        Case("one device, builtin", (), builtin=True),
        Case("one device, custom", ()),
        Case("one device, custom, 10 steps a call", ("--steps-a-call", "10")),
        Case("two replicas, mirrored, builtin", ("--strategy", "mirrored"), 2, builtin=True, batch=_BATCH // 2),
        Case("two replicas, mirrored, custom", ("--strategy", "mirrored"), 2, batch=_BATCH // 2),
    ]


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument(
        "--input", nargs="+", default=["data/geant4/*.h5"], metavar="GLOB", help="(default %(default)s)"
    )
    command.add_argument("--config", default=DEFAULT, metavar="NAME", help="of the training (default %(default)s)")
    command.add_argument("--steps", type=int, default=40, metavar="N", help="of each training (default %(default)s)")
    command.add_argument("--repeats", type=int, default=3, metavar="N", help="trainings a case (default %(default)s)")
    command.add_argument("--quick", action="store_true", help="the first file alone, ten steps, once")
    options = command.parse_args()
    names = [str(name) for name in storage.expand(options.input)][: 1 if options.quick else None]
    steps, repeats = (10, 1) if options.quick else (options.steps, options.repeats)
    compared = cases()
    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as place:
        preprocess(discover(names), Path(place) / "ds", Settings())
        for repeat in range(repeats):
            for number, case in enumerate(compared):
                case.turn(Path(place) / "ds", Path(place) / f"m{repeat}-{number}", options.config, steps)
    print(f"\n{options.config}, global batch {_BATCH}, {steps} steps, {repeats} turns; medians (lowest-highest)\n")
    print("| case | images/s | peak memory of a process, MiB |")
    print("|---|---|---|")
    for case in compared:
        print(case.row())


if __name__ == "__main__":
    run_command(main)
