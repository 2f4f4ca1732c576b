"""The pipeline through its command, on this machine: what a run leaves, what a second run does, what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from showers import make_file

from pipelines import containers
from preprocessing.dataset import read_manifest
from preprocessing.inputs import MEMORY
from training.folder import read_card
from training.registry import Registry

ROOT = Path(__file__).parent.parent


def submit(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command with umask 0, as Kubeflow starts steps."""
    command = [sys.executable, ROOT / "pipelines" / "submit.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, umask=0)


def require_unwritable_by_others(output: Path) -> None:
    """Beside what the runner keeps, which the command itself makes."""
    made = [path for path in output.rglob("*") if "kfp" not in path.parts]
    assert not [path for path in made if path.stat().st_mode & 0o022]


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
    return folder / "out", arguments, done.stdout


def test_what_a_run_leaves(run: tuple[Path, list[object], str]) -> None:
    output, _, printed = run
    manifest = json.loads((output / "dataset/manifest.json").read_text())
    assert manifest["events"]["read"] == 90
    assert json.loads((output / "model/card.json").read_text())["trained"]["steps"] == 2
    assert (output / "generated.h5").is_file()
    assert "<html" in (output / "report.html").read_text()
    verdict = json.loads((output / "verdict.json").read_text())
    assert verdict["paired"] is True
    assert manifest["splits"]["test"] == 30
    assert verdict["events"] == {"reference": 30, "candidate": 60}
    assert verdict["per_event"] == 2
    assert verdict["inputs"]["cut_gev"] == manifest["settings"]["cut_gev"] == 0.3
    assert verdict["inputs"]["geometry"]["x0_per_layer"] == manifest["geometry"]["x0_per_layer"] == 5
    assert {"name", "verdict", "value", "interval", "tolerance", "floor"} <= verdict["criteria"][0].keys()
    assert printed.splitlines()[-3:] == [
        f"verdict: {verdict['verdict']}",
        f"report:  {output / 'report.html'}",
        "outcome: not promoted: the verdict is rejected (grade gan)",
    ]


def test_no_other_user_may_change_what_a_run_leaves(run: tuple[Path, list[object], str]) -> None:
    output, _, _ = run
    require_unwritable_by_others(output)


def test_a_step_keeps_the_umask_of_its_user(tmp_path: Path) -> None:
    for umask, mode in ((0, 0o644), (0o002, 0o664), (0o077, 0o600)):
        program = "import sys; from components.step import step\nwith step(): open(sys.argv[1], 'w')"
        made = tmp_path / oct(umask)
        subprocess.run([sys.executable, "-c", program, made], check=True, cwd=ROOT, umask=umask)
        assert made.stat().st_mode & 0o777 == mode


def test_a_model_after_two_steps_is_not_promoted_and_the_run_says_why(run: tuple[Path, list[object], str]) -> None:
    output, _, printed = run
    assert json.loads((output / "verdict.json").read_text())["verdict"] == "rejected"
    assert "not promoted: the verdict is rejected" in printed
    assert not (output / "registry").exists()


def test_artifacts_for_the_ui(run: tuple[Path, list[object], str]) -> None:
    output, _, _ = run
    (html,) = output.glob("kfp/*/validate/report")
    assert html.read_bytes() == (output / "report.html").read_bytes()
    (summary,) = output.glob("kfp/*/validate/summary")
    assert summary.read_text().startswith("# Rejected")
    for step, metric in (
        ("preprocess", "showers written"),
        ("train", "validation ecal"),
        ("validate", "criteria_fail"),
    ):
        (written,) = output.glob(f"kfp/*/{step}/executor_output.json")
        (metrics,) = json.loads(written.read_text())["artifacts"]["metrics"]["artifacts"]
        assert metric in metrics["metadata"]


def test_a_second_run_finds_every_output_standing(run: tuple[Path, list[object], str], tmp_path: Path) -> None:
    output, arguments, _ = run

    def outputs() -> dict[Path, int]:
        """What is remembered of the inputs and what the runner keeps left out."""
        files = (path for path in output.rglob("*") if path.is_file() and "kfp" not in path.parts)
        return {path: path.stat().st_mtime_ns for path in files if path.name != MEMORY}

    before = outputs()
    done = submit(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    for step in ("dataset stands", "model stands", "showers stand", "verdict stands"):
        assert step in done.stdout
    assert outputs() == before


def test_an_accepted_model_is_promoted_with_its_verdict(run: tuple[Path, list[object], str], tmp_path: Path) -> None:
    """Under tolerances that anything meets, on a copy of the run, whose other steps then stand."""
    output, arguments, _ = run
    shutil.copytree(output, tmp_path / "out")
    precision = (ROOT / "validation/grades/precision.toml").read_text()
    wide = re.sub(r"= [0-9.]+", "= 1e9", precision)
    # these ask for more showers than there are
    (tmp_path / "wide.toml").write_text(re.sub("(coverage|correlation|ring|ring_tail) = 1e9", r"\1 = inf", wide))
    done = submit(*arguments, "--output", tmp_path / "out", "--grade", tmp_path / "wide.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-4] == "verdict: accepted"
    assert done.stdout.splitlines()[-2].startswith("outcome: promoted to ")
    place = tmp_path / "out/registry"
    current = Registry(place).current()
    assert current is not None
    require_unwritable_by_others(place)
    promoted = place / "models" / current.model
    assert f"promoted to {promoted}" in done.stdout
    assert done.stdout.splitlines()[-1] == f"model in use: {current.model}, since {current.at}"
    assert read_card(promoted).weights == read_card(tmp_path / "out/model").weights
    assert json.loads((promoted / "verdict.json").read_text())["verdict"] == "accepted"


def test_a_step_that_fails_gives_its_one_line_and_what_is_done_stays(tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", events=120)
    arguments = ("run", "--input", path, "--output", tmp_path / "out", "--config", "small")
    with_nan = tmp_path / "b.h5"
    shutil.copy(path, with_nan)
    with h5py.File(with_nan, "r+") as file:
        file["ECAL"][11, 1, 1, 1] = float("nan")
    done = submit(*arguments, "--input", with_nan)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith(f"error: {with_nan}: event 11: ECAL holds nan")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out/dataset/manifest.json").exists()


def test_no_folder_is_mounted_twice_in_a_container(tmp_path: Path) -> None:
    """Docker refuses two mounts at one place, and input may lie where output goes."""
    out, data = tmp_path / "out", tmp_path / "data"
    inputs = [make_file(folder / "a.h5", events=2) for folder in (out, out / "showers", data, tmp_path / "outside")]
    parameters = {"input": [*map(str, inputs)], "output": str(out), "grade": str(data / "own.toml")}
    assert containers.folders(parameters) == ({data, tmp_path / "outside"}, {out})
    parameters["dataset"] = str(data / "dataset")  # written to inside what is read
    assert containers.folders(parameters) == ({data, tmp_path / "outside"}, {out, data / "dataset"})


# In place of sitecustomize: each step writes an output at once, but one that is gone without, and with exit code 0.
ANSWERING = """
import json, os, pathlib, sys
given = dict(zip(sys.orig_argv, sys.orig_argv[1:]))
if "--function_to_execute" in given:
    if given["--function_to_execute"] != os.environ["GONE"]:
        outputs = json.loads(given["--executor_input"])["outputs"]
        values = {name: [] if name == "files" else "x" for name in outputs.get("parameters", {})}
        pathlib.Path(outputs["outputFile"]).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(outputs["outputFile"]).write_text(json.dumps({"parameterValues": values}))
    os._exit(0)
"""


@pytest.mark.parametrize("step", ["train", "promote"])
def test_a_step_that_is_gone_without_its_output_is_no_success(tmp_path: Path, step: str) -> None:
    """As kfp has it of containers; also beside what an earlier run has left."""
    make_file(tmp_path / "a.h5", events=120)
    (tmp_path / "sitecustomize.py").write_text(ANSWERING)
    earlier = tmp_path / "out/kfp/calorimeter-2026-01-01-00-00-00-000000"
    for name in ("discover", "preprocess", "train", "generate", "validate", "promote"):
        (earlier / name).mkdir(parents=True)
        (earlier / name / "executor_output.json").write_text("{}")
    (tmp_path / "out/verdict.json").write_text('{"verdict": "accepted"}')
    command = [sys.executable, ROOT / "pipelines/submit.py", "run", "--config", "small", "--input", tmp_path / "a.h5"]
    done = subprocess.run(
        [*command, "--output", tmp_path / "out"], capture_output=True, text=True, check=False, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "GONE": step},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"error: step {step} ended without its output under ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "--input", "/nowhere/*.h5"), "matches no file"),
        (("run", "--input", "README.md"), "README.md: not a whole HDF5 file"),
        (("run", "--output", "gs://bucket/run"), "must be on a file system"),
        (("run", "--grade", "lenient"), "--grade lenient: neither a grade"),
        (("run", "--epochs", "-3"), "--epochs is -3"),
        (("run", "--epochs", "0"), "--epochs is 0"),
        (("run", "--per-event", "0"), "--per-event is 0"),
        (("run", "--split-file", "test=typo*"), "the test split of the input holds 0 showers"),
        (("run", "--seed", "-1"), "--seed is -1"),
        (("run", "--cut-gev", "-3"), "cut_gev is -3.0"),
        (("run", "--config", "small"), "choose --config fast"),
        (("run", "--split-file", "x"), "expected SPLIT=PATTERN"),
        (("compile", "--output", "pipeline.txt"), "ends in .yaml"),
        (("compile", "--output", "pipeline.yaml", "--claim", "data:relative"), "expected NAME:PATH"),
        (
            ("schedule", "--claim", "c:/d", "--input", "/d/a", "--output", "/d/b", "--cron", "* * *"),
            "expected six fields",
        ),
        (("schedule", "--claim", "c:/d", "--input", "/d/a", "--output", "/d/b", "--interval", "0"), "--interval is 0"),
        (("submit", "--claim", "c:/d", "--input", "/d/a", "--output", "/d/b"), "no --endpoint"),
        (("submit", "--input", "a", "--output", "b", "--epochs", "-4"), "--epochs is -4"),
    ],
)
def test_what_can_be_found_before_any_step_starts_is(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    more = ("--output", str(tmp_path / "out")) if arguments[0] == "run" and "--output" not in arguments else ()
    done = submit(*arguments, *more)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("error: ")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert not (tmp_path / "out/dataset").exists()


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    done = submit("run", "--output", "/proc/out")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("error: /proc/out")


def test_corrupt_input_can_be_skipped_by_every_step_and_a_dataset_shared(tmp_path: Path) -> None:
    for seed in range(2):
        make_file(tmp_path / f"{seed}.h5", events=60, seed=seed)
    with h5py.File(tmp_path / "0.h5", "r+") as file:
        file["ECAL"][:20, 1, 1, 1] = float("nan")  # of every split
    (tmp_path / "c.h5").write_bytes(b"not showers")
    arguments = ["run", "--input", tmp_path / "*.h5", "--config", "small", "--steps", 1, "--grade", "gan"]
    arguments += ["--on-bad-event", "skip", "--on-bad-file", "skip", "--dataset", tmp_path / "shared"]
    done = submit(*arguments, "--output", tmp_path / "one", "--max-bad-events", 0.2)
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = read_manifest(tmp_path / "shared")
    assert manifest.events["dropped"]["nan"] == 20
    assert [file.name for file in manifest.bad_files] == ["c.h5"]
    assert json.loads((tmp_path / "one/verdict.json").read_text())["events"]["reference"] == manifest.count("test")
    assert not (tmp_path / "one/dataset").exists()
