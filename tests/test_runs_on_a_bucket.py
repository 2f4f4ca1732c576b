"""Runs whose output lies on gs://, against a real store: the same as on a disk, also if they are killed."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from pathlib import Path

import h5py
import pytest
from servers import Proxy, said, together
from showers import make_file
from trainings import LAYERS, fit_small, layers_model, same_training, small_dataset, small_options, untraced
from verdicts import anything_meets

from calopipe import gcs, storage
from calopipe.errors import InputError
from calopipe.events.contents import MEMORY
from calopipe.gcs import GcsPath
from pipelines import submit
from preprocessing.__main__ import main as preprocess
from training.__main__ import main as train
from training.model_folder import SEEN
from training.models import config as models
from training.models import source
from validation.__main__ import main as judge

BUCKET = "gs://runs"
ROOT = Path(__file__).parent.parent


def _bring(address: str, to: Path) -> Path:
    """Everything at an address, copied to a folder."""
    folder = storage.location(address)
    storage.fetched(folder, storage.listing(folder), to)
    return to


def _same_showers(one: Path, other: Path) -> None:
    """Assert the same bytes of all arrays. An attribute differs, as it states the time of the training."""
    with h5py.File(one) as first, h5py.File(other) as second:
        assert first.keys() == second.keys()
        for name in first:
            assert first[name][()].tobytes() == second[name][()].tobytes()


def _placed(name: str) -> str:
    """The name of a run's file without the parts that differ from run to run; empty for the record of the run."""
    if name.startswith(("logs/", "kfp/")):
        return ""
    return re.sub(r"(events\.out)\.[^/]*|(?<=registry/models/)[^/]*/", r"\1", name)


def _same_run(found: Path, expected: Path) -> None:
    """Assert that two runs left the same files, with the same bytes in all files that do not state times."""
    one, other = ({_placed(name): place / name for name in storage.listing(place)} for place in (found, expected))
    left_out = {f"dataset/{MEMORY}", ""}  # of paths, and of files on a disk
    assert one.keys() - left_out == other.keys() - left_out
    timed = {"run.json", "index.html", "generated.h5"} | {
        f"{folder}{name}"
        for folder in ("", "model/", "registry/models/")
        for name in ("card.json", "history.jsonl", "training.json", "verdict.json", "report.html")
    }
    same = {
        name for name in other.keys() - left_out - timed if not re.search(r"checkpoints/.*json|promotions|events", name)
    }
    assert {name.rpartition(".")[2] for name in same} >= {"tfrecord", "npz", "json", "png"}
    for name in same:
        assert one[name].read_bytes() == other[name].read_bytes(), name
    same_training(found / "model", expected / "model")
    _same_showers(found / "generated.h5", expected / "generated.h5")
    verdicts = [json.loads((place / "verdict.json").read_text()) for place in (found, expected)]
    for verdict in verdicts:
        for files in verdict["inputs"].values():  # paths differ, contents do not
            for each in files if isinstance(files, list) else ():
                each.pop("file", None) if isinstance(each, dict) else None
        for name in ("sha256", "made_by"):  # which hold the minutes of the training
            del verdict["inputs"]["candidate"][0][name]
        for name in ("request", "report_sha256"):
            del verdict[name]
    assert verdicts[0] == verdicts[1]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on a disk with Monte Carlo `mc.h5`, its dataset `ds`, and a user's `model` of one network."""
    return layers_model(tmp_path_factory.mktemp("here"))


@pytest.mark.usefixtures("undrawn")
def test_a_model_is_trained_used_and_judged_there(
    here: Path, proxy: Proxy, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the commands, the same as on a disk, also if the bucket is slow. Existing output is not made again.

    The user's file that states the model runs only if it is given.
    """
    upload = GcsPath.upload

    def slow(path: GcsPath, local: Path) -> None:
        for _ in range(300 if path.name == SEEN else 0):
            random.random()  # as the client does for each upload; Keras draws the first weights from the same numbers
            time.sleep(0.01)
        upload(path, local)

    monkeypatch.setattr(GcsPath, "upload", slow)
    model, made, verdict = (f"{BUCKET}/run/{name}" for name in ("model", "generated.h5", "verdict"))
    like = ["--like", str(here / "mc.h5"), "--split", "test"]
    generate = ["generate", *LAYERS[:2], *like, "--model"]
    more = (*LAYERS, "--epochs", "2", "--batch", "8", "--steps", "2", "--output", model)
    for _ in range(2):
        capsys.readouterr()
        train(small_options(here / "ds", Path("unused"), *more))
        train([*generate, model, "--output", made, "--share", "0/2"])
        train([*generate, model, "--output", made])
        judge(["--reference", *like[1:], "--candidate", made, "--output", verdict])
        told = capsys.readouterr().out
    for stands in (
        f"model stands: {model}/card.json",
        f"showers stand: {made}",
        f"verdict stands: {verdict}/verdict.json",
    ):
        assert re.search(f"^{re.escape(stands)}.*; nothing to do$", told, re.MULTILINE), told
    found = _bring(f"{BUCKET}/run", tmp_path / "brought")
    same_training(found / "model", here / "model")
    names = [
        sorted(re.sub(r"(events\.out).*", r"\1", name) for name in storage.listing(place))
        for place in (found / "model", here / "model")
    ]
    assert names[0] == names[1]
    train([*generate, str(here / "model"), "--output", str(tmp_path / "disk.h5")])
    _same_showers(found / "generated.h5", tmp_path / "disk.h5")
    assert not any((tmp_path / "tmp").rglob("run-*"))
    monkeypatch.setattr(models, "_KINDS", {key: kind for key, kind in models._KINDS.items() if not key[1]})
    monkeypatch.setattr(source, "_RUN", {})  # as in a process in which no file has run
    with pytest.raises(InputError, match=f"{model}: the model layers is stated by a user's file, of SHA-256"):
        train(["generate", *like, "--model", model, "--output", str(tmp_path / "made.h5")])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_training_killed_again_and_again_ends_as_if_it_had_not_stopped(tmp_path: Path, proxy: Proxy) -> None:
    """It is killed ten times by SIGKILL, like lost pods, and each time goes on with an empty disk."""
    dataset, output = small_dataset(tmp_path), f"{BUCKET}/m"
    more = (*LAYERS, "--batch", "8", "--epochs", "20")  # a model of one network: a dozen processes trace it
    arguments = [*small_options(dataset, Path("unused"), *more), "--output", output, "--checkpoint-steps", "1"]
    program = [sys.executable, str(Path(__file__).with_name("killing.py")), output, *arguments]
    assert said(*program).count("killed at step") == 10
    assert not GcsPath("runs", "m/card.json").is_file()
    train(arguments)
    fit_small(dataset, tmp_path / "whole", *more)
    same_training(_bring(output, tmp_path / "m"), tmp_path / "whole")
    left = [name for name in storage.listing(GcsPath("runs", "m")) if name.startswith("checkpoints/")]
    assert len(left) <= 2 * 4  # no orphan of a killed upload


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_workers_train_there(tmp_path: Path, proxy: Proxy) -> None:
    dataset = small_dataset(tmp_path)
    for output in (f"{BUCKET}/m", str(tmp_path / "disk")):
        more = ("--batch", "4", "--epochs", "2", "--output", output)
        together([sys.executable, "-m", "training", *small_options(dataset, Path("unused"), *more)])
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
        command += ["--config", "small", "--steps", "2", "--grade", "gan"]
        for _ in range(2):
            printed = said(*command, cwd=ROOT)
            assert f"open:    {output}/index.html" in printed
            assert str(tmp_path / "tmp") not in printed
        for stands in ("dataset stands", "model stands", "showers stand", "verdict stands"):
            assert stands in printed, printed
    found, disk = _bring(outputs[0], tmp_path / "brought"), tmp_path / "disk"
    _same_run(found, disk)
    assert not (found / "logs/.lock").exists()
    assert [*found.glob("logs/*.log")]
    capsys.readouterr()
    submit.main(["status", outputs[0]])
    there = capsys.readouterr().out
    submit.main(["status", outputs[1]])
    assert there == capsys.readouterr().out.replace(outputs[1], outputs[0])
    assert f"{outputs[0]}: no run goes on\ndataset    done" in there


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_run_killed_again_and_again_leaves_what_one_on_a_disk_leaves(tmp_path: Path, proxy: Proxy) -> None:
    """It is killed ten times by SIGKILL in steps of its pods, each time with an empty disk: same files, same bytes.

    With tolerances that every candidate meets, so that the run ends with a promotion; there is exactly one.
    """
    GcsPath("runs", "in/a.h5").upload(make_file(tmp_path / "a.h5", events=90))
    (tmp_path / "wide.toml").write_text(anything_meets())
    outputs = (str(tmp_path / "disk"), f"{BUCKET}/run")
    program = [sys.executable, Path(__file__).with_name("pods.py"), "10", f"{BUCKET}/in/a.h5"]
    program += [tmp_path / "wide.toml", *outputs]
    assert len(re.findall(r"^killed .* of \w+$", said(*program), re.MULTILINE)) == 10
    _same_run(_bring(outputs[1], tmp_path / "brought"), tmp_path / "disk")
    promotions = [sorted(storage.listing(storage.location(f"{each}/registry/promotions"))) for each in outputs]
    assert promotions[0] == promotions[1] == ["000001.json"]


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (None, r"there is no bucket none; check the address, or create it$"),
        ((403, "no storage.objects.create access"), r"permission denied \(403: .*no storage.objects.create access\)"),
        ((403, "The project has exceeded its quota"), r"\(403: .*has exceeded its quota\)"),
        ((507, "Insufficient Storage"), r"the store cannot be reached or does not answer .*: Insufficient Storage\)"),
    ],
)
def test_a_bucket_that_takes_nothing_ends_the_work_before_it_begins(
    here: Path, proxy: Proxy, capsys: pytest.CaptureFixture[str], refusal: tuple[int, str] | None, told: str
) -> None:
    """One line, from a command and from the pipeline: the bucket does not exist, is forbidden, or is full."""
    file, bucket = here / "mc.h5", BUCKET if refusal else "gs://none"
    proxy.refusal = refusal
    fit = small_options(here / "ds", Path("unused"))
    make = ["generate", *LAYERS[:2], "--model", str(here / "model"), "--like", str(file)]
    for perform, arguments in (
        (train, [*fit, "--output", f"{bucket}/m"]),
        (train, [*make, "--output", f"{bucket}/m.h5"]),
        (judge, ["--reference", str(file), "--candidate", str(file), "--output", f"{bucket}/verdict"]),
        (preprocess, ["--input", str(file), "--output", f"{bucket}/ds"]),
        (submit.main, ["run", "--input", str(file), "--output", f"{bucket}/run"]),
    ):
        capsys.readouterr()
        with pytest.raises(InputError, match=f"^{bucket}/.*{told}") as caught:
            perform(arguments)
        assert "\n" not in str(caught.value)
        assert capsys.readouterr().out == ""
    assert proxy.seen.total() < 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:Warning")  # of connections that were cut
def test_an_unreliable_store_changes_nothing(tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the requests are refused, cut off before or after they are done, or slow: same bytes as on a disk."""
    monkeypatch.setattr(gcs, "DEFAULT_RETRY", gcs.DEFAULT_RETRY.with_delay(0.01, 0.1, 2))  # in place of seconds
    file = make_file(tmp_path / "a.h5", events=80)
    for place in (BUCKET, str(tmp_path / "disk")):
        proxy.share = 0.2 if place == BUCKET else 0
        model, made = f"{place}/run/model", f"{place}/run/generated.h5"
        preprocess(["--input", str(file), "--output", f"{place}/run/dataset", "--shard-events", "20"])
        with untraced():
            more = ["--output", model, "--checkpoint-steps", "1"]
            train([*small_options(storage.location(f"{place}/run/dataset"), Path("unused")), *more])
            train(["generate", "--model", model, "--like", str(file), "--split", "test", "--output", made])
        judge(["--reference", str(file), "--split", "test", "--candidate", made, "--output", f"{place}/run"])
    assert all(proxy.seen[harm] > 0 for harm in Proxy.HARMS), proxy.seen
    _same_run(_bring(f"{BUCKET}/run", tmp_path / "brought"), tmp_path / "disk/run")
