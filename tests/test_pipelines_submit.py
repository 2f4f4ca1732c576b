"""Runs and schedules from the command line, against a server that speaks the v2beta1 API."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kubeflow_server import CONTRACT, STEPS, Fault, Kubeflow, departures, write_small

from calopipe.errors import InputError
from calopipe.showers.cells import Geometry, Layer
from calopipe.showers.detectors import split_values
from components.image import IMAGE
from pipelines import parameters, submit
from pipelines.remote import client, runs

WHAT = ["--claim", "calopipe-data:/data", "--input", "/data/*.h5", "--output", "/data/run", "--epochs", "7"]
Command = Callable[..., str]


@pytest.fixture
def command(
    kubeflow: Kubeflow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs submit.py against the server, and gives what it printed."""
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", kubeflow.address)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "no-config"))
    monkeypatch.setattr(runs, "POLL_SECONDS", 0.01)

    def run(*arguments: str) -> str:
        capsys.readouterr()
        submit.main(list(arguments))
        return capsys.readouterr().out

    return run


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small pipeline is submitted in place of the whole one, where it does not matter which."""
    monkeypatch.setattr("pipelines.package.write", write_small)


def _id(printed: str) -> str:
    found = re.search(r"^(?:recurring )?run: (\S+)$", printed, re.MULTILINE)
    assert found, printed
    return found[1]


def test_submit(kubeflow: Kubeflow, command: Command) -> None:
    options = ("--claim", "shared:/data", "--service-account", "trainer", "--name", "mine", "--wait")
    printed = command("submit", *WHAT, *options)
    assert printed.endswith(": succeeded\n")
    run = kubeflow.runs[_id(printed)]
    assert f"see: {kubeflow.address}/#/runs/details/{run['run_id']}" in printed
    assert run["runtime_config"]["parameters"] == {"input": ["/data/*.h5"], "output": "/data/run", "epochs": 7}
    assert run["service_account"] == "trainer"
    assert re.fullmatch(r"mine \d{4}-\d\d-\d\d \d\d-\d\d-\d\d", run["display_name"])
    assert kubeflow.experiments[run["experiment_id"]]["display_name"] == "calopipe"
    assert sorted(run["pipeline_spec"]["pipeline_spec"]["root"]["dag"]["tasks"]) == sorted(STEPS)
    assert "shared" in str(run["pipeline_spec"]["platform_spec"])


def test_an_experiment_is_made_once(kubeflow: Kubeflow, command: Command, small: None) -> None:
    command("submit", *WHAT)
    command("submit", *WHAT)
    assert len(kubeflow.experiments) == 1
    other = kubeflow.runs[_id(command("submit", *WHAT, "--experiment", "other"))]
    assert kubeflow.experiments[other["experiment_id"]]["display_name"] == "other"
    assert other["service_account"] == "pipeline-runner"


@pytest.mark.parametrize("titled", [False, True])
def test_waiting_prints_a_line_for_each_step_as_its_state_changes(
    kubeflow: Kubeflow, command: Command, titled: bool
) -> None:
    kubeflow.titled = titled
    lines = command("status", kubeflow.begun(STEPS), "--wait").splitlines()
    assert lines[:-1] == [f"{step:<12}{state}" for step in STEPS for state in ("running", "succeeded  0:01:00")]
    assert lines[-1].endswith(": succeeded")


def test_a_run_that_fails_exits_1_and_names_the_step(kubeflow: Kubeflow, command: Command) -> None:
    kubeflow.failing = "train"
    run = kubeflow.begun(STEPS)
    with pytest.raises(SystemExit) as ended:
        command("status", run, "--wait")
    why = f"see submit.py logs {run} --step train"
    assert ended.value.code == f"error: step train failed: {why}"  # which Python prints, exiting with 1
    assert why in command("status", run)
    kubeflow.failing = "start"
    run = kubeflow.begun(STEPS)
    asking = f"kubectl describe workflow --namespace kubeflow --selector pipeline/runid={run}"
    with pytest.raises(SystemExit, match=f"run {run} failed outside its steps: {asking} shows why"):
        command("status", run, "--wait")


def test_a_run_that_was_terminated_is_cancelled_and_not_failed(
    kubeflow: Kubeflow, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeflow.failing = "cancel"
    run = kubeflow.begun(STEPS)
    with pytest.raises(SystemExit, match=f"error: run {run} was cancelled"):
        command("status", run, "--wait")
    assert capsys.readouterr().out.endswith(f"run {run}: canceled\n")
    assert "  canceled    calorimeter\n" in command("status")
    first, *_, last = command("status", run).splitlines()
    assert first.startswith("calorimeter: canceled  ")
    assert last == f"run {run} was cancelled"


@pytest.mark.parametrize(("state", "told"), [("FAILED", "CANCELED"), ("SUCCEEDED", "SUCCEEDED"), (None, "PENDING")])
def test_a_run_that_ended_well_although_it_was_to_be_terminated_succeeded(state: str | None, told: str) -> None:
    history = [SimpleNamespace(state="RUNNING"), SimpleNamespace(state="CANCELING")]
    assert runs.state_of(SimpleNamespace(state=state, state_history=history)) == told


def test_the_end_that_kfps_own_wait_does_not_know_ends_the_waiting(
    kubeflow: Kubeflow, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contract has it, though no run of the real server ended so."""
    monkeypatch.setattr(Kubeflow, "_progress", lambda *_: {"state": "CANCELED"})
    with pytest.raises(SystemExit, match="was cancelled"):
        command("status", kubeflow.begun(STEPS), "--wait")


def test_what_ends_the_waiting_and_not_the_run(
    kubeflow: Kubeflow, command: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = kubeflow.begun(STEPS)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pipelines.remote.runs.time.sleep", interrupt)
    with pytest.raises(SystemExit) as ended:
        command("status", run, "--wait")
    assert ended.value.code == 130
    assert f"the run goes on: submit.py status {run} --wait" in capsys.readouterr().err


@pytest.mark.parametrize("status", [500, 429])
def test_each_answer_renews_the_patience_with_a_server_that_restarts_or_is_busy(
    kubeflow: Kubeflow,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
) -> None:
    """By a clock of its own: answers for hours and a failure, again and again; at last failures alone."""
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
        command("status", kubeflow.begun(STEPS), "--wait")
    assert clock[0] == pytest.approx(1.2 * runs.PATIENCE_SECONDS)


def test_status(kubeflow: Kubeflow, command: Command) -> None:
    assert command("status") == "no runs\n"
    first, second = (kubeflow.begun(STEPS, name) for name in ("one", "two"))
    assert [line.split()[0] for line in command("status").splitlines()] == [second, first]
    command("status", first)
    command("status", first)
    lines = command("status", first).splitlines()
    assert lines[0] == f"one: running  {kubeflow.address}/#/runs/details/{first}"
    assert lines[1:3] == ["preprocess  succeeded  0:01:00", "train       running"]
    assert lines[3:] == [f"{step:<12}pending" for step in STEPS[2:]]
    assert command("status", kubeflow.begun(["preprocess-flow"])).splitlines()[1] == "preprocess-flow running"


def test_of_many_runs_the_ten_newest_are_listed(kubeflow: Kubeflow, command: Command) -> None:
    names = [f"run-{number}" for number in range(12)]
    for name in names:
        kubeflow.begun(STEPS, name)
    assert [line.split()[-1] for line in command("status").splitlines()] == names[:1:-1]
    with pytest.raises(InputError, match="which run"):
        command("status", "--wait")


def _told_by(**services: Callable[..., Any]) -> Any:
    """A server whose runs are asked for by these functions."""
    connection = SimpleNamespace(ui="http://ui", namespace="team", run_namespace="team")
    scope = {"namespace": "team"}
    return SimpleNamespace(runs=SimpleNamespace(**services), scope=scope, connection=connection, **services)


def test_a_run_is_listed_by_the_hours_of_a_day() -> None:
    asked: dict[str, Any] = {}
    made = datetime(2026, 3, 14, 15, 9, tzinfo=UTC)
    run = SimpleNamespace(run_id="r", created_at=made, state=None, state_history=None, display_name="n")

    def listed(**request: Any) -> Any:
        asked.update(request)
        return SimpleNamespace(runs=[run])

    assert [*runs.newest(_told_by(run_service_list_runs=listed))] == ["r  2026-03-14 15:09  pending     n"]
    assert asked["namespace"] == "team"


@pytest.mark.parametrize(
    ("run", "node", "driver", "state"),
    [
        ("RUNNING", "RUNNING", "SUCCEEDED", "RUNNING"),
        ("RUNNING", "RUNNING", None, "RUNNING"),
        ("RUNNING", None, "RUNNING", "PENDING"),
        ("RUNNING", "PENDING", "SUCCEEDED", "PENDING"),
        ("RUNNING", "RUNTIME_STATE_UNSPECIFIED", "SUCCEEDED", "PENDING"),
        ("RUNNING", None, None, "PENDING"),
        ("FAILED", None, "FAILED", "FAILED"),
        ("FAILED", "PENDING", "FAILED", "FAILED"),
        ("FAILED", "PENDING", None, "SKIPPED"),
        ("CANCELED", None, None, "SKIPPED"),
        ("SUCCEEDED", "SKIPPED", "SUCCEEDED", "SKIPPED"),
    ],
)
def test_the_state_of_a_step_is_that_of_its_node_or_of_a_driver_that_failed(
    run: str, node: str | None, driver: str | None, state: str
) -> None:
    states = {"train": node, "train-driver": driver}
    details = [
        SimpleNamespace(display_name=name, state=known, start_time=None, end_time=None)
        for name, known in states.items()
        if known
    ]
    task: dict[str, Any] = {"root": {"dag": {"tasks": {"train": {}}}}}
    asked = SimpleNamespace(state=run, run_details=SimpleNamespace(task_details=details), pipeline_spec=task)
    assert [step.state for step in runs.steps(_told_by(), asked)] == [state]


def test_a_run_that_the_server_itself_ended_says_why_and_one_that_was_skipped_ended_well(
    kubeflow: Kubeflow, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = kubeflow.begun(STEPS)
    error = {"error": {"code": 9, "message": "no\n such root"}}
    monkeypatch.setattr(Kubeflow, "_progress", lambda *_: {"state": "FAILED"} | error)
    with pytest.raises(SystemExit, match=f"run {run} failed outside its steps: no such root$"):
        command("status", run, "--wait")
    assert command("status", run).endswith("failed outside its steps: no such root\n")
    monkeypatch.setattr(Kubeflow, "_progress", lambda *_: {"state": "SKIPPED", "error": None})
    assert command("status", run, "--wait").endswith(f"run {run}: skipped\n")


def test_a_run_is_named_by_the_time_in_utc() -> None:
    made: dict[str, Any] = {}
    server = _told_by(run_service_create_run=lambda run: made.update(run) or SimpleNamespace(run_id="r"))
    with ExitStack() as stack:
        stack.callback(time.tzset)  # once the environment is as it was
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        before = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
        assert runs.submit(server, SimpleNamespace(body=lambda _: {"experiment_id": "e"}), "weekly") == "r"
        after = datetime.now(UTC).replace(tzinfo=None)
    assert made["experiment_id"] == "e"
    assert before <= datetime.strptime(made["display_name"], "weekly %Y-%m-%d %H-%M-%S") <= after


@pytest.mark.parametrize(
    ("end", "took"),
    [(59.4, "  0:00:59"), (59.6, "  0:01:00"), (93_600, "  1 day, 2:00:00"), (None, ""), ("never", "")],
)
def test_the_time_of_a_step_is_rounded_and_that_of_one_that_goes_on_is_none(end: Any, took: str) -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    ended = datetime(1, 1, 1, tzinfo=UTC) if end == "never" else end and begun + timedelta(seconds=end)
    assert runs._took(SimpleNamespace(start_time=begun, end_time=ended)) == took


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
    weekly = ["--cron", "0 0 3 * * 1", *WHAT, "--name", "weekly"]
    made = kubeflow.recurring[_id(command("schedule", *weekly))]
    assert made["trigger"] == {"cron_schedule": {"cron": "0 0 3 * * 1"}}
    assert made["no_catchup"] is True
    assert made["max_concurrency"] in (1, "1")
    assert made["runtime_config"]["parameters"]["epochs"] == 7
    with pytest.raises(InputError, match="--name weekly: there is such a schedule; delete it in the UI"):
        command("schedule", *weekly)
    assert len(kubeflow.recurring) == 1


def test_several_users(kubeflow: Kubeflow, command: Command, small: None) -> None:
    kubeflow.multi_user = True
    with pytest.raises(
        InputError, match=r"refused \(403\) to namespace other, which may not exist, with no credential"
    ):
        command("status", "--namespace", "other")
    command("submit", *WHAT, "--namespace", "team")
    assert [one["namespace"] for one in kubeflow.experiments.values()] == ["team"]
    assert "calorimeter" in command("status", "--namespace", "team")
    assert "recurring run" in command("schedule", "--cron", "0 0 3 * * 1", *WHAT, "--namespace", "team")


def test_the_server_would_see_a_request_that_departs_from_the_contract(kubeflow: Kubeflow) -> None:
    """The check checked: an unknown field, a wrong type, a wrong name of a state."""
    assert len(CONTRACT) == 40  # of kfp-server-api 2.17.3: a new version may have more, and is worth a look
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


def _process(kubeflow: Kubeflow, *arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    program = """if True:
        import runpy, signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
        runpy.run_module("pipelines.submit", run_name="__main__")
    """
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments, "--endpoint", kubeflow.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_exit_codes_of_the_process(kubeflow: Kubeflow) -> None:
    kubeflow.failing = "preprocess"
    failing, going = kubeflow.begun(STEPS), kubeflow.begun(STEPS)
    kubeflow.ticks[failing] = 1
    with (
        _process(kubeflow, "status", failing, "--wait") as failed,
        _process(kubeflow, "status", going, "--wait") as run,
    ):
        assert run.stdout is not None
        assert run.stdout.readline() == "preprocess  running\n"
        run.send_signal(signal.SIGINT)
        assert run.communicate()[1].strip() == f"stopped following; the run goes on: submit.py status {going} --wait"
        assert run.returncode == 130
        assert failed.communicate()[1].startswith("error: step preprocess failed: ")
        assert failed.returncode == 1


def test_a_run_is_given_the_calorimeter_and_not_its_file(
    kubeflow: Kubeflow, command: Command, small: None, tmp_path: Path
) -> None:
    """The steps need not see the file, which is changed or gone when a schedule runs."""
    (tmp_path / "own.toml").write_text(
        "file_unit_gev = 1\n[[layers]]\npitch_mm = 4\nx0 = 1\nangles = 3\nr_edges_mm = [0, 2]\n"
    )
    run = kubeflow.runs[_id(command("submit", *WHAT, "--geometry", f"{tmp_path / 'own.toml'},layer_pitch_mm=5"))]
    text = run["runtime_config"]["parameters"]["geometry"]
    (tmp_path / "own.toml").unlink()
    geometry, values = split_values(text)
    assert geometry == Geometry.of_layers([Layer(4.0, 1.0, (3, 1), r_edges_mm=(0.0, 2.0))], 1.0)
    assert values == {"layer_pitch_mm": 5}
    assert "own" not in text
    run = kubeflow.runs[_id(command("submit", *WHAT, "--geometry", "cell_mm=5"))]
    assert run["runtime_config"]["parameters"]["geometry"] == "cell_mm=5"
    for wrong in (str(tmp_path / "own.toml"), "cell_mm=x"):
        with pytest.raises(InputError, match="--geometry"):
            command("submit", *WHAT, "--geometry", wrong)
    scheduled = command("schedule", "--cron", "0 0 3 * * 1", *WHAT, "--name", "weekly", "--geometry", "calochallenge-2")
    (recurring,) = [each for each in kubeflow.recurring.values() if each["display_name"] == "weekly"]
    assert scheduled
    assert recurring["runtime_config"]["parameters"]["geometry"].startswith('{"shape":[16,9,45]')


def test_without_a_command_the_sample_is_run_here_and_a_flow_into_a_folder_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    ran: list[tuple[Any, ...]] = []
    monkeypatch.setattr("pipelines.checks.check", lambda given, pipeline: ran.append((given, pipeline)))
    monkeypatch.setattr("pipelines.here.run.run", lambda given, output, **how: ran.append((given, output, how)))
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


def test_a_training_setting_is_json_or_text() -> None:
    command = ["run", "--set", "average=0.9", "--set", "precision=float16", "--set", "name=a=b", "--set", "on=true"]
    told = parameters.given(submit.parser().parse_args(command))["settings"]
    assert told == {"average": 0.9, "precision": "float16", "name": "a=b", "on": True}
    for wrong in ("average", "=0.9"):
        with pytest.raises(InputError, match=f"--set {wrong}: expected NAME=VALUE"):
            parameters.given(submit.parser().parse_args(["run", "--set", wrong]))
    with pytest.raises(InputError, match=r"geometry .*: holds \{\{"):
        parameters.given(submit.parser().parse_args(["run", "--geometry", "a{{b}}.toml"]))
