"""Several processes as one training: the cluster's description, the watch of peers, the supervisor. No TensorFlow."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from calopipe.errors import InputError
from training.nodes.signals import stop_signals
from training.nodes.supervision import supervise
from training.nodes.workers import LOST_WORKER, PREEMPTED, Cluster, answers, watch_peers

_A, _B, _C = "10.0.0.1:2222", "b.example:2222", "[fd00::1]:2222"
_PATIENCE = 120.0  # seconds for what takes a fraction of one on an idle machine


def _tf_config(jobs: object, kind: object = "worker", index: object = 0) -> str:
    return json.dumps({"cluster": jobs, "task": {"type": kind, "index": index}})


# --- the cluster


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_tf_config({"worker": [_A]}), Cluster((_A,), 0)),
        (_tf_config({"worker": [_A, _B, _C]}, index=2), Cluster((_A, _B, _C), 2)),
        (_tf_config({"chief": [_A], "worker": [_B, _C]}, "chief"), Cluster((_A, _B, _C), 0)),
        (_tf_config({"worker": [_B, _C], "chief": [_A]}, "worker", 1), Cluster((_A, _B, _C), 2)),
        (_tf_config({"chief": [_A]}, "chief"), Cluster((_A,), 0)),
        ("", None),
        (" ", None),
    ],
)
def test_the_cluster_is_what_tf_config_says(
    text: str, expected: Cluster | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    assert Cluster.here([], None) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "expected JSON with"),
        ("[]", "expected JSON with"),
        ("{}", "expected JSON with"),
        (json.dumps({"cluster": {"worker": [_A]}}), "expected JSON with"),
        (_tf_config([_A]), "expected JSON with"),
        (_tf_config({"worker": _A}), "'1' is not host:port"),
        (_tf_config({"worker": [1]}), "'1' is not host:port"),
        (_tf_config({"worker": [_A]}, index="0"), "expected JSON with"),
        (_tf_config({"worker": [_A]}, kind=["worker"]), "expected JSON with"),
        (_tf_config({"worker": [_A, _B]}, index=2), "expected JSON with"),
        (_tf_config({"worker": [_A, _B]}, index=-1), "expected JSON with"),
        (_tf_config({"worker": [_A]}, "chief"), "expected JSON with"),
        (_tf_config({"worker": [_A], "ps": [_B]}), "expected JSON with"),
        (_tf_config({"worker": [_A]}, "evaluator"), "expected JSON with"),
        (_tf_config({"worker": ["somewhere"]}), "'somewhere' is not host:port"),
        (_tf_config({"worker": ["somewhere:http"]}), "'somewhere:http' is not host:port"),
        (_tf_config({"worker": [":2222"]}), "':2222' is not host:port"),
        (_tf_config({"worker": ["somewhere:65536"]}), "from 1 to 65535"),
    ],
)
def test_a_tf_config_that_is_wrong_is_told_of_in_one_line(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(InputError) as raised:
        Cluster.here([], None)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_hosts_that_are_given_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "not even JSON")
    assert Cluster.here([_A, _B], 1) == Cluster((_A, _B), 1)


@pytest.mark.parametrize(
    ("hosts", "index", "said"),
    [([], 0, "without the workers' addresses"), ([_A], None, "give its index"), ([_A], 1, "worker 1 of 1")],
)
def test_hosts_and_index_go_together(
    hosts: list[str], index: int | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOB_COMPLETION_INDEX", raising=False)
    with pytest.raises(InputError, match=said):
        Cluster.here(hosts, index)


def test_in_an_indexed_pod_the_index_is_the_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    assert Cluster.here([_A, _B], None) == Cluster((_A, _B), 1)
    assert Cluster.here([_A, _B], 0) == Cluster((_A, _B), 0)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert Cluster.here([], None) is None
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "first")
    with pytest.raises(InputError, match="which of the 2 workers is this"):
        Cluster.here([_A, _B], None)


def test_no_hosts_are_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert Cluster.here([], None) is None
    with pytest.raises(InputError, match="empty"):
        Cluster((), 0)


def test_a_cluster_comes_back_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster((_A, _B, _C), 1)
    for name, value in cluster.to_environment().items():
        monkeypatch.setenv(name, value)
    assert Cluster.here([], None) == cluster
    assert cluster.size == 3
    assert not cluster.chief
    assert cluster.peers == (_A, _C)


# --- the watch

# Answers each greeting, after as many seconds as it is told, with one byte, and says so.
_PEER = """
import socket, sys, time
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        with server.accept()[0] as connection:
            connection.recv(64)
            time.sleep(float(sys.argv[2]))
            connection.sendall(bytes(1))
            print("greeted", flush=True)
"""


@contextmanager
def _peer(delay_s: float = 0.0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-c", _PEER, "0", str(delay_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, f"127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def _wait_for_greeting(peer: subprocess.Popen[str]) -> None:
    assert peer.stdout is not None
    assert peer.stdout.readline() == "greeted\n"
    time.sleep(0.2)  # for the answer to be taken in


def _closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def _beside(*peers: str) -> Cluster:
    return Cluster(("127.0.0.1:1", *peers), 0)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP], ids=["killed", "ended", "frozen"])
def test_a_peer_that_was_up_and_is_gone_is_lost(end: signal.Signals) -> None:
    lost: queue.Queue[str] = queue.Queue()
    with _peer() as (_, alive), _peer() as (process, dying):
        with watch_peers(_beside(alive, dying), lost.put, every_s=0.2, answer_s=1.0, give_up_s=0.5):
            _wait_for_greeting(process)
            process.send_signal(end)
            assert lost.get(timeout=_PATIENCE) == dying
        assert lost.empty()


def test_a_peer_is_not_lost_before_its_time() -> None:
    lost: queue.Queue[str] = queue.Queue()
    with _peer() as (process, host), watch_peers(_beside(host), lost.put, every_s=0.1, answer_s=0.1, give_up_s=60.0):
        _wait_for_greeting(process)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.6)
        process.send_signal(signal.SIGCONT)
    assert lost.empty()


def test_a_peer_that_was_never_up_or_is_slow_is_not_lost() -> None:
    lost: queue.Queue[str] = queue.Queue()
    with _peer(delay_s=0.3) as (process, slow):
        cluster = _beside(slow, _closed_port())
        with watch_peers(cluster, lost.put, every_s=0.1, answer_s=_PATIENCE, give_up_s=0.1):
            for _ in range(3):
                _wait_for_greeting(process)
    assert lost.empty()


def test_a_peer_that_ends_after_the_watch_is_not_lost() -> None:
    lost: queue.Queue[str] = queue.Queue()
    with _peer() as (process, host):
        with watch_peers(_beside(host), lost.put, every_s=0.1, give_up_s=0.2):
            _wait_for_greeting(process)
        process.kill()
        time.sleep(0.5)
    assert lost.empty()


def _fail(error: Exception, lost: Callable[[str], None], *, killing: bool) -> str:
    """Raise `error` under a watch that has seen its peer up, having killed the peer or not; the peer's address."""
    with _peer() as (process, host), watch_peers(_beside(host), lost, every_s=0.2, answer_s=2.0, give_up_s=60.0):
        _wait_for_greeting(process)
        if killing:
            process.kill()
        raise error
    return host


def test_an_error_while_a_peer_is_gone_is_its_loss() -> None:
    lost: queue.Queue[str] = queue.Queue()
    host = _fail(RuntimeError("of a collective"), lost.put, killing=True)
    assert lost.get_nowait() == host


@pytest.mark.parametrize(
    ("error", "killing"),
    [(RuntimeError("a defect"), False), (InputError("a loss is not a finite number"), True)],
    ids=["all up", "bad input"],
)
def test_any_other_error_is_itself(error: Exception, killing: bool) -> None:
    lost: queue.Queue[str] = queue.Queue()
    with pytest.raises(type(error), match=str(error)):
        _fail(error, lost.put, killing=killing)
    assert lost.empty()


def test_eight_workers_make_fourteen_connections_an_interval() -> None:
    """2(n - 1), where each with each would be 56: counted at sockets, in an interval that outlasts the test."""
    greeted: queue.Queue[int] = queue.Queue()

    def accept(server: socket.socket, index: int) -> None:
        with suppress(OSError):  # closed at the end
            while True:
                with server.accept()[0] as connection:
                    connection.recv(64)
                    connection.sendall(bytes(1))
                    greeted.put(index)

    lost: queue.Queue[str] = queue.Queue()
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(8)]
        for index, server in enumerate(servers):
            threading.Thread(target=accept, args=(server, index), daemon=True).start()
        hosts = tuple(f"127.0.0.1:{server.getsockname()[1]}" for server in servers)
        for index in range(8):
            stack.enter_context(watch_peers(Cluster(hosts, index), lost.put, every_s=600.0))
        counts = Counter(greeted.get(timeout=_PATIENCE) for _ in range(14))
        time.sleep(1.5)  # each watch begins a second after its start
        for server in servers:
            server.shutdown(socket.SHUT_RDWR)  # wakes its thread
    assert greeted.empty()
    assert counts == {0: 7} | dict.fromkeys(range(1, 8), 1)
    assert lost.empty()


def _fail_beside_dead(*, met: bool) -> str:
    """What a worker that watches the chief alone calls lost after an error, when the third worker does not answer."""
    lost: queue.Queue[str] = queue.Queue()
    third = _closed_port()
    with _peer() as (process, chief):
        cluster = Cluster((chief, "127.0.0.1:1", third), 1)
        with watch_peers(cluster, lost.put, every_s=0.2, answer_s=2.0, give_up_s=60.0) as watch:
            _wait_for_greeting(process)
            if met:
                watch.all_up()
            raise RuntimeError("of a collective")
    assert lost.get_nowait() == third
    return third


def test_an_error_is_the_loss_of_a_worker_that_is_not_watched() -> None:
    _fail_beside_dead(met=True)


def test_an_error_before_all_met_is_itself() -> None:
    with pytest.raises(RuntimeError, match="of a collective"):
        _fail_beside_dead(met=False)


@pytest.mark.parametrize("frozen", [True, False], ids=["third frozen", "chief alone"])
def test_workers_that_see_the_chief_go_name_the_lost_one(frozen: bool) -> None:
    """The third stops to answer; the chief ends because of it, which is what the second worker sees."""
    lost: queue.Queue[str] = queue.Queue()
    with _peer() as (first, chief), _peer() as (other, third):
        cluster = Cluster((chief, "127.0.0.1:1", third), 1)
        with watch_peers(cluster, lost.put, every_s=0.1, answer_s=2.0, give_up_s=0.5) as watch:
            watch.all_up()
            _wait_for_greeting(first)
            if frozen:
                other.send_signal(signal.SIGSTOP)
            first.kill()
            said = lost.get(timeout=_PATIENCE)
    who = f"{chief} or {third}" if frozen else chief
    assert said == f"{who}, see the log of the first worker"


def test_a_process_ends_by_itself_when_it_lost_a_peer() -> None:
    program = """
import sys, time
from training.nodes.workers import Cluster, watch_peers
with watch_peers(Cluster(("127.0.0.1:1", sys.argv[1]), 0), every_s=0.2, give_up_s=0.5):
    time.sleep(600)
"""
    with _peer() as (peer, host):
        command = [sys.executable, "-c", program, host]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            _wait_for_greeting(peer)
            peer.kill()
            _, errors = process.communicate(timeout=_PATIENCE)
    assert process.returncode == LOST_WORKER
    assert errors.splitlines() == [
        f"error: lost the worker at {host}; run all again, training goes on from its checkpoint"
    ]


def test_a_greeting_is_answered_or_not() -> None:
    with _peer() as (process, host):
        assert answers(host, _PATIENCE)
        process.send_signal(signal.SIGSTOP)
        assert not answers(host, 0.2)
    assert not answers(_closed_port(), _PATIENCE)


# --- the supervisor

# What each worker's program can use: its index, its attempt (from 1), and a way to wait without end.
_WORKER = """
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
attempt = 1 + len(list(folder.glob(f"{index}.*")))
(folder / f"{index}.{attempt}").write_text(json.dumps({"pid": os.getpid(), "hosts": config["cluster"]["worker"]}))
forever = lambda: time.sleep(600)
"""

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Supervises two workers of a program."""

    def of_program(
        program: str, *, restarts: int = 0, settle_s: float = 0.2, progress: Callable[[], int] = lambda: 0
    ) -> int:
        command = [sys.executable, "-c", _WORKER + program, str(tmp_path)]
        return supervise(
            command, 2, restarts=restarts, environment=os.environ, progress=progress, settle_s=settle_s, grace_s=5.0
        )

    return of_program


def _starts(folder: Path) -> dict[str, dict[str, object]]:
    """What each start of each worker left, by worker and attempt."""
    return {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("[01].*"))}


def test_all_finish(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("print('I am', index); print('told by', index, file=sys.stderr)") == 0
    assert capfd.readouterr() == ("I am 0\n", "told by 0\n")
    starts = _starts(tmp_path)
    assert set(starts) == {"0.1", "1.1"}
    assert starts["0.1"]["hosts"] == starts["1.1"]["hosts"]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "died of SIGKILL (is memory used up?)"),
        ("os.abort()", "died of SIGABRT"),
        (f"sys.exit({LOST_WORKER})", "lost another"),
        (f"sys.exit({PREEMPTED})", "was told to stop"),
    ],
)
def test_one_is_lost_and_all_are_started_again(
    run: Run, end: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(f"if attempt == 1: {end} if index == 1 else forever()", restarts=1) == 0
    starts = _starts(tmp_path)
    assert set(starts) == {"0.1", "0.2", "1.1", "1.2"}
    assert starts["0.1"]["hosts"] != starts["0.2"]["hosts"]
    assert capfd.readouterr().err == (
        f"worker 1 of 2 {said}; starting all again from the last checkpoint (1 of 1)\n"
    )  # fmt: skip


def test_the_survivors_report_is_not_taken_for_the_cause(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    program = f"sys.exit({LOST_WORKER}) if index == 0 else (time.sleep(0.3), os.kill(os.getpid(), signal.SIGKILL))"
    run(program, settle_s=_PATIENCE)
    assert "worker 1 of 2 died of SIGKILL" in capfd.readouterr().err


def test_restarts_are_used_up(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = "print('what it lacks', file=sys.stderr); os.kill(os.getpid(), signal.SIGSEGV) if index else forever()"
    assert run(program, restarts=1) == LOST_WORKER
    assert len(_starts(tmp_path)) == 4
    errors = capfd.readouterr().err
    assert "worker 1: what it lacks\n" in errors
    assert "error: worker 1 of 2 died of SIGSEGV; no progress after restarts: 1;" in errors


def test_restarts_count_anew_after_progress(run: Run, tmp_path: Path) -> None:
    def step() -> int:
        return min(3, len(list(tmp_path.glob("0.*"))))

    assert run(f"sys.exit({LOST_WORKER})", restarts=1, progress=step) == LOST_WORKER
    assert len(list(tmp_path.glob("0.*"))) == 4


def test_bad_input_that_all_found_is_told_of_once(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = "print('error: no such dataset', file=sys.stderr); sys.exit(2)"
    assert run(program, restarts=3, settle_s=_PATIENCE) == 2  # however late the other one starts
    assert capfd.readouterr().err == "error: no such dataset\n"
    assert len(_starts(tmp_path)) == 2


def test_bad_input_that_one_found_ends_all(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("if index: print('error: no such shard', file=sys.stderr); sys.exit(2)\nforever()", restarts=3) == 2
    assert capfd.readouterr().err == "worker 1: error: no such shard\n"


def test_a_defect_ends_all(run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("if index: raise RuntimeError('a defect')\nforever()", restarts=3) == 1
    assert "worker 1: RuntimeError: a defect" in capfd.readouterr().err
    assert len(_starts(tmp_path)) == 2


@contextmanager
def _supervisor(folder: Path, program: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that supervises two workers of `program`, once both have written "I.ready"."""
    code = (
        "import os, sys; from training.nodes.supervision import supervise\n"
        "sys.exit(supervise([sys.executable, '-c', *sys.argv[1:]], 2, restarts=3, environment=os.environ))"
    )
    with subprocess.Popen([sys.executable, "-c", code, _WORKER + program, str(folder)]) as process:
        try:
            _until(lambda: len(list(folder.glob("ready.*"))) == 2)
            yield process
        finally:
            process.kill()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _ended(pid: int) -> bool:
    """Whether a process is no more, or only waits for its parent to ask for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _all_ended(folder: Path) -> bool:
    return all(_ended(int(str(start["pid"]))) for start in _starts(folder).values())


_SAVING = f"""
def save(*_):
    time.sleep(0.5)
    (folder / f"saved.{{index}}").touch()
    sys.exit({PREEMPTED})
signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGINT, save)
(folder / f"ready.{{index}}").touch()
forever()
"""
_STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
(folder / f"ready.{index}").touch()
forever()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, PREEMPTED), (signal.SIGINT, 130)])
def test_a_stop_is_handed_on_and_waited_for(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with _supervisor(tmp_path, _SAVING) as process:
        process.send_signal(number)
        assert process.wait(_PATIENCE) == code
        assert _all_ended(tmp_path)
    assert {path.name for path in tmp_path.glob("saved.*")} == {"saved.0", "saved.1"}
    assert set(_starts(tmp_path)) == {"0.1", "1.1"}


def test_a_second_stop_kills(tmp_path: Path) -> None:
    with _supervisor(tmp_path, _STUBBORN) as process:
        process.terminate()
        time.sleep(0.5)
        assert process.poll() is None
        process.terminate()
        assert process.wait(_PATIENCE) == PREEMPTED
        assert _all_ended(tmp_path)


def test_workers_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with _supervisor(tmp_path, _STUBBORN) as process:
        process.kill()
        _until(lambda: _all_ended(tmp_path))


def test_signals_are_noted_and_a_second_interrupt_is_not() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals(interrupts=lambda: False) as came:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert came == [signal.SIGINT, signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before
    with stop_signals(interrupts=lambda: True) as came:
        signal.raise_signal(signal.SIGTERM)
    assert came == [signal.SIGTERM]
    with stop_signals(interrupts=lambda: True) as came, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
