"""The power of the verdict: how often it accepts independent Monte Carlo, and rejects showers with a planted fault.

    python benchmarks/power.py --input 'data/geant4/*.h5' [--splits 20] [--events 3500 7000] [--cache DIR] [--quick]
    python benchmarks/power.py --input 'DIR/*.h5' --geometry FILE.toml --only independent [--events 2000]

Each fault is planted once in the cells, or labels, of all showers. A split then divides the showers anew between the
two sets; no shower is in both. The reference is left as it is, and the candidate has the fault. The answer is that of
the verdict, with its criteria and hard failures. Prints a Markdown table. The faults are made for the sample's
calorimeter; independent Monte Carlo may be of any calorimeter.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
from faults import FAULTS, INDEPENDENT, Fault, Planted, Rows, unchanged

from calopipe import storage
from calopipe.errors import InputError, run_command
from calopipe.grade import load_grade
from calopipe.labels import PARTICLE, PHI
from calopipe.showers.cells import Geometry
from calopipe.showers.files import open_all
from calopipe.showers.hits import Hits
from calopipe.showers.selection import Selection
from validation.compare import Judgement, without_empty
from validation.measure.edges import SPECTRUM_EDGES
from validation.measure.observables import SCALARS, Observables, observe
from validation.measure.sets import Measured, Table
from validation.statistics.binning import Binning

_SHOWN = 4  # criteria in a row: those that gave the answer most often


@dataclass(frozen=True)
class Sample:
    """The observables of showers and the digests of their cells, a row for each shower, and the calorimeter."""

    observables: Observables
    geometry: Geometry
    digests: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.digests)

    def measured(self, rows: Rows) -> Measured:
        """The showers `rows` in the form that a pass over their files gives."""
        return Measured(Table([self.observables[rows]]), self.digests[rows], 0, "", ())


@dataclass(frozen=True)
class Outcome:
    """One verdict, and the answers of its criteria and hard failures."""

    verdict: str
    failed: frozenset[str]
    undecided: frozenset[str]


def sample_of(paths: Sequence[Path], geometry: str, planted: Planted, cache: Path | None) -> Sample:
    """The measured showers of `paths` with the fault `planted`. They are stored in the folder `cache`, or read from it.

    If the source of the fault, the files or the observables have changed, the showers are measured anew.
    """
    measures = [*SCALARS], [*SPECTRUM_EDGES]
    files = open_all(paths, Selection(geometry=geometry))
    made_by = storage.fingerprint(
        [inspect.getsource(planted), files[0].geometry.to_json(), *(file.sha256 for file in files), *measures]
    )[:12]
    kept = None if cache is None else cache / f"{planted.__name__}_{len(paths)}_{made_by}.npz"
    names = [field.name for field in fields(Observables)]
    if kept is not None and kept.exists():
        with np.load(kept) as stored:
            return Sample(Observables(*(stored[name] for name in names)), files[0].geometry, stored["digests"])
    parts, hashes = [], []
    for number, file in enumerate(files):
        showers = planted(file.read(), np.random.default_rng(number))
        hits = Hits.of(showers.cells)
        more = {"particle": showers.more.get(PARTICLE), "phi_rad": showers.more.get(PHI)}
        parts.append(observe(hits, showers.energy_gev, showers.theta_rad, file.geometry, **more))
        hashes.append(hits.digests())
    sample = Sample(Observables.joined(parts), files[0].geometry, np.concatenate(hashes))
    if kept is not None:
        np.savez(kept, digests=sample.digests, **{name: getattr(sample.observables, name) for name in names})
    return sample


def outcome(judged: Judgement) -> Outcome:
    # without the number of the layer: "Mean energy, layer 3" counts as "Mean energy"
    answers = [(each.verdict, each.measurement.name.partition(", layer")[0]) for each in judged.criteria]
    hard = [failure["name"] for failure in judged.hard_failures]
    return Outcome(
        judged.verdict,
        frozenset([name for answer, name in answers if answer == "fail"] + hard),
        frozenset(name for answer, name in answers if answer == "inconclusive"),
    )


def outcomes(sound: Sample, faulty: Sample, fault: Fault, *, grade: str, events: int, splits: int) -> Iterator[Outcome]:
    """The verdicts of `splits` splits of the showers into two sets of `events`, the second with the fault."""
    # Labels outside the reference's range would be an input error, so only showers within the range are taken.
    inside = faulty.observables.theta_rad >= sound.observables.theta_rad.min()
    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(sound))
        reference, candidate = order[:events], fault.rows(order[events : 2 * events])
        sets = sound.measured(reference), faulty.measured(candidate[inside[candidate]])
        smallest = min(len(each.table) for each in sets)
        limits, compared = load_grade(grade), without_empty(sets[0].table, sets[1].table, 0)
        binning = Binning.of(sets[0].table, smallest, sound.geometry, limits)
        yield outcome(Judgement.of(*sets, compared, binning=binning, grade=limits, seed=split))


def row(fault: Fault, grade: str, events: int, found: Sequence[Outcome]) -> str:
    """A line of Markdown, with the criteria that failed or, if no criterion failed, those that were undecided."""
    verdicts = Counter(each.verdict for each in found)
    failed = Counter(name for each in found for name in each.failed)
    undecided = Counter(name for each in found for name in each.undecided)
    named = f"{fault.named_by}: {failed[fault.named_by]}" if fault.named_by else ""
    others = [f"{name} {count}" for name, count in failed.most_common() if name != fault.named_by]
    others = others or [f"undecided: {name} {count}" for name, count in undecided.most_common()]
    counts = [str(verdicts[answer]) for answer in ("accepted", "inconclusive", "rejected")]
    cells = [fault.name, grade, f"{events:,}", *counts, named, ", ".join(others[:_SHOWN])]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--input", nargs="+", default=["data/geant4/*.h5"], metavar="GLOB")
    command.add_argument("--geometry", default="", help="of the files, if they do not say")
    command.add_argument("--splits", type=int, default=20, metavar="N", help="of the showers (default %(default)s)")
    command.add_argument("--events", type=int, nargs="+", default=[3_500, 7_000], metavar="N", help="in each set")
    command.add_argument("--only", nargs="+", metavar="NAME", help="faults whose names begin so (default: all)")
    command.add_argument("--cache", type=Path, metavar="DIR", help="folder that keeps measured showers between runs")
    command.add_argument("--quick", action="store_true", help="two splits of all the showers of the first two files")
    options = command.parse_args()
    paths = [Path(str(path)) for path in storage.expand(options.input)][: 2 if options.quick else None]
    sound = sample_of(paths, options.geometry, unchanged, options.cache)
    splits, sizes = (2, [len(sound) // 2]) if options.quick else (options.splits, options.events)
    if max(sizes) > len(sound) // 2:
        raise InputError(f"--events {max(sizes)}: two such sets need more than the {len(sound)} showers given")
    cases = [(INDEPENDENT, grade) for grade in ("gan", "precision")] + [(fault, "precision") for fault in FAULTS]
    print(
        "| candidate | grade | showers a side | accepted | inconclusive | rejected | by the criterion that names it "
        "| other criteria |\n|---|---|---|---|---|---|---|---|"
    )
    for fault, grade in cases:
        if options.only and not fault.name.startswith(tuple(options.only)):
            continue
        faulty = sample_of(paths, options.geometry, fault.planted, options.cache)
        for events in sizes:
            start = time.perf_counter()
            found = list(outcomes(sound, faulty, fault, grade=grade, events=events, splits=splits))
            print(row(fault, grade, events, found), flush=True)
            print(f"{fault.name}, {grade}, {events}: {time.perf_counter() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    run_command(main)
