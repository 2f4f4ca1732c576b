"""Real servers and tools for tests: built from their Go modules, listening on loopback, ended with the test."""

from __future__ import annotations

import gc
import http.client
import json
import os
import random
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from training.nodes.workers import Cluster

FAKE_GCS_SERVER = "github.com/fsouza/fake-gcs-server@v1.56.1"
PRISM = "github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0"
BUILD_SECONDS = 900.0  # of a first build, which downloads its modules


def go(*arguments: str | Path, **how: Any) -> str:
    """What a command of Go prints. The test is skipped if the command fails, as it does without a network."""
    if shutil.which("go") is None:
        pytest.skip("Go is missing, which builds servers for tests")
    command = ["go", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False, **how)
    if done.returncode:
        pytest.skip(f"go {arguments[0]} failed: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
    return done.stdout


def go_tool(module: str) -> Path:
    """The program of a Go module, built once for this environment."""
    folder = Path(sys.prefix) / "tools"
    program = folder / module.partition("@")[0].rpartition("/")[2]
    if not program.exists():
        go("install", module, env=os.environ | {"GOBIN": str(folder)})
    return program


PATIENCE_S = 400.0  # for what takes seconds on a machine that does nothing else


def wait_until(condition: Callable[[], Any], what: str, *, every_s: float = 0.1) -> Any:
    """The first true value of `condition`, asked every `every_s` seconds."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if value := condition():
            return value
        time.sleep(every_s)
    raise AssertionError(f"waited in vain for {what}")


def said(*command: object, **how: Any) -> str:
    """What a program prints. It must end with exit code 0."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **how)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def free_port() -> int:
    """A port on which nothing listens, below the ports that outgoing connections may take meanwhile."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def end(process: subprocess.Popen[Any]) -> None:
    """End a process as a kubelet ends a container."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    process.kill()
    process.wait()


@contextmanager
def running(*command: object, log: str | Path = os.devnull) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until the end of the block, and writes into `log`."""
    with Path(log).open("wb") as out, subprocess.Popen(list(map(str, command)), stdout=out, stderr=out) as process:
        try:
            yield process
        finally:
            end(process)


def together(command: Sequence[str], **more: str) -> None:
    """Run `command` as the two workers of one training, with `more` in their environment. Both must succeed."""
    hosts = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    workers = [
        subprocess.Popen(command, env=os.environ | more | Cluster(hosts, index).to_environment()) for index in (0, 1)
    ]
    try:
        assert [worker.wait(900) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()


class Answering(BaseHTTPRequestHandler):
    """The request handler of a simulated server; it does not print requests."""

    def send(self, status: int, text: str, *headers: tuple[str, str]) -> None:
        """Answer with `text`, which is called JSON, and more `headers`."""
        payload = text.encode()
        self.send_response(status)
        for key, value in (("Content-Type", "application/json"), ("Content-Length", str(len(payload))), *headers):
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Played(ThreadingHTTPServer):
    """A server on loopback that answers by `handler` from its `state`; over TLS with a `certificate` and its key."""

    def __init__(self, handler: type[Answering], state: Any = None, certificate: Sequence[Path] = ()) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.state = state
        self.address = f"http{'s' if certificate else ''}://127.0.0.1:{self.server_port}"
        if certificate:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*certificate)
            # Each handshake in its connection's own thread: one that is slow must not keep the others waiting.
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, *connection: Any) -> None:
        """Nothing of a client that is gone, or refuses the certificate: a thread would print it at any time."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(*connection)

    @contextmanager
    def serving(self, let_go: Callable[[], None] = lambda: None) -> Iterator[str]:
        """The address of the server, which answers until the end of the block; then `let_go` releases held requests."""
        with self:
            thread = threading.Thread(target=self.serve_forever, args=(0.02,))
            thread.start()
            try:
                yield self.address
            finally:
                let_go()
                self.shutdown()
                thread.join()


class Proxy(Played):
    """A proxy to a server on loopback, which can harm requests, in the ways of `HARMS`: a random `share` of them.

    `seen` counts the requests by their harm, `sent` and `received` the bytes of their content and of the answers. With
    a `refusal`, a status and its reason, every change is refused.
    """

    HARMS = ("503", "429", "cut", "done and cut", "half an answer", "slow")

    def __init__(self, target_port: int) -> None:
        super().__init__(_Passing)
        self.target_port = target_port
        self.share, self.seen = 0.0, Counter[str]()
        self.sent = self.received = 0
        self.refusal: tuple[int, str] | None = None
        self.closed = False
        self._cut_at = float("inf")
        self._lots = random.Random(1)  # of its own: what is tested draws from the common one
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def cut_after(self, more: int) -> None:
        """Cut the connection once, after so many more bytes are sent."""
        self._cut_at = self.sent + more

    def harm(self, size: int) -> str:
        """The harm that the next request, of so many bytes, gets; for most requests none."""
        self.sent += size
        found = self._lots.choice(self.HARMS) if self._lots.random() < self.share else ""
        if self.sent >= self._cut_at:
            self._cut_at, found = float("inf"), "cut"
        self.seen[found] += 1
        return found

    def close(self) -> None:
        """Take no more connections, and drop existing ones at their next request."""
        self.closed = True
        self.shutdown()
        self.server_close()


class _Passing(Answering):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _pass(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        harm = self.server.harm(len(content))
        if self.server.closed or harm == "cut":
            self.close_connection = True
        elif self.server.refusal and self.command != "GET":
            status, reason = self.server.refusal
            self.send(status, json.dumps({"error": {"code": status, "message": reason}}))
        elif harm in {"503", "429"}:
            self._answer(int(harm), {}, b"")
        else:
            time.sleep(0.2 if harm == "slow" else 0)
            way = http.client.HTTPConnection("127.0.0.1", self.server.target_port, timeout=60)
            way.request(self.command, self.path, content, dict(self.headers))
            answer = way.getresponse()
            found = answer.read()
            way.close()
            self.server.received += len(found)
            if harm == "done and cut":
                self.close_connection = True
            else:
                self._answer(answer.status, dict(answer.getheaders()), found, half=harm == "half an answer")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass  # noqa: N815

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes, *, half: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if half else content)
        self.close_connection = half


@contextmanager
def store(bucket: str) -> Iterator[Proxy]:
    """An object store with one empty bucket behind a proxy. Google's client is set to use it."""
    from google.cloud import storage as google_storage  # half a second, for tests of buckets alone

    from calopipe import gcs

    program, port = go_tool(FAKE_GCS_SERVER), free_port()
    proxy = Proxy(port)
    command = [
        program, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", port,
        "-public-host", f"127.0.0.1:{proxy.server_port}", "-external-url", proxy.address,
    ]  # fmt: skip

    def answers() -> bool:
        assert server.poll() is None, "the object store has ended"
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/storage/v1/b", timeout=1):
            return True
        return False

    with running(*command) as server, pytest.MonkeyPatch.context() as patch:
        # Else a thread of the proxy may collect garbage of h5py, and wait for a reader that waits for the proxy.
        gc.disable()
        try:
            wait_until(answers, "the object store")
            patch.setenv("STORAGE_EMULATOR_HOST", proxy.address)
            google_storage.Client(project="test").create_bucket(bucket)
            gcs._client_of.cache_clear()
            yield proxy
        finally:
            gc.enable()
            gcs._client_of.cache_clear()
            proxy.close()


@dataclass
class DaskCluster:
    """A Dask scheduler and its workers, processes of one thread each on loopback."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def dask_cluster(folder: Path, *, workers: int) -> Iterator[DaskCluster]:
    """A Dask cluster that writes into `folder`, ended with the block.

    Its workers have no nannies, which would start them again. All of them are registered when the block begins.
    """
    port, processes = free_port(), []
    address, log = f"tcp://127.0.0.1:{port}", folder / "dask.log"
    of_worker = ("worker", address, "--nthreads", "1", "--no-nanny", "--local-directory", str(folder))
    try:
        with log.open("wb") as written:
            for role in (("scheduler", "--port", str(port)), *[of_worker] * workers):
                command = [sys.executable, "-m", "dask", *role, "--host", "127.0.0.1", "--no-dashboard"]
                processes.append(subprocess.Popen(command, stdout=written, stderr=written))
        wait_until(lambda: log.read_text().count("Registered to:") == workers, "the Dask workers")
        yield DaskCluster(address, processes[0], processes[1:])
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
