"""HDF5 files, opened from a disk or a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import h5py

from calopipe.errors import InputError
from calopipe.events.tolerance import BadFileError
from calopipe.storage import Location


@contextmanager
def opened_file(path: Location, keep_bytes: int = 0) -> Iterator[h5py.File]:
    """The HDF5 file `path`, with room for so many bytes of decompressed chunks. InputError, BadFileError.

    A BadFileError of the block says what is wrong with the file, and is given its name here.
    """
    # slots are a prime, many more than there are chunks to keep, as HDF5's manual asks
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
            failure = InputError(f"{path}: cannot be read now ({reason}); is it being written, is the disk well?")
    failure.__context__ = None  # h5py's error would keep its file alive, which at the end of the process is fatal
    raise failure
