"""Every event that is read is written, or dropped for a reason. Corrupt input stops the run or is skipped."""

from __future__ import annotations

import json
import os
import re
import subprocess
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from commands import command_of, made, records_of, refused, run
from showers import make_dataset, make_file, make_showers, write_file

from calopipe.errors import InputError
from calopipe.events.contents import read_memory
from calopipe.events.tolerance import Tolerance
from calopipe.showers.files import open_showers
from preprocessing import shards
from preprocessing.dataset import read_manifest
from preprocessing.manifest import DROPPED
from preprocessing.pipeline import preprocess
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings

BAD = {3: "nan", 4: "nan", 10: "negative", 20: "out_of_range", 21: "negative", 22: "nan"}


def _corrupt(path: Path, *, events: int = 60, seed: int = 0) -> Path:
    """A file in which the events of BAD are corrupt, each in another way, and event 30 is empty."""
    showers = make_showers(events=events, seed=seed)
    cells, energy, theta = showers.cells.copy(), showers.energy_gev.copy(), showers.theta_rad.copy()
    cells[3, 8, 8, 2] = np.nan
    cells[4, 0, 0, 0], cells[4, 1, 1, 1] = np.inf, -1  # not a number goes before its sign
    cells[10, 0, 0, 0] = cells[21, 0, 0, 0] = -0.5  # of the last, whose angle is bad too, the cells are told of
    energy[20], theta[21], energy[22] = -5, 4, np.nan
    cells[30] = 0
    return write_file(path, showers, ECAL=cells, energy=energy, theta=theta)


def _with_nan(path: Path) -> Path:
    """A file of 60 showers; a cell of event 41 is NaN."""
    showers = make_showers(events=60)
    showers.cells[41, 0, 0, 0] = np.nan
    return write_file(path, showers)


def test_corrupt_events_are_skipped_and_counted_by_reason(tmp_path: Path) -> None:
    common = ("--input", _corrupt(tmp_path / "a.h5"), "--output", tmp_path / "ds", "--on-bad-event", "skip")
    assert re.search("6 of 60 events are corrupt, .* share of 0.01 that", refused(*common))
    assert not (tmp_path / "ds/manifest.json").exists()
    assert "0 of 1 pieces to do" in run(*common, "--max-bad-events", 0.1)  # work is kept past the limit as well
    document = json.loads((tmp_path / "ds/manifest.json").read_text())
    dropped = dict.fromkeys(DROPPED, 0) | {"below_cut": 1, "nan": 3, "negative": 2, "out_of_range": 1}
    assert document["events"] == {"read": 60, "written": 53, "repeated": 0, "dropped": dropped}
    assert {bad["event"]: bad["reason"] for bad in document["bad_events"]} == BAD
    told = "dropped: 1 below_cut, 3 nan, 2 negative, 1 out_of_range"
    assert read_manifest(tmp_path / "ds").summary().endswith(told)
    expected = np.delete(np.arange(60), [*BAD, 30]).tolist()
    assert sorted(each["event"].int64_list.value[0] for _, each in records_of(tmp_path / "ds")) == expected


def test_by_default_a_corrupt_event_stops_the_run_with_its_place_and_good_work_is_kept(tmp_path: Path) -> None:
    good, path = make_file(tmp_path / "good.h5", events=20, seed=1), _corrupt(tmp_path / "a.h5")
    run("--input", good, "--output", tmp_path / "ds")
    (tmp_path / "ds/manifest.json").unlink()
    common = ("--input", good, path, "--output", tmp_path / "ds")
    told = refused(*common)
    assert f"{path}: event 20: energy is -5.0" in told  # labels are looked at first
    assert "--on-bad-event skip" in told
    _with_nan(path)
    assert f"{path}: event 41: ECAL holds nan in 1 cell(s)" in refused(*common)
    assert not (tmp_path / "ds/manifest.json").exists()
    make_file(path, events=60)
    assert "1 of 2 pieces to do" in run(*common)
    assert read_manifest(tmp_path / "ds").events["written"] == 80


def test_a_dataset_made_by_skipping_does_not_pass_for_one_without_faults(tmp_path: Path) -> None:
    common = ("--input", _with_nan(tmp_path / "a.h5"), "--output", tmp_path / "ds")
    run(*common, "--on-bad-event", "skip")
    assert "event 41" in refused(*common)
    assert "dataset stands" in run(*common, "--on-bad-event", "skip")
    assert "share of 0 " in refused(*common, "--on-bad-event", "skip", "--max-bad-events", 0)


def test_a_file_that_changes_is_no_corrupt_file(tmp_path: Path) -> None:
    """A file that is still being copied is detected. When it is whole, nothing of it is missing."""
    path, tolerance = make_file(tmp_path / "a.h5", events=60), Tolerance(on_bad_file="skip", max_bad_files=1)
    found = discover([str(path)], tolerance=tolerance)
    whole = path.read_bytes()
    for other in (whole[: len(whole) // 2], make_file(tmp_path / "b.h5", events=60, seed=9).read_bytes()):
        path.write_bytes(other)  # also a file that can be read
        with pytest.raises(InputError, match=r"a\.h5: changed while it was read"):
            preprocess(found, tmp_path / "ds", Settings(), tolerance=tolerance)
        assert not (tmp_path / "ds/manifest.json").exists()
    path.write_bytes(whole)
    assert make_dataset(tmp_path / "ds", path).events["written"] == 60


def test_a_small_file_of_corrupt_events_alone_is_within_the_limit(tmp_path: Path) -> None:
    large, showers = make_file(tmp_path / "large.h5", events=200), make_showers(events=2, seed=1)
    small = write_file(tmp_path / "small.h5", showers, energy=np.full(2, -1.0))
    manifest = made("--input", large, small, "--output", tmp_path / "ds", "--on-bad-event", "skip")
    assert manifest.events["dropped"]["out_of_range"] == 2


def test_a_file_without_energy_is_named_and_what_was_read_of_others_is_kept(tmp_path: Path) -> None:
    good, showers = make_file(tmp_path / "a.h5", events=30), make_showers(events=5, seed=1)
    os.utime(good, (1, 1))
    empty = write_file(tmp_path / "b.h5", showers, ECAL=np.zeros_like(showers.cells))
    told = refused("--input", good, empty, "--output", tmp_path / "ds")
    assert "b.h5: no shower holds energy; leave the file out" in told
    (tmp_path / "c.h5").write_bytes(b"no HDF5")
    assert "c.h5: not an HDF5 file" in refused("--input", good, tmp_path / "c.h5", "--output", tmp_path / "other")
    assert list(read_memory(tmp_path / "other")["files"]) == [str(good)]


def test_shares_are_shares() -> None:
    for share, total, most in ((0.01, 60, 1), (0.07, 100, 7), (0.29, 100, 29), (0.5, 5, 2), (1, 7, 7), (0, 100, 0)):
        tolerance = Tolerance(on_bad_event="skip", max_bad_events=share)
        tolerance.require("event", most, total, "first")
        with pytest.raises(InputError, match="are corrupt"):
            tolerance.require("event", most + 1, total, "first")


def _damage(path: Path) -> Path:
    """Damage bytes of the file's cells between the stretches that are examined first; the header stays whole."""
    content = bytearray(path.read_bytes())
    lost = len(content) * 3 // 8
    content[lost : lost + 3000] = bytes(3000)
    path.write_bytes(content)
    open_showers(path)
    return path


def _bad_files(folder: Path) -> list[Path]:
    garbage = folder / "garbage.h5"
    garbage.write_bytes(b"not a file of showers")
    other = write_file(folder / "other.h5", make_showers(events=5), ECAL=None)
    return [garbage, other, _damage(make_file(folder / "damaged.h5", events=400, seed=9))]


def test_a_corrupt_file_stops_the_run_with_its_name(tmp_path: Path) -> None:
    good = make_file(tmp_path / "good.h5", events=30)
    for bad in _bad_files(tmp_path):
        told = refused("--input", good, bad, "--output", tmp_path / "ds")
        assert f"{bad}: " in told
        assert "--on-bad-file skip" in told
        alone = ("--input", bad, "--output", tmp_path / "ds", "--on-bad-file", "skip", "--max-bad-files", 1)
        assert "none of the 1 input files" in refused(*alone)
        assert not (tmp_path / "ds/manifest.json").exists()


def test_corrupt_files_are_skipped_and_recorded(tmp_path: Path) -> None:
    good, bad = make_file(tmp_path / "good.h5", events=30), _bad_files(tmp_path)
    common = ("--input", good, *bad, "--output", tmp_path / "ds", "--on-bad-file", "skip", "--shard-events", 20)
    assert "2 of 4 files are corrupt" in refused(*common)  # the third looks whole until its cells are read
    manifest = made(*common, "--max-bad-files", 0.75)
    assert sorted(file.name for file in manifest.bad_files) == ["damaged.h5", "garbage.h5", "other.h5"]
    assert manifest.events["read"] == 430
    assert manifest.events["dropped"]["bad_file"] == 400
    assert manifest.events["written"] == manifest.count("all") == 30
    assert [source.name for source in manifest.inputs] == ["good.h5"]
    assert "dataset stands" in run(*common, "--max-bad-files", 0.75)
    assert "--on-bad-file skip" in refused(*common[:-4])
    one = make_dataset(tmp_path / "one", good, shard_events=20)  # a dataset is named by what it holds
    assert (manifest.fingerprint == one.fingerprint, manifest.request == one.request) == (True, False)


def test_an_event_of_a_file_that_is_left_out_is_no_first_one(tmp_path: Path) -> None:
    """An equal event in a whole file is written."""
    bad = _damage(make_file(tmp_path / "a.h5", events=400, seed=9))
    whole = write_file(tmp_path / "b.h5", make_showers(events=400, seed=9)[:20])
    skip = ("--on-bad-file", "skip", "--max-bad-files", 0.5, "--shard-events", 20)
    assert made("--input", bad, whole, "--output", tmp_path / "ds", *skip).count("all") == 20


def test_workers_that_fail_say_one_line(tmp_path: Path) -> None:
    _with_nan(tmp_path / "a.h5")
    command = command_of(tmp_path, tmp_path / "ds", "--shard-events", "10", "--workers", "2")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert [line for line in done.stderr.splitlines() if "event 41" in line] == [done.stderr.splitlines()[-1]]


def test_plans_do_nothing_once_one_has_stopped_the_run(tmp_path: Path) -> None:
    """Here a plan stops the run because its worker has another version of the package."""
    (plan,) = shards.plan(discover([str(make_file(tmp_path / "a.h5", events=20))]).files, Settings())
    stop, output = tmp_path / "stop", tmp_path / "ds"

    def write(version: str) -> list[Path]:
        shards.write_shards(str(output), plan, Settings(), Tolerance(), version=version, stop=str(stop))
        return list(output.rglob("*.json"))

    for version in ("9.9", metadata.version("calopipe")):
        assert not write(version)
        assert "on a worker, but 9.9 at the command" in stop.read_text()
    stop.unlink()
    assert write(metadata.version("calopipe"))
