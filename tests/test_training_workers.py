"""Several processes as one training: the cluster's description, the watch of peers, signals. No TensorFlow."""

from __future__ import annotations

import json
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
from types import SimpleNamespace

import pytest

from calopipe.errors import InputError
from training.nodes import workers
from training.nodes.signals import stop_signals
from training.nodes.workers import LOST_WORKER, Cluster, answers, watch_peers

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
        (_tf_config({"worker": ["somewhere:0"]}), "from 1 to 65535"),
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
    Cluster(("a:1", "b:65535"), 1)
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


@pytest.mark.parametrize(
    ("looks", "gone"),
    [
        ([{1: True, 2: True}, {1: True, 2: True}], None),
        ([{1: True, 2: False}], _C),
        ([{1: True, 2: True}, {1: False, 2: True}], _B),
        ([{1: False, 2: False}], f"{_B} or {_C}"),
    ],
)
def test_after_an_error_peers_are_asked_twice_for_one_may_be_about_to_end(
    looks: list[dict[int, bool]], gone: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, pauses = Cluster((_A, _B, _C), 0), list[float]()
    monkeypatch.setattr(workers, "answers", lambda host, _: looks[len(pauses)][cluster.hosts.index(host)])
    monkeypatch.setattr(workers, "time", SimpleNamespace(sleep=pauses.append))
    watch = workers.Watch(cluster, pytest.fail, every_s=600.0, answer_s=7.0, give_up_s=30.0)
    watch.all_up()
    assert watch.gone() == gone
    assert pauses == [7.0] * (len(looks) - 1)


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


# --- signals


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


def test_another_thread_than_the_main_one_takes_no_signals() -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    seen = list[object]()

    def work() -> None:
        with stop_signals() as came:
            seen.extend([came, *(signal.getsignal(number) for number in handlers)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(_PATIENCE)
    assert seen == [[], *handlers.values()]
    with stop_signals():
        assert {number: signal.getsignal(number) for number in handlers} != handlers
    assert {number: signal.getsignal(number) for number in handlers} == handlers
