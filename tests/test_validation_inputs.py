"""What is wrong with two sets of files: one line that says so, or a defined answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from showers import SMALL_GEOMETRY, make_file, make_showers, write_file

from calopipe.errors import InputError
from calopipe.showers.selection import Selection
from validation import compare
from validation.compare import validate
from validation.report import plots

EVENTS = 60


@pytest.fixture(autouse=True)
def _nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thirds of the time of a comparison, and no matter here."""
    monkeypatch.setattr(plots, "draw_all", lambda *_: iter(()))
    monkeypatch.setattr(plots, "overview", lambda _: b"")
    monkeypatch.setattr(compare, "draw_pairs", lambda *_: iter(()))


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return make_file(tmp_path / "mc.h5", events=EVENTS)


def judged(reference: Path, candidate: Path) -> dict[str, Any]:
    return validate([reference], [candidate], reference.parent / "out")


def changed(path: Path, **replaced: Callable[[np.ndarray[Any, Any]], Any]) -> Path:
    """Independent showers, of whose datasets some are `replaced` by a function of what they would be."""
    showers = make_showers(events=EVENTS, seed=1)
    sound = {"ECAL": showers.cells, "energy": showers.energy_gev, "theta": showers.theta_rad}
    return write_file(path, showers, **{name: change(sound[name].copy()) for name, change in replaced.items()})


def with_fourth(value: float) -> Callable[[np.ndarray[Any, Any]], Any]:
    def change(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        values.reshape(EVENTS, -1)[3, 0] = value
        return values

    return change


@pytest.mark.parametrize("events", [23, 97])
def test_sets_of_other_lengths_are_unpaired(reference: Path, events: int) -> None:
    found = judged(reference, make_file(reference.parent / "other.h5", events=events, seed=1))
    assert (found["per_event"], found["events"]["candidate"]) == (0, events)


def test_of_two_showers_an_event_the_last_may_not_be_missing(reference: Path) -> None:
    """Labels that no longer fit one by one make an unpaired comparison, never one with the wrong partners."""
    labels = make_showers(events=EVENTS)[np.repeat(np.arange(EVENTS), 2)]
    twice = replace(labels, cells=make_showers(events=2 * EVENTS, seed=1).cells)
    for name, showers, per_event in (("twice", twice, 2), ("cut short", twice[: 2 * EVENTS - 1], 0)):
        assert judged(reference, write_file(reference.parent / f"{name}.h5", showers))["per_event"] == per_event


@pytest.mark.parametrize(
    ("geometry", "message"),
    [
        (replace(SMALL_GEOMETRY, shape=(15, 17, 5)), r"shape is \(15, 17, 5\), in the reference .* \(17, 17, 5\)"),
        (replace(SMALL_GEOMETRY, file_unit_gev=1.0), "file_unit_gev is 1.0, in the reference .* it is 0.02"),
        (replace(SMALL_GEOMETRY, cell_mm=5.1), "cell_mm is 5.1, in the reference .* it is 15.3"),
    ],
)
def test_another_detector_or_unit(reference: Path, geometry: Any, message: str) -> None:
    candidate = make_file(reference.parent / "other.h5", events=EVENTS, seed=1, geometry=geometry)
    with pytest.raises(InputError, match=message):
        judged(reference, candidate)


def test_a_reference_that_states_no_geometry_is_told_how_to(reference: Path) -> None:
    bare = write_file(reference.parent / "bare.h5", make_showers(events=EVENTS), geometry=None)
    with pytest.raises(InputError, match=r"mc.h5: .* or give the --geometry, which the reference does not state"):
        judged(bare, reference)


def test_values_in_another_unit_than_the_file_says_are_a_matter_of_the_response(reference: Path) -> None:
    found = judged(reference, changed(reference.parent / "other.h5", ECAL=lambda cells: cells * 50))
    (response,) = (each for each in found["criteria"] if each["key"] == "response")
    assert (found["verdict"], response["verdict"]) == ("rejected", "fail")
    assert response["value"] == pytest.approx(50, rel=0.02)


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"energy": lambda energy: energy * 1000}, "60 of 60 showers have energy outside the reference's .* GeV"),
        ({"energy": lambda energy: 0 * energy + 150}, "its energy is distributed unlike the reference's"),
        ({"energy": lambda energy: 190 + 0.04 * energy}, "its energy is distributed unlike the reference's"),
        ({"theta": np.degrees}, "theta is .* is it in degrees"),
        ({"energy": with_fourth(np.nan)}, "event 3: energy is nan"),
        ({"theta": with_fourth(np.nan)}, "event 3: theta is nan"),
        ({"ECAL": lambda cells: cells[..., 0]}, r"ECAL has shape \(60, 17, 17\)"),
        ({"energy": lambda energy: energy[:9]}, r"'energy' has shape \(9,\)"),
    ],
)
def test_labels_and_cells_that_cannot_be_used(reference: Path, replaced: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        judged(reference, changed(reference.parent / "other.h5", **replaced))


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "not an HDF5 file, or an empty one"), (b"energy,theta\n", "not an HDF5 file")]
)
def test_files_that_are_not_hdf5(reference: Path, content: bytes, message: str) -> None:
    (reference.parent / "other.h5").write_bytes(content)
    with pytest.raises(InputError, match=message):
        judged(reference, reference.parent / "other.h5")


def test_a_file_without_a_shower(reference: Path) -> None:
    none = write_file(reference.parent / "none.h5", make_showers(events=EVENTS)[:0], chunks=False)
    for pair in ((reference, none), (none, reference)):
        with pytest.raises(InputError, match=r"none.h5: holds no showers"):
            judged(*pair)


def test_one_shower_decides_nothing(reference: Path) -> None:
    one = write_file(reference.parent / "one.h5", make_showers(events=EVENTS, seed=1)[:1])
    found = judged(reference, one)
    assert found["verdict"] == "inconclusive"
    assert all(each["interval"] is None for each in found["criteria"])
    with pytest.raises(InputError, match="outside the reference's"):  # what one shower spans is no beam
        judged(one, reference)


def test_a_reference_without_energy(reference: Path) -> None:
    zeros = changed(reference.parent / "zeros.h5", ECAL=lambda cells: cells * 0)
    with pytest.raises(InputError, match=r"none of the 60 showers .* is in it and holds energy; give more files"):
        judged(zeros, reference)
    in_gev = changed(reference.parent / "gev.h5", ECAL=lambda cells: cells * np.float32(0.02))  # which it does not say
    with pytest.raises(InputError, match=r"none of the 60 showers .* above the cut of 0.2 GeV.*file_unit_gev"):
        validate([in_gev], [reference], reference.parent / "out", selection=Selection(cut_gev=0.2))


def test_showers_without_energy_are_left_out_and_counted(reference: Path) -> None:
    def every_other(cells: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        cells[::2] = 0
        return cells

    found = judged(reference, changed(reference.parent / "half.h5", ECAL=every_other))
    assert found["empty"] == {"reference": 0, "candidate": 30}
    assert [each["name"] for each in found["hard_failures"]] == ["Empty showers"]
    assert {each["events"] for each in found["criteria"]} == {30}


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_bad_cells_are_an_error_in_the_reference_and_a_finding_in_the_candidate(reference: Path, value: float) -> None:
    bad = changed(reference.parent / "bad.h5", ECAL=with_fourth(value))
    found = judged(reference, bad)
    assert [(each["name"], each["count"]) for each in found["hard_failures"]] == [("NaN or negative cells", 1)]
    (response,) = (each for each in found["criteria"] if each["key"] == "response")
    assert response["value"] == pytest.approx(1, rel=0.01)  # the others are judged all the same
    with pytest.raises(InputError, match="event 3: ECAL holds"):
        judged(bad, reference)


def test_the_command_line_says_so_in_one_line(reference: Path) -> None:
    cut_short = reference.parent / "cut_short.h5"
    cut_short.write_bytes(reference.read_bytes()[:-500])
    other = changed(reference.parent / "other.h5", energy=with_fourth(np.nan))
    for candidate, told in ((cut_short, "not a whole HDF5 file"), (other, "event 3: energy is nan")):
        done = subprocess.run(
            [sys.executable, "-m", "validation", "--reference", reference, "--candidate", candidate, "--output",
             reference.parent / "out"],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(f"error: {candidate}: ")
        assert told in done.stderr
        assert done.stderr.count("\n") == 1
        assert not (reference.parent / "out").exists()


@pytest.mark.parametrize(("events", "candidate", "incumbent", "training"), [(45, 45, 45, 100), (300, 3, 400, 9)])
def test_few_showers_leave_figures_out_and_no_number_that_is_none(
    tmp_path: Path, events: int, candidate: int, incumbent: int, training: int
) -> None:
    sizes = (events, candidate, incumbent, training)
    paths = [make_file(tmp_path / f"{seed}.h5", events=size, seed=seed) for seed, size in enumerate(sizes)]
    found = validate(
        paths[:1], paths[1:2], tmp_path / "out", incumbent=paths[2:3], training=paths[3:], training_split="all"
    )
    json.dumps(found, allow_nan=False)
    assert (found["verdict"], found["incumbent"]["outcome"]) == ("inconclusive", "no significant difference")
