"""One run at a time in a folder: by a lock on a disk, by a lease on a real store; and file systems without locks."""

from __future__ import annotations

import errno
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.api_core.exceptions import PreconditionFailed
from google.cloud.storage import Blob
from servers import Proxy

from calopipe import lock, storage
from calopipe.errors import InputError
from calopipe.gcs import GcsPath
from calopipe.lock import alone, writer
from components.step import working

RUN = GcsPath("runs", "a/run")
LEASE = RUN / "logs/.lock"
OTHER = "process 7 of another-host\nits token\n"


@pytest.fixture
def clock(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A store with another process's lease, and a clock that only moves by `sleep`."""
    played = SimpleNamespace(now=0.0, time=time.time)

    def sleep(seconds: float) -> None:
        played.now += seconds
        assert played.now < 10 * lock._LEASED_S, "a lease that nobody renews is never taken over"

    played.monotonic, played.sleep = lambda: played.now, sleep
    LEASE.write(OTHER)
    monkeypatch.setattr(lock, "time", played)
    return played


def test_a_lease_that_goes_away_as_it_is_taken_over_is_free(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease's owner was suspended, and ends at this moment."""
    write, taken = GcsPath.write, []

    def late(path: GcsPath, text: str, *, generation: int, **how: Any) -> int:
        if generation:
            taken.append(clock.now)
            assert len(taken) == 1  # else for ever
            path.unlink()
        return write(path, text, generation=generation, **how)

    monkeypatch.setattr(GcsPath, "write", late)
    with alone(RUN):
        assert writer(RUN) == f"process {os.getpid()} of {os.uname().nodename}"
    assert taken[0] > lock._LEASED_S


def test_a_lease_holds_from_when_it_is_seen(clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the first request is repeated for longer than a lease holds, that time does not count: its owner renews it."""
    write, renewed = GcsPath.write, []

    def slow(path: GcsPath, text: str, **how: Any) -> int:
        if not clock.now:
            clock.now += 4 * lock._LEASED_S
        elif not renewed and clock.now > 4 * lock._LEASED_S + lock._RENEWED_S:
            renewed.append(write(path, OTHER))
        return write(path, text, **how)

    monkeypatch.setattr(GcsPath, "write", slow)
    with pytest.raises(InputError, match="another run writes there, process 7 of another-host"), alone(RUN):
        pytest.fail("both run")
    assert renewed


@pytest.mark.usefixtures("clock")
def test_the_end_of_a_run_leaves_a_lease_that_another_has_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    delete = Blob.delete

    def heeding(blob: Blob, **how: Any) -> None:  # the generation, as Google's store does and this one does not
        if how.get("if_generation_match") not in {None, LEASE.stat().generation}:
            raise PreconditionFailed("another generation")
        delete(blob, **how)

    monkeypatch.setattr(Blob, "delete", heeding)
    with alone(RUN):
        LEASE.write(OTHER)
    assert LEASE.read_text() == OTHER


@pytest.mark.parametrize(("late", "who"), [(29, "process 7 of another-host"), (31, "")])
def test_a_run_is_known_until_its_lease_ends(clock: SimpleNamespace, late: int, who: str) -> None:
    written = LEASE.stat().st_mtime
    clock.time = lambda: written + late
    assert writer(RUN) == who


def test_a_run_on_disk_is_known_while_it_runs_and_leaves_no_lock(tmp_path: Path) -> None:
    here = f"process {os.getpid()} of {os.uname().nodename}"
    assert writer(tmp_path) == ""
    with alone(tmp_path), alone(tmp_path, "logs/.train.lock"):
        assert writer(tmp_path) == here
        for file in ("logs/.lock", "logs/.train.lock"):
            with pytest.raises(InputError, match=f"another run writes there, {here};"), alone(tmp_path, file):
                pytest.fail("both run")
        assert writer(tmp_path) == here
    with alone(tmp_path, "logs/.train.lock"):  # of a step whose run was killed
        assert writer(tmp_path) == here
    assert writer(tmp_path) == ""
    assert list((tmp_path / "logs").iterdir()) == []
    (tmp_path / "logs/.lock").write_text("process 7 of another-host, which was killed\n")
    assert writer(tmp_path) == ""
    with alone(tmp_path):
        assert (tmp_path / "logs/.lock").read_text() == f"{here}\n"


def test_a_lease_is_renewed_without_a_number_of_pythons_random(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile a training may draw its first weights from these numbers."""
    renewed, write = threading.Semaphore(0), GcsPath.write

    def renew(lease: GcsPath, text: str, **how: Any) -> int:
        generation = write(lease, text, **how)
        renewed.release()
        return generation

    monkeypatch.setattr(lock, "_RENEWED_S", 0.05)
    with alone(RUN):
        monkeypatch.setattr(GcsPath, "write", renew)
        first, numbers = LEASE.stat().generation, random.getstate()
        for _ in range(3):
            assert renewed.acquire(timeout=60)
        assert random.getstate() == numbers
        assert LEASE.stat().generation != first


@pytest.fixture(params=["disk", "bucket"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> storage.Location:
    """The output of a run."""
    if request.param == "disk":
        return tmp_path / "run"
    request.getfixturevalue("proxy")
    return RUN


def test_of_runs_that_start_together_one_runs(output: storage.Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_RENEWED_S", 0.1)
    monkeypatch.setattr(lock, "_LOOK_S", 0.05)

    def run(start: threading.Barrier, refused: threading.Event) -> str:
        start.wait()
        try:
            with alone(output):
                assert refused.wait(60), "both run"
                return "runs"
        except InputError as error:
            refused.set()
            return str(error)

    with ThreadPoolExecutor(2) as threads:
        for _ in range(8):
            given = threading.Barrier(2), threading.Event()
            told = [run.result() for run in [threads.submit(run, *given) for _ in range(2)]]
            (other,) = (line for line in told if line != "runs")
            assert re.search(f"^{output}: another run writes there, (process|one that has just begun)", other)
    assert not storage.listing(output)


_HOLDER = """
import sys
from calopipe import lock, storage
lock._RENEWED_S = 0.1
with lock.alone(storage.location(sys.argv[1])):
    print("holds", flush=True)
    input()
"""


def _holder(output: storage.Location) -> subprocess.Popen[str]:
    """A process that keeps others out of `output`."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", _HOLDER, str(output)], **pipes, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    return process


def test_the_place_of_a_killed_run_is_taken_over(output: storage.Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_LEASED_S", 1.0)
    with _holder(output) as process:
        with pytest.raises(InputError, match=f"another run writes there, process {process.pid} of"), alone(output):
            pytest.fail("both run")
        process.kill()
    time.sleep(0.5)  # so that what it had sent has arrived: a lease that is renewed is another run's
    began = time.monotonic()
    with alone(output):
        assert (1.0 if output == RUN else 0.0) < time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("take", "who"),
    [(lambda: LEASE.write(OTHER), "process 7 of another-host"), (LEASE.unlink, "another process, which has ended")],
)
def test_a_run_whose_lease_was_taken_ends_at_once(proxy: Proxy, take: Callable[[], object], who: str) -> None:
    """For example a run that was suspended. It ends with one line."""
    with _holder(RUN) as process:
        take()
        assert process.wait(60) == 2
        errors = process.communicate()[1]
    assert errors == f"error: {RUN}: another run writes there, {who}; wait for its end, or give another --output\n"


def test_a_step_is_refused_while_another_run_does_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with working(str(tmp_path), "train"):
        with working(str(tmp_path), "generate0-2"), working(str(tmp_path), "generate1-2"):
            pass  # shares are made at once
        with pytest.raises(SystemExit), working(str(tmp_path), "train"):
            pytest.fail("both train")
    here = f"process {os.getpid()} of {os.uname().nodename}"
    line = f"error: {tmp_path}: another run writes there, {here}; wait for its end, or give another --output\n"
    assert capsys.readouterr().err == line
    assert not storage.listing(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP])
def test_where_a_file_system_knows_no_locks_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    with alone(tmp_path):
        assert "knows no locks; see that no other run writes there" in caplog.text
        assert not writer(tmp_path)
    number = errno.EIO
    with pytest.raises(OSError, match="No locks available"), alone(tmp_path):
        pytest.fail("it runs")
    (tmp_path / "logs/.lock").touch()
    with pytest.raises(OSError, match="No locks available"):
        writer(tmp_path)
