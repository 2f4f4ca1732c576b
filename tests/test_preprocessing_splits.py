"""The split of an event, by its content or its file's name: no event is in two splits, and copies are counted."""

from __future__ import annotations

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from commands import made, records_of, refused, run
from showers import make_dataset, make_file, make_showers, write_file

from calopipe.errors import InputError
from calopipe.events.splits import SPLITS, SplitRule
from calopipe.events.tolerance import KEEP, SKIP, STOP
from calopipe.showers.files import open_showers
from calopipe.showers.hits import Hits, event_digests
from calopipe.showers.selection import Selection
from preprocessing.dataset import read_manifest
from preprocessing.events import digests_in
from preprocessing.manifest import DROPPED

_RANDOM = np.random.default_rng(1).integers(0, 2**64, 100_000, dtype=np.uint64)


def _split_mix_64(state: int) -> int:
    z = (state + 0x9E3779B97F4A7C15) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def _bits(value: float) -> int:
    return int.from_bytes(np.float32(value).tobytes(), "little")


def test_against_python_integers() -> None:
    showers = make_showers(events=300)
    showers.cells[7] = 0
    expected = []
    for cells, energy, theta in zip(showers.cells, showers.energy_gev, showers.theta_rad, strict=True):
        hits = sum(_split_mix_64(k << 32 | _bits(value)) for k, value in enumerate(cells.ravel()) if value)
        labels = _split_mix_64(_bits(energy) << 32 | _bits(theta))
        expected.append(_split_mix_64(_split_mix_64(hits % 2**64) ^ labels))
    digests = event_digests(Hits.of(showers.cells), showers.energy_gev, showers.theta_rad)
    assert digests.tolist() == expected
    shares = [digest / 2**64 for digest in expected]
    splits = [0 if share < 0.70 else 1 if share < 0.75 else 2 for share in shares]
    assert SplitRule().assign("x.h5", digests).tolist() == splits


def test_a_copy_of_a_file_is_divided_as_the_file_is(tmp_path: Path) -> None:
    """The copy has another order, other chunks, double precision, more labels and attributes, and negative zeros."""
    showers, order = make_showers(events=200), np.random.default_rng(0).permutation(200)
    file, again = open_showers(write_file(tmp_path / "a.h5", showers)), showers[order]
    energy, theta = (label.astype(np.float64) for label in (again.energy_gev[:, None], again.theta_rad))
    labels = {"energy": energy, "theta": theta, "mtheta": again.mtheta_rad, "eta": again.theta_rad}
    with h5py.File(write_file(tmp_path / "b.h5", again, ECAL=None, **labels), "r+") as written:
        cells = np.where(again.cells == 0, -0.0, again.cells.astype(np.float64))
        written.create_dataset("ECAL", data=cells, chunks=(7, 5, 17, 5), compression="gzip", shuffle=True)
        written.attrs["run"] = written["ECAL"].attrs["unit"] = "GeV x 50"
    copy = open_showers(tmp_path / "b.h5")
    for split in SPLITS:
        mask, digests = file.chosen(Selection(split, cut_gev=0))
        there, digests_there = copy.chosen(Selection(split, cut_gev=0))
        assert 0 < mask.sum() < 200
        np.testing.assert_array_equal(there, mask[order])
        np.testing.assert_array_equal(digests_there, digests[order])


def test_whole_files_by_name() -> None:
    rule = SplitRule.parse(["test=*_02[5-7].h5"])
    assert set(rule.assign("run_026.h5", _RANDOM)) == {SPLITS.index("test")}
    rest = rule.assign("run_003.h5", _RANDOM)
    counts = np.bincount(rest, minlength=3)
    assert counts[2] == 0
    assert counts[1] / counts.sum() == pytest.approx(0.05 / 0.75, abs=0.01)
    assert rule.may_hold("train", "run_003.h5")
    assert not rule.may_hold("train", "run_026.h5")
    assert not rule.may_hold("test", "run_003.h5")


def test_bad_assignments_and_a_file_that_no_split_takes() -> None:
    for text in ("tests=*.h5", "test", "test="):
        with pytest.raises(InputError, match="--split-file"):
            SplitRule.parse([text])
    with pytest.raises(InputError, match=r"d\.h5"):
        SplitRule.parse(["train=a*", "validation=b*", "test=c*"]).assign("d.h5", _RANDOM)


def test_a_file_that_is_wholly_in_another_split_is_not_read(tmp_path: Path) -> None:
    file = open_showers(make_file(tmp_path / "a.h5", events=20))
    file.path.unlink()
    mask, _ = file.chosen(Selection("train", SplitRule.parse(["test=a.h5"])))
    assert not mask.any()


_ORDER = np.random.default_rng(0).permutation(60)


@pytest.fixture
def copies(tmp_path: Path) -> list[Path]:
    """A file, its copy in another order and in double precision, and a file of other showers."""
    showers = make_showers(events=60)
    again = showers[_ORDER]
    return [
        write_file(tmp_path / "a.h5", showers),
        write_file(tmp_path / "b.h5", again, ECAL=again.cells.astype(np.float64)),
        make_file(tmp_path / "c.h5", events=60, seed=1),
    ]


def _held(folder: Path) -> dict[str, set[bytes]]:
    """The cells of the showers of each split in the shards, by TensorFlow's own reader."""
    held: dict[str, set[bytes]] = {split: set() for split in SPLITS}
    for split, each in records_of(folder):
        held[split].add(each["index"].bytes_list.value[0] + each["value"].bytes_list.value[0])
    return held


def test_copies_are_left_out_unless_they_are_to_stay(
    copies: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last ten showers of the other file are copies too. The dataset is the same as from first showers only."""
    made = make_showers(events=60)
    with h5py.File(copies[2], "a") as file:
        for name, values in (("ECAL", made.cells), ("energy", made.energy_gev), ("theta", made.theta_rad)):
            file[name][50:] = values[:10]
    output = tmp_path / "ds"
    found = make_dataset(output, *copies, shard_events=20)
    told = re.escape("b.h5: event 0 is equal to one before it, as are 69 more: left out (--on-copies)")
    assert re.search(told, caplog.text)
    dropped = dict.fromkeys(DROPPED, 0) | {"copy": 70}
    assert found.events == {"read": 180, "written": 110, "repeated": 0, "dropped": dropped}
    assert [source.name for source in found.inputs] == ["a.h5", "c.h5"]
    held = _held(tmp_path / "ds")
    assert sum(map(len, held.values())) == 110
    for _ in range(2):  # that they stay is told whenever it is asked
        caplog.clear()
        run("--input", *copies, "--output", output, "--shard-events", 20, "--on-copies", "keep")
        assert "70 showers repeat another one of their split" in caplog.text
    kept = read_manifest(output)
    assert (kept.events["written"], kept.events["repeated"]) == (180, 70)
    assert kept.fingerprint != found.fingerprint
    assert _held(tmp_path / "ds") == held  # so that no copy is in another split than the first
    with pytest.raises(InputError, match=r"b.h5: event 0 is equal to one before it, as are 69 more; leave the copies"):
        make_dataset(output, *copies, on_copies=STOP, shard_events=20)
    assert make_dataset(output, *copies, shard_events=20) == found
    with_copies, without = (make_dataset(tmp_path / name, *copies[::2], on_copies=name) for name in (KEEP, SKIP))
    assert [source.name for source in with_copies.inputs] == [source.name for source in without.inputs]
    assert with_copies.fingerprint != without.fingerprint


def test_of_a_file_of_copies_what_is_no_copy_may_be_dropped(tmp_path: Path) -> None:
    """Also a corrupt event of such a file is named."""
    showers = make_showers(events=10)
    first = write_file(tmp_path / "a.h5", showers)
    cells, energy = showers.cells.copy(), showers.energy_gev.copy()
    cells[7], energy[3:5] = 0, -1
    second = write_file(tmp_path / "b.h5", showers, ECAL=cells)
    dropped = make_dataset(tmp_path / "ds", first, second).events["dropped"]
    assert (dropped["copy"], dropped["below_cut"]) == (9, 1)
    third = write_file(tmp_path / "c.h5", showers, energy=energy)
    skip = ("--on-bad-event", "skip", "--max-bad-events", "0.01")
    assert "c.h5: event 3: energy is -1.0" in refused("--input", first, third, "--output", tmp_path / "ds", *skip)


def test_an_event_in_two_splits_is_refused_with_its_places(copies: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="are one event, and 59 more are in two splits; leave one of") as caught:
        make_dataset(tmp_path / "ds", *copies, split_files=["test=b.h5", "train=[ac].h5"], on_copies=KEEP)
    assert not (tmp_path / "ds/manifest.json").exists()
    places = dict(re.findall(r"event (\d+) of \S+/([ab])\.h5", str(caught.value)))
    at = {name: int(event) for event, name in places.items()}
    assert _ORDER[at["b"]] == at["a"]
    assert "a.h5 is in train" in str(caught.value)
    assert "b.h5 is in test" in str(caught.value)
    make_dataset(tmp_path / "ds", *copies, split_files=["test=[ab].h5"], on_copies=KEEP)


def test_an_event_that_was_dropped_is_in_no_split(tmp_path: Path) -> None:
    showers = make_showers(events=20)
    showers.cells[4] = 0
    paths = [write_file(tmp_path / f"{name}.h5", showers[:5] if name == "a" else showers[4:]) for name in "ab"]
    manifest = make_dataset(tmp_path / "ds", *paths, split_files=["train=a.h5", "test=b.h5"], on_copies=KEEP)
    assert manifest.events["dropped"]["below_cut"] == 2


def test_the_digests_of_a_split_are_those_of_its_showers(copies: list[Path], tmp_path: Path) -> None:
    """Each once, also if copies are kept."""
    manifest = make_dataset(tmp_path / "ds", *copies, on_copies=KEEP)
    for splits in (["train"], ["train", "validation"], ["test"]):
        expected: set[int] = set()
        for path in copies:
            for split in splits:
                mask, digests = open_showers(path).chosen(Selection(split))
                expected |= set(digests[mask].tolist())
        assert digests_in(tmp_path / "ds", manifest, splits).tolist() == sorted(expected)


def test_a_dataset_whose_receipts_are_gone_tells_so(copies: list[Path], tmp_path: Path) -> None:
    manifest = make_dataset(tmp_path / "ds", *copies[:1])
    next((tmp_path / "ds/shards").glob("*.json")).unlink()
    with pytest.raises(InputError, match=r"what it holds of each event cannot be read .*; preprocess again"):
        digests_in(tmp_path / "ds", manifest, ["train"])
    with pytest.raises(InputError, match=r"json: missing, it says what the shards hold; preprocess again"):
        read_manifest(tmp_path / "ds")
    make_dataset(tmp_path / "ds", *copies[:1])  # makes it again
    assert read_manifest(tmp_path / "ds").shards == manifest.shards


def test_a_file_is_given_to_a_split_by_its_name_with_brackets(tmp_path: Path) -> None:
    names = [make_file(tmp_path / f"run[{number}].h5", events=20, seed=number).name for number in (1, 2)]
    given = ("--split-file", f"test={names[0]}", "--split-file", f"train={names[1]}")
    manifest = made("--input", tmp_path / "*.h5", "--output", tmp_path / "ds", *given)
    assert [manifest.count(split) for split in SPLITS] == [20, 0, 20]
