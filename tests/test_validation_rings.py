"""Rings about the axis: against loops, and planted in real showers."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from showers import SAMPLE, SMALL_GEOMETRY, make_showers

from calopipe.grade import load_grade
from calopipe.showers.cells import FloatArray, Geometry
from calopipe.showers.files import open_showers
from calopipe.showers.hits import Hits
from validation.judge.answers import Criterion, judge_all
from validation.judge.criteria import measure_criteria
from validation.judge.similarity import _observables
from validation.measure.axis import RING_EDGES, line
from validation.measure.deposits import Deposits
from validation.measure.edges import ring_labels, ring_places
from validation.measure.observables import CELL_GEV, FEATURES, Array, Observables, features, observe, observe_hits
from validation.measure.table import Tables
from validation.statistics.binning import Binning
from validation.statistics.classifier import auc

GEOMETRY = Geometry(shape=(9, 8, 6), cell_mm=5.0, layer_pitch_mm=4.0, x0_per_layer=1.5, file_unit_gev=0.02)


def random_cells(events: int) -> FloatArray:
    rng = np.random.default_rng(3)
    filled = rng.random((events, *GEOMETRY.shape)) < 0.3
    return (filled * rng.exponential(0.05, (events, *GEOMETRY.shape))).astype(np.float32)


def observed(cells: FloatArray, geometry: Geometry = GEOMETRY) -> Observables:
    labels = np.full(len(cells), 100.0), np.full(len(cells), 1.5)
    return observe_hits(Hits.of(cells), *labels, geometry)


def axis_of(shower: FloatArray) -> tuple[Array, Array]:
    """Where NumPy's fit has the axis of a shower cross each layer, in cells."""
    place = [index.ravel() + 0.5 for index in np.indices(shower.shape)]
    lines = [np.polyfit(place[2], along, 1, w=np.sqrt(shower.ravel().astype(float))) for along in place[:2]]
    x, y = (np.polyval(line, np.arange(shower.shape[2]) + 0.5) for line in lines)
    return x, y


def test_a_ring_holds_its_inner_edge_and_the_last_all_that_is_beyond() -> None:
    distance = np.concatenate([RING_EDGES, np.nextafter(RING_EDGES[1:], 0), [3.1, 11.99, 12.5, 1e6]])
    expected = [int((each >= RING_EDGES).sum()) - 1 for each in distance]
    np.testing.assert_array_equal(ring_places(distance, GEOMETRY), expected)
    labels = ring_labels()
    assert len(labels) == len(RING_EDGES) == 29
    assert (labels[0], labels[16], labels[-1]) == ("0 to 0.25 cells", "4 to 4.5 cells", "beyond 12 cells")


def test_rings_agree_with_loops_and_hold_every_cell() -> None:
    cells = random_cells(4)
    cells[0, 4, 4, 2] = 0.9 * CELL_GEV / 0.02  # too little to count
    table = observed(cells)
    for event, shower in enumerate(cells):
        axis_x, axis_y = axis_of(shower)
        energy, count = np.zeros(29), np.zeros(29)
        for (x, y, layer), value in np.ndenumerate(shower):
            distance = math.hypot(x + 0.5 - axis_x[layer], y + 0.5 - axis_y[layer])
            ring = max(k for k, edge in enumerate(RING_EDGES) if distance >= edge)
            energy[ring] += 0.02 * value
            count[ring] += 0.02 * value > CELL_GEV
        np.testing.assert_allclose(table.ring_energy[event], energy, rtol=1e-5, atol=1e-9)
        np.testing.assert_array_equal(table.ring_cells[event], count)
    np.testing.assert_allclose(table.ring_energy.sum(axis=1), table.column("visible_gev"), rtol=1e-5)
    filled = (1 - table.column("sparsity")) * GEOMETRY.cells
    np.testing.assert_allclose(table.ring_cells.sum(axis=1), filled)


def stepped(hits: Hits, amplitude: float) -> Hits:
    """The density of energy too high and too low by turns in rings of a quarter of a cell and more, at equal energy."""
    x, y, z = (np.arange(size) + 0.5 for size in hits.shape[1:])
    column, row, layer = np.unravel_index(hits.cell, hits.shape[1:])
    axis_x, axis_y = (
        line(seen.sum(axis=1), np.einsum("nbl,b->nl", seen, along), z)
        for seen, along in zip(hits.projections(), (x, y), strict=True)
    )
    distance = np.hypot(x[column] - axis_x[hits.row, layer], y[row] - axis_y[hits.row, layer])
    value = hits.value * np.where(ring_places(distance, GEOMETRY) % 2 == 0, 1 + amplitude, 1 - amplitude).astype(
        np.float32
    )
    made = Hits(hits.row, hits.cell, value, hits.shape)
    return replace(made, value=(value * (hits.sums() / made.sums())[hits.row]).astype(np.float32))


@cache
def geant4(amplitude: float = 0.0) -> Observables:
    """The Geant4 sample in the repository, 1,000 showers of it; with rings in the second half of these."""
    tables = []
    for file, step in zip(map(open_showers, sorted(SAMPLE.glob("*.h5"))), (0.0, amplitude), strict=False):
        showers = file.read()
        hits = Hits.of(showers.cells)
        hits = stepped(hits, step) if step else hits
        tables.append(observe_hits(hits, showers.energy_gev, showers.theta_rad, file.geometry))
    return Observables.joined(tables)


def criteria(reference: Observables, candidate: Observables, *, per_event: int = 0) -> dict[str, Criterion]:
    events = min(len(reference), len(candidate))
    found = measure_criteria(
        Tables(reference, candidate, per_event),
        binning=Binning.of(reference, events),
        grade=load_grade("precision"),
        rng=np.random.default_rng(0),
    )
    return {each.measurement.name: each for each in judge_all(found)}


def test_rings_in_real_showers_are_rejected_by_the_criterion_of_their_name() -> None:
    """And by no other but the hottest cell's, which rings of a quarter of a cell about the axis move."""
    mine, theirs = geant4(0.15)[:500], geant4(0.15)[500:]
    found = criteria(mine, theirs)
    failed = {name for name, each in found.items() if each.verdict == "fail"}
    assert "Energy in rings about the axis" in failed
    assert failed <= {name for name in found if name.startswith(("Energy in rings", "Hottest cell kept"))}
    assert "cells" in found["Energy in rings about the axis"].worst


def test_a_classifier_tells_rings_which_the_other_observables_do_not() -> None:
    mine, theirs, alike = geant4(0.15)[:500], geant4(0.15)[500:], geant4()[500:]
    rng = np.random.default_rng(0)
    others = [k for k, scalar in enumerate(FEATURES) if scalar.name not in {"hottest_kept", "overlap"}]
    coarser = auc(features(mine)[:, others], features(theirs)[:, others], per_event=0, rng=rng)
    found = auc(_observables(mine), _observables(theirs), per_event=0, rng=rng)
    none = auc(_observables(mine), _observables(alike), per_event=0, rng=rng)
    assert coarser.high is not None
    assert found.low is not None
    assert none.low is not None
    assert none.high is not None
    assert found.low > 0.7
    assert coarser.high < 0.65
    assert none.low < 0.5 < none.high


def test_the_ratios_are_those_of_mean_shares_and_tails_have_a_criterion_of_their_own() -> None:
    showers = make_showers(events=300)
    mine = observe(showers.cells, showers.energy_gev, showers.theta_rad, SMALL_GEOMETRY)
    factor = np.linspace(0.8, 1.2, 29)
    theirs = replace(mine, ring_energy=(mine.ring_energy * factor).astype(np.float32))
    found = criteria(mine, theirs, per_event=1)
    shares = [each.ring_energy / each.ring_energy.sum(axis=1, keepdims=True) for each in (mine, theirs)]
    means = [each.mean(axis=0, dtype=np.float64) for each in shares]
    for name, chosen in (("", means[0] >= 0.01), (", tail", (means[0] < 0.01) & (means[0] >= 5e-4))):
        measurement = found[f"Energy in rings about the axis{name}"].measurement
        expected = means[1][chosen] / means[0][chosen]
        np.testing.assert_allclose([each.value for each in measurement.estimates], expected, rtol=1e-5)
        assert list(measurement.labels) == [label for label, kept in zip(ring_labels(), chosen, strict=True) if kept]
    # a ring of the core is one, however little the candidate has there
    thin = replace(mine, ring_energy=np.where(np.arange(29) == np.argsort(means[0])[-3], 0.02, 1) * mine.ring_energy)
    of_core = criteria(mine, thin, per_event=1)["Energy in rings about the axis"].measurement
    assert of_core.labels == found["Energy in rings about the axis"].measurement.labels
    cells = found["Cells in rings about the axis"].measurement
    assert [each.value for each in cells.estimates] == pytest.approx([1.0] * len(cells.estimates))


def test_the_energy_scale_moves_no_ring_and_few_showers_have_no_interval() -> None:
    showers = make_showers(events=200, seed=1)
    mine = observe(showers.cells, showers.energy_gev, showers.theta_rad, SMALL_GEOMETRY)
    found = criteria(mine, replace(mine, ring_energy=mine.ring_energy * np.float32(1.5)), per_event=1)
    assert found["Energy in rings about the axis"].value == pytest.approx(1.0)
    few, enough = (criteria(mine[:events], mine[events:]) for events in (99, 100))
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
