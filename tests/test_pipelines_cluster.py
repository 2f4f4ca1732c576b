"""What goes to a cluster: the compiled pipeline, and the requests of the real kfp client to a server on loopback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipelines import submit
from preprocessing.errors import InputError

STEPS = ["discover", "preprocess", "train", "generate", "validate", "promote"]


class _Server(ThreadingHTTPServer):
    """Speaks the routes of Kubeflow Pipelines' v2beta1 API that submitting needs, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any, str | None]] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        document = json.loads(body) if body else None
        self.server.asked.append((self.command, path, document, self.headers.get("Authorization")))
        answers = {
            ("GET", "/apis/v2beta1/healthz"): {"multi_user": False},
            ("GET", "/apis/v2beta1/experiments"): {"experiments": [], "total_size": 0},
            ("POST", "/apis/v2beta1/experiments"): {"experiment_id": "e1", "display_name": "calopipe"},
            ("POST", "/apis/v2beta1/runs"): {"run_id": "r1", "experiment_id": "e1"},
            ("POST", "/apis/v2beta1/recurringruns"): {"recurring_run_id": "s1"},
        }
        answer = answers.get((self.command, path))
        payload = json.dumps(answer if answer is not None else {"error": "unknown"}).encode()
        self.send_response(200 if answer is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    do_GET = do_POST = _answer  # noqa: N815

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _to(server: _Server, *arguments: str) -> list[str]:
    address = f"http://127.0.0.1:{server.server_port}"
    return [*arguments, "--endpoint", address, "--input", "/data/*.h5", "--output", "/data/run", "--epochs", "7"]


def _sent(server: _Server, path: str) -> tuple[dict[str, Any], str | None]:
    ((_, _, document, authorization),) = [asked for asked in server.asked if asked[:2] == ("POST", path)]
    return document, authorization


def test_submit(server: _Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("secret-token\n")
    submit.main(_to(server, "submit", "--token-file", str(tmp_path / "token"), "--claim", "shared:/data"))
    run, authorization = _sent(server, "/apis/v2beta1/runs")
    assert authorization == "Bearer secret-token"
    assert run["runtime_config"]["parameters"] == {"input": ["/data/*.h5"], "output": "/data/run", "epochs": 7}
    assert sorted(run["pipeline_spec"]["pipeline_spec"]["root"]["dag"]["tasks"]) == sorted(STEPS)
    assert "shared" in json.dumps(run["pipeline_spec"]["platform_spec"])
    assert "secret-token" not in json.dumps(run)
    assert re.search(r"^run: r1$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("option", "value", "trigger"),
    [
        ("--cron", "0 0 3 * * 1", {"cron_schedule": {"cron": "0 0 3 * * 1"}}),
        ("--interval", "3600", {"periodic_schedule": {"interval_second": "3600"}}),
    ],
)
def test_schedule(
    server: _Server, option: str, value: str, trigger: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    submit.main(_to(server, "schedule", option, value))
    recurring, _ = _sent(server, "/apis/v2beta1/recurringruns")
    found = {
        kind: {name: str(given) for name, given in schedule.items() if given is not None}
        for kind, schedule in recurring["trigger"].items()
        if schedule
    }
    assert found == trigger
    assert recurring["no_catchup"] is True
    assert recurring["max_concurrency"] in (1, "1")
    assert recurring["runtime_config"]["parameters"]["epochs"] == 7
    assert "recurring run: s1" in capsys.readouterr().out


def test_a_server_that_refuses(server: _Server) -> None:
    """A route that the server does not know: 404, as from the wrong address or a namespace that is not there."""
    arguments = _to(server, "submit", "--namespace", "team")
    arguments[arguments.index("--endpoint") + 1] += "/elsewhere"
    with pytest.raises(InputError, match=r"/elsewhere: the server answered 404 Not Found; check --token-file"):
        submit.main(arguments)


def test_a_server_that_is_not_there(server: _Server) -> None:
    arguments = _to(server, "submit")
    server.server_close()
    with pytest.raises(InputError, match="cannot be reached"):
        submit.main(arguments)


@pytest.mark.parametrize("module", ["pipelines", "pipelines.submit", "pipelines.calorimeter", "components.train"])
def test_importing_the_pipeline_loads_no_tensorflow(module: str) -> None:
    program = f"import sys, {module}; assert not {{'tensorflow', 'keras', 'apache_beam'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
