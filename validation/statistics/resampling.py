"""Statistics of two sets of showers and their errors. Events are resampled, never cells or hits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import Array, Mask
from validation.statistics.estimates import Estimate

Features = Mapping[str, Array]  # name -> (events, k): values that are averaged over events
Means = dict[str, Array]  # name -> (k,), or (resamples, k)

BOOTSTRAP_RESAMPLES = 400  # a standard error is known to 3.5 %
NULL_RESAMPLES = 200  # the mean of the null of S is known to a fourteenth of its spread
_NOTHING = 1e-9  # the denominator of a ratio if the mean of the reference is zero
_CHUNK_EVENTS = 2_000  # events whose features are held at once, a few MB


@dataclass(frozen=True)
class Pair:
    """The mean features of a reference and of a candidate, each name -> (k,) or (resamples, k)."""

    reference: Means
    candidate: Means


Statistic = Callable[[Pair], Array]  # of means of shape (..., k)


@dataclass(frozen=True)
class Ratio:
    """A statistic: `of` the candidate's means, (..., k), over `of` the reference's means.

    If the reference is zero in all resamples, the ratio is 1 if the candidate is zero too, else out of all bounds.
    """

    of: Callable[[Means], Array]

    def __call__(self, pair: Pair) -> Array:
        candidate, reference = self.of(pair.candidate), self.of(pair.reference)
        return np.where(np.atleast_2d(reference == 0).all(axis=0), 1 + candidate / _NOTHING, candidate / reference)

    def parts(self, point: Pair, drawn: Pair, larger: float, *, paired: bool) -> Array:
        """The parts of each ratio's variance, (k, 2, 3); the candidate has `larger` times the reference's events.

        `paired` sets have a common part of the variance, as from their labels: the other set does not change that part.
        """
        reference = np.atleast_1d(self.of(point.reference))
        reference = np.where(reference == 0, _NOTHING, reference)
        sides = (self.of(side).reshape(-1, len(reference)) / reference for side in (drawn.candidate, drawn.reference))
        upper, lower = (side - side.mean(axis=0) for side in sides)
        products = (upper * upper, lower * lower, upper * lower)
        parts = np.stack([product.sum(axis=0) / (len(product) - 1) for product in products], axis=1)
        common = np.maximum(parts[:, 2:], 0) * [paired, paired, 0]
        separate = np.maximum(parts - common, parts * [0, 0, 1])  # variances less the common part; covariance unchanged
        return np.stack([parts, common + separate * [larger, 1 / larger, 1]], axis=1)


@dataclass(frozen=True)
class Resampled:
    """Means of the two sets as they are (`point`) and resampled.

    `bootstrap`: each set is drawn with replacement. `null`: events are distributed anew between the two sets, so the
    sets differ only by chance. `halves`: two halves of the reference.
    """

    point: Pair
    bootstrap: Pair
    null: Pair
    halves: Pair
    events: tuple[int, int]  # in the reference and in the candidate
    paired: bool  # whether each event of the reference is drawn with its showers of the candidate

    @property
    def independent(self) -> int:
        """The number of events that the bootstrap resamples independently, in the smaller set."""
        return self.events[0] if self.paired else min(self.events)

    def estimate(self, statistic: Statistic) -> list[Estimate]:
        """`statistic` (a function of means, shape (..., k)) with its bootstrap standard error, k estimates."""
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.atleast_1d(statistic(self.point))
            replicates = statistic(self.bootstrap).reshape(-1, len(values))
            errors = replicates.std(axis=0, ddof=1)
            parts: Iterable[Array | None] = [None] * len(values)
            if isinstance(statistic, Ratio):
                larger = self.events[1] / self.events[0]
                parts = statistic.parts(self.point, self.bootstrap, larger, paired=self.paired)
        return [
            Estimate(float(value), float(error), self.independent, replicates=drawn, parts=part)
            for value, error, drawn, part in zip(values, errors, replicates.T, parts, strict=True)
        ]

    def separation(self, name: str) -> Estimate:
        """S of the histograms `name`, less its mean under the null, with its standard error.

        The bootstrap adds noise to noise, so its spread is too wide if S is near the null. The null's part of the
        variance is kept. The rest is proportional to the true S, and is scaled by the share of S above the null.
        """
        observed = separation_power(self.point, name)
        null, bootstrap = separation_power(self.null, name), separation_power(self.bootstrap, name)
        value = float(observed - null.mean())
        null_variance = float(null.var(ddof=1))
        growth = max(float(bootstrap.var(ddof=1)) - null_variance, 0.0) / float(observed) if observed > 0 else 0.0
        error = math.sqrt(null_variance + growth * max(value, 0.0))
        expected = float(null.mean()), math.sqrt(null_variance)
        replicates = bootstrap - null.mean()
        return Estimate(value, error, self.independent, expected, replicates=replicates, growth=growth)

    def floors(self, statistic: Statistic, target: float, candidate: int | None = None) -> Array:
        """Typical distance of `statistic` from `target` between two sets of Monte Carlo of this size, (k,).

        With `candidate`, the second set has that number of events.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            away = np.sqrt(np.mean((statistic(self.halves) - target) ** 2, axis=0))
        return away * self.half_to_sample(candidate)

    def own_error(self, name: str, group: Sequence[int]) -> float:
        """The floor of a ratio of sums for a candidate as large as the reference."""
        return float(self.floors(ratio_of_sums(name, [group]), 1.0, candidate=self.events[0])[0])

    def half_to_sample(self, candidate: int | None = None) -> float:
        """The factor from the spread of a mean between halves of the reference to that between sets of this size.

        With `candidate`, the second set has that number of events.
        """
        reference = self.events[0]
        return math.sqrt((1 / reference + 1 / (candidate or self.events[1])) / (4 / reference))


def resample(
    tables: tuple[Any, Any, int], sides: Sequence[Callable[[Any], Features]], *, rng: np.random.Generator
) -> Resampled:
    """Average features over both sets as they are, and over resampled sets. Each event is read once.

    `tables`: the reference, the candidate and `per_event`, as in `Compared`. The two `sides` are functions that compute
    features of some rows: the first for the reference, the second for the candidate. In paired sets the candidate holds
    `per_event` showers for each event of the reference, in order, and they are drawn together; else `per_event` is 0.
    The bootstrap weights each event by a Poisson number (Chamandy et al. 2012). Null and halves assign each event at
    random. Each has its own stream of `rng`, so the reference is resampled in the same way for every candidate.
    """
    reference, candidate, per_event = tables
    events = len(reference), len(candidate)
    sums = _Sums()
    streams = rng.spawn(4)
    for rows in _slices(events[0]):
        n = rows.stop - rows.start
        drawn = streams[0].poisson(1.0, (BOOTSTRAP_RESAMPLES, n))
        if per_event:
            player = streams[2].integers(0, per_event + 1, (NULL_RESAMPLES, n))  # which shower plays the reference
            dealt, copies = player == 0, player[:, :, None] == np.arange(1, per_event + 1)
            of_candidate = sides[1](candidate[rows.start * per_event : rows.stop * per_event])
            of_event, null = np.repeat(drawn, per_event, axis=1), copies.reshape(NULL_RESAMPLES, -1)
            sums.add("candidate", of_candidate, bootstrap=of_event, null=null)
        else:
            dealt = _coins(streams[2], n, events)
        halves = streams[1].integers(0, 2, (NULL_RESAMPLES, n))
        sums.add("reference", sides[0](reference[rows]), bootstrap=drawn, null=dealt, halves=halves)
    for rows in _slices(0 if per_event else events[1]):
        m = rows.stop - rows.start
        drawn = streams[3].poisson(1.0, (BOOTSTRAP_RESAMPLES, m))
        sums.add("candidate", sides[1](candidate[rows]), bootstrap=drawn, null=_coins(streams[2], m, events))

    reference_sums, candidate_sums = sums["point", "reference"], sums["point", "candidate"]
    chosen, half = sums["null", "reference"] + sums["null", "candidate"], sums["halves", "reference"]
    return Resampled(
        point=sums.means(reference_sums[0], candidate_sums[0]),
        bootstrap=sums.means(sums["bootstrap", "reference"], sums["bootstrap", "candidate"]),
        null=sums.means(chosen, reference_sums + candidate_sums - chosen),
        halves=sums.means(half, reference_sums - half),
        events=events,
        paired=per_event > 0,
    )


def ratio_of_means(name: str) -> Ratio:
    """The mean of the candidate over that of the reference, for each column of the feature `name`."""
    return Ratio(lambda means: means[name])


def ratio_of_sums(name: str, groups: Sequence[Sequence[int]]) -> Ratio:
    """The same ratio for each of `groups` of columns: of the means of the sum of its columns."""
    return Ratio(lambda means: np.stack([means[name][..., list(group)].sum(axis=-1) for group in groups], axis=-1))


def difference_of_means(name: str) -> Statistic:
    """The mean of the candidate minus that of the reference."""
    return lambda pair: pair.candidate[name] - pair.reference[name]


def ratio_of_widths(name: str) -> Ratio:
    """The ratio of sigma/mean. The feature `name` has two columns, (value, its square); the ratio has one.

    For the response E_vis/E this is the ratio of the resolutions sigma/E: the spread of E itself does not count.
    """
    return Ratio(lambda means: relative_width(means[name]))


def relative_width(moments: Array) -> Array:
    """sigma/mean, (..., 1), from the first two moments (..., 2)."""
    mean, square = moments[..., :1], moments[..., 1:]
    return np.sqrt(np.maximum(square - mean**2, 0)) / mean


def separation_power(pair: Pair, name: str) -> Array:
    """`separation` of the features `name`, (...); 0 if one histogram is empty."""
    return np.nan_to_num(separation(pair.reference[name], pair.candidate[name]))


def separation(first: Array, second: Array) -> Array:
    """S = 1/2 sum (h1 - h2)^2 / (h1 + h2) of two normalised histograms (CaloChallenge, arXiv 2410.21611), (...).

    The arguments are counts, (..., bins). S is 0 if they agree, 1 if they share no bin, and NaN if one is empty.
    """
    h1, h2 = (side / np.where((sum_ := side.sum(axis=-1, keepdims=True)) > 0, sum_, np.nan) for side in (first, second))
    return np.sum((h1 - h2) ** 2 / np.maximum(h1 + h2, 1e-300), axis=-1) / 2  # no 0 / 0 in a bin that is empty in both


def with_products(values: Array) -> Array:
    """`values` (n, k) and the products of all pairs of its columns, (n, k + k (k + 1) / 2): see `correlations`."""
    i, j = np.triu_indices(values.shape[1])
    return np.concatenate([values, values[:, i] * values[:, j]], axis=1)


def correlations(means: Array, columns: int) -> Array:
    """Pearson's coefficients of each pair of `columns`, (..., pairs), from the means of `with_products`.

    Pairs are in the order of `np.triu_indices(columns, 1)`. NaN if a column does not vary.
    """
    i, j = np.triu_indices(columns)
    first, product = means[..., :columns], means[..., columns:]
    covariance = product - first[..., i] * first[..., j]
    sigma = np.sqrt(np.maximum(covariance[..., i == j], 0))
    off_diagonal = i != j
    divisor = (sigma[..., i] * sigma[..., j])[..., off_diagonal]
    return covariance[..., off_diagonal] / np.where(divisor > 1e-12, divisor, np.nan)


def correlation_differences(name: str, columns: int) -> Statistic:
    """The candidate's coefficients minus the reference's, one for each pair of columns."""
    return lambda pair: correlations(pair.candidate[name], columns) - correlations(pair.reference[name], columns)


class _Sums(dict[tuple[str, str], Array]):
    """Weighted sums of features by kind of draw and side, (resamples, columns + 1). The last one sums the weights."""

    def add(self, side: str, features: Features, **weights: npt.NDArray[Any]) -> None:
        """Add features (events, k) with the `weights` (resamples, events) of each kind, and unweighted ("point")."""
        self._widths = {name: values.shape[1] for name, values in features.items()}
        columns = np.concatenate(list(features.values()), axis=1)
        for kind, drawn in {"point": np.ones((1, len(columns))), **weights}.items():
            floats = drawn.astype(np.float64, copy=False)
            more = np.column_stack([floats @ columns, floats.sum(axis=1)])
            self[kind, side] = self.get((kind, side), 0.0) + more

    def means(self, reference: Array, candidate: Array) -> Pair:
        """The means by name, from sums (..., columns + 1); NaN if the weights sum to zero."""
        places = np.cumsum(list(self._widths.values()))[:-1]
        sides = (
            sums[..., :-1] / np.where(sums[..., -1:] > 0, sums[..., -1:], np.nan) for sums in (reference, candidate)
        )
        return Pair(*(dict(zip(self._widths, np.split(means, places, axis=-1), strict=True)) for means in sides))


def _slices(events: int) -> Iterator[slice]:
    """Slices of `events` events; the features of one slice are held at once."""
    return (slice(start, min(start + _CHUNK_EVENTS, events)) for start in range(0, events, _CHUNK_EVENTS))


def _coins(rng: np.random.Generator, showers: int, events: tuple[int, int]) -> Mask:
    """Which showers play the reference, (resamples, showers): a random share, as large as the reference's own."""
    return rng.random((NULL_RESAMPLES, showers)) < events[0] / sum(events)
