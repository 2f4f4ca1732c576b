"""Bins of energy, of angle and of histograms, as fine as the number of events allows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from calopipe.grade import Grade
from calopipe.showers.cells import Array, Geometry, Index, Mask
from validation.measure.edges import ring_label, wide
from validation.measure.observables import SCALARS, Columns
from validation.measure.sets import SAMPLE_SHOWERS, Rows, Samples, thinned

# If correlations may differ by 0.1, independent Geant4 passes in one bin of 7,000 showers a side, and hardly ever in
# several smaller bins. Correlations need the most showers. Their errors fall with the root of the number of showers.
_EVENTS_PER_ENERGY_BIN, _AT_CORRELATION = 7_000, 0.1
_MOST_ENERGY_BINS = 4
_BINS_PER_DECADE = 2  # at most, if energies span decades
_ENOUGH = 0.8  # share of the events of a bin that is enough: bins that are equal in log E do not hold equally many
_LEAST_PER_ANGLE_BIN, _MOST_ANGLE_BINS = 1_000, 6  # events; bins
# With an error of the tolerance over this, the 95 % interval of a perfect candidate is inside in 95 of 100 cases.
_REACH = 2 * 1.96
_LEAST_AZIMUTH_BINS = 2  # one bin for each sign, so that phi and -phi are told apart
_FEWEST_BINS, _MOST_BINS = 5, 50  # of a histogram whose S is a criterion


@dataclass(frozen=True)
class Bin:
    """Showers whose energy, or angle, is in [low, high)."""

    label: str
    low: float
    high: float

    def holds(self, values: npt.NDArray[np.floating]) -> Mask:
        return (values >= self.low) & (values < self.high)


@dataclass(frozen=True)
class Binning:
    """Bins of energy in GeV, of the true angle in degrees, of the azimuth in degrees if there is one, and a bin for
    each kind of particle if there are several; and the function that names rings about a shower's axis (`ring_label`).

    `means` are bins of energy for means only, if means can be decided in smaller bins than those of `energy`.
    """

    energy: tuple[Bin, ...]
    means: tuple[Bin, ...]
    angle: tuple[Bin, ...]
    particle: tuple[Bin, ...]
    azimuth: tuple[Bin, ...]
    ring_label: Callable[[int, int], str]

    @classmethod
    def of(cls, reference: Rows, events: int, geometry: Geometry, grade: Grade) -> Binning:
        """Bins of Monte Carlo's labels, as many as `grade` and the `events` of the smallest compared set allow.

        For a calorimeter with cells in rings there is no bin, and so no criterion, of angle or azimuth: its particles
        come along its axis, and the direction in which a shower leans is chance.
        """
        angle: list[Bin] = []
        azimuth: list[Bin] = []
        if not geometry.rings:
            sample, limit = thinned(reference, SAMPLE_SHOWERS, np.random.default_rng(0)), grade.tolerance["angle_deg"]
            count = angle_bins(sample.column("angle_deg"), degrees(sample), events, limit)
            angle = bins(degrees(reference), count, "degrees")
            if np.ptp(reference.phi_rad) > 0:
                count = angle_bins(sample.angle_x_deg, azimuths(sample), events, limit)
                azimuth = bins(azimuths(reference), max(count, _LEAST_AZIMUTH_BINS), "degrees of azimuth")
        codes = np.unique(reference.particle).tolist()
        energy, means = (
            tuple(energy_bins(energies(reference), events, a_bin))
            for a_bin in (events_per_energy_bin(grade), _EVENTS_PER_ENERGY_BIN)
        )
        return cls(
            energy,
            means if len(means) > len(energy) else (),
            tuple(angle),
            tuple(Bin(f"pdg {kind}", kind, kind + 1) for kind in codes) if len(codes) > 1 else (),
            tuple(azimuth),
            partial(ring_label, geometry),
        )


def energies(rows: Rows) -> Array:
    """The true energy of each shower in GeV, (N,)."""
    return rows.energy_gev.astype(np.float64)


def kinds(rows: Rows) -> Array:
    """The PDG code of each shower, (N,)."""
    return rows.particle.astype(np.float64)


def degrees(rows: Rows) -> Array:
    """The true angle of each shower in degrees, (N,)."""
    return np.degrees(rows.theta_rad.astype(np.float64))


def azimuths(rows: Rows) -> Array:
    """The azimuth of each shower in degrees, (N,)."""
    return np.degrees(rows.phi_rad.astype(np.float64))


def events_per_energy_bin(grade: Grade) -> int:
    """How many events a bin needs for `grade` to accept Monte Carlo: 7,000 for `gan`, 28,000 for `precision`."""
    tighter = max(_AT_CORRELATION / grade.tolerance["correlation"], 1.0)
    return round(_EVENTS_PER_ENERGY_BIN * tighter**2)


def angle_bins(measured: Array, true: Array, events: int, tolerance: float) -> int:
    """How many bins of angle `events` a side allow, from the scatter of `measured` about `true` angles, in degrees.

    With n events a side the difference of the means has the error sqrt(2/n) times the scatter. Measured angles of the
    sample scatter by 1.3 degrees, those of a few coarse cells by 7.
    """
    finite = np.isfinite(measured)
    if not finite.any():
        return 1
    straight = np.polynomial.Polynomial.fit(true[finite], measured[finite], 1 if np.ptp(true[finite]) > 0 else 0)
    scatter = float(np.std(measured[finite] - straight(true[finite])))
    a_bin = max(2 * (_REACH * scatter / tolerance) ** 2, _LEAST_PER_ANGLE_BIN)
    return int(np.clip(events // a_bin, 1, _MOST_ANGLE_BINS))


def energy_bins(values: Array, events: int, a_bin: int) -> list[Bin]:
    """Bins of energies, one for each `a_bin` of the `events`: at most four, with equally many events. If energies span
    decades: bins equal in log E, at most two a decade, joined to the next bin if events are too few.
    """
    most = events // a_bin
    if not wide(values):
        return bins(values, int(np.clip(most, 1, _MOST_ENERGY_BINS)), "GeV")
    low, high = float(values.min()), float(values.max())
    count = int(np.clip(most, 1, max(_MOST_ENERGY_BINS, round(_BINS_PER_DECADE * math.log10(high / low)))))
    edges = np.geomspace(low, high, count + 1)
    counts = np.histogram(values, [-math.inf, *edges[1:-1], math.inf])[0] * events / len(values)
    enough, since, kept = _ENOUGH * a_bin, 0.0, []
    for k in range(count - 1):
        since += counts[k]
        if since >= enough and counts[k + 1 :].sum() >= enough:
            kept.append(edges[k + 1])
            since = 0.0
    distinct = np.unique(values)
    return _between(distinct, np.unique(np.searchsorted(distinct, kept) - 1), "GeV")


def bins(values: Array, count: int, unit: str) -> list[Bin]:
    """At most `count` bins that hold as equal numbers of `values` as possible. The outer two bins are open.

    Equal values, as in a beam of a few energies, are in one bin.
    """
    distinct, counts = np.unique(values, return_counts=True)
    below = np.cumsum(counts)[:-1]  # values below each possible cut between two distinct values
    wanted = np.arange(1, count) * len(values) / count if len(below) else np.empty(0)
    after = np.searchsorted(below, wanted).clip(max=max(len(below) - 1, 0))
    before = np.maximum(after - 1, 0)
    nearer = np.abs(below[before] - wanted) < np.abs(below[after] - wanted)
    return _between(distinct, np.unique(np.where(nearer, before, after)), unit)


def _between(distinct: Array, cuts: Index, unit: str) -> list[Bin]:
    """Bins of the rising values `distinct`, cut after the values with the indices `cuts`, and named by their values."""
    edges = [-math.inf, *((distinct[cuts] + distinct[cuts + 1]) / 2).tolist(), math.inf]
    firsts, lasts = distinct[[0, *(cuts + 1)]], distinct[[*cuts, -1]]
    names = [f"{a:.4g} to {b:.4g} {unit}" if b > a else f"{a:.4g} {unit}" for a, b in zip(firsts, lasts, strict=True)]
    return [Bin(name, low, high) for name, (low, high) in zip(names, itertools.pairwise(edges), strict=True)]


def joined(rings: Mask, error: Callable[[list[int]], float], tolerance: float) -> list[list[int]]:
    """The chosen `rings` (N,) in groups of neighbours, whose sums Monte Carlo itself knows to a part of the tolerance.

    `error` is Monte Carlo's own of a group. A ring that few showers reach would never be decided: it is joined to the
    next one, and the last rings of a row to the group before.
    """
    groups: list[list[int]] = []
    places = np.flatnonzero(rings)
    for row in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1):
        row_groups: list[list[int]] = [[]]
        for ring in row.tolist():
            row_groups[-1].append(ring)
            if error(row_groups[-1]) <= tolerance / _REACH:
                row_groups.append([])
        *whole, rest = row_groups
        groups += [*whole[:-1], whole[-1] + rest] if whole else [rest] if rest else []
    return groups


def histogram_bins(events: tuple[int, int], tolerance: float) -> int:
    """The number of bins of a histogram with one entry an event, so that the null of its S spreads by a fifth of the
    tolerance. The null of S is its distribution for two sets of one truth.

    With B bins and n events a side, the null of S has the standard deviation sqrt(2 (B - 1)) / (2 n).
    """
    a_side = 2 / (1 / events[0] + 1 / events[1])
    return int(np.clip(1 + 2 * (a_side * tolerance / 5) ** 2, _FEWEST_BINS, _MOST_BINS))


def histograms(sample: Samples, count: int) -> dict[str, Columns]:
    """For each scalar a function that puts showers in bins, (n, bins) of 0 and 1.

    The bins hold equally many showers of both sets together. So the two sets are treated alike, and no bin is empty.
    """
    both = np.concatenate([sample.reference.scalars, sample.candidate.scalars])
    inner = [np.unique(edges) for edges in np.quantile(both, np.linspace(0, 1, count + 1)[1:-1], axis=0).T]

    def one_hot(index: int) -> Columns:
        edges = inner[index]
        rows = np.eye(len(edges) + 1)
        return lambda table: rows[np.searchsorted(edges, table.scalars[:, index], side="right")]

    return {name: one_hot(index) for index, name in enumerate(SCALARS)}
