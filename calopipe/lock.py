"""One run at a time in a folder: a lock that ends with the process that holds it, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from calopipe.errors import InputError

_FILE = "logs/.lock"


@contextmanager
def alone(output: Path) -> Iterator[None]:
    """Keep other runs out of `output` until the block ends. InputError: one is there."""
    path = output / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise InputError(
                f"{output}: another run writes there, {lock.read().strip()}; wait for its end, or give another --output"
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} of {os.uname().nodename}\n")
        lock.flush()
        yield


def writer(output: Path) -> str:
    """The process that runs in `output` now; empty without one."""
    path = output / _FILE
    if not path.is_file():
        return ""
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # ends as the file is closed
        except BlockingIOError:
            return lock.read().strip()
    return ""
