"""The reference's metric against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from showers import make_showers, measured_angle

from calopipe.showers.cells import Geometry, Showers
from calopipe.showers.metric import REFERENCE_BINS, MetricBin, Profiles, metric

EVERYTHING = (MetricBin(150.0, math.pi / 2, math.inf, math.inf),)


def profiles(showers: Showers) -> Profiles:
    x, y, layers = showers.cells.shape[1:]
    return Profiles.of(showers.cells, showers.energy_gev, showers.theta_rad, Geometry((x, y, layers), 1, 1, 1, 1))


def by_loops(reference: Showers, candidate: Showers) -> tuple[float, float, float]:
    """P, E and A of showers in one bin."""

    def moments(showers: Showers, axis: int) -> tuple[float, float]:
        firsts, seconds = [], []
        for shower in showers.cells.astype(float):
            line = shower.sum(axis=tuple(k for k in range(3) if k != axis))
            first = sum(i * e for i, e in enumerate(line)) / line.sum()
            firsts.append(first)
            seconds.append(sum((i - first) ** 2 * e for i, e in enumerate(line)) / line.sum())
        return float(np.mean(firsts)), float(np.mean(seconds))

    position, profile = [], []
    for axis in range(3):
        position += [abs(b - a) / a for a, b in zip(moments(reference, axis), moments(candidate, axis), strict=True)]
        others = tuple(k + 1 for k in range(3) if k != axis)
        ours, theirs = (s.cells.astype(float).sum(axis=others).mean(axis=0) for s in (reference, candidate))
        profile.append(np.mean([abs(b - a) / a for a, b in zip(ours, theirs, strict=True) if a > 0]))
    ours_angle, theirs_angle = reference.mtheta_rad.mean(), candidate.mtheta_rad.mean()
    return float(np.mean(position)), float(np.mean(profile)), float(abs(theirs_angle - ours_angle) / ours_angle)


def test_it_agrees_with_loops_and_counts_each_part_once() -> None:
    reference, candidate = make_showers(events=12, seed=1), make_showers(events=15, seed=2)
    found = metric(profiles(reference), profiles(candidate), bins=EVERYTHING, least_events=1)
    expected = by_loops(reference, candidate)
    assert [found[name] for name in ("position", "profile", "angle")] == pytest.approx(expected, rel=1e-4)
    assert found["value"] == pytest.approx(sum(expected), rel=1e-4)


def test_slices_that_hold_next_to_nothing_can_be_left_out() -> None:
    """Showers with 0.4 % of their energy at the edges are nearer to others than showers of 60 % of the energy."""
    reference, other = make_showers(events=500, seed=1), make_showers(events=500, seed=2)
    edges, weak = other.cells.copy(), 0.6 * other.cells
    edges[:, [0, -1], 8] += 0.004 * other.cells.sum(axis=(1, 2, 3))[:, None, None] / (2 * 5)  # of five layers
    candidates = [Showers(cells, other.energy_gev, other.theta_rad, measured_angle(cells)) for cells in (edges, weak)]
    mine = reference.cells.sum(axis=(0, 2, 3), dtype=float)
    assert mine[[0, -1]].sum() < 1e-3 * mine.sum()
    by_edges, by_energy = (
        [metric(profiles(reference), profiles(each), bins=EVERYTHING, **given)["profile"] for each in candidates]
        for given in ({"least_share": 0.0}, {"least_share": 1e-3})
    )
    assert by_edges[0] > by_edges[1]  # as the reference defines it
    assert by_energy[0] < 0.1 < by_energy[1] == pytest.approx(0.4, abs=0.05)


def one_cell(
    energy_gev: list[float], x: list[list[float]], layers: list[list[float]], angle: list[float], theta: float = 1.0
) -> Profiles:
    along = np.array(x), np.ones((len(x), 2)), np.array(layers)
    return Profiles(np.array(energy_gev), np.full(len(x), theta), along, np.array(angle))


BESIDE = MetricBin(100.0, 1.0, 5.0, 0.25), MetricBin(150.0, 1.0, 5.0, 0.25)


def test_the_figure_is_the_mean_of_the_bins_which_hold_their_edges() -> None:
    """Showers of the same form; the candidate's are larger by a half in the first bin, by a tenth in the second."""
    energy, flat = [95.0, 105.0, 150.0, 155.0], [[1.0, 1.0]] * 4
    reference = one_cell(energy, flat, flat, [-1.0, -1.0, 2.0, 2.0], theta=1.25)
    more = [[1.5, 1.5], [1.5, 1.5], [1.1, 1.1], [1.1, 1.1]]
    candidate = one_cell(energy, more, flat, [-1.2, -1.2, 2.2, 2.2], theta=0.75)
    compared = metric(reference, candidate, bins=BESIDE, least_events=2)
    first, second = 0.5 / 3, 0.1 / 3  # of three profiles
    assert compared["profile"] == pytest.approx((first + second) / 2)
    assert compared["angle"] == pytest.approx((0.2 + 0.1) / 2)
    assert compared["position"] == pytest.approx(0)
    assert [row["value"] for row in compared["bins"]] == pytest.approx([first + 0.2, second + 0.1])
    assert compared["value"] == pytest.approx(sum(row["value"] for row in compared["bins"]) / 2)
    assert compared["events_needed"] == 2
    outside = one_cell([94.9, 105.1, 150.0, 155.0], more, flat, [1.0] * 4)
    thin = metric(reference, outside, bins=BESIDE, least_events=2)
    assert thin["value"] is None
    assert [(row["reference"], row["candidate"], row["value"] is None) for row in thin["bins"]] == [
        (2, 0, True),
        (2, 2, False),
    ]


def test_an_error_over_zero_is_one_or_none() -> None:
    """All energy is in the first layer, the candidate's in the second: the mean place is wrong, the spread right."""
    flat = [[1.0, 1.0]]
    near, far = (one_cell([100.0], flat, [layers], [1.0]) for layers in ([1.0, 0.0], [0.0, 1.0]))
    compared = metric(near, far, bins=BESIDE[:1], least_events=1)
    assert compared["position"] == pytest.approx(1 / 6)
    assert compared["profile"] == pytest.approx(1 / 3)


def test_the_bins_are_those_of_the_reference() -> None:
    """svalleco/3Dgan: about 110, 150 and 190 GeV, and 62, 90 and 118 degrees."""
    centres = {(chosen.energy_gev, round(math.degrees(chosen.theta_rad))) for chosen in REFERENCE_BINS}
    assert centres == {(energy, degrees) for energy in (110, 150, 190) for degrees in (62, 90, 118)}
    assert {(chosen.energy_reach_gev, chosen.theta_reach_rad) for chosen in REFERENCE_BINS} == {(5.0, 0.1)}


def test_profiles_are_the_same_after_rows() -> None:
    made = profiles(make_showers(events=3, geometry=Geometry((3, 5, 4), 15.3, 20.0, 5.0, 0.02)))
    again = Profiles.of_rows(made.rows(), (3, 5, 4))
    for values, expected in zip(again.along, made.along, strict=True):
        np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(again.theta_rad, made.theta_rad)
    np.testing.assert_array_equal(again.angle_rad, made.angle_rad)


def test_showers_without_energy_are_not_counted() -> None:
    showers = make_showers(events=10)
    empty = Showers(np.zeros_like(showers.cells), showers.energy_gev, showers.theta_rad, showers.mtheta_rad)
    found = metric(profiles(showers), profiles(empty), bins=EVERYTHING, least_events=1)
    assert found["value"] is None
    assert found["bins"][0]["candidate"] == 0
