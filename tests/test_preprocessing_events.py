"""The events of a dataset by their content: one is never in two splits, and what is there twice is counted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import tensorflow as tf
from commands import refusal
from showers import make_file, make_showers, write_file

from calopipe.errors import InputError
from calopipe.events.splits import SPLITS, SplitRule
from calopipe.events.tolerance import KEEP, SKIP, STOP
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from preprocessing import __main__ as command
from preprocessing.dataset import read_manifest
from preprocessing.events import digests_in
from preprocessing.manifest import DROPPED, SCHEMA_VERSION, Manifest
from preprocessing.pipeline import preprocess
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings

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


def _preprocess(files: list[Path], output: Path, *split_files: str, copies: str = KEEP) -> Manifest:
    settings = Settings(Selection(rule=SplitRule.parse(list(split_files))), shard_events=20)
    return preprocess(discover([str(file) for file in files]), output, settings, on_copies=copies)


def _cells_of(folder: Path, manifest: Manifest, split: str) -> set[bytes]:
    """The cells of the showers in the split's shards, by TensorFlow's own reader."""
    found = set()
    for shard in manifest.shards:
        if shard.split == split:
            for record in tf.data.TFRecordDataset(str(folder / shard.name)):
                feature = tf.train.Example.FromString(record.numpy()).features.feature
                found.add(feature["index"].bytes_list.value[0] + feature["value"].bytes_list.value[0])
    return found


def test_a_copy_of_a_file_brings_no_event_into_another_split(copies: list[Path], tmp_path: Path) -> None:
    alone = _preprocess(copies[:1], tmp_path / "alone")
    both = _preprocess(copies, tmp_path / "both")
    held = {split: _cells_of(tmp_path / "both", both, split) for split in SPLITS}
    assert sum(map(len, held.values())) == 120  # of 180 that were written: no split holds another's
    for split in SPLITS:
        assert _cells_of(tmp_path / "alone", alone, split) <= held[split]
    assert alone.events["repeated"] == 0
    assert both.events["repeated"] == 60


def test_copies_are_left_out_unless_they_are_to_stay(
    copies: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten of the other file's showers are copies too, at its end. The dataset is that of the first of each alone."""
    made = make_showers(events=60)
    with h5py.File(copies[2], "a") as file:
        for name, values in (("ECAL", made.cells), ("energy", made.energy_gev), ("theta", made.theta_rad)):
            file[name][50:] = values[:10]
    found = _preprocess(copies, tmp_path / "ds", copies=SKIP)
    told = re.escape("b.h5: event 0 is equal to one before it, as are 69 more: left out (--on-copies)")
    assert re.search(told, caplog.text)
    dropped = dict.fromkeys(DROPPED, 0) | {"copy": 70}
    assert found.events == {"read": 180, "written": 110, "repeated": 0, "dropped": dropped}
    assert [source.name for source in found.inputs] == ["a.h5", "c.h5"]
    held = [_cells_of(tmp_path / "ds", found, split) for split in SPLITS]
    assert sum(map(len, held)) == 110
    kept = _preprocess(copies, tmp_path / "ds", copies=KEEP)
    assert (kept.events["written"], kept.events["repeated"]) == (180, 70)
    assert kept.fingerprint != found.fingerprint
    assert [_cells_of(tmp_path / "ds", kept, split) for split in SPLITS] == held
    with pytest.raises(InputError, match=r"b.h5: event 0 is equal to one before it, as are 69 more; leave the copies"):
        _preprocess(copies, tmp_path / "ds", copies=STOP)
    assert _preprocess(copies, tmp_path / "ds", copies=SKIP) == found
    assert digests_in(tmp_path / "ds", found, SPLITS).size == 110


def test_copies_that_stay_are_told_whenever_it_is_asked(
    copies: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        caplog.clear()
        command.main(["--input", *map(str, copies), "--output", str(tmp_path / "ds"), "--on-copies", "keep"])
        assert "60 showers repeat another one of their split" in caplog.text


def test_an_event_in_two_splits_is_refused_with_its_places(copies: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="are one event, and 59 more are in two splits; leave one of") as caught:
        _preprocess(copies, tmp_path / "ds", "test=b.h5", "train=[ac].h5")
    assert not (tmp_path / "ds/manifest.json").exists()
    places = dict(re.findall(r"event (\d+) of \S+/([ab])\.h5", str(caught.value)))
    at = {name: int(event) for event, name in places.items()}
    assert _ORDER[at["b"]] == at["a"]
    assert "a.h5 is in train" in str(caught.value)
    assert "b.h5 is in test" in str(caught.value)
    _preprocess(copies, tmp_path / "ds", "test=[ab].h5")


def test_an_event_that_was_dropped_is_in_no_split(tmp_path: Path) -> None:
    showers = make_showers(events=20)
    showers.cells[4] = 0
    paths = [write_file(tmp_path / f"{name}.h5", showers[:5] if name == "a" else showers[4:]) for name in "ab"]
    manifest = _preprocess(paths, tmp_path / "ds", "train=a.h5", "test=b.h5")
    assert manifest.events["dropped"]["below_cut"] == 2


def test_the_digests_of_a_split_are_those_of_its_showers(copies: list[Path], tmp_path: Path) -> None:
    manifest = _preprocess(copies[1:], tmp_path / "ds")
    for splits in (["train"], ["train", "validation"], ["test"]):
        expected: set[int] = set()
        for path in copies[1:]:
            for split in splits:
                mask, digests = open_showers(path).chosen(Selection(split))
                expected |= set(digests[mask].tolist())
        assert digests_in(tmp_path / "ds", manifest, splits).tolist() == sorted(expected)


def test_a_dataset_whose_receipts_are_gone_tells_so(copies: list[Path], tmp_path: Path) -> None:
    manifest = _preprocess(copies[:1], tmp_path / "ds")
    next((tmp_path / "ds/shards").glob("*.json")).unlink()
    with pytest.raises(InputError, match=r"what it holds of each event cannot be read .*; preprocess again"):
        digests_in(tmp_path / "ds", manifest, ["train"])


def test_a_dataset_of_another_version_is_refused_and_made_again_in_its_folder(
    copies: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _preprocess(copies[:1], tmp_path / "ds")
    path = tmp_path / "ds/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": SCHEMA_VERSION - 1}))
    assert "make it again with this version" in refusal(capsys, read_manifest, tmp_path / "ds")
    _preprocess(copies[:1], tmp_path / "ds")
    assert read_manifest(tmp_path / "ds").events["written"] == 60
