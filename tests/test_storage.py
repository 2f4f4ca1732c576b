"""Files on a file system: how they are named, how changes are noticed, how they are replaced, read and removed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from calopipe import mirror, storage
from calopipe.documents import DocumentError, Form, read_json
from calopipe.errors import InputError
from calopipe.gcs import GcsPath


@pytest.mark.parametrize("text", ["", "s3://bucket/a", "file:///a", "GS://bucket/a", "gs:/bucket/a", "gs:///a"])
def test_what_is_neither_a_path_nor_an_address_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        storage.location(text)


def test_an_address_is_taken_apart_as_a_path_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert storage.location("~/a:b.h5") == Path("/home/me/a:b.h5")
    assert storage.location("gs://bucket/a/b/") == GcsPath("bucket", "a/b")
    address = GcsPath("bucket", "a/b.h5")
    assert (str(address), address.name, str(address.parent)) == ("gs://bucket/a/b.h5", "b.h5", "gs://bucket/a")
    root = address.parent.parent
    assert (str(root), root.name, root / "c/d") == ("gs://bucket", "", GcsPath("bucket", "c/d"))


def test_files_that_are_named_come_sorted_and_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b.h5", "a.h5", "c/d.h5", "[x].h5", "x.h5", "folder.h5/e"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    Path("a.link").symlink_to("a.h5")
    Path("b.link").symlink_to("z.h5")
    assert [str(path) for path in storage.expand(["b.h5", "*.h5"])] == ["[x].h5", "a.h5", "b.h5", "x.h5"]
    assert storage.expand(["[x].h5"]) == [Path("[x].h5")]
    assert storage.expand(["**/d.h5"]) == [Path("c/d.h5")]
    for patterns, told in (
        ([], "no input files"),
        (["c"], "c: a folder, not a file"),
        (["a.h5", "*.hdf5"], r"\*\.hdf5: the pattern matches no file"),
        (["y.h5"], r"y\.h5: no such file"),
        (["~nobody-of-this-name/y.h5"], "there is no such user here"),
        (["*.link"], r"b\.link: a link to a file that is not there"),
    ):
        with pytest.raises(InputError, match=told):
            storage.expand(patterns)


def test_a_file_that_changes_or_goes_has_another_stamp(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    os.utime(path, ns=(0, 6_000_000_000))
    before = storage.stamp(path)
    assert before == (3, 6_000_000_000)
    storage.require_unchanged(path, before)
    os.utime(path, ns=(0, 8_000_000_000))
    with pytest.raises(InputError, match="changed while it was read"):
        storage.require_unchanged(path, before)
    path.unlink()
    with pytest.raises(InputError, match="changed while it was read"):
        storage.require_unchanged(path, before)


def test_a_change_within_the_tick_of_a_file_systems_clock_may_leave_the_stamp() -> None:
    """The tick is two seconds on FAT. Objects of a store have generations instead."""
    stamp = (1, 10_000_000_000)
    assert [storage.settled(Path("a"), stamp, since) for since in (9.0, 11.9, 12.1)] == [False, False, True]
    assert storage.settled(GcsPath("b", "a"), stamp, 9.0)


def test_files_under_a_folder_are_listed_hashed_and_removed(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/1").write_bytes(b"1")
    (tmp_path / "a/b/22").write_bytes(b"22")
    assert storage.listing(tmp_path) == {"a/1": 1, "a/b/22": 2}
    assert storage.listing(tmp_path / "nowhere") == {}
    sha256 = hashlib.sha256(b"22").hexdigest()
    assert storage.sha256_of_file(tmp_path / "a/b/22") == sha256
    storage.require_file(tmp_path / "a/b/22", sha256)
    for path in (tmp_path / "a/1", tmp_path / "a/none"):
        with pytest.raises(InputError, match="missing, or not the file just made"):
            storage.require_file(path, sha256)
    storage.discard(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
    storage.remove(tmp_path / "none")


def test_a_fingerprint_is_of_the_content_and_not_of_its_order() -> None:
    assert storage.fingerprint({"a": 1, "b": [1, 2]}) == storage.fingerprint({"b": [1, 2], "a": 1})
    others = [{"a": 1, "b": [2, 1]}, {"a": 1}, {"a": "1", "b": [1, 2]}, {"a": 1.5, "b": [1, 2]}]
    assert len({storage.fingerprint(document) for document in others}) == 4


def test_results_come_in_the_order_of_the_items_whichever_is_done_first() -> None:
    last_is_done = threading.Event()

    def work(number: int) -> int:
        assert number or last_is_done.wait(60)
        if number == 3:
            last_is_done.set()
        return number

    assert storage.at_once(work, range(4)) == [0, 1, 2, 3]


def test_only_what_writers_left_an_hour_ago_is_swept(tmp_path: Path) -> None:
    ages = {"a/.old.partial": 4000, ".young.partial": 3000, "old.partial": 4000, ".old": 4000}
    for name, age in ages.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, time.time() - age))
    storage.sweep(tmp_path)
    assert set(storage.listing(tmp_path)) == {".young.partial", "old.partial", ".old"}


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "made/here/a"
    with storage.replacing(path) as temporary:
        temporary.write_text("first")
        assert temporary.parent == path.parent
        assert not path.exists()
    with pytest.raises(RuntimeError), storage.replacing(path) as temporary:  # noqa: PT012  as a command does
        temporary.write_text("second")
        raise RuntimeError
    assert path.read_text() == "first"
    for named, told in ((None, str(path)), ("temporary", str(path)), ("/elsewhere", "/elsewhere")):
        with pytest.raises(OSError, match="full") as full, storage.replacing(path) as temporary:
            raise OSError(errno.ENOSPC, "full", str(temporary) if named == "temporary" else named)
        assert full.value.filename == told
    storage.put(path, tmp_path / "copy")
    assert {name: (tmp_path / name).read_text() for name in storage.listing(tmp_path)} == {
        "made/here/a": "first", "copy": "first"
    }  # fmt: skip
    storage.require_writable(tmp_path / "new/folder")
    assert list((tmp_path / "new/folder").iterdir()) == []


def test_a_document_is_json_and_of_several_that_are_created_the_first_stays(tmp_path: Path) -> None:
    path = tmp_path / "new/a.json"
    with pytest.raises(ValueError, match="JSON"):
        storage.write_json(path, {"value": float("nan")})
    assert not path.exists()
    assert storage.create_json(path, {"b": 1, "a": 2})
    assert storage.create_json(path, {"a": 2, "b": 1})  # as after an answer that was lost
    assert not storage.create_json(path, {"a": 3})
    assert list(json.loads(path.read_text()).items()) == [("b", 1), ("a", 2)]
    assert storage.listing(tmp_path).keys() == {"new/a.json"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no such file; a card was expected there"),
        ("{", "not a card: not valid JSON"),
        (b"\xff", "not a card: not valid JSON"),
        ("[]", "not a card: its 'kind'"),
        ({"kind": "deck", "schema_version": 2}, "not a card: its 'kind'"),
        ({"kind": "card"}, "card of schema version None"),
        ({"kind": "card", "schema_version": 3}, "card of schema version 3, this program reads 2"),
        ({"kind": "old card", "schema_version": 1}, "old card of schema version 1, this program reads 2"),
    ],
)
def test_a_document_of_another_kind_or_version_is_refused(tmp_path: Path, content: Any, told: str) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        whole = json.dumps(content) if isinstance(content, dict) else content
        path.write_bytes(whole if isinstance(whole, bytes) else whole.encode())
    with pytest.raises(DocumentError, match=told):
        read_json(path, "card", "old card", schema_version=2)


def test_a_document_stands_for_the_request_that_it_was_made_for(tmp_path: Path) -> None:
    form, path = Form("card", 2), tmp_path / "a.json"
    assert form.standing(path, "r") is None
    document = form.write(path, {"request": "r", "value": 1})
    assert document == {"kind": "card", "schema_version": 2, "request": "r", "value": 1}
    assert form.read(path) == form.standing(path, "r") == document
    assert read_json(path, "deck", "card", schema_version=2) == document
    assert form.standing(path, "s") is None
    assert Form("card", 3).standing(path, "r") is None


def test_temporary_files_are_kept_from_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert mirror._own_temporary().stat().st_mode & 0o777 == 0o700
    assert mirror._own_temporary() == tmp_path / f"calopipe-{os.getuid()}"
    other = os.getuid() + 1
    monkeypatch.setattr("os.getuid", lambda: other)  # whose folder is made by this one
    with pytest.raises(InputError, match=f"calopipe-{other}: belongs to another user"):
        mirror._own_temporary()
