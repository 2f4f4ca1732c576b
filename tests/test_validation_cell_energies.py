"""How many cells hold how much: shares by hand, and a smeared edge in showers of Geant4."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from faults import smeared_hits
from judging import criteria_of, failed
from showers import SAMPLE, make_showers, observed

from calopipe.showers.files import open_showers
from validation.measure.edges import SPECTRUM_EDGES, spectrum_labels

NAME = "Cells by energy"


def test_a_smeared_edge_is_found_where_the_separation_power_sees_nothing() -> None:
    file = open_showers(sorted(SAMPLE.glob("*.h5"))[0])
    showers = file.read()
    smeared = smeared_hits(showers, np.random.default_rng(1))
    mine, theirs = (observed(each, file.geometry) for each in (showers, smeared))
    assert failed(criteria_of(mine[:250], mine[250:], grade="precision")) == set()
    found = criteria_of(mine[:250], theirs[250:], grade="precision")
    assert NAME in failed(found)
    assert found[NAME].worst == "109 keV to 133 keV"  # just below the edge
    assert found["S: Cell energies"].value < 0.001


def test_the_ratios_are_those_of_mean_shares_where_one_cell_in_a_hundred_is() -> None:
    mine = observed(make_showers(events=300))
    theirs = replace(mine, spectrum=(mine.spectrum * np.linspace(0.5, 2, len(SPECTRUM_EDGES) - 1)).astype(np.float32))
    means = [np.mean([cells / cells.sum() for cells in table.spectrum], axis=0) for table in (mine, theirs)]
    held = means[0] >= 0.01
    found = criteria_of(mine, theirs, per_event=1)[NAME].measurement
    assert [each.value for each in found.estimates] == pytest.approx(means[1][held] / means[0][held], rel=1e-5)
    assert list(found.labels) == [label for label, kept in zip(spectrum_labels(), held, strict=True) if kept]
    louder = replace(mine, spectrum=3 * mine.spectrum)
    found = criteria_of(mine, louder, per_event=1)[NAME].measurement
    assert [each.value for each in found.estimates] == pytest.approx([1.0] * held.sum())


def test_bins_are_named_by_their_edges() -> None:
    labels = spectrum_labels()
    assert len(labels) == len(SPECTRUM_EDGES) - 1
    assert [labels[k] for k in (0, 25, 65)] == ["1.89 keV to 2.31 keV", "300 keV to 367 keV", "1 GeV to 1.22 GeV"]
    assert labels[-1] == "beyond 806 GeV"
