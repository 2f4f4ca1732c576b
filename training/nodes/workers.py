"""The workers of a training, one process each: how they find each other, and how they end if one is lost, or as told.

TensorFlow notices the loss: the workers send heartbeats to the first worker, and a collective without a worker fails. A
lost worker cannot rejoin a running training, because TensorFlow's collectives cannot add it again. So the others end
too, with an exit code that says why. Then all workers must be started again, and go on from the last checkpoint: a
cluster's failure policy does this, or the user. No TensorFlow in here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from calopipe.errors import BAD_INPUT_EXIT_CODE, InputError

# Both codes mean "run again, and training continues from its last checkpoint". A cluster's failure policy treats them
# differently from a defect (1) and bad input (2). 75 is EX_TEMPFAIL of sysexits.h, a temporary failure: try again.
# 76 is the next number. It is EX_PROTOCOL there, a remote system that misbehaves; calopipe has no other use for it.
PREEMPTED = 75  # this process got SIGTERM, and saved
LOST_WORKER = 76  # another worker is gone


def most_telling(codes: Mapping[int, int]) -> int:
    """The worker whose exit code says most about why all ended, of `codes` by worker.

    Bad input says most; then any other error; then PREEMPTED, and a death by a signal, whose code is above 128; then
    the report of another worker's loss.
    """

    def precedence(index: int) -> tuple[bool, bool, bool, int]:
        code = codes[index]
        restart_helps = code in {PREEMPTED, LOST_WORKER} or code > 128
        return code != BAD_INPUT_EXIT_CODE, restart_helps, code == LOST_WORKER, index

    return min(codes, key=precedence)


_VARIABLE = "TF_CONFIG"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"  # set by Kubernetes in each pod of an Indexed Job


@dataclass(frozen=True)
class Cluster:
    """All workers of a training, "host:port" for each; `index` says which of them this process is."""

    hosts: tuple[str, ...]
    index: int

    def __post_init__(self) -> None:
        for host in self.hosts:
            name, _, port = host.rpartition(":")
            if not name or not port.isdecimal() or not 0 < int(port) < 65536:
                raise InputError(f"worker {host!r} is not host:port; give a port from 1 to 65535")
        if not 0 <= self.index < len(self.hosts):
            raise InputError(f"worker {self.index} of {len(self.hosts)} does not exist; they count from 0")

    @property
    def chief(self) -> bool:
        """Whether this is the worker that writes checkpoints, model and history."""
        return self.index == 0

    @property
    def size(self) -> int:
        return len(self.hosts)

    @classmethod
    def of_process(cls, hosts: Sequence[str], index: int | None) -> Cluster | None:
        """The cluster that this process belongs to: from `hosts`, else from TF_CONFIG; None without both.

        Without an `index`, it is the index of this process's pod. InputError if hosts or index are wrong.
        """
        if hosts:
            if index is None:
                text = os.environ.get(_INDEX_VARIABLE, "")
                if not text.isdecimal():
                    raise InputError(f"which of the {len(hosts)} workers is this? give its index, from 0")
                index = int(text)
            return cls(tuple(hosts), index)
        if index is not None:
            raise InputError(f"worker index {index} without the workers' addresses; give host:port of each")
        text = os.environ.get(_VARIABLE, "")
        return cls._parse(text) if text.strip() else None

    @classmethod
    def _parse(cls, text: str) -> Cluster:
        """The cluster of a TF_CONFIG with the job "worker", or "chief" and "worker"; a chief is worker 0 here."""
        try:
            document = json.loads(text)
            jobs, kind, index = document["cluster"], document["task"]["type"], document["task"]["index"]
            chiefs, ordinary = jobs.get("chief", []), jobs.get("worker", [])
            valid = {kind, *jobs} <= {"chief", "worker"} and index in range(len(jobs[kind]))
        except (ValueError, KeyError, TypeError, AttributeError):
            valid = False
        if not valid:
            shortened = text if len(text) <= 80 else text[:77] + "..."
            raise InputError(
                f"{_VARIABLE} is {shortened!r}, expected JSON with the jobs chief and worker alone, such as "
                '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
            )
        return cls(tuple(map(str, (*chiefs, *ordinary))), index if kind == "chief" else len(chiefs) + index)

    def to_environment(self) -> dict[str, str]:
        """The environment variable from which TensorFlow takes the cluster; the chief is worker 0."""
        task = {"type": "worker", "index": self.index}
        return {_VARIABLE: json.dumps({"cluster": {"worker": list(self.hosts)}, "task": task})}


def exit_lost(cluster: Cluster, reason: str) -> None:
    """End this process at once, with one line, because a worker is lost; `reason` is TensorFlow's message.

    No handlers or destructors run, because they would wait for a thread that is inside a collective.
    """
    line = f"error: lost {_lost(cluster, reason)}; run all again, training goes on from its checkpoint\n"
    os.write(2, line.encode())
    os._exit(LOST_WORKER)


def _lost(cluster: Cluster, reason: str) -> str:
    """The first worker in `reason` that is not this one."""
    named = [int(number) for number in re.findall(r"/job:worker(?:/replica:\d+)?/task:(\d+)", reason)]
    if "CoordinationService" in reason:  # a service of the first worker
        named.append(0)
    lost = [number for number in named if number != cluster.index and number < cluster.size]
    return f"the worker at {cluster.hosts[lost[0]]}" if lost else "another worker"


@contextmanager
def stop_signals(*, interrupts: Callable[[], bool] | None = None) -> Iterator[list[int]]:
    """A list that collects each SIGTERM and SIGINT during the block; outside of the main thread it stays empty.

    With `interrupts`, a SIGINT raises KeyboardInterrupt if it is not the first signal, or if `interrupts()` is true.
    """
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and interrupts is not None and (came or interrupts()):
            raise KeyboardInterrupt
        came.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
