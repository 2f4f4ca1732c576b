"""Input and dataset on gs://, against a real store; and the effects of a connection that breaks."""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from commands import command_of, made, refused, run
from servers import Proxy
from showers import make_file

from calopipe import gcs, storage
from calopipe.errors import InputError
from calopipe.events.contents import MEMORY
from calopipe.gcs import GcsPath
from preprocessing.dataset import at_hand, read_manifest

BUCKET = "runs"


def _put(file: Path, key: str) -> str:
    GcsPath(BUCKET, key).upload(file)
    return f"gs://{BUCKET}/{key}"


def _hashes(folder: storage.Location) -> dict[str, str]:
    names = [name for name in storage.listing(folder) if name != MEMORY]
    return {name: storage.sha256_of_file(folder / name) for name in names}


def test_the_dataset_is_the_same_wherever_it_lies(tmp_path: Path, proxy: Proxy) -> None:
    files = [make_file(tmp_path / f"{seed}.h5", events=40, seed=seed) for seed in range(2)]
    for file in files:
        _put(file, f"in/{file.name}")
    run("--input", tmp_path / "*.h5", "--output", tmp_path / "ds", "--shard-events", 20)
    run("--input", f"gs://{BUCKET}/in/*.h5", "--output", f"gs://{BUCKET}/ds", "--shard-events", 20)
    run("--input", f"gs://{BUCKET}/in/*.h5", "--output", tmp_path / "ds2", "--shard-events", 20)
    local = _hashes(tmp_path / "ds")
    assert len(local) > 6
    assert _hashes(GcsPath(BUCKET, "ds")) == local
    assert _hashes(tmp_path / "ds2") == local


def test_the_second_run_reads_no_showers(tmp_path: Path, proxy: Proxy) -> None:
    address = _put(make_file(tmp_path / "a.h5", events=300), "in/a.h5")
    run("--input", address, "--output", f"gs://{BUCKET}/ds")
    before = proxy.received
    assert "dataset stands" in run("--input", address, "--output", f"gs://{BUCKET}/ds")
    # the manifest, twice
    assert proxy.received - before < 40_000 < (tmp_path / "a.h5").stat().st_size
    _put(make_file(tmp_path / "a.h5", events=300, seed=1), "in/a.h5")  # another generation
    assert "1 of 1 pieces to do" in run("--input", address, "--output", f"gs://{BUCKET}/ds")


def test_patterns_pass_no_slash_but_by_two_stars(tmp_path: Path, proxy: Proxy) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "empty").touch()
    for folder in ("a/", "a/b/", "a/new/"):  # as consoles make them
        _put(tmp_path / "empty", folder)
    for key in ("a/1.h5", "a/2.h5", "a/n.txt", "a/b/3.h5", "a/b/c/5.h5", "a/[4].h5"):
        (tmp_path / key).write_bytes(b"x")
        _put(tmp_path / key, key)

    def keys(pattern: str) -> list[str]:
        return [path.key for path in storage.expand([f"gs://{BUCKET}/{pattern}"]) if isinstance(path, GcsPath)]

    assert keys("a/*.h5") == ["a/1.h5", "a/2.h5", "a/[4].h5"]
    assert keys("a/[12].h5") == ["a/1.h5", "a/2.h5"]
    assert keys("a/**/*.h5") == ["a/1.h5", "a/2.h5", "a/[4].h5", "a/b/3.h5", "a/b/c/5.h5"]
    assert keys("**/b/c/*") == keys("a/b/**/c/*.h5") == ["a/b/c/5.h5"]
    on_disk = storage.expand([f"{tmp_path}/a/**/*.h5"])
    assert [str(path) for path in on_disk] == [f"{tmp_path}/{key}" for key in keys("a/**/*.h5")]
    assert keys("*/b/*") == ["a/b/3.h5"]
    assert keys("a/*") == ["a/1.h5", "a/2.h5", "a/[4].h5", "a/n.txt"]
    assert set(storage.listing(storage.location(f"gs://{BUCKET}/a/b"))) == {"3.h5", "c/5.h5"}
    assert keys("a/[4].h5") == ["a/[4].h5"]
    for pattern in ("a/*.hdf5", "A/*", "*/b", "a/b/c/*/*"):
        with pytest.raises(InputError, match="matches no object"):
            keys(pattern)


def test_an_object_is_written_removed_and_looked_at_as_a_file_is(tmp_path: Path, proxy: Proxy) -> None:
    path = GcsPath(BUCKET, "a/b.json")
    for look in (path.stat, path.read_text, path.unlink):
        with pytest.raises(FileNotFoundError, match="no such object"):
            look()
    path.unlink(missing_ok=True)
    assert not path.is_file()
    first = path.write("one", generation=0)
    with pytest.raises(FileExistsError):
        path.write("two", generation=0)
    second = path.write("two!", generation=first)
    assert (path.read_text(), path.stat().st_size, path.stat().generation) == ("two!", 4, second)
    assert (second != first, storage.stamp(path)) == (True, (4, second))
    GcsPath(BUCKET, "a/bc").write("")
    GcsPath(BUCKET, "ab").write("")
    assert storage.listing(GcsPath(BUCKET, "a")) == {"b.json": 4, "bc": 0}
    assert storage.listing(GcsPath(BUCKET, "")).keys() == {"a/b.json", "a/bc", "ab"}
    assert gcs.objects(GcsPath(BUCKET, "a"), "b.") == {"b.json": 4}
    new = GcsPath(BUCKET, "new.json")
    assert [storage.create_json(new, {"a": number}) for number in (1, 1, 2)] == [True, True, False]
    assert new.read_text() == '{\n "a": 1\n}\n'
    storage.fetched(GcsPath(BUCKET, "a"), ["b.json"], tmp_path)
    assert (tmp_path / "b.json").read_text() == "two!"
    storage.require_writable(GcsPath(BUCKET, "out"))
    storage.discard(GcsPath(BUCKET, "a"))
    assert storage.listing(GcsPath(BUCKET, "")).keys() == {"ab", "new.json"}


def test_reading_anywhere_in_an_object(tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the object is removed meanwhile, there is an error."""
    monkeypatch.setattr(gcs, "_READ_BYTES", 1000)
    rng = random.Random(1)
    content = rng.randbytes(54_321)
    (tmp_path / "file").write_bytes(content)
    path = storage.location(_put(tmp_path / "file", "file"))
    with path.open("rb") as reader, (tmp_path / "file").open("rb") as on_disk:
        for _ in range(60):
            place, size = rng.randrange(60_000), rng.randrange(5_000)
            whence = rng.choice([os.SEEK_SET, os.SEEK_CUR, os.SEEK_END])
            back = {os.SEEK_SET: 0, os.SEEK_CUR: on_disk.tell(), os.SEEK_END: len(content)}[whence]
            for file in (reader, on_disk):
                file.seek(place - back, whence)
            assert reader.read(size) == on_disk.read(size)
    assert storage.sha256_of_file(path) == hashlib.sha256(content).hexdigest()
    with pytest.raises(FileNotFoundError), path.open("rb") as reader:  # noqa: PT012  at its end
        path.unlink()
        assert reader.read(4) == bytes(4)


def test_many_objects_at_once_ask_for_no_more_connections_than_there_are(
    tmp_path: Path, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    paths = [storage.location(_put(tmp_path / "file", str(number))) for number in range(4)]
    assert {size for size, _ in storage.at_once(storage.stamp, paths * 10)} == {1}
    assert "Connection pool" not in caplog.text


def test_an_upload_that_is_cut_goes_on_where_it_was(tmp_path: Path, proxy: Proxy) -> None:
    size = 40 << 20
    (tmp_path / "big").write_bytes(os.urandom(size))
    before = proxy.sent
    proxy.cut_after(26 << 20)
    address = _put(tmp_path / "big", "big")
    assert proxy.seen["cut"] == 1
    assert proxy.sent - before < size + (12 << 20)  # one piece of 8 MiB again, not all 26
    assert storage.sha256_of_file(storage.location(address)) == storage.sha256_of_file(tmp_path / "big")


def test_a_store_that_goes_away_leaves_nothing_that_is_trusted(
    tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes away before the fifth shard is uploaded."""
    monkeypatch.setattr(gcs, "_RETRY_SECONDS", 1.0)
    source = ("--input", make_file(tmp_path / "a.h5", events=200), "--shard-events", 20)
    whole, output = tmp_path / "ds", f"gs://{BUCKET}/ds"
    run(*source, "--output", whole)
    upload, uploads = GcsPath.upload, count(1)

    def upload_five(path: GcsPath, local: Path) -> None:
        if path.name.endswith(".tfrecord") and next(uploads) == 5:
            proxy.close()
        upload(path, local)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GcsPath, "upload", upload_five)
        assert re.search("the store cannot be reached.* run again", refused(*source, "--output", output))
    again = Proxy(proxy.target_port)  # the way is free again
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", again.address)
    gcs._client_of.cache_clear()
    with pytest.raises(InputError, match=r"manifest\.json: no such file"):
        read_manifest(storage.location(output))
    run(*source, "--output", output)
    assert _hashes(storage.location(output)) == _hashes(whole)
    again.close()


def test_what_is_not_there_is_told_of(tmp_path: Path, proxy: Proxy) -> None:
    output = ("--output", tmp_path / "ds")
    assert "there is no bucket none" in refused("--input", "gs://none/*.h5", *output)
    assert f"gs://{BUCKET}/a.h5: no such file" in refused("--input", f"gs://{BUCKET}/a.h5", *output)
    (tmp_path / "bad.h5").write_bytes(b"no showers")
    told = refused("--input", _put(tmp_path / "bad.h5", "bad.h5"), *output)
    assert f"gs://{BUCKET}/bad.h5: not an HDF5 file" in told


@pytest.mark.parametrize("in_bucket", [True, False])
def test_a_dataset_is_at_hand_unless_a_shard_was_altered(tmp_path: Path, proxy: Proxy, in_bucket: bool) -> None:
    """From a bucket only the shards of the splits are copied. A shard of another split may be altered."""
    folder = GcsPath(BUCKET, "ds") if in_bucket else tmp_path / "ds"
    manifest = made("--input", make_file(tmp_path / "a.h5", events=40), "--output", folder)
    train = {shard.name: shard.sha256 for shard in manifest.shards if shard.split == "train"}
    with at_hand(folder, manifest, ["train"]) as local:
        found = {name: sha256 for name, sha256 in _hashes(local).items() if name.endswith(".tfrecord")}
        assert found == train if in_bucket else local == folder
    assert local.exists() != in_bucket
    altered = folder / next(iter(train))
    storage.write_json(altered, "altered")
    with at_hand(folder, manifest, ["validation", "test"]):
        pass
    with pytest.raises(InputError, match=f"{altered}: altered since it was written"), at_hand(folder, manifest):
        pass


_VANISHING = """
import os
from pathlib import Path
from calopipe import gcs
from preprocessing.__main__ import main
from calopipe.errors import run_command
from calopipe.gcs import GcsPath

path, reads, readinto = GcsPath("runs", "a.h5"), 0, gcs._Reader.readinto

def vanishes(reader, buffer):
    global reads
    reads += 1
    if reads == number:
        path.unlink(missing_ok=True)
    return readinto(reader, buffer)

gcs._Reader.readinto = vanishes
for number in range(1, 8):
    if not os.fork():
        path.upload(Path({file!r}))
        run_command(lambda: main(["--input", str(path), "--output", {output!r}]))
        raise SystemExit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 2
"""


def test_an_object_that_vanishes_as_it_is_read_ends_in_one_line(tmp_path: Path, proxy: Proxy) -> None:
    """Each case is in a new process, since HDF5 can crash a process at its end."""
    program = _VANISHING.format(file=str(make_file(tmp_path / "a.h5", events=20)), output=str(tmp_path / "ds"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\nerror: gs://runs/a.h5") + done.stderr.startswith("error: gs://runs/a.h5") == 7
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "ds/manifest.json").exists()


def test_without_credentials_one_line_says_so(tmp_path: Path) -> None:
    hidden = {"STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"HOME": str(tmp_path), "NO_GCE_CHECK": "true"}
    done = subprocess.run(command_of("gs://b", tmp_path), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: ")]
    assert "no credentials for Google Cloud" in line
