"""Challenger against incumbent: simulated candidates of known quality."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from judging import drawn, measurement

from calopipe.showers.cells import Array
from calopipe.verdict import ALIKE, summary_line
from validation.judge.answers import Measurement
from validation.judge.challenger import _decided, _distance, against_incumbent
from validation.statistics.estimates import Estimate
from validation.statistics.resampling import difference_of_means

TOLERANCE = 0.1


def measurements(reference: np.ndarray, candidate: np.ndarray) -> list[Measurement]:
    """One criterion for each column: the difference of its means."""
    estimates = drawn(reference, candidate).estimate(difference_of_means("f"))
    return [measurement(estimate, name=name, target=0.0) for name, estimate in zip("abc", estimates, strict=True)]


def distance(*estimates: Estimate, target: float = 0.0, **more: Any) -> tuple[float, Array]:
    found = _distance(measurement(*estimates, target=target, **more))
    assert found is not None
    return found


def test_the_nearer_one_wins_by_each_criterion_and_in_all() -> None:
    rng = np.random.default_rng(1)
    reference, near, far = rng.normal(0, 1, (2_000, 3)), rng.normal(0, 1, (2_000, 3)), rng.normal(0.3, 1, (2_000, 3))
    far[:, 2] -= 0.3
    found = against_incumbent(measurements(reference, near), measurements(reference, far))
    assert found["outcome"] == "better"
    assert found["interval"][1] < 0
    assert [(row["name"], row["outcome"]) for row in found["criteria"]][:2] == [("a", "better"), ("b", "better")]
    assert found["criteria"][0]["incumbent"] == pytest.approx(9, rel=0.3)  # three tolerances away, squared
    assert found["difference"] == pytest.approx(np.mean([row["difference"] for row in found["criteria"]]))
    assert against_incumbent(measurements(reference, far), measurements(reference, near))["outcome"] == "worse"
    assert against_incumbent(*[measurements(reference, near)] * 2)["interval"] == [0, 0]  # one noise, which cancels


@pytest.mark.parametrize("side", [0, -1])
def test_a_resample_that_falls_short_by_more_is_farther_also_where_only_a_deficit_counts(side: int) -> None:
    estimate = Estimate(0.8, 0.05, 500, replicates=np.array([0.75, 0.8, 0.85]))
    _, scatter = distance(estimate, target=1.0, side=side)
    assert scatter[0] > scatter[1] > scatter[2]


@pytest.mark.parametrize(("excess", "square"), [(2.0, 3.0), (0.5, -0.75)])
def test_the_noise_of_a_squared_distance_has_the_moments_of_a_normal_error(excess: float, square: float) -> None:
    """About zero, with the variance 4 t^2 s^2 + 2 s^4, for an error as large as the tolerance."""
    away = np.random.default_rng(8).normal(0, TOLERANCE, 20_000)
    estimate = Estimate(excess * TOLERANCE, TOLERANCE, 500, replicates=excess * TOLERANCE + away)
    found, scatter = distance(estimate)
    assert found == pytest.approx(square)
    variance = 4 * max(square, 0) + 2
    assert scatter.mean() == pytest.approx(0, abs=4 * math.sqrt(variance / 20_000))
    assert scatter.var() == pytest.approx(variance, rel=0.1)


def _estimate(value: float, error: float = 0.0, null: tuple[float, float] | None = None) -> Estimate:
    """An estimate in units of the tolerance, whose resamples scatter by twice the error."""
    value, error = value * TOLERANCE, error * TOLERANCE
    return Estimate(value, error, 500, null, replicates=value + 2 * error * np.array([-1.0, 0.0, 1.0]))


def test_a_separation_power_is_a_square_already_and_has_its_own_error() -> None:
    square, scatter = distance(_estimate(2.0, 0.3, null=(0.01, 0.005)), side=1)
    assert square == pytest.approx(2.0)
    np.testing.assert_allclose(scatter, [-0.3, 0.0, 0.3], atol=1e-12)
    # those of a set against itself are alike, and their mean is off by rounding
    for value in (3e-3, 1.1e-47):
        alike = Estimate(value, 0.3 * TOLERANCE, 500, (0.01, 0.005), replicates=np.full(1000, value))
        assert not distance(alike, side=1)[1].any()


def test_the_square_of_a_criterion_is_the_mean_over_its_estimates() -> None:
    square, _ = distance(_estimate(1.0, 0.5), _estimate(3.0, 0.5), Estimate(math.nan, math.nan, 5))
    assert square == pytest.approx((1 + 9) / 2 - 0.25)


@pytest.mark.parametrize(
    ("challenger", "incumbent", "difference"),
    [
        (_estimate(2.0), _estimate(0.0), 4 / 3),  # squares of 4 and 0, over one and their mean
        (_estimate(1.0), _estimate(2.0), -3 / 3.5),
        (_estimate(1e4), _estimate(0.0), 2.0),
        (_estimate(0.0, 1.0), _estimate(2.0), -5 / 3),  # a square below zero is none where it divides
    ],
)
def test_no_criterion_decides_alone(challenger: Estimate, incumbent: Estimate, difference: float) -> None:
    def named(estimate: Estimate, *names: str) -> list[Measurement]:
        return [measurement(estimate, name=name, target=0.0) for name in names]

    compared = against_incumbent(named(challenger, "a", "b"), named(incumbent, "a", "c"))
    assert [row["name"] for row in compared["criteria"]] == ["a"]
    assert compared["difference"] == pytest.approx(difference, rel=1e-6)


def test_a_difference_is_told_where_its_95_percent_interval_is_on_one_side_of_zero() -> None:
    scatter = np.array([-1.0, 0.0, 1.0])  # with a standard deviation of one
    for difference, outcome in ((-1.97, "better"), (-1.95, ALIKE), (1.95, ALIKE), (1.97, "worse")):
        decided = _decided(difference, scatter)
        assert decided["outcome"] == outcome
        assert decided["interval"] == pytest.approx([difference - 1.96, difference + 1.96], abs=1e-3)


def test_hard_failures_come_first() -> None:
    rng = np.random.default_rng(2)
    reference, near, far = (rng.normal(shift, 1, (500, 3)) for shift in (0, 0, 1))
    sides = measurements(reference, near), measurements(reference, far)
    assert against_incumbent(*sides, hard_failures=(1, 0))["outcome"] == "worse"
    assert against_incumbent(*sides, hard_failures=(1, 1))["outcome"] == "better"
    assert against_incumbent(*sides[::-1], hard_failures=(0, 1))["outcome"] == "better"


def test_what_cannot_be_known_is_left_out() -> None:
    for estimate in (
        Estimate(math.nan, math.nan, 5),
        Estimate(0.1, math.nan, 50, replicates=np.zeros(400)),  # a correlation of few showers
    ):
        unknown = [measurement(estimate, target=0.0)]
        found = against_incumbent(unknown, unknown)
        assert (found["outcome"], found["difference"], found["criteria"]) == ("no significant difference", None, [])


def test_the_line_of_a_verdict_says_how_the_candidate_compares() -> None:
    alone = {"verdict": "accepted", "grade": {"name": "gan"}, "criteria": [{"verdict": "pass"}] * 3, "incumbent": None}
    line = "accepted (grade gan); criteria: 3 pass, 0 fail, 0 inconclusive"
    assert summary_line(alone) == line
    assert summary_line(alone | {"incumbent": {"outcome": ALIKE}}) == f"{line}; against the incumbent: {ALIKE}"
