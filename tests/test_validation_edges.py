"""Calibration in fine bins up to the ends of the labels, against NumPy and closed forms."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from showers import SMALL_GEOMETRY, make_showers

from validation.measure.observables import Observables, observe
from validation.report.curves import Compared, Curve, Frame, Summary, edge_intervals, summarise

EVENTS = 600


def table(seed: int, events: int = EVENTS) -> Observables:
    showers = make_showers(events=events, seed=seed)
    return observe(showers.cells, showers.energy_gev, showers.theta_rad, SMALL_GEOMETRY)


def summary_of(mine: Observables, theirs: Observables) -> Summary:
    return summarise(Compared(mine, theirs, mine, theirs, SMALL_GEOMETRY))


@pytest.mark.parametrize(("label", "unit"), [("energy_gev", 1.0), ("theta_deg", 180 / math.pi)])
def test_each_bin_agrees_with_numpy(label: str, unit: float) -> None:
    mine, theirs = table(1), table(2)
    found = edge_intervals(summary_of(mine, theirs))[label]
    json.dumps(found, allow_nan=False)
    low, high = found[0]["low"], found[-1]["high"]
    assert len(found) == 9  # 600 showers: seven between the ends
    for each in found:
        parts = []
        for rows in (mine, theirs):
            values = (rows.energy_gev if label == "energy_gev" else rows.theta_rad) * unit
            values = values.clip(low, np.nextafter(high, -np.inf))
            inside = rows[(values >= each["low"]) & (values < each["high"])]
            error = inside.column("angle_deg") - np.degrees(inside.theta_rad)
            response = inside.column("response")
            parts.append((response.mean(), response.std(ddof=1), error.mean(), error.std(ddof=1), len(inside)))
        (r, s, a, b, n), (q, t, c, d, m) = parts
        assert each["response"]["value"] == pytest.approx(q / r)
        assert each["resolution"]["value"] == pytest.approx(t / q / (s / r))
        assert each["angle_deg"]["value"] == pytest.approx(c - a)
        reach = (each["angle_deg"]["interval"][1] - each["angle_deg"]["interval"][0]) / 2
        assert reach == pytest.approx(1.96 * math.sqrt(b**2 / n + d**2 / m), rel=1e-3)


def test_the_bins_at_the_ends_are_narrow_and_narrower_with_more_showers() -> None:
    def widths(events: int) -> list[float]:
        mine = table(1)[np.arange(events) % EVENTS]
        return [each["high"] - each["low"] for each in edge_intervals(summary_of(mine, mine))["energy_gev"]]

    few, many = widths(300), widths(6_000)
    assert many[0] == pytest.approx(many[-1])
    assert many[0] == pytest.approx(0.02 * sum(many))
    assert few[0] == pytest.approx(40 / 300 * sum(few))
    assert many[1] > 5 * many[0]


def test_a_fault_at_one_end_is_seen_there_alone() -> None:
    mine, theirs = table(1), table(2)
    scalars = theirs.scalars.copy()
    scalars[theirs.energy_gev > 193, 1] *= 1.2  # the response
    found = edge_intervals(summary_of(mine, replace(theirs, scalars=scalars)))["energy_gev"]
    excess = [each["response"]["interval"][0] > 1.1 for each in found]
    assert excess == [False] * (len(found) - 1) + [True]


def test_ratio_and_difference_have_the_errors_of_independent_sets() -> None:
    frame = Frame("", "", "x", "y", np.arange(3.0))
    curve = Curve(frame, (np.array([2.0, 0.0]), np.array([0.1, 0.0])), (np.array([3.0, 1.0]), np.array([0.2, 0.1])))
    value, error = curve.relative()
    assert value[0] == 1.5
    assert error[0] == pytest.approx(1.5 * math.hypot(0.05, 0.2 / 3))
    value, error = replace(curve, frame=replace(frame, below="difference")).relative()
    assert (value[0], error[0]) == (1.0, pytest.approx(math.hypot(0.1, 0.2)))


def test_one_energy_and_few_showers_have_bins_without_figures() -> None:
    mine = replace(table(1, 10), energy_gev=np.full(10, 100.0))
    found = edge_intervals(summary_of(mine, mine))
    assert [each["low"] for each in found["energy_gev"]] == [99.0]
    assert all(each["response"] == {"value": None, "interval": None} for rows in found.values() for each in rows)
