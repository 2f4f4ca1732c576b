"""HDF5 files, opened from a disk or a store, and written as a whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import h5py

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.tolerance import BadFileError
from calopipe.storage import Location


@contextmanager
def opened_file(path: Location, keep_bytes: int = 0) -> Iterator[h5py.File]:
    """The HDF5 file `path`, with a cache of `keep_bytes` for decompressed chunks. InputError, BadFileError.

    If the block raises a BadFileError, the name of the file is added to its message here.
    """
    # the number of slots is a prime and much larger than the number of chunks to keep, as HDF5's manual asks
    room = {"rdcc_nbytes": keep_bytes, "rdcc_nslots": 524_287, "rdcc_w0": 1.0} if keep_bytes else {}
    try:
        with ExitStack() as stack:
            source = path if isinstance(path, Path) else stack.enter_context(path.open("rb"))
            yield stack.enter_context(h5py.File(source, "r", **room))
            return
    except FileNotFoundError:
        failure = InputError(f"{path}: no such file; check the path")
    except PermissionError:
        failure = InputError(f"{path}: permission denied; make the file readable for this user")
    except BadFileError as error:
        failure = BadFileError(f"{path}: {error}")
    except InputError as error:
        failure = error.with_traceback(None)
    except (OSError, RuntimeError) as error:  # what h5py raises for a file that is not whole
        reason = str(error).partition("(")[2].rstrip(")") or str(error)
        failure = BadFileError(
            f"{path}: not an HDF5 file, or an empty one; docs/formats.md says what is read"
            if "signature not found" in reason
            else f"{path}: compressed by a filter that HDF5 has not got here ({reason}); write it with gzip"
            if "plugin" in reason
            else f"{path}: not a whole HDF5 file ({reason}); copy or make it again"
        )
        if isinstance(error, OSError) and error.errno is not None:  # not the file's fault
            failure = InputError(f"{path}: cannot be read now ({reason}); wait until it is written, or check the disk")
    failure.__context__ = None  # h5py's error would keep its file alive, which at the end of the process is fatal
    raise failure


class Sink(io.FileIO):
    """A file that keeps its first error of writing: HDF5 crashes the process if such an error is raised inside it."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        while len(rest) and self.error is None:
            try:
                rest = rest[super().write(rest) :]
            except OSError as error:
                self.error = error
        return size

    def require_written(self) -> None:
        """Raise the error that was kept."""
        if self.error is not None:
            raise self.error


@contextmanager
def new_file(path: Location) -> Iterator[tuple[h5py.File, Sink]]:
    """A new HDF5 file, which takes the place of `path` once the block ends without an error."""
    with storage.replacing(path) as temporary, Sink(temporary, "w+") as sink:
        with h5py.File(sink, "w") as file:
            yield file, sink
        sink.require_written()  # also what HDF5 wrote while it closed the file
