"""Files on a file system, or on gs:// through `calopipe.gcs`: list, hash, read and replace them."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from calopipe import mirror
from calopipe.errors import InputError

if TYPE_CHECKING:
    from calopipe.gcs import GcsPath

Location: TypeAlias = "Path | GcsPath"
Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = 8  # for small reads, which wait for a network, not for a processor; Google's client keeps 10 connections
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|gs:", re.IGNORECASE)
_TICK_SECONDS = 2.0  # the coarsest clock of file systems in use
_ORPHAN_SECONDS = 3600.0  # a file that is being written is touched more often than this


def location(text: str) -> Location:
    """The path or gs:// address that `text` names; InputError for any other address."""
    if not text:
        raise InputError("an empty path was given; is a variable not set?")
    if text.startswith("gs:"):
        from calopipe.gcs import GcsPath  # noqa: PLC0415  takes a second, which local files do not need

        return GcsPath.parse(text)
    if _SCHEME.match(text):
        raise InputError(f"{text}: neither a path nor a gs:// address; bring the files to one of these")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InputError(f"{text}: there is no such user here; give the whole path") from None


def expand(patterns: Sequence[str]) -> list[Location]:
    """The files that `patterns` (paths or globs) name, sorted, each once. InputError: a pattern names no file."""
    locations: dict[str, Location] = {}
    for pattern in patterns:
        files = _expand_local(pattern) if isinstance(location(pattern), Path) else _expand_gcs(pattern)
        locations |= {str(file): file for file in files}
    if not locations:
        raise InputError("no input files; give at least one path or pattern")
    return [locations[text] for text in sorted(locations)]


def _expand_local(pattern: str) -> list[Path]:
    literal = Path(pattern).expanduser()  # first, since names may hold brackets
    # Path.glob takes no absolute pattern
    globbed = [literal] if literal.exists() else glob.glob(str(literal), recursive=True)  # noqa: PTH207
    matches = [Path(match) for match in globbed]
    if broken := [path for path in matches if path.is_symlink() and not path.exists()]:
        raise InputError(f"{broken[0]}: a link to a file that is not there; fetch the file, or remove the link")
    files = [path for path in matches if path.is_file()]
    if not files:
        if any(path.is_dir() for path in matches):
            raise InputError(f"{pattern}: a folder, not a file; name its files, for example {pattern}/*.h5")
        hint = "the pattern matches no file" if glob.has_magic(pattern) else "no such file"
        raise InputError(f"{pattern}: {hint}; check the path (seen from {Path.cwd()})")
    return files


def _expand_gcs(pattern: str) -> list[GcsPath]:
    from calopipe import gcs  # noqa: PLC0415

    path = gcs.GcsPath.parse(pattern)
    if not glob.has_magic(path.key) or path.is_file():  # names may hold brackets
        return [path]
    bucket = gcs.GcsPath(path.bucket, "")
    files = [bucket / name for name in gcs.matching(bucket, path.key)]
    if not files:
        raise InputError(f"{pattern}: the pattern matches no object; check the address")
    return files


def listing(folder: Location) -> dict[str, int]:
    """Size in bytes of each file under `folder`, by its name relative to it; empty if there is no such folder."""
    if isinstance(folder, Path):
        sizes = {}
        for place, _, names in os.walk(folder):
            for path in (Path(place) / name for name in names):
                with suppress(FileNotFoundError):  # a file that another run is writing may be gone by now
                    sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
        return sizes
    from calopipe import gcs  # noqa: PLC0415

    return gcs.objects(folder)


def at_once(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results of `work` on each of `items`, in order, by threads: for work that waits for files."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(work, items))


def sha256_of_file(path: Location) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def stamp(path: Location) -> tuple[int, int]:
    """The stamp of a file: its size in bytes, and the time of its last change in ns (on gs://, its generation).

    A file that has changed has another stamp.
    """
    status = path.stat()
    return status.st_size, getattr(status, "generation", None) or status.st_mtime_ns


def require_unchanged(path: Location, stamp_before: tuple[int, int]) -> None:
    """Raise InputError if `path` is gone, or if its stamp is no longer `stamp_before`."""
    with suppress(FileNotFoundError):
        if stamp(path) == stamp_before:
            return
    raise InputError(f"{path}: changed while it was read; run again when nothing writes to it")


def settled(path: Location, stamp: tuple[int, int], since: float) -> bool:
    """Whether any change of `path` after the time `since` would change its `stamp`: file systems have coarse clocks."""
    return not isinstance(path, Path) or since - stamp[1] * 1e-9 > _TICK_SECONDS


def fetched(folder: Location, names: Iterable[str], to: Path) -> None:
    """Copy the files `names` of a gs:// `folder` into the local folder `to`."""
    from calopipe import gcs  # noqa: PLC0415

    gcs.download({folder / name: to / name for name in names})  # type: ignore[misc]


def discard(folder: Location) -> None:
    """Remove `folder` and all that is in it."""
    for name in sorted(listing(folder)):
        remove(folder / name)
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)


def remove(path: Location) -> None:
    """Remove the file `path`, if it is there."""
    path.unlink(missing_ok=True)
    if isinstance(path, Path):
        mirror.removed(path)


def sweep(folder: Location) -> None:
    """Remove the temporary files that killed writers left under `folder`."""
    if isinstance(folder, Path):
        for path in folder.rglob(f".*{mirror.PARTIAL}"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _ORPHAN_SECONDS:
                    path.unlink()


def require_file(path: Location, sha256: str) -> None:
    """Raise InputError unless `path` is the file that hashes to `sha256`."""
    if not path.is_file() or sha256_of_file(path) != sha256:
        raise InputError(f"{path}: missing, or not the file just made; does another run write there?")


def fingerprint(document: Any) -> str:
    """A hash of a JSON document that does not depend on the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def require_writable(folder: Location) -> None:
    """Make `folder` and write to it, so that a read-only output is noticed before any work is done."""
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    else:
        probe = folder / ".writable"
        write_json(probe, None)
        probe.unlink(missing_ok=True)


@contextmanager
def replacing(path: Location) -> Iterator[Path]:
    """A temporary file that atomically replaces `path` when the block ends without an error.

    Otherwise `path` stays as it was, and the temporary file is removed. The content reaches the disk before the name
    does, so a crash cannot leave a name without its content.
    """
    if not isinstance(path, Path):
        with tempfile.TemporaryDirectory(prefix="calopipe-") as scratch:
            local = Path(scratch) / path.name
            local.touch()
            yield local
            path.upload(local)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{mirror.PARTIAL}")
    try:
        temporary.touch(exist_ok=False)
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
        mirror.changed(path)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # the user knows the file by its own name
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Location, document: Any) -> None:
    """Write `document` to `path` atomically."""
    with replacing(path) as temporary:
        temporary.write_text(_json(document))


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, sort_keys=False, allow_nan=False) + "\n"


def create_json(path: Location, document: Any) -> bool:
    """Write `document` to `path` if nothing is there yet. Returns whether `document` is there now.

    If several processes try this at the same time, one succeeds: on gs:// by a precondition on the object's generation,
    in a file system because a name can be linked only once.
    """
    try:
        if not isinstance(path, Path):
            path.write(_json(document), generation=0)
            return True
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as scratch:
            complete = Path(scratch) / path.name
            write_json(complete, document)
            path.hardlink_to(complete)
    except FileExistsError:
        return bool(json.loads(path.read_text()) == document)  # ours, if the answer to a first try was lost
    return True


def put(file: Path, path: Location) -> None:
    """Atomically copy the local `file` to `path`."""
    with replacing(path) as temporary, file.open("rb") as source, temporary.open("wb") as target:
        shutil.copyfileobj(source, target)  # copyfile would name the source in the error of a full disk
