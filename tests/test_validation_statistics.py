"""Statistics against closed forms and simulated truth.

Also of all that `benchmarks/intervals.py` knows the truth of.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from intervals import coverage, quantities
from judging import drawn
from scipy import stats

from validation.judge.answers import Measurement, judge
from validation.judge.criteria import _Bin
from validation.statistics.estimates import Estimate
from validation.statistics.resampling import (
    Array,
    Pair,
    correlation_differences,
    correlations,
    difference_of_means,
    ratio_of_means,
    ratio_of_widths,
    resample,
    separation_power,
    with_products,
)


def test_ratio_and_difference_of_means_have_the_standard_errors_of_the_textbook() -> None:
    rng = np.random.default_rng(1)
    reference, candidate = rng.normal(10, 2, (5_000, 1)), rng.normal(11, 3, (2_500, 1))  # more than one piece
    found = drawn(reference, candidate)
    (ratio,), (difference,) = found.estimate(ratio_of_means("f")), found.estimate(difference_of_means("f"))
    assert ratio.value == pytest.approx(candidate.mean() / reference.mean())
    parts = (reference.std() / reference.mean()) ** 2 / 5_000 + (candidate.std() / candidate.mean()) ** 2 / 2_500
    assert ratio.standard_error == pytest.approx(ratio.value * math.sqrt(parts), rel=0.12)
    assert difference.standard_error == pytest.approx(math.sqrt(4 / 5_000 + 9 / 2_500), rel=0.12)
    assert ratio.events == 2_500


def reached(events: int, share: float, spread: float, columns: int = 1, seed: int = 0) -> Array:
    """Energies of a layer that a share of the showers reaches, (events, columns); `spread` is of their logarithms."""
    rng = np.random.default_rng((seed, events))
    return np.exp(rng.normal(0, spread, (events, columns))) * (rng.random((events, columns)) < share)


@pytest.mark.parametrize(
    ("reference", "candidate", "ends"),
    [((2_000, 1), (1_500, 1), 2), ((2_000, 0.05), (1_500, 0.03), 2), ((1_000, 0.05), (5_000, 0.04), 2),
     ((2_000, 0.003), (1_500, 0.5), 1), ((2_000, 0.003), (1_500, 0.003), 0)],
)  # fmt: skip
def test_the_interval_of_a_ratio_holds_the_ratios_that_do_not_contradict_the_means(
    reference: tuple[int, float], candidate: tuple[int, float], ends: int
) -> None:
    """Ratios are tried one by one: is the candidate's mean so many times the reference's, within its error?

    The error is as measured, or as it is if the other set tells the spread of the events of each.
    """
    sets = [reached(*side, spread=0.7) for side in (reference, candidate)]
    (a, b), (of_a, of_b) = ([side.mean() for side in sets], [side.var() for side in sets])
    (n, m), tried = (len(side) for side in sets), np.geomspace(0.01, 1e4, 20_000)
    factor = stats.t.ppf(1 - 0.01 / 2, min(n, m) - 1)
    errors = (of_b / m + tried**2 * of_a / n, of_b / n + tried**2 * of_a / m)
    held = tried[np.any([(b - tried * a) ** 2 <= factor**2 * error for error in errors], axis=0)]
    (ratio,) = drawn(*sets).estimate(ratio_of_means("f"))
    interval = ratio.interval(0.99)
    assert sum([held[0] > tried[0], held[-1] < tried[-1]]) == ends
    assert (interval is None) == (ends == 0)
    if interval is not None:
        assert interval[0] == pytest.approx(held[0], rel=0.1)
        assert interval[1] == (pytest.approx(held[-1], rel=0.1) if ends == 2 else math.inf)


def answers(reference: Array, candidate: Array) -> list[str]:
    """Of a criterion for each column, of which there are 87 in all."""
    estimates = drawn(reference, candidate).estimate(ratio_of_means("f"))
    return [judge(Measurement("m", "m", "", "", 1.0, 0.2, (each,), {"value": None}), 87).verdict for each in estimates]


@pytest.mark.parametrize("events", [(2_000, 2_000), (10_000, 500), (500, 10_000)])
@pytest.mark.parametrize(("share", "spread"), [(0.002, 0.5), (0.01, 1.8)])
def test_a_layer_that_few_showers_reach_rejects_none_of_its_own_monte_carlo(
    events: tuple[int, int], share: float, spread: float
) -> None:
    sets = [reached(count, share, spread, columns=100, seed=seed) for seed, count in enumerate(events)]
    assert "fail" not in answers(*sets)


@pytest.mark.parametrize(("reference", "candidate"), [(2, 400), (0, 60), (60, 0), (400, 150)])
def test_an_excess_or_a_deficit_in_a_layer_that_few_showers_reach_fails(reference: int, candidate: int) -> None:
    """Of 2,000 showers a side, so many reach it, of much the same energy."""
    sets = [reached(2_000, 1, 0.3, seed=seed) for seed in (0, 1)]
    for side, count in zip(sets, (reference, candidate), strict=True):
        side[count:] = 0
    assert answers(*sets) == ["fail"]


def test_the_events_that_resolve_a_ratio_end_its_interval_at_the_tolerance() -> None:
    (few,) = drawn(reached(2_000, 0.03, 0.5), reached(2_000, 0.02, 0.5, seed=1)).estimate(ratio_of_means("f"))
    more = few.events_to_resolve(0.8, 0.95)
    assert more is not None
    assert few.value < 0.8
    assert few.parts is not None
    ends = replace(few, events=more, parts=few.parts * few.events / more).interval(0.95)
    assert ends is not None
    assert ends[1] == pytest.approx(0.8, rel=1e-3)


@pytest.mark.parametrize(("share", "answer"), [(0.0, "pass"), (0.5, "fail"), (0.005, "inconclusive")])
def test_what_monte_carlo_has_nothing_of_is_decided(share: float, answer: str) -> None:
    """A ratio over zero: of a candidate that has nothing either, of one that has, and of one with an odd shower."""
    candidate = np.zeros((200, 1))
    candidate[: round(200 * share)] = 3.0
    found = drawn(np.zeros((300, 1)), candidate)
    estimates = tuple(found.estimate(ratio_of_means("f")))
    measured = Measurement("m", "m", "", "", 1.0, 0.1, estimates, {"value": None})
    assert judge(measured, 50).verdict == answer
    widths = drawn(*(np.concatenate([1 + each, (1 + each) ** 2], axis=1) for each in (np.zeros((300, 1)), candidate)))
    (ratio,) = widths.estimate(ratio_of_widths("f"))
    assert ratio.value == 1 if share == 0 else ratio.value > 1e6


def test_a_column_that_is_empty_in_both_sets_leaves_the_others_their_ratio() -> None:
    drawn_columns = drawn(np.tile([0.0, 1.0], (20, 1)), np.tile([0.0, 2.0], (20, 1)))
    assert [estimate.value for estimate in drawn_columns.estimate(ratio_of_means("f"))] == [1, 2]


def test_an_empty_histogram_has_no_separation() -> None:
    """`test_challenge.py` has the separation power of others in closed form."""
    assert separation_power(Pair({"h": np.zeros(2)}, {"h": np.ones(2)}), "h") == 0


def one_hot(values: Array, bins: int = 10) -> Array:
    return np.eye(bins)[np.clip((values * bins).astype(int), 0, bins - 1)]


@pytest.mark.parametrize("per_event", [0, 1, 3])
def test_the_bias_of_separation_power_is_gone_under_the_null(per_event: int) -> None:
    rng = np.random.default_rng(6)
    found = []
    for trial in range(40):
        reference, candidate = rng.random(300), rng.random(300 * max(per_event, 1))
        found.append(drawn(one_hot(reference), one_hot(candidate), per_event=per_event, seed=trial).separation("f"))
    values = np.array([each.value for each in found])
    bias = 9 / 4 * (1 / 300 + 1 / (300 * max(per_event, 1)))  # what S of 10 bins has without the subtraction
    assert abs(values.mean()) < 0.15 * bias + 3 * values.std() / math.sqrt(40) / 2
    assert values.std() == pytest.approx(np.mean([each.standard_error for each in found]), rel=0.5)


def test_the_null_of_unequal_sets_is_of_sets_of_these_sizes() -> None:
    rng = np.random.default_rng(16)
    found = drawn(one_hot(rng.random(3_000)), one_hot(rng.random(300)))
    null = separation_power(found.null, "f")
    assert null.shape == (200,)
    assert null.mean() == pytest.approx(9 / 4 * (1 / 3_000 + 1 / 300), rel=0.15)
    assert found.separation("f").events == 300


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
    """Of two bins and 200 events a side, 30 and 50 of them in the first, by derivatives of S."""

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
    """Of so many degrees of freedom; the error is `more` than the null's; of few events Student's reaches farther."""
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
    """Of a normal mean in closed form, from halves of the reference alone."""
    rng = np.random.default_rng(17)
    found = drawn(rng.normal(5, 2, (4_000, 1)), rng.normal(9, 1, (1_000, 1)))  # whose own width it has not
    assert found.floors(difference_of_means("f"), 0.0) == pytest.approx(2 * math.sqrt(1 / 4_000 + 1 / 1_000), rel=0.15)


def test_a_layer_is_in_the_tail_by_its_share_and_not_by_its_energy() -> None:
    """Of 0.2, 99.5 and 0.3 %, in a unit in which all are above 1."""
    energies = np.random.default_rng(19).gamma(50, [[0.04, 19.9, 0.06]], (200, 3))

    sides = [lambda rows: {"layers": rows}] * 2
    resampled = resample((energies, energies, 0), sides, rng=np.random.default_rng(0))
    found = _Bin("", {"layer_energy": 0.1, "layer_energy_tail": 0.3}, resampled).layers()
    assert [(each.name, each.key) for each in found] == [
        ("Mean energy, tail, layer 0", "layer_energy_tail"),
        ("Mean energy, layer 1", "layer_energy"),
        ("Mean energy, tail, layer 2", "layer_energy_tail"),
    ]


def test_a_layer_that_monte_carlo_never_reaches_has_a_criterion() -> None:
    energies = np.random.default_rng(19).gamma(50, [[1.0, 0.0, 0.0]], (500, 3))
    tables = energies, energies + [0, 0, 1] * (np.arange(500) < 100)[:, None], 0
    resampled = resample(tables, [lambda rows: {"layers": rows}] * 2, rng=np.random.default_rng(0))
    found = _Bin("", {"layer_energy": 0.1, "layer_energy_tail": 0.3}, resampled).layers()
    assert [(each.name, judge(each, 80).verdict) for each in found] == [
        ("Mean energy, layer 0", "pass"),
        ("Mean energy, tail, layer 2", "fail"),
    ]


def test_a_ratio_over_what_some_resamples_have_none_of_has_no_error() -> None:
    reference = np.zeros((20, 1))
    reference[0] = 1.0
    (ratio,) = drawn(reference, np.ones((20, 1))).estimate(ratio_of_means("f"))
    assert ratio.value == pytest.approx(20)
    assert math.isnan(ratio.standard_error)


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
    """With as many, of which error and growth fall as 1/events, the upper end of the interval lies at the gap."""
    gap, few = 0.02, Estimate(0.0, 0.01, 1_000_000, growth=0.002)
    more = few.events_to_resolve(gap, 0.95)
    assert more is not None
    share = few.events / more
    ends = replace(few, standard_error=0.01 * math.sqrt(share), growth=0.002 * share).interval(0.95)
    assert ends is not None
    assert ends[1] == pytest.approx(gap, rel=0.02)


@pytest.mark.parametrize("excess", [8, 15, 60])
def test_the_upper_end_of_a_separation_power_holds_a_truth_that_is_not_null(excess: float) -> None:
    """S of 16 bins and n events a side is a non-central chi-squared number over 2n: 2.5 % are to be too low."""
    unit = 1 / 2_000
    found = unit * (np.random.default_rng(12).noncentral_chisquare(15, excess, 1_500) - 15)
    null, growth = (15 * unit, math.sqrt(30) * unit), 4 * unit
    ends = [
        Estimate(value, math.sqrt(null[1] ** 2 + growth * max(value, 0)), 1_000, null, growth=growth).interval(0.95)
        for value in found
    ]
    below = np.mean([end is not None and end[1] < excess * unit for end in ends])
    assert 0.005 < below < 0.045


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
