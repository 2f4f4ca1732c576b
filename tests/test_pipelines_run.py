"""The pipeline by its command, on this machine: the output of a run, a second run, and what is refused."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import h5py
import pytest
from commands import refused
from pods import perform
from showers import make_file
from trainings import untraced
from verdicts import anything_meets, write_verdict

from calopipe.errors import InputError
from calopipe.events.contents import MEMORY
from calopipe.lock import alone, writer
from calopipe.showers.selection import Reading
from calopipe.storage import sha256_of_file
from calopipe.verdict import summary_line
from components.generate import generate
from components.validate import validate
from pipelines.checks import check
from pipelines.submit import main
from preprocessing.dataset import news, read_manifest
from preprocessing.showers.inputs import discover
from training.model_folder import read_card
from training.registry.registry import Registry

ROOT = Path(__file__).parent.parent
SECRET = {"KF_PIPELINES_TOKEN": "token-0f1e2d3c"}


def submit(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    """The command with umask 0, as Kubeflow starts steps, and with a secret and `more` in its environment."""
    command = [sys.executable, ROOT / "pipelines" / "submit.py", *map(str, arguments)]
    environment = os.environ | SECRET | more
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, umask=0, env=environment)


def require_unwritable_by_others(output: Path) -> None:
    """Assert that other users can write to no file of the output, except to those of kfp's runner."""
    made = [path for path in output.rglob("*") if "kfp" not in path.parts]
    assert not [path for path in made if path.stat().st_mode & 0o022]


@contextmanager
def on_terminal(*arguments: object) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The process of the command, and this end of the terminal on which it runs."""
    here, there = pty.openpty()
    command = [sys.executable, str(ROOT / "pipelines" / "submit.py"), *map(str, arguments)]

    def begin() -> None:
        os.login_tty(there)  # so that Ctrl-C there reaches the process
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

    with subprocess.Popen(command, cwd=ROOT, preexec_fn=begin) as process:  # noqa: PLW1509 - no threads
        os.close(there)
        yield process, here
    os.close(here)


def drawn(terminal: int, until: str = "") -> str:
    """The output on a terminal until a text comes, or until the end."""
    written = b""
    while not until or until not in written.decode(errors="ignore"):
        try:
            written += os.read(terminal, 1 << 16)
        except OSError:  # no process has it open any more
            break
    return written.decode()


def screen(written: str) -> list[str]:
    """The lines that stay on a terminal."""
    return [line.split("\r\x1b[K")[-1] for line in written.split("\r\n")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[object], str]:
    """The folder of a finished run, the arguments that made it, and what it printed."""
    folder = tmp_path_factory.mktemp("run")
    make_file(folder / "train.h5", events=60)
    make_file(folder / "test [1].h5", events=30, seed=1)
    arguments: list[object] = ["run", "--input", folder / "*.h5", "--output", folder / "out"]
    arguments += ["--config", "small", "--steps", 2, "--grade", "gan", "--per-event", 2]
    arguments += ["--split-file", "test=test*.h5", "--geometry", "x0_per_layer=5", "--cut-gev", "0.3"]
    done = submit(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return folder / "out", arguments, done.stdout


@pytest.fixture
def output(run: tuple[Path, list[object], str]) -> Path:
    return run[0]


def test_what_a_run_prints(run: tuple[Path, list[object], str]) -> None:
    """A run prints a line for each step. The output of libraries is only in the log."""
    output, _, printed = run
    (log,) = output.glob("logs/*.log")
    first, *steps, verdict, report, page = printed.splitlines()
    assert (first, verdict, report) == (f"log: {log}", "verdict: rejected", f"report:  {output / 'report.html'}")
    assert page == f"open:    {output / 'index.html'}"
    assert [re.sub(r" +\d+\.\d s  ", ": ", line) for line in steps] == [
        "preprocess: 90 showers (train 54, validation 6, test 30); dropped: none",
        "train: " + read_card(output / "model").summary(),
        f"generate: 60 showers: {output / 'generated.h5'}",
        "validate: " + summary_line(json.loads((output / "verdict.json").read_text())),
        "promote: not promoted: the verdict is rejected (grade gan)",
    ]
    whole = log.read_text()
    for line in (
        "Got executor_input", "2 files, 90 showers", "InitializeLog", "train: 100% 16/16", "generate:   0% 0/60",
        "SUCCESS",
    ):  # fmt: skip
        assert line in whole
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", printed + whole)  # carriage returns, colours, marks


def test_the_verdict_is_on_what_the_steps_before_were_asked_for(output: Path) -> None:
    manifest = json.loads((output / "dataset/manifest.json").read_text())
    verdict = json.loads((output / "verdict.json").read_text())
    assert verdict["paired"] is True
    assert verdict["events"] == {"reference": 30, "candidate": 60}
    assert verdict["per_event"] == 2
    assert verdict["inputs"]["cut_gev"] == manifest["settings"]["cut_gev"] == 0.3
    assert verdict["inputs"]["geometry"]["x0_per_layer"] == manifest["geometry"]["x0_per_layer"] == 5


def test_the_first_page_leads_to_what_a_run_left(output: Path) -> None:
    (log,) = output.glob("logs/*.log")
    told = (output / "index.html").read_text()
    links = {unquote(unescape(link)) for link in re.findall('<a [^>]*href="([^"]+)"', told)}
    assert {"report.html", "verdict.json", "model/card.json", "model/history.jsonl", "generated.h5"} <= links
    assert {"dataset/manifest.json", f"logs/{log.name}"} <= links
    assert [link for link in links if not (output / link).exists()] == []
    for text in ("90 showers (train 54, validation 6, test 30)", "60 showers", "2 steps of", "no model was promoted"):
        assert text in told
    assert "<script" not in told


def test_the_state_of_a_run_here(output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(folder: Path) -> list[str]:
        capsys.readouterr()
        main(["status", str(folder)])
        return capsys.readouterr().out.splitlines()

    first, *parts, last = told(output)
    assert first == f"{output}: no run goes on"
    assert [line.split()[:2] for line in parts[:4]] == [[n, "done"] for n in ("dataset", "model", "showers", "verdict")]
    assert parts[4].split(maxsplit=3)[1:] == ["not", "yet", "no model was promoted"]
    assert last == f"open: {output / 'index.html'}"
    with alone(output):
        assert told(output)[0] == f"{output}: runs, process {os.getpid()} of {os.uname().nodename}"
    with pytest.raises(InputError, match=r"run\.json: no such file"):
        told(tmp_path)
    with pytest.raises(InputError, match="only runs on a cluster are followed"):
        main(["status", str(output), "--wait"])


def test_no_secret_of_the_environment_is_left_and_nothing_that_others_may_change(output: Path) -> None:
    require_unwritable_by_others(output)
    files = [path for path in output.rglob("*") if path.is_file()]
    assert any("kfp" in path.parts for path in files)
    assert not [path for path in files if SECRET["KF_PIPELINES_TOKEN"].encode() in path.read_bytes()]


def test_a_step_keeps_the_umask_of_its_user(tmp_path: Path) -> None:
    for umask, mode in ((0, 0o644), (0o002, 0o664), (0o077, 0o600)):
        program = "import sys; from components.step import working\n"
        program += "with working('.', 'test') as run: (run / sys.argv[1]).touch()"
        made = tmp_path / oct(umask)
        subprocess.run([sys.executable, "-c", program, made], check=True, cwd=tmp_path, umask=umask)
        assert made.stat().st_mode & 0o777 == mode


def test_artifacts_tell_which_dataset_and_model_a_run_made(run: tuple[Path, list[object], str]) -> None:
    """From the input to the promotion, each names the fingerprint of its source. Data stay where they are."""
    output, arguments, _ = run
    told = {}
    for step, name in (("preprocess", "data"), ("train", "model"), ("generate", "showers"), ("promote", "judged")):
        (written,) = output.glob(f"kfp/*/{step}/executor_output.json")
        (artifact,) = json.loads(written.read_text())["artifacts"][name]["artifacts"]
        told[step] = artifact["metadata"]
        assert None not in artifact["metadata"].values()  # which Kubeflow cannot store
        assert Path(artifact["uri"]).parent == written.parent  # no data: within the pipeline root
        (content,) = output.glob(f"kfp/*/{step}/{name}")
        assert json.loads(content.read_text()) == artifact["metadata"]
    manifest, card = read_manifest(output / "dataset"), read_card(output / "model")
    data, model, showers, judged = told.values()
    assert (data["files"], data["since_the_last_run"], data["cut_gev"]) == (2, "", 0.3)
    assert data["made_from"] == str(arguments[2])
    assert data["location"] == str(output / "dataset")
    assert data["events"] == {"train": 54, "validation": 6, "test": 30}
    assert data["ranges"]["energy_gev"] == list(manifest.energy_gev)
    assert model["made_from"] == data["fingerprint"] == manifest.fingerprint
    assert model["location"] == str(output / "model")
    assert (model["config"], model["steps"], model["losses"]) == ("small", 2, card.losses)
    assert showers["made_from"] == model["fingerprint"] == card.fingerprint()
    assert (showers["showers"], showers["location"]) == (60, str(output / "generated.h5"))
    assert showers["sha256"] == sha256_of_file(output / "generated.h5")
    assert judged["fingerprint"] == model["fingerprint"]
    assert (judged["verdict"], judged["in_use"]) == ("rejected", "")
    assert judged["outcome"].startswith("not promoted")
    kept = {path.name: path.stat().st_size for path in output.glob("kfp/*/*/*")}
    assert max(size for name, size in kept.items() if name != "report") < 20_000


def test_a_run_says_what_has_changed_since_the_last(output: Path) -> None:
    card = read_card(output / "model")
    assert card.changes("another", card.config) == ["other data"]
    now = [str(output.parent / "train.h5"), str(make_file(output.parent / "more.hdf5", events=5, seed=9))]
    since = "since the last run: of 2 input files 1 new (more.hdf5), 1 gone (test [1].h5)"
    assert news(discover(now).files, output / "dataset") == since
    assert news([], output / "nowhere") == ""


def test_artifacts_for_the_ui(output: Path) -> None:
    (html,) = output.glob("kfp/*/validate/report")
    assert html.read_bytes() == (output / "report.html").read_bytes()
    (summary,) = output.glob("kfp/*/validate/summary")
    assert summary.read_text().startswith("# Rejected")
    for step, metric in (
        ("preprocess", "showers written"), ("train", "validation ecal"), ("generate", "showers a second"),
        ("validate", "criteria_fail"),
    ):  # fmt: skip
        (written,) = output.glob(f"kfp/*/{step}/executor_output.json")
        (metrics,) = json.loads(written.read_text())["artifacts"]["metrics"]["artifacts"]
        assert metric in metrics["metadata"]


def _given(output: Path) -> dict[str, Any]:
    """The arguments of the steps after the training of a run."""
    reading = Reading(dataset=str(output / "dataset"), split_files=("test=test*.h5",), geometry="x0_per_layer=5")
    return {
        "fingerprint": read_card(output / "model").fingerprint(), "incumbent": "", "seed": 1,
        "files": [str(output.parent / name) for name in ("test [1].h5", "train.h5")],
        "reading": asdict(replace(reading, cut_gev=0.3)), "model_file": "",
    }  # fmt: skip


def test_shares_joined_are_what_one_pod_makes(output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step generate in four shares of 60 showers; each task works on the files of the tasks before."""
    monkeypatch.setattr("training.generation.part_files._PART_SHOWERS", 60)
    for name in ("one", "shared"):
        shutil.copytree(output / "model", tmp_path / name / "model")
    given = _given(output) | {"per_event": 8, "challenge": False}
    parts = tmp_path / "shared/.generated.h5.parts"

    def made(folder: str, **share: str) -> tuple[str, dict[str, object]]:
        (found, _), artifacts = perform(generate, tmp_path, **given, output=str(tmp_path / folder), **share)
        return found, artifacts["showers"].metadata

    with untraced():
        by_one, _ = made("one")
        for number, share in enumerate(("0/2", "1/2"), 1):
            found, facts = made("shared", share=share)
            assert (found, facts["share"], len([*parts.glob("[!.]*")])) == ("", share, 2 * number)
        assert not (tmp_path / "shared/generated.h5").exists()
        joined, facts = made("shared")
    assert (joined, facts["showers"]) == (by_one, 240)
    assert not parts.exists()


def test_an_accepted_model_is_promoted_with_its_verdict(run: tuple[Path, list[object], str], tmp_path: Path) -> None:
    """With tolerances that every candidate meets, on a copy of the run, whose other outputs are not made again."""
    output, arguments, _ = run
    shutil.copytree(output, tmp_path / "out")
    (log,) = output.glob("logs/*.log")

    def standing() -> dict[Path, int]:
        """The files of the dataset (without the document on its inputs), of the model, and the showers."""
        files = [tmp_path / "out/generated.h5"]
        files += [path for name in ("dataset", "model") for path in (tmp_path / "out" / name).rglob("*")]
        return {path: path.stat().st_mtime_ns for path in files if path.is_file() and path.name != MEMORY}

    before = standing()
    (tmp_path / "wide.toml").write_text(anything_meets())
    more = ("--output", tmp_path / "out", "--grade", tmp_path / "wide.toml")
    with on_terminal(*arguments, *more) as (process, terminal):
        written = drawn(terminal)
    assert process.returncode == 0, written
    assert re.search(r"\r\x1b\[Kvalidate +█{20} Monte Carlo: 100% 30/30 ", written)
    *told, end = screen(written)
    assert (end, len(told)) == ("", 1 + 5 + 4)  # the log, the steps, what came of it
    assert not re.search("[█%\x1b]", "".join(told))
    for line, text in zip(told[1:4], ("dataset stands", "model stands", "showers stand"), strict=True):
        assert text in line
    assert standing() == before
    said = next(path for path in (tmp_path / "out/logs").glob("*.log") if path.name != log.name).read_text()
    assert "since the last run: of 2 input files none is new and none is gone" in said
    assert "since the last model: the same data and settings" in said
    assert told[-4] == "verdict: accepted"
    assert told[-5].startswith("promote ")
    place = tmp_path / "out/registry"
    (current,) = Registry(place).history()
    require_unwritable_by_others(place)
    promoted = place / "models" / current.model
    assert f"promoted to {promoted}" in told[-5]
    assert told[-1] == f"model in use: {current.model}, since {current.at}"
    assert read_card(promoted).weights == read_card(tmp_path / "out/model").weights
    assert json.loads((promoted / "verdict.json").read_text())["verdict"] == "accepted"


@pytest.mark.slow  # a classifier of cells, and times of generation
def test_the_report_has_the_challenges_numbers_if_asked(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both steps run on a copy of the run, whose showers are kept. Rectangular cells: only a classifier, and times."""
    shutil.copytree(output, tmp_path / "out")
    monkeypatch.setattr("training.calochallenge.timing._BATCHES", {1: 1})
    given = _given(output) | {"output": str(tmp_path / "out"), "challenge": True}
    (made, _), _ = perform(generate, tmp_path, **given, per_event=2)
    del given["model_file"]
    (verdict, _), artifacts = perform(validate, tmp_path, **given | {"fingerprint": made, "grade": "gan"})
    assert verdict == "rejected"
    found = json.loads((tmp_path / "out/verdict.json").read_text())["challenge"]
    assert found["classifier"]["classifiers"]["low"]["tested"] == 12  # a fifth of 30 showers of either set
    assert [each["batch"] for each in found["timing"]["times"]] == [1]
    assert "AUC, low-level classifier" in Path(artifacts["report"].path).read_text()


# In place of sitecustomize: a step that does not end; it is deaf if it ignores what ends it with its terminal.
ENDLESS = """
import pathlib, signal, sys, time
if "--function_to_execute" in sys.orig_argv:
    for number in {deaf}:
        signal.signal(number, signal.SIG_IGN)
    pathlib.Path(__file__).with_name("begun").touch()
    time.sleep(600)
"""


_DEAF = (int(signal.SIGINT), int(signal.SIGHUP))


@pytest.mark.parametrize(
    ("deaf", "interrupts"),
    [((), 1), (_DEAF, 1), (_DEAF, 2), ((), 0)],
    ids=["hears", "deaf", "deaf and interrupted twice", "terminated"],
)
def test_a_second_run_in_one_output_is_refused_until_a_signal_ends_the_first_which_leaves_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaf: tuple[int, ...], interrupts: int
) -> None:
    make_file(tmp_path / "a.h5", events=120)
    (tmp_path / "sitecustomize.py").write_text(ENDLESS.format(deaf=deaf))
    where = tmp_path / "out"
    arguments = ["run", "--config", "small", "--input", str(tmp_path / "a.h5"), "--output", str(where)]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    with on_terminal(*arguments) as (process, terminal):
        written = drawn(terminal, until="Kpreprocess ")
        who = f"process {process.pid} of {os.uname().nodename}"
        line = f"{where}: another run writes there, {who}; wait for its end, or give another --output"
        with pytest.raises(InputError, match=f"^{re.escape(line)}$"):
            main(arguments)
        assert len([*where.glob("logs/*.log")]) == 1
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.01)
        for _ in range(interrupts):
            os.write(terminal, b"\x03")
            time.sleep(1)
        if not interrupts:
            process.terminate()  # the run alone: its step hears nothing
        written += drawn(terminal)
    assert process.returncode == 130
    assert writer(where) == ""
    *_, stopped, told, end = screen(written)
    assert re.fullmatch(r"preprocess +\d+\.\d s  not finished", stopped)
    assert (told, end) == ("interrupted; finished work is kept", "")
    assert "Traceback" not in written


# In place of sitecustomize: a step that fails by a defect.
BROKEN = """
import os, sys
if "--function_to_execute" in sys.orig_argv:
    print("what it did before\\na defect", flush=True)
    os._exit(1)
"""


def test_a_failure_shows_the_last_lines_and_names_the_log(tmp_path: Path) -> None:
    make_file(tmp_path / "a.h5", events=120)
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    (tmp_path / "out").mkdir()
    write_verdict(tmp_path / "out", verdict="accepted")  # of a run before
    arguments = ["run", "--config", "small", "--input", tmp_path / "a.h5", "--output", tmp_path / "out"]
    done = submit(*arguments, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    (log,) = (tmp_path / "out/logs").glob("*.log")
    assert done.returncode == 1
    told = f"error: step preprocess failed; its last lines are above, all are in {log}"
    assert done.stderr.splitlines() == ["    what it did before", "    a defect", told]
    assert re.fullmatch(r"log: .*\npreprocess +\d+\.\d s  not finished\n", done.stdout)
    page = (tmp_path / "out/index.html").read_text()
    assert "The step preprocess failed." in page
    assert "banner accepted" not in page


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--input", "/nowhere/*.h5"), "matches no file"),
        (("--input", str(ROOT / "README.md")), "README.md: not an HDF5 file"),
        (("--grade", "lenient"), "--grade lenient: neither a grade"),
        (("--epochs", "-3"), "--epochs is -3"),
        (("--per-event", "0"), "--per-event is 0"),
        (("--split-file", "test=typo*"), "the test split of the input holds 0 showers"),
        (("--seed", "-1"), "--seed is -1"),
        (("--cut-gev", "-3"), "cut_gev is -3.0"),
        (("--config", "small"), "choose --config fast"),
        (("--split-file", "x"), "expected SPLIT=PATTERN"),
        (("--warm-start", "sometimes"), "--warm-start 'sometimes' is unknown"),
        (("--registry", "s3://bucket/r"), "s3://bucket/r: neither a path"),
        (("--output", "s3://bucket/r"), "s3://bucket/r: neither a path"),
        (("--output", "/proc/out"), "error: /proc/out"),
    ],
)
def test_what_can_be_found_before_any_step_starts_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    more = () if "--output" in arguments else ("--output", str(tmp_path / "out"))
    assert told in refused(["run", *arguments, *more], command=main)
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "out/dataset").exists()


def test_one_shower_is_enough_to_judge_by_and_a_batch_to_train_on(tmp_path: Path) -> None:
    files = [str(make_file(tmp_path / f"{number}.h5", events=number)) for number in (1, 7, 8)]
    parameters = {"output": str(tmp_path / "out"), "config": "small", "split_files": ["test=1.h5", "train=*"]}
    check(parameters | {"input": [files[0], files[2]]})
    with pytest.raises(InputError, match="the train split of the input holds 7 showers at most, at least 8 are needed"):
        check(parameters | {"input": files[:2]})


@pytest.mark.slow
def test_corrupt_input_can_be_skipped_by_every_step_and_a_dataset_shared(tmp_path: Path) -> None:
    for seed in range(2):
        make_file(tmp_path / f"{seed}.h5", events=60, seed=seed)
    with h5py.File(tmp_path / "0.h5", "r+") as file:
        file["ECAL"][:20, 1, 1, 1] = float("nan")  # of every split
    (tmp_path / "c.h5").write_bytes(b"not showers")
    arguments = ["run", "--input", tmp_path / "*.h5", "--config", "small", "--steps", 1, "--grade", "gan"]
    arguments += ["--on-bad-event", "skip", "--on-bad-file", "skip", "--dataset", tmp_path / "shared", "--verbose"]
    done = submit(*arguments, "--output", tmp_path / "one", "--max-bad-events", 0.2)
    assert done.returncode == 0, done.stdout + done.stderr
    (log,) = (tmp_path / "one/logs").glob("*.log")
    verbose = set(done.stdout.splitlines())
    assert "Got executor_input:" in log.read_text()
    assert verbose > {line for line in log.read_text().splitlines() if line}
    manifest = read_manifest(tmp_path / "shared")
    assert manifest.events["dropped"]["nan"] == 20
    assert [file.name for file in manifest.bad_files] == ["c.h5"]
    assert json.loads((tmp_path / "one/verdict.json").read_text())["events"]["reference"] == manifest.count("test")
    assert not (tmp_path / "one/dataset").exists()
