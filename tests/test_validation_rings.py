"""Rings about the axis: against loops, and planted in real showers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from judging import criteria_of, failed
from showers import SAMPLE, make_showers, observed

from calopipe.showers.cells import Geometry
from calopipe.showers.files import open_showers
from calopipe.showers.hits import Hits
from validation.measure.deposits import Deposits, line
from validation.measure.edges import RING_EDGES, ring_labels, ring_places
from validation.measure.observables import Observables, observe

GEOMETRY = Geometry(shape=(9, 8, 6), cell_mm=5.0, layer_pitch_mm=4.0, x0_per_layer=1.5, file_unit_gev=0.02)


def test_a_ring_holds_its_inner_edge_and_the_last_all_that_is_beyond() -> None:
    distance = np.concatenate([RING_EDGES, np.nextafter(RING_EDGES[1:], 0), [3.1, 11.99, 12.5, 1e6]])
    expected = [int((each >= RING_EDGES).sum()) - 1 for each in distance]
    np.testing.assert_array_equal(ring_places(distance, GEOMETRY), expected)
    labels = ring_labels()
    assert len(labels) == len(RING_EDGES) == 29
    assert (labels[0], labels[16], labels[-1]) == ("0 to 0.25 cells", "4 to 4.5 cells", "beyond 12 cells")


def stepped(hits: Hits, amplitude: float) -> Hits:
    """The density of energy too high and too low by turns in rings of a quarter of a cell and more, at equal energy."""
    x, y, z = (np.arange(size) + 0.5 for size in hits.shape[1:])
    column, row, layer = np.unravel_index(hits.cell, hits.shape[1:])
    energy = hits.in_layers(hits.value)
    axis_x, axis_y = (line(energy, hits.in_layers(hits.value * along), z) for along in (x[column], y[row]))
    distance = np.hypot(x[column] - axis_x[hits.row, layer], y[row] - axis_y[hits.row, layer])
    value = hits.value * np.where(ring_places(distance, GEOMETRY) % 2 == 0, 1 + amplitude, 1 - amplitude).astype(
        np.float32
    )
    made = Hits(hits.row, hits.cell, value, hits.shape)
    return replace(made, value=(value * (hits.sums() / made.sums())[hits.row]).astype(np.float32))


@cache
def geant4(amplitude: float) -> Observables:
    """The Geant4 sample in the repository, 1,000 showers of it; with rings in the second half of these."""
    tables = []
    for file, step in zip(map(open_showers, sorted(SAMPLE.glob("*.h5"))), (0.0, amplitude), strict=False):
        showers = file.read()
        hits = Hits.of(showers.cells)
        hits = stepped(hits, step) if step else hits
        tables.append(observe(hits, showers.energy_gev, showers.theta_rad, file.geometry))
    return Observables.joined(tables)


def test_rings_in_real_showers_are_rejected_by_the_criterion_of_their_name() -> None:
    """And by no other but the hottest cell's, which rings of a quarter of a cell about the axis move."""
    mine, theirs = geant4(0.15)[:500], geant4(0.15)[500:]
    found = criteria_of(mine, theirs, grade="precision")
    assert "Energy in rings about the axis" in failed(found)
    assert failed(found) <= {name for name in found if name.startswith(("Energy in rings", "Hottest cell kept"))}
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


def test_hits_are_counted_and_summed_by_their_place() -> None:
    cells = np.zeros((2, *GEOMETRY.shape), np.float32)
    cells[0, 0, 0, :2], cells[1, 0, 0, 0] = 1, 4
    hits, ring = Deposits.of(Hits.of(cells), GEOMETRY), np.array([2, 2, 28])
    assert hits.counts(hits.energy > 0, ring, 29)[:, [2, 28]].tolist() == [[2, 0], [0, 1]]
    assert hits.counts(hits.energy > 0.05, ring[2:], 29).sum(axis=1).tolist() == [0, 1]
    np.testing.assert_allclose(hits.sums(ring, 29, hits.energy).sum(axis=1), [0.04, 0.08])
