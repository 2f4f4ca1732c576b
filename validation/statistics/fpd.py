"""The Fréchet and the kernel physics distance, FPD and KPD: two sets of showers compared in all observables at once.

Kansal et al., arXiv 2211.10295, as published in `jetnet` and used by the CaloChallenge (arXiv 2410.21611). Features
are divided by their largest absolute value in the reference. FPD is the Fréchet distance of the normal distributions
of the two sets' means and covariances, extrapolated to infinitely many showers by a line in 1/N. KPD is the unbiased
squared maximum mean discrepancy under a polynomial kernel, the median over batches. Neither has a unit. For two
samples of one truth both are zero up to chance; KPD a little below, as the median of a skewed distribution.

`jetnet` draws subsets with replacement, which leaves the sample's bias in FPD; here a set is dealt into parts, each a
sample of the truth. Its uncertainties are those of the fitted line and of one batch, here those of the values.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from validation.measure.observables import SCALARS, Observables
from validation.statistics.estimates import with_products
from validation.statistics.permutations import Array, Deals, deal

# The middle third is one less the other two: with it the covariance would be singular. Layers are left out too, as
# the depth and the thirds are sums of their shares; even the logarithms of the shares raise the condition number of
# the correlation matrix from 2e3 to 8e4 in the Geant4 sample, where some showers have an empty layer besides.
FEATURES = tuple(scalar for scalar in SCALARS if scalar.name != "middle_third")

_MOST_PARTS = 4  # FPD is extrapolated from whole sets, halves, thirds and quarters
_SPLITS = 10  # ways of dealing a set into parts
_BATCHES = 10  # whose median KPD is, as published
_KERNEL_SHOWERS = 4_000  # of both sets together, in the kernel matrix that KPD's permutations share: 128 MB


def features(table: Observables) -> Array:
    """The observables `FEATURES` of each shower, (n, 15), in their units; finite for showers that are not empty."""
    return np.stack([table.column(scalar.name) for scalar in FEATURES], axis=1)


def standardised(values: Array, like: Array) -> Array:
    """Features less the mean and over the standard deviation of those of `like`; what does not vary keeps its unit."""
    centre, spread = like.mean(axis=0), like.std(axis=0)
    return (values - centre) / np.where(spread > 1e-9 * np.abs(centre), spread, 1.0)


def scaled(reference: Array, candidate: Array) -> tuple[Array, Array]:
    """Both sets of features over the largest absolute value of each in the reference; zeros stay as they are."""
    largest = np.abs(reference).max(axis=0)
    largest = np.where(largest > 0, largest, 1.0)
    return reference / largest, candidate / largest


class Normals(NamedTuple):
    """Normal distributions fitted to r samples: means (r, f), roots R of the covariances RR' (r, f, f), traces (r,)."""

    mean: Array
    root: Array
    trace: Array

    @classmethod
    def of(cls, values: Array, chosen: Deals) -> Normals:
        """Each row of `chosen` (r, n) makes a sample of two or more rows of `values` (n, f)."""
        columns = values.shape[1]
        centre = values.mean(axis=0)  # squares of large numbers would lose digits
        count = chosen.sum(axis=1)[:, None]
        averages = chosen.astype(np.float64) @ with_products(values - centre) / count
        mean, products = averages[:, :columns], averages[:, columns:]
        i, j = np.triu_indices(columns)
        covariance = np.empty((len(chosen), columns, columns))
        covariance[:, i, j] = (products - mean[:, i] * mean[:, j]) * count / (count - 1)
        covariance[:, j, i] = covariance[:, i, j]
        variances, axes = np.linalg.eigh(covariance)
        variances = np.maximum(variances, 0)
        return cls(mean + centre, axes * np.sqrt(variances)[:, None], variances.sum(axis=1))


def frechet_distances(first: Normals, second: Normals) -> Array:
    """|mu1 - mu2|^2 + tr(C1 + C2 - 2 (C1 C2)^1/2), (r,), also where a covariance cannot be inverted.

    Zero where that is zero up to rounding, so that identical sets tie whichever way they are dealt.
    """
    # The trace of (C1 C2)^1/2 is the sum of the singular values of R1' R2.
    common = np.linalg.svd(np.swapaxes(first.root, 1, 2) @ second.root, compute_uv=False).sum(axis=1)
    traces = first.trace + second.trace
    distances = ((first.mean - second.mean) ** 2).sum(axis=1) + traces - 2 * common
    return np.where(distances > 1e-12 * traces, distances, 0.0)


def dealt_frechet_distances(reference: Array, candidate: Array, dealt: Deals) -> Array:
    """The Fréchet distance of features (n, f) and (m, f), not extrapolated, under each row of `dealt` (r, n + m)."""
    normals = Normals.of(_pooled(reference, candidate), np.concatenate([dealt, ~dealt]))
    sides = slice(len(dealt)), slice(len(dealt), None)
    return frechet_distances(*(Normals(*(each[side] for each in normals)) for side in sides))


def fpd(reference: Array, candidate: Array, *, per_event: int, rng: np.random.Generator) -> tuple[float, float]:
    """FPD of features (n, f) and (m, f), eight showers or more each, and its standard error.

    `per_event`: showers of the candidate for each of the reference, in its order, where paired, else 0. All showers
    of an event go into the same part.
    """
    n, m = len(reference), len(candidate)
    parts = np.arange(1, _MOST_PARTS + 1)
    chosen: list[Deals] = []
    chosen_theirs: list[Deals] = []
    for count in parts:
        mine = rng.permuted(np.tile(np.arange(n) % count, (_SPLITS, 1)), axis=1)
        theirs = rng.permuted(np.tile(np.arange(m) % count, (_SPLITS, 1)), axis=1)
        theirs = np.repeat(mine, per_event, axis=1) if per_event else theirs
        for labels, into in ((mine, chosen), (theirs, chosen_theirs)):
            into.append((labels[:, None] == np.arange(count)[:, None]).reshape(-1, labels.shape[1]))
    first, second = scaled(reference, candidate)
    distances = frechet_distances(
        Normals.of(first, np.concatenate(chosen)), Normals.of(second, np.concatenate(chosen_theirs))
    )
    by_parts = np.split(distances, np.cumsum(parts * _SPLITS)[:-1])
    halves = by_parts[1].reshape(_SPLITS, 2)
    # The distances of two halves differ by twice the error of the whole; by sqrt(8) of it where there is no distance.
    error = float(np.sqrt(np.mean((halves[:, 0] - halves[:, 1]) ** 2))) / 2
    return extrapolated(n / parts, np.array([each.mean() for each in by_parts])), error


def extrapolated(sizes: Array, distances: Array) -> float:
    """Where a line in 1/size through `distances` (k,) meets infinitely many showers; as published, no less than 0."""
    return max(float(np.polyfit(1 / sizes, distances, 1)[1]), 0.0)


def kernel(first: Array, second: Array) -> Array:
    """The polynomial kernel (x y / f + 1)^4 of features (n, f) and (m, f), (n, m)."""
    values: Array = (first @ second.T / first.shape[1] + 1) ** 2
    return np.square(values, out=values)


def squared_mmds(values: Array, dealt: Deals) -> Array:
    """The unbiased squared maximum mean discrepancy, (r,), of the rows of `values` (n, f) in `dealt` (r, n) from the
    rest; two or more on either side. The kernel matrix is made once.
    """
    matrix = kernel(values, values)
    np.fill_diagonal(matrix, 0)  # the unbiased estimate leaves out a shower's likeness to itself
    chosen = dealt.astype(np.float64)
    n = chosen.sum(axis=1)
    m = len(values) - n
    of_chosen = chosen @ matrix
    mine = np.einsum("rn,rn->r", of_chosen, chosen)
    between = of_chosen.sum(axis=1) - mine
    theirs = matrix.sum() - mine - 2 * between
    discrepancy: Array = mine / (n * (n - 1)) + theirs / (m * (m - 1)) - 2 * between / (n * m)
    return discrepancy


def kpd(reference: Array, candidate: Array, *, per_event: int, rng: np.random.Generator) -> tuple[float, float]:
    """KPD of features (n, f) and (m, f), twenty showers or more each, and its standard error.

    Every shower is in one of ten batches. Showers of one event, where paired (see `fpd`), go into different batches:
    they are alike, which would shift the discrepancy.
    """
    first, second = scaled(reference, candidate)
    parts = np.array_split(rng.permutation(len(first)), _BATCHES)
    others = np.array_split(rng.permutation(len(second)), _BATCHES)
    if per_event:
        others = [
            np.concatenate([parts[(k + 1 + copy) % _BATCHES] * per_event + copy for copy in range(per_event)])
            for k in range(_BATCHES)
        ]
    values = [
        squared_mmds(
            np.concatenate([first[mine], second[theirs]]), np.arange(len(mine) + len(theirs))[None] < len(mine)
        )[0]
        for mine, theirs in zip(parts, others, strict=True)
    ]
    low, high = np.quantile(values, [0.16275, 0.83725])
    # The median of normal values has pi/2 the variance of their mean.
    return float(np.median(values)), float(high - low) / 2 * math.sqrt(math.pi / 2 / _BATCHES)


def dealt_squared_mmds(reference: Array, candidate: Array, *, per_event: int, rng: np.random.Generator) -> Array:
    """The squared discrepancy of features (n, f) and (m, f) as they are, first, and dealt anew, (1 + permutations,).

    Of at most 4,000 showers, drawn at random with all others of their event where paired (`per_event`, see `fpd`).
    """
    if per_event:
        mine = rng.permutation(len(reference))[: _KERNEL_SHOWERS // (1 + per_event)]
        theirs = (mine[:, None] * per_event + np.arange(per_event)).ravel()
    else:
        mine, theirs = (rng.permutation(len(side))[: _KERNEL_SHOWERS // 2] for side in (reference, candidate))
    dealt = deal(len(mine), len(theirs), per_event=per_event, rng=rng)
    return squared_mmds(_pooled(reference[mine], candidate[theirs]), dealt)


def _pooled(reference: Array, candidate: Array) -> Array:
    """Both sets on one scale that no dealing changes; on the reference's, it would not be one of many alike."""
    both = np.concatenate([reference, candidate])
    standard = standardised(both, both)
    return scaled(standard, standard)[0]
