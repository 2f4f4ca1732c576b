"""Two tables of observables in, what the criteria judge out: in bins of energy, and of angle for the angle."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from calopipe.grade import Grade
from validation.judge.answers import Measurement
from validation.judge.expectation import SAMPLE_SHOWERS, Expectation
from validation.measure.axis import ring_labels, ring_shares
from validation.measure.observables import SCALARS, Array, Observables
from validation.measure.table import Labels, Rows, Samples, samples, selected, thinned
from validation.statistics.binning import Bin, Binning, degrees
from validation.statistics.estimates import (
    Estimate,
    Features,
    Pair,
    Resampled,
    correlation_differences,
    difference_of_means,
    ratio_of_means,
    ratio_of_widths,
    resample,
    separation_power,
    with_products,
)
from validation.statistics.fpd import features
from validation.statistics.neighbours import coverage

_FEWEST_BINS, _MOST_BINS = 5, 50  # of a histogram whose S is a criterion
# In fewer a coefficient is far from normal, and the bootstrap's error too small: of 12 showers of Geant4 against 750
# one comparison in twenty was rejected. So is the mean of a ring that few cells are in.
_NORMAL_EVENTS = 100
_TAIL_SHARE = 0.01  # a layer, or ring, with less of the visible energy is in a tail
_LEAST_SHARE = 5e-4  # of the energy, or the cells: a ring with less is that of a few odd showers, and left out

# One of the three thirds is left out: they sum to one.
CORRELATED = (
    "visible_gev", "depth_x0", "depth_width_x0", "r90_mm", "second_x_mm2", "second_y_mm2", "hits", "first_third",
    "last_third", "angle_deg",
)  # fmt: skip
_RATIOS = {
    "response": ("Mean response", "response"),
    "r90_mm": ("Mean R90", "r90"),
    "second_x_mm2": ("Second moment along x", "second_moment"),
    "second_y_mm2": ("Second moment along y", "second_moment"),
    "hits": ("Mean number of hits", "hits"),
}
_PROFILES = {
    "layers": "Longitudinal profile", "along_x": "Profile along x", "along_y": "Profile along y",
    "radial": "Radial profile", "spectrum": "Hit energies",
}  # fmt: skip
_RINGS = {"ring_energy": "Energy in rings about the axis", "ring_cells": "Cells in rings about the axis"}


def measure_criteria(
    reference: Rows,
    candidate: Rows,
    *,
    per_event: int,
    binning: Binning,
    grade: Grade,
    rng: np.random.Generator,
) -> list[Measurement]:
    """Everything that `grade` has a tolerance for, of showers that are not empty.

    `per_event`: showers of the candidate for each of the reference, in its order, where the two are paired, else 0.
    A bin in which either set has no shower is left out. Two candidates measured with the same seed are compared with
    the same resamples of the reference.
    """

    def within(chosen: Bin, label: Callable[[Rows], Labels]) -> tuple[Rows, Rows]:
        ours, theirs = (selected(rows, chosen.holds(label(rows))) for rows in (reference, candidate))
        return ours, theirs

    found: list[Measurement] = []
    for chosen in binning.energy:
        pair, (own,) = within(chosen, _energies), rng.spawn(1)
        if min(map(len, pair)):
            found += _in_energy_bin(*pair, label=chosen.label, per_event=per_event, grade=grade, rng=own)
    for chosen in binning.angle:
        pair, (own,) = within(chosen, degrees), rng.spawn(1)
        if min(map(len, pair)):
            found.append(_angle(*pair, label=chosen.label, per_event=per_event, grade=grade, rng=own))
    return [measurement for measurement in found if math.isfinite(measurement.tolerance)]


def _in_energy_bin(
    reference: Rows,
    candidate: Rows,
    *,
    label: str,
    per_event: int,
    grade: Grade,
    rng: np.random.Generator,
) -> list[Measurement]:
    tolerance = grade.tolerance
    events = (len(reference), len(candidate))
    some = samples(reference, candidate, per_event=per_event, showers=SAMPLE_SHOWERS, rng=rng)
    one_hot = _histograms(some.reference, some.candidate, histogram_bins(events, tolerance["separation"]))
    taken_out = (*_RATIOS, "depth_x0", "layers", *_RINGS)
    expected = {name: Expectation.of(some.reference, reference, _mean_values(name)) for name in taken_out}
    centre = some.reference.scalars.mean(axis=0), np.maximum(some.reference.scalars.std(axis=0), 1e-30)
    columns = [index for index, scalar in enumerate(SCALARS) if scalar.name in CORRELATED]

    def features(table: Observables) -> Features:
        response = table.column("response")[:, None]
        standard = ((table.scalars - centre[0]) / centre[1])[:, columns]
        return (
            {name: fit.take_out(table) for name, fit in expected.items()}
            | {"resolution": np.concatenate([response, response**2], axis=1), "products": with_products(standard)}
            | {f"S {name}": getattr(table, name).astype(np.float64) for name in _PROFILES}
            | {f"S {name}": histogram(table) for name, histogram in one_hot.items()}
        )

    drawn = resample(
        lambda rows: features(reference[rows]),
        lambda rows: features(candidate[rows]),
        events=events, per_event=per_event, rng=rng,
    )  # fmt: skip

    def compared(name: str, key: str, statistic: Callable[[Pair], Array], target: float, unit: str = "") -> Measurement:
        (estimate,), (floor,) = drawn.estimate(statistic), drawn.floors(statistic, target)
        return Measurement(name, key, label, unit, target, tolerance[key], (estimate,), _floor(drawn, float(floor)))

    found = [compared(name, key, ratio_of_means(column), 1.0) for column, (name, key) in _RATIOS.items()]
    found.append(compared("Resolution sigma/E", "resolution", ratio_of_widths("resolution"), 1.0))
    found.append(compared("Mean shower depth", "depth_x0", difference_of_means("depth_x0"), 0.0, "X0"))
    found += _layers(drawn, label, tolerance)
    found += _rings(drawn, label, tolerance)
    found.append(_correlations(drawn, label, tolerance["correlation"]))
    found.append(_coverage(some, min(events), label=label, tolerance=tolerance["coverage"], rng=rng))
    titles = {scalar.name: scalar.label for scalar in SCALARS} | _PROFILES
    for name in (*_PROFILES, *one_hot):
        spread = float(np.nanstd(separation_power(drawn.halves, f"S {name}"))) * drawn.half_to_sample() ** 2
        found.append(
            Measurement(
                f"S: {titles[name]}", "separation", label, "", 0.0, tolerance["separation"],
                (drawn.separation(f"S {name}"),), _floor(drawn, spread), side=1,
            )
        )  # fmt: skip
    return found


def _layers(drawn: Resampled, label: str, tolerance: dict[str, float]) -> list[Measurement]:
    """One ratio a layer. A layer that holds no energy in Monte Carlo has none, and is left out."""
    means = drawn.point.reference["layers"]
    shares = means / max(float(means.sum()), 1e-30)
    statistic = ratio_of_means("layers")
    estimates, floors = drawn.estimate(statistic), drawn.floors(statistic, 1.0)
    found = []
    for layer in np.flatnonzero(shares > 0):
        tail = shares[layer] < _TAIL_SHARE
        key, name = ("layer_energy_tail", "Mean energy, tail") if tail else ("layer_energy", "Mean energy")
        found.append(
            Measurement(
                f"{name}, layer {layer}", key, label, "", 1.0, tolerance[key], (estimates[layer],),
                _floor(drawn, float(floors[layer])),
            )
        )  # fmt: skip
    return found


def _rings(drawn: Resampled, label: str, tolerance: dict[str, float]) -> list[Measurement]:
    """The share of the energy, and of the cells with energy, in each ring about the axis: ratios, by core and tail."""
    tail = drawn.point.reference["ring_energy"] < _TAIL_SHARE
    found = []
    for feature, name in _RINGS.items():
        held = drawn.point.reference[feature] >= _LEAST_SHARE
        for key, kind, chosen in (("ring", "", held & ~tail), ("ring_tail", ", tail", held & tail)):
            labels = [ring if kept else "" for ring, kept in zip(ring_labels(), chosen, strict=True)]
            measurement = Measurement(name + kind, key, label, "", 1.0, tolerance[key], (), {})
            if chosen.any():
                found.append(_all_of(measurement, drawn, ratio_of_means(feature), labels))
    return found


def _correlations(drawn: Resampled, label: str, tolerance: float) -> Measurement:
    first, second = np.triu_indices(len(CORRELATED), 1)
    names = [scalar.label for scalar in SCALARS if scalar.name in CORRELATED]
    labels = [f"{names[i]} and {names[j]}" for i, j in zip(first, second, strict=True)]
    measurement = Measurement("Largest difference of correlations", "correlation", label, "", 0.0, tolerance, (), {})
    return _all_of(measurement, drawn, correlation_differences("products", len(CORRELATED)), labels)


def _all_of(
    measurement: Measurement, drawn: Resampled, statistic: Callable[[Pair], Array], labels: Sequence[str]
) -> Measurement:
    """`measurement` of the many numbers of a `statistic`, those without a label left out. Its floor is the largest's.

    An observable that does not vary, in Monte Carlo or in the candidate, has no correlation, and is left out too.
    """
    estimates = drawn.estimate(statistic)
    if min(drawn.events) < _NORMAL_EVENTS:
        estimates = [replace(estimate, standard_error=math.nan) for estimate in estimates]
    kept = [k for k, estimate in enumerate(estimates) if labels[k] and math.isfinite(estimate.value)]
    with np.errstate(divide="ignore", invalid="ignore"):
        away = np.abs(statistic(drawn.halves) - measurement.target)[:, [k for k, name in enumerate(labels) if name]]
    largest = float(np.nanmax(away, axis=1, initial=0.0).mean())
    return replace(
        measurement,
        estimates=tuple(estimates[k] for k in kept),
        floor=_floor(drawn, largest * drawn.half_to_sample()),
        labels=tuple(labels[k] for k in kept),
    )


def _coverage(some: Samples, events: int, *, label: str, tolerance: float, rng: np.random.Generator) -> Measurement:
    near = coverage(features(some.reference), features(some.candidate), per_event=some.per_event, rng=rng)
    error = near.coverage.standard_error
    estimate = Estimate(near.coverage.value, error, events, groups=near.blocks, replicates=near.replicates)
    floor = {"value": near.floor if math.isfinite(near.floor) else None, "scaled": False, "events": len(some.reference)}
    return Measurement(
        "Coverage, relative to Monte Carlo's own", "coverage", label, "", 1.0, tolerance, (estimate,), floor, side=-1,
        most_events=SAMPLE_SHOWERS,
    )  # fmt: skip


def _angle(
    reference: Rows,
    candidate: Rows,
    *,
    label: str,
    per_event: int,
    grade: Grade,
    rng: np.random.Generator,
) -> Measurement:
    some = thinned(reference, SAMPLE_SHOWERS, rng)
    fit = Expectation.of(some, reference, _mean_values("angle_deg"))
    drawn = resample(
        lambda rows: {"angle": fit.take_out(reference[rows])},
        lambda rows: {"angle": fit.take_out(candidate[rows])},
        events=(len(reference), len(candidate)), per_event=per_event, rng=rng,
    )  # fmt: skip
    statistic = difference_of_means("angle")
    (estimate,) = drawn.estimate(statistic)
    floor = float(drawn.floors(statistic, 0.0)[0])
    return Measurement(
        "Mean measured angle", "angle_deg", label, "degrees", 0.0, grade.tolerance["angle_deg"], (estimate,),
        _floor(drawn, floor),
    )  # fmt: skip


def histogram_bins(events: tuple[int, int], tolerance: float) -> int:
    """Bins of a histogram with one entry an event, so that the null of its S spreads by a fifth of the tolerance.

    With B bins and n events a side the null of S has the standard deviation sqrt(2 (B - 1)) / (2 n).
    """
    a_side = 2 / (1 / events[0] + 1 / events[1])
    return int(np.clip(1 + 2 * (a_side * tolerance / 5) ** 2, _FEWEST_BINS, _MOST_BINS))


def _histograms(
    reference: Observables, candidate: Observables, count: int
) -> dict[str, Callable[[Observables], Array]]:
    """For each scalar a function that puts showers in bins, (n, bins) of 0 and 1.

    The bins hold equally many of both sets together, which treats the two alike and leaves none empty.
    """
    both = np.concatenate([reference.scalars, candidate.scalars])
    inner = [np.unique(edges) for edges in np.quantile(both, np.linspace(0, 1, count + 1)[1:-1], axis=0).T]

    def one_hot(index: int) -> Callable[[Observables], Array]:
        edges = inner[index]
        rows = np.eye(len(edges) + 1)
        return lambda table: rows[np.searchsorted(edges, table.scalars[:, index], side="right")]

    return {scalar.name: one_hot(index) for index, scalar in enumerate(SCALARS)}


def _energies(rows: Rows) -> Labels:
    return rows.energy_gev


def _mean_values(name: str) -> Callable[[Observables], Array]:
    """The columns (n, k) whose mean is compared. A layer's energy is taken over E, whose spread says
    nothing, and a ring's over that of all rings, so that no scale moves it.
    """
    if name == "layers":
        return lambda table: table.layers / table.energy_gev[:, None]
    if name in _RINGS:
        return lambda table: ring_shares(getattr(table, name))
    return lambda table: table.column(name)[:, None]


def _floor(drawn: Resampled, value: float) -> dict[str, float | bool | int | None]:
    """Monte Carlo against Monte Carlo: a typical distance from the target, from halves of the reference."""
    return {"value": value if math.isfinite(value) else None, "scaled": True, "events": drawn.events[0] // 2}
