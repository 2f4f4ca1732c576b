"""One pass over a set: the same table piece by piece as at once, and what is left out or counted on the way."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from showers import SMALL_GEOMETRY, make_file, make_showers, observed, write_file

from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.showers.files import open_showers
from calopipe.showers.hits import Hits, event_digests
from calopipe.showers.selection import Selection
from validation.measure import sets
from validation.measure.observables import Observables
from validation.measure.sets import COUNT, ShowerSet, measure


def assert_same(first: Observables, second: Observables) -> None:
    for field in fields(Observables):
        np.testing.assert_allclose(getattr(first, field.name), getattr(second, field.name), rtol=1e-6, atol=1e-9)


def test_pieces_are_measured_as_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of several pieces, one with a corrupt shower and empty ones, in a split: against all in memory at once."""
    first = make_file(tmp_path / "a.h5", events=1_200)
    second = make_showers(events=130, seed=2)
    second.cells[70, 2, 3, 1], second.cells[80:90] = np.nan, 0
    paths = [first, write_file(tmp_path / "b.h5", second)]
    rule = SplitRule()
    showers = ShowerSet.open(paths, "Monte Carlo", Selection("train", rule, bad_event="skip"))
    monkeypatch.setattr(sets, "_GALLERY", 150)  # more than a piece has
    found = measure(showers)

    parts, digested = [], []
    for file, made in zip(showers.files, (make_showers(events=1_200), second), strict=True):
        digests = event_digests(Hits.of(made.cells), made.energy_gev, made.theta_rad)
        good = rule.mask("train", file.path.name, digests) & np.isfinite(made.cells).all(axis=(1, 2, 3))
        digested.append(Hits.of(made.cells[good & made.cells.any(axis=(1, 2, 3))]).digests())
        parts.append(observed(made[good]))
    assert_same(found.table[:], Observables.joined(parts))
    np.testing.assert_array_equal(found.digests, np.concatenate(digested))
    assert len(found.digests) < len(found.table)
    assert [picture.energy_gev for picture in found.gallery] == parts[0].energy_gev[:150].tolist()


def test_bad_showers_stop_are_left_out_or_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second piece of a file. Their bad cells are no energy, in the table and in pictures."""
    monkeypatch.setattr(sets, "_GALLERY", 140)
    made = make_showers(events=140)
    made.cells[107, 1, 1, 1], made.cells[109, 0, 0, 0], made.cells[109, 8, 8, 1] = -2, np.nan, np.inf
    path = write_file(tmp_path / "bad.h5", made)
    with pytest.raises(InputError, match=r"bad\.h5: event 107: ECAL holds -2"):
        measure(ShowerSet.open([path], "Monte Carlo", Selection()))
    skipped = measure(ShowerSet.open([path], "Monte Carlo", Selection(bad_event="skip")))
    assert len(skipped.table) == 138
    counted = measure(ShowerSet.open([path], "candidate", Selection(bad_event=COUNT)))
    assert (len(counted.table), counted.bad, counted.first_bad) == (140, 2, "event 107 of bad.h5")
    clean = np.where(np.isfinite(made.cells) & (made.cells >= 0), made.cells, 0)
    assert_same(counted.table[:], observed(replace(made, cells=clean)))
    shown = [picture.side.sum() for picture in counted.gallery]
    np.testing.assert_allclose(shown, clean.sum(axis=(1, 2, 3)) * SMALL_GEOMETRY.file_unit_gev, rtol=1e-5)


def test_showers_below_the_cut_count_as_empty_and_all_of_them_is_an_error(tmp_path: Path) -> None:
    made = make_showers(events=30)
    made.cells[::3] *= np.float32(0.01)
    path = write_file(tmp_path / "low.h5", made)
    kept = measure(ShowerSet.open([path], "Monte Carlo", Selection(cut_gev=0.2)))
    np.testing.assert_array_equal(kept.table.empty, np.arange(30) % 3 == 0)
    with pytest.raises(InputError, match=r"none of the 30 showers of 1 Monte Carlo file\(s\).*above the cut of 100"):
        measure(ShowerSet.open([path], "Monte Carlo", Selection(cut_gev=100.0)))


def test_a_shower_at_the_cut_counts_as_preprocessing_counts_it(tmp_path: Path) -> None:
    made = make_showers(events=200)
    path = write_file(tmp_path / "a.h5", made)
    for deposit in Hits.of(made.cells).sums()[:20]:
        selection = Selection(cut_gev=float(deposit * SMALL_GEOMETRY.file_unit_gev))
        empty = measure(ShowerSet.open([path], "Monte Carlo", selection)).table.empty
        np.testing.assert_array_equal(empty, ~open_showers(path).chosen(selection)[0])


def test_monte_carlo_of_which_every_label_is_bad_is_an_error(tmp_path: Path) -> None:
    path = write_file(tmp_path / "bad.h5", make_showers(events=10), energy=np.full(10, np.nan))
    with pytest.raises(InputError, match="none of the 10 showers"):
        ShowerSet.open([path], "Monte Carlo", Selection(bad_event="skip"))
    with pytest.raises(InputError, match=r"event 0: energy is nan.*leave such showers out of the file"):
        ShowerSet.open([path], "candidate", Selection(bad_event=COUNT))
