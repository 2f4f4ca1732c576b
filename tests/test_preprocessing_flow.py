"""Flow files to datasets of pairs: what records hold, which split they are in, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from commands import made, records_of, run
from flows import GRID, street, write_flow

from calopipe.errors import InputError
from calopipe.events.contents import write_memory
from calopipe.events.splits import SPLITS
from preprocessing.events import digests_in
from preprocessing.flow.manifest import FlowManifest
from preprocessing.flow.pairs import read_pairs

FRAMES = 24


@pytest.fixture(scope="module")
def simulations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 12 flows, and one flow that continues the first."""
    folder = tmp_path_factory.mktemp("flows")
    for number in range(12):
        write_flow(folder / f"s{number:02d}.h5", reynolds=60.0 + 10 * number, row=3 + number % 4, strouhal=0.19)
    write_flow(folder / "s12.h5", reynolds=60.0, row=3, strouhal=0.18)
    return folder


@pytest.mark.parametrize("step", [1, 3])
def test_every_record_is_a_pair_of_its_file(simulations: Path, tmp_path: Path, step: int) -> None:
    options = ("--pair-step", step, "--shard-events", 10)
    manifest = made("--input", f"{simulations}/*.h5", "--output", tmp_path / "ds", *options)
    assert manifest.geometry.interval_d == pytest.approx(0.25 * step)
    assert manifest.valid_range == {"reynolds": (60.0, 170.0)}
    left = {}
    for path in simulations.glob("*.h5"):
        with h5py.File(path) as file:
            frames, solid = file["velocity"][()], file["solid"][()]
            for event in range(FRAMES - step):
                now, after = frames[event].tobytes(), frames[event + step].tobytes()
                left[now, after, solid.astype("u1").tobytes(), file.attrs["reynolds"], event] = file["time"][event]
    found = records_of(tmp_path / "ds")
    assert len(found) == len(left) == 13 * (FRAMES - step) == manifest.count("all")
    for _, each in found:
        blobs = (each[name].bytes_list.value[0] for name in ("now", "next", "solid"))
        key = (*blobs, each["reynolds"].float_list.value[0], each["event"].int64_list.value[0])
        assert left.pop(key) == pytest.approx(each["time"].float_list.value[0])
    assert not left
    assert len(digests_in(tmp_path / "ds", manifest, SPLITS)) == len(found)


def test_no_flow_is_in_two_splits_and_a_dataset_stands(simulations: Path, tmp_path: Path) -> None:
    arguments = ["--input", f"{simulations}/*.h5", "--output", tmp_path / "ds", "--shard-events", 10]
    assert "39 of 39 pieces to do" in run(*arguments)
    assert "pairs of frames; nothing to do" in run(*arguments)
    places: dict[tuple[bytes, float], set[str]] = {}
    for split, each in records_of(tmp_path / "ds"):
        flow = each["solid"].bytes_list.value[0], each["reynolds"].float_list.value[0]
        places.setdefault(flow, set()).add(split)
    assert len(places) == 12  # the thirteenth file goes on with the first
    assert all(len(splits) == 1 for splits in places.values())
    assert len(set.union(*places.values())) > 1


def test_flows_are_taken_where_showers_had_been_looked_at(simulations: Path, tmp_path: Path) -> None:
    """An earlier command, whose showers were refused, has left its document about their files."""
    write_memory(tmp_path / "ds", "", {str(tmp_path / "showers.h5"): {}})
    manifest = made("--input", f"{simulations}/s0*.h5", "--output", tmp_path / "ds")
    assert isinstance(manifest, FlowManifest)


def test_files_can_be_given_to_splits_but_a_flow_not_to_two(simulations: Path, tmp_path: Path) -> None:
    files = [simulations / f"s{number:02d}.h5" for number in (0, 1, 12)]

    def given_to(*splits: str) -> FlowManifest:
        pairs = zip(splits, files, strict=True)
        given = [word for split, path in pairs for word in ("--split-file", f"{split}={path.name}")]
        return made("--input", *files, "--output", tmp_path / "ds", *given)

    assert [given_to("train", "test", "train").count(split) for split in SPLITS] == [46, 0, 23]
    with pytest.raises(InputError, match=r"s12.h5 is in test and .*s00.h5 in train, but both are of one obstacle and"):
        given_to("train", "train", "test")


def test_pairs_with_a_frame_that_is_nan_stop_the_run_or_are_left_out(simulations: Path, tmp_path: Path) -> None:
    velocity = street(frames=FRAMES)
    velocity[9, 14, 7, 1] = np.nan  # in the wake, where it is seen whether it sheds
    write_flow(tmp_path / "bad.h5", velocity=velocity)
    arguments = ["--input", tmp_path / "bad.h5", f"{simulations}/s0*.h5", "--output", tmp_path / "ds"]
    with pytest.raises(InputError, match=r"bad.h5: the velocity in frame 9 is not a finite number; .* again; correct"):
        run(*arguments)
    manifest = made(*arguments, "--on-bad-event", "skip")
    found = [(each.name, each.event, each.reason) for each in manifest.bad_events]
    assert found == [("bad.h5", 8, "nan"), ("bad.h5", 9, "nan")]
    assert (manifest.events["read"], manifest.events["written"]) == (11 * 23, 11 * 23 - 2)


def test_a_range_of_pairs_is_counted_from_the_beginning_of_its_file(tmp_path: Path) -> None:
    """Frames of a pair are two apart, so the bad frame 9 is in the pairs 7 and 9; other pairs from 4 to 11 are good."""
    velocity = street(frames=FRAMES)
    velocity[9, 3, 3, 0] = np.nan
    path = write_flow(tmp_path / "bad.h5", velocity=velocity)
    content = read_pairs(path, 4, 11, 2)
    assert content.events.tolist() == [4, 5, 6, 8, 10]
    assert content.bad_events == [(7, "nan"), (9, "nan")]
    assert "in frame 9 is not a finite number" in content.first_bad
    nothing = read_pairs(path, 9, 10, 2)
    assert (len(nothing.events), nothing.in_receipt["reynolds"]) == (0, None)
    assert read_pairs(path, 10, 12, 2).first_bad == ""


def test_a_pair_is_known_by_both_frames_and_the_reynolds_number(tmp_path: Path) -> None:
    frames = street(frames=3)
    pairs = {"ab": frames[:2], "ac": frames[[0, 2]], "cb": frames[[2, 1]]}
    files = {name: write_flow(tmp_path / f"{name}.h5", velocity=velocity) for name, velocity in pairs.items()}
    files["other"] = write_flow(tmp_path / "other.h5", velocity=frames[:2], reynolds=101.0)
    files["same"] = write_flow(tmp_path / "same.h5", velocity=frames)
    digests = {name: int(read_pairs(path, 0, 1, 1).digests[0]) for name, path in files.items()}
    assert digests.pop("same") == digests["ab"]
    assert len(set(digests.values())) == 4


@pytest.mark.parametrize(
    ("of_flow", "options", "told"),
    [
        ({"frames": 16}, "", "16 frames, at least 17 are needed"),
        ({"amplitude": 0.01}, "", "the wake swings by 0.0099 U: it sheds no steady vortices yet"),
        ({"growth": 0.5}, "", "the wake's swing still grows, from .*: it sheds no steady vortices yet"),
        ({"attributes": {"start_sha256": "abc"}}, "", "a model's roll-out, a solver's simulation is expected"),
        ({"grid": replace(GRID, shape=(40, 16))}, "", r"its geometry's shape is \(40, 16\), .* \(32, 16\); use flows"),
        ({}, "--cut-gev 1", "--cut-gev is for showers, and the input is a flow; leave it out"),
        ({}, "--pair-step 0", "--pair-step is 0"),
    ],
)
def test_what_cannot_be_trained_on_is_one_line(
    simulations: Path, tmp_path: Path, of_flow: dict[str, Any], options: str, told: str
) -> None:
    path = write_flow(tmp_path / "b.h5", **of_flow)
    with pytest.raises(InputError, match=told):
        run("--input", simulations / "s00.h5", path, "--output", tmp_path / "ds", *options.split())
