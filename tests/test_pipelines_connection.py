"""The address of the server and the credential for it, from options and environment; the times of scheduled runs."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from servers import free_port

from calopipe.errors import InputError
from pipelines import submit
from pipelines.remote.client import Server, UnreachableError
from pipelines.remote.connection import Connection, connection
from pipelines.remote.runs import trigger

HERE = "http://localhost:8080"


@pytest.fixture(autouse=True)
def silent_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "UI_ENDPOINT"):
        monkeypatch.delenv(f"KF_PIPELINES_{name}", raising=False)


def given(*options: str) -> Connection:
    return connection(submit.parser().parse_args(["status", *options]))


def test_options_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no --endpoint, and no KF_PIPELINES_ENDPOINT; give the address"):
        given()
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", "http://environment/")
    assert (given().endpoint, given().ui) == ("http://environment", "http://environment")
    monkeypatch.setenv("KF_PIPELINES_UI_ENDPOINT", "http://ui")
    assert given().ui == "http://ui"
    for more, scope, pods in (((), {}, "kubeflow"), (("--namespace", "team"), {"namespace": "team"}, "team")):
        assert Server(given(*more)).scope == scope
        assert given(*more).run_namespace == pods
    option = given("--endpoint", "http://option")
    assert (option.endpoint, option.ui) == ("http://option", "http://option")  # the pages are of the other server
    monkeypatch.setenv("KF_PIPELINES_UI_ENDPOINT", "")
    assert given().ui == "http://environment"
    assert given().credential.read() == ""


@pytest.mark.parametrize(
    "endpoint",
    [
        "ftp://host", "http://", "http://[::1", "http://me@host", "http://:secret@host", "me:secret@host"
    ],
)  # fmt: skip
def test_an_address_is_of_http_and_holds_no_password(endpoint: str) -> None:
    with pytest.raises(InputError, match="expected an address such as") as refused:
        given("--endpoint", endpoint)
    assert "secret" not in str(refused.value)


def test_what_is_no_certificate_or_folder_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("nowhere.pem", "/"):
        with pytest.raises(InputError, match=f"--ca-file {path}: no such file"):
            given("--endpoint", HERE, "--ca-file", path)
    monkeypatch.chdir(Path(__file__).parent)
    for path in ("runs/nowhere", Path(__file__).name):
        with pytest.raises(InputError, match=f"status {path}: no folder of a run; check the path"):
            submit.main(["status", path])


def test_the_token_of_a_command_is_kept_for_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are valid for about an hour."""
    now = [0.0]
    monkeypatch.setattr("pipelines.remote.connection.time.monotonic", lambda: now[0])
    counting = f"import os; f = open({str(tmp_path / 'count')!r}, 'a'); f.write('x'); print('$HOME;', f.tell(), sep='')"
    credential = given("--endpoint", HERE, "--token-command", shlex.join([sys.executable, "-Sc", counting])).credential
    kept = credential.kept_s
    assert 60 <= kept <= 1800
    read = [credential.read()]
    for now[0] in (kept - 1, kept, 2 * kept - 1, 2 * kept + 1):
        read.append(credential.read())
    assert read == ["$HOME;1", "$HOME;1", "$HOME;2", "$HOME;2", "$HOME;3"]  # no shell


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("sleep 3", r"cannot be run \(TimeoutExpired\)"),
        ("no-such-program", "no-such-program: cannot be run"),
        ("'unbalanced", r"cannot be run \(ValueError\)"),
        ("sh -c 'echo a; echo log in first >&2; exit 3'", "ended with 3: log in first$"),
        ("false", "ended with 1: $"),
        ("", r"cannot be run \(IndexError\)"),
        ("echo two words", "not a token; run it by hand to see"),
    ],
)
def test_a_token_command_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, command: str, told: str) -> None:
    if command.startswith("sleep"):
        monkeypatch.setattr("pipelines.remote.connection._COMMAND_SECONDS", 0.05)
    with pytest.raises(InputError, match=told):
        given("--endpoint", HERE, "--token-command", command).credential.read()


@pytest.mark.parametrize("kind", ["token", "cookie"])
@pytest.mark.parametrize("content", [b"", b"a b", b"session=x\r\nHost: elsewhere", b"session=\xc3\xb3", b"\xff"])
def test_what_is_no_token_or_cookie_never_gets_into_a_header(tmp_path: Path, kind: str, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(InputError, match=f"secret: not a ({kind}|text in UTF-8)") as refused:
        given("--endpoint", HERE, f"--{kind}-file", str(tmp_path / "secret")).credential.read()
    assert not content or content.decode(errors="replace") not in str(refused.value)


def test_hidden_is_the_value_of_each_cookie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cookie").write_text("authservice_session=abc; oauth2_proxy_kubeflow=def\n")
    credential = given("--endpoint", HERE, "--cookie-file", str(tmp_path / "cookie")).credential
    assert credential.read() == "authservice_session=abc; oauth2_proxy_kubeflow=def"
    assert credential.hide("abc, def, ghi") == "***, ***, ghi"
    (tmp_path / "cookie").write_text("seen=; session=abc")
    assert credential.read() == "seen=; session=abc"
    assert credential.hide("session abc of seen") == "session *** of seen"
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "secret").write_text("n=v\n")
    for kind in ("token", "cookie"):  # which may lie in the home folder
        assert given("--endpoint", HERE, f"--{kind}-file", "~/secret").credential.read() == "n=v"


def test_what_never_reached_a_server_was_not_done() -> None:
    server = Server(given("--endpoint", f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(UnreachableError, match="cannot be reached") as refused:
        server.runs.run_service_create_run({"display_name": "x"})
    assert "may have been done" not in str(refused.value)


@pytest.mark.parametrize(
    ("cron", "told"),
    [
        ("0 0 3 30 2 *", "month 2 has no day 30; name one that it has"),
        ("0 0 3 31 4 ?", "month 4 has no day 31; name one that it has"),
        ("0 0 3 30 Feb *", "month 2 has no day 30; name one that it has"),
        ("0 3 * * 1", "5 fields, expected six fields, seconds first; '0 0 3"),
        ("@daily", "1 fields, expected six fields, seconds first; '0 0 3"),
    ],
)
def test_a_cron_that_never_occurs_or_has_not_six_fields_is_refused(cron: str, told: str) -> None:
    with pytest.raises(InputError, match=rf"^--cron {re.escape(repr(cron))}: {told}"):
        trigger(cron)


@pytest.mark.parametrize(
    "cron",
    [
        "0 0 3 29 2 *", "0 0 3 30 2 1", "0 0 3 29-31 2 *", "0 0 3 ? 2 ?", "0 0 3 32 13 8", "0 0 9 ? * 2-6",
        "59 59 23 31 12 6", "0 5/15 * * * *",
    ],
)  # fmt: skip
def test_a_cron_that_occurs_or_that_the_server_refuses_is_left_to_it(cron: str) -> None:
    """A cron may name a day of the month and a day of the week: each of them starts a run, unless one is * or ?."""
    assert trigger(cron) == {"cron_schedule": {"cron": cron}}
