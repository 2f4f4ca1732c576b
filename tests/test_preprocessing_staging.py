"""Shards are checked once a host: by one of several processes, and not again until they change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from showers import make_dataset, make_file

from calopipe.errors import InputError
from preprocessing.dataset import read_manifest
from preprocessing.manifest import Manifest
from preprocessing.staging import MEMORY, at_hand

_LONG_AGO = 1_700_000_000


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eighteen shards that were written long ago; temporary files are the test's own."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    make_dataset(tmp_path / "ds", make_file(tmp_path / "a.h5", events=120), shard_events=20)
    for shard in (tmp_path / "ds/shards").iterdir():
        os.utime(shard, (_LONG_AGO, _LONG_AGO))
    return tmp_path / "ds"


def _read(dataset: Path, *splits: str) -> None:
    with at_hand(dataset, read_manifest(dataset), splits or ("train", "validation", "test")) as local:
        assert local == dataset


def _names(manifest: Manifest, *splits: str) -> list[str]:
    return sorted(Path(shard.name).name for shard in manifest.shards if shard.split in splits)


def test_a_shard_is_hashed_once(dataset: Path, hashed: list[str]) -> None:
    manifest = read_manifest(dataset)
    _read(dataset, "train", "validation")
    assert sorted(hashed) == _names(manifest, "train", "validation")
    _read(dataset, "train", "validation")
    assert len(hashed) == len(_names(manifest, "train", "validation"))
    _read(dataset)
    assert sorted(hashed) == _names(manifest, "train", "validation", "test")


@pytest.mark.parametrize("disguised", [False, True])
def test_an_altered_shard_is_noticed(dataset: Path, disguised: bool) -> None:
    """Of the same size, with other bytes, and a new time of change or the old one."""
    _read(dataset)
    shard = dataset / read_manifest(dataset).shards[3].name
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    shard.write_bytes(content)
    if disguised:
        os.utime(shard, (_LONG_AGO, _LONG_AGO))
    for _ in range(2):  # what is altered is not remembered
        with pytest.raises(InputError, match=rf"{shard}: altered since it was written"):
            _read(dataset)
    content[100] ^= 1
    shard.write_bytes(content)
    _read(dataset)


def test_a_shard_is_hashed_again_where_the_manifest_expects_another(dataset: Path) -> None:
    _read(dataset)
    document = json.loads((dataset / "manifest.json").read_text())
    document["shards"][0]["sha256"] = "0" * 64
    (dataset / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="altered"):
        _read(dataset)


def test_a_young_shard_is_not_remembered(dataset: Path, hashed: list[str]) -> None:
    """The next change could leave its time as it is."""
    shard = dataset / read_manifest(dataset).shards[0].name
    shard.touch()
    for _ in range(2):
        _read(dataset)
    assert hashed.count(shard.name) == 2
    assert len(hashed) == len(read_manifest(dataset).shards) + 1


@pytest.mark.parametrize("memory", ["", "{}", '{"kind": "calopipe.checked", "schema_version": 1}'])
def test_a_damaged_memory_costs_only_time(dataset: Path, hashed: list[str], memory: str) -> None:
    (dataset / MEMORY).write_text(memory)
    for _ in range(2):
        _read(dataset)
    assert len(hashed) == len(read_manifest(dataset).shards)


_WORKER = """
import sys, time
from pathlib import Path
from calopipe import storage
from preprocessing.dataset import read_manifest
from preprocessing.staging import at_hand

hashed, sha256_of_file = [], storage.sha256_of_file

def noted(path):
    hashed.append(path)
    time.sleep(0.2)  # so that the others come meanwhile
    return sha256_of_file(path)

storage.sha256_of_file = noted
with at_hand(Path(sys.argv[1]), read_manifest(Path(sys.argv[1]))):
    print(len(hashed))
"""


def test_of_several_processes_one_hashes_and_the_others_wait(dataset: Path, tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    workers = [
        subprocess.Popen([sys.executable, "-c", _WORKER, dataset], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(4)
    ]
    counts = sorted(int(worker.communicate(timeout=300)[0]) for worker in workers)
    assert counts == [0, 0, 0, len(read_manifest(dataset).shards)]


def test_a_folder_of_another_user_is_not_trusted(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _read(dataset)
    owner = os.getuid()
    taken = dataset.parent / f"temporary/calopipe-{owner + 1}"
    (dataset.parent / f"temporary/calopipe-{owner}").rename(taken)
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(InputError, match=rf"{taken}: belongs to another user"):
        _read(dataset)
