"""Preprocessing through its command: counting, repeating, going on, and refusing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from commands import files_of, records_of, refusal, run, settled
from showers import make_file, make_showers, measured_angle, write_file

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.contents import MEMORY
from calopipe.showers.files import REQUEST, open_showers
from calopipe.showers.selection import Selection
from preprocessing.dataset import read_manifest
from preprocessing.events import receipts_of
from preprocessing.manifest import DROPPED
from preprocessing.reading import ordered_batches
from preprocessing.showers.inputs import discover


def test_events_in_are_events_out_and_dropped(tmp_path: Path) -> None:
    showers = make_showers(events=60)
    cells = showers.cells.copy()
    sums = cells.sum(axis=(1, 2, 3), dtype=np.float64)
    cut = float(np.sort(sums)[9]) * 0.02  # ten showers at or below it
    cells[5] = 0
    expected = int((cells.sum(axis=(1, 2, 3), dtype=np.float64) > cut / 0.02).sum())
    run("--input", write_file(tmp_path / "a.h5", showers, ECAL=cells), "--output", tmp_path / "ds", "--cut-gev", cut)
    document = json.loads((tmp_path / "ds/manifest.json").read_text())
    none = dict.fromkeys(DROPPED, 0)
    dropped = none | {"below_cut": 60 - expected}
    assert document["events"] == {"read": 60, "written": expected, "repeated": 0, "dropped": dropped}
    assert sum(document["splits"].values()) == expected
    assert expected in range(49, 52)


def test_cells_below_the_threshold_are_dropped_and_no_others(tmp_path: Path) -> None:
    showers = make_showers(events=10)
    run("--input", write_file(tmp_path / "a.h5", showers), "--output", tmp_path / "ds", "--threshold-gev", 0.003)
    for _, feature in records_of(tmp_path / "ds"):
        cells = showers.cells[feature["event"].int64_list.value[0]].ravel()
        kept = np.flatnonzero(cells >= 0.15)
        assert np.frombuffer(feature["index"].bytes_list.value[0], "<u2").tolist() == kept.tolist()


def test_a_shower_of_which_the_threshold_leaves_nothing_is_not_written(tmp_path: Path) -> None:
    """It stays an event of its split for whoever generates: these follow the cut alone, with a dataset or without."""
    showers = make_showers(events=10)
    cells = showers.cells.copy()
    cells[3] = np.minimum(cells[3], 0.05)
    path, output = write_file(tmp_path / "a.h5", showers, ECAL=cells), tmp_path / "ds"
    run("--input", path, "--output", output, "--threshold-gev", 0.003)
    manifest = read_manifest(output)
    assert manifest.events["dropped"] == dict.fromkeys(DROPPED, 0) | {"below_threshold": 1}
    written = [feature for _, feature in records_of(output)]
    assert sorted(each["event"].int64_list.value[0] for each in written) == [0, 1, 2, *range(4, 10)]
    assert all(each["index"].bytes_list.value[0] for each in written)
    selection, file = Selection(memory=output), open_showers(path)
    (told,) = receipts_of([file], selection)
    for found, expected in zip(told, file.chosen(selection), strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(InputError, match=r"a.h5: no shower has a cell of 1.0 GeV; .* or lower --threshold-gev"):
        run("--input", write_file(path, showers, ECAL=cells.clip(0, 0.1)), "--output", output, "--threshold-gev", 1)


def test_the_target_angle_is_that_of_the_cells_the_model_sees(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", events=40)
    run("--input", path, "--output", tmp_path / "ds", "--threshold-gev", 0.003)
    manifest = read_manifest(tmp_path / "ds")
    for batch in ordered_batches(tmp_path / "ds", manifest, "train", batch=40):
        np.testing.assert_allclose(measured_angle(batch["cells"].numpy()), batch["mtheta_rad"], rtol=1e-5)


def test_generated_showers_are_no_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_file(tmp_path / "a.h5", events=5)
    with h5py.File(path, "r+") as file:
        file.attrs[REQUEST] = "made of a model"
    assert "holds generated showers" in refusal(capsys, run, "--input", path, "--output", tmp_path / "ds")


def test_the_second_run_does_nothing_and_loads_nothing(tmp_path: Path) -> None:
    path = settled(make_file(tmp_path / "a.h5", events=30))
    run("--input", path, "--output", tmp_path / "ds")
    before = files_of(tmp_path / "ds")
    program = (
        "import sys; from preprocessing.__main__ import main;"
        f"main(['--input', {str(path)!r}, '--output', {str(tmp_path / 'ds')!r}]);"
        "assert not {'apache_beam', 'tensorflow', 'h5py'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "dataset stands" in done.stdout
    assert files_of(tmp_path / "ds") == before


def test_a_file_is_known_by_size_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = settled(make_file(tmp_path / "a.h5", events=30))
    common = ("--input", path, "--output", tmp_path / "ds")
    run(*common)
    stamp = path.stat()
    with h5py.File(path, "r+") as file:
        file["energy"][3] += 1  # in place: the same size
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert path.stat().st_size == stamp.st_size
    capsys.readouterr()
    run(*common)
    assert "dataset stands" in capsys.readouterr().out
    path.touch()
    run(*common)  # looked at again, and found another
    assert "1 of 1 pieces to do" in capsys.readouterr().out
    path.touch()
    run(*common)  # and the same
    assert "dataset stands" in capsys.readouterr().out


def test_a_file_that_may_still_change_unseen_is_not_remembered(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", events=5)
    now = time.time_ns()
    os.utime(path, ns=(now, now))
    run("--input", path, "--output", tmp_path / "ds")
    assert not (tmp_path / "ds" / MEMORY).exists()
    settled(path)
    run("--input", path, "--output", tmp_path / "ds")
    assert str(path) in (tmp_path / "ds" / MEMORY).read_text()


@pytest.mark.parametrize("content", ["{", "[]", '{"kind": "calopipe.inputs", "schema_version": 1}', "\xff"])
def test_a_damaged_memory_is_no_memory(tmp_path: Path, content: str) -> None:
    path = settled(make_file(tmp_path / "a.h5", events=5))
    run("--input", path, "--output", tmp_path / "ds")
    (tmp_path / "ds" / MEMORY).write_bytes(content.encode("latin-1"))
    run("--input", path, "--output", tmp_path / "ds")
    assert read_manifest(tmp_path / "ds").events["written"] == 5


@pytest.mark.parametrize("content", ["{", "{}", '{"kind": "calopipe.shards", "schema_version": 2}'])
def test_a_damaged_receipt_costs_its_piece(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("--input", make_file(tmp_path / "a.h5", events=40), "--output", tmp_path / "ds", "--shard-events", 20)
    run(*common)
    whole = files_of(tmp_path / "ds")
    next((tmp_path / "ds/shards").glob("*.json")).write_text(content)
    (tmp_path / "ds/manifest.json").unlink()
    capsys.readouterr()
    run(*common)
    assert "1 of 2 pieces to do" in capsys.readouterr().out
    assert files_of(tmp_path / "ds") == whole


def test_counts_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    run("--input", make_file(tmp_path / "a.h5", events=20), "--output", tmp_path / "ds")
    manifest = tmp_path / "ds/manifest.json"
    document = json.loads(manifest.read_text())
    for key in ("read", "written"):
        manifest.write_text(json.dumps(document | {"events": document["events"] | {key: 19}}))
        with pytest.raises(InputError, match="do not add up"):
            read_manifest(tmp_path / "ds")


def test_a_file_that_takes_anothers_place_as_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = make_file(tmp_path / "a.h5", events=10), make_file(tmp_path / "b" / "b.h5", events=25, seed=1)
    hashed = storage.sha256_of_file

    def replaced_after(place: Path) -> str:
        content = hashed(place)
        other.replace(path)
        return content

    monkeypatch.setattr(storage, "sha256_of_file", replaced_after)
    with pytest.raises(InputError, match="changed while it was read"):
        discover([str(path)])


def test_what_killed_writers_left_is_swept(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", events=5)
    left, busy = (tmp_path / "ds/shards" / f".{name}.tfrecord.x.partial" for name in ("left", "busy"))
    left.parent.mkdir(parents=True)
    left.touch()
    busy.touch()
    day_ago = time.time() - 86_400
    os.utime(left, (day_ago, day_ago))
    run("--input", path, "--output", tmp_path / "ds")
    assert not left.exists()
    assert busy.exists()


def test_large_chunks_are_read_in_pieces(tmp_path: Path) -> None:
    """Chunks of more showers than are made dense at a time, and chunks that divide showers."""
    showers = make_showers(events=270)
    plain = write_file(tmp_path / "plain.h5", showers)
    for number, chunks in enumerate([(120, 17, 17, 5), (130, 4, 4, 2), (270, 17, 17, 5), (30, 17, 17, 5), None]):
        path = tmp_path / f"{number}.h5"
        write_file(path, showers, ECAL=None)
        with h5py.File(path, "r+") as file:
            file.create_dataset("ECAL", data=showers.cells, chunks=chunks, compression="gzip" if chunks else None)
        file = open_showers(path)
        pieces = list(file.pieces(0, 270))
        assert max(len(cells) for _, cells in pieces) <= 100
        assert [first for first, _ in pieces] == np.cumsum([0, *(len(cells) for _, cells in pieces)]).tolist()[:-1]
        np.testing.assert_array_equal(np.concatenate([cells for _, cells in pieces]), open_showers(plain).read().cells)
        run("--input", path, "--output", tmp_path / f"ds{number}", "--shard-events", 50)
        assert read_manifest(tmp_path / f"ds{number}").events["written"] == 270


def test_a_new_file_costs_one_files_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (make_file(tmp_path / f"{seed}.h5", events=30, seed=seed) for seed in range(2))
    run("--input", first, "--output", tmp_path / "ds")
    stood = {path: path.stat().st_mtime_ns for path in (tmp_path / "ds/shards").iterdir()}
    run("--input", first, second, "--output", tmp_path / "ds")
    assert "1 of 2 pieces to do" in capsys.readouterr().out
    assert all(path.stat().st_mtime_ns == time for path, time in stood.items())
    run("--input", first, second, "--output", tmp_path / "afresh")
    assert files_of(tmp_path / "ds") == files_of(tmp_path / "afresh")


def test_a_file_given_twice_is_used_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = make_file(tmp_path / "a.h5", events=30)
    (tmp_path / "copy.h5").write_bytes(path.read_bytes())
    run("--input", tmp_path / "*.h5", path, "--output", tmp_path / "ds")
    assert read_manifest(tmp_path / "ds").events["read"] == 30
    assert "used once" in caplog.text


def test_bad_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_file(tmp_path / "a.h5", events=5)
    out = ("--output", tmp_path / "ds")
    assert "no such file" in refusal(capsys, run, "--input", tmp_path / "none.h5", *out)
    assert "matches no file" in refusal(capsys, run, "--input", tmp_path / "*.hdf5", *out)
    assert "a folder, not a file" in refusal(capsys, run, "--input", tmp_path, *out)
    assert "cut_gev is -1.0" in refusal(capsys, run, "--input", path, *out, "--cut-gev", -1)
    assert "--beam-option =: expected" in refusal(capsys, run, "--input", path, *out, "--beam-option", "=")
    assert "neither a path nor a gs://" in refusal(capsys, run, "--input", path, "--output", "s3://bucket/ds")
    assert "an empty path was given" in refusal(capsys, run, "--input", path, "--output", "")
    assert "see python -m preprocessing --help" in refusal(capsys, run, "--input", path, *out, "--cut-gev", "x")
    assert "--workers is 0" in refusal(capsys, run, "--input", path, *out, "--workers", 0)
    assert "Beam does not take --runner=No" in refusal(capsys, run, "--input", path, *out, "--beam-option", "runner=No")
    assert "matches none of the 1 input" in refusal(capsys, run, "--input", path, *out, "--split-file", "test=b*")
    for option, share in (("--max-bad-events", 2.0), ("--max-bad-files", -0.5), ("--max-bad-files", "nan")):
        assert f"{option} is {share}, expected a share" in refusal(capsys, run, "--input", path, *out, option, share)
    assert "--on-bad-file 'keep' is unknown; known: stop, skip" in refusal(
        capsys, run, "--input", path, *out, "--on-bad-file", "keep"
    )
    assert "no shower is above the cut" in refusal(capsys, run, "--input", path, *out, "--cut-gev", 1e6)
    assert not (tmp_path / "ds/manifest.json").exists()


def test_an_interrupted_run_says_one_line_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_file(tmp_path / "a.h5", events=2000)
    common = ["--input", str(path), "--output", str(tmp_path / "ds"), "--shard-events", "10"]
    process = subprocess.Popen([sys.executable, "-m", "preprocessing", *common], stderr=subprocess.PIPE, text=True)
    while process.poll() is None and len(list((tmp_path / "ds").glob("shards/*.json"))) < 4:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 130
    assert told.splitlines()[-1] == "interrupted; finished work is kept"
    assert "Traceback" not in told
    run(*common)
    assert " 200 of 200 pieces" not in capsys.readouterr().out
    assert read_manifest(tmp_path / "ds").events["written"] == 2000


def test_an_output_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_file(tmp_path / "a.h5", events=5)
    (tmp_path / "file").write_text("in the way")
    assert "file, not a folder" in refusal(capsys, run, "--input", path, "--output", tmp_path / "file" / "ds")
    assert "error: /proc/ds" in refusal(capsys, run, "--input", path, "--output", "/proc/ds")


def test_a_full_disk(tmp_path: Path, small_disk: Callable[[int], Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = make_file(tmp_path / "a.h5", events=400)
    disk = small_disk(200)
    assert "the disk is full" in refusal(capsys, run, "--input", path, "--output", disk / "ds")
    assert not (disk / "ds/manifest.json").exists()
    assert not list((disk / "ds/shards").glob(".*"))
    small_disk(20_000)
    run("--input", path, "--output", disk / "ds")
    assert read_manifest(disk / "ds").events["written"] == 400


@pytest.mark.parametrize("damage", ["missing", "truncated", "version", "kind", "garbage", "field"])
def test_a_damaged_dataset_is_refused_by_name_and_made_again(tmp_path: Path, damage: str) -> None:
    path = make_file(tmp_path / "a.h5", events=30)
    run("--input", path, "--output", tmp_path / "ds")
    whole = files_of(tmp_path / "ds")
    manifest = tmp_path / "ds/manifest.json"
    shard = tmp_path / "ds" / read_manifest(tmp_path / "ds").shards[0].name
    document = json.loads(manifest.read_text())
    match damage:
        case "missing":
            shard.unlink()
        case "truncated":
            shard.write_bytes(shard.read_bytes()[:-1])
        case "version":
            manifest.write_text(json.dumps(document | {"schema_version": 99}))
        case "kind":
            manifest.write_text(json.dumps(document | {"kind": "other"}))
        case "garbage":
            manifest.write_text("{")
        case "field":
            document.pop("geometry")
            manifest.write_text(json.dumps(document))
    named = shard if damage in {"missing", "truncated"} else manifest
    with pytest.raises(InputError, match=str(named)):
        read_manifest(tmp_path / "ds")
    run("--input", path, "--output", tmp_path / "ds")
    assert files_of(tmp_path / "ds") == whole
