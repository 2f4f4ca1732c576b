"""What goes to a cluster: the compiled pipeline."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.image import IMAGE
from pipelines import submit

STEPS = ["discover", "preprocess", "train", "generate", "validate", "promote"]


@pytest.fixture
def package(tmp_path: Path) -> dict[str, Any]:
    submit.main(["compile", "--output", str(tmp_path / "p.yaml")])
    return yaml.safe_load((tmp_path / "p.yaml").read_text())


def test_the_pipeline_is_a_straight_line(package: dict[str, Any]) -> None:
    tasks = package["root"]["dag"]["tasks"]
    assert sorted(tasks) == sorted(STEPS)
    for before, after in pairwise(STEPS):
        assert before in tasks[after]["dependentTasks"]
    assert not any("triggerPolicy" in task for task in tasks.values())  # no conditionals


def test_every_step_looks_for_itself_at_every_run(package: dict[str, Any]) -> None:
    tasks = package["root"]["dag"]["tasks"]
    assert not any(task["cachingOptions"].get("enableCache") for task in tasks.values())


def test_every_step_runs_in_the_one_image_and_installs_nothing(package: dict[str, Any]) -> None:
    executors = package["deploymentSpec"]["executors"]
    assert len(executors) == len(STEPS)
    for executor in executors.values():
        assert executor["container"]["image"] == IMAGE
        assert "pip install" not in str(executor["container"])


def test_parameters_are_described_and_have_defaults(package: dict[str, Any]) -> None:
    parameters = package["root"]["inputDefinitions"]["parameters"]
    assert all(parameter["description"] for parameter in parameters.values())
    assert {name for name, parameter in parameters.items() if "defaultValue" not in parameter} == {"input", "output"}


def test_image_and_claim(tmp_path: Path) -> None:
    command = ["compile", "--output", str(tmp_path / "p.yaml"), "--image", "python-mine:7", "--claim", "shared:/data"]
    submit.main(command)
    package, platform = yaml.safe_load_all((tmp_path / "p.yaml").read_text())
    assert {e["container"]["image"] for e in package["deploymentSpec"]["executors"].values()} == {"python-mine:7"}
    mounts = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert len(mounts) == len(STEPS)
    for executor in mounts.values():
        (mount,) = executor["pvcMount"]
        assert mount["mountPath"] == "/data"
        assert "shared" in str(mount)


@pytest.mark.parametrize("module", ["pipelines", "pipelines.submit", "pipelines.calorimeter", "components.train"])
def test_importing_the_pipeline_loads_no_tensorflow(module: str) -> None:
    program = f"import sys, {module}; assert not {{'tensorflow', 'keras', 'apache_beam'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
