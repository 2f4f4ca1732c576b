"""Refusals by a server, or on the way to it: one line without secrets, exit code 2, and nothing is done twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import commands
import pytest
from kubeflow_server import Fault, Kubeflow, serve, write_small
from kubernetes_api import self_signed

from pipelines import submit
from pipelines.remote import client, runs
from pipelines.remote.connection import connection

SECRET = "ey-secret.token"  # noqa: S105
STEPS = ["preprocess", "train"]
SUBMIT = ["submit", "--claim", "calopipe-data:/data", "--input", "/data/*.h5", "--output", "/data/run"]
SCHEDULE = ["schedule", "--cron", "0 0 3 * * 1", *SUBMIT[1:]]
PAGE = "<!doctype html><html><title>Log in</title></html>"


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between tries, which are skipped. The submitted pipeline is small, as its content does not matter."""
    monkeypatch.setattr("pipelines.package.write", write_small)
    waited: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", waited.append)
    return waited


def refused(*arguments: str) -> str:
    """The one line with which a command is refused."""
    line = commands.refused(list(arguments), command=submit.main)
    assert SECRET not in line
    return line


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (Fault(403, '{"message": "no"}'), "access refused (403) with no credential; give --token-file"),
        (Fault(404, '{"message": "no such route"}'), "not found (404): no such route; check the id, and the address"),
        (Fault(429, "{}"), "the server refused this (429 Too Many Requests)"),
        (Fault(500, '{"message": "database\\nis gone"}'),
         "the server failed (500 Internal Server Error): database is gone"),
        (Fault(502, PAGE), "the server failed (502 Bad Gateway); see kubectl logs deployment/ml-pipeline"),
        (Fault(504), "the server failed (504 Gateway Timeout); see kubectl logs deployment/ml-pipeline"),
        (Fault(503), "the server failed (503 Service Unavailable)"),
        (Fault(400, '{"message": "bad filter"}'), "the server refused this (400 Bad Request): bad filter"),
        (Fault(400, "namespace too long\n"), "the server refused this (400 Bad Request): namespace too long"),
        (Fault(200, PAGE), "a web page answers in place of the API, a login most likely, with no credential"),
        (Fault(400, "x" * 1000), f"the server refused this (400 Bad Request): {'x' * 300}"),
        (Fault(302, "", (("Location", "/dex/auth"),)), "a web page answers in place of the API"),
        (Fault(), "cannot be reached, or does not answer ("),
        (Fault(hang=True), "cannot be reached, or does not answer (Read timed out. (read timeout="),
    ],
)  # fmt: skip
def test_a_request_that_fails_is_repeated_if_that_may_help_and_a_creation_that_may_be_going_on_is_not(
    kubeflow: Kubeflow, monkeypatch: pytest.MonkeyPatch, fault: Fault, line: str
) -> None:
    if fault.hang:
        monkeypatch.setattr(client, "READ_SECONDS", 0.05)
    kubeflow.faults["*"] = [fault]
    told = refused("status")
    assert f"error: {kubeflow.address}: {line}" in told
    assert len(told) < 500
    assert len(kubeflow.asked) == {0: 5, 429: 5, 502: 5, 503: 5, 504: 5}.get(fault.status, 1)
    if fault.hang:
        monkeypatch.setattr(client, "READ_SECONDS", 2.0)  # enough for the requests that do not hang
    kubeflow.faults = {"run_service_create_run": [fault]}
    told = refused(*SUBMIT)
    assert f"error: {kubeflow.address}: {line}" in told
    again = "; the request may have been done, even if no list of the server shows that; look before you repeat it"
    look = ": kubectl get workflows,scheduledworkflows --namespace kubeflow"
    assert (again in told) == told.endswith(look) == (fault.status == 0 or fault.status >= 500)
    assert len(kubeflow.sent("run_service_create_run")) == 1


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--output", "runs/first"], "--output runs/first: not under /data, where the steps see the files of --claim"),
        (["--output", "/database/run"], "--output /database/run: not under /data"),
        (["--output", "/data/../run"], "--output /data/../run: not under /data"),
        (["--input", "/data/a.h5", "~/b.h5"], "--input ~/b.h5: not under /data"),
        (["--dataset", "/scratch/dataset"], "--dataset /scratch/dataset: not under /data"),
        (["--registry", "registry"], "--registry registry: not under /data"),
        (["--grade", "grades/own.toml"], "--grade grades/own.toml: not under /data"),
        (["--grade", "gan2"], "--grade gan2: neither a grade (gan, precision) nor a file"),
        (["--grade", "gs://bucket/own.toml"], "--grade gs://bucket/own.toml: not under /data"),
        (["--claim", "", "--output", "gs://bucket/run"], "--input /data/*.h5: steps on a cluster see gs:// addresses"),
        (["--tpu", "tpu-v6e-slice:1x1", "--set", "precision=float16"], "--precision float16 is not for TPUs"),
    ],
)
@pytest.mark.parametrize("task", [SUBMIT, SCHEDULE], ids=lambda task: task[0])
def test_what_the_steps_would_not_see_or_could_not_do(
    kubeflow: Kubeflow, task: list[str], options: list[str], line: str
) -> None:
    assert refused(*task, *options).startswith(f"error: {line}")
    assert not kubeflow.asked


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([*SUBMIT, "--strategy", "mirrored"], "unrecognized arguments: --strategy mirrored"),
        (["run", "--pipeline", "another"], "argument --pipeline: invalid choice: 'another'"),
    ],
)
def test_an_option_that_there_is_not(arguments: list[str], line: str) -> None:
    """Devices and nodes decide the strategy. The pipeline is read before the other options, which depend on it."""
    told = refused(*arguments)
    assert told.startswith(f"error: {line}")
    assert told.endswith("; see submit.py --help")


def test_paths_that_the_steps_see(kubeflow: Kubeflow) -> None:
    more = ["--dataset", "gs://bucket/dataset", "--registry", "gs://bucket/registry", "--grade", "/data/own.toml"]
    submit.main([*SUBMIT, "--input", "gs://bucket/*.h5", "/data/a.h5", *more])
    submit.main([*SUBMIT, "--grade", "gan"])
    submit.main(["submit", "--claim", "", "--input", "gs://bucket/*.h5", "--output", "gs://bucket/run"])
    assert (len(kubeflow.runs), len(kubeflow.experiments)) == (3, 1)


@pytest.mark.parametrize("kind", ["token", "cookie"])
def test_a_wrong_secret_is_named_and_not_shown(
    kubeflow: Kubeflow, caplog: pytest.LogCaptureFixture, tmp_path: Path, kind: str
) -> None:
    """The server of this test repeats the secret in its refusal, as some gateways do."""
    kubeflow.secret = "another"  # noqa: S105
    (tmp_path / "secret").write_text(SECRET if kind == "token" else f"authservice_session={SECRET}")
    caplog.set_level("DEBUG")
    line = refused("status", f"--{kind}-file", str(tmp_path / "secret"))
    renew = "write a fresh one there" if kind == "token" else "log in again and copy the new one"
    assert f"access refused (401) with the {kind} in {tmp_path / 'secret'}; {renew}: Unauthenticated: " in line
    assert "***" in line
    assert SECRET not in caplog.text
    (asked,) = kubeflow.asked
    holding = {name: text for name, text in asked.headers.items() if SECRET in text}
    assert holding == (
        {"authorization": f"Bearer {SECRET}"} if kind == "token" else {"cookie": f"authservice_session={SECRET}"}
    )


def test_a_token_that_changes_is_read_again(
    kubeflow: Kubeflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens of pods are replaced every hour, and a run may be followed for longer."""
    run, token = kubeflow.begun(STEPS), tmp_path / "token"
    kubeflow.secret = "first"  # noqa: S105
    token.write_text("first")

    def replace(seconds: float) -> None:
        kubeflow.secret = f"after {len(kubeflow.asked)}".replace(" ", "-")
        token.write_text(kubeflow.secret)

    monkeypatch.setattr("pipelines.remote.runs.time.sleep", replace)
    submit.main(["status", run, "--wait", "--token-file", str(token)])
    assert kubeflow.runs[run]["state"] == "SUCCEEDED"


def test_a_busy_server_is_waited_for(kubeflow: Kubeflow, waits: list[float]) -> None:
    """Requests that read wait for it, but not for hours."""
    busy = [Fault(429, "{}", (("Retry-After", seconds),)) for seconds in ("7", "86400")]
    kubeflow.faults = {"experiment_service_list_experiments": busy}
    submit.main(SUBMIT)
    assert len(kubeflow.runs) == 1
    assert waits == [7, 30]


def test_a_schedule_whose_answer_is_lost_is_made_once(kubeflow: Kubeflow) -> None:
    kubeflow.faults = {"recurring_run_service_create_recurring_run": [Fault(done=True)]}
    assert "the request may have been done" in refused(*SCHEDULE)
    assert "--name calorimeter: there is such a schedule; delete it in the UI" in refused(*SCHEDULE)
    assert [one["display_name"] for one in kubeflow.recurring.values()] == ["calorimeter"]
    assert len(kubeflow.experiments) == 1


@pytest.mark.parametrize("task", [SUBMIT, SCHEDULE], ids=lambda task: task[0])
@pytest.mark.parametrize(("option", "most"), [("--name", 235), ("--experiment", 128)])
def test_a_name_that_the_server_cannot_store_is_refused_before_it_is_asked(
    kubeflow: Kubeflow, task: list[str], option: str, most: int
) -> None:
    """The server would start the run and then fail. The name has characters of two bytes in UTF-8, one too many."""
    name = "\N{GREEK SMALL LETTER ALPHA}" * (most // 2) + "a" * (most % 2)
    told = f"error: {option} {name[:20]}...: {most + 1} bytes long, the server stores {most}; give a shorter one"
    assert refused(*task, option, name + "a") == told
    assert not kubeflow.asked
    submit.main([*task, option, name])
    (stored,) = (*kubeflow.runs.values(), *kubeflow.recurring.values())
    assert len(stored["display_name"].encode()) <= 255


def test_requests_that_are_repeated_are_not_warned_of(
    kubeflow: Kubeflow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The answers are lost. This also holds after the client made models of the API, which set the level of the log."""

    def fail(_seconds: float) -> None:
        kubeflow.faults["run_service_get_run"] = [Fault()]

    monkeypatch.setattr("pipelines.remote.runs.time.sleep", fail)
    submit.main(["status", kubeflow.begun(STEPS), "--wait"])
    assert not kubeflow.faults["run_service_get_run"]
    assert "urllib3" not in {record.name.partition(".")[0] for record in caplog.records}


def test_following_a_server_that_stays_away_ends_and_says_how_to_go_on(
    kubeflow: Kubeflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = kubeflow.begun(STEPS)
    monkeypatch.setattr(runs, "PATIENCE_SECONDS", -1)
    for fault in (Fault(500), Fault(401), Fault(302)):  # also where what opened it has run out
        kubeflow.faults["run_service_get_run"] = [fault]
        assert f"the run goes on: submit.py status {run} --wait" in refused("status", run, "--wait")


def test_a_certificate_of_the_clusters_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing, which makes the certificate")
    certificate, key = self_signed(tmp_path, "cluster")
    with serve(certificate, key) as kubeflow:
        line = refused("status", "--endpoint", kubeflow.address)
        assert "TLS failed (" in line
        assert "give --ca-file" in line
        options = submit.parser().parse_args(["status", "--endpoint", kubeflow.address])
        with pytest.raises(client.UnreachableError, match="TLS failed") as untrusted:
            client.Server(connection(options)).runs.run_service_create_run({"display_name": "x"})
        assert "may have been done" not in str(untrusted.value)
        submit.main(["status", "--endpoint", kubeflow.address, "--ca-file", str(certificate)])
    assert capsys.readouterr().out == "no runs\n"
