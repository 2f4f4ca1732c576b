"""Several processes as one training: the cluster's description, the loss of a worker, signals. No TensorFlow."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

import pytest

from calopipe.errors import InputError
from training.nodes.workers import LOST_WORKER, Cluster, exit_lost, stop_signals

_A, _B, _C = "10.0.0.1:65535", "b.example:2222", "[fd00::1]:2222"
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
        (" ", None),
    ],
)
def test_the_cluster_is_what_tf_config_says(
    text: str, expected: Cluster | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    assert Cluster.of_process([], None) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", ""), ("[]", ""), ("{}", ""), (json.dumps({"cluster": {"worker": [_A]}}), ""), (_tf_config([_A]), ""),
        (_tf_config({"worker": [_A]}, index="0"), ""), (_tf_config({"worker": [_A]}, kind=["worker"]), ""),
        (_tf_config({"worker": [_A, _B]}, index=2), ""), (_tf_config({"worker": [_A, _B]}, index=-1), ""),
        (_tf_config({"worker": [_A]}, "chief"), ""), (_tf_config({"worker": [_A], "ps": [_B]}), ""),
        (_tf_config({"worker": _A}), "'1' is not host:port"), (_tf_config({"worker": [":2222"]}), "is not host:port"),
        (_tf_config({"worker": ["somewhere:http"]}), "'somewhere:http' is not host:port"),
        (_tf_config({"worker": ["somewhere:0"]}), "from 1 to 65535"),
        (_tf_config({"worker": ["somewhere:65536"]}), "from 1 to 65535"),
    ],
)  # fmt: skip
def test_a_tf_config_that_is_wrong_is_told_of_in_one_line(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(InputError) as raised:
        Cluster.of_process([], None)
    assert (said or "expected JSON with") in str(raised.value)
    assert "\n" not in str(raised.value)


def test_hosts_that_are_given_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an indexed pod, the index is that of the pod."""
    monkeypatch.setenv("TF_CONFIG", "not even JSON")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    assert Cluster.of_process([_A, _B], None) == Cluster((_A, _B), 1)
    assert Cluster.of_process([_A, _B], 0) == Cluster((_A, _B), 0)
    monkeypatch.delenv("TF_CONFIG")
    assert Cluster.of_process([], None) is None
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "first")
    for hosts, index, said in (
        ([_A, _B], None, r"which of the 2 workers is this\? give its index"),
        ([_A], 1, "worker 1 of 1 does not exist"),
        ([], 0, "worker index 0 without the workers' addresses"),
    ):
        with pytest.raises(InputError, match=said):
            Cluster.of_process(hosts, index)


# --- the loss of one

_AT = "while calling /tensorflow.WorkerService/RecvBuf"


@pytest.mark.parametrize(
    ("reason", "lost"),
    [
        (f"Socket closed [...] from remote target /job:worker/replica:0/task:2 {_AT}", f"the worker at {_C}"),
        (f"reported from /job:worker/task:2 [...] from remote target /job:worker/task:0 {_AT}", f"the worker at {_C}"),
        ("{{node of /job:worker/task:1/device:CPU:0}} reported from /job:worker/task:2", f"the worker at {_C}"),
        ("Deadline Exceeded\n\nRPC: /tensorflow.CoordinationService/Heartbeat", f"the worker at {_A}"),
        ("{{node of /job:worker/task:1/device:CPU:0}} Connection reset by peer", "another worker"),
        ("/job:localhost/replica:0/task:0/device:CPU:0 Connection reset by peer", "another worker"),
        ("Connection of /job:worker/task:5 reset by peer", "another worker"),
    ],
    ids=["a connection", "by way of another", "beside its own", "heartbeats", "unnamed", "a device", "no host"],
)
def test_the_line_names_the_worker_that_tensorflow_misses(
    reason: str, lost: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three workers this is the second."""
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        exit_lost(Cluster((_A, _B, _C), 1), reason)
    assert ended.value.code == LOST_WORKER
    assert capfd.readouterr().err == f"error: lost {lost}; run all again, training goes on from its checkpoint\n"


# --- signals


def test_signals_are_noted_and_a_second_interrupt_is_not() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stop_signals(interrupts=lambda: False) as came:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert came == [signal.SIGINT, signal.SIGTERM]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    with stop_signals(interrupts=lambda: True) as came:
        signal.raise_signal(signal.SIGTERM)
    assert came == [signal.SIGTERM]
    with stop_signals(interrupts=lambda: True) as came, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with stop_signals() as came:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
    assert came == [signal.SIGINT] * 2


def test_another_thread_than_the_main_one_takes_no_signals() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    seen = list[object]()

    def work() -> None:
        with stop_signals() as came:
            seen.extend([came, *map(signal.getsignal, (signal.SIGINT, signal.SIGTERM))])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(_PATIENCE)
    assert seen == [[], *handlers]
