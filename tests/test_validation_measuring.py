"""One pass over a set: the same table in one process and in several, and what is left out or counted on the way."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from showers import SMALL_GEOMETRY, make_file, make_showers, write_file

from preprocessing.errors import InputError
from preprocessing.splits import SplitRule
from validation.measuring import Measured, measuring
from validation.observables import Observables, observe
from validation.sets import COUNT, ShowerSet


def measured(showers: ShowerSet, workers: int = 1) -> Measured:
    with measuring(workers) as reader:
        return reader.measure(showers)


def assert_same(first: Observables, second: Observables) -> None:
    for field in fields(Observables):
        np.testing.assert_allclose(getattr(first, field.name), getattr(second, field.name), rtol=1e-6, atol=1e-9)


def test_several_processes_measure_what_one_does(tmp_path: Path) -> None:
    """Files of more than one task, one with a corrupt shower, in a split: against all in memory at once."""
    first = make_file(tmp_path / "a.h5", events=1_200)
    second = make_showers(events=130, seed=2)
    second.cells[70, 2, 3, 1] = np.nan
    paths = [first, write_file(tmp_path / "b.h5", second)]
    rule = SplitRule()
    showers = ShowerSet.open(paths, "Monte Carlo", split="train", rule=rule, bad_event="skip")
    alone, together = measured(showers), measured(showers, workers=2)
    assert_same(alone.table[:], together.table[:])
    np.testing.assert_array_equal(alone.digests, together.digests)
    assert alone.events == together.events
    assert (alone.bad, alone.first_bad) == (together.bad, together.first_bad)
    assert [picture.energy_gev for picture in alone.gallery] == [picture.energy_gev for picture in together.gallery]

    parts = []
    for file, mask, made in zip(showers.files, showers.masks, (make_showers(events=1_200), second), strict=True):
        good = mask & np.isfinite(made.cells).all(axis=(1, 2, 3))
        parts.append(observe(made.cells[good], file.energy_gev[good], file.theta_rad[good], SMALL_GEOMETRY))
    assert_same(alone.table[:], Observables.joined(parts))
    assert alone.events == tuple(map(len, parts))


def test_bad_showers_stop_are_left_out_or_counted(tmp_path: Path) -> None:
    made = make_showers(events=40)
    made.cells[7, 1, 1, 1], made.cells[9, 0, 0, 0], made.cells[9, 8, 8, 1] = -2, np.nan, np.inf
    path = write_file(tmp_path / "bad.h5", made)
    for workers in (1, 2):
        with pytest.raises(InputError, match=r"bad\.h5: event 7: ECAL holds -2"):
            measured(ShowerSet.open([path], "Monte Carlo"), workers)
    skipped = measured(ShowerSet.open([path], "Monte Carlo", bad_event="skip"))
    assert len(skipped.table) == 38
    counted = measured(ShowerSet.open([path], "candidate", bad_event=COUNT))
    assert (len(counted.table), counted.bad, counted.first_bad) == (40, 2, "event 7 of bad.h5")
    clean = np.where(np.isfinite(made.cells) & (made.cells >= 0), made.cells, 0)
    assert_same(counted.table[:], observe(clean, made.energy_gev, made.theta_rad, SMALL_GEOMETRY))


def test_showers_below_the_cut_are_left_out_and_all_of_them_is_an_error(tmp_path: Path) -> None:
    made = make_showers(events=30)
    made.cells[::3] *= np.float32(0.01)
    path = write_file(tmp_path / "low.h5", made)
    visible = made.cells.sum(axis=(1, 2, 3)) * SMALL_GEOMETRY.file_unit_gev
    kept = measured(ShowerSet.open([path], "Monte Carlo", cut_gev=0.2))
    assert len(kept.table) == (visible > 0.2).sum() == 20
    assert len(kept.gallery) == 20
    with pytest.raises(InputError, match=r"none of the 30 showers of 1 Monte Carlo file\(s\).*above the cut of 100"):
        measured(ShowerSet.open([path], "Monte Carlo", cut_gev=100.0))


def test_a_number_of_processes_must_be_one() -> None:
    with pytest.raises(InputError, match="--workers is 0"), measuring(0):
        pass
