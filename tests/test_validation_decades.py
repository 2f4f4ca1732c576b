"""Beams whose energies span decades: bins, fits at an energy, and the resolution of toys with known a, b and c."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from judging import criteria_of
from showers import RING_GEOMETRY, SMALL_GEOMETRY, make_ring_showers, make_showers, observed

from calopipe.grade import load_grade
from calopipe.showers.cells import Array
from validation.measure.edges import wide
from validation.measure.observables import SCALARS, Observables
from validation.measure.sets import Samples
from validation.statistics.binning import (
    Bin,
    Binning,
    angle_bins,
    bins,
    energy_bins,
    events_per_energy_bin,
    histogram_bins,
    histograms,
)
from validation.statistics.expected import AtEnergy, pulls, responses
from validation.statistics.resolution import Resolutions, curve, energy_edges


def log_uniform(events: int, low: float = 1.0, high: float = 100.0, seed: int = 0) -> Array:
    return np.exp(np.random.default_rng(seed).uniform(math.log(low), math.log(high), events))


def toys(energy: Array, *, a: float, b: float, c: float, scale: float = 1.0) -> Observables:
    """Showers whose response falls with E, and spreads by the law of calorimeters."""
    base = observed(make_ring_showers(events=1), RING_GEOMETRY)
    table = base[np.zeros(len(energy), dtype=int)]
    sigma = np.sqrt(a**2 / energy + (b / energy) ** 2 + c**2)
    mean = scale * (1.0 - 0.02 * np.log(energy))
    response = mean * (1 + sigma * np.random.default_rng(1).normal(size=len(energy)))
    scalars = table.scalars.copy()
    scalars[:, list(SCALARS).index("response")] = response
    return replace(table, scalars=scalars, energy_gev=energy)


def resolutions(table: Observables) -> Resolutions:
    low, high = float(table.energy_gev.min()), float(table.energy_gev.max())
    return Resolutions.of(table, energy_edges(low, high, len(table)))


def test_a_beam_of_100_to_200_gev_keeps_its_bins_and_one_of_decades_has_bins_equal_in_log_e() -> None:
    linear = np.random.default_rng(0).uniform(100, 200, 30_000)
    assert not wide(linear)
    assert [wide(np.array([100.0, highest])) for highest in (299, 301)] == [False, True]
    assert energy_bins(linear, 30_000, 7_000) == energy_bins(linear, 70_000, 7_000) == bins(linear, 4, "GeV")
    energy = log_uniform(30_000)
    found = energy_bins(energy, 30_000, 7_000)
    inner = [each.high for each in found[:-1]]
    np.testing.assert_allclose(inner, [10**0.5, 10, 10**1.5], rtol=1e-2)
    assert sum(int(each.holds(energy).sum()) for each in found) == 30_000
    assert [len(energy_bins(table, events, 7_000)) for table in (linear, energy) for events in (13_999, 14_000)] == [
        1,
        2,
    ] * 2
    beam = np.repeat([1.0, 10.001, 100.0], [6_000, 5_000, 4_000])
    assert [held.label for held in energy_bins(beam, 15_000, 7_000)] == ["1 GeV", "10 to 100 GeV"]  # 10 GeV is a cut
    assert len(energy_bins(log_uniform(100_000, 0.1, 1e4), 100_000, 7_000)) == 10


def test_a_grade_of_half_the_tolerance_needs_four_times_the_showers_in_a_bin_of_energy() -> None:
    """So more showers do not make it less likely that Monte Carlo is accepted."""
    gan = load_grade("gan")
    assert [events_per_energy_bin(load_grade(name)) for name in ("gan", "precision")] == [7_000, 28_000]
    for correlation, events in ((0.01, 700_000), (0.2, 7_000), (math.inf, 7_000)):
        assert events_per_energy_bin(replace(gan, tolerance={"correlation": correlation})) == events


def test_bins_of_angle_are_so_many_as_the_scatter_of_measured_angles_allows() -> None:
    """1.96 errors of a difference of means are half the tolerance in a bin; a slope of the estimator does not count."""
    true = np.linspace(60, 120, 20_000)
    a_bin = 2 * (1.96 * 7 / 0.5) ** 2  # showers a side, at the tolerance of 1 degree
    measured = 0.8 * true + 7 * np.tile([1.0, -1.0], 10_000)
    assert [angle_bins(measured, true, round(2 * a_bin * part), 1.0) for part in (0.99, 1.01)] == [1, 2]
    assert angle_bins(np.full(10, np.nan), true[:10], 7_000, 1.0) == 1
    assert angle_bins(measured, true, 7_000, math.inf) == 6
    assert angle_bins(measured, np.full(20_000, 90.0), 7_000, 1.0) == 1  # a tilt that no true angle explains counts


def test_a_value_at_an_edge_is_in_the_bin_above() -> None:
    assert Bin("", 1.0, 2.0).holds(np.array([1.0, 2.0])).tolist() == [True, False]


def test_a_histogram_has_so_many_bins_of_equally_many_showers_of_both_sets() -> None:
    mine, theirs = np.random.default_rng(4).normal(size=(2, 100, len(SCALARS))) * [[[1]], [[2]]]
    sets = [SimpleNamespace(scalars=values) for values in (mine, theirs)]
    found = histograms(Samples(*sets, 0), 5)["hits"]
    assert sum(found(each).sum(axis=0) for each in sets).tolist() == [40] * 5


def test_a_bin_of_fifty_showers_has_a_width_at_the_energy_that_the_mean_of_one_over_it_has() -> None:
    table = toys(np.repeat([0.1, 1.0, 3.0], [49, 25, 25]), a=0.1, b=0.0, c=0.0, scale=2.0)
    found = Resolutions.of(table, np.array([0.05, 0.5, 4.0]))
    assert found.energy_gev == pytest.approx([1.5])
    fifty = table.column("response")[49:]
    assert found.width == pytest.approx([np.std(fifty, ddof=1) / np.mean(fifty)])
    assert len(energy_edges(1.0, 100.0, 1_000)) == 11  # of bins that hold twice the least, a hundred each
    ranges = {(1.0, 100.0): 16, (1.0, 50.0): 14, (1.0, 1e6): 40, (50.0, 50.0): 1}  # eight a decade, 40 at most
    assert {ends: len(energy_edges(*ends, 100_000)) - 1 for ends in ranges} == ranges
    assert len(energy_edges(1.0, 100.0, 99)) == 2


def test_the_errors_of_widths_are_those_of_the_average_kurtosis_over_all_showers() -> None:
    """100 showers of two values (kurtosis 1, counts as 1.1), 300 of three values (3); 100 of one value are left out."""
    energy = np.repeat([1.0, 3.0, 9.0], [100, 300, 100])
    table = toys(energy, a=0.1, b=0.0, c=0.0)
    table.column("response")[:] = 5 + np.concatenate(
        [np.tile([-1, 1], 50), np.tile([-1, 1, 0, 0, 0, 0], 50), np.zeros(100)]
    )
    kurtosis = (100 * 1.1 + 300 * 3) / 400
    measured = Resolutions.of(table, np.array([0.5, 2.0, 5.0, 10.0]))
    assert measured.width_error == pytest.approx(np.sqrt((kurtosis - 1) / (4 * np.array([100, 300]))))


def test_a_bin_that_is_full_does_not_count_for_the_thin_one_after_it() -> None:
    """The second of four bins of half a decade holds 2 % of the showers, and is joined to the third. The last bin is
    joined, too, if it holds less than 0.8 of 7,000.
    """
    for held, joined in (((600, 20, 180, 200), ["5 to 20 GeV", "100 GeV"]), ((600, 20, 190, 190), ["5 to 100 GeV"])):
        energy = np.repeat([1.0, 5.0, 20.0, 100.0], held)
        assert [each.label for each in energy_bins(energy, 28_000, 7_000)] == ["1 GeV", *joined]


def test_rings_have_no_bins_of_angle() -> None:
    table, grade = observed(make_ring_showers(events=50), RING_GEOMETRY), load_grade("gan")
    assert Binning.of(table, 50, RING_GEOMETRY, grade).angle == ()
    binning = Binning.of(table, 7_000, SMALL_GEOMETRY, grade)
    assert (len(binning.angle), binning.azimuth, binning.particle) == (1, (), ())
    tilted = observed(make_showers(events=50))
    for events, count in ((999, 1), (1_999, 1), (2_000, 2), (7_000, 6)):
        assert len(Binning.of(tilted, events, SMALL_GEOMETRY, grade).angle) == count


def test_mean_and_width_at_an_energy_are_those_of_the_truth() -> None:
    energy = log_uniform(20_000)
    rng = np.random.default_rng(3)
    values = np.column_stack(
        [50 * energy**0.8 + 5 * energy**0.4 * rng.normal(size=20_000), rng.exponential(2 / np.sqrt(energy))]
    )
    fit, at = AtEnergy.fitted(energy, values), np.array([1.5, 10.0, 70.0])
    np.testing.assert_allclose(fit.mean(at)[:, 0], 50 * at**0.8, rtol=0.03)
    np.testing.assert_allclose(fit.width(at)[:, 0], 5 * at**0.4, rtol=0.05)
    np.testing.assert_allclose(fit.width(at)[:, 1], 2 / np.sqrt(at), rtol=0.12)
    few = AtEnergy.fitted(energy[:50], values[:50])
    np.testing.assert_allclose(few.mean(at), np.tile(values[:50].mean(axis=0), (3, 1)))
    spans = [np.ptp(AtEnergy.fitted(energy[:events], values[:events]).mean(at)[:, 0]) for events in (99, 100)]
    assert spans[0] == 0 < spans[1]


@pytest.mark.parametrize("energies", [[50.0], [1.0, 100.0]])
def test_a_beam_of_one_or_two_energies_has_the_mean_of_each_and_a_straight_line_between(energies: list[float]) -> None:
    energy = np.repeat(energies, 100)
    values = energy + np.tile([1.0, -1.0], len(energy) // 2)
    fit = AtEnergy.fitted(energy, values[:, None])
    np.testing.assert_allclose(fit.mean(np.array(energies))[:, 0], energies)
    np.testing.assert_allclose(fit.width(np.array(energies)), 1, rtol=1e-6)
    assert fit.mean(np.array([10.0]))[0, 0] == pytest.approx(np.mean(energies))


def test_deviations_that_are_all_equal_have_their_own_width() -> None:
    energy, at = np.geomspace(1, 100, 2_000), np.array([1.5, 10.0, 70.0])
    spread = np.exp((np.log10(energy) - 1) ** 2)  # least in the middle
    width = AtEnergy.fitted(energy, (3 + spread * np.tile([1.0, -1.0], 1_000))[:, None]).width(at)
    np.testing.assert_allclose(width[:, 0], np.exp((np.log10(at) - 1) ** 2), rtol=0.02)


def test_pulls_of_a_narrow_beam_have_no_mean_and_a_width_of_one() -> None:
    table = toys(np.random.default_rng(0).uniform(100, 200, 300), a=0.1, b=0.0, c=0.0)
    assert not wide(table.energy_gev)
    table.scalars[:] = np.random.default_rng(1).normal(5, 2, table.scalars.shape)
    table.scalars[:, -2:] = [90.0, 0.0]
    standard = pulls(table, SCALARS)(table)
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(standard.std(axis=0), [*np.ones(len(SCALARS) - 2), 0, 0], atol=1e-9)


def test_pulls_have_no_energy_left_and_what_does_not_vary_has_none() -> None:
    table = observed(make_ring_showers(events=2_000, seed=2), RING_GEOMETRY)
    table = table[~table.empty]
    table.scalars[:, -2:] = [0.0, 90.0]
    standard = pulls(table, SCALARS)
    found = standard(table)
    assert np.abs(found).max() <= 5
    for far in (-1e6, 1e6):
        assert (standard(replace(table, scalars=table.scalars + far)) == 5 * np.sign(far)).all()
    assert np.abs(found[:, -2:]).max() < 1e-3
    for k in (0, 2, 10):  # visible energy, depth, hits
        assert abs(np.corrcoef(found[:, k], np.log(table.energy_gev))[0, 1]) < 0.05
        assert found[:, k].std() == pytest.approx(1, abs=0.1)


def test_a_response_over_decades_spreads_by_the_typical_relative_width() -> None:
    """The geometric mean of the reference's width, a over the root of 10 GeV, about the mean of the set itself."""
    energy = log_uniform(20_000)
    reference, candidate = (toys(energy, a=a, b=0.0, c=0.0, scale=scale) for a, scale in ((0.1, 2.0), (0.2, 3.0)))
    for own, width in ((reference, 0.1), (candidate, 0.2)):
        values = responses(own, reference)(own)
        assert values.mean() == pytest.approx(1, abs=2e-3)
        assert values.std() == pytest.approx(width / math.sqrt(10), rel=0.04)


@pytest.mark.parametrize(("a", "b", "c"), [(0.10, 0.30, 0.02), (0.10, 0.0, 0.01), (0.5, 0.2, 0.0)])
def test_the_fit_finds_the_terms_that_toys_were_made_with(a: float, b: float, c: float) -> None:
    table = toys(log_uniform(40_000), a=a, b=b, c=c)
    fit = resolutions(table).fit(100.0)
    for name, truth in (("a", a), ("b", b), ("c", c)):
        term = fit["terms"][name]
        assert abs(term["value"] - truth) < 3.5 * term["error"], name
        assert 0 < term["error"] < 0.05
    assert fit["chi2_per_dof"] < 2.5
    at = np.array([2.0, 50.0])
    np.testing.assert_allclose(curve(fit, at), np.sqrt(a**2 / at + (b / at) ** 2 + c**2), rtol=0.03)


def test_widths_that_scatter_by_more_than_their_errors_make_those_of_the_terms_larger() -> None:
    """They are as large as if the errors had been as large as the scatter from the beginning."""
    energy = np.geomspace(1, 100, 12)
    width = np.sqrt(0.04 / energy + 0.02**2) * np.exp(0.05 * np.where(np.arange(12) % 2, 1, -1))
    found = [Resolutions(energy, width, np.full(12, error)).fit(9.0) for error in (0.01, 0.04)]
    assert all(each["chi2_per_dof"] > 1 for each in found)
    for name in ("a", "c"):
        assert found[0]["terms"][name]["error"] == pytest.approx(found[1]["terms"][name]["error"], rel=0.02)
    assert found[1]["chi2_per_dof"] == pytest.approx(12 / 10 * (0.05 / 0.04) ** 2, rel=0.03)


def test_errors_of_widths_on_the_law_are_carried_to_the_terms() -> None:
    """By derivatives of the logarithm of the width. The error of a term of zero is the root of its square's error."""
    energy, error = np.geomspace(1, 100, 12), 0.03
    for a, c in ((0.2, 0.05), (0.2, 0.0)):
        squares = np.stack([0.5 / energy, np.full(12, 0.5)]) * (1 / (a**2 / energy + c**2))
        covariance = np.linalg.inv(squares @ squares.T) * error**2
        widths = np.sqrt(a**2 / energy + c**2)
        terms = Resolutions(energy, widths, np.full(12, error)).fit(9.0)["terms"]
        assert (terms["a"]["value"], terms["c"]["value"]) == pytest.approx((a, c), abs=1e-3)
        assert terms["a"]["error"] == pytest.approx(math.sqrt(covariance[0, 0]) / (2 * a), rel=1e-2)
        of_c = math.sqrt(covariance[1, 1])
        assert terms["c"]["error"] == pytest.approx(of_c / (2 * c) if c else math.sqrt(of_c), rel=1e-2)


def test_over_decades_layers_are_compared_by_their_energies_over_the_root_of_e() -> None:
    energy = np.geomspace(1, 100, 400)
    mine = replace(observed(make_showers(events=400)), energy_gev=energy)
    layers = np.outer(energy, [0.2, 0.5, 0.2, 0.1, 0.0]) * np.random.default_rng(0).uniform(0.9, 1.1, (400, 5))
    mine = replace(mine, layers=layers)
    theirs = replace(mine, layers=layers * np.where(energy > 10, 1.2, 1.0)[:, None])
    found = criteria_of(mine, theirs, per_event=1)
    for layer in range(3):
        sums = [(each.layers[:, layer] / np.sqrt(energy)).sum() for each in (mine, theirs)]
        (estimate,) = found[f"Mean energy, layer {layer}"].measurement.estimates
        assert estimate.value == pytest.approx(sums[1] / sums[0], rel=1e-3)
    (covered,) = found["Coverage, relative to Monte Carlo's own"].measurement.estimates
    assert (covered.events, covered.groups) == (400, 8)  # the events in the bin, in blocks of fifty


def test_the_null_of_a_histogram_spreads_by_a_fifth_of_the_tolerance() -> None:
    """By the formula, for the returned number of bins and for one more."""
    for mine, theirs, tolerance in ((1_900, 1_900, 0.01), (4_000, 1_000, 0.01)):
        count = histogram_bins((mine, theirs), tolerance)
        spread = [math.sqrt(2 * bins) * (1 / mine + 1 / theirs) / 4 for bins in (count - 1, count)]
        assert spread[0] <= tolerance / 5 < spread[1]


def test_energies_too_near_each_other_have_no_fit_and_one_sentence() -> None:
    table = toys(np.random.default_rng(0).uniform(100, 200, 4_000), a=0.2, b=0, c=0.01)
    fit = resolutions(table).fit(2.0)
    assert fit == {"reason": "The energies span a factor of 2; a fit needs 3.", "terms": {}, "chi2_per_dof": None}
    spread = resolutions(toys(log_uniform(4_000), a=0.2, b=0, c=0.01))
    assert spread.fit(9.9)["terms"].keys() == {"a", "c"}  # too near for b/E
    assert spread.fit(10.0)["terms"].keys() == {"a", "b", "c"}
    assert (spread.fit(3.0)["reason"], spread.fit(2.99)["reason"] != "") == ("", True)
    three = Resolutions(*(spread_of[:3] for spread_of in (spread.energy_gev, spread.width, spread.width_error)))
    assert three.fit(100.0)["reason"] == "Bins with 50 showers whose response varies: 3; a fit needs more than 3."
    assert three.fit(9.0)["terms"].keys() == {"a", "c"}
    same = toys(log_uniform(4_000), a=0.2, b=0, c=0.01)
    same.scalars[:, list(SCALARS).index("response")] = 0.8
    assert resolutions(same).fit(100.0)["reason"].startswith("Bins with 50 showers whose response varies: 0;")
    single = resolutions(toys(np.full(100, 50.0), a=0.2, b=0, c=0.01))
    assert single.width[0] == pytest.approx(math.sqrt(0.04 / 50 + 1e-4), rel=0.2)
