"""What the model of time says of published trainings, beside what was published: `python benchmarks/estimate.py`.

The published code is modelled as it was: its 20 collectives a step, its batch, its hosts. `--fit` prints what the
catalogue's rates and latencies are when they are fitted to the figures that calibrate.
"""

from __future__ import annotations

import argparse
import statistics
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from calopipe.showers.cells import REFERENCE_GEOMETRY
from training.configs import named_config
from training.estimate.catalogue import Catalogue, Kind, load_catalogue
from training.estimate.model import Pace, Work, exchange_seconds, paces, step_seconds
from training.estimate.work import work_of

_SCALAR = 4.0  # bytes


@dataclass(frozen=True)
class Published:
    """A published figure: `seconds` of an epoch, or of a step, or the `efficiency` against one device."""

    kind: str
    devices: int
    hosts: int
    batch: int
    prefetch: bool
    source: str
    seconds: float = 0.0
    efficiency: float = 0.0
    step: bool = False
    precision: str = "float32"
    calibrates: bool = False

    @property
    def figure(self) -> float:
        return self.efficiency or self.seconds

    def title(self) -> str:
        unit = "efficiency" if self.efficiency else "s a step" if self.step else "s an epoch"
        workers = "worker" if self.hosts == 1 else "workers"
        where = f"{self.devices} x {self.kind}, {self.hosts} {workers}, batch {self.batch}, {self.precision}"
        return f"{where}{'' if self.prefetch else ', no prefetch'}: {unit}"


_DOCUMENT = tomllib.loads(Path(__file__).with_name("published.toml").read_text())
FIGURES = [Published(**each) for each in _DOCUMENT["run"]]
SHOWERS: int = _DOCUMENT["showers"]


@cache
def our_work() -> Work:
    """A step of the published networks, as this program carries it out."""
    return work_of(named_config("3dgan"), REFERENCE_GEOMETRY)


def published_work() -> Work:
    """A step of the published code: the same networks and phases, with its collectives."""
    work = our_work()
    gradients = (*work.collectives[:-1], work.gradients)  # the last one's without what ours carries beside them
    return replace(work, collectives=gradients + (_SCALAR,) * (_DOCUMENT["collectives"] - len(gradients)))


def predicted(published: Published, catalogue: Catalogue) -> float:
    """The same figure by the model."""
    kind = replace(catalogue.kind[published.kind], devices_a_host=-(-published.devices // published.hosts))
    work = replace(published_work(), batch=published.batch, precision=published.precision)
    pace = paces(work, kind, catalogue)[0][1]
    step = step_seconds(work, kind, published.devices, pace, input_rate=catalogue.input_showers_a_second)
    if not published.prefetch:
        step = max(step, published.batch * published.devices / input_rate())
    if published.efficiency:
        return step_seconds(work, kind, 1, pace, input_rate=catalogue.input_showers_a_second) / step
    return step if published.step else step * steps(published)


def steps(published: Published) -> int:
    return SHOWERS // (published.batch * published.devices)


def input_rate() -> float:
    """Showers a second that the published input gave without prefetch, to all workers together."""
    (bound,) = (each for each in FIGURES if each.calibrates and not each.prefetch)
    return SHOWERS / bound.seconds


def error(published: Published, catalogue: Catalogue) -> float:
    """Predicted over published, less one."""
    return predicted(published, catalogue) / published.figure - 1


def fit_v100(catalogue: Catalogue) -> tuple[float, float, float, float]:
    """TFLOP/s, seconds beside them for each step, alpha between devices of a host, alpha between hosts.

    Four figures calibrate these four: the step is linear in them.
    """
    kind, work = catalogue.kind["v100"], published_work()
    rows, values = [], []
    for each in (each for each in FIGURES if each.kind == "v100" and each.calibrates and each.prefetch):
        here = replace(kind, devices_a_host=-(-each.devices // each.hosts))
        free = replace(here, local=replace(here.local, alpha_s=0.0), network=replace(here.network, alpha_s=0.0))
        rings = len(work.collectives) * 2 * np.array([here.devices_a_host - 1, each.hosts - 1])
        rows.append([each.batch, 1.0, *rings])
        values.append(each.seconds / steps(each) - exchange_seconds(work.collectives, free, each.devices))
    shower, step, local, network = np.linalg.solve(np.array(rows), np.array(values))
    return work.flop / shower / 1e12, step, local, network


def fit_rate(published: Published, kind: Kind) -> float:
    """TFLOP/s of a kind that one figure calibrates, its collectives subtracted."""
    here = replace(kind, devices_a_host=-(-published.devices // published.hosts))
    seconds = published.seconds if published.step else published.seconds / steps(published)
    work = replace(published_work(), batch=published.batch)
    overhead = step_seconds(replace(work, batch=0), here, published.devices, Pace(0.0, 0.0), input_rate=1.0)
    return work.flop * published.batch / (seconds - overhead) / 1e12


def by_others(published: Published, catalogue: Catalogue) -> tuple[float, float, float]:
    """Seconds of a step of one device, least, likely and most, as if its kind had no rate of its own."""
    kind = replace(catalogue.kind[published.kind], rate=[])
    without = replace(catalogue, kind=catalogue.kind | {published.kind: kind})
    work = replace(published_work(), batch=published.batch, precision=published.precision)
    least, likely, most = (
        step_seconds(work, kind, 1, pace, input_rate=catalogue.input_showers_a_second)
        for pace in paces(work, kind, without)[0]
    )
    return least, likely, most


def table_by_others(catalogue: Catalogue) -> list[str]:
    """The steps of single devices, and of one core of a TPU, by the rates of the other kinds."""
    lines = ["| training | published | by other kinds | range |", "|---|---|---|---|"]
    for each in rates():
        seconds = each.seconds if each.step else each.seconds / steps(each)
        least, likely, most = by_others(each, catalogue)
        title = f"{each.kind}, batch {each.batch}, {each.precision}: s a step"
        lines.append(f"| {title} | {seconds:.3g} | {likely:.3g} | {least:.3g} to {most:.3g} |")
    return lines


def rates() -> list[Published]:
    """The figures of which each says the rate of a device."""
    return [each for each in FIGURES if each.step or (each.kind.startswith("tpu") and each.hosts == 1)]


def table(catalogue: Catalogue) -> list[str]:
    lines = ["| training | published | predicted | error | |", "|---|---|---|---|---|"]
    for each in FIGURES:
        used = "calibrates" if each.calibrates else ""
        form = ".0f" if each.figure >= 100 else ".3g"
        figures = f"{each.figure:{form}} | {predicted(each, catalogue):{form}} | {error(each, catalogue):+.1%}"
        lines.append(f"| {each.title()} | {figures} | {used} |")
    return [*lines, "", summary(catalogue)]


def summary(catalogue: Catalogue) -> str:
    """The errors of what was predicted, and of that without trainings that calibrate too, with or without prefetch."""
    used = {(each.kind, each.devices, each.hosts, each.batch, each.precision) for each in FIGURES if each.calibrates}
    found = [each for each in FIGURES if not each.calibrates]
    new = [each for each in found if (each.kind, each.devices, each.hosts, each.batch, each.precision) not in used]
    parts = []
    for name, figures in (("predicted", found), ("of trainings of which no figure calibrates", new)):
        errors = [abs(error(each, catalogue)) for each in figures]
        parts.append(f"{len(errors)} {name}: median error {statistics.median(errors):.1%}, largest {max(errors):.1%}")
    return "; ".join(parts)


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__)
    command.add_argument("--fit", action="store_true", help="what the catalogue's figures are fitted to")
    catalogue = load_catalogue()
    if command.parse_args().fit:
        print("v100: {:.3f} TFLOP/s, {:.3f} s a step, alpha {:.2e} and {:.2e} s".format(*fit_v100(catalogue)))
        for each in FIGURES:
            if each.calibrates and each.prefetch and each.kind != "v100":
                print(f"{each.kind} {each.precision}: {fit_rate(each, catalogue.kind[each.kind]):.3f} TFLOP/s")
        return
    print("\n".join([*table(catalogue), "", *table_by_others(catalogue)]))


if __name__ == "__main__":
    main()
