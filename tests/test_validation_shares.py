"""Shares of energy and of cells, in rings about the axis and by the cells' energies: bins, and criteria by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from judging import criteria_of, table
from showers import SMALL_GEOMETRY

from validation.measure.edges import RING_EDGES, SPECTRUM_EDGES, ring_labels, ring_places, spectrum_labels

ENERGY, CELLS = "Energy in rings about the axis", "Cells in rings about the axis"


def test_a_ring_holds_its_inner_edge_and_the_last_all_that_is_beyond() -> None:
    distance = np.concatenate([RING_EDGES, np.nextafter(RING_EDGES[1:], 0), [3.1, 11.99, 12.5, 1e6]])
    expected = [int((each >= RING_EDGES).sum()) - 1 for each in distance]
    np.testing.assert_array_equal(ring_places(distance, SMALL_GEOMETRY), expected)


def test_bins_are_named_by_their_edges() -> None:
    for labels, edges, named in (
        (ring_labels(SMALL_GEOMETRY), RING_EDGES, {0: "0 to 0.25 cells", 16: "4 to 4.5 cells", 28: "beyond 12 cells"}),
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
    labels = spectrum_labels() if column == "spectrum" else ring_labels(SMALL_GEOMETRY)
    ratios = means[1][chosen] / means[0][chosen]
    for values, expected in ((changed, ratios), (3 * held, np.ones(len(ratios)))):
        theirs = replace(mine, **{column: values.astype(np.float32)})
        found = criteria_of(mine, theirs, per_event=1)[name].measurement
        assert [estimate.value for estimate in found.estimates] == pytest.approx(expected, rel=1e-5)
        assert list(found.labels) == [label for label, kept in zip(labels, chosen, strict=True) if kept]


def test_a_ring_is_of_the_core_however_little_the_candidate_has_there() -> None:
    mine = table(300)
    third = np.arange(29) == np.argsort(mine.ring_energy.sum(axis=0))[-3]
    thin = replace(mine, ring_energy=np.where(third, 0.02, 1) * mine.ring_energy)
    sound, found = (criteria_of(mine, each, per_event=1) for each in (mine, thin))
    assert found[ENERGY].measurement.labels == sound[ENERGY].measurement.labels
    cells = found[CELLS].measurement
    assert [each.value for each in cells.estimates] == pytest.approx([1.0] * len(cells.estimates))


def test_few_showers_have_no_interval() -> None:
    mine = table(200, seed=1)
    few, enough = (criteria_of(mine[:events], mine[events:], grade="precision")[ENERGY] for events in (99, 100))
    assert (few.interval, few.verdict) == (None, "inconclusive")
    assert enough.interval is not None
