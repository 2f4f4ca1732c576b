"""A folder on gs:// that is worked on in its mirror, against a real store."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import DEFAULT, patch

import pytest
from google.cloud import storage as google_storage
from servers import Proxy, wait_until

from calopipe import gcs, mirror, storage
from calopipe.errors import InputError
from calopipe.gcs import GcsPath
from calopipe.mirror import mirrored, mirrored_file

RUN = GcsPath("runs", "a/run")


def _there() -> dict[str, str]:
    return {name: (RUN / name).read_text() for name in storage.listing(RUN)}


def _write(path: Path, text: str) -> None:
    with storage.replacing(path) as temporary:
        temporary.write_text(text)


def test_changes_reach_the_bucket_and_what_is_asked_for_the_mirror(tmp_path: Path, proxy: Proxy) -> None:
    for name in ("model/card.json", "model/checkpoints/1.npz", "other/2.h5", "top.json"):
        (RUN / name).write(name)
    (GcsPath("runs", "a/running") / "x").write("of another run")
    with mirrored(RUN, "model/*", "top.json") as folder:
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert found == {"model/card.json", "top.json"}
        assert mirror.address(folder / "model") == "gs://runs/a/run/model"
        assert mirror.address(folder) == "gs://runs/a/run"
        _write(folder / "made/new.json", "new")
        _write(folder / "top.json", "new text")  # as long as before
        storage.remove(folder / "model/card.json")
        assert _there() == {
            "made/new.json": "new",
            "model/checkpoints/1.npz": "model/checkpoints/1.npz",
            "other/2.h5": "other/2.h5",
            "top.json": "new text",
        }
        (RUN / "model/card.json").write("of another process")
        mirror.refresh(folder)
        assert (folder / "model/card.json").read_text() == "of another process"
        (folder / "untold").write_text("by a library")
        (folder / ".half.partial").write_text("half")
        storage.discard(folder / "made")
        (folder / "top.json").unlink()  # as by what cleans a disk of old files
    assert _there() == {
        "model/card.json": "of another process",
        "model/checkpoints/1.npz": "model/checkpoints/1.npz",
        "other/2.h5": "other/2.h5",
        "top.json": "new text",
        "untold": "by a library",
    }
    assert not folder.exists()


def test_a_mirror_that_only_reads_changes_nothing_in_the_bucket(proxy: Proxy) -> None:
    (RUN / "a").write("a")
    with pytest.MonkeyPatch.context() as patch, mirrored(RUN, "*", writes=False) as folder:
        patch.setattr(GcsPath, "write", lambda *_, **__: pytest.fail("something was written"))
        (folder / "a").write_text("b")
        (folder / "new").touch()
    assert _there() == {"a": "a"}


def test_what_another_process_removed_is_gone_and_stays_so(proxy: Proxy) -> None:
    for name in ("a", "b"):
        (RUN / name).write(name)
    with mirrored(RUN, "*") as folder:
        (RUN / "a").unlink()
        (RUN / "c").write("c")
        mirror.refresh(folder)
        assert {path.name for path in folder.iterdir()} == {"b", "c"}
        storage.remove(folder / "c")
    assert _there() == {"b": "b"}


def test_a_folder_in_which_another_process_removes_files_is_listed_again(proxy: Proxy) -> None:
    """It is listed again twice; after that it is an error."""
    (RUN / "a").write("a")
    gone = FileNotFoundError(errno.ENOENT, "no such object")
    twice = patch.object(gcs, "download", wraps=gcs.download, side_effect=[gone, gone, DEFAULT])
    with twice, mirrored(RUN, "*") as folder:
        assert (folder / "a").read_text() == "a"
    always = patch.object(gcs, "download", side_effect=gone)
    with always as download, pytest.raises(FileNotFoundError), mirrored(RUN, "*"):
        pytest.fail("the work began")
    assert download.call_count == 3


def test_a_browser_shows_what_a_person_reads(proxy: Proxy) -> None:
    with mirrored(RUN) as folder:
        for name in ("report.html", "model/card.json", "logs/a.log", "generated.h5"):
            _write(folder / name, "x")
    (RUN / "z.json").write("{}")
    bucket = google_storage.Client(project="test").bucket(RUN.bucket)
    kinds = [bucket.get_blob(f"{RUN.key}/{name}").content_type for name in sorted(_there())]
    text = "charset=utf-8"
    shown = [f"text/plain; {text}", "application/json", f"text/html; {text}", "application/json"]
    assert kinds == ["application/octet-stream", *shown]


def test_a_file_has_its_parts_beside_it(proxy: Proxy) -> None:
    (RUN / ".a.h5.parts/1.h5").write("part")
    (RUN / "b.h5").write("another's")
    with mirrored_file(RUN / "a.h5") as file:
        assert [path.name for path in file.parent.rglob("*.h5")] == ["1.h5"]
        storage.discard(file.with_name(".a.h5.parts"))
        _write(file, "whole")
    assert _there() == {"a.h5": "whole", "b.h5": "another's"}
    (RUN / "exported/variables/1").write("in a folder")
    with mirrored_file(RUN / "exported") as folder:
        assert (folder / "variables/1").read_text() == "in a folder"


def test_what_nobody_told_of_reaches_the_bucket_in_the_order_of_its_change(proxy: Proxy) -> None:
    with patch.object(GcsPath, "upload", autospec=True) as upload, mirrored(RUN) as folder:
        for name, second in (("b", 2), ("a", 3), ("c", 1)):
            (folder / name).touch()
            os.utime(folder / name, ns=(0, second * 10**9))
    assert [call.args[0].name for call in upload.call_args_list] == ["c", "b", "a"]


_WRITER = """
import sys
from calopipe import storage
from calopipe.mirror import mirrored
with mirrored(storage.location("gs://runs/a/run"), "**") as folder:
    for number in range(100000):
        for name in ("data", "names the data"):
            with storage.replacing(folder / f"{number:06d} {name}") as temporary:
                temporary.write_text(name * 1000)
        if number > 3:
            storage.remove(folder / f"{number - 3:06d} names the data")
            storage.remove(folder / f"{number - 3:06d} data")
"""


def test_a_killed_process_leaves_what_names_beside_what_it_names(tmp_path: Path, proxy: Proxy) -> None:
    with subprocess.Popen([sys.executable, "-c", _WRITER]) as process:
        wait_until(lambda: any(name > "000020" for name in storage.listing(RUN)), "files", every_s=0.01)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    names = storage.listing(RUN)
    naming = [name for name in names if name.endswith("names the data")]
    assert naming
    assert all(name.replace("names the data", "data") in names for name in naming)
    left = list((tmp_path / "tmp").rglob("run-*"))
    with mirrored(RUN):
        assert not [path for path in left if path.exists()]
    assert len(left) == 1


def test_a_stopped_process_says_what_did_not_reach_the_bucket(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gcs, "_RETRY_SECONDS", 0.5)
    with pytest.raises(SystemExit), mirrored(RUN) as folder:  # noqa: PT012  as a training that is told to stop
        proxy.close()
        (folder / "checkpoint").write_text("by a library")
        raise SystemExit(143)
    assert "not all that was done is in the bucket: gs://runs/a/run/checkpoint: the store cannot be" in caplog.text


def test_an_upload_that_is_interrupted_is_made_at_the_end(proxy: Proxy) -> None:
    interrupted = patch.object(GcsPath, "upload", side_effect=KeyboardInterrupt)  # as by Ctrl-C
    with pytest.raises(KeyboardInterrupt), mirrored(RUN) as folder, interrupted:
        _write(folder / "a", "whole")
    assert _there() == {"a": "whole"}


def test_after_an_upload_that_failed_none_is_made(proxy: Proxy) -> None:
    """A later file may name the missing one."""
    failed = patch.object(GcsPath, "upload", side_effect=InputError("no such place"))
    with pytest.raises(InputError, match="no such place"), mirrored(RUN) as folder:  # noqa: PT012  as of a bucket
        (folder / "untold").write_text("by a library")
        with failed, pytest.raises(InputError, match="no such place"):
            _write(folder / "data", "lost")
        _write(folder / "names the data", "it")
    assert _there() == {}


def test_a_request_starts_no_thread(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of the client would repeat its own request, after pauses that it draws from Python's `random`."""
    here, started, start = threading.current_thread(), [], threading.Thread.start

    def recorded(thread: threading.Thread) -> None:
        if threading.current_thread() is here:  # those of the way to the store are started by it
            started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", recorded)
    (RUN / "a").write("a")
    assert (RUN / "a").read_text() == "a"
    assert not started
