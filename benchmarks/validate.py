"""How fast showers are measured and judged, and what memory that takes as sets grow.

    python benchmarks/validate.py --input 'data/geant4/*.h5' [--quick]

The reading figures are medians of alternated repeats. The limit of measuring is HDF5's own reading of the cells. Sets
of a million showers are the input's, repeated by virtual datasets: every shower is read, unpacked and measured each
time it comes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import h5py
import numpy as np

from calopipe import storage
from calopipe.errors import run_command
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from validation.measure.reader import measure as measure_set
from validation.measure.sets import ShowerSet

_PER_FILE = 50_000  # showers of a virtual file
_CANDIDATE = 10_000  # showers: Monte Carlo alone grows
_LABELS = ("energy", "theta")


def read_cells(paths: Sequence[Path]) -> None:
    """HDF5 alone: every cell of every file, piece by piece."""
    for path in paths:
        file = open_showers(path)
        for _ in file.pieces(0, file.events):
            pass


def measure(paths: Sequence[Path]) -> None:
    measure_set(ShowerSet.open(paths, "showers", Selection(cut_gev=0)))


def medians(forms: dict[str, Callable[[], None]], showers: int, repeats: int) -> dict[str, float]:
    """Showers/s of each form, which take turns."""
    rates: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(repeats):
        for name, form in forms.items():
            start = time.perf_counter()
            form()
            rates[name].append(showers / (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in rates.items()}


def repeat(sources: Sequence[Path], events: int, folder: Path) -> list[Path]:
    """Files that hold `events` showers, those of `sources` again and again, without a copy of a cell."""
    opened = [open_showers(path) for path in sources]
    made = []
    for number, start in enumerate(range(0, events, _PER_FILE)):
        size = min(_PER_FILE, events - start)
        path = folder / f"{number:03d}.h5"
        layout = h5py.VirtualLayout((size, *opened[0].geometry.shape), dtype=np.float32)
        labels: dict[str, list[np.ndarray]] = {name: [] for name in _LABELS}
        filled = 0
        while filled < size:
            source = opened[(number + filled // opened[0].events) % len(opened)]
            taken = min(source.events, size - filled)
            layout[filled : filled + taken] = h5py.VirtualSource(
                str(Path(str(source.path)).resolve()), "ECAL", shape=(source.events, *source.geometry.shape)
            )[:taken]
            for name, values in zip(_LABELS, (source.energy_gev, source.theta_rad), strict=True):
                labels[name].append(values[:taken])
            filled += taken
        with h5py.File(path, "w", libver="latest") as file:
            file.create_virtual_dataset("ECAL", layout)
            for name, parts in labels.items():
                file[name] = np.concatenate(parts)
            stated = {key: value for key, value in opened[0].geometry.to_json().items() if key != "shape"}
            file.attrs.update({**stated, "number": number})  # the number makes another file of it
        made.append(path)
    return made


def judge(reference: Path, candidate: Path, output: Path) -> tuple[float, float]:
    """A whole run of the command: seconds, and its largest memory in MiB."""
    command = [
        sys.executable, "-m", "validation", "--reference", f"{reference}/*.h5", "--candidate", f"{candidate}/*.h5",
        "--output", str(output),
    ]  # fmt: skip
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--input", nargs="+", required=True, metavar="FILE", help="HDF5 files or globs, two or more")
    command.add_argument("--quick", action="store_true", help="fewer repeats, no more than 20,000 showers")
    options = command.parse_args()
    paths = [Path(str(path)) for path in storage.expand(options.input)]
    used = paths[:3] if options.quick else paths
    showers = sum(open_showers(path).events for path in used)
    rates = medians(
        {
            "HDF5's reading alone": lambda: read_cells(used),
            "measured": lambda: measure(used),
        },
        showers,
        3,
    )
    limit = rates["HDF5's reading alone"]
    print(f"{showers:,} showers:")
    for name, rate in rates.items():
        print(f"  {name}: {rate:,.0f} showers/s, {rate / limit:.2f} of HDF5 alone")

    print(f"whole runs, of {_CANDIDATE:,} showers at most against Monte Carlo; peaks of resident memory:")
    half = len(paths) // 2
    for events in (2_000, 20_000) if options.quick else (10_000, 100_000, 1_000_000):
        with tempfile.TemporaryDirectory() as scratch:
            reference, candidate = folders = Path(scratch, "reference"), Path(scratch, "candidate")
            sizes = events, min(events, _CANDIDATE)
            for folder, sources, size in zip(folders, (paths[:half], paths[half:]), sizes, strict=True):
                folder.mkdir()
                repeat(sources, size, folder)
            seconds, memory = judge(reference, candidate, Path(scratch, "out"))
        print(
            f"  {events:>9,} showers of Monte Carlo: {seconds:,.0f} s, {sum(sizes) / seconds:,.0f} showers/s, "
            f"{memory:,.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    run_command(main)
