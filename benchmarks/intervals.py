"""How often intervals at 95 % hold a known truth, on simulated events.

    python benchmarks/intervals.py [--trials 1000] [--events 200 1000 3500] [--quick]

The truth of every quantity is known. The quantity differs between the two sets unless its name says null. Events are
unpaired, with equally many candidates or a fifth as many; or paired, with partners that share four fifths of their
variance; or paired with three candidates an event.
Prints a Markdown table with a column for each number of events: how often an interval holds the truth, and in brackets
how often all of it lies below the truth, how often above, and how often there is no interval. With 1,000 trials a
share of 95 % is known to 0.7 %.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy import special

from calopipe.errors import run_command
from calopipe.showers.cells import Array
from validation.statistics.estimates import Estimate
from validation.statistics.resampling import (
    Features,
    Resampled,
    correlation_differences,
    difference_of_means,
    ratio_of_means,
    ratio_of_widths,
    resample,
    with_products,
)

_SHARED = 0.8  # common share of the variance of partners: energy and angle explain as much of the number of hits
_SCALE, _OFFSET = 1.05, 0.1  # the candidate's x is 1.05 x + 0.1 times the mean of x, but in the late layer 1.15 x
_HITS, _HITS_SPREAD = 600.0, 0.3  # Poisson numbers about 600 exp(0.3 z): a skewness of 1; Geant4's sample has none
_BINS = 16  # as many as 7,000 showers a side have
_SLOPE = 0.3  # the candidate's density is 1 + slope (2 u - 1), the reference's density is 1: S = 0.0075
_ENTRIES = 20  # entries of an event, which follow one of two densities, 1 - or + slope (2 u - 1)
_CORRELATIONS = ((0.6, 0.5), (0.95, 0.93))  # pairs: of the reference, of the candidate
_REACHED, _REACHED_SPREAD = 0.02, 1.2  # share of events that reach a late layer; spread of their energies' logarithms
_COLUMNS = 16  # normal numbers of an event that `features` uses
_PAIRINGS = {  # showers of the candidate for each event, and their number over that of the events
    "unpaired": (0, 1.0), "unpaired, a fifth as many candidates": (0, 0.2),
    "paired": (1, 1.0), "paired, 3 an event": (3, 3.0),
}  # fmt: skip


@dataclass(frozen=True)
class Law:
    """A distribution as a function of standard normal numbers, with its mean and standard deviation."""

    draw: Callable[[Array, np.random.Generator], Array]
    mean: float
    sigma: float
    scale: float = _SCALE
    offset: float = _OFFSET


def _hits(z: Array, rng: np.random.Generator) -> Array:
    return rng.poisson(_HITS * np.exp(_HITS_SPREAD * z)).astype(np.float64)


def _late_layer(z: Array, rng: np.random.Generator) -> Array:
    return np.exp(_REACHED_SPREAD * rng.standard_normal(z.shape)) * (special.ndtr(z) > 1 - _REACHED)


_HITS_MEAN = _HITS * math.exp(_HITS_SPREAD**2 / 2)
_LATE_MEAN = _REACHED * math.exp(_REACHED_SPREAD**2 / 2)
LAWS = {
    "normal": Law(lambda z, _: 10 + z, 10.0, 1.0),
    "exponential": Law(lambda z, _: -special.log_ndtr(-z), 1.0, 1.0),
    "hits": Law(_hits, _HITS_MEAN, math.sqrt(_HITS_MEAN + _HITS_MEAN**2 * math.expm1(_HITS_SPREAD**2))),
    "late layer": Law(
        _late_layer, _LATE_MEAN, math.sqrt(_REACHED * math.exp(2 * _REACHED_SPREAD**2) - _LATE_MEAN**2), 1.15, 0.0
    ),
}


@dataclass(frozen=True)
class Quantity:
    """A quantity that is estimated, and its truth."""

    name: str
    truth: float
    estimate: Callable[[Resampled], Estimate]


def quantities() -> list[Quantity]:
    """All quantities, in the order of the table."""
    found = []
    for name, law in LAWS.items():
        mean, sigma = (law.scale + law.offset) * law.mean, law.scale * law.sigma
        width = (sigma / mean) / (law.sigma / law.mean)
        found += [
            Quantity(f"ratio of means, {name}", mean / law.mean, _first(ratio_of_means(name))),
            Quantity(f"difference of means, {name}", mean - law.mean, _first(difference_of_means(name))),
            Quantity(f"ratio of widths, {name}", width, _first(ratio_of_widths(name))),
        ]
    for name in ("normal", "exponential"):
        for mine, theirs in _CORRELATIONS:
            statistic = _first(correlation_differences(f"{name} {mine}", 2))
            found.append(Quantity(f"correlation {theirs} less {mine}, {name}", theirs - mine, statistic))
    edges = np.linspace(0, 1, _BINS + 1)
    falling, flat, rising = (np.diff(_cumulative(edges, slope)) for slope in (-_SLOPE, 0.0, _SLOPE))
    for name, one, other in (("1 entry", flat, rising), (f"{_ENTRIES} entries", (falling + rising) / 2, rising)):
        truth = float(((one - other) ** 2 / (one + other)).sum() / 2)
        for kind, value in (("null", 0.0), ("away", truth)):
            estimate = partial(Resampled.separation, name=f"{name}, {kind}")
            found.append(Quantity(f"S of {name} an event, {kind} ({value:.2g})", value, estimate))
    return found


def _first(statistic: Callable[..., Array]) -> Callable[[Resampled], Estimate]:
    return lambda drawn: drawn.estimate(statistic)[0]


def normals(rng: np.random.Generator, events: int, pairing: tuple[int, float], columns: int) -> tuple[Array, Array]:
    """Standard normal numbers of both sets, (n, columns) and (m, columns); partners are correlated."""
    per_event, candidates = pairing[0], round(events * pairing[1])
    mine, theirs = rng.standard_normal((events, columns)), rng.standard_normal((candidates, columns))
    if not per_event:
        return mine, theirs
    shared = math.sqrt(_SHARED) * rng.standard_normal((events, columns))
    own = math.sqrt(1 - _SHARED)
    return shared + own * mine, np.repeat(shared, per_event, axis=0) + own * theirs


def features(z: Array, *, candidate: bool, rng: np.random.Generator) -> Features:
    """The features of events whose normal numbers are `z` (n, _COLUMNS)."""
    column = iter(z.T)
    found: dict[str, Array] = {}
    for name, law in LAWS.items():
        x = law.draw(next(column), rng)
        x = law.scale * x + law.offset * law.mean if candidate else x
        found[name] = np.stack([x, x**2], axis=1)
    for name in ("normal", "exponential"):
        for both in _CORRELATIONS:
            r = both[candidate]
            a, b = (LAWS[name].draw(next(column), rng) for _ in range(2))
            values = np.stack([a, r * a + math.sqrt(1 - r**2) * b], 1)
            found[f"{name} {both[0]}"] = with_products(values - values.mean(axis=0))
    for kind, slope in (("null", 0.0), ("away", _SLOPE if candidate else 0.0)):
        found[f"1 entry, {kind}"] = _one_hot(_quantile(special.ndtr(next(column)), slope))
    for kind, share in (("null", 0.5), ("away", 1.0 if candidate else 0.5)):
        slopes = np.where(special.ndtr(next(column)) < share, _SLOPE, -_SLOPE)[:, None]
        entries = _quantile(rng.random((len(z), _ENTRIES)), slopes)
        found[f"{_ENTRIES} entries, {kind}"] = _one_hot(entries.reshape(-1)).reshape(len(z), _ENTRIES, _BINS).sum(1)
    return found


def _cumulative(u: Array, slope: float | Array) -> Array:
    return (1 - slope) * u + slope * u**2


def _quantile(p: Array, slope: float | Array) -> Array:
    """The inverse of `_cumulative` in u."""
    flat = np.abs(slope) < 1e-9
    steep = np.where(flat, 1.0, slope)
    return np.where(flat, p, (steep - 1 + np.sqrt((1 - steep) ** 2 + 4 * steep * p)) / (2 * steep))


def _one_hot(u: Array) -> Array:
    return np.eye(_BINS)[np.minimum((u * _BINS).astype(int), _BINS - 1)]


def coverage(chosen: Sequence[Quantity], *, events: int, pairing: tuple[int, float], trials: int) -> Array:
    """How often in `trials` an interval holds the truth, lies below it, lies above it, or is missing, (quantities, 4).

    A missing interval excludes nothing, so it also counts as an interval that holds the truth.
    """
    counts = np.zeros((len(chosen), 4))
    for trial in range(trials):
        rng = np.random.default_rng([trial, events, pairing[0]])
        mine, theirs = normals(rng, events, pairing, _COLUMNS)
        sets = features(mine, candidate=False, rng=rng), features(theirs, candidate=True, rng=rng)
        rows = np.arange(len(mine)), np.arange(len(theirs)), pairing[0]
        drawn = resample(rows, [partial(_rows, each) for each in sets], rng=rng)
        for row, quantity in enumerate(chosen):
            interval = quantity.estimate(drawn).interval(0.95)
            low, high = interval or (-math.inf, math.inf)
            truth = quantity.truth
            counts[row] += (low <= truth <= high, high < truth, low > truth, interval is None)
    return counts / trials


def _rows(table: Features, rows: npt.NDArray[np.intp]) -> Features:
    return {name: values[rows] for name, values in table.items()}


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--trials", type=int, default=1_000, metavar="N", help="of each (default %(default)s)")
    command.add_argument("--events", type=int, nargs="+", default=[200, 1_000, 3_500], metavar="N")
    command.add_argument("--quick", action="store_true", help="50 trials of 200 events")
    options = command.parse_args()
    trials, sizes = (50, [200]) if options.quick else (options.trials, options.events)
    chosen = quantities()
    print(
        f"| events are | quantity | {' | '.join(f'{events:,}' for events in sizes)} |\n|---|---|{'---|' * len(sizes)}"
    )
    for name, pairing in _PAIRINGS.items():
        columns = []
        for events in sizes:
            start = time.perf_counter()
            columns.append(coverage(chosen, events=events, pairing=pairing, trials=trials))
            print(f"{name}, {events}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
        for quantity, found in zip(chosen, np.stack(columns, axis=1), strict=True):
            cells = [
                f"{100 * holds:.1f} % ({100 * under:.1f}, {100 * over:.1f}{f', none {100 * none:.1f}' if none else ''})"
                for holds, under, over, none in found
            ]
            print(f"| {name} | {quantity.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    run_command(main)
