"""The pipeline of a flow: compiled, with the parameters that its signature states, and refused before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from flows import write_flow

from calopipe.errors import InputError
from pipelines import parameters
from pipelines.submit import main


def test_it_compiles_with_the_train_step_of_showers(tmp_path: Path) -> None:
    packages = {}
    for name in parameters.PIPELINES:
        file = tmp_path / f"{name}.yaml"
        main(["compile", "--pipeline", name, "--output", str(file), "--claim", "calopipe-data:/data"])
        packages[name] = [*yaml.safe_load_all(file.read_text())]
    vortex, showers = (packages[name][0] for name in ("vortex", "calorimeter"))
    tasks = vortex["root"]["dag"]["tasks"]
    assert {name: each.get("dependentTasks", []) for name, each in tasks.items()} == {
        "preprocess-flow": [],
        "train": ["preprocess-flow"],
        "generate-flow": ["preprocess-flow", "train"],
        "validate-flow": ["generate-flow", "preprocess-flow"],
    }
    assert set(vortex["root"]["inputDefinitions"]["parameters"]) == set(parameters.defaults("vortex"))
    executors = [each["deploymentSpec"]["executors"] for each in (vortex, showers)]
    assert executors[0]["exec-train"]["container"] == executors[1]["exec-train"]["container"]
    resources = {name: each["container"]["resources"] for name, each in executors[0].items()}
    assert resources["exec-generate-flow"] == executors[1]["exec-generate"]["container"]["resources"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--config", "fast"], "the dataset holds pairs of frames, the model autoregressive is for showers"),
        (["--pair-step", "0"], "--pair-step is 0"),
        (["--rollout-steps", "-1"], "--rollout-steps is -1, expected at least 0"),
        (["--grade", "none"], "none"),
    ],
)
def test_what_is_wrong_is_found_before_any_step(tmp_path: Path, arguments: list[str], told: str) -> None:
    file = write_flow(tmp_path / "a.h5")
    with pytest.raises(InputError, match=told):
        main(["run", "--pipeline", "vortex", "--input", str(file), "--output", str(tmp_path / "run"), *arguments])
