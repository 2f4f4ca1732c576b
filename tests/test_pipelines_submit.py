"""Runs and schedules from the command line, against a server that speaks the v2beta1 API."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubeflow_server import STEPS, Fault, Kubeflow, departures, write_small

from calopipe.errors import InputError
from components.image import IMAGE
from pipelines import parameters, submit
from pipelines.remote import client, runs

WHAT = ["--claim", "calopipe-data:/data", "--input", "/data/*.h5", "--output", "/data/run", "--epochs", "7"]
Command = Callable[..., str]


@pytest.fixture
def command(
    kubeflow: Kubeflow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs submit.py against the server, and returns what it printed."""
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "no-config"))
    monkeypatch.setattr(runs, "POLL_SECONDS", 0.01)

    def run(*arguments: str) -> str:
        capsys.readouterr()
        submit.main(list(arguments))
        return capsys.readouterr().out

    return run


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Submit a small pipeline in place of the whole one, in tests where the content does not matter."""
    monkeypatch.setattr("pipelines.package.write", write_small)


@pytest.fixture
def tokyo() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("tokyo")
def test_submit(kubeflow: Kubeflow, command: Command) -> None:
    options = ("--service-account", "trainer", "--name", "mine", "--experiment", "other", "--wait")
    before = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    printed = command("submit", *WHAT, *options)
    assert printed.endswith(": succeeded\n")
    (run,) = kubeflow.runs.values()
    assert printed.startswith("run: {0}\nsee: {1}/#/runs/details/{0}\n".format(run["run_id"], kubeflow.address))
    assert run["runtime_config"]["parameters"] == {"input": ["/data/*.h5"], "output": "/data/run", "epochs": 7}
    assert run["service_account"] == "trainer"
    named = datetime.strptime(run["display_name"], "mine %Y-%m-%d %H-%M-%S")
    assert before <= named <= datetime.now(UTC).replace(tzinfo=None)
    assert kubeflow.experiments[run["experiment_id"]]["display_name"] == "other"
    assert sorted(run["pipeline_spec"]["pipeline_spec"]["root"]["dag"]["tasks"]) == sorted(STEPS)
    assert "calopipe-data" in str(run["pipeline_spec"]["platform_spec"])


def test_waiting_prints_a_line_for_each_step_as_its_state_changes(kubeflow: Kubeflow, command: Command) -> None:
    lines = command("status", kubeflow.begun(STEPS), "--wait").splitlines()
    assert lines[:-1] == [f"{step:<12}{state}" for step in STEPS for state in ("running", "succeeded  0:01:00")]
    assert lines[-1].endswith(": succeeded")


@pytest.mark.parametrize(
    ("failing", "why"),
    [
        ("train", "step train failed: see submit.py logs {0} --step train"),
        ("start", "run {0} failed outside its steps: kubectl describe workflow {1} shows why"),
        ("cancel", "run {0} was cancelled"),  # of which the server says that it failed
    ],
)
def test_a_run_that_does_not_end_well_exits_1_and_says_why(
    kubeflow: Kubeflow, command: Command, capsys: pytest.CaptureFixture[str], failing: str, why: str
) -> None:
    kubeflow.failing = failing
    run, state = kubeflow.begun(STEPS), "canceled" if failing == "cancel" else "failed"
    why = why.format(run, f"--namespace kubeflow --selector pipeline/runid={run}")
    with pytest.raises(SystemExit) as ended:
        command("status", run, "--wait")
    assert ended.value.code == f"error: {why}"  # which Python prints, exiting with 1
    assert capsys.readouterr().out.endswith(f"run {run}: {state}\n")
    first, *_, last = command("status", run).splitlines()
    assert (first.partition("  ")[0], last) == (f"calorimeter: {state}", why)
    assert f"  {state:<10}  calorimeter\n" in command("status")


@pytest.mark.parametrize(("state", "told"), [("FAILED", "CANCELED"), ("SUCCEEDED", "SUCCEEDED"), (None, "PENDING")])
def test_a_run_that_ended_well_although_it_was_to_be_terminated_succeeded(state: str | None, told: str) -> None:
    history = [SimpleNamespace(state="RUNNING"), SimpleNamespace(state="CANCELING")]
    assert runs.state_of(SimpleNamespace(state=state, state_history=history)) == told


@pytest.mark.parametrize("status", [500, 429])
def test_each_answer_renews_the_patience_with_a_server_that_restarts_or_is_busy(
    kubeflow: Kubeflow, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    """With a clock of the test: hours of answers and then a failure, several times; at the end only failures."""
    clock, slept = [0.0], 0.9
    monkeypatch.setattr(client, "RETRY", client.RETRY.new(total=0))
    run = kubeflow.begun(STEPS)

    def sleep(_seconds: float) -> None:
        clock[0] += slept * runs.PATIENCE_SECONDS
        if slept < 0.9 or len(kubeflow.sent("run_service_get_run")) in {2, 4}:
            kubeflow.faults["run_service_get_run"] = [Fault(status=status)]

    monkeypatch.setattr("pipelines.remote.runs.time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    submit.main(["status", run, "--wait"])
    said = capsys.readouterr()
    assert said.out.endswith(": succeeded\n")
    assert said.err.count("trying again") == 2
    assert clock[0] > 4 * runs.PATIENCE_SECONDS
    clock[0], slept = 0.0, 0.6
    with pytest.raises(InputError, match="the run goes on: submit"):
        submit.main(["status", kubeflow.begun(STEPS), "--wait"])
    assert clock[0] == pytest.approx(1.2 * runs.PATIENCE_SECONDS)


def test_status(kubeflow: Kubeflow, command: Command) -> None:
    assert command("status") == "no runs\n"
    first = kubeflow.begun(STEPS, "one")
    command("status", first)
    command("status", first)
    lines = command("status", first).splitlines()
    assert lines[0] == f"one: running  {kubeflow.address}/#/runs/details/{first}"
    assert lines[1:3] == ["preprocess  succeeded  0:01:00", "train       running"]
    assert lines[3:] == [f"{step:<12}pending" for step in STEPS[2:]]
    assert command("status", kubeflow.begun(["preprocess-flow"])).splitlines()[1] == "preprocess-flow running"


def test_of_many_runs_the_ten_newest_are_listed(kubeflow: Kubeflow, command: Command) -> None:
    begun = [kubeflow.begun(STEPS, f"run {number}") for number in range(12)]
    lines = [f"{run}  2026-01-02 15:04  pending     run {number}" for number, run in enumerate(begun)]
    assert command("status").splitlines() == lines[:1:-1]
    with pytest.raises(InputError, match="which run"):
        command("status", "--wait")


@pytest.mark.parametrize(
    ("run", "node", "driver", "state"),
    [
        ("RUNNING", "RUNNING", None, "RUNNING"),
        ("RUNNING", None, "RUNNING", "PENDING"),
        ("RUNNING", "PENDING", "SUCCEEDED", "PENDING"),
        ("RUNNING", "RUNTIME_STATE_UNSPECIFIED", "SUCCEEDED", "PENDING"),
        ("FAILED", None, "FAILED", "FAILED"),
        ("FAILED", "PENDING", "FAILED", "FAILED"),
        ("FAILED", "PENDING", None, "SKIPPED"),
        ("CANCELED", None, None, "SKIPPED"),
        ("SUCCEEDED", "SKIPPED", "SUCCEEDED", "SKIPPED"),
    ],
)
@pytest.mark.parametrize("name", ["train", "Train"])
def test_the_state_of_a_step_is_that_of_its_node_or_of_a_driver_that_failed(
    run: str, node: str | None, driver: str | None, state: str, name: str
) -> None:
    """In some workflows the node of a step goes by the step's title."""
    details = [
        SimpleNamespace(display_name=called, state=known, start_time=None, end_time=None)
        for called, known in ((name, node), ("train-driver", driver))
        if known
    ]
    task: dict[str, Any] = {"root": {"dag": {"tasks": {"train": {"taskInfo": {"name": "Train"}}}}}}
    asked = SimpleNamespace(state=run, run_details=SimpleNamespace(task_details=details), pipeline_spec=task)
    assert [step.state for step in runs.steps(None, asked)] == [state]  # type: ignore[arg-type]


def test_the_ends_that_kfps_own_wait_does_not_know_end_the_waiting(
    kubeflow: Kubeflow, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that the server ended says why; a skipped run counts as a success; CANCELED is in the contract."""
    run = kubeflow.begun(STEPS)
    failed = {"state": "FAILED", "error": {"code": 9, "message": "no\n such root"}}
    for progress, told in (({"state": "CANCELED"}, "cancelled"), (failed, "failed outside its steps: no such root$")):
        monkeypatch.setattr(Kubeflow, "_progress", lambda *_, progress=progress: progress)
        with pytest.raises(SystemExit, match=f"run {run} (was )?{told}"):
            command("status", run, "--wait")
    monkeypatch.setattr(Kubeflow, "_progress", lambda *_: {"state": "SKIPPED", "error": None})
    assert command("status", run, "--wait").endswith(f"run {run}: skipped\n")


def test_the_steps_of_a_run_that_the_ui_started_from_an_uploaded_version(kubeflow: Kubeflow, command: Command) -> None:
    run = kubeflow.begun(STEPS)
    named = {"pipeline_id": "p", "pipeline_version_id": "v"}
    kubeflow.versions["v"] = named | {"pipeline_spec": kubeflow.runs[run].pop("pipeline_spec")}
    kubeflow.runs[run]["pipeline_version_reference"] = named
    assert [line.split()[0] for line in command("status", run).splitlines()[1:]] == STEPS
    kubeflow.faults["pipeline_service_get_pipeline_version"] = [Fault(status=500)]
    assert "succeeded" in command("status", run, "--wait").splitlines()[-1]


@pytest.mark.usefixtures("small")
def test_schedule(kubeflow: Kubeflow, command: Command) -> None:
    printed = command("schedule", "--cron", "0 0 3 * * 1", *WHAT)
    (made,) = kubeflow.recurring.values()
    assert printed == f"recurring run: {made['recurring_run_id']}\n"
    assert made["trigger"] == {"cron_schedule": {"cron": "0 0 3 * * 1"}}
    assert made["no_catchup"] is True
    assert made["max_concurrency"] in (1, "1")
    assert made["service_account"] == "pipeline-runner"  # the server's
    assert kubeflow.experiments[made["experiment_id"]]["display_name"] == "calopipe"
    assert made["runtime_config"]["parameters"]["epochs"] == 7


def test_one_user_and_several(kubeflow: Kubeflow, command: Command, small: None) -> None:
    with pytest.raises(InputError, match="--namespace team: the server has one user, and runs all in its own; leave"):
        command("submit", *WHAT, "--namespace", "team")
    assert not kubeflow.runs
    kubeflow.experiments.clear()
    kubeflow.multi_user = True
    with pytest.raises(InputError, match=r"refused \(403\) to namespace other, which may not exist, with no cred"):
        command("status", "--namespace", "other")
    command("submit", *WHAT, "--namespace", "team")
    assert [one["namespace"] for one in kubeflow.experiments.values()] == ["team"]
    assert "calorimeter" in command("status", "--namespace", "team")
    assert "recurring run" in command("schedule", "--cron", "0 0 3 * * 1", *WHAT, "--namespace", "team")


def test_the_server_would_see_a_request_that_departs_from_the_contract(kubeflow: Kubeflow) -> None:
    """A test of the check itself: an unknown field, a wrong type, a wrong name of a state."""
    for body in ({"name": "x"}, {"display_name": 1.5}, {"state": "DONE"}, {"runtime_config": {"parameter": {}}}):
        assert [*departures(body, "V2beta1Run", "run")], body
    assert not [*departures({"display_name": "x", "state": "FAILED"}, "V2beta1Run", "run")]


@pytest.mark.usefixtures("small")
def test_compiling_says_where_the_default_image_has_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compile", "--output", str(tmp_path / "p.yaml")]
    submit.main(command)
    assert capsys.readouterr().err == f"the cluster must be able to pull {IMAGE}; see docs/image.md, or give --image\n"
    submit.main([*command, "--image", "example.org/calopipe:1.0"])
    assert not capsys.readouterr().err


def test_ctrl_c_ends_the_waiting_and_not_the_run(kubeflow: Kubeflow) -> None:
    program = """if True:
        import runpy, signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
        runpy.run_module("pipelines.submit", run_name="__main__")
    """
    run = kubeflow.begun(STEPS)
    command = [sys.executable, "-c", program, "status", run, "--wait", "--endpoint", kubeflow.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "preprocess  running\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1].strip() == f"stopped following; the run goes on: submit.py status {run} --wait"
        assert process.returncode == 130


def test_without_a_command_the_sample_is_run_here_and_a_flow_into_a_folder_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    ran: list[tuple[Any, ...]] = []
    monkeypatch.setattr("pipelines.checks.check", lambda given, pipeline: ran.append((given, pipeline)))
    monkeypatch.setattr("pipelines.local_run.run", lambda given, output, **how: ran.append((given, output, how)))
    for arguments, name, data, output in (
        ([], "calorimeter", "geant4", "runs/demo"),
        (["run", "--pipeline", "vortex"], "vortex", "vortex", "runs/vortex"),
    ):
        ran.clear()
        submit.main(arguments)
        given = {"input": [str(Path(submit.__file__).parent.parent / "data" / data / "*.h5")], "output": output}
        how = {"verbose": False, "name": name}
        assert ran == [(given, name), (given, tmp_path / output, how)]
    submit.main(["run", "--input", "a.h5", "--output", "/x", "--verbose", "--epochs", "3"])
    given = {"input": ["a.h5"], "output": "/x", "epochs": 3}
    assert ran[-1] == (given, Path("/x"), {"verbose": True, "name": "calorimeter"})


def test_a_run_is_given_settings_as_json_or_text_and_the_calorimeter_in_place_of_its_name() -> None:
    """The steps need not know the name, nor see a file of the calorimeter, which may have gone when they run."""

    def given(*options: str) -> dict[str, Any]:
        return parameters.given_parameters(submit.parser().parse_args(["run", *options]))

    told = given("--set", "average=0.9", "--set", "precision=float16", "--set", "name=a=b", "--set", "on=true")
    assert told["settings"] == {"average": 0.9, "precision": "float16", "name": "a=b", "on": True}
    for wrong in ("average", "=0.9"):
        with pytest.raises(InputError, match=f"--set {wrong}: expected NAME=VALUE"):
            given("--set", wrong)
    assert given("--geometry", "calochallenge-2")["geometry"].startswith('{"shape":[16,9,45]')
    with pytest.raises(InputError, match=r"geometry .*: holds \{\{"):
        given("--geometry", "a{{b}}.toml")
