"""A folder on gs:// that is worked on in a folder on disk, its mirror.

What was there is fetched first. What is then written by `calopipe.storage` goes to the bucket in the same order, from a
thread. So the bucket goes through the states of the folder on disk, a little later: a process that is killed leaves it
as if it had been killed on a disk a moment before. Code that works in a folder on disk need not know of it.
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
from queue import Queue
from typing import TYPE_CHECKING

from calopipe.errors import InputError

if TYPE_CHECKING:
    from calopipe.gcs import GcsPath

logger = logging.getLogger(__name__)

PARTIAL = ".partial"  # ends the name of a file that is being written

_WAITING = 16  # changes at most, so that what waits for the bucket is bounded on disk
_LISTINGS = 3  # tries to fetch a folder in which another process removes files
_KIND = "run-"  # of folders among the temporary files


def _own_temporary() -> Path:
    """A folder among the temporary files of this host that this user's processes, and no others, use."""
    private = Path(tempfile.gettempdir()) / f"calopipe-{os.getuid()}"
    private.mkdir(mode=0o700, exist_ok=True)
    if private.lstat().st_uid != os.getuid():
        raise InputError(f"{private}: belongs to another user; remove it, or set TMPDIR to a folder of your own")
    return private


@contextmanager
def mirrored(place: Path | GcsPath, *names: str, writes: bool = True) -> Iterator[Path]:
    """The folder `place` on disk: itself, or a mirror of it in TMPDIR that is removed at the end.

    A mirror begins with the files whose names, relative to the folder, match `names`: no wildcard but `**` passes a
    slash. Where the block `writes`, all its changes are in the bucket when it ends, also by an error. InputError,
    before any work: there is no such bucket, or it may not be used.
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
                mirror.end(writes=writes)
            except (InputError, OSError) as lost:
                if lost is not error:
                    logger.warning("not all that was done is in the bucket: %s", lost)
            if isinstance(error, InputError):
                raise type(error)(told(str(error))) from None
            raise
        else:
            mirror.end(writes=writes)
        finally:
            del _mirrors[mirror.folder]


@contextmanager
def mirrored_file(file: Path | GcsPath, *, writes: bool = True) -> Iterator[Path]:
    """The path of `file`, or of a folder, on disk; its parts, which lie beside it, belong to it."""
    if isinstance(file, Path):
        yield file
        return
    with mirrored(file.parent, file.name, f"{file.name}/**", f".{file.name}.parts/*", writes=writes) as folder:
        yield folder / file.name


def changed(path: Path, *, grows: bool = False) -> None:
    """Let the bucket follow: the file `path` has been written, if it is in a mirror. What failed earlier is raised.

    A file that `grows` is written to in its place, and not replaced.
    """
    if mirror := _mirror_of(path):
        mirror.put(path, grows=grows)


def removed(path: Path) -> None:
    """Let the bucket follow: the file `path` has been removed, if it was in a mirror. What failed earlier is raised."""
    if mirror := _mirror_of(path):
        mirror.remove(path)


def flush(path: Path) -> None:
    """Return when all that has changed in the mirror that holds `path` is in the bucket."""
    if mirror := _mirror_of(path):
        mirror.flush()


def refresh(path: Path) -> None:
    """Fetch again what the mirror that holds `path` began with: what other processes have written is there then."""
    if mirror := _mirror_of(path):
        mirror.refresh()


def address(path: Path) -> str:
    """Where `path` is for other processes: in the bucket if it is in a mirror."""
    mirror = _mirror_of(path)
    return str(mirror.place / path.relative_to(mirror.folder).as_posix()).removesuffix("/.") if mirror else str(path)


def told(text: str) -> str:
    """`text` with addresses in place of the paths of mirrors, which mean nothing to a user."""
    for folder, mirror in list(_mirrors.items()):
        text = text.replace(str(folder), str(mirror.place))
    return text


class _Mirror:
    """The files of `place` whose names match, in a folder of `scratch`, and the thread that passes changes on."""

    def __init__(self, place: GcsPath, scratch: Path, names: tuple[str, ...]) -> None:
        self.place, self._names = place, names
        self.folder, self._links = scratch / "files" / (place.name or place.bucket), scratch / "changes"
        for folder in (self.folder, self._links):
            folder.mkdir(parents=True)
        self._known: dict[str, tuple[int, int]] = {}  # size and time of the files as the bucket has them, or will
        self._fetched = set[str]()
        self._changes: Queue[tuple[str, Path | None] | None] = Queue(_WAITING)
        self._failure: Exception | None = None
        self._count, self._turn = 0, threading.Lock()
        self._thread: threading.Thread | None = None

    def refresh(self) -> None:
        from calopipe import gcs  # noqa: PLC0415  takes a second, which local files do not need

        for attempt in range(_LISTINGS):
            there = {name for pattern in self._names for name in gcs.matching(self.place, pattern)}
            try:
                gcs.download({self.place / name: self.folder / name for name in there})
                break
            except FileNotFoundError:  # removed since it was listed
                if attempt == _LISTINGS - 1:
                    raise
        for name in self._fetched - there:
            (self.folder / name).unlink(missing_ok=True)
            self._known.pop(name, None)
        self._known |= {name: _state(self.folder / name) for name in there}
        self._fetched = there

    def put(self, path: Path, *, grows: bool = False) -> None:
        with self._turn:
            self._count += 1
            link = self._links / str(self._count)
            self._known[self._name(path)] = _state(path)
            if grows:
                shutil.copyfile(path, link)
            else:
                link.hardlink_to(path)
            self._pass_on(self._name(path), link)

    def remove(self, path: Path) -> None:
        with self._turn:
            if self._known.pop(self._name(path), None):
                self._pass_on(self._name(path), None)

    def flush(self) -> None:
        self._changes.join()
        self._raise()

    def end(self, *, writes: bool) -> None:
        """Pass on what `changed` was not told of, in the order of its change, and wait for the last of all.

        Only what `removed` was told of is removed: what else is gone may have been cleaned away from the disk.
        """
        try:
            if writes:
                now = [path for path in self.folder.rglob("*") if path.is_file() and not path.name.endswith(PARTIAL)]
                new = [path for path in now if self._known.get(self._name(path)) != _state(path)]
                for path in sorted(new, key=lambda path: path.stat().st_mtime_ns):
                    self.put(path)
                self.flush()
        finally:
            if self._thread:
                self._changes.put(None)
                self._thread.join()

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def _pass_on(self, name: str, link: Path | None) -> None:
        self._raise()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
            self._thread.start()
        self._changes.put((name, link))

    def _work(self) -> None:
        while (change := self._changes.get()) is not None:
            name, link = change
            try:
                if self._failure is not None:
                    pass  # what comes after it may name it
                elif link is None:
                    (self.place / name).unlink(missing_ok=True)
                else:
                    (self.place / name).upload(link)
            except Exception as error:
                self._failure = error
            finally:
                if link:
                    link.unlink()
                self._changes.task_done()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure


_mirrors: dict[Path, _Mirror] = {}


def _mirror_of(path: Path) -> _Mirror | None:
    return next((_mirrors[folder] for folder in (path, *path.parents) if folder in _mirrors), None)


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@contextmanager
def own_scratch() -> Iterator[Path]:
    """A temporary folder of this process; those of processes that were killed are removed."""
    private = _own_temporary()
    with ExitStack() as stack:
        with (private / "run.turn").open("a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            for other in private.glob(f"{_KIND}*"):
                with suppress(OSError), (other / "lock").open() as lock:  # held as long as its process lives
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(other, ignore_errors=True)
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=private, prefix=_KIND)))
            fcntl.flock(stack.enter_context((scratch / "lock").open("w")), fcntl.LOCK_EX)
        yield scratch
