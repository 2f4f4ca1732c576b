"""What preprocessing costs beside what it could cost, and whether it keeps what it promises. Prints one table.

    python benchmarks/preprocess.py
    python benchmarks/preprocess.py --input 'data/*.h5' --only limit workers

    limit    shards written by `python -m preprocessing` against one loop that reads with h5py, converts and writes the
             same bytes: no Beam, no checks, no hashes, nothing flushed to the disk
    beam     the same against the usual way: one Beam element a shower, dense records, `WriteToTFRecord`
    workers  two processes against one
    dask     a Dask cluster of one and two workers against the same; 20 files of --showers in all
    again    a second run, and one with a file added
    memory   the highest resident memory of any process, on many showers made of the input's
    kills    runs killed at random moments, then run again, against one that was left alone

Rates are of the steady state. For `python -m preprocessing` that is the time between the first receipts, one a worker,
and the last; for the loop, all after its first piece; for the usual way, the time of several files less that of the
first, in one process. So start-up and imports are in none of them; they are printed beside the rate.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import h5py
import numpy as np

from calopipe import storage
from calopipe.errors import InputError, run_command
from calopipe.events.contents import MEMORY
from calopipe.events.splits import SPLITS, Digests
from calopipe.showers.angle import angle_of_hits
from calopipe.showers.cells import FloatArray, Geometry
from calopipe.showers.hits import Hits, event_digests
from preprocessing import records, shards
from preprocessing.dataset import SHARDS, read_manifest
from preprocessing.field import Plan
from preprocessing.showers.encoding import encode
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings

ROOT = Path(__file__).resolve().parent.parent
WORKER_GIB = 1.5
_BLOCK = 100  # showers read at a time: 26 MB, which h5py reads fastest
_CHUNK = 10  # showers, as in the sample
_COPIES = 5_000  # showers of a file of many

Form = Callable[[], tuple[float, str]]  # gives a rate in showers/s, and a remark


@dataclass(frozen=True)
class Bench:
    """What is measured on, where, and how often."""

    files: list[Path]
    scratch: Path
    repeats: int
    showers: int
    kills: int

    def fresh(self, name: str) -> Path:
        """An empty folder, so far not there, in the scratch folder."""
        folder = self.scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def rates(self, forms: Mapping[str, Form]) -> dict[str, float]:
        """The median rate of each form; they take turns, so that what slows the machine slows all."""
        runs = [{name: form() for name, form in forms.items()} for _ in range(self.repeats)]
        rates = {name: median(run[name][0] for run in runs) for name in forms}
        for name in forms:
            spread = "-".join(f"{end(run[name][0] for run in runs):,.0f}" for end in (min, max))
            row(name, f"{rates[name]:,.0f} showers/s ({spread}){runs[-1][name][1]}")
        return rates


def row(what: str, measured: str, ratio: float | None = None, *, least: float = 0, most: float = np.inf) -> None:
    """One line of the table; `least` and `most` bound the ratio."""
    told = "" if ratio is None else f"{ratio:8.3f}"
    if least or most < np.inf:
        told += f"  {f'at least {least:g}' if least else f'at most {most:g}'}"
        told += "" if ratio is not None and least <= ratio <= most else "  MISSED"
    print(f"  {what:<44} {measured:<62} {told}".rstrip(), flush=True)


def command(files: Sequence[Path], output: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "preprocessing", "--input", *map(str, files), "--output", str(output), *options]


def seconds_of(arguments: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(arguments, check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - began


def started(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """A command in a process group of its own, silent."""
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(arguments, stdout=nowhere, stderr=nowhere, cwd=ROOT, start_new_session=True)


def content(folder: Path) -> dict[str, bytes]:
    """The dataset's files by name: all but what is remembered of the inputs, and what a killed writer left."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MEMORY)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if not path.name.startswith(".")}


def ours(files: Sequence[Path], output: Path, workers: int = 1, options: Sequence[str] = ()) -> tuple[float, str]:
    """The rate of `python -m preprocessing` from nothing; `options` give it so many workers in another way."""
    shutil.rmtree(output, ignore_errors=True)
    began = time.time()
    whole = seconds_of(command(files, output, *(options or [f"--workers={workers}"])))
    left = sorted((path.stat().st_mtime, path) for path in (output / SHARDS).glob("*.json"))
    events = [json.loads(path.read_text())["events"]["read"] for _, path in left]
    ready, finished = left[workers - 1][0], left[-1][0]
    rate = sum(events[workers:]) / (finished - ready)
    startup = ready - began - sum(events[:workers]) / rate
    return rate, f", start-up {startup:.1f} s, all {whole:.1f} s"


def plain(files: Sequence[Path], output: Path) -> tuple[float, str]:
    """The limit's rate. It converts with the same functions, or its bytes would be others."""
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
            above = settings.selection.above_cut(hits, geometry)
            hits, events = hits[above], first + np.flatnonzero(above)
            mtheta = angle_of_hits(hits, geometry)
            encoded += encode(hits, energy[events], theta[events], mtheta, events)
            kept.append(events)
    split_of = settings.selection.rule.assign(Path(plan.path).name, np.concatenate(digests))
    for number, split in enumerate(SPLITS):
        chosen = np.flatnonzero(split_of[np.concatenate(kept) - plan.start] == number)
        order = chosen[np.random.default_rng(list(f"{plan.key}-{split}".encode())).permutation(len(chosen))]
        shard = b"".join(records.framed(encoded[place]) for place in order)
        (output / SHARDS / f"{plan.key}-{split}.tfrecord").write_bytes(shard)


def usual(files: Sequence[Path], output: Path, *, spread: bool) -> tuple[float, str]:
    """The rate of one Beam element a shower; to `spread` them over workers takes them through Beam's shuffle.

    Beam then holds all of them in memory: twice 260 kB a shower and more.
    """
    import apache_beam as beam  # noqa: PLC0415  only this section needs it
    import tensorflow  # noqa: F401, PLC0415  for which the first record would wait
    from apache_beam.options.pipeline_options import PipelineOptions  # noqa: PLC0415

    def seconds(some: Sequence[Path]) -> float:
        shutil.rmtree(output, ignore_errors=True)
        began = time.perf_counter()
        with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
            showers = pipeline | beam.Create([str(file) for file in some]) | beam.FlatMap(_showers_one_by_one)
            if spread:
                showers |= beam.Reshuffle()
            showers | beam.MapTuple(_example) | beam.io.WriteToTFRecord(str(output / "showers"))
        return time.perf_counter() - began

    alone = min(seconds(files[:1]) for _ in range(2))  # the first pipeline of a process makes ready what later ones use
    return events_of(files[1:]) / (seconds(files) - alone), f", the first file {alone:.1f} s"


def _showers_one_by_one(path: str) -> Iterator[tuple[FloatArray, float, float]]:
    with h5py.File(path) as file:
        for first in range(0, len(file["ECAL"]), _BLOCK):
            block = slice(first, first + _BLOCK)
            yield from zip(file["ECAL"][block], file["energy"][block], file["theta"][block], strict=True)


def _example(cells: FloatArray, energy: float, theta: float) -> bytes:
    """Raw bytes, which are made 30 times faster than a float list."""
    from tensorflow.train import BytesList, Example, Feature, Features, FloatList  # noqa: PLC0415

    ecal = Feature(bytes_list=BytesList(value=[cells.tobytes()]))
    labels = {name: Feature(float_list=FloatList(value=[x])) for name, x in (("energy", energy), ("theta", theta))}
    return bytes(Example(features=Features(feature={"ECAL": ecal} | labels)).SerializeToString())


def events_of(files: Sequence[Path]) -> int:
    total = 0
    for path in files:
        with h5py.File(path) as file:
            total += len(file["ECAL"])
    return total


def uncompressed(bench: Bench) -> list[Path]:
    """Copies of the input whose datasets are stored in one piece, as they are in memory."""
    folder = bench.scratch / "uncompressed"
    folder.mkdir(exist_ok=True)
    copies = [folder / path.name for path in bench.files]
    for path, copy in zip(bench.files, copies, strict=True):
        if not copy.exists():
            with h5py.File(path) as file, h5py.File(copy, "w") as to:
                to.attrs.update(file.attrs)
                for name, values in file.items():
                    to[name] = values[()]
    os.sync()  # or the runs that follow would wait for the disk
    return copies


def limit(bench: Bench) -> None:
    for kind, files in (("as given", bench.files), ("uncompressed", uncompressed(bench))):
        mine, loop = bench.fresh("ours"), bench.fresh("loop")
        rates = bench.rates(
            {
                f"{kind}: preprocessing": partial(ours, files, mine),
                f"{kind}: the loop": partial(plain, files, loop),
            }
        )
        written = {name: data for name, data in content(mine).items() if name.endswith(".tfrecord")}
        same = written == content(loop)
        preprocessing, the_loop = rates.values()
        row(f"{kind}: preprocessing / loop", "the same bytes" if same else "OTHER BYTES", preprocessing / the_loop,
            least=0.8)  # fmt: skip


def beam(bench: Bench) -> None:
    for kind, files, least in (("as given", bench.files, 5), ("uncompressed", uncompressed(bench), 8)):
        mine, theirs = bench.fresh("ours"), bench.fresh("usual")
        rates = bench.rates(
            {
                f"{kind}: preprocessing": partial(ours, files, mine),
                f"{kind}: usual": partial(usual, files, theirs, spread=True),
                f"{kind}: usual, not spread": partial(usual, files, theirs, spread=False),
            }
        )
        preprocessing, spread, fused = rates.values()
        row(f"{kind}: preprocessing / usual", "", preprocessing / spread, least=least)
        row(f"{kind}: preprocessing / usual, not spread", "", preprocessing / fused)


def workers(bench: Bench) -> None:
    output = bench.fresh("ours")
    rates = bench.rates(
        {
            "one worker": partial(ours, bench.files, output),
            "two workers": partial(ours, bench.files, output, 2),
        }
    )
    row("two workers / one", "", rates["two workers"] / rates["one worker"], least=1.7)


def dask(bench: Bench) -> None:
    from distributed import LocalCluster  # noqa: PLC0415  only this section needs it

    logging.getLogger("distributed").setLevel(logging.ERROR)
    files = altered(bench, bench.showers // 20)
    output = bench.fresh("ours")
    forms: dict[str, Form] = {
        "in process": partial(ours, files, output),
        "two processes": partial(ours, files, output, 2),
    }
    with ExitStack() as clusters:
        for name, workers, threads in (("one worker", 1, 1), ("two workers", 2, 1), ("a worker of two threads", 1, 2)):
            cluster = clusters.enter_context(
                LocalCluster(n_workers=workers, threads_per_worker=threads, dashboard_address=":0")
            )
            where = f"--beam-option=dask_client_address={cluster.scheduler_address}"
            options = ("--beam-option=runner=DaskRunner", where)
            forms[f"Dask, {name}"] = partial(ours, files, output, workers * threads, options)
        rates = bench.rates(forms)
    for name in list(forms)[1:]:
        row(f"{name} / in process", "", rates[name] / rates["in process"])
    row("Dask, two workers / two processes", "", rates["Dask, two workers"] / rates["two processes"], least=0.9)


# Run in place of `python -m preprocessing`; tells what was loaded, and which of the input files were opened.
_WITNESS = """
import json, runpy, sys
opened = []
sys.addaudithook(lambda event, what: opened.append(str(what[0])) if event == "open" else None)
runpy.run_module("preprocessing", run_name="__main__", alter_sys=True)
loaded = [name for name in ("apache_beam", "tensorflow", "h5py") if name in sys.modules]
print(json.dumps(loaded + [name for name in opened if name in sys.argv]))
"""


def again(bench: Bench) -> None:
    output, alone = bench.fresh("again"), bench.fresh("alone")
    *before, added = bench.files
    seconds_of(command(before, output))
    one_added = seconds_of(command(bench.files, output))
    one_alone = seconds_of(command([added], alone))
    first = seconds_of(command(bench.files, bench.fresh("ours")))
    second = median(seconds_of(command(bench.files, output)) for _ in range(bench.repeats))
    watched = [sys.executable, "-c", _WITNESS, *command(bench.files, output)[3:]]
    done = subprocess.run(watched, check=True, capture_output=True, text=True, cwd=ROOT)
    touched = json.loads(done.stdout.splitlines()[-1])
    row("second run / first", f"{second:.2f} s, {first:.1f} s", second / first)
    row("second run / 1 s", "opened no input, loaded no h5py, Beam, TensorFlow" if not touched else f"USED {touched}",
        second, most=1)  # fmt: skip
    row("one file added / that file alone", f"{one_added:.2f} s, {one_alone:.2f} s", one_added / one_alone)


def altered(bench: Bench, each: int) -> list[Path]:
    """Files of `each` showers made of the input's; the deposits of every copy are scaled by a factor of its own."""
    folder = bench.fresh("altered")
    folder.mkdir()
    paths = []
    for number, start in enumerate(range(0, bench.showers, each)):
        paths.append(folder / f"{number:03d}.h5")
        with h5py.File(bench.files[number % len(bench.files)]) as file, h5py.File(paths[-1], "w") as to:
            _write_copies(file, to, min(each, bench.showers - start), number * each)
    os.sync()
    return paths


def _write_copies(file: h5py.File, to: h5py.File, showers: int, before: int) -> None:
    cells = file["ECAL"][: len(file["ECAL"]) // _CHUNK * _CHUNK]
    to.attrs.update(file.attrs)
    for name, values in file.items():
        if name != "ECAL":
            to[name] = np.resize(values[: len(cells)], (showers, *values.shape[1:]))  # again and again
    shape = cells.shape[1:]
    ecal = to.create_dataset("ECAL", (showers, *shape), "f4", chunks=(_CHUNK, *shape), compression="gzip", shuffle=True)

    def packed(first: int) -> bytes:
        """One chunk as HDF5's filters leave it, shuffled and deflated: its own hold a lock that lets one thread run."""
        copy, start = divmod(first, len(cells))
        block = cells[start : start + _CHUNK] * np.float32(1 + 1e-4 * (before // len(cells) + copy))
        return zlib.compress(block.view(np.uint8).reshape(-1, 4).T.tobytes(), 1)

    firsts = range(0, showers, _CHUNK)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for first, chunk in zip(firsts, threads.map(packed, firsts), strict=True):
            ecal.id.write_direct_chunk((first, 0, 0, 0), chunk)


def peaks_of(process: subprocess.Popen[bytes]) -> list[float]:
    """The highest resident memory of each process of the group of `process`, in GiB, the highest first."""
    peaks: dict[int, float] = {}
    while process.poll() is None:
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(ProcessLookupError, FileNotFoundError):
                if os.getpgid(int(entry.name)) == process.pid:
                    found = re.search(r"VmHWM:\s*(\d+) kB", (entry / "status").read_text())
                    peaks[int(entry.name)] = int(found[1]) / 2**20 if found else 0
        time.sleep(0.2)
    return sorted((peak for peak in peaks.values() if peak > 0.01), reverse=True)  # without shells


def memory(bench: Bench) -> None:
    for each in (_COPIES, bench.showers):
        files = altered(bench, each)
        for count in (1, 2):
            output = bench.fresh("ours")
            began = time.perf_counter()
            peaks = peaks_of(started(command(files, output, f"--workers={count}")))
            measured = f"{', '.join(f'{peak:.2f}' for peak in peaks)} GiB in {time.perf_counter() - began:.0f} s"
            read = read_manifest(output).events["read"]
            row(f"{read:,} showers, {len(files)} file(s), {count} worker(s)", measured, peaks[0] / WORKER_GIB, most=1)


def kills(bench: Bench) -> None:
    random = np.random.default_rng()
    pieces = "--shard-events=100"  # more of them, between which to be killed
    for count in (1, 2):
        quiet, output = bench.fresh("quiet"), bench.scratch / "killed"
        run = command(bench.files, output, pieces, f"--workers={count}")
        seconds = seconds_of(command(bench.files, quiet, pieces, f"--workers={count}"))
        expected = content(quiet)
        whole = same = midway = 0
        rounds = bench.kills // 2
        for _ in range(rounds):
            shutil.rmtree(output, ignore_errors=True)
            process = started(run)
            time.sleep(random.uniform(0, seconds))
            with suppress(ProcessLookupError):  # it was faster
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            midway += 0 < len(storage.listing(output / SHARDS)) < len(expected) - 1
            with suppress(InputError):  # refused, as what is not whole must be
                read_manifest(output)
                whole += 1
                same -= content(output) != expected
            seconds_of(run)
            same += content(output) == expected
        row(
            f"killed and run again, {count} worker(s)",
            f"{same} of {rounds} the same bytes; {midway} killed amid shards, {whole} whole",
            same / rounds,
            least=1,
        )


SECTIONS = {section.__name__: section for section in (limit, beam, workers, dask, again, memory, kills)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", default=[str(ROOT / "data/geant4/*.h5")], metavar="GLOB",
                        help="HDF5 files of gzip-compressed showers, three or more (default: the sample)")  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="sections (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each form (default %(default)s)")
    parser.add_argument("--showers", type=int, default=100_000, help="of memory and dask (default %(default)s)")
    parser.add_argument("--kills", type=int, default=20, help="half with one worker, half with two (default 20)")
    parser.add_argument("--scratch", type=Path, help="an existing folder on the disk to write to (default: /tmp's)")
    options = parser.parse_args()
    files = [Path(str(file)).absolute() for file in storage.expand(options.input)]
    with tempfile.TemporaryDirectory(prefix="calopipe-benchmark-", dir=options.scratch) as scratch:
        bench = Bench(files, Path(scratch), options.repeats, options.showers, options.kills)
        print(f"{len(files)} files, {events_of(files):,} showers, {os.cpu_count()} cores")
        for name in options.only:
            print(f"{name} (load {os.getloadavg()[0]:.1f})", flush=True)
            SECTIONS[name](bench)


if __name__ == "__main__":
    run_command(main)
