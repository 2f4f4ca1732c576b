"""Names and parameters stay data: no shell, no placeholder and no document interprets them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import pytest
from showers import make_file

from calopipe.errors import InputError
from calopipe.showers.selection import Reading
from components.preprocess import preprocess
from components.step import require_plain
from pipelines import submit

ROOT = Path(__file__).parent.parent
# To a shell each of these would leave a file `injected`; kfp itself replaces python3 in the arguments of a local step.
HOSTILE = (
    '-rf it\'s "python3"; touch injected; $(touch injected) `touch injected`\n| touch injected & > injected \\ %s {x}'
)
SECRETS = {"KF_PIPELINES_TOKEN": "token-0f1e2d3c", "AWS_SECRET_ACCESS_KEY": "key-4b5a6978", "HF_TOKEN": "hf-8796a5b4"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run on a file and into a folder of hostile names. The first step ends it, as an event of the file is bad."""
    folder = tmp_path_factory.mktemp("injection")
    file = make_file(folder / HOSTILE / f"{HOSTILE}.h5", events=60)
    with h5py.File(file, "r+") as opened:
        opened["ECAL"][11, 1, 1, 1] = float("nan")
    make_file(folder / HOSTILE / f"{HOSTILE} 2.h5", events=30, seed=1)
    (folder / "here").mkdir()
    command = [sys.executable, ROOT / "pipelines" / "submit.py", "run", "--input", file.parent / "*.h5"]
    command += [f"--output={HOSTILE}", "--config", "small", "--split-file", f"test={HOSTILE} 2.h5"]
    there: dict[str, Any] = {"cwd": folder / "here", "env": os.environ | SECRETS}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **there)
    return SimpleNamespace(folder=folder, file=file, output=folder / "here" / HOSTILE, done=done)


def test_steps_find_and_write_what_hostile_names_name(run: SimpleNamespace) -> None:
    assert run.done.returncode == 2, run.done.stdout + run.done.stderr
    last = run.done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"error: {' '.join(str(run.file).split())}: event 11: ECAL holds nan")
    assert re.fullmatch(r"preprocess +\d+\.\d s  not finished", run.done.stdout.splitlines()[-1])
    (log,) = run.output.glob("logs/*.log")
    assert "2 files, 90 showers" in log.read_text()
    assert (run.output / "dataset").is_dir()
    assert not (run.output / "dataset/manifest.json").exists()


def test_no_shell_reads_them(run: SimpleNamespace) -> None:
    made = {path.name for path in run.folder.rglob("*")} | {path.name for path in Path.cwd().iterdir()}
    assert "injected" not in made
    assert {path.name for path in run.folder.iterdir()} == {HOSTILE, "here"}
    assert {path.name for path in run.output.parent.iterdir()} == {HOSTILE}


def test_no_secret_of_the_environment_is_left_or_printed(run: SimpleNamespace) -> None:
    files = [path for path in run.folder.rglob("*") if path.is_file()]
    assert any("logs" in path.parts for path in files)  # what kfp leaves is in the tests of whole runs
    for secret in SECRETS.values():
        assert secret not in run.done.stdout + run.done.stderr
        assert not [path for path in files if secret.encode() in path.read_bytes()]


_OPTIONS = ("input", "output", "dataset", "grade", "split-file", "geometry", "beam-option")
_PLACEHOLDERS = (
    "{{$.inputs.parameters['output']}}", "{{workflow.name}}",
    "[[RunUUID]]", "[[Index]]", "[[CurrentTime]]", "[[ScheduledTime]]", "[[ScheduledTime.20060102]]",
)  # fmt: skip


@pytest.mark.parametrize(
    ("option", "placeholder"),
    [*((option, "{{$}}") for option in _OPTIONS), *(("input", each) for each in _PLACEHOLDERS)],
)
def test_placeholders_are_refused(option: str, placeholder: str, tmp_path: Path) -> None:
    given = {"input": "a.h5", "output": str(tmp_path)} | {option: placeholder}
    arguments = [text for name, value in given.items() for text in (f"--{name}", value)]
    for command in (["run"], ["submit", "--endpoint", "http://127.0.0.1:1"]):
        with pytest.raises(InputError, match=r"holds (\{\{|\[\[[RICS].*\]\],)"):
            submit.main([*command, *arguments])


def test_patterns_of_brackets_are_no_placeholders() -> None:
    """In a pattern, [[] stands for a bracket in a name."""
    for pattern in ("[[]CurrentTime]].h5", "[[]RunUUID].h5", "run[[]Index]?.h5"):
        require_plain({"input": [pattern]})


def test_more_names_of_files_than_a_step_can_be_given_are_refused() -> None:
    """Linux could not start this process with so many names."""
    names = [f"/data/{number:092d}" for number in range(1_300)]
    with pytest.raises(OSError, match="too long"):
        subprocess.run(["true", json.dumps(names)], check=True)
    with pytest.raises(InputError, match=r"input: the names of 1300 files take 129 KiB, .* 96; give fewer"):
        require_plain({"input": names})
    require_plain({"input": names[:900]})


def test_placeholders_are_refused_in_names_that_a_pattern_finds(tmp_path: Path) -> None:
    make_file(tmp_path / "{{$.outputs.output_file}}.h5", events=60)
    with pytest.raises(InputError, match=r"output_file\}\}\.h5: holds \{\{"):
        submit.main(["run", "--input", str(tmp_path / "*.h5"), "--output", str(tmp_path / "out"), "--config", "small"])
    given: dict[str, Any] = {"patterns": [str(tmp_path / "*.h5")], "output": str(tmp_path / "out"), "registry": ""}
    given |= {"beam_options": [], "data": None, "metrics": None} | asdict(Reading())
    with pytest.raises(SystemExit, match="2"):
        preprocess.python_func(**given)
    assert not (tmp_path / "out/dataset").exists()
