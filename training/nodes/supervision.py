"""Several workers on one machine: started together, and started again together when one is lost."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import IO

from calopipe.errors import BAD_INPUT_EXIT_CODE, InputError
from training.nodes.signals import stop_signals
from training.nodes.workers import LOST_WORKER, PREEMPTED, Cluster, most_telling

_POLL_S = 0.1
_LINES_SHOWN = 40
_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


def supervise(
    command: Sequence[str],
    workers: int,
    *,
    restarts: int,
    environment: Mapping[str, str],
    progress: Callable[[], int] = lambda: 0,
    settle_s: float = 1.0,
    grace_s: float = 10.0,
) -> int:
    """Run `workers` processes of `command` on this machine as one training; the exit code to end with.

    Each process gets `environment` and a TF_CONFIG of its own. When a worker dies of a signal, or ends with
    LOST_WORKER or PREEMPTED, the others are ended and all are started again: at most `restarts` times until
    `progress()`, such as the step of the newest checkpoint, has grown; then the code is LOST_WORKER. Any other failure
    ends all, and its code is returned. After a failure the others have `settle_s` seconds to end by themselves, which
    shows what the cause was; then they get SIGTERM, and are killed after `grace_s`.

    SIGTERM and SIGINT are passed on to the workers, which may take their time to save; a second one kills them. The
    code is then PREEMPTED or 130, unless all had finished.

    The first worker's output is passed through. Of the others only standard error is kept, and shown if it says why
    the run ends. The workers share the machine's cores and see the same GPUs: unless `environment` says otherwise,
    each of them sets up as many threads as there are cores. Must be called from the main thread, since it handles
    signals.
    """
    restarted, reached = 0, progress()
    with stop_signals() as signals:
        while True:
            with _team(command, workers, environment) as team:
                team.wait(signals)
                team.wait_s(settle_s)
                own = team.codes()
                team.end(grace_s)
                index, code = _decisive(own, team.codes(), signals)
                if signals or (code >= 0 and code not in (LOST_WORKER, PREEMPTED)):
                    team.show(index)
                    return code
                if (now := progress()) > reached:
                    restarted, reached = 0, now
                lost = f"worker {index} of {workers} {_cause(code)}"
                if restarted == restarts:
                    team.show(index)
                    _say(f"error: {lost}; no progress after restarts: {restarts}; see what it lacks, and run again")
                    return LOST_WORKER
            restarted += 1
            _say(f"{lost}; starting all again from the last checkpoint ({restarted} of {restarts})")


def _decisive(own: list[int | None], codes: list[int | None], signals: Sequence[int]) -> tuple[int, int]:
    """The worker that decides how a run ended, and the exit code to end with.

    `own` are the exit codes of those that had ended by themselves, `codes` those of all.
    """
    if not any(codes):
        return 0, 0
    if BAD_INPUT_EXIT_CODE in codes:
        return codes.index(BAD_INPUT_EXIT_CODE), BAD_INPUT_EXIT_CODE
    if signals:
        return 0, 130 if signals[0] == signal.SIGINT else PREEMPTED
    failed = {index: code for index, code in enumerate(own) if code}
    index = most_telling(failed)
    return index, failed[index]


def _cause(code: int) -> str:
    if code < 0:
        memory = " (is memory used up?)" if code == -signal.SIGKILL else ""
        return f"died of {signal.Signals(-code).name}{memory}"
    return "was told to stop" if code == PREEMPTED else "lost another"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _team(command: Sequence[str], workers: int, environment: Mapping[str, str]) -> Iterator[_Team]:
    """One attempt: the workers' processes, which end with the block, and with this process at the latest."""
    team, hosts = _Team(command, environment), _free_hosts(workers)
    with closing(team):
        for index in range(workers):
            team.start(Cluster(hosts, index))
        yield team


class _Team:
    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = command, environment
        self._processes: list[subprocess.Popen[bytes]] = []
        self._errors: list[IO[bytes]] = []

    def start(self, cluster: Cluster) -> None:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._errors.append(errors)
        self._processes.append(
            subprocess.Popen(
                self._command,
                env={**self._environment, **cluster.to_environment()},
                stdin=subprocess.DEVNULL,
                stdout=None if cluster.chief else subprocess.DEVNULL,
                stderr=None if cluster.chief else errors,
                process_group=0,  # a terminal's Ctrl-C comes to this process alone, which passes it on once
                preexec_fn=partial(_die_with, os.getpid()),  # noqa: PLW1509 - this process has no other threads
            )
        )

    def codes(self) -> list[int | None]:
        """The exit code of each worker, None while it runs."""
        return [process.poll() for process in self._processes]

    def wait(self, signals: Sequence[int]) -> None:
        """Wait until all have ended or one has failed; pass on the stop signals that come, and then wait for all."""
        passed_on = 0
        while None in (codes := self.codes()) and (signals or not any(codes)):
            for number in signals[passed_on:]:
                self._signal(number if passed_on == 0 else signal.SIGKILL)
                passed_on += 1
            time.sleep(_POLL_S)

    def end(self, grace_s: float) -> None:
        """Ask all that still run to end; kill those that have not after `grace_s`."""
        self._signal(signal.SIGTERM)
        self.wait_s(grace_s)
        self._kill()

    def show(self, index: int) -> None:
        """Print the last lines of a worker's standard error; the first one's have been seen."""
        self._errors[index].seek(0)
        for line in self._errors[index].read().decode(errors="replace").splitlines()[-_LINES_SHOWN:]:
            _say(f"worker {index}: {line}")

    def _signal(self, number: int) -> None:
        for process in self._processes:
            process.send_signal(number)

    def wait_s(self, seconds: float) -> None:
        """Wait so long, or until all have ended."""
        until = time.monotonic() + seconds
        while None in self.codes() and time.monotonic() < until:
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Kill all that still run, and forget what they wrote."""
        self._kill()
        for errors in self._errors:
            errors.close()

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()


def _die_with(parent: int) -> None:
    """In a new process: ask Linux to kill it when `parent` dies, in whatever way."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we could ask
        os._exit(LOST_WORKER)


def _free_hosts(count: int) -> tuple[str, ...]:
    """Loopback addresses with free ports.

    They are below the ports that Linux gives to outgoing connections, so none is taken before its worker listens.
    """
    ports: list[int] = []
    for port in random.sample(range(20000, 30000), 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return tuple(f"127.0.0.1:{port}" for port in ports)
    raise InputError(f"of the ports 20000 to 29999 there are not {count} free; start fewer workers")
