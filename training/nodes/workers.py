"""The workers of a training, one process each: how they find each other, and how the loss of one is noticed.

A lost worker cannot rejoin a running training, because TensorFlow's collectives cannot add it again. So the others end
too, with an exit code that says why, and all are to be started again from the last checkpoint: by a cluster's failure
policy, or by hand. No TensorFlow in here.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from calopipe.errors import BAD_INPUT_EXIT_CODE, InputError, describe

# Both mean "run again, and training continues from its last checkpoint". A cluster's failure policy treats them
# differently from a defect (1) and bad input (2). 75 is EX_TEMPFAIL of sysexits.h, a temporary failure: try again.
# 76 is the next number: EX_PROTOCOL there, a remote system that misbehaves, and not used otherwise here.
PREEMPTED = 75  # got SIGTERM, and saved
LOST_WORKER = 76  # another worker is gone


def most_telling(codes: Mapping[int, int]) -> int:
    """The worker whose exit code says most about why all ended.

    Bad input says most, then any other error, then a death by a signal, whose code is above 128, then the report
    of another worker's loss.
    """

    def precedence(index: int) -> tuple[bool, bool, bool, int]:
        code = codes[index]
        restart_helps = code in {PREEMPTED, LOST_WORKER} or code > 128
        return code != BAD_INPUT_EXIT_CODE, restart_helps, code == LOST_WORKER, index

    return min(codes, key=precedence)


_VARIABLE = "TF_CONFIG"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"  # set by Kubernetes in each pod of an Indexed Job

# How any HTTP/2 client begins (RFC 9113, section 3.4): its preface and an empty SETTINGS frame. A gRPC server answers
# with its own settings; a process that is frozen does not, though the kernel still accepts connections for it.
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@dataclass(frozen=True)
class Cluster:
    """All workers of a training, as "host:port" each, and which of them this process is."""

    hosts: tuple[str, ...]
    index: int

    def __post_init__(self) -> None:
        if not self.hosts:
            raise InputError("the list of workers is empty; give host:port of each")
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

    @property
    def peers(self) -> tuple[str, ...]:
        """All workers but this one."""
        return self.hosts[: self.index] + self.hosts[self.index + 1 :]

    @classmethod
    def here(cls, hosts: Sequence[str], index: int | None) -> Cluster | None:
        """The cluster that this process belongs to: from `hosts`, else from TF_CONFIG; None without either.

        Without an `index`, it is that of the pod that this process runs in. InputError if hosts or index are wrong.
        """
        if hosts:
            return cls(tuple(hosts), _index_of_pod(len(hosts)) if index is None else index)
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
            chiefs, others = jobs.get("chief", []), jobs.get("worker", [])
            known = {kind, *jobs} <= {"chief", "worker"} and index in range(len(jobs[kind]))
        except (ValueError, KeyError, TypeError, AttributeError):
            known = False
        if not known:
            shortened = text if len(text) <= 80 else text[:77] + "..."
            raise InputError(
                f"{_VARIABLE} is {shortened!r}, expected JSON with the jobs chief and worker alone, such as "
                '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
            )
        return cls(tuple(map(str, (*chiefs, *others))), index if kind == "chief" else len(chiefs) + index)

    def to_environment(self) -> dict[str, str]:
        """The variable in which TensorFlow looks for the cluster; a chief is its worker 0."""
        task = {"type": "worker", "index": self.index}
        return {_VARIABLE: json.dumps({"cluster": {"worker": list(self.hosts)}, "task": task})}


def _index_of_pod(workers: int) -> int:
    text = os.environ.get(_INDEX_VARIABLE, "")
    if not text.isdecimal():
        raise InputError(f"which of the {workers} workers is this? give its index, from 0")
    return int(text)


def exit_lost(host: str) -> None:
    """End this process at once, with one line, because the worker at `host` is gone.

    No handlers or destructors run, since they would wait for a thread that is inside a collective.
    """
    os.write(2, f"error: lost the worker at {host}; run all again, training goes on from its checkpoint\n".encode())
    os._exit(LOST_WORKER)


@contextmanager
def watch_peers(
    cluster: Cluster,
    lost: Callable[[str], None] = exit_lost,
    *,
    every_s: float = 5.0,
    answer_s: float = 5.0,
    give_up_s: float = 30.0,
) -> Iterator[Watch]:
    """While the block runs, call `lost` with the address of any peer that was up and is gone.

    The chief greets every worker and the others greet the chief: of n workers 2(n - 1) greetings every `every_s`
    seconds. A greeting is a connection to the peer's port, to be answered within `answer_s`. A peer is gone once it has
    not answered for `give_up_s`; one that was never up is waited for without limit. An error inside the block that is
    not bad input counts as a loss if a peer is gone at that moment, because that is how a collective fails when its
    peer dies. To find out who, a worker greets all peers that were up, at most twice, `answer_s` apart. `lost` may be
    called by a thread of the watch.

    The chief ends when it has lost a worker, and the others then lose the chief; so do all where the chief dies. They
    call `lost` with every address that is gone, joined by "or": one was lost, the others ended because they noticed.

    Leave the block right after the last collective, which all workers reach together: a worker that is done may then
    end, and the others have `give_up_s` to leave the block too.
    """
    watch = Watch(cluster, lost, every_s=every_s, answer_s=answer_s, give_up_s=give_up_s)
    for host in cluster.peers if cluster.chief else cluster.hosts[:1]:
        threading.Thread(target=watch.follow, args=(host,), name=f"watch {host}", daemon=True).start()
    try:
        yield watch
    except Exception as error:
        gone = watch.gone() if describe(error) is None else None
        if gone is None:
            raise
        lost(gone)
    finally:
        watch.stop()


class Watch:
    """What one worker knows of its peers; made by `watch_peers`."""

    def __init__(
        self, cluster: Cluster, lost: Callable[[str], None], *, every_s: float, answer_s: float, give_up_s: float
    ) -> None:
        self._cluster, self._lost = cluster, lost
        self._every_s, self._answer_s, self._give_up_s = every_s, answer_s, give_up_s
        self._up: set[str] = set()
        self._stopped = threading.Event()

    def all_up(self) -> None:
        """Note that every worker was up, as a collective shows that has ended."""
        self._up = set(self._cluster.peers)

    def follow(self, host: str) -> None:
        """Greet `host` until the watch is stopped or the peer is lost."""
        silent_since = None
        while not self._stopped.wait(self._every_s if host in self._up else min(self._every_s, 1.0)):
            asked_at = time.monotonic()
            if answers(host, self._answer_s):
                self._up.add(host)
                silent_since = None
            elif host in self._up:
                silent_since = silent_since or asked_at
                if time.monotonic() - silent_since >= self._give_up_s:
                    gone = host if self._cluster.chief else self._silent() or host
                    if not self._stopped.is_set():
                        self._lost(gone)
                    return

    def gone(self) -> str | None:
        """Those that were up and do not answer now or `answer_s` later, since one may be about to end; else None."""
        if gone := self._silent():
            return gone
        time.sleep(self._answer_s)
        return self._silent()

    def _silent(self) -> str | None:
        """The peers that were up and do not answer now, all asked at once; None if all do."""
        hosts = [host for host in self._cluster.peers if host in self._up]
        if not hosts:
            return None
        with ThreadPoolExecutor(len(hosts)) as pool:
            answered = pool.map(answers, hosts, [self._answer_s] * len(hosts))
        silent = [host for host, answer in zip(hosts, answered, strict=True) if not answer]
        advice = ", see the log of the first worker" if self._cluster.hosts[0] in silent else ""
        return f"{' or '.join(silent)}{advice}" if silent else None

    def stop(self) -> None:
        self._stopped.set()


def answers(host: str, timeout_s: float) -> bool:
    """Whether the gRPC server at `host`, as "host:port", answers a greeting within `timeout_s`."""
    name, _, port = host.rpartition(":")
    with suppress(OSError), socket.create_connection((name.strip("[]"), int(port)), timeout_s) as connection:
        connection.sendall(_HTTP2_GREETING)
        return bool(connection.recv(1))
    return False
