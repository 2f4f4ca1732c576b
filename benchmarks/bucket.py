"""What a bucket costs: `python benchmarks/bucket.py train|sizes --bucket gs://NAME/FOLDER --folder DIR --input GLOB`.

`train` trains on a disk and on the bucket by turns, each time in a new process. For each training it prints the
seconds, the processor seconds, and the seconds in which the training waited for the store. `sizes` does each stage with
everything on the bucket, and prints the largest resident memory and the largest size of the temporary folder, in MB.
Both use STORAGE_EMULATOR_HOST if it is set.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from calopipe import storage
from calopipe.errors import run_command

_LOOK_SECONDS = 0.1
_TIMED_FIT = str(Path(__file__).with_name("timed_fit.py"))


def measured(command: Sequence[str], scratch: Path, **environment: str) -> tuple[float, float, float, float]:
    """Seconds, processor seconds, peak memory of a process in MB, and the largest size of `scratch` in MB."""
    began, most = time.perf_counter(), 0
    with subprocess.Popen(
        [sys.executable, *command], stdout=sys.stderr, env=os.environ | {"TMPDIR": str(scratch)} | environment
    ) as process:
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                break
            most = max(most, _bytes_in(scratch.resolve(), process.pid))
            time.sleep(_LOOK_SECONDS)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, most / 1e6


def _bytes_in(folder: Path, pid: int) -> int:
    """Bytes of all files in `folder`, each once, and of nameless files there that the process `pid` holds open."""
    sizes = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                status = os.lstat(os.path.join(place, name))  # noqa: PTH118  as fast as it gets
                sizes[status.st_ino] = status.st_blocks * 512
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
        with suppress(FileNotFoundError):
            opened = f"/proc/{pid}/fd/{number}"
            if os.readlink(opened).startswith(f"{folder}/"):  # noqa: PTH115
                status = os.stat(opened)  # noqa: PTH116  the size of a file that no longer has a name
                sizes[status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def compare(options: argparse.Namespace, scratch: Path) -> None:
    places = {"disk": str(options.folder / "run"), "bucket": f"{options.bucket}/train"}
    for place in places.values():
        command = ["-m", "preprocessing", "--input", *options.input, "--output", f"{place}/dataset"]
        measured(command, scratch)
    print("| training | s | processor s | waited for the store, s |\n|---|---|---|---|")
    clock = options.folder / "clock.json"
    for number in range(options.rounds):
        for name, place in places.items():
            fit = ["fit", "--dataset", f"{place}/dataset", "--output", f"{place}/{number}", "--steps", options.steps]
            seconds, used, *_ = measured([_TIMED_FIT, *fit], scratch, CLOCK=str(clock))
            waited = json.loads(clock.read_text()).get("waited", 0.0)
            print(f"| {name} | {seconds:.1f} | {used:.1f} | {waited:.2f} |", flush=True)


def sizes(options: argparse.Namespace, scratch: Path) -> None:
    place = f"{options.bucket}/sizes"
    model, made = ["--model", f"{place}/model"], f"{place}/generated.h5"
    like = ["--like", *options.input, "--dataset", f"{place}/dataset", "--split", "test"]
    stages = {
        "preprocessing": ["preprocessing", "--input", *options.input, "--output", f"{place}/dataset"],
        "training": ["training", "fit", "--dataset", f"{place}/dataset", "--output", f"{place}/model",
                     "--config", options.config, "--steps", options.steps],
        "generation": ["training", "generate", *model, *like, "--per-event", "4", "--output", made],
        "validation": ["validation", "--reference", *options.input, "--split", "test", "--candidate", made,
                       "--dataset", f"{place}/dataset", "--output", f"{place}/verdict"],
    }  # fmt: skip
    print("| stage | s | processor s | memory, MB | scratch, MB |\n|---|---|---|---|---|")
    for name, command in stages.items():
        seconds, used, memory, most = measured(["-m", *command], scratch)
        print(f"| {name} | {seconds:.0f} | {used:.0f} | {memory:.0f} | {most:.0f} |", flush=True)
    listed = storage.listing(storage.location(place))
    for part in ("dataset", "model", "generated.h5"):
        print(f"{part}: {sum(size for name, size in listed.items() if name.startswith(part)) / 1e6:.0f} MB")


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("what", choices=("train", "sizes"))
    command.add_argument("--bucket", required=True, metavar="gs://NAME/FOLDER", help="an empty place")
    command.add_argument("--folder", type=Path, required=True, metavar="DIR", help="an empty place on a disk")
    command.add_argument("--input", nargs="+", default=["data/geant4/*.h5"], metavar="GLOB")
    command.add_argument("--steps", default="200", metavar="N", help="of training (default %(default)s)")
    command.add_argument("--config", default="fast", help="of `sizes` (default %(default)s)")
    command.add_argument("--rounds", type=int, default=2, help="of `train` (default %(default)s)")
    options = command.parse_args()
    scratch = options.folder / "scratch"
    scratch.mkdir(parents=True)
    {"train": compare, "sizes": sizes}[options.what](options, scratch)


if __name__ == "__main__":
    run_command(main)
