"""The pipeline of a flow: compiled, with the parameters that its signature states, and refusals before it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flow_models import carried
from flows import GRID, street, write_flow
from kubeflow_server import Kubeflow
from pods import perform

from calopipe.errors import BAD_INPUT_EXIT_CODE, InputError
from calopipe.flow.files import open_flow
from calopipe.verdict import read_verdict
from components.flow.generate import generate_flow
from components.flow.preprocess import preprocess_flow
from components.flow.validate import validate_flow
from pipelines.checks import _require_period
from pipelines.submit import main
from preprocessing.dataset import read_manifest
from training.model_folder import read_card
from training.rollout.held_out import rollouts


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--config", "fast"], "the dataset holds pairs of frames, the model autoregressive is for showers"),
        (["--pair-step", "0"], "--pair-step is 0"),
        (["--rollout-steps", "-1"], "--rollout-steps is -1, expected at least 0"),
        (["--rollout-steps=10", "--split-file=test=a.h5"], "--rollout-steps is 10, expected at least 19 for "),
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


def test_a_roll_out_that_lasts_a_period_of_twenty_frames_is_long_enough(tmp_path: Path) -> None:
    flow = open_flow(write_flow(tmp_path / "a.h5"))
    for pair_step, least in ((1, 19), (2, 9)):
        _require_period(flow, least, pair_step)
        with pytest.raises(InputError, match=f"--rollout-steps is {least - 1}, expected at least {least} for "):
            _require_period(flow, least - 1, pair_step)


def test_it_is_submitted_and_scheduled(kubeflow: Kubeflow) -> None:
    what = ["--pipeline", "vortex", "--claim", "shared:/data", "--input", "/data/*.h5", "--output", "/data/run"]
    more = ["--floor", "/data/fine/*.h5", "--rollout-steps", "30"]
    with pytest.raises(InputError, match=r"--floor /fine\.h5: not under /data"):
        main(["submit", *what, "--floor", "/fine.h5"])
    with pytest.raises(InputError, match="--generation-pods 2: roll-outs are not shared out; leave it out"):
        main(["submit", *what, "--generation-pods", "2"])
    main(["submit", *what, *more])
    main(["schedule", *what, *more, "--cron", "0 0 3 * * 1"])
    (run,), (recurring,) = kubeflow.runs.values(), kubeflow.recurring.values()
    given = {"input": ["/data/*.h5"], "output": "/data/run", "floor": ["/data/fine/*.h5"], "rollout_steps": 30}
    for made in (run, recurring):
        assert made["display_name"].startswith("vortex")
        tasks = made["pipeline_spec"]["pipeline_spec"]["root"]["dag"]["tasks"]
        assert {*tasks} == {"preprocess-flow", "train", "generate-flow", "validate-flow"}
        assert made["runtime_config"]["parameters"] == given


def test_its_steps_hand_on_what_they_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps except the training, which a model with a step of two intervals replaces; also wrong files there."""
    monkeypatch.setattr("validation.flow.compare.page", lambda *_: "<html></html>")
    velocity = street()
    velocity[23, 3, 3, 0] = np.nan  # of the last pair
    write_flow(tmp_path / "train.h5", velocity=velocity, reynolds=120.0)
    (tmp_path / "floor").mkdir()
    test, floor = write_flow(tmp_path / "test.h5"), write_flow(tmp_path / "floor" / "a.h5")
    output, split_files = str(tmp_path / "run"), ["test=test.h5", "train=train.h5"]
    numbers: dict[str, float] = {}
    (files, fingerprint, *folders), made = perform(
        preprocess_flow, tmp_path, patterns=[f"{tmp_path}/*.h5"], output=output, split_files=split_files, pair_step=2,
        beam_options=[], on_bad_event="skip", on_bad_file="stop",
        metrics=SimpleNamespace(log_metric=numbers.__setitem__),
    )  # fmt: skip
    manifest = read_manifest(tmp_path / "run" / "dataset")
    assert files == [str(tmp_path / "test.h5"), str(tmp_path / "train.h5")]
    assert folders == [f"{output}/dataset", f"{output}/registry"]
    assert (fingerprint, manifest.geometry.interval_d) == (manifest.fingerprint, 0.5)
    assert {name: number for name, number in numbers.items() if number} == {
        "pairs of frames read": 44, "pairs of frames written": 43, "dropped: nan": 1,
    }  # fmt: skip
    facts = {"events": {"train": 21, "validation": 0, "test": 22}, "ranges": {"reynolds": [100.0, 120.0]}}
    assert made["data"].metadata.items() >= {"location": f"{output}/dataset", **facts}.items()

    model = carried(tmp_path / "run" / "model", grid=replace(GRID, interval_d=0.5))
    given = {"output": output, "files": files, "split_files": split_files, "rollout_steps": 10, "model_file": ""}
    given |= {"model": SimpleNamespace(metadata={"fingerprint": "of the model"})}
    content, made = perform(generate_flow, tmp_path, fingerprint=read_card(model).fingerprint(), **given)
    assert rollouts(tmp_path / "run" / "rollouts") == ([tmp_path / "run" / "rollouts" / "test.h5"], content)
    assert len(open_flow(tmp_path / "run" / "rollouts" / "test.h5").time) == 11
    assert made["rollouts"].metadata == {
        "location": f"{output}/rollouts", "fingerprint": content, "made_from": "of the model",
    }  # fmt: skip

    asked = {"files": files, "output": output, "grade": "precision", "floor": [f"{tmp_path}/floor/*.h5"]}
    asked |= {"rollouts": made["rollouts"]}
    (verdict, request), _ = perform(validate_flow, tmp_path, fingerprint=content, **asked)
    document = read_verdict(tmp_path / "run" / "verdict.json")
    assert (verdict, request) == (document["verdict"], document["request"])
    sides = {side: [file["file"] for file in document["inputs"][side]] for side in ("reference", "candidate", "floor")}
    assert sides == {
        "reference": files, "candidate": [f"{output}/rollouts/test.h5"], "floor": [str(floor)],
    }  # fmt: skip
    assert [pair["reference"] for pair in document["simulations"]] == [test.name]
    for step, arguments in ((generate_flow, given), (validate_flow, asked)):
        with pytest.raises(SystemExit) as stopped:
            perform(step, tmp_path, fingerprint="another", **arguments)
        assert stopped.value.code == BAD_INPUT_EXIT_CODE
