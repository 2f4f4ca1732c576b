"""Preprocessing through its command: counting, repeating, going on, and refusing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
from commands import command_of, files_of, made, records_of, refused, run, settled
from servers import said
from showers import make_file, make_showers, measured_angle, write_file

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.contents import MEMORY
from calopipe.showers.files import REQUEST, open_showers
from preprocessing.dataset import read_manifest
from preprocessing.manifest import DROPPED
from preprocessing.reading import ordered_batches
from preprocessing.showers.inputs import discover


def test_cells_below_the_threshold_are_dropped_and_a_shower_of_which_it_leaves_nothing(tmp_path: Path) -> None:
    showers = make_showers(events=10)
    cells = showers.cells.copy()
    cells[3] = np.minimum(cells[3], 0.05)
    path, output = write_file(tmp_path / "a.h5", showers, ECAL=cells), tmp_path / "ds"
    manifest = made("--input", path, "--output", output, "--threshold-gev", 0.003)
    assert manifest.events["dropped"] == dict.fromkeys(DROPPED, 0) | {"below_threshold": 1}
    written = {each["event"].int64_list.value[0]: each["index"].bytes_list.value[0] for _, each in records_of(output)}
    assert sorted(written) == [0, 1, 2, *range(4, 10)]
    for event, index in written.items():
        assert np.frombuffer(index, "<u2").tolist() == np.flatnonzero(cells[event] >= 0.15).tolist()
    for batch in ordered_batches(output, manifest, "train", batch=10):  # the target is the angle of what the model sees
        np.testing.assert_allclose(measured_angle(batch["cells"].numpy()), batch["mtheta_rad"], rtol=1e-5)
    with pytest.raises(InputError, match=r"a.h5: no shower has a cell of 1.0 GeV; .* or lower --threshold-gev"):
        run("--input", write_file(path, showers, ECAL=cells.clip(0, 0.1)), "--output", output, "--threshold-gev", 1)


def test_generated_showers_are_no_input(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", events=5)
    with h5py.File(path, "r+") as file:
        file.attrs[REQUEST] = "made of a model"
    assert "holds generated showers" in refused("--input", path, "--output", tmp_path / "ds")


def test_the_second_run_does_nothing_and_loads_nothing(tmp_path: Path) -> None:
    path = settled(make_file(tmp_path / "a.h5", events=30))
    run("--input", path, "--output", tmp_path / "ds")
    before = files_of(tmp_path / "ds")
    program = (
        "import sys; from preprocessing.__main__ import main;"
        f"main(['--input', {str(path)!r}, '--output', {str(tmp_path / 'ds')!r}]);"
        "assert not {'apache_beam', 'tensorflow', 'h5py'} & set(sys.modules)"
    )
    assert "dataset stands" in said(sys.executable, "-c", program)
    assert files_of(tmp_path / "ds") == before


def test_a_file_is_known_by_size_and_time(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", events=30)
    common = ("--input", path, "--output", tmp_path / "ds")
    path.touch()
    run(*common)
    assert not (tmp_path / "ds" / MEMORY).exists()  # it may still change unseen
    settled(path)
    run(*common)
    stamp = path.stat()
    with h5py.File(path, "r+") as file:
        file["energy"][3] += 1  # in place: the same size
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert path.stat().st_size == stamp.st_size
    assert "dataset stands" in run(*common)
    path.touch()
    assert "1 of 1 pieces to do" in run(*common)  # looked at again, and found another
    path.touch()
    assert "dataset stands" in run(*common)  # and the same


def test_a_damaged_memory_is_no_memory_and_a_damaged_receipt_costs_its_piece(tmp_path: Path) -> None:
    path, output = settled(make_file(tmp_path / "a.h5", events=40)), tmp_path / "ds"
    common = ("--input", path, "--output", output, "--shard-events", 20)
    run(*common)
    whole = files_of(output)
    for content in (b"{", b'{"kind": "calopipe.inputs", "schema_version": 1}', b"\xff"):
        (output / MEMORY).write_bytes(content)
        assert "dataset stands" in run(*common)
    receipt = next((output / "shards").glob("*.json"))
    earlier = json.loads(receipt.read_text())
    del earlier["most_hits"]
    for content in ("{", "{}", '{"kind": "calopipe.shards", "schema_version": 2}', json.dumps(earlier)):
        receipt.write_text(content)
        (output / "manifest.json").unlink()
        assert "1 of 2 pieces to do" in run(*common)
        assert files_of(output) == whole


def test_a_damaged_dataset_is_refused_by_name_and_made_again(tmp_path: Path) -> None:
    path, output = make_file(tmp_path / "a.h5", events=30), tmp_path / "ds"
    run("--input", path, "--output", output)
    whole, manifest = files_of(output), output / "manifest.json"
    shard = output / read_manifest(output).shards[0].name
    document = json.loads(manifest.read_text())
    without = {name: value for name, value in document.items() if name != "most_hits"}
    for damaged, content, told in (
        (shard, None, "missing"),
        (shard, shard.read_bytes()[:-1], "bytes long"),
        (manifest, b"{", "not valid JSON"),
        (manifest, document | {"schema_version": 99}, "make it again with this version"),
        (manifest, document | {"events": document["events"] | {"read": 29}}, "do not add up"),
        (manifest, document | {"events": document["events"] | {"written": 29}}, "do not add up"),
        (manifest, document | {"geometry": None}, "not a whole"),
        (manifest, without, "not a whole"),
    ):
        if content is None:
            damaged.unlink()
        else:
            damaged.write_bytes(json.dumps(content).encode() if isinstance(content, dict) else content)
        with pytest.raises(InputError, match=f"^{damaged}: .*{told}"):
            read_manifest(output)
        run("--input", path, "--output", output)
        assert files_of(output) == whole


def test_a_file_that_takes_anothers_place_as_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = (make_file(tmp_path / f"{events}.h5", events=events) for events in (25, 10))
    monkeypatch.setattr(storage, "sha256_of_file", lambda _: str(other.replace(path)))
    with pytest.raises(InputError, match="changed while it was read"):
        discover([str(path)])


def test_large_chunks_are_read_in_pieces(tmp_path: Path) -> None:
    """Chunks with more showers than are made dense at a time, and chunks that hold parts of showers."""
    showers = make_showers(events=270)
    path = tmp_path / "a.h5"
    for chunks in (None, (120, 17, 17, 5), (270, 17, 17, 5), (30, 17, 17, 5), (130, 4, 4, 2)):
        with h5py.File(write_file(path, showers, ECAL=None), "r+") as file:
            file.create_dataset("ECAL", data=showers.cells, chunks=chunks, compression="gzip" if chunks else None)
        file = open_showers(path)
        pieces = list(file.pieces(0, 270))
        assert max(len(cells) for _, cells in pieces) <= 100
        assert [first for first, _ in pieces] == np.cumsum([0, *(len(cells) for _, cells in pieces)]).tolist()[:-1]
        np.testing.assert_array_equal(np.concatenate([cells for _, cells in pieces]), showers.cells)
    assert made("--input", path, "--output", tmp_path / "ds", "--shard-events", 50).events["written"] == 270


def test_a_new_file_costs_one_files_work(tmp_path: Path) -> None:
    """Files of a killed writer are removed."""
    first, second = (make_file(tmp_path / f"{seed}.h5", events=30, seed=seed) for seed in range(2))
    run("--input", first, "--output", tmp_path / "ds")
    stood = {path: path.stat().st_mtime_ns for path in (tmp_path / "ds/shards").iterdir()}
    left = tmp_path / "ds/shards/.left.tfrecord.x.partial"
    left.touch()
    os.utime(left, (0, 0))
    assert "1 of 2 pieces to do" in run("--input", first, second, "--output", tmp_path / "ds")
    assert not left.exists()
    assert all(path.stat().st_mtime_ns == time for path, time in stood.items())
    run("--input", first, second, "--output", tmp_path / "afresh")
    assert files_of(tmp_path / "ds") == files_of(tmp_path / "afresh")


def test_a_deposit_too_large_for_float32_is_refused_in_one_line(tmp_path: Path) -> None:
    """NumPy prints no warning."""
    showers = make_showers(events=30)
    cells = showers.cells.astype(np.float64)
    cells[7, 8, 8, 2] = 1e300
    line = refused("--input", write_file(tmp_path / "a.h5", showers, ECAL=cells), "--output", tmp_path / "ds")
    assert "event 7" in line


def test_a_file_given_twice_is_used_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = make_file(tmp_path / "a.h5", events=30)
    (tmp_path / "copy.h5").write_bytes(path.read_bytes())
    assert made("--input", tmp_path / "*.h5", path, "--output", tmp_path / "ds").events["read"] == 30
    assert "used once" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--cut-gev 1e6", "no shower is above the cut"),
        ("--cut-gev x", "see python -m preprocessing --help"),
        ("--beam-option =", "--beam-option =: expected"),
        ("--beam-option runner=No", "Beam does not take --runner=No"),
        ("--beam-option direct_num_wrokers=2", "no option of Beam is called direct_num_wrokers"),
        ("--beam-option runner=DirectRunner --beam-option nosuch=2", "no option of Beam is called nosuch"),
        ("--workers 0", "--workers is 0"),
        ("--split-file test=b*", "matches none of the 1 input"),
        ("--max-bad-events 2", "--max-bad-events is 2.0, expected a share"),
        ("--max-bad-files nan", "--max-bad-files is nan, expected a share"),
        ("--on-bad-file keep", "--on-bad-file 'keep' is unknown; known: stop, skip"),
    ],
)
def test_bad_arguments(tmp_path: Path, arguments: str, told: str) -> None:
    path = make_file(tmp_path / "a.h5", events=5)
    assert told in refused("--input", path, "--output", tmp_path / "ds", *arguments.split())
    assert not (tmp_path / "ds/manifest.json").exists()


def test_an_interrupted_run_says_one_line_and_goes_on(tmp_path: Path) -> None:
    make_file(tmp_path / "a.h5", events=1000)
    command = command_of(tmp_path, tmp_path / "ds", "--shard-events", "10")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and len(list((tmp_path / "ds").glob("shards/*.json"))) < 4:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 130
    assert told.splitlines()[-1] == "interrupted; finished work is kept"
    assert "Traceback" not in told
    assert " 100 of 100 pieces" not in run(*command[3:])
    assert read_manifest(tmp_path / "ds").events["written"] == 1000


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", events=5)
    (tmp_path / "file").write_text("in the way")
    assert "file, not a folder" in refused("--input", path, "--output", tmp_path / "file" / "ds")
    assert "error: /proc/ds" in refused("--input", path, "--output", "/proc/ds")


def test_a_full_disk(tmp_path: Path, small_disk: Callable[[int], Path]) -> None:
    path = make_file(tmp_path / "a.h5", events=400)
    disk = small_disk(200)
    assert "the disk is full" in refused("--input", path, "--output", disk / "ds")
    assert not (disk / "ds/manifest.json").exists()
    assert not list((disk / "ds/shards").glob(".*"))
    small_disk(20_000)
    assert made("--input", path, "--output", disk / "ds").events["written"] == 400


def test_a_disk_without_room_for_the_reason_to_stop(tmp_path: Path, small_disk: Callable[[int], Path]) -> None:
    """The runner then passes the error on, and adds to its message."""
    path, disk = make_file(tmp_path / "a.h5", events=20), small_disk(64)
    with suppress(OSError), (disk / "full").open("wb", buffering=0) as file:
        while file.write(b"0" * 4096):
            pass
    assert refused("--input", path, "--output", disk / "ds").endswith("run again, finished work is kept")
