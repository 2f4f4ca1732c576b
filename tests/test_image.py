"""The container image, built and run: its user, its content, and that it changes no result."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers import said
from showers import make_file
from test_injection import HOSTILE, SECRETS

from components.image import IMAGE
from training.model_folder import read_card

ROOT = Path(__file__).parent.parent
CONFINED = ["--read-only", "--tmpfs", "/tmp:mode=1777", "--cap-drop", "ALL", "--network", "none"]  # noqa: S108

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)


def in_image(*command: str, user: str = "1000:1000", volume: str = "") -> str:
    options = [*CONFINED, "--security-opt", "no-new-privileges", "--user", user]
    options += ["--volume", volume] if volume else []
    done = docker("run", "--rm", *options, IMAGE, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module", autouse=True)
def image() -> dict[str, Any]:
    """The container engine's description of the image."""
    if shutil.which("docker") is None:
        pytest.skip("no docker command here")
    if docker("version").returncode:
        pytest.skip("no Docker engine answers; start one, or set DOCKER_HOST")
    found = docker("image", "inspect", IMAGE)
    if found.returncode:
        pytest.skip(f"no image {IMAGE}; make image builds it")
    return json.loads(found.stdout)[0]


def test_it_runs_as_a_user_that_kubernetes_knows_is_not_root(image: dict[str, Any]) -> None:
    assert image["Config"]["User"] == "1000:1000"


def test_it_keeps_nothing_of_its_build(image: dict[str, Any]) -> None:
    """It has no build tools, tests, data or cache, and none of the certificates that the build may trust."""
    assert not [value for value in image["Config"]["Env"] if "CERT" in value or "proxy" in value.lower()]
    history = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", IMAGE).stdout
    assert "PIP_CERT=/" not in history
    names = "gcc|cc|make|git|pytest|ruff|mypy|uv|pip"
    program = f"for name in {names.replace('|', ' ')}; do ls /opt/venv/bin/$name /usr/bin/$name; done 2>/dev/null; true"
    assert in_image("sh", "-c", program) == ""
    left = r"-path '/run/secrets/*' -o -path '/root/.cache/*' -o -name test_image.py -o -name '*.h5'"
    assert in_image("sh", "-c", rf"find / -xdev \( {left} \) 2>/dev/null; true") == ""


def test_it_holds_the_code_of_this_tree() -> None:
    """All files of the package, also those that are not Python: grades, and the report's style and templates."""
    here = {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()
        for package in ("components", "pipelines", "preprocessing", "training", "validation")
        for path in sorted((ROOT / package).rglob("*"))
        if path.suffix in {".py", ".toml", ".css", ".html"}
    }
    there = in_image("sh", "-c", f"cd /opt/venv/lib/python3.11/site-packages && sha256sum {' '.join(here)}")
    assert {line.split()[1]: line.split()[0] for line in there.splitlines()} == here


@pytest.mark.parametrize("user", ["1000:1000", "12345:0"])
def test_any_user_can_work_in_it_on_a_read_only_file_system(user: str) -> None:
    """Users have a name, a home, and a place for matplotlib's cache. OpenShift uses such users as the second."""
    program = "import getpass, pathlib; getpass.getuser(); pathlib.Path.home().joinpath('x').touch()"
    in_image("python3", "-c", program, user=user)
    told = in_image("python3", "-c", "import matplotlib.pyplot, h5py, kfp, apache_beam", user=user)
    assert "not a writable" not in told  # what matplotlib says where it has no such place
    told = in_image("python3", "-c", "import tensorflow, keras; print(tensorflow.__version__)", user=user)
    assert told.strip()[0].isdigit(), told  # and no warning before it
    assert "examples:" in in_image("python3", "-m", "training", "--help", user=user)


def test_nobody_can_change_what_is_in_it() -> None:
    """File permissions forbid it, also if the root file system is writable."""
    command = ["find", "/opt", "/usr", "/etc", "-writable", "-not", "-type", "l"]
    found = docker("run", "--rm", "--cap-drop", "ALL", "--user", "12345:0", IMAGE, *command)
    assert found.stdout == ""
    assert "/opt/venv" in docker("run", "--rm", "--user", "0:0", IMAGE, *command).stdout.splitlines()


def owned(folder: Path) -> str:
    """A user that is not root, as UID:GID, who becomes the owner of `folder`."""
    uid, gid = (os.getuid(), os.getgid()) if os.getuid() else (1000, 1000)
    folder.mkdir(parents=True)
    os.chown(folder, uid, gid)
    return f"{uid}:{gid}"


def test_the_pipeline_in_the_image_ends_as_without(tmp_path: Path) -> None:
    """The folders have hostile names."""
    files, there, here = tmp_path / HOSTILE, tmp_path / "there" / HOSTILE, tmp_path / "here"
    make_file(files / "train.h5", events=60)
    make_file(files / f"{HOSTILE}.h5", events=30, seed=1)
    user = owned(there)
    options = ["--config", "small", "--steps", "2", "--grade", "gan", "--split-file", f"test={HOSTILE}*"]
    asked = ["run", "--input", f"{files}/*.h5", *options, "--output"]
    in_image("python3", "-m", "pipelines.submit", *asked, str(there), user=user, volume=f"{tmp_path}:{tmp_path}")
    said(sys.executable, ROOT / "pipelines/submit.py", *asked, here, env=os.environ | SECRETS)

    shards = [{path.name: path.read_bytes() for path in run.glob("dataset/shards/*.tfrecord")} for run in (there, here)]
    assert len(shards[0]) >= 2
    assert shards[0] == shards[1]
    assert read_card(there / "model").weights == read_card(here / "model").weights
    assert (there / "generated.h5").read_bytes() == (here / "generated.h5").read_bytes()
    verdicts = [json.loads((run / "verdict.json").read_text()) for run in (there, here)]
    assert verdicts[0]["verdict"] == verdicts[1]["verdict"]
    answers, values = ([[each[key] for each in one["criteria"]] for one in verdicts] for key in ("verdict", "value"))
    assert answers[0] == answers[1]
    # BLAS may sum in another order; NaN stands for a criterion without a value
    assert np.array(values[0], float) == pytest.approx(np.array(values[1], float), rel=1e-9, nan_ok=True)
    assert {path.stat().st_uid for path in there.rglob("*")} == {int(user.partition(":")[0])}
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in left if any(secret.encode() in path.read_bytes() for secret in SECRETS.values())]
    assert not [path for path in tmp_path.rglob("*") if path.name == "injected"]
