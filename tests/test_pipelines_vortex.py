"""The pipeline of a flow: compiled, with the parameters that its signature states, and refused before it starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from flows import street, write_flow
from kubeflow_server import serve

from calopipe.errors import InputError
from calopipe.flow.files import open_flow
from pipelines import parameters
from pipelines.checks import _require_period
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
        (
            ["--rollout-steps", "10", "--split-file", "test=a.h5"],
            "--rollout-steps is 10, expected at least 19 for ",
        ),
        (["--generation-pods", "2"], "--generation-pods 2: roll-outs are not shared out; leave it out"),
        (["--grade", "none"], "none"),
        (["--split-file", "train=a.h5"], "a.h5: none of the 1 simulations is in the test split"),
        (["--floor", "nowhere.h5"], "nowhere.h5: no such file"),
        (["--floor", "{nan}"], "nan.h5: the velocity in frame 2 is not a finite number"),
    ],
)
def test_what_is_wrong_is_found_before_any_step(tmp_path: Path, arguments: list[str], told: str) -> None:
    velocity = street(frames=20)
    velocity[2, 3, 3, 0] = np.nan
    given = [each.format(nan=write_flow(tmp_path / "nan.h5", velocity=velocity)) for each in arguments]
    files = [str(write_flow(tmp_path / "a.h5"))]
    if "--floor" in arguments:
        given += ["--split-file", "test=a.h5"]
    with pytest.raises(InputError, match=told):
        main(["run", "--pipeline", "vortex", "--input", *files, "--output", str(tmp_path / "run"), *given])


@pytest.mark.parametrize(("pair_step", "least"), [(1, 19), (2, 9)])
def test_a_roll_out_that_lasts_a_period_of_twenty_frames_is_long_enough(
    tmp_path: Path, pair_step: int, least: int
) -> None:
    flow = open_flow(write_flow(tmp_path / "a.h5"))
    _require_period(flow, least, pair_step)
    with pytest.raises(InputError, match=f"--rollout-steps is {least - 1}, expected at least {least} for "):
        _require_period(flow, least - 1, pair_step)


def test_it_is_submitted_and_scheduled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "no-config"))
    what = ["--pipeline", "vortex", "--claim", "shared:/data", "--input", "/data/*.h5", "--output", "/data/run"]
    more = ["--floor", "/data/fine/*.h5", "--rollout-steps", "30"]
    with serve() as kubeflow:
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", kubeflow.address)
        with pytest.raises(InputError, match=r"--floor /fine\.h5: not under /data"):
            main(["submit", *what, "--floor", "/fine.h5"])
        main(["submit", *what, *more])
        main(["schedule", *what, *more, "--cron", "0 0 3 * * 1"])
        (run,), (recurring,) = kubeflow.runs.values(), kubeflow.recurring.values()
    for made in (run, recurring):
        assert made["display_name"].startswith("vortex")
        tasks = made["pipeline_spec"]["pipeline_spec"]["root"]["dag"]["tasks"]
        assert {*tasks} == {"preprocess-flow", "train", "generate-flow", "validate-flow"}
        assert made["runtime_config"]["parameters"] == {
            "input": ["/data/*.h5"],
            "output": "/data/run",
            "floor": ["/data/fine/*.h5"],
            "rollout_steps": 30,
        }
    assert not kubeflow.departures
