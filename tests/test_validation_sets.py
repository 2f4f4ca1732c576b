"""One pass over a set: the table is the same piece by piece as at once, and showers are left out or counted.

Also the table on disk, against the same rows in memory.
"""

from __future__ import annotations

import errno
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from judging import opened
from showers import SMALL_GEOMETRY, make_file, make_showers, observed, write_file

from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.showers.files import open_showers
from calopipe.showers.hits import Hits, event_digests
from calopipe.showers.selection import Selection
from validation.measure import sets
from validation.measure.observables import Observables
from validation.measure.sets import COUNT, PIECE_SHOWERS, Subset, Table, Tables, measure, samples, selected


def assert_same(first: Observables, second: Observables, rtol: float = 0) -> None:
    for field in fields(Observables):
        np.testing.assert_allclose(getattr(first, field.name), getattr(second, field.name), rtol=rtol, atol=rtol / 1e3)


def test_pieces_are_measured_as_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of several pieces, one with a corrupt shower and empty showers, in a split: against all in memory."""
    first = make_file(tmp_path / "a.h5", events=1_200)
    second = make_showers(events=130, seed=2)
    second.cells[70, 2, 3, 1], second.cells[80:90] = np.nan, 0
    paths = [first, write_file(tmp_path / "b.h5", second)]
    rule = SplitRule()
    showers = opened(*paths, split="train", rule=rule, bad_event="skip")
    monkeypatch.setattr(sets, "_GALLERY", 150)  # more than a piece has
    found = measure(showers)

    parts, digested = [], []
    for file, made in zip(showers.files, (make_showers(events=1_200), second), strict=True):
        digests = event_digests(Hits.of(made.cells), made.energy_gev, made.theta_rad)
        good = rule.mask("train", file.path.name, digests) & np.isfinite(made.cells).all(axis=(1, 2, 3))
        digested.append(Hits.of(made.cells[good & made.cells.any(axis=(1, 2, 3))]).digests())
        parts.append(observed(made[good]))
    assert_same(found.table[:], Observables.joined(parts), rtol=1e-6)
    np.testing.assert_array_equal(found.digests, np.concatenate(digested))
    assert len(found.digests) < len(found.table)
    assert [picture.energy_gev for picture in found.gallery] == parts[0].energy_gev[:150].tolist()


def test_bad_showers_stop_are_left_out_or_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in the second piece of a file. Their bad cells count as empty, in the table and in pictures."""
    monkeypatch.setattr(sets, "_GALLERY", 140)
    made = make_showers(events=140)
    made.cells[107, 1, 1, 1], made.cells[109, 0, 0, 0], made.cells[109, 8, 8, 1] = -2, np.nan, np.inf
    path = write_file(tmp_path / "bad.h5", made)
    with pytest.raises(InputError, match=r"bad\.h5: event 107: ECAL holds -2"):
        measure(opened(path))
    assert len(measure(opened(path, bad_event="skip")).table) == 138
    counted = measure(opened(path, bad_event=COUNT))
    assert (len(counted.table), counted.bad, counted.first_bad) == (140, 2, "event 107 of bad.h5")
    clean = np.where(np.isfinite(made.cells) & (made.cells >= 0), made.cells, 0)
    assert_same(counted.table[:], observed(replace(made, cells=clean)), rtol=1e-6)
    shown = [picture.side.sum() for picture in counted.gallery]
    np.testing.assert_allclose(shown, clean.sum(axis=(1, 2, 3)) * SMALL_GEOMETRY.file_unit_gev, rtol=1e-5)


def test_showers_below_the_cut_count_as_empty_and_all_of_them_is_an_error(tmp_path: Path) -> None:
    made = make_showers(events=30)
    made.cells[::3] *= np.float32(0.01)
    path = write_file(tmp_path / "low.h5", made)
    np.testing.assert_array_equal(measure(opened(path, cut_gev=0.2)).table.empty, np.arange(30) % 3 == 0)
    with pytest.raises(InputError, match=r"none of the 30 showers of 1 low file\(s\).*cut of 100.*file_unit_gev"):
        measure(opened(path, cut_gev=100.0))


def test_a_shower_at_the_cut_counts_as_preprocessing_counts_it(tmp_path: Path) -> None:
    made = make_showers(events=20)
    path = write_file(tmp_path / "a.h5", made)
    for deposit in np.sort(Hits.of(made.cells).sums())[:-1]:  # a cut that leaves no shower is an error
        cut_gev = float(deposit * SMALL_GEOMETRY.file_unit_gev)
        empty = measure(opened(path, cut_gev=cut_gev)).table.empty
        np.testing.assert_array_equal(empty, ~open_showers(path).chosen(Selection(cut_gev=cut_gev))[0])


def test_monte_carlo_without_a_good_label_and_a_candidate_with_a_bad_one_are_errors(tmp_path: Path) -> None:
    path = write_file(tmp_path / "bad.h5", make_showers(events=10), energy=np.full(10, np.nan))
    with pytest.raises(InputError, match="none of the 10 showers"):
        opened(path, bad_event="skip")
    write_file(path, make_showers(events=10), energy=np.where(np.arange(10) < 3, 150, np.nan))
    with pytest.raises(InputError, match=r"event 3: energy is nan.*leave such showers out of the file"):
        opened(path, bad_event=COUNT)


def few(events: int = 300, seed: int = 0) -> Observables:
    showers = make_showers(events=events, seed=seed)
    showers.cells[3] = 0
    return observed(showers)


def many(rows: Observables, times: int) -> Observables:
    return Observables.joined([rows] * times)


def test_pieces_and_far_apart_rows_are_read_in_order() -> None:
    rows = many(few(), 40)  # six times what is read at once
    table = Table([rows[:100], rows[100:130], rows[130:]])
    assert len(table) == len(rows) == 6 * PIECE_SHOWERS
    assert_same(table[:], rows)
    assert_same(table[120:140], rows[120:140])
    chosen = np.array([1, 2, 9_000, 11_999])
    assert_same(table[chosen], rows[chosen])
    assert len(table[np.array([], dtype=np.intp)]) == len(table[5:5]) == 0
    for name in ("energy_gev", "theta_rad", "empty"):
        np.testing.assert_array_equal(getattr(table, name), getattr(rows, name))
    selection = Subset(table, np.arange(0, 12_000, 3))
    assert_same(selection[:], rows[::3])
    assert_same(Subset(selection, np.array([5, 7]))[:], rows[[15, 21]])
    for name in ("energy_gev", "empty"):
        np.testing.assert_array_equal(getattr(selection, name), getattr(rows, name)[::3])
    odd = np.arange(4_000) % 2 == 1
    assert_same(selected(selection, odd)[:], rows[::3][odd])
    assert selected(table, np.ones(12_000, dtype=np.bool_)) is table


@pytest.mark.parametrize(("per_event", "showers"), [(1, 60), (3, 900), (3, 310)])
def test_samples_keep_partners_together(per_event: int, showers: int) -> None:
    reference, candidate = few(), many(few(seed=1), per_event)
    ours, theirs, copies = samples(Tables(reference, candidate, per_event), showers, np.random.default_rng(0))
    assert len(ours) == min(showers, 300)
    assert copies == (1 if showers == 310 else per_event)
    assert len(theirs) == len(ours) * copies
    place = {energy: index for index, energy in enumerate(reference.energy_gev)}
    chosen = [place[energy] for energy in ours.energy_gev]
    assert chosen == sorted(set(chosen))
    assert_same(theirs, candidate[(np.array(chosen)[:, None] * per_event + np.arange(copies)).reshape(-1)])
    everything = samples(Tables(reference, reference, 1), 10_000, np.random.default_rng(0))
    assert_same(everything.reference, reference)


def test_unpaired_samples_are_of_each_set_and_no_row_twice() -> None:
    reference, candidate = few(), few(120, seed=1)
    ours, theirs, copies = samples(Tables(reference, candidate, 0), 100, np.random.default_rng(0))
    assert (len(ours), len(theirs), copies) == (100, 100, 0)
    for drawn, rows in ((ours, reference), (theirs, candidate)):
        places = np.searchsorted(np.sort(rows.energy_gev), drawn.energy_gev)
        assert len(set(places.tolist())) == 100
        order = [rows.energy_gev.tolist().index(energy) for energy in drawn.energy_gev]
        assert order == sorted(order)
    assert order != list(range(100))


def test_a_full_folder_for_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = SimpleNamespace(write=full, close=lambda: None)
    monkeypatch.setattr("validation.measure.sets.tempfile.TemporaryFile", lambda: file)
    with pytest.raises(OSError, match=r"No space left on device: .*\(TMPDIR\)"):
        Table([few(10)])
