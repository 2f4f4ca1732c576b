"""One pass over a set: the same table in one process and in several, and what is left out or counted on the way."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from showers import SMALL_GEOMETRY, make_file, make_showers, write_file

from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.showers.files import open_showers
from calopipe.showers.hits import Hits, event_digests
from calopipe.showers.selection import Selection
from validation.measure.observables import Observables, observe
from validation.measure.reader import Measured, measure, processes
from validation.measure.sets import COUNT, ShowerSet


def measured(showers: ShowerSet, workers: int = 1) -> Measured:
    with processes(workers) as over:
        return measure(showers, over)


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
    showers = ShowerSet.open(paths, "Monte Carlo", Selection("train", rule, bad_event="skip"))
    alone, together = measured(showers), measured(showers, workers=2)
    assert_same(alone.table[:], together.table[:])
    np.testing.assert_array_equal(alone.digests, together.digests)
    assert (alone.bad, alone.first_bad) == (together.bad, together.first_bad)
    assert [picture.energy_gev for picture in alone.gallery] == [picture.energy_gev for picture in together.gallery]

    parts = []
    for file, made in zip(showers.files, (make_showers(events=1_200), second), strict=True):
        digests = event_digests(Hits.of(made.cells), made.energy_gev, made.theta_rad)
        good = rule.mask("train", file.path.name, digests) & np.isfinite(made.cells).all(axis=(1, 2, 3))
        parts.append(observe(made.cells[good], file.energy_gev[good], file.theta_rad[good], SMALL_GEOMETRY))
    assert_same(alone.table[:], Observables.joined(parts))


def test_bad_showers_stop_are_left_out_or_counted(tmp_path: Path) -> None:
    made = make_showers(events=40)
    made.cells[7, 1, 1, 1], made.cells[9, 0, 0, 0], made.cells[9, 8, 8, 1] = -2, np.nan, np.inf
    path = write_file(tmp_path / "bad.h5", made)
    for workers in (1, 2):
        with pytest.raises(InputError, match=r"bad\.h5: event 7: ECAL holds -2"):
            measured(ShowerSet.open([path], "Monte Carlo", Selection()), workers)
    skipped = measured(ShowerSet.open([path], "Monte Carlo", Selection(bad_event="skip")))
    assert len(skipped.table) == 38
    counted = measured(ShowerSet.open([path], "candidate", Selection(bad_event=COUNT)))
    assert (len(counted.table), counted.bad, counted.first_bad) == (40, 2, "event 7 of bad.h5")
    clean = np.where(np.isfinite(made.cells) & (made.cells >= 0), made.cells, 0)
    assert_same(counted.table[:], observe(clean, made.energy_gev, made.theta_rad, SMALL_GEOMETRY))


def test_what_is_handed_to_a_process_is_as_small_in_a_larger_file(tmp_path: Path) -> None:
    """It knows its own labels alone, and calls events by their number in the file."""
    sizes = []
    for events in (1_000, 2_000):
        path = make_file(tmp_path / f"{events}.h5", events=events)
        stretches = list(ShowerSet.open([path], "Monte Carlo", Selection()).stretches())
        assert sum(len(stretch.chosen) for stretch in stretches) == events
        sizes.append(len(pickle.dumps(stretches[0])))
    assert abs(sizes[1] - sizes[0]) < 100

    made = make_showers(events=1_200)
    made.cells[1_103, 1, 1, 1] = -2
    path = write_file(tmp_path / "late.h5", made)
    with pytest.raises(InputError, match=r"late\.h5: event 1103: ECAL holds -2"):
        measured(ShowerSet.open([path], "Monte Carlo", Selection()))
    counted = measured(ShowerSet.open([path], "candidate", Selection(bad_event=COUNT)))
    assert (counted.bad, counted.first_bad) == (1, "event 1103 of late.h5")


def test_a_part_of_a_file_is_read_as_its_events_are(tmp_path: Path) -> None:
    file = open_showers(make_file(tmp_path / "a.h5", events=700))
    start = 2 * file.chunk_events
    part = file.part(file.chunk_events, 650).part(file.chunk_events, 550)
    stop = start + part.events
    for name in ("cells", "energy_gev", "theta_rad", "mtheta_rad"):
        np.testing.assert_array_equal(getattr(part.read(), name), getattr(file.read(start, stop), name))
    selection = Selection("train", SplitRule())
    for of_part, of_file in zip(part.chosen(selection), file.chosen(selection), strict=True):
        np.testing.assert_array_equal(of_part, of_file[start:stop])


def test_showers_below_the_cut_count_as_empty_and_all_of_them_is_an_error(tmp_path: Path) -> None:
    made = make_showers(events=30)
    made.cells[::3] *= np.float32(0.01)
    path = write_file(tmp_path / "low.h5", made)
    kept = measured(ShowerSet.open([path], "Monte Carlo", Selection(cut_gev=0.2)))
    np.testing.assert_array_equal(kept.table.empty, np.arange(30) % 3 == 0)
    with pytest.raises(InputError, match=r"none of the 30 showers of 1 Monte Carlo file\(s\).*above the cut of 100"):
        measured(ShowerSet.open([path], "Monte Carlo", Selection(cut_gev=100.0)))


def test_a_shower_at_the_cut_counts_as_preprocessing_counts_it(tmp_path: Path) -> None:
    made = make_showers(events=200)
    path = write_file(tmp_path / "a.h5", made)
    for deposit in Hits.of(made.cells).sums()[:20]:
        selection = Selection(cut_gev=float(deposit * SMALL_GEOMETRY.file_unit_gev))
        empty = measured(ShowerSet.open([path], "Monte Carlo", selection)).table.empty
        np.testing.assert_array_equal(empty, ~open_showers(path).chosen(selection)[0])


def test_monte_carlo_of_which_every_label_is_bad_is_an_error(tmp_path: Path) -> None:
    path = write_file(tmp_path / "bad.h5", make_showers(events=10), energy=np.full(10, np.nan))
    with pytest.raises(InputError, match="none of the 10 showers"):
        ShowerSet.open([path], "Monte Carlo", Selection(bad_event="skip"))
    with pytest.raises(InputError, match=r"event 0: energy is nan.*leave such showers out of the file"):
        ShowerSet.open([path], "candidate", Selection(bad_event=COUNT))


def test_a_number_of_processes_must_be_one() -> None:
    with pytest.raises(InputError, match="--workers is 0"), processes(0):
        pass


def test_processes_that_measure_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    """Killed, as a cluster kills it; and interrupted, as Ctrl-C does it, to every process of the group."""
    path = make_file(tmp_path / "many.h5", events=3_000)
    program = (
        "import signal, sys; from pathlib import Path; from validation.measure.reader import measure, processes;"
        "from validation.measure.sets import ShowerSet; from calopipe.showers.selection import Selection\n"
        "if __name__ == '__main__':\n"
        "  signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in the background
        "  with processes(2) as over:\n"
        "    while True:\n"
        f"      measure(ShowerSet.open([Path({str(path)!r})], 'Monte Carlo', Selection()), over)\n"
        "      print('once', flush=True)"
    )
    script = tmp_path / "endless.py"
    script.write_text(program)
    for ending, whole_group in ((signal.SIGKILL, False), (signal.SIGINT, True)):
        with subprocess.Popen(
            [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "once\n"
            others = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            assert len(others) >= 2
            (os.killpg if whole_group else os.kill)(process.pid, ending)
            told = process.stderr.read()  # ends when the last of them has ended
            assert told.count("Traceback") <= 1  # the first process's own: this script has no command line's manners
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in others):
        time.sleep(0.1)
    assert not any(Path(f"/proc/{pid}").exists() for pid in others)
