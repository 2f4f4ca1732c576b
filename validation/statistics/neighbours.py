"""Nearest neighbours: does the candidate cover what Monte Carlo covers, and does it repeat its training showers?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise_distances_argmin_min

from calopipe.showers.cells import Array, FloatArray
from validation.statistics.estimates import Estimate
from validation.statistics.resampling import BOOTSTRAP_RESAMPLES

NEIGHBOURS = 5  # as Naeem et al. advise
LEAST_BLOCKS = 10  # with fewer blocks there is no error, as the spread over blocks is not well known
_LEAST_IN_BLOCK, _MOST_IN_BLOCK = 50, 350
_COPY_SHARE = 0.01  # share of Monte Carlo's own showers that count as near to a training shower
_COPY_SIGNIFICANCE = 1e-3
_LEAST_COMPARED = 100  # the nearest one of them sets the threshold
_ROUNDING = 1e-3  # rounding of distances between vectors of norm one in single precision


@dataclass(frozen=True)
class Neighbourhood:
    """Coverage and density of a candidate relative to Monte Carlo's own, means over blocks; and Monte Carlo's own.

    `floor`: the typical distance of the relative coverage from 1 between two sets of Monte Carlo. `floor` and the
    errors are NaN with fewer than 10 blocks; all values are NaN with fewer than 3.
    """

    coverage: Estimate
    density: Estimate
    own_coverage: float
    own_density: float
    floor: float


def coverage(reference: Array, candidate: Array, *, per_event: int, rng: np.random.Generator) -> Neighbourhood:
    """Coverage and density (Naeem et al. 2020, arXiv 2002.09797) of features `reference` (n, f), `candidate` (m, f).

    Both sets are cut at random into blocks of equal size. Around each Monte Carlo shower of a block lies a ball that
    reaches to its fifth neighbour in the block. Coverage is the share of these balls that hold a shower of another
    block. Density is the mean number of balls that hold a shower of the other block, over five. Features are
    standardised by the reference. A shower without energy has a NaN: it is in no ball, and its ball holds no shower.

    The balls of block i are compared with block i + 1 of the reference and of the candidate. So in paired sets
    (`per_event`, one shower of each event takes part) both have other labels than the balls. Coverage depends on the
    size of a block, which is the same for 3,500 showers and more.
    """
    showers = len(reference) if per_event else min(len(reference), len(candidate))
    size = int(np.clip(showers // LEAST_BLOCKS, _LEAST_IN_BLOCK, _MOST_IN_BLOCK))
    count = showers // size
    if count < 3:
        unknown = Estimate(np.nan, np.nan, count, replicates=np.full(BOOTSTRAP_RESAMPLES, np.nan))
        return Neighbourhood(unknown, unknown, np.nan, np.nan, np.nan)
    points, others = _standardised(reference, candidate)
    order, partners = rng.permutation(len(points)), rng.permutation(len(others))
    if per_event:
        partners = order * per_event + rng.integers(per_event, size=len(order))
    blocks, other_blocks = (indices[: count * size].reshape(count, size) for indices in (order, partners))

    def against(others: Array, ahead: int) -> Array:
        """Coverage and density, (blocks, 2), of each block of the reference, by the block of `others` `ahead` of it."""
        following = np.roll(others, -ahead, axis=0)
        return np.stack([_coverage_and_density(*pair) for pair in zip(points[blocks], following, strict=True)])

    own, other = against(points[blocks], 1), against(others[other_blocks], 1)
    # A draw has one block fewer than there are, which makes the variance of a mean unbiased (Rao and Wu 1988).
    weights = rng.multinomial(count - 1, np.full(count, 1 / count), BOOTSTRAP_RESAMPLES).astype(np.float64)
    if count < LEAST_BLOCKS:
        weights *= np.nan
    with np.errstate(divide="ignore", invalid="ignore"):  # if Monte Carlo covers nothing of itself
        replicates = (weights @ other) / (weights @ own)
        chance = (weights @ against(points[blocks], 2)) / (weights @ own)
        value = other.mean(axis=0) / own.mean(axis=0)
    error = replicates.std(axis=0, ddof=1)
    found_coverage, found_density = (
        Estimate(float(value[k]), float(error[k]), count, groups=count, replicates=replicates[:, k]) for k in (0, 1)
    )
    own_coverage, own_density = (float(own[:, k].mean()) for k in (0, 1))
    return Neighbourhood(found_coverage, found_density, own_coverage, own_density, float(chance[:, 0].std(ddof=1)))


def memorisation(training: FloatArray, reference: FloatArray, candidate: FloatArray) -> dict[str, Any]:
    """Whether the candidate's showers (m, c) lie closer to the `training` showers (t, c) than Monte Carlo's own (n, c).

    Coordinates are of order one, with a meaningful Euclidean distance: roots of shares of energy. The nearness of a
    shower is its distance to the nearest training shower over its distance to the nearest shower in one half of the
    reference. Smooth showers are near to both, copies only to training showers (compare Meehan et al. 2020,
    arXiv 2004.05675). `share` is the part of the candidate that is nearer than all but 1 % (`expected`) of the
    reference's other half, with its 95 % `interval` (Clopper and Pearson).

    Showers of a perfect candidate and of the other half are exchangeable. So the number below the r-th of n values is
    beta-binomial (the precedence test: Nelson, Technometrics 5 (1963) 491), and `p_value` is one-sided and exact.
    `copied`: `p_value` is below 1e-3. `median_distance_ratio`: the median distance to the training showers, candidate
    over Monte Carlo. Each value is None if a set has no showers, or the reference fewer than 200.
    """
    unseen, compared = reference[::2], reference[1::2]
    if min(len(training), len(candidate)) == 0 or len(compared) < _LEAST_COMPARED:
        names = ("share", "expected", "interval", "p_value", "median_distance_ratio")
        return dict.fromkeys(names) | {"copied": False}
    to_training = [pairwise_distances_argmin_min(side, training)[1] for side in (compared, candidate)]
    nearness = [
        (away + _ROUNDING) / (pairwise_distances_argmin_min(side, unseen)[1] + _ROUNDING)
        for side, away in zip((compared, candidate), to_training, strict=True)
    ]
    rank = round(_COPY_SHARE * len(compared))
    nearer = int((nearness[1] < np.sort(nearness[0])[rank - 1]).sum())
    showers = len(candidate)
    interval = stats.binomtest(nearer, showers).proportion_ci(0.95)
    # The sum over the tail; scipy subtracts the rest from one, which is not exact below 1e-12.
    tail = stats.betabinom.pmf(np.arange(nearer, showers + 1), showers, rank, len(compared) + 1 - rank)
    p_value = min(float(tail.sum()), 1.0)
    own_median = float(np.median(to_training[0]))  # 0 if the reference is in the training set
    return {
        "share": nearer / showers,
        "expected": rank / (len(compared) + 1),
        "p_value": p_value,
        "median_distance_ratio": None if own_median == 0 else float(np.median(to_training[1])) / own_median,
        "copied": p_value < _COPY_SIGNIFICANCE,
        "interval": [float(interval.low), float(interval.high)],
    }


def _standardised(reference: Array, candidate: Array) -> tuple[Array, Array]:
    """Both sets in units of the reference's standard deviation, without features that do not vary in the reference."""
    sigma = np.nanstd(reference, axis=0)
    varies = sigma > 1e-9 * np.nanmax(np.abs(reference), axis=0)  # by more than rounding
    return reference[:, varies] / sigma[varies], candidate[:, varies] / sigma[varies]


def _coverage_and_density(balls: Array, others: Array) -> tuple[float, float]:
    """The share of balls around `balls` (n, f) that hold a point of `others` (m, f), and the number of balls that hold
    a point over 5, mean over the points.
    """
    among = cdist(balls, balls)
    radius = np.partition(among, NEIGHBOURS, axis=1)[:, NEIGHBOURS]  # the nearest is the shower itself
    inside = cdist(balls, others) <= radius[:, None]
    return float(inside.any(axis=1).mean()), float(inside.sum(axis=0).mean()) / NEIGHBOURS
