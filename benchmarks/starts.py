"""What the workers of a host read, and for how long, before a training starts: every one alone, or once a host.

    python benchmarks/starts.py [--megabytes 400] [--workers 1 2 4]

All ways are measured in turn, on shards of random bytes that were written some seconds before and are in the system's
memory: a disk or a network takes longer for the same bytes. Of `again`, nothing changed since the start before.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from calopipe.errors import run_command
from preprocessing.dataset import SHARDS, Settings, read_manifest, write_manifest
from preprocessing.inputs import discover
from preprocessing.manifest import Manifest, Shard
from preprocessing.pipeline import preprocess
from preprocessing.staging import MEMORY

_SHARD_BYTES = 5 << 20
_WORKER = """
import sys, time
from pathlib import Path
from preprocessing.dataset import read_manifest, require_unaltered
from preprocessing.staging import at_hand

def read():
    return int(Path("/proc/self/io").read_text().split()[1])  # rchar: bytes that the process asked for

folder = Path(sys.argv[1])
manifest = read_manifest(folder)
before, began, processor = read(), time.perf_counter(), time.process_time()
if sys.argv[2] == "alone":
    require_unaltered(folder, manifest)
else:
    with at_hand(folder, manifest):
        pass
print(read() - before, time.perf_counter() - began, time.process_time() - processor)
"""


def make_dataset(folder: Path, megabytes: int) -> Manifest:
    """A dataset in `folder` whose shards hold random bytes."""
    manifest = preprocess(discover(["data/geant4/*_000.h5"]), folder, Settings())
    shards = []
    for number in range(max(megabytes * 2**20 // _SHARD_BYTES, 1)):
        content, name = os.urandom(_SHARD_BYTES), f"{SHARDS}/{number}.tfrecord"
        (folder / name).write_bytes(content)
        shards.append(Shard(name, "train", 1, _SHARD_BYTES, hashlib.sha256(content).hexdigest()))
    events = manifest.events | {"read": len(shards), "written": len(shards), "dropped": {}}
    write_manifest(folder, replace(manifest, shards=tuple(shards), events=events))
    return read_manifest(folder)


def start(folder: Path, way: str, workers: int) -> tuple[float, float, float]:
    """Megabytes read and processor seconds of all workers, and seconds of the slowest."""
    command = [sys.executable, "-c", _WORKER, str(folder), way]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) for _ in range(workers)]
    figures = [[float(figure) for figure in process.communicate()[0].split()] for process in processes]
    read, seconds, processor = zip(*figures, strict=True)
    return sum(read) / 2**20, sum(processor), max(seconds)


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--megabytes", type=int, default=400, metavar="N", help="of shards (default %(default)s)")
    command.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4], metavar="N", help="processes")
    command.add_argument("--repeats", type=int, default=5, metavar="N", help="(default %(default)s)")
    options = command.parse_args()
    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-") as place:
        manifest = make_dataset(Path(place), options.megabytes)
        print(f"{sum(shard.bytes for shard in manifest.shards) / 2**20:.0f} MiB in {len(manifest.shards)} shards")
        time.sleep(3)  # younger shards are not remembered
        for workers in options.workers:
            found: dict[str, list[tuple[float, float, float]]] = {"alone": [], "once": [], "again": []}
            for _ in range(options.repeats):
                (Path(place) / MEMORY).unlink(missing_ok=True)
                for way, figures in found.items():
                    figures.append(start(Path(place), way, workers))
            for way, figures in found.items():
                read, processor, seconds = (statistics.median(each) for each in zip(*figures, strict=True))
                print(f"{workers} workers, {way:5}: {read:6.0f} MiB read, {processor:5.2f} s of processors, "
                      f"{seconds:5.2f} s")  # fmt: skip


if __name__ == "__main__":
    run_command(main)
