"""Published times of trainings beside those that the model of time predicts: `python benchmarks/estimate.py`.

The published code is modelled as it was: its 20 collectives a step, its batch, its hosts. `--fit` prints the
catalogue's rates and latencies when they are fitted to the figures that calibrate them.
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
from training.estimate.estimate import Pace, Spread, Work, exchange_seconds, pace_of, step_seconds
from training.estimate.work import work_of

_SCALAR = 4.0  # bytes of a number


@dataclass(frozen=True)
class Published:
    """A published figure: `seconds` of an epoch or of a step, or the `efficiency` compared with one device."""

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
    """The work of a step of the published networks, as this program does it."""
    return work_of(named_config("3dgan"), REFERENCE_GEOMETRY)


def published_work() -> Work:
    """The work of a step of the published code: the same networks and phases, with the published collectives."""
    work = our_work()
    gradients = (*work.collectives[:-1], work.gradients)  # our last collective carries more than gradients
    return replace(work, collectives=gradients + (_SCALAR,) * (_DOCUMENT["collectives"] - len(gradients)))


def predicted(published: Published, catalogue: Catalogue) -> float:
    """The model's prediction of the `published` figure."""
    kind = replace(catalogue.kind[published.kind], devices_a_host=-(-published.devices // published.hosts))
    work = replace(published_work(), batch=published.batch, precision=published.precision)
    pace, rate = pace_of(work, kind, catalogue)[0], catalogue.input_showers_a_second
    _, step, _ = step_seconds(work, kind, published.devices, pace, input_rate=rate)
    if not published.prefetch:
        step = max(step, published.batch * published.devices / input_rate())
    if published.efficiency:
        _, alone, _ = step_seconds(work, kind, 1, pace, input_rate=rate)
        return alone / step
    return step if published.step else step * steps(published)


def steps(published: Published) -> int:
    return SHOWERS // (published.batch * published.devices)


def input_rate() -> float:
    """Showers a second that the published input delivered without prefetch, to all workers together."""
    (bound,) = (each for each in FIGURES if each.calibrates and not each.prefetch)
    return SHOWERS / bound.seconds


def error(published: Published, catalogue: Catalogue) -> float:
    """The predicted figure over the published one, minus one."""
    return predicted(published, catalogue) / published.figure - 1


def fit_v100(catalogue: Catalogue) -> tuple[float, float, float, float]:
    """The V100's TFLOP/s, constant seconds of each step, alpha between devices of a host, and alpha between hosts.

    Four figures calibrate these four numbers: the time of a step is linear in the last three and in 1 / TFLOP/s.
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
    """TFLOP/s of a kind of device that one figure calibrates, after the time of its collectives is subtracted."""
    here = replace(kind, devices_a_host=-(-published.devices // published.hosts))
    seconds = published.seconds if published.step else published.seconds / steps(published)
    work = replace(published_work(), batch=published.batch)
    none = Pace(np.zeros(3), np.zeros(3))
    _, overhead, _ = step_seconds(replace(work, batch=0), here, published.devices, none, input_rate=1.0)
    return work.flop * published.batch / (seconds - overhead) / 1e12


def by_others(published: Published, catalogue: Catalogue) -> Spread:
    """Seconds of a step on one device (least, likely, most), predicted as if its kind had no rate of its own."""
    kind = replace(catalogue.kind[published.kind], rate=[])
    without = replace(catalogue, kind=catalogue.kind | {published.kind: kind})
    work = replace(published_work(), batch=published.batch, precision=published.precision)
    pace, _ = pace_of(work, kind, without)
    return step_seconds(work, kind, 1, pace, input_rate=catalogue.input_showers_a_second)


def table_by_others(catalogue: Catalogue) -> list[str]:
    """Lines of a table: steps of single devices, and of one core of a TPU, predicted by the rates of other kinds."""
    lines = ["| training | published | by other kinds | range |", "|---|---|---|---|"]
    for each in rates():
        seconds = each.seconds if each.step else each.seconds / steps(each)
        least, likely, most = by_others(each, catalogue)
        title = f"{each.kind}, batch {each.batch}, {each.precision}: s a step"
        lines.append(f"| {title} | {seconds:.3g} | {likely:.3g} | {least:.3g} to {most:.3g} |")
    return lines


def rates() -> list[Published]:
    """The figures that each state the rate of one device."""
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
    """The errors of all predicted figures, and of those whose training calibrates nothing, with or without prefetch."""
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
