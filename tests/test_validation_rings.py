"""Rings about the axis: against loops, and planted in real showers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from faults import energy_in_rings
from judging import criteria_of, failed
from showers import SAMPLE, make_showers, observed

from calopipe.showers.cells import Geometry
from calopipe.showers.files import open_showers
from validation.measure.edges import RING_EDGES, ring_labels, ring_places

GEOMETRY = Geometry(shape=(9, 8, 6), cell_mm=5.0, layer_pitch_mm=4.0, x0_per_layer=1.5, file_unit_gev=0.02)


def test_a_ring_holds_its_inner_edge_and_the_last_all_that_is_beyond() -> None:
    distance = np.concatenate([RING_EDGES, np.nextafter(RING_EDGES[1:], 0), [3.1, 11.99, 12.5, 1e6]])
    expected = [int((each >= RING_EDGES).sum()) - 1 for each in distance]
    np.testing.assert_array_equal(ring_places(distance, GEOMETRY), expected)
    labels = ring_labels()
    assert len(labels) == len(RING_EDGES) == 29
    assert (labels[0], labels[16], labels[-1]) == ("0 to 0.25 cells", "4 to 4.5 cells", "beyond 12 cells")


def test_rings_in_real_showers_are_rejected_by_the_criterion_of_their_name() -> None:
    """And by no others but the cells' energies and the hottest cell's, which rings of a quarter of a cell move."""
    sound, other = (open_showers(path) for path in sorted(SAMPLE.glob("*.h5"))[:2])
    planted = energy_in_rings(other.read(), np.random.default_rng(1))
    mine, theirs = observed(sound.read(), sound.geometry), observed(planted, other.geometry)
    found = criteria_of(mine, theirs, grade="precision")
    assert "Energy in rings about the axis" in failed(found)
    moved = ("Energy in rings", "Hottest cell kept", "Cells by energy")
    assert failed(found) <= {name for name in found if name.startswith(moved)}
    assert "cells" in found["Energy in rings about the axis"].worst


def test_the_ratios_are_those_of_mean_shares_and_tails_have_a_criterion_of_their_own() -> None:
    mine = observed(make_showers(events=300))
    factor = np.linspace(0.8, 1.2, 29)
    theirs = replace(mine, ring_energy=(mine.ring_energy * factor).astype(np.float32))
    found = criteria_of(mine, theirs, per_event=1, grade="precision")
    shares = [each.ring_energy / each.ring_energy.sum(axis=1, keepdims=True) for each in (mine, theirs)]
    means = [each.mean(axis=0, dtype=np.float64) for each in shares]
    for name, chosen in (("", means[0] >= 0.01), (", tail", (means[0] < 0.01) & (means[0] >= 5e-4))):
        measurement = found[f"Energy in rings about the axis{name}"].measurement
        expected = means[1][chosen] / means[0][chosen]
        np.testing.assert_allclose([each.value for each in measurement.estimates], expected, rtol=1e-5)
        assert list(measurement.labels) == [label for label, kept in zip(ring_labels(), chosen, strict=True) if kept]
    # a ring of the core is one, however little the candidate has there
    thin = replace(mine, ring_energy=np.where(np.arange(29) == np.argsort(means[0])[-3], 0.02, 1) * mine.ring_energy)
    of_core = criteria_of(mine, thin, per_event=1, grade="precision")["Energy in rings about the axis"].measurement
    assert of_core.labels == found["Energy in rings about the axis"].measurement.labels
    cells = found["Cells in rings about the axis"].measurement
    assert [each.value for each in cells.estimates] == pytest.approx([1.0] * len(cells.estimates))


def test_the_energy_scale_moves_no_ring_and_few_showers_have_no_interval() -> None:
    mine = observed(make_showers(events=200, seed=1))
    louder = replace(mine, ring_energy=mine.ring_energy * np.float32(1.5))
    found = criteria_of(mine, louder, per_event=1, grade="precision")
    assert found["Energy in rings about the axis"].value == pytest.approx(1.0)
    few, enough = (criteria_of(mine[:events], mine[events:], grade="precision") for events in (99, 100))
    assert few["Energy in rings about the axis"].interval is None
    assert few["Energy in rings about the axis"].verdict == "inconclusive"
    assert enough["Energy in rings about the axis"].interval is not None
