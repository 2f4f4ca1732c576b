"""A folder on gs:// that is worked on in a folder on disk, its mirror.

The files of the bucket are fetched first. A file that `calopipe.storage` then writes is in the bucket when the call
returns. So the bucket goes through the same states as the folder on disk, also if the process is killed. Code that
works in a folder on disk need not know of the mirror.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from calopipe.errors import InputError

if TYPE_CHECKING:
    from calopipe.gcs import GcsPath

logger = logging.getLogger(__name__)

PARTIAL = ".partial"  # ends the name of a file that is being written

_LISTINGS = 3  # tries to fetch a folder while another process removes files in it
_KIND = "run-"  # begins the names of this module's folders among the temporary files


def _own_temporary() -> Path:
    """A folder among the temporary files of this host that only this user's processes use."""
    private = Path(tempfile.gettempdir()) / f"calopipe-{os.getuid()}"
    private.mkdir(mode=0o700, exist_ok=True)
    if private.lstat().st_uid != os.getuid():
        raise InputError(f"{private}: belongs to another user; remove it, or set TMPDIR to a folder of your own")
    return private


@contextmanager
def mirrored(place: Path | GcsPath, *names: str, writes: bool = True) -> Iterator[Path]:
    """The folder `place` on disk: `place` itself, or a mirror of it in TMPDIR that is removed at the end.

    A mirror begins with the files whose names, relative to the folder, match `names`: only `**` matches a slash. If
    the block `writes`, all its changes are in the bucket when it ends, also by an error. InputError, before any work:
    there is no such bucket, or it may not be used.
    """
    if isinstance(place, Path):
        yield place
        return
    with own_scratch() as scratch:
        mirror = _Mirror(place, scratch, names)
        if writes:
            probe = mirror.place / ".writable"
            probe.write("")
            probe.unlink(missing_ok=True)
        mirror.refresh()
        _mirrors[mirror.folder] = mirror
        try:
            yield mirror.folder
        except BaseException as error:
            try:
                if writes:
                    mirror.end()
            except (InputError, OSError) as lost:
                if lost is not error:
                    logger.warning("not all that was done is in the bucket: %s", lost)
            if isinstance(error, InputError):
                raise type(error)(addressed(str(error))) from None
            raise
        else:
            if writes:
                mirror.end()
        finally:
            del _mirrors[mirror.folder]


@contextmanager
def mirrored_file(file: Path | GcsPath, *, writes: bool = True) -> Iterator[Path]:
    """The path on disk of `file`, which may be a folder. Its parts, in a folder beside it, are mirrored too."""
    if isinstance(file, Path):
        yield file
        return
    with mirrored(file.parent, file.name, f"{file.name}/**", f".{file.name}.parts/**", writes=writes) as folder:
        yield folder / file.name


def changed(path: Path) -> None:
    """Upload the file `path`, which has been written, if it is in a mirror."""
    if mirror := _mirror_of(path):
        mirror.put(path)


def removed(path: Path) -> None:
    """Remove the file `path`, which has been removed on disk, from the bucket too, if it was in a mirror."""
    if mirror := _mirror_of(path):
        mirror.remove(path)


def refresh(path: Path) -> None:
    """Fetch again the files that the mirror of `path` began with, as other processes may have written them since."""
    if mirror := _mirror_of(path):
        mirror.refresh()


def address(path: Path) -> str:
    """The address of `path` for other processes: in the bucket if `path` is in a mirror."""
    mirror = _mirror_of(path)
    return str(mirror.place / path.relative_to(mirror.folder).as_posix()).removesuffix("/.") if mirror else str(path)


def addressed(text: str) -> str:
    """`text` with addresses in place of the paths of mirrors, which mean nothing to a user."""
    for folder, mirror in list(_mirrors.items()):
        text = text.replace(str(folder), str(mirror.place))
    return text


class _Mirror:
    """The files of `place` whose names match, in a folder of `scratch`."""

    def __init__(self, place: GcsPath, scratch: Path, names: tuple[str, ...]) -> None:
        self.place, self._names = place, names
        self.folder = scratch / "files" / (place.name or place.bucket)
        self.folder.mkdir(parents=True)
        self._in_bucket: dict[str, tuple[int, int]] = {}  # size and time of the files that the bucket holds
        self._fetched = set[str]()
        self._turn = threading.Lock()
        self._failure: Exception | None = None

    def refresh(self) -> None:
        from calopipe import gcs  # noqa: PLC0415  takes a second, which local files do not need

        for attempt in range(_LISTINGS):
            listed = {name for pattern in self._names for name in gcs.matching(self.place, pattern)}
            try:
                gcs.download({self.place / name: self.folder / name for name in listed})
                break
            except FileNotFoundError:  # removed after it was listed
                if attempt == _LISTINGS - 1:
                    raise
        for name in self._fetched - listed:
            (self.folder / name).unlink(missing_ok=True)
            self._in_bucket.pop(name, None)
        self._in_bucket |= {name: _state(self.folder / name) for name in listed}
        self._fetched = listed

    def put(self, path: Path) -> None:
        name, state = self._name(path), _state(path)
        with self._turn_to_change():
            if self._in_bucket.get(name) != state:
                (self.place / name).upload(path)
                self._in_bucket[name] = state

    def remove(self, path: Path) -> None:
        name = self._name(path)
        with self._turn_to_change():
            if self._in_bucket.pop(name, None):
                (self.place / name).unlink(missing_ok=True)

    @contextmanager
    def _turn_to_change(self) -> Iterator[None]:
        """Let one thread change the bucket at a time, and none after a failure: a later file may name the lost one."""
        with self._turn:
            if self._failure is not None:
                raise self._failure
            try:
                yield
            except Exception as error:
                self._failure = error
                raise

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def end(self) -> None:
        """Upload the files that `changed` was not told of, in the order of their changes.

        No file is removed from the bucket: a file that is gone may have been cleaned away from the disk.
        """
        now = [path for path in self.folder.rglob("*") if path.is_file() and not path.name.endswith(PARTIAL)]
        for path in sorted(now, key=lambda path: path.stat().st_mtime_ns):
            self.put(path)


_mirrors: dict[Path, _Mirror] = {}


def _mirror_of(path: Path) -> _Mirror | None:
    return next((_mirrors[folder] for folder in (path, *path.parents) if folder in _mirrors), None)


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@contextmanager
def own_scratch() -> Iterator[Path]:
    """A temporary folder of this process. Folders of processes that were killed are removed first."""
    private = _own_temporary()
    with ExitStack() as stack:
        with (private / "run.turn").open("a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            for folder in private.glob(f"{_KIND}*"):
                with suppress(OSError), (folder / "lock").open() as lock:  # held as long as the folder's process lives
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=private, prefix=_KIND)))
            fcntl.flock(stack.enter_context((scratch / "lock").open("w")), fcntl.LOCK_EX)
        yield scratch
