"""How every command reports an error that the user can correct: one line, exit code 2, no traceback."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

BAD_INPUT_EXIT_CODE = 2

# Errors of the operating system that are not caused by a defect of the program, and what to do about each.
_REFUSALS = {
    errno.ENOSPC: "the disk is full; free some space and run again, finished work is kept",
    errno.EDQUOT: "the disk quota is used up; free some space and run again, finished work is kept",
    errno.EIO: "the device cannot read or write it; check the disk, or copy the file again",
    errno.EROFS: "the file system is read-only; give an --output that can be written",
    errno.EACCES: "permission denied; give a path that this user may use",
    errno.EPERM: "operation not permitted; give a path that this user may use",
    errno.ENOTDIR: "a part of the path is a file, not a folder; give another path",
    errno.EISDIR: "this is a folder where a file was expected; give another path",
    errno.ENOENT: "no such file or folder; check the path",
    errno.EEXIST: "a file stands where a folder is needed; give another path",
    errno.ENOTSUP: "this file system cannot do that (a registry needs links); use another, or gs://",
    errno.ELOOP: "links lead back to themselves here; give another path",
    errno.ENAMETOOLONG: "the name is too long for this file system; give a shorter one",
}


class InputError(ValueError):
    """The user's input cannot be used. The message is one line: what, which value, where, what to do."""


def require_seed(seed: int) -> None:
    """Raise InputError unless both NumPy and TensorFlow accept `seed`."""
    if not 0 <= seed < 2**31:
        raise InputError(f"--seed is {seed}, expected 0 to {2**31 - 1}")


def require_least(what: str, value: int, least: int) -> None:
    """Raise InputError unless `value`, the value of the option or setting `what`, is at least `least`."""
    if value < least:
        raise InputError(f"{what} is {value}, expected at least {least}")


def describe(error: BaseException) -> str | None:
    """One line for the user about `error`, or None where it is a defect of the program."""
    if isinstance(error, InputError):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno in _REFUSALS:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{_REFUSALS[error.errno]}"
    if isinstance(error, MemoryError):
        return f"memory is used up{f' ({error})' if str(error) else ''}; ask for less at once, or use a larger machine"
    return None


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an error that the user can correct into one line on standard error and exit code 2.

    The line is also written as the container's termination message, where Kubernetes looks for the reason why a pod
    failed (`/dev/termination-log` unless TERMINATION_LOG names another file).
    """
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted; finished work is kept", file=sys.stderr)
        raise SystemExit(130) from None
    except (InputError, OSError, MemoryError) as error:
        line = describe(error)
        if line is None:
            raise
        print(f"error: {line}", file=sys.stderr, flush=True)
        termination_log = Path(os.environ.get("TERMINATION_LOG", "/dev/termination-log"))
        if termination_log.is_file():
            termination_log.write_text(line)
        raise SystemExit(BAD_INPUT_EXIT_CODE) from None


def run_command(command: Callable[[], None]) -> None:
    """Run the body of a command: errors as in `one_line_errors`, warnings one a line on standard error."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    with one_line_errors():
        try:
            command()
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of the output has ended, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python reports it at its end
            raise SystemExit(128 + signal.SIGPIPE) from None
