"""Curves against a label, in bins up to its ends, against closed forms."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from showers import SMALL_GEOMETRY, make_showers

from validation.measure.observables import Observables, observe
from validation.report.curves import Curve, Frame, summarise

EVENTS = 600


def table(seed: int, events: int = EVENTS) -> Observables:
    showers = make_showers(events=events, seed=seed)
    return observe(showers.cells, showers.energy_gev, showers.theta_rad, SMALL_GEOMETRY)


def response(mine: Observables, theirs: Observables) -> Curve:
    return summarise(mine, theirs, SMALL_GEOMETRY).curves["response_against_energy"]


def test_the_bins_at_the_ends_are_narrow_and_narrower_with_more_showers() -> None:
    def widths(events: int) -> list[float]:
        mine = table(1)[np.arange(events) % EVENTS]
        return np.diff(response(mine, mine).frame.edges).tolist()

    few, many = widths(300), widths(6_000)
    assert many[0] == pytest.approx(many[-1])
    assert many[0] == pytest.approx(0.02 * sum(many))
    assert few[0] == pytest.approx(40 / 300 * sum(few))
    assert many[1] > 5 * many[0]


def test_a_fault_at_one_end_is_seen_there_alone() -> None:
    mine, theirs = table(1), table(2)
    scalars = theirs.scalars.copy()
    scalars[theirs.energy_gev > 193, 1] *= 1.2  # the response
    value, error = response(mine, replace(theirs, scalars=scalars)).relative()
    assert (value - 1.96 * error > 1.1).tolist() == [False] * (len(value) - 1) + [True]


def test_ratio_and_difference_have_the_errors_of_independent_sets() -> None:
    frame = Frame("", "", "x", "y", np.arange(3.0))
    curve = Curve(frame, (np.array([2.0, 0.0]), np.array([0.1, 0.0])), (np.array([3.0, 1.0]), np.array([0.2, 0.1])))
    value, error = curve.relative()
    assert value[0] == 1.5
    assert error[0] == pytest.approx(1.5 * math.hypot(0.05, 0.2 / 3))
    value, error = replace(curve, frame=replace(frame, below="difference")).relative()
    assert (value[0], error[0]) == (1.0, pytest.approx(math.hypot(0.1, 0.2)))


def test_one_energy_has_one_bin_about_it() -> None:
    mine = replace(table(1), energy_gev=np.full(EVENTS, 100.0))
    assert response(mine, mine).frame.edges.tolist() == [99.0, 101.0]
