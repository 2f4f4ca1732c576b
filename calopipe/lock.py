"""One run at a time in a folder: a lock that ends with the process that holds it, however the process ends.

In a file system the kernel frees the lock. On gs:// the lock is a lease: an object that its owner writes anew every few
seconds. Another process takes over a lease that nobody has written for longer.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from calopipe.errors import BAD_INPUT_EXIT_CODE, InputError

if TYPE_CHECKING:
    from calopipe.gcs import GcsPath

logger = logging.getLogger(__name__)

_FILE = "logs/.lock"
_RENEWED_S, _LEASED_S = 10.0, 30.0  # how often a lease is written, and how long it holds after that
_UNKNOWN = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}  # errors of network file systems without locks
_LOOK_S = 1.0  # between two looks at another process's lease


class TakenError(InputError):
    """Another process writes to the output."""


def alone(output: Path | GcsPath, file: str = _FILE) -> AbstractContextManager[None]:
    """Keep other runs out of `output` until the block ends. TakenError: another run is there.

    If the owner of a lease on gs:// was killed, this waits 30 s until the lease expires.
    """
    return _locked(output, output / file) if isinstance(output, Path) else _leased(output, output / file)


def writer(output: Path | GcsPath) -> str:
    """The process that runs in `output` now; empty if there is none, or if the file system has no locks.

    It is the run, or a step on this machine that goes on although its run was killed.
    """
    return _writer(output / _FILE) or _step(output)


def require_no_step(output: Path | GcsPath) -> None:
    """Raise TakenError if a step works in the folder `output`. Its run was killed, if the caller holds the run's lock.

    A step that has not taken its lock yet is not found, nor is one on gs://. Their own locks keep two steps apart.
    """
    if holder := _step(output):
        raise _refusal(output, holder)


def _step(output: Path | GcsPath) -> str:
    steps = sorted((output / _FILE).parent.glob(".*.lock")) if isinstance(output, Path) else []
    return next(filter(None, map(_writer, steps)), "")


def _writer(path: Path | GcsPath) -> str:
    with suppress(FileNotFoundError):
        if not isinstance(path, Path):
            written, holder = path.stat().st_mtime, _holder(path.read_text())
            return holder if time.time() - written < _LEASED_S else ""
        with path.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # the lock ends when the file is closed
            except BlockingIOError:
                return _holder(lock.read())
            except OSError as error:
                if error.errno not in _UNKNOWN:
                    raise
    return ""


@contextmanager
def _locked(output: Path, path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                raise _refusal(output, lock.read()) from None
            except OSError as error:
                if error.errno not in _UNKNOWN:
                    raise
                logger.warning("%s: this file system knows no locks; see that no other run writes there", output)
            if not _is_at(lock, path):  # its owner removed the file after it was opened here
                continue
            lock.truncate(0)
            lock.write(_this_process())
            lock.flush()
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _leased(output: GcsPath, lease: GcsPath) -> Iterator[None]:
    text = f"{_this_process()}{uuid.uuid4().hex}\n"
    generation, ended = _take(output, lease, text), threading.Event()

    def renew() -> None:
        nonlocal generation
        while not ended.wait(_RENEWED_S):
            with suppress(InputError):  # the store cannot be reached: the run will say so when it writes something
                generation = _renewed(output, lease, text, generation)

    thread = threading.Thread(target=renew, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(InputError, FileExistsError):  # the lease expires by itself
            lease.unlink(missing_ok=True, generation=generation)


def _renewed(output: GcsPath, lease: GcsPath, text: str, generation: int) -> int:
    """Write `lease` anew. Returns its new generation. If another process has taken it over, this process ends."""
    with suppress(FileExistsError):
        return lease.write(text, generation=generation, once=True)
    current, holder = _current(lease)
    if holder != text:  # if they are equal, the answer to a first try was lost
        print(f"error: {_refusal(output, holder or 'another process, which has ended')}", file=sys.stderr, flush=True)
        os._exit(BAD_INPUT_EXIT_CODE)  # at once: what this process writes from now on harms the other run
    return current


def _take(output: GcsPath, lease: GcsPath, text: str) -> int:
    """Take `lease`, with this `text`. Returns its generation. TakenError: another process renews it."""
    generation_seen, since = 0, 0.0
    while True:
        expired = generation_seen > 0 and time.monotonic() - since > _LEASED_S
        with suppress(FileExistsError):
            return lease.write(text, generation=generation_seen if expired else 0)
        current, holder = _current(lease)
        if holder == text:  # the answer to a first try was lost
            return current
        if generation_seen and current not in {0, generation_seen}:
            raise _refusal(output, holder)
        if current != generation_seen:  # seen for the first time, or just removed by its owner
            generation_seen, since = current, time.monotonic()
        time.sleep(_LOOK_S)


def _current(lease: GcsPath) -> tuple[int, str]:
    """The generation and the text of `lease`; 0 and no text if it is not there."""
    with suppress(FileNotFoundError):
        return int(lease.stat().generation), lease.read_text()
    return 0, ""


def _this_process() -> str:
    return f"process {os.getpid()} of {os.uname().nodename}\n"


def _holder(text: str) -> str:
    return text.partition("\n")[0]


def _refusal(output: Path | GcsPath, text: str) -> TakenError:
    holder = _holder(text) or "one that has just begun"
    return TakenError(f"{output}: another run writes there, {holder}; wait for its end, or give another --output")
