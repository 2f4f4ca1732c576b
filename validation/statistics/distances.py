"""Distances between two sets of showers, reported beside the criteria; they decide nothing.

Two samples of one truth are at some distance too. So each value has a p-value, from showers dealt anew between the two
sets, and a floor, the distance of Monte Carlo from Monte Carlo.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from calopipe.verdict import finite
from validation.measure.observables import SCALARS, Observables
from validation.statistics.fpd import (
    dealt_frechet_distances,
    dealt_squared_mmds,
    features,
    fpd,
    kpd,
    standardised,
)
from validation.statistics.permutations import Array, Deals, deal, p_value

_LEAST_SHOWERS = 10  # a side, below which nothing is said
_LEAST_SHOWERS_ALL_FEATURES = 100  # so that a quarter has a covariance of fifteen features, and a tenth a mean
_HALVES = 20  # ways to divide the reference in two, whose mean is the floor
_FEWEST_BINS, _MOST_BINS = 5, 50
_SHOWERS_PER_BIN = 40  # of both sets together

# The power of the number of showers with which a distance falls where both sets are of one truth.
_FALL = {"wasserstein_1": 0.5, "kolmogorov_smirnov": 0.5, "chi2_per_dof": 0.0, "fpd": 1.0, "kpd": 1.0}


def compare_distances(
    reference: Observables, candidate: Observables, *, per_event: int, rng: np.random.Generator
) -> dict[str, Any]:
    """The distances of `candidate` from `reference`, neither with an empty shower, as a document for JSON.

    `per_event`: showers of the candidate for each of the reference, in its order, where the two are paired, else 0.
    `observables`: for each scalar the Wasserstein-1 distance, in its unit, the Kolmogorov-Smirnov statistic and chi2
    of two histograms over its degrees of freedom. `fpd` and `kpd`: of all `FEATURES`, standardised by the reference so
    that those far from zero count too; so they are not on the scale of published values.

    Each has `value`, `p_value` and `floor`: its mean size between two random halves of the reference, `scaled` where
    that was brought to these numbers of showers. Halves are not paired, so that a paired candidate may lie below the
    floor. None: too few showers, or nothing that varies.
    """
    n, m = len(reference), len(candidate)
    if min(n, m) >= _LEAST_SHOWERS:
        dealt = deal(n, m, per_event=per_event, rng=rng)
        halves = deal(n // 2, n - n // 2, per_event=0, rng=rng, permutations=_HALVES)[1:]
    else:
        dealt = halves = np.empty((0, n + m), dtype=np.bool_)
    observables = {
        scalar.name: {"label": scalar.label, "unit": scalar.unit}
        | _along(reference.column(scalar.name), candidate.column(scalar.name), dealt, halves)
        for scalar in SCALARS
    }
    together = _together(features(reference), features(candidate), dealt, halves, per_event=per_event, rng=rng)
    return {"observables": observables, **together, "showers": {"reference": n, "candidate": m}}


def distances_along(values: Array, dealt: Deals) -> dict[str, Array]:
    """Each distance between the `values` (n,) that a row of `dealt` (r, n) gives to the reference and the rest, (r,).

    Every row gives it equally many. The bins of chi2 hold equally many of both sets, up to equal values; its degrees
    of freedom are one less. NaN for chi2 of values that are all equal.
    """
    order = np.argsort(values)
    ordered = values[order]
    n = int(dealt[0].sum())
    m = len(values) - n
    below = np.cumsum(dealt[:, order], axis=1, dtype=np.int32)  # of the reference, up to each value
    steps = np.flatnonzero(np.diff(ordered) > 0)
    away = np.abs(below[:, steps] * (1 / n + 1 / m) - (steps + 1) / m)  # of the distribution functions

    bins = int(np.clip(len(values) // _SHOWERS_PER_BIN, _FEWEST_BINS, _MOST_BINS))
    edges = np.searchsorted(ordered, ordered[np.arange(1, bins) * len(values) // bins])
    edges = np.unique(edges[edges > 0])
    held = np.diff(below[:, edges - 1], axis=1, prepend=0, append=n)
    both = np.diff(edges, prepend=0, append=len(values))
    share = n / len(values)
    chi2 = ((held - both * share) ** 2 / (both * share * (1 - share))).sum(axis=1)
    return {
        "wasserstein_1": away @ np.diff(ordered)[steps],
        "kolmogorov_smirnov": away.max(axis=1, initial=0.0),
        "chi2_per_dof": chi2 / len(edges) if len(edges) else np.full(len(dealt), np.nan),
    }


def _along(reference: Array, candidate: Array, dealt: Deals, halves: Deals) -> dict[str, Any]:
    names = ("wasserstein_1", "kolmogorov_smirnov", "chi2_per_dof")
    pooled, sizes = np.concatenate([reference, candidate]), (len(reference), len(candidate))
    if not len(dealt) or not np.isfinite(pooled).all():
        return {name: _entry(name, math.nan, np.empty(0), np.empty(0), sizes) for name in names}
    found, of_halves = distances_along(pooled, dealt), distances_along(reference, halves)
    return {name: _entry(name, found[name][0], found[name], of_halves[name], sizes) for name in names}


def _together(
    reference: Array, candidate: Array, dealt: Deals, halves: Deals, *, per_event: int, rng: np.random.Generator
) -> dict[str, Any]:
    """FPD and KPD of features (n, f) and (m, f)."""
    sizes = len(reference), len(candidate)
    known = np.isfinite(reference).all() and np.isfinite(candidate).all()
    if min(sizes) < _LEAST_SHOWERS_ALL_FEATURES or not known:
        nothing = math.nan, np.empty(0), np.empty(0), sizes
        return {name: _entry(name, *nothing) | {"uncertainty": None} for name in ("fpd", "kpd")}
    nulls = {
        "fpd": dealt_frechet_distances(reference, candidate, dealt),
        "kpd": dealt_squared_mmds(reference, candidate, per_event=per_event, rng=rng),
    }
    first, second = standardised(reference, reference), standardised(candidate, reference)
    found = {}
    for name, distance in (("fpd", fpd), ("kpd", kpd)):
        value, uncertainty = distance(first, second, per_event=per_event, rng=rng)
        of_halves = np.array([distance(first[half], first[~half], per_event=0, rng=rng)[0] for half in halves])
        found[name] = _entry(name, value, nulls[name], of_halves, sizes) | {"uncertainty": uncertainty}
    return found


def _entry(name: str, value: float, dealt: Array, halves: Array, sizes: tuple[int, int]) -> dict[str, Any]:
    """`dealt`: as the showers are, and with labels dealt anew. `halves`: between halves of the reference."""
    n, m = sizes
    floor = float(np.abs(halves).mean()) if len(halves) else math.nan
    scale = ((1 / n + 1 / m) / (4 / n)) ** _FALL[name] if len(halves) else 1.0
    return {
        "value": finite(value),
        "p_value": finite(p_value(dealt)),
        "floor": {"value": finite(floor * scale), "scaled": _FALL[name] > 0},
    }
