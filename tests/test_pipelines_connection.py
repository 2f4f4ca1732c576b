"""Where the server is and what opens it: options, environment, profile; and when a schedule starts its runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

import pytest

from calopipe.errors import InputError
from pipelines import submit
from pipelines.remote.connection import Connection, connection
from pipelines.remote.cron import Trigger

HERE = "http://localhost:8080"


@pytest.fixture(autouse=True)
def profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the profile file would be, in an environment that says nothing."""
    for name in ("ENDPOINT", "UI_ENDPOINT", "TOKEN", "IAP_OAUTH2_CLIENT_ID"):
        monkeypatch.delenv(f"KF_PIPELINES_{name}", raising=False)
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(tmp_path / "pod-token"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "calopipe").mkdir()
    return tmp_path / "calopipe" / "profiles.toml"


def given(*options: str) -> Connection:
    return connection(submit.parser().parse_args(["status", *options]))


def test_options_come_before_the_environment_before_the_profile(
    profiles: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profiles.write_text(f'[default]\nendpoint = "{HERE}/"\nnamespace = "team"\n[other]\nendpoint = "https://other/p"\n')
    assert (given().endpoint, given().ui, given().namespace, given().experiment) == (HERE, HERE, "team", "calopipe")
    assert given("--namespace", "mine").namespace == "mine"
    assert given("--profile", "other").endpoint == "https://other/p"
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", "http://environment")
    monkeypatch.setenv("KF_PIPELINES_UI_ENDPOINT", "http://ui")
    assert (given().endpoint, given().ui, given().namespace) == ("http://environment", "http://ui", None)
    assert given("--endpoint", "http://option").endpoint == "http://option"
    assert given("--profile", "other").ui == "https://other/p"


def test_a_secret_of_one_address_is_not_sent_to_another(profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles.write_text(f'[default]\nendpoint = "{HERE}"\ntoken_command = "echo of-the-profile"\n')
    assert given().credential.read() == "of-the-profile"
    assert given("--endpoint", "http://option").credential.read() == ""
    monkeypatch.setenv("KF_PIPELINES_TOKEN", "of-the-environment")
    assert given().credential.read() == "of-the-profile"


def test_what_the_environment_says_of_one_address_is_not_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TOKEN", "secret"), ("UI_ENDPOINT", "http://ui"), ("IAP_OAUTH2_CLIENT_ID", "client")):
        monkeypatch.setenv(f"KF_PIPELINES_{name}", value)
    assert given("--endpoint", "http://mine").credential.read() == "secret"  # it names none
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", "http://mine/")
    assert given("--endpoint", "http://mine").credential.read() == "secret"
    assert given("--endpoint", "http://mine").ui == "http://ui"
    other = given("--endpoint", "http://other")
    assert (other.ui, other.credential.source) == ("http://other", "no credential")


@pytest.mark.parametrize(
    ("endpoint", "trusted"),
    [
        ("http://ml-pipeline-ui.kubeflow.svc.cluster.local", True),
        ("http://ml-pipeline.kubeflow.svc:8888", True),
        ("http://ml-pipeline:8888", True),
        ("https://kubeflow.example.org/pipeline", False),
        ("https://svc.example.org", False),
        ("https://example.org/a.svc", False),
        ("https://mysvc.org", False),
        ("http://192.0.2.1", False),
        ("http://[2001:db8::1]", False),
    ],
)
def test_the_token_of_a_pod_stays_in_its_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, endpoint: str, trusted: bool
) -> None:
    """But for the address that the environment names, which whoever made the pod has put there."""
    (tmp_path / "pod-token").write_text("of-the-pod")
    assert given("--endpoint", endpoint).credential.read() == ("of-the-pod" if trusted else "")
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", endpoint)
    assert given().credential.read() == "of-the-pod"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("endpoint = 3", r"no profile \[default\]; it has endpoint"),
        ("[default]\nendpoint = 3", r"\[default\] endpoint: expected a string"),
        ("[default]\nnamespace = 'team'", "has no endpoint"),
        (f"[default]\nendpoint = '{HERE}'\npassword = 'x'", r"password: expected endpoint, .*, token_file"),
        (f"[default]\nendpoint = '{HERE}'\ntoken_file = 'a'\ncookie_file = 'b'", "give one of token"),
        (f"[default]\nendpoint = '{HERE}'\ntoken = 'x'", "others may read it; chmod 600"),
        ("[default", "not TOML"),
        ("[other]\n", r"no profile \[default\]; it has other"),
    ],
)
def test_profiles_that_cannot_be_used(profiles: Path, text: str, told: str) -> None:
    profiles.write_text(text)
    profiles.chmod(0o644)
    with pytest.raises(InputError, match=told) as refused:
        given()
    assert str(profiles) in str(refused.value)


def test_a_token_in_a_profile_that_its_owner_alone_may_read(profiles: Path) -> None:
    profiles.touch(0o600)
    profiles.write_text(f"[default]\nendpoint = '{HERE}'\ntoken = 'mine'")
    assert given().credential.read() == "mine"
    assert "mine" not in repr(given().credential)


def test_no_address_at_all(profiles: Path) -> None:
    with pytest.raises(InputError, match=f"no --endpoint, no KF_PIPELINES_ENDPOINT, and no {profiles}"):
        given()


def test_the_token_of_a_pod_is_used_where_no_other_is_given(tmp_path: Path) -> None:
    assert given("--endpoint", HERE).credential.source == "no credential"
    (tmp_path / "pod-token").write_text("of-the-pod")
    assert given("--endpoint", HERE).credential.read() == "of-the-pod"
    assert given("--endpoint", HERE, "--token-command", "echo mine").credential.read() == "mine"


def test_a_token_command(tmp_path: Path) -> None:
    assert given("--endpoint", HERE, "--token-command", "echo '$HOME;'").credential.read() == "$HOME;"  # no shell
    for command, told in (
        ("no-such-program", "no-such-program: cannot be run"),
        ("'unbalanced", "cannot be run .ValueError."),
        (shlex.join([sys.executable, "-c", "import sys; sys.exit('log in first')"]), "ended with 1: log in first"),
        (shlex.join([sys.executable, "-c", "print('two words')"]), "not a token; run it by hand to see"),
    ):
        with pytest.raises(InputError, match=told):
            given("--endpoint", HERE, "--token-command", command).credential.read()
    counting = shlex.join([sys.executable, "-c", f"open({str(tmp_path / 'count')!r}, 'a').write('x'); print('t')"])
    credential = given("--endpoint", HERE, "--token-command", counting).credential
    assert [credential.read(), credential.read()] == ["t", "t"]
    assert (tmp_path / "count").read_text() == "x"  # kept for a while


@pytest.mark.parametrize("kind", ["token", "cookie"])
@pytest.mark.parametrize("content", ["", "a b", "session=x\r\nHost: elsewhere", "sessión=x"])
def test_what_is_no_token_or_cookie_never_gets_into_a_header(tmp_path: Path, kind: str, content: str) -> None:
    (tmp_path / "secret").write_text(content)
    with pytest.raises(InputError, match=f"secret: not a {kind}") as refused:
        given("--endpoint", HERE, f"--{kind}-file", str(tmp_path / "secret")).credential.read()
    assert not content or content not in str(refused.value)


def test_hidden_is_the_value_of_each_cookie(tmp_path: Path) -> None:
    (tmp_path / "cookie").write_text("authservice_session=abc; oauth2_proxy_kubeflow=def\n")
    credential = given("--endpoint", HERE, "--cookie-file", str(tmp_path / "cookie")).credential
    assert credential.read() == "authservice_session=abc; oauth2_proxy_kubeflow=def"
    assert credential.hide("abc, def, ghi") == "***, ***, ghi"


def test_the_google_identity_for_iap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KF_PIPELINES_IAP_OAUTH2_CLIENT_ID", "client")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nowhere.json"))
    with pytest.raises(InputError, match=r"CLIENT_ID: no Google identity here .*; give --token-command"):
        given("--endpoint", HERE).credential.read()
    assert given("--endpoint", HERE, "--token-command", "echo mine").credential.read() == "mine"


def test_a_ca_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"--ca-file nowhere\.pem: no such file"):
        given("--endpoint", HERE, "--ca-file", "nowhere.pem")


@pytest.mark.parametrize(
    "cron", ["0 0 3 * * 1", "*/30 0-10,20 1-23/2 ? JAN-mar sun", "0 0 9 ? * 2-6", "59 59 23 31 12 6", "0 5/15 * * * *"]
)
def test_cron(cron: str) -> None:
    assert Trigger(cron=cron).cron == cron


@pytest.mark.parametrize("cron", ["0 3 * * 1", "@daily"])
def test_cron_without_six_fields_is_refused(cron: str) -> None:
    with pytest.raises(InputError, match=f"{len(cron.split())} fields, expected six fields, seconds first; '0 0 3"):
        Trigger(cron=cron)


@pytest.mark.parametrize("field", ["0", "32", "x", "5-3", "*/0", "L", "-1", "1,"])
def test_a_field_that_cannot_be_read_is_left_to_the_server(field: str) -> None:
    assert Trigger(cron=f"0 0 3 {field} 2 *").cron


CALENDAR = [date(2001, 1, 1) + timedelta(days) for days in range(60 * 365)]
NO_DAY = "no year has such a day"


def taken(cron: str) -> bool:
    with suppress(InputError):
        return bool(Trigger(cron=cron))
    return False


@pytest.mark.parametrize("weekday", ["*", "?"])
def test_a_day_that_no_month_has_is_refused_and_no_other(weekday: str) -> None:
    """Against every day of sixty years, those of leap years among them."""
    there = {(day.day, day.month) for day in CALENDAR}
    for month in range(1, 13):
        for day in range(1, 32):
            assert taken(f"0 0 3 {day} {month} {weekday}") is ((day, month) in there), (day, month)


@pytest.mark.parametrize(
    ("cron", "matches"),
    [
        ("0 0 3 30 2 *", lambda day: (day.day, day.month) == (30, 2)),
        ("0 0 3 31 4,6 *", lambda day: day.day == 31 and day.month in {4, 6}),
        ("0 0 3 31 4,6,JUL ?", lambda day: day.day == 31 and day.month in {4, 6, 7}),
        ("0 0 3 29-31 2 *", lambda day: day.day >= 29 and day.month == 2),
        ("0 0 3 30/1 2 *", lambda day: day.day >= 30 and day.month == 2),
        ("0 0 3 31 */2 *", lambda day: day.day == 31 and day.month % 2 == 1),
        ("0 0 3 31 2-12/2 *", lambda day: day.day == 31 and day.month % 2 == 0),
        ("0 0 3 31 2,4,9/2 *", lambda day: day.day == 31 and day.month in {2, 4, 9, 11}),
        # Neither is * or ?: either suffices.
        ("0 0 3 30 2 1", lambda day: day.month == 2 and (day.day == 30 or day.isoweekday() == 1)),
        ("0 0 3 30 2 */2", lambda day: (day.day, day.month) == (30, 2) and day.isoweekday() % 7 % 2 == 0),
        ("0 0 3 */31 6 1", lambda day: (day.day, day.month) == (1, 6) and day.isoweekday() == 1),
        ("0 0 3 */31 * 1", lambda day: day.day == 1 and day.isoweekday() == 1),
    ],
)
def test_a_date_that_the_server_would_look_for_in_vain_is_refused(cron: str, matches: Callable[[date], bool]) -> None:
    if any(map(matches, CALENDAR)):
        Trigger(cron=cron)
    else:
        with pytest.raises(InputError, match=NO_DAY):
            Trigger(cron=cron)


def test_both_kinds_of_dates_are_among_the_above() -> None:
    assert taken("0 0 3 29 2 *")
    assert not taken("0 0 3 30 2 *")
