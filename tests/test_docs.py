"""README and guides: their commands run or are understood, their tables agree with the program; the built package."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from string import Template

import pytest
import yaml
from google.cloud import storage
from guides import commands, guide
from servers import said, store
from showers import make_file

import preprocessing.__main__
import training.__main__
from components.image import IMAGE
from pipelines import parameters, submit
from pipelines.checks import check
from pipelines.cluster.platform import platform_of
from pipelines.cluster.resources import LAUNCHER, STEPS, Resources

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


# --- the guides of a cluster

_GUIDES = ("docs/kubeflow.md", "docs/troubleshooting.md", "docs/kubeflow-access.md")
# What the guides leave to the reader, as a shell has it.
_VARIABLES = {"BUCKET": "bucket", "IMAGE": "registry/image:1", "REGION": "region"}


@pytest.mark.parametrize("document", _GUIDES)
def test_every_command_of_a_guide_is_understood(document: str) -> None:
    """Also its options for the cluster, and the pipeline's parameters, as far as they can be checked from here."""
    parsers = {"training": training.__main__.parser, "preprocessing": preprocessing.__main__.parser}
    for command in filter(lambda command: command.startswith("python "), commands(guide(document))):
        _, program, *arguments = shlex.split(Template(command).substitute(_VARIABLES))
        if program == "-m":
            module, *rest = arguments
            parsers[module]().parse_args(rest)
            continue
        assert program == "pipelines/submit.py"
        options = submit.parser().parse_args(arguments)
        platform = platform_of(options) if "gpus" in options else None
        if platform and "input" in options:
            check(parameters.given_parameters(options), platform=platform)


# --- from an empty project of Google Cloud to a run on a bucket

# A program that notes how it was called and answers as Google's would, in place of those of the section.
_STAND_IN = """#!{python}
import json, os, sys
with open(os.environ["CALLS"], "a") as calls:
    print(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]), file=calls)
answers = {{"config get": "my-project", "projects describe": "42", "repositories describe": "registry/calopipe"}}
print(next((answer for asked, answer in answers.items() if asked in " ".join(sys.argv)), ""))
"""


def _section() -> str:
    return guide("docs/kubeflow.md").partition("\n## Google Kubernetes Engine\n")[2].partition("\n## ")[0]


def test_an_empty_project_has_a_run_on_a_bucket_after_ten_commands() -> None:
    """A command is a line that a reader types, with its continued lines. Several commands on one line are several."""
    given = commands(_section())
    for command in given:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|")
        assert not {";", "&", "&&", "|", "||"} & set(lexer), command
    assert 1 < len(given) <= 10
    assert given[-1].startswith("python pipelines/submit.py submit ")


def test_the_commands_speak_of_one_bucket_one_image_and_one_account(tmp_path: Path) -> None:
    """Looks at the programs that are called, in order, if the commands of the section are pasted into bash."""
    for name in ("gcloud", "kubectl", "python"):
        (tmp_path / name).write_text(_STAND_IN.format(python=sys.executable))
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}
    [script] = re.findall(r"```bash\n(.*?)```", _section(), re.DOTALL)
    subprocess.run(["bash", "-euc", script], cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    [bound] = [call for call in calls if "add-iam-policy-binding" in call]
    account = yaml.safe_load((ROOT / "deploy/base/account.yaml").read_text().partition("---")[0])["metadata"]["name"]
    namespace = yaml.safe_load((ROOT / "deploy/base/kustomization.yaml").read_text())["namespace"]
    assert bound[bound.index("--member") + 1] == (
        "principal://iam.googleapis.com/projects/42/locations/global/workloadIdentityPools/my-project.svc.id.goog"
        f"/subject/ns/{namespace}/sa/{account}"
    )
    places = [word for call in calls for word in call if word.startswith("gs://")]
    assert {place.split("/")[2] for place in places} == {"my-bucket"}
    options = submit.parser().parse_args(calls[-1][2:])
    [built] = [call[call.index("--substitutions") + 1] for call in calls if "builds" in call]
    assert f"_IMAGE={options.image}" == built
    assert options.image.rpartition("/")[2] == IMAGE
    assert (options.service_account, options.claim) == (account, None)


def test_google_builds_the_image_as_make_does() -> None:
    variables = "IMAGE=$$_IMAGE", "ACCELERATOR=$$_ACCELERATOR"
    made = said("make", "--dry-run", "--always-make", "image", *variables, cwd=ROOT)
    build = yaml.safe_load((ROOT / "deploy/cloudbuild.yaml").read_text())
    [step] = build["steps"]
    assert made.split() == [*step["env"], step["name"].partition(":")[0], *step["args"]]
    assert build["images"] == ["$_IMAGE"]


# --- what the guides say


def test_the_guide_states_what_each_step_needs() -> None:
    def row(step: Resources) -> tuple[str, ...]:
        return (step.title, step.cpu, step.memory, f"{step.hours:g}", str(step.retries + 1))

    assert f"kind load docker-image {IMAGE} " in guide("docs/kubeflow.md")
    lines = guide("docs/kubeflow.md").splitlines()
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines if line.startswith("|")]
    stated = {cells[0].strip("`"): cells[1:6] for cells in rows if len(cells) == 7}
    launcher = stated.pop("train, several nodes")
    assert {name: row(step) for name, step in STEPS.items()}.items() <= stated.items()
    # its time is that of the training and its own
    assert launcher == (*row(LAUNCHER)[:3], f"{STEPS['train'].hours + LAUNCHER.hours:g}", row(LAUNCHER)[4])
