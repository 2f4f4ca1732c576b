"""Ratios of means, of widths and of shares, and their intervals: against closed forms, and against trials of ratios.

Shares are of energy and of cells, in rings about the axis and by the cells' energies.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from judging import criteria_of, drawn, measurement, table
from scipy import stats
from showers import SMALL_GEOMETRY

from calopipe.grade import load_grade
from calopipe.showers.cells import Geometry
from validation.judge.answers import judge
from validation.judge.criteria import _Bin
from validation.measure.edges import (
    RING_EDGES,
    SPECTRUM_EDGES,
    ring_count,
    ring_label,
    spectrum_labels,
)
from validation.statistics.binning import joined
from validation.statistics.resampling import (
    Array,
    difference_of_means,
    ratio_of_means,
    ratio_of_widths,
    resample,
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


def reached(events: int, share: float, spread: float, seed: int = 0) -> Array:
    """Energies of a layer that a share of the showers reaches, (events, 1), with logarithms of this `spread`."""
    rng = np.random.default_rng((seed, events))
    return np.exp(rng.normal(0, spread, (events, 1))) * (rng.random((events, 1)) < share)


@pytest.mark.parametrize(
    ("reference", "candidate", "ends"),
    [((2_000, 1), (1_500, 1), 2), ((2_000, 0.05), (1_500, 0.03), 2), ((1_000, 0.05), (5_000, 0.04), 2),
     ((2_000, 0.003), (1_500, 0.5), 1), ((2_000, 0.003), (1_500, 0.003), 0)],
)  # fmt: skip
def test_the_interval_of_a_ratio_holds_the_ratios_that_do_not_contradict_the_means(
    reference: tuple[int, float], candidate: tuple[int, float], ends: int
) -> None:
    """Ratios are tried one by one: is the candidate's mean so many times the reference's, within its error?

    The error is the measured one, or the one with the spread of events taken from the other set.
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


@pytest.mark.parametrize(("reference", "candidate"), [(2, 400), (0, 60), (60, 0), (400, 150)])
def test_an_excess_or_a_deficit_in_a_layer_that_few_showers_reach_fails(reference: int, candidate: int) -> None:
    """Of 2,000 showers a side, a given number reach the layer, with similar energies."""
    sets = [reached(2_000, 1, 0.3, seed=seed) for seed in (0, 1)]
    for side, count in zip(sets, (reference, candidate), strict=True):
        side[count:] = 0
    (ratio,) = drawn(*sets).estimate(ratio_of_means("f"))
    assert judge(measurement(ratio, tolerance=0.2), 87).verdict == "fail"  # one of 87 criteria


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
    """A ratio over zero, for a candidate that also has nothing, one that has energy, and one with a single shower."""
    candidate = np.zeros((200, 1))
    candidate[: round(200 * share)] = 3.0
    found = drawn(np.zeros((300, 1)), candidate)
    assert judge(measurement(*found.estimate(ratio_of_means("f"))), 50).verdict == answer
    widths = drawn(*(np.concatenate([1 + each, (1 + each) ** 2], axis=1) for each in (np.zeros((300, 1)), candidate)))
    (ratio,) = widths.estimate(ratio_of_widths("f"))
    assert ratio.value == 1 if share == 0 else ratio.value > 1e6


def layers_of(reference: Array, candidate: Array) -> list[tuple[str, str]]:
    """Names and answers of the criteria on mean energies of layers, (events, layers)."""
    sides = [lambda rows: {"layers": rows}] * 2
    resampled = resample((reference, candidate, 0), sides, rng=np.random.default_rng(0))
    found = _Bin("", {"layer_energy": 0.1, "layer_energy_tail": 0.3}, resampled).layers()
    assert [each.key == "layer_energy_tail" for each in found] == ["tail" in each.name for each in found]
    return [(each.name, judge(each, 80).verdict) for each in found]


def test_a_layer_is_in_the_tail_by_its_share_and_not_by_its_energy() -> None:
    """Layers hold 0.2, 99.5 and 0.3 %, in a unit in which all energies are above 1."""
    energies = np.random.default_rng(19).gamma(50, [[0.04, 19.9, 0.06]], (200, 3))
    names = [name for name, _ in layers_of(energies, energies)]
    assert names == ["Mean energy, tail, layer 0", "Mean energy, layer 1", "Mean energy, tail, layer 2"]


def test_a_layer_that_monte_carlo_never_reaches_has_a_criterion() -> None:
    """The layer between has none, as no set reaches it."""
    energies = np.random.default_rng(19).gamma(50, [[1.0, 0.0, 0.0]], (500, 3))
    found = layers_of(energies, energies + [0, 0, 1] * (np.arange(500) < 100)[:, None])
    assert found == [("Mean energy, layer 0", "pass"), ("Mean energy, tail, layer 2", "fail")]


def _ring_labels(geometry: Geometry) -> list[str]:
    return [ring_label(geometry, ring, ring) for ring in range(ring_count(geometry))]


ENERGY, CELLS = "Energy in rings about the axis", "Cells in rings about the axis"


def test_bins_are_named_by_their_edges() -> None:
    for labels, edges, named in (
        (_ring_labels(SMALL_GEOMETRY), RING_EDGES, {0: "0 to 0.25 cells", 16: "4 to 4.5 cells", 28: "beyond 12 cells"}),
        (
            spectrum_labels(), SPECTRUM_EDGES[:-1],
            {0: "1.89 keV to 2.31 keV", 25: "300 keV to 367 keV", 65: "1 GeV to 1.22 GeV", 98: "beyond 806 GeV"},
        ),
    ):  # fmt: skip
        assert len(labels) == len(edges) == max(named) + 1
        assert {place: labels[place] for place in named} == named


@pytest.mark.parametrize(
    ("name", "column", "least", "most"),
    [
        (ENERGY, "ring_energy", 0.01, 1.0),
        (f"{ENERGY}, tail", "ring_energy", 5e-4, 0.01),
        ("Cells by energy", "spectrum", 0.01, 1.0),
    ],
)
def test_the_ratios_are_those_of_mean_shares_which_no_scale_moves(
    name: str, column: str, least: float, most: float
) -> None:
    mine = table(300)
    held = getattr(mine, column).astype(np.float64)
    changed = held * np.linspace(0.5, 2, held.shape[1])
    means = [np.mean([shower / shower.sum() for shower in each], axis=0) for each in (held, changed)]
    chosen = (means[0] >= least) & (means[0] < most)
    labels = spectrum_labels() if column == "spectrum" else _ring_labels(SMALL_GEOMETRY)
    ratios = means[1][chosen] / means[0][chosen]
    gan = load_grade("gan")
    apart = replace(gan, tolerance=gan.tolerance | {"ring_tail": 1e6})  # so that no rings are joined
    for values, expected in ((changed, ratios), (3 * held, np.ones(len(ratios)))):
        theirs = replace(mine, **{column: values.astype(np.float32)})
        found = criteria_of(mine, theirs, per_event=1, grade=apart)[name].measurement
        assert [estimate.value for estimate in found.estimates] == pytest.approx(expected, rel=1e-5)
        assert list(found.labels) == [label for label, kept in zip(labels, chosen, strict=True) if kept]


def test_rings_of_a_tail_are_joined_until_monte_carlo_knows_their_sum() -> None:
    """An error of 1/sqrt(cells), and a tolerance that asks for one in ten: a hundred cells. Ring 6 ends a row."""
    cells = np.array([105, 60, 60, 30, 50, 25, 0, 45, 60, 5, 5])
    groups = joined(cells > 0, lambda group: 1 / math.sqrt(cells[group].sum()), 2 * 1.96 / 10)
    assert groups == [[0], [1, 2], [3, 4, 5], [7, 8, 9, 10]]
    assert joined(cells > 1000, lambda _: math.nan, 0.1) == []
    assert joined(cells > 50, lambda _: math.nan, 0.1) == [[0, 1, 2], [8]]


def test_the_error_of_monte_carlo_is_that_of_two_sets_as_large() -> None:
    rng = np.random.default_rng(3)
    reference = rng.poisson([0.5, 1.5, 8.0], (4_000, 3)).astype(np.float64)
    for sets in (reference, reference[:100]):  # whatever the candidate's size
        for group, mean in (([0], 0.5), ([0, 1], 2.0)):
            expected = math.sqrt(2 / (4_000 * mean))
            assert drawn(reference, sets).own_error("f", group) == pytest.approx(expected, rel=0.2)


def test_a_tail_that_few_showers_reach_is_decided_together() -> None:
    """Eight rings with a cell in one of twenty showers each: one by one two sets of Monte Carlo differ by a seventh."""
    sets = []
    for seed, more in ((1, 1.0), (2, 1.0), (3, 1.6)):
        rng = np.random.default_rng(seed)
        mine = table(300, seed=seed)[np.arange(2_000) % 300]
        cells = rng.poisson([20.0] * 4 + [0.0] * 17 + [0.05 * more] * 8, (2_000, 29)).astype(np.float32)
        sets.append(replace(mine, ring_cells=cells, ring_energy=cells))
    for candidate, verdict in ((sets[1], "pass"), (sets[2], "fail")):
        found = criteria_of(sets[0], candidate)[f"{CELLS}, tail"]
        assert (found.verdict, len(found.measurement.estimates) < 4) == (verdict, True)
    assert found.measurement.labels[-1].startswith("beyond")


def test_a_ring_is_of_the_core_however_little_the_candidate_has_there() -> None:
    mine = table(300)
    third = np.arange(29) == np.argsort(mine.ring_energy.sum(axis=0))[-3]
    thin = replace(mine, ring_energy=np.where(third, 0.02, 1) * mine.ring_energy)
    sound, found = (criteria_of(mine, each, per_event=1) for each in (mine, thin))
    assert found[ENERGY].measurement.labels == sound[ENERGY].measurement.labels
    cells = found[CELLS].measurement
    assert [each.value for each in cells.estimates] == pytest.approx([1.0] * len(cells.estimates))
