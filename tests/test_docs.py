"""README and guides: their commands run, in a tiny variant; the package works without the repository."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from google.cloud import storage
from guides import commands, guide
from servers import said, store
from showers import make_file

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
_PLACES = "calopipe|preprocessing|training|validation|components|pipelines|tests|deploy|docs|data"
_PATHS = re.compile(rf"(?<![\w/$.-])((?:{_PLACES})/[\w./-]*\w)")


@pytest.mark.slow
@pytest.mark.timeout(1500)  # a dozen processes, each of which loads TensorFlow or Beam
def test_every_command_of_readme_and_guide_runs(tmp_path: Path) -> None:
    """They run on small showers, which replace the sample and the files of a bucket, with trainings of a few steps.

    Commands of `make`, and commands that need a cluster, have other tests.
    """
    with store("my-bucket"):
        bucket = storage.Client(project="test").bucket("my-bucket")
        for number in range(3):
            name = f"Ele_VarAngleMeas_100_200_{number:03d}.h5"
            make_file(tmp_path / "data/geant4" / name, events=60, seed=number)
            bucket.blob(f"showers/{name}").upload_from_filename(tmp_path / "data/geant4" / name)
        shown = [each for document in ("README.md", "docs/guide.md") for each in commands(guide(document))]
        ran = [*dict.fromkeys(each for each in shown if each.startswith("python ") and "--endpoint" not in each)]
        for command in ran:
            arguments = shlex.split(command)[1:]
            if arguments[0].endswith(".py"):
                arguments[0] = str(ROOT / arguments[0])
            if {"fit", "run"} & set(arguments[:3]):
                assert "--steps" not in arguments
                arguments += ["--steps", "4"]
            said(sys.executable, *arguments, cwd=tmp_path)
    stages = ("preprocessing", "training fit", "training generate", "validation", "submit.py run", "submit.py compile")
    for stage in (*stages, "gs://"):
        assert any(stage in command for command in ran), stage


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_modules_of_the_documents_exist(document: Path) -> None:
    """Modules in the log are not checked: they have the names of the log's date."""
    text = document.read_text()
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        target = document.parent / link if link else document
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)", target.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{link}#{anchor}"
    if document.parent.name != "log" and document.name != "CHANGELOG.md":
        for path in {*_PATHS.findall(text)} - {"calopipe/fast_simulation.hh"}:  # which C++ includes by this name
            assert (ROOT / path).exists(), path


@pytest.mark.slow
def test_the_built_wheel_works_from_another_directory(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    source = tmp_path / "source"  # a copy, since setuptools leaves a build folder beside what it builds
    tracked = said("git", "ls-files", cwd=ROOT)
    for name in filter(lambda name: name.endswith((".py", ".toml", ".css", ".md", "LICENSE")), tracked.splitlines()):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    said(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("calopipe-*.whl")
    said(*pip, "install", "--no-deps", "--target", tmp_path / "site", wheel)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    program = f"""
import pathlib, pipelines.submit, calopipe.grade, training.configs, validation.report
for module in (pipelines.submit, calopipe.grade, training.configs, validation.report):
    assert module.__file__.startswith({str(tmp_path / "site")!r})
calopipe.grade.load_grade("gan")
assert pathlib.Path(validation.report.__file__).with_name("report.css").is_file()
"""
    path = make_file(elsewhere / "a.h5", events=60)
    for command in (
        ["-c", program],
        ["-m", "preprocessing", "--input", path, "--output", "ds"],
        ["-m", "training", "fit", "--dataset", "ds", "--output", "model", "--config", "small", "--steps", "1"],
        ["-m", "pipelines.submit", "compile", "--output", "p.yaml"],
    ):
        said(sys.executable, *command, cwd=elsewhere, env=environment)
    assert (elsewhere / "model/card.json").is_file()
    assert (elsewhere / "p.yaml").is_file()
    for name in ("preprocess", "train", "validate", "submit"):
        script = tmp_path / f"site/bin/calopipe-{name}"
        assert "examples:" in said(script, "--help", env=environment)
        refused = subprocess.run([script, "--nonsense"], env=environment, capture_output=True, text=True, check=False)
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1


@pytest.mark.slow
def test_the_api_pages_build_without_warnings(tmp_path: Path) -> None:
    environment = ["--old-file", ".venv/installed", f"BIN={Path(sys.executable).parent}"]  # the one of this test
    said("make", *environment, f"API={tmp_path}", "docs", cwd=ROOT)
    for package in ("calopipe", "preprocessing", "training", "validation", "components", "pipelines"):
        for path in (ROOT / package).rglob("*.py"):
            module = path.relative_to(ROOT).with_suffix("")
            page = module.parent if module.name == "__init__" else module
            assert module.name == "__main__" or (tmp_path / page).with_suffix(".html").is_file(), module
