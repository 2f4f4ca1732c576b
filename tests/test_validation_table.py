"""A table on disk against the same rows in memory."""

from __future__ import annotations

import errno
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest
from showers import make_showers, observed

from validation.measure.observables import Observables
from validation.measure.sets import PIECE_SHOWERS, Subset, Table, Tables, samples, selected


def few(events: int = 300, seed: int = 0) -> Observables:
    showers = make_showers(events=events, seed=seed)
    showers.cells[3] = 0
    return observed(showers)


def many(rows: Observables, times: int) -> Observables:
    return Observables.joined([rows] * times)


def assert_same(first: Observables, second: Observables) -> None:
    for field in fields(Observables):
        np.testing.assert_array_equal(getattr(first, field.name), getattr(second, field.name))


def test_what_is_read_is_what_was_written() -> None:
    rows = few()
    table = Table([rows[:100], rows[100:130], rows[130:]])
    assert len(table) == 300
    assert_same(table[:], rows)
    assert_same(table[120:140], rows[120:140])
    assert_same(table[np.array([0, 3, 299])], rows[np.array([0, 3, 299])])
    assert len(table[np.array([], dtype=np.intp)]) == len(table[5:5]) == 0
    np.testing.assert_array_equal(table.empty, rows.empty)
    np.testing.assert_array_equal(table.theta_rad, rows.theta_rad)


def test_pieces_and_far_apart_rows_are_read_in_order() -> None:
    rows = many(few(), 40)  # six times what is read at once
    table = Table([rows])
    assert len(rows) == 6 * PIECE_SHOWERS
    assert_same(table[:], rows)
    chosen = np.array([1, 2, 9_000, 11_999])
    assert_same(table[chosen], rows[chosen])
    selection = Subset(table, np.arange(0, 12_000, 3))
    assert_same(selection[:], rows[::3])
    assert_same(Subset(selection, np.array([5, 7]))[:], rows[[15, 21]])
    np.testing.assert_array_equal(selection.energy_gev, rows.energy_gev[::3])
    np.testing.assert_array_equal(selection.empty, rows.empty[::3])


@pytest.mark.parametrize(("per_event", "showers"), [(0, 60), (1, 60), (3, 900), (3, 310)])
def test_samples_keep_partners_together(per_event: int, showers: int) -> None:
    reference, candidate = few(), many(few(seed=1), max(per_event, 2))[: 300 * max(per_event, 2)]
    ours, theirs, copies = samples(Tables(reference, candidate, per_event), showers, np.random.default_rng(0))
    assert len(ours) == min(showers, 300)
    assert copies == (1 if showers == 310 else per_event)
    assert len(theirs) == len(ours) * max(copies, 1)
    place = {energy: index for index, energy in enumerate(reference.energy_gev)}
    chosen = [place[energy] for energy in ours.energy_gev]
    assert chosen == sorted(set(chosen))
    if per_event:
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


def test_showers_at_the_cut_count_as_empty_and_rows_are_selected_from_a_selection() -> None:
    rows = few()
    visible = rows.column("visible_gev")
    table = Table([rows])
    table.empty |= visible <= np.median(visible)
    np.testing.assert_array_equal(table.empty, visible <= np.median(visible))
    kept = selected(selected(table, ~table.empty), np.arange(150) % 2 == 0)
    assert_same(kept[:], rows[np.flatnonzero(visible > np.median(visible))[::2]])
    assert selected(table, np.ones(300, dtype=np.bool_)) is table
    assert len(Table([])) == 0
