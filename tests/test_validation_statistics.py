"""Statistics against closed forms and simulated truth.

Also for all quantities whose truth `benchmarks/intervals.py` knows.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from intervals import coverage, quantities
from judging import drawn
from scipy import stats

from validation.judge.criteria import _Bin
from validation.statistics.estimates import Estimate
from validation.statistics.resampling import (
    Array,
    Pair,
    correlation_differences,
    correlations,
    difference_of_means,
    ratio_of_means,
    separation,
    separation_power,
    with_products,
)


def test_an_empty_histogram_has_no_separation() -> None:
    """`test_challenge.py` compares the separation power of other histograms with the challenge's own."""
    assert np.isnan(separation(np.zeros(2), np.ones(2)))
    assert separation_power(Pair({"h": np.zeros(2)}, {"h": np.ones(2)}), "h") == 0


def one_hot(values: Array, bins: int = 10) -> Array:
    return np.eye(bins)[np.clip((values * bins).astype(int), 0, bins - 1)]


@pytest.mark.parametrize(
    ("reference", "candidate", "per_event"), [(3_000, 300, 0), (300, 3_000, 0), (300, 300, 1), (300, 900, 3)]
)
def test_the_null_of_a_separation_power_is_of_sets_of_these_sizes(
    reference: int, candidate: int, per_event: int
) -> None:
    rng = np.random.default_rng(16)
    found = drawn(one_hot(rng.random(reference)), one_hot(rng.random(candidate)), per_event=per_event)
    null, estimate = separation_power(found.null, "f"), found.separation("f")
    assert null.shape == (200,)
    assert null.mean() == pytest.approx(9 / 4 * (1 / reference + 1 / candidate), rel=0.15)
    assert estimate.value == pytest.approx(separation_power(found.point, "f") - null.mean())
    assert estimate.events == 300


def test_the_error_of_a_separation_power_of_sets_that_are_the_same_or_share_nothing_is_that_of_the_null() -> None:
    left, right = np.tile([1.0, 0.0], (400, 1)), np.tile([0.0, 1.0], (400, 1))
    half = np.concatenate([left[:200], right[:200]])
    nearly = np.concatenate([left[:201], right[:199]])
    same, near, apart = (drawn(*pair).separation("f") for pair in ((half, half), (half, nearly), (left, right)))
    chance = (1 / 400 + 1 / 400) / 4  # of two bins
    assert same.value == pytest.approx(-chance, rel=0.3)
    assert apart.value == pytest.approx(1 - chance, rel=0.3 * chance)
    assert near.value < 0
    for estimate in (same, near, apart):
        assert estimate.null is not None
        assert (
            estimate.standard_error == pytest.approx(estimate.null[1]) == pytest.approx(math.sqrt(2) * chance, rel=0.5)
        )
    assert apart.replicates == pytest.approx(apart.value)  # S is one in each resample


def test_the_error_of_a_separation_power_is_carried_from_the_shares_in_the_share_of_it_above_chance() -> None:
    """For two bins and 200 events a side, with 30 and 50 events in the first bin, by derivatives of S."""

    def power(p: float, q: float) -> float:
        return (p - q) ** 2 / 2 * (1 / (p + q) + 1 / (2 - p - q))

    rows = np.arange(200)[:, None]
    resampled = drawn(*(np.concatenate([rows < first, rows >= first], axis=1).astype(float) for first in (30, 50)))
    p, q, step = 0.15, 0.25, 1e-6
    slopes = (power(p + step, q) - power(p, q)) / step, (power(p, q + step) - power(p, q)) / step
    variance = (slopes[0] ** 2 * p * (1 - p) + slopes[1] ** 2 * q * (1 - q)) / 200
    chance = (1 / 200 + 1 / 200) / 4
    above = 1 - chance / power(p, q)
    estimate = resampled.separation("f")
    assert estimate.growth == pytest.approx(variance / power(p, q), rel=0.15)
    assert estimate.standard_error == pytest.approx(math.sqrt(2 * chance**2 + above * variance), rel=0.08)


@pytest.mark.parametrize(("null", "events"), [(4, 10**7), (1_000, 10), (1_000, 10**7)])
@pytest.mark.parametrize("more", [0.0, 3.0])
def test_the_lower_end_of_a_separation_power_is_that_of_a_chi_squared_null(null: int, events: int, more: float) -> None:
    """With these degrees of freedom; the error is `more` than the null's. For few events Student's end is farther."""
    unit = 1 / 2_000
    sigma, factor = math.sqrt(2 * null) * unit, stats.t.ppf(0.975, events - 1)
    ends = Estimate(0.3, math.hypot(sigma, more * unit), events, (null * unit, sigma), growth=0.01).interval(0.95)
    tail = (stats.chi2.ppf(0.975, null) - null) * unit
    below = {(4, 10**7): tail, (1_000, 10): factor * sigma, (1_000, 10**7): tail}[null, events]
    assert ends is not None
    assert 0.3 - ends[0] == pytest.approx(math.sqrt(below**2 + (factor * more * unit) ** 2))
    assert ends[1] - 0.3 == pytest.approx(factor * math.hypot(sigma, more * unit) + factor**2 * 0.01 / 4)


def test_a_separation_power_whose_null_does_not_vary_has_the_interval_of_its_error() -> None:
    plain = Estimate(0.3, 0.1, 100).interval(0.95)
    assert Estimate(0.3, 0.1, 100, (0.1, 0.0)).interval(0.95) == plain
    assert Estimate(0.3, 0.1, 100, (0.0, 0.0)).interval(0.95) == plain


def test_floors_are_the_distances_of_independent_sets_of_these_sizes() -> None:
    """For a normal mean in closed form, computed only from halves of the reference."""
    rng = np.random.default_rng(17)
    found = drawn(rng.normal(5, 2, (4_000, 1)), rng.normal(9, 1, (1_000, 1)))  # whose own width it has not
    assert found.floors(difference_of_means("f"), 0.0) == pytest.approx(2 * math.sqrt(1 / 4_000 + 1 / 1_000), rel=0.15)


def test_correlations_agree_with_numpy() -> None:
    rng = np.random.default_rng(9)
    values = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3))
    expected = np.corrcoef(values.T)[np.triu_indices(3, 1)]
    np.testing.assert_allclose(correlations(with_products(values).mean(axis=0), 3), expected, rtol=1e-9)
    for scale, known in ((1e-4, expected), (1e-8, np.full(3, np.nan))):  # spreads below 1e-6 are none
        small = with_products(values / values.std(axis=0) * scale)
        np.testing.assert_allclose(correlations(small.mean(axis=0), 3), known, rtol=1e-6)
    constant = with_products(np.stack([values[:, 0], np.ones(500)], axis=1))
    assert np.isnan(correlations(constant.mean(axis=0), 2)).all()
    sets = with_products(values), with_products(values[:, [0, 0, 2]] * [1, -1, 1])
    found = drawn(*sets).estimate(correlation_differences("f", 3))
    assert found[0].value == pytest.approx(-1 - expected[0])


def test_estimates_without_an_error_or_with_few_events_have_no_interval() -> None:
    assert Estimate(1.0, math.nan, 100).interval(0.95) is None
    assert Estimate(1.0, 0.1, 9).interval(0.95) is None
    low, high = Estimate(1.0, 0.1, 10).interval(0.95) or (0, 0)
    assert high - low == pytest.approx(2 * 2.262 * 0.1, rel=1e-3)  # Student's t with nine degrees of freedom
    assert Estimate(1.0, 0.1, 3_500, groups=10).interval(0.95) == (low, high)  # ten blocks are what was resampled
    assert Estimate(1.0, 0.1, 3_500, groups=9).interval(0.95) is None
    assert Estimate(1.0, 0.1, 99, least=100).interval(0.95) is None
    assert Estimate(1.0, 0.1, 2, least=2).interval(0.95) is not None
    assert Estimate(math.inf, 0.1, 100).interval(0.95) is None


@pytest.mark.parametrize("events", [(100, 100), (99, 750), (750, 99)])
def test_a_correlation_has_an_error_from_a_hundred_showers_a_side(events: tuple[int, int]) -> None:
    values = [with_products(np.random.default_rng(seed).normal(size=(n, 2))) for seed, n in enumerate(events)]
    found = _Bin("all", {"correlation": 0.1}, drawn(*values))
    (estimate,) = found.worst("", "correlation", correlation_differences("f", 2), ["a and b"], target=0.0).estimates
    assert (estimate.interval(0.95) is not None) == (min(events) == 100)


def test_the_events_that_resolve_a_gap() -> None:
    assert Estimate(1.0, 0.1, 100).events_to_resolve(1.098, 0.95) == 400  # of 399.98
    assert Estimate(1.0, 0.1, 100, null=(0.1, 0.1)).events_to_resolve(1.098, 0.95) == pytest.approx(200, abs=2)
    for unknown in (math.nan, 0.0):
        assert Estimate(1.0, unknown, 100).events_to_resolve(1.1, 0.95) is None
    for bound in (math.nan, 1.0):
        assert Estimate(1.0, 0.1, 100).events_to_resolve(bound, 0.95) is None


def test_the_events_that_resolve_a_gap_heed_the_growth_of_the_error() -> None:
    """With that number of events, the upper end of the interval is at the gap; error and growth fall as 1/events."""
    gap, few = 0.02, Estimate(0.0, 0.01, 1_000_000, growth=0.002)
    more = few.events_to_resolve(gap, 0.95)
    assert more is not None
    share = few.events / more
    ends = replace(few, standard_error=0.01 * math.sqrt(share), growth=0.002 * share).interval(0.95)
    assert ends is not None
    assert ends[1] == pytest.approx(gap, rel=0.02)


def test_the_same_seed_gives_the_same_answer() -> None:
    values = np.random.default_rng(11).normal(5, 1, (50, 1))
    first, second = (drawn(values, values[::-1], seed=3).estimate(ratio_of_means("f")) for _ in range(2))
    assert first == second


EVENTS, TRIALS = 200, 100


@pytest.mark.parametrize("pairing", [(0, 1.0), (3, 3.0)])
def test_intervals_hold_the_truth_as_often_as_they_say(pairing: tuple[int, float]) -> None:
    asked = quantities()
    holds = TRIALS * coverage(asked, events=EVENTS, pairing=pairing, trials=TRIALS)[:, 0]
    # False alarms: with a coverage of 91 % or more, less than 1e-3 for the numbers of both pairings together.
    fewest = stats.binom.ppf(2e-5, TRIALS, 0.91)
    assert {quantity.name: count for quantity, count in zip(asked, holds, strict=True) if count < fewest} == {}
    # All but separation powers, whose intervals are wide, together: chance leaves them nearer to 95 %.
    known = [count for quantity, count in zip(asked, holds, strict=True) if not quantity.name.startswith("S ")]
    assert 0.92 < np.mean(known) / TRIALS < 0.975


@pytest.mark.parametrize("excess", [8, 15, 60])
def test_the_upper_end_of_a_separation_power_holds_a_truth_that_is_not_null(excess: float) -> None:
    """S of 16 bins and n events a side is a non-central chi-squared number over 2n: 2.5 % of ends must be too low."""
    unit = 1 / 2_000
    found = unit * (np.random.default_rng(12).noncentral_chisquare(15, excess, 1_500) - 15)
    null, growth = (15 * unit, math.sqrt(30) * unit), 4 * unit
    ends = [
        Estimate(value, math.sqrt(null[1] ** 2 + growth * max(value, 0)), 1_000, null, growth=growth).interval(0.95)
        for value in found
    ]
    below = np.mean([end is not None and end[1] < excess * unit for end in ends])
    assert 0.005 < below < 0.045
