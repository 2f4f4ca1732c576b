"""How fast preprocessing is compared with its limit, and how much faster with workers. Prints one table.

    python benchmarks/preprocess.py
    python benchmarks/preprocess.py --input 'data/*.h5' --only limit workers

    limit    shards written by `python -m preprocessing` against one loop that reads with h5py, converts and writes the
             same bytes: no Beam, no checks, no hashes, nothing flushed to the disk
    workers  two processes against one
    dask     a Dask cluster of one and two workers against the same; on --showers altered ones (`altered.py`)

Rates are of the steady state. For `python -m preprocessing` this is the time between the first receipts, one for each
worker, and the last; for the loop, the time after its first piece. So rates do not include start-up and imports, which
are printed beside them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import h5py
import numpy as np
from altered import make

from calopipe import storage
from calopipe.errors import run_command
from calopipe.events.splits import SPLITS, Digests
from calopipe.showers.angle import angle_of_hits
from calopipe.showers.cells import Geometry
from calopipe.showers.files import open_all
from calopipe.showers.hits import Hits, event_digests
from preprocessing import records, shards
from preprocessing.dataset import SHARDS
from preprocessing.field import Plan
from preprocessing.showers.encoding import encode
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = 100  # showers that are read at a time: 26 MB, which h5py reads fastest

Form = Callable[[], tuple[float, str]]  # returns a rate in showers/s, and a remark


@dataclass(frozen=True)
class Bench:
    """The input files, the folder for output, and the number of repeats."""

    files: list[Path]
    scratch: Path
    repeats: int
    showers: int

    def rates(self, forms: Mapping[str, Form]) -> dict[str, float]:
        """The median rate of each form. Forms take turns, so other work of the machine slows all of them."""
        runs = [{name: form() for name, form in forms.items()} for _ in range(self.repeats)]
        rates = {name: median(run[name][0] for run in runs) for name in forms}
        for name in forms:
            spread = "-".join(f"{end(run[name][0] for run in runs):,.0f}" for end in (min, max))
            row(name, f"{rates[name]:,.0f} showers/s ({spread}){runs[-1][name][1]}")
        return rates


def row(what: str, measured: str, ratio: float | None = None, *, least: float = 0) -> None:
    """One line of the table; the ratio should be `least` or more."""
    told = "" if ratio is None else f"{ratio:8.3f}"
    if ratio is not None and least:
        told += f"  at least {least:g}{'' if least <= ratio else '  MISSED'}"
    print(f"  {what:<44} {measured:<62} {told}".rstrip(), flush=True)


def written(folder: Path) -> dict[str, bytes]:
    """The shards of a dataset by name."""
    return {path.name: path.read_bytes() for path in (folder / SHARDS).glob("*.tfrecord")}


def ours(files: Sequence[Path], output: Path, workers: int = 1, options: Sequence[str] = ()) -> tuple[float, str]:
    """The rate of `python -m preprocessing` into a new folder; `options` may set the workers instead of `--workers`."""
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "preprocessing", "--input", *map(str, files), "--output", str(output)]
    began = time.time()
    subprocess.run([*command, *(options or [f"--workers={workers}"])], check=True, capture_output=True, cwd=ROOT)
    whole = time.time() - began
    left = sorted((path.stat().st_mtime, path) for path in (output / SHARDS).glob("*.json"))
    events = [json.loads(path.read_text())["events"]["read"] for _, path in left]
    ready, finished = left[workers - 1][0], left[-1][0]
    rate = sum(events[workers:]) / (finished - ready)
    startup = ready - began - sum(events[:workers]) / rate
    return rate, f", start-up {startup:.1f} s, all {whole:.1f} s"


def plain(files: Sequence[Path], output: Path) -> tuple[float, str]:
    """The rate of the loop that sets the limit. It converts by the same functions, so that it writes the same bytes."""
    shutil.rmtree(output, ignore_errors=True)
    (output / SHARDS).mkdir(parents=True)
    settings = Settings()
    inputs = discover([str(file) for file in files]).files
    first, *rest = shards.plan(inputs, settings)
    geometry = inputs[0].geometry
    _write_plainly(first, settings, geometry, output)
    began = time.perf_counter()
    for plan in rest:
        _write_plainly(plan, settings, geometry, output)
    return sum(plan.stop - plan.start for plan in rest) / (time.perf_counter() - began), ""


def _write_plainly(plan: Plan, settings: Settings, geometry: Geometry, output: Path) -> None:
    encoded: list[bytes] = []
    kept: list[Any] = []
    digests: list[Digests] = []
    with h5py.File(plan.path) as file:
        energy, theta = file["energy"][()], file["theta"][()]
        for first in range(plan.start, plan.stop, _BLOCK):
            stop = min(first + _BLOCK, plan.stop)
            hits = Hits.of(file["ECAL"][first:stop])
            digests.append(event_digests(hits, energy[first:stop], theta[first:stop]))
            above = hits.sums() > settings.selection.cut_gev / geometry.file_unit_gev
            hits, events = hits[above], first + np.flatnonzero(above)
            mtheta = angle_of_hits(hits, geometry)
            labels = {"energy": energy[events], "theta": theta[events], "mtheta": mtheta, "event": events}
            encoded += encode(hits, labels)
            kept.append(events)
    split_of = settings.selection.rule.assign(Path(plan.path).name, np.concatenate(digests))
    for number, split in enumerate(SPLITS):
        chosen = np.flatnonzero(split_of[np.concatenate(kept) - plan.start] == number)
        order = chosen[np.random.default_rng(list(f"{plan.key}-{split}".encode())).permutation(len(chosen))]
        shard = b"".join(records.framed(encoded[place]) for place in order)
        (output / SHARDS / f"{plan.key}-{split}.tfrecord").write_bytes(shard)


def uncompressed(bench: Bench) -> list[Path]:
    """Copies of the input whose datasets are stored in one piece, without compression."""
    folder = bench.scratch / "uncompressed"
    folder.mkdir(exist_ok=True)
    copies = [folder / path.name for path in bench.files]
    for path, copy in zip(bench.files, copies, strict=True):
        with h5py.File(path) as file, h5py.File(copy, "w") as to:
            to.attrs.update(file.attrs)
            for name, values in file.items():
                to[name] = values[()]
    os.sync()  # otherwise the next runs would wait for the disk
    return copies


def limit(bench: Bench) -> None:
    for kind, files in (("as given", bench.files), ("uncompressed", uncompressed(bench))):
        mine, loop = bench.scratch / "ours", bench.scratch / "loop"
        rates = bench.rates(
            {
                f"{kind}: preprocessing": partial(ours, files, mine),
                f"{kind}: the loop": partial(plain, files, loop),
            }
        )
        same = written(mine) == written(loop)
        preprocessing, the_loop = rates.values()
        row(f"{kind}: preprocessing / loop", "the same bytes" if same else "OTHER BYTES", preprocessing / the_loop,
            least=0.8)  # fmt: skip


def workers(bench: Bench) -> None:
    form = partial(ours, bench.files, bench.scratch / "ours")
    rates = bench.rates({"one worker": form, "two workers": partial(form, 2)})
    row("two workers / one", "", rates["two workers"] / rates["one worker"], least=1.7)


def dask(bench: Bench) -> None:
    from distributed import LocalCluster  # noqa: PLC0415  only this section needs it

    logging.getLogger("distributed").setLevel(logging.ERROR)
    files = make(tuple(bench.files), bench.scratch / "altered", bench.showers, shuffle=True)
    os.sync()
    form = partial(ours, files, bench.scratch / "ours")
    forms: dict[str, Form] = {"in process": form, "two processes": partial(form, 2)}
    with ExitStack() as clusters:
        for name, workers, threads in (("one worker", 1, 1), ("two workers", 2, 1), ("a worker of two threads", 1, 2)):
            cluster = clusters.enter_context(
                LocalCluster(n_workers=workers, threads_per_worker=threads, dashboard_address=":0")
            )
            where = f"--beam-option=dask_client_address={cluster.scheduler_address}"
            options = ("--beam-option=runner=DaskRunner", where)
            forms[f"Dask, {name}"] = partial(form, workers * threads, options)
        rates = bench.rates(forms)
    for name in list(forms)[1:]:
        row(f"{name} / in process", "", rates[name] / rates["in process"])
    row("Dask, two workers / two processes", "", rates["Dask, two workers"] / rates["two processes"], least=0.9)


SECTIONS = {section.__name__: section for section in (limit, workers, dask)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", default=[str(ROOT / "data/geant4/*.h5")], metavar="GLOB",
                        help="HDF5 files of gzip-compressed showers, three or more (default: the sample)")  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="sections (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each form (default %(default)s)")
    parser.add_argument("--showers", type=int, default=100_000, help="of dask, in files of 5,000 (default %(default)s)")
    parser.add_argument("--scratch", type=Path, help="an existing folder on the disk to write to (default: /tmp's)")
    options = parser.parse_args()
    files = [Path(str(file)).absolute() for file in storage.expand(options.input)]
    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-", dir=options.scratch) as scratch:
        bench = Bench(files, Path(scratch), options.repeats, options.showers)
        print(f"{len(files)} files, {sum(file.events for file in open_all(files)):,} showers, {os.cpu_count()} cores")
        for name in options.only:
            print(f"{name} (load {os.getloadavg()[0]:.1f})", flush=True)
            SECTIONS[name](bench)


if __name__ == "__main__":
    run_command(main)
