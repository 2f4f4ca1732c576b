"""The criteria: what is measured of two sets of showers, in bins of energy and of angles, and by kind of particle.

A mean is a line of `MEANS`; layers, rings, cells by energy, correlations, coverage and histograms follow below. The key
of a criterion names its tolerance in the files of `calopipe/grades`, which explain the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from calopipe.documents import finite
from calopipe.grade import Grade
from calopipe.showers.cells import Array
from validation.judge.answers import Measurement
from validation.measure.edges import spectrum_labels, wide
from validation.measure.observables import SCALARS, Columns, Observables, features, shares
from validation.measure.sets import SAMPLE_SHOWERS, Samples, Tables, samples, selected, thinned
from validation.statistics.binning import (
    Binning,
    azimuths,
    degrees,
    energies,
    histogram_bins,
    histograms,
    joined,
    kinds,
)
from validation.statistics.estimates import Estimate
from validation.statistics.expected import corrected_for_labels, pulls, responses
from validation.statistics.neighbours import coverage
from validation.statistics.resampling import (
    Features,
    Resampled,
    Statistic,
    correlation_differences,
    difference_of_means,
    ratio_of_means,
    ratio_of_sums,
    ratio_of_widths,
    resample,
    separation_power,
    with_products,
)


@dataclass(frozen=True)
class Mean:
    """A mean over showers of an observable, compared with Monte Carlo's.

    `key` names its tolerance. `statistic` takes the feature's name and returns the statistic that is compared; its
    value for a perfect candidate is `target`. `corrected`: the effect of a difference of labels is subtracted.
    """

    name: str
    key: str
    observable: str
    statistic: Callable[[str], Statistic] = ratio_of_means
    target: float = 1.0
    unit: str = ""
    corrected: bool = True


MEANS = (
    Mean("Mean response", "response", "response"),
    Mean("Mean R90", "r90", "r90_mm"),
    Mean("Second moment along x", "second_moment", "second_x_mm2"),
    Mean("Second moment along y", "second_moment", "second_y_mm2"),
    Mean("Mean number of hits", "hits", "hits"),
    Mean("Resolution sigma/E", "resolution", "resolution", ratio_of_widths, corrected=False),
    Mean("Mean shower depth", "depth_x0", "depth_x0", difference_of_means, 0.0, "X0"),
    Mean("Hottest cell kept to the next layer", "continuity", "hottest_kept", difference_of_means, 0.0),
    Mean("Overlap of neighbouring layers", "continuity", "overlap", difference_of_means, 0.0),
)
ANGLE = Mean("Mean measured angle", "angle_deg", "angle_deg", difference_of_means, 0.0, "degrees")
AZIMUTH = Mean("Mean measured angle to x", "angle_deg", "angle_x_deg", difference_of_means, 0.0, "degrees")
RINGS = {"ring_energy": "Energy in rings about the axis", "ring_cells": "Cells in rings about the axis"}
_SHARES = *RINGS, "spectrum"
PROFILES = {
    "layers": "Longitudinal profile", "along_x": "Profile along x", "along_y": "Profile along y",
    "radial": "Radial profile", "spectrum": "Cell energies",
}  # fmt: skip

# The middle third is left out, as the three thirds sum to one.
CORRELATED = (
    "visible_gev", "depth_x0", "depth_width_x0", "r90_mm", "second_x_mm2", "second_y_mm2", "hits", "first_third",
    "last_third", "angle_deg",
)  # fmt: skip

# With fewer events a coefficient is far from normal, and the bootstrap's error too small: with 12 showers of Geant4
# against 750, one comparison in twenty was rejected. The same holds for the mean of a ring with few cells.
_NORMAL_EVENTS = 100
_TAIL_SHARE = 0.01  # a layer, or ring, with less of the visible energy is in a tail
_COMMON_SHARE = 0.01  # a bin of cell energies with less than this share of the cells is left out
_LEAST_SHARE = 5e-4  # a ring with less than this share of the energy, or cells, is left out: few odd showers fill it


def measure_criteria(tables: Tables, *, binning: Binning, grade: Grade, rng: np.random.Generator) -> list[Measurement]:
    """All criteria for which `grade` has a finite tolerance, for showers that are not empty.

    A bin in which either set has no shower is left out. Two candidates that are measured with the same seed are
    compared with the same resamples of the reference.
    """
    measurements: list[Measurement] = []
    of_means = partial(_of_means, chosen=[mean for mean in MEANS if mean.corrected])
    for bins, labels, measure in (
        (binning.energy, energies, partial(_in_energy_bin, ring_label=binning.ring_label)),
        (binning.means, energies, of_means),
        (binning.angle, degrees, partial(_of_means, chosen=[ANGLE])),
        (binning.azimuth, azimuths, partial(_of_means, chosen=[AZIMUTH])),
        (binning.particle, kinds, of_means),
    ):
        for chosen in bins:
            inside, partners = (chosen.holds(labels(rows)) for rows in tables[:2])
            if tables.per_event:  # rounding may move a partner's labels across the edge of a bin
                partners = np.repeat(inside, tables.per_event)
            reference, candidate = selected(tables.reference, inside), selected(tables.candidate, partners)
            (bin_rng,) = rng.spawn(1)
            if len(reference) and len(candidate):
                in_bin = Tables(reference, candidate, tables.per_event)
                measurements += measure(in_bin, label=chosen.label, tolerance=grade.tolerance, rng=bin_rng)
    return [measurement for measurement in measurements if math.isfinite(measurement.tolerance)]


def _in_energy_bin(
    tables: Tables,
    *,
    label: str,
    tolerance: dict[str, float],
    rng: np.random.Generator,
    ring_label: Callable[[int, int], str],
) -> list[Measurement]:
    events = len(tables.reference), len(tables.candidate)
    sample = samples(tables, SAMPLE_SHOWERS, rng)
    binned = histograms(sample, histogram_bins(events, tolerance["separation"]))
    decades = wide(sample.reference.energy_gev)
    corrected = *(mean.observable for mean in MEANS if mean.corrected), "layers", *_SHARES
    means = {
        name: corrected_for_labels(_columns(name, decades), sample.reference, tables.reference) for name in corrected
    }
    standard = pulls(sample.reference, CORRELATED)  # pulls keep sums of products exact

    def profile(table: Observables, name: str) -> Array:
        """Energies, divided by the root of E if E spans `decades`: see `_columns`."""
        values: Array = getattr(table, name).astype(np.float64)
        return values / np.sqrt(table.energy_gev)[:, None] if decades and name != "spectrum" else values

    def of(table: Observables, response: Columns) -> Features:
        ratio = response(table)
        return (
            {name: values(table) for name, values in means.items()}
            | {"resolution": np.concatenate([ratio, ratio**2], axis=1), "products": with_products(standard(table))}
            | {f"S {name}": profile(table, name) for name in PROFILES}
            | {f"S {name}": histogram(table) for name, histogram in binned.items()}
        )

    sides = [partial(of, response=responses(own, sample.reference)) for own in sample[:2]]
    measured = _Bin(label, tolerance, resample(tables, sides, rng=rng))
    return [
        *map(measured.mean, MEANS),
        *measured.layers(),
        *measured.rings(ring_label),
        measured.cell_energies(),
        measured.correlations(),
        _coverage(sample, min(events), label=label, tolerance=tolerance["coverage"], rng=rng),
        *(measured.separation(name, title) for name, title in (PROFILES | SCALARS).items()),
    ]


def _of_means(
    tables: Tables, *, label: str, tolerance: dict[str, float], rng: np.random.Generator, chosen: Sequence[Mean]
) -> list[Measurement]:
    sample = thinned(tables.reference, SAMPLE_SHOWERS, rng)
    means = {
        mean.observable: corrected_for_labels(_columns(mean.observable), sample, tables.reference) for mean in chosen
    }
    drawn = resample(tables, [lambda table: {name: values(table) for name, values in means.items()}] * 2, rng=rng)
    return [_Bin(label, tolerance, drawn).mean(mean) for mean in chosen]


@dataclass(frozen=True)
class _Bin:
    """The resampled features of the showers in a bin. The bin's criteria are made of them."""

    label: str
    tolerance: dict[str, float]
    drawn: Resampled

    def measurement(
        self, name: str, key: str, estimates: Sequence[Estimate], floor: float, *, target: float = 1.0, unit: str = "",
        side: int = 0, labels: Sequence[str] = (),
    ) -> Measurement:  # fmt: skip
        """`floor`: a typical distance from the target between halves of the reference."""
        described = {"value": finite(floor), "scaled": True, "events": self.drawn.events[0] // 2}
        return Measurement(
            name, key, self.label, unit, target, self.tolerance[key], tuple(estimates), described,
            side=side, labels=tuple(labels),
        )  # fmt: skip

    def mean(self, mean: Mean) -> Measurement:
        statistic = mean.statistic(mean.observable)
        (floor,) = self.drawn.floors(statistic, mean.target)
        estimates = self.drawn.estimate(statistic)
        return self.measurement(mean.name, mean.key, estimates, float(floor), target=mean.target, unit=mean.unit)

    def layers(self) -> list[Measurement]:
        """A ratio for each layer that holds energy in either set."""
        means = self.drawn.point.reference["layers"]
        fractions = means / max(float(means.sum()), 1e-30)
        statistic = ratio_of_means("layers")
        estimates, floors = self.drawn.estimate(statistic), self.drawn.floors(statistic, 1.0)
        layers = []
        for layer in np.flatnonzero((means != 0) | (self.drawn.point.candidate["layers"] != 0)):
            tail = fractions[layer] < _TAIL_SHARE
            key, name = ("layer_energy_tail", "Mean energy, tail") if tail else ("layer_energy", "Mean energy")
            layers.append(self.measurement(f"{name}, layer {layer}", key, [estimates[layer]], float(floors[layer])))
        return layers

    def rings(self, label_of: Callable[[int, int], str]) -> list[Measurement]:
        """Ratios of the shares of energy, and of cells with energy, in rings about the axis: core, and tail."""
        tail = self.drawn.point.reference["ring_energy"] < _TAIL_SHARE
        rings = []
        for feature, name in RINGS.items():
            filled = self.drawn.point.reference[feature] >= _LEAST_SHARE
            core = [[int(ring)] for ring in np.flatnonzero(filled & ~tail)]
            outside = joined(filled & tail, partial(self.drawn.own_error, feature), self.tolerance["ring_tail"])
            for key, kind, groups in (("ring", "", core), ("ring_tail", ", tail", outside)):
                if groups:
                    labels = [label_of(group[0], group[-1]) for group in groups]
                    rings.append(self.worst(name + kind, key, ratio_of_sums(feature, groups), labels))
        return rings

    def cell_energies(self) -> Measurement:
        """Ratios of the shares of cells with energy, by the energy of the cell."""
        common = self.drawn.point.reference["spectrum"] >= _COMMON_SHARE
        labels = [label if kept else "" for label, kept in zip(spectrum_labels(), common, strict=True)]
        return self.worst("Cells by energy", "cell_energies", ratio_of_means("spectrum"), labels)

    def correlations(self) -> Measurement:
        names = [label for name, label in SCALARS.items() if name in CORRELATED]
        pairs = zip(*np.triu_indices(len(names), 1), strict=True)
        labels = [f"{names[i]} and {names[j]}" for i, j in pairs]
        statistic = correlation_differences("products", len(names))
        return self.worst("Largest difference of correlations", "correlation", statistic, labels, target=0.0)

    def worst(
        self, name: str, key: str, statistic: Statistic, labels: Sequence[str], *, target: float = 1.0
    ) -> Measurement:
        """A criterion of all numbers of a `statistic` that have a label. Its floor is that of the largest number.

        An observable that does not vary, in Monte Carlo or in the candidate, has no correlation and is left out too.
        """
        estimates = self.drawn.estimate(statistic)
        estimates = [replace(estimate, least=_NORMAL_EVENTS) for estimate in estimates]
        kept = [k for k, estimate in enumerate(estimates) if labels[k] and math.isfinite(estimate.value)]
        with np.errstate(divide="ignore", invalid="ignore"):
            away = np.abs(statistic(self.drawn.halves) - target)[:, [k for k, label in enumerate(labels) if label]]
        floor = float(np.nanmax(away, axis=1, initial=0.0).mean()) * self.drawn.half_to_sample()
        return self.measurement(
            name, key, [estimates[k] for k in kept], floor, target=target, labels=[labels[k] for k in kept]
        )

    def separation(self, name: str, title: str) -> Measurement:
        """The separation power of a profile, or of the histogram of a scalar."""
        feature = f"S {name}"
        spread = float(np.nanstd(separation_power(self.drawn.halves, feature))) * self.drawn.half_to_sample() ** 2
        estimates = [self.drawn.separation(feature)]
        return self.measurement(f"S: {title}", "separation", estimates, spread, target=0.0, side=1)


def _coverage(sample: Samples, events: int, *, label: str, tolerance: float, rng: np.random.Generator) -> Measurement:
    near = coverage(features(sample.reference), features(sample.candidate), per_event=sample.per_event, rng=rng)
    estimate = replace(near.coverage, events=events)
    floor = {"value": finite(near.floor), "scaled": False, "events": len(sample.reference)}
    return Measurement(
        "Coverage, relative to Monte Carlo's own", "coverage", label, "", 1.0, tolerance, (estimate,), floor, side=-1,
        most_events=SAMPLE_SHOWERS,
    )  # fmt: skip


def _columns(name: str, decades: bool = False) -> Columns:
    """The columns (n, k) whose mean is compared.

    A layer's energy is divided by E, as the spread of E does not count. A ring's energy is divided by that of all
    rings, so a wrong scale has no effect. Cells by energy are divided by the number of cells. If E spans `decades`, a
    layer's energy is divided by the root of E: its share fluctuates as 1/sqrt(E), so in shares the lowest energies
    would be all the noise, and in GeV the highest energies would be all the sum.
    """
    if name == "layers":
        power = 0.5 if decades else 1.0
        return lambda table: table.layers / table.energy_gev[:, None] ** power
    if name in _SHARES:
        return lambda table: shares(getattr(table, name))
    return lambda table: (table.angle_x_deg if name == AZIMUTH.observable else table.column(name))[:, None]
