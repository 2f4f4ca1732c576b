"""Who takes over a lease and when, against a store that runs; and who is told of where there are no locks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.api_core.exceptions import PreconditionFailed
from google.cloud.storage import Blob
from servers import store

from calopipe import lock
from calopipe.errors import InputError
from calopipe.gcs import GcsPath
from calopipe.lock import alone, writer

RUN = GcsPath("runs", "a/run")
LEASE = RUN / "logs/.lock"
OTHER = "process 7 of another-host\nits token\n"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A store with the lease of another, and a clock that only sleep moves."""
    played = SimpleNamespace(now=0.0, time=time.time)

    def sleep(seconds: float) -> None:
        played.now += seconds
        assert played.now < 10 * lock._LEASED_S, "a lease that nobody renews is never taken over"

    played.monotonic, played.sleep = lambda: played.now, sleep
    with store("runs"):
        LEASE.write(OTHER)
        monkeypatch.setattr(lock, "time", played)
        yield played


def test_a_lease_that_goes_away_as_it_is_taken_over_is_free(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner was suspended, and ends in this moment."""
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
    """Not from before a first request that was repeated for longer than a lease: its owner renews it."""
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
    assert writer(tmp_path) == ""
    assert list((tmp_path / "logs").iterdir()) == []
    (tmp_path / "logs/.lock").write_text("process 7 of another-host, which was killed\n")
    assert writer(tmp_path) == ""
    with alone(tmp_path):
        assert (tmp_path / "logs/.lock").read_text() == f"{here}\n"
