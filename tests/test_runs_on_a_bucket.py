"""Runs whose output lies on gs://, against a store that runs: the same as on a disk, also where they are killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest
from google.cloud import storage as google_storage
from servers import FAKE_GCS_SERVER, Proxy, go_tool, store
from showers import make_file
from trainings import fit_small, same_training, small_dataset, small_options

from calopipe import gcs, storage
from calopipe.events.contents import MEMORY
from calopipe.gcs import GcsPath
from pipelines import submit
from training.__main__ import main as train
from training.folder import SEEN, read_card
from validation.__main__ import main as judge

pytestmark = pytest.mark.timeout(900)  # a first build of the store is slow
BUCKET = "gs://runs"
ROOT = Path(__file__).parent.parent


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    program = go_tool(FAKE_GCS_SERVER)
    with store(program) as running:
        google_storage.Client(project="test").create_bucket("runs")
        gcs._client_of.cache_clear()
        yield running
    gcs._client_of.cache_clear()


def _bring(address: str, to: Path) -> Path:
    """Everything at an address, copied to a folder."""
    folder = storage.location(address)
    storage.fetched(folder, storage.listing(folder), to)
    return to


def _same(one: Path, other: Path, *names: str) -> None:
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def _same_showers(one: Path, other: Path) -> None:
    """The same bytes of all arrays; an attribute says how long the training took."""
    with h5py.File(one) as first, h5py.File(other) as second:
        assert first.keys() == second.keys()
        for name in first:
            assert first[name][()].tobytes() == second[name][()].tobytes()


def test_a_model_is_trained_used_and_judged_there(
    trained: Path, proxy: Proxy, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the commands, the same as on a disk, also while the bucket is slow; what stands is found to stand."""
    upload = GcsPath.upload

    def slow(path: GcsPath, local: Path) -> None:
        for _ in range(300 if path.name == SEEN else 0):
            random.random()  # as the client does for each upload; Keras draws the first weights from the same numbers
            time.sleep(0.01)
        upload(path, local)

    monkeypatch.setattr(GcsPath, "upload", slow)
    model, made, verdict = (f"{BUCKET}/run/{name}" for name in ("model", "generated.h5", "verdict"))
    like = ["--like", str(trained / "mc.h5"), "--split", "test"]
    for _ in range(2):
        capsys.readouterr()
        train(["fit", "--dataset", str(trained / "ds"), "--output", model, "--config", "small", "--steps", "2"])
        train(["generate", "--model", model, "--output", made, *like, "--share", "0/2"])
        train(["generate", "--model", model, "--output", made, *like])
        judge(["--reference", *like[1:], "--candidate", made, "--output", verdict])
        said = capsys.readouterr().out
    for stands in (f"model stands: {model}/card.json", f"showers stand: {made}", f"{verdict}/verdict.json; nothing"):
        assert stands in said
    found = _bring(f"{BUCKET}/run", tmp_path / "brought")
    assert read_card(found / "model").weights.keys() == read_card(trained / "model").weights.keys()
    train(["generate", "--model", str(found / "model"), "--output", str(tmp_path / "disk.h5"), *like])
    _same_showers(found / "generated.h5", tmp_path / "disk.h5")
    names = set(storage.listing(found / "model"))
    here = set(storage.listing(trained / "model"))
    assert {name for name in names ^ here if "events.out" not in name} == set()  # whose names hold time and process
    assert len(names) == len(here)
    assert not any((tmp_path / "tmp").rglob("run-*"))


@pytest.mark.slow
def test_an_export_lies_there(trained: Path, proxy: Proxy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (trained / "model").glob("*.*"):
        GcsPath("runs", f"model/{path.name}").upload(path)
    for _ in range(2):
        train(["export", "--model", f"{BUCKET}/model", "--output", f"{BUCKET}/exported"])
    assert f"export stands: {BUCKET}/exported; nothing to do" in capsys.readouterr().out
    train(["export", "--model", str(trained / "model"), "--output", str(tmp_path / "exported")])
    assert storage.listing(GcsPath("runs", "exported")).keys() == storage.listing(tmp_path / "exported").keys()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_training_killed_again_and_again_ends_as_if_it_had_not_stopped(tmp_path: Path, proxy: Proxy) -> None:
    """Ten times by SIGKILL, as of pods that are lost: each time it goes on with an empty disk."""
    dataset, output = small_dataset(tmp_path), f"{BUCKET}/m"
    more = ("--epochs", "6", "--checkpoint-steps", "1")
    arguments = [*small_options(dataset, Path("unused"), *more), "--output", output]
    program = [sys.executable, str(Path(__file__).with_name("killing.py")), output, *arguments]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout
    assert done.stdout.count("killed at step") == 10
    assert not GcsPath("runs", "m/card.json").is_file()
    train(arguments)
    fit_small(dataset, tmp_path / "whole", "--epochs", "6")
    same_training(_bring(output, tmp_path / "m"), tmp_path / "whole")
    left = [name for name in storage.listing(GcsPath("runs", "m")) if name.startswith("checkpoints/")]
    assert len(left) <= 2 * 4  # no orphan of a killed upload


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_workers_train_there(tmp_path: Path, proxy: Proxy) -> None:
    dataset = small_dataset(tmp_path)
    for output in (f"{BUCKET}/m", str(tmp_path / "disk")):
        more = ("--batch", "4", "--epochs", "2", "--workers", "2", "--output", output)
        command = [sys.executable, "-m", "training", *small_options(dataset, Path("unused"), *more)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert f"model: {output}" in done.stdout
    same_training(_bring(f"{BUCKET}/m", tmp_path / "m"), tmp_path / "disk")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_pipeline_with_everything_there_gives_what_it_gives_on_a_disk(
    tmp_path: Path, proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    file = make_file(tmp_path / "a.h5", events=90)
    GcsPath("runs", "in/a.h5").upload(file)
    outputs = (f"{BUCKET}/run", str(tmp_path / "disk"))
    for given, output in zip((f"{BUCKET}/in/*.h5", str(file)), outputs, strict=True):
        command = [sys.executable, ROOT / "pipelines/submit.py", "run", "--input", given, "--output", output]
        command += ["--config", "small", "--steps", "2", "--grade", "gan", "--generation-pods", "2"]
        for _ in range(2):
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"open:    {output}/index.html" in done.stdout
            assert str(tmp_path / "tmp") not in done.stdout
        for stands in ("dataset stands", "model stands", "showers stand", "verdict stands"):
            assert stands in done.stdout, done.stdout
    found, disk = _bring(outputs[0], tmp_path / "brought"), tmp_path / "disk"
    shards = [f"dataset/{name}" for name in storage.listing(disk / "dataset") if name.endswith(".tfrecord")]
    weights = [f"model/{name}" for name in read_card(disk / "model").weights]
    assert len(shards) > 2
    _same(found, disk, *shards, *weights)
    _same_showers(found / "generated.h5", disk / "generated.h5")
    assert not (found / "logs/.lock").exists()
    verdicts = [json.loads((place / "verdict.json").read_text()) for place in (found, disk)]
    for verdict in verdicts:
        for files in verdict["inputs"].values():  # paths differ, contents do not
            for each in files if isinstance(files, list) else ():
                each.pop("file", None) if isinstance(each, dict) else None
        for name in ("sha256", "made_by"):  # which hold the minutes of the training
            del verdict["inputs"]["candidate"][0][name]
        for name in ("request", "report_sha256"):
            del verdict[name]
    assert verdicts[0] == verdicts[1]
    kept = {"logs", "kfp", "model/tensorboard"}
    names = [
        {name for name in storage.listing(place) if not any(name.startswith(each) for each in kept)}
        for place in (found, disk)
    ]
    assert names[0] ^ names[1] <= {f"dataset/{MEMORY}", "dataset/checked.json"}
    assert [*found.glob("logs/*.log")]
    capsys.readouterr()
    submit.main(["status", outputs[0]])
    there = capsys.readouterr().out
    submit.main(["status", outputs[1]])
    assert there == capsys.readouterr().out.replace(outputs[1], outputs[0])
    assert f"{outputs[0]}: no run goes on\ndataset    done" in there


def test_no_bucket_no_work(tmp_path: Path, proxy: Proxy) -> None:
    """One line, exit code 2, from each command, and nothing on the disk."""
    dataset = small_dataset(tmp_path)
    for arguments in (
        ["-m", "training", "fit", "--dataset", str(dataset), "--output", "gs://none/m"],
        ["pipelines/submit.py", "run", "--input", str(tmp_path / "a.h5"), "--output", "gs://none/run"],
    ):
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ
        )
        assert done.returncode == 2, done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: gs://none/")
        assert line.endswith("there is no bucket none; check the address, or create it")
        assert "training" not in done.stdout
