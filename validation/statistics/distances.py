"""The Fréchet and the kernel physics distance, FPD and KPD, of features of showers, as published.

The method is that of Kansal et al., arXiv 2211.10295, in the form of `jetnet` 0.2.5 with the challenge's settings.
Features are divided by their largest absolute value in Monte Carlo. FPD is from 20 subsets of each of ten sizes between
10,000 and 50,000, drawn with replacement, and extrapolated in 1/size by a line of no negative slope or intercept. KPD
is the median over ten draws of 10,000. Draws with replacement leave the bias of the whole sample in FPD. It falls as
1/showers: two small samples of one truth have a larger value than two large ones. For smaller sets, the sizes of the
subsets are from a fifth of the smaller set to all of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from calopipe.documents import finite
from calopipe.showers.cells import Array

_SIZES, _DRAWS, _SEED = 10, 20, 42
_MOST = 50_000  # showers in a subset of FPD, at most
_BATCHES, _BATCH = 10, 10_000  # draws of KPD, and showers in a draw
_ROWS = 1_000  # rows of a kernel matrix that are computed at once: 80 MB
_LEAST = 50  # showers of a set, or of half of Monte Carlo, at least


Distance = tuple[float, float]  # the value, and its uncertainty as the published function defines it


def distances(reference: Array, candidate: Array, *, batch: int = _BATCH) -> dict[str, Any] | None:
    """`fpd` and `kpd` of features (n, f) and (m, f) for a document: `value`, `uncertainty`, and Monte Carlo's `own`.

    `own` is the distance of the reference's even showers from its odd ones. None if the candidate, or a half of the
    reference, has fewer than 50 showers.
    """
    halves = reference[::2], reference[1::2]
    if min(len(halves[1]), len(candidate)) < _LEAST:
        return None
    by_name = {
        "fpd": (fpd(reference, candidate), fpd(*halves)),
        "kpd": (kpd(reference, candidate, batch), kpd(*halves, batch)),
    }
    return {
        name: {"value": value, "uncertainty": finite(uncertainty), "own": own}
        for name, ((value, uncertainty), (own, _)) in by_name.items()
    }


def fpd(reference: Array, candidate: Array) -> Distance:
    """The Fréchet physics distance of sets of at least 50 showers each. Its uncertainty is that of the fitted line."""
    largest = min(len(reference), len(candidate), _MOST)
    counts = (1 / np.linspace(1 / (largest // 5), 1 / largest, _SIZES)).astype(np.int32)
    rng = np.random.default_rng(_SEED)
    scale = _largest(reference)
    means = []
    # For matrices of a few hundred rows, two threads take longer than one: ten times as long on a busy machine.
    with threadpool_limits(1):
        for count in counts:
            values = []
            for _ in range(_DRAWS):
                rows = [np.sort(rng.choice(len(side), size=count)) for side in (reference, candidate)]
                values.append(_frechet(reference[rows[0]] / scale, candidate[rows[1]] / scale))
            means.append(np.mean(values))
    return _intercept(1 / counts, np.array(means))


def kpd(reference: Array, candidate: Array, batch: int = _BATCH) -> Distance:
    """The kernel physics distance, by draws of `batch` showers. The uncertainty is half the width that holds 67 %."""
    scale = _largest(reference)
    size = min(batch, len(reference), len(candidate))
    values = []
    for number in range(_BATCHES):
        rng = np.random.default_rng(_SEED + 1_000 * number)
        first, second = (side[rng.choice(len(side), size=size)] / scale for side in (reference, candidate))
        values.append(_mmd(first, second))
    low, high = np.percentile(values, [16.275, 83.725])
    return float(np.median(values)), float(high - low) / 2


def _largest(reference: Array) -> Array:
    """The largest absolute value of each feature, 1 if all are zero. The array is not copied."""
    largest = np.maximum(reference.max(axis=0), -reference.min(axis=0))
    return np.where(largest > 0, largest, 1.0)


def _frechet(first: Array, second: Array) -> float:
    """|mu1 - mu2|^2 + tr(C1 + C2 - 2 (C1 C2)^1/2). The root is computed from the symmetric C1^1/2 C2 C1^1/2."""
    covariance, other = np.cov(first, rowvar=False), np.cov(second, rowvar=False)
    variances, axes = np.linalg.eigh(covariance)
    root = axes * np.sqrt(np.maximum(variances, 0))
    common = np.sqrt(np.maximum(np.linalg.eigvalsh(root.T @ other @ root), 0)).sum()
    apart = first.mean(axis=0) - second.mean(axis=0)
    return float((apart**2).sum() + np.trace(covariance) + np.trace(other) - 2 * common)


def _intercept(inverse: Array, values: Array) -> Distance:
    """The value at 1/size = 0 of the line of least squares that has no negative slope or intercept."""
    design = np.stack([np.ones(len(inverse)), inverse], axis=1)
    unit = np.array([1.0, inverse.max()])  # both columns of order one
    coefficients, residual = nnls(design / unit, values)
    variance = residual**2 / (len(values) - 2)
    covariance = np.linalg.inv(design.T @ design) * variance
    return float(coefficients[0]), float(np.sqrt(covariance[0, 0]))


def _mmd(first: Array, second: Array) -> float:
    """The unbiased squared maximum mean discrepancy under the kernel (x y / features + 1)^4."""
    n, m = len(first), len(second)
    within = sum(_kernel_sum(side, side, diagonal=False) / (k * (k - 1)) for side, k in ((first, n), (second, m)))
    return within - 2 * _kernel_sum(first, second) / (n * m)


def _kernel_sum(first: Array, second: Array, *, diagonal: bool = True) -> float:
    """The sum of the kernel over all pairs; without `diagonal`, pairs of a shower with itself are left out."""
    total = 0.0
    for start in range(0, len(first), _ROWS):
        values = first[start : start + _ROWS] @ second.T / first.shape[1] + 1
        np.square(values, out=values)
        total += float(np.square(values, out=values).sum())
    return total if diagonal else total - float((((first**2).sum(axis=1) / first.shape[1] + 1) ** 4).sum())
