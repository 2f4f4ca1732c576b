"""Where bytes live. The only module that lists, hashes and replaces files."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from preprocessing.errors import InputError


def expand(patterns: Sequence[str]) -> list[Path]:
    """The files that `patterns` (paths or globs) name, sorted, each once. A pattern that names none is an error."""
    found: set[Path] = set()
    for pattern in patterns:
        literal = Path(pattern).expanduser()  # first, for names that hold brackets
        # Path.glob takes no absolute pattern
        globbed = [literal] if literal.exists() else glob.glob(str(literal), recursive=True)  # noqa: PTH207
        matches = [Path(match) for match in globbed]
        files = {path for path in matches if path.is_file()}
        if not files:
            if matches:
                raise InputError(f"{pattern}: a folder, not a file; name its files, for example {pattern}/*.h5")
            hint = "the pattern matches no file" if glob.has_magic(pattern) else "no such file"
            raise InputError(f"{pattern}: {hint}; check the path (seen from {Path.cwd()})")
        found |= files
    if not found:
        raise InputError("no input files; give at least one path or pattern")
    return sorted(found)


def sha256_of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def stamp(path: Path) -> tuple[int, int]:
    """Size in bytes and time of the last change in ns: what tells a file that changes while it is read."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def require_file(path: Path, sha256: str) -> None:
    """Raise InputError unless `path` is the file that hashes to `sha256`."""
    if not path.is_file() or sha256_of_file(path) != sha256:
        raise InputError(f"{path}: missing, or not the file just made; does another run write there?")


def fingerprint(document: Any) -> str:
    """A hash of a JSON document that does not depend on the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def require_writable(folder: Path) -> None:
    """Make `folder` and write to it, so that a read-only output is found before any work is done."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place, whole and at once, when the block ends well.

    A block that fails leaves `path` as it was and removes the temporary file. The data reach the disk before the
    name does, so that a crash cannot leave a name without its content.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _umask() -> int:
    """The process's umask, which can be read only by setting it. `mkstemp` ignores it and makes files private."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def write_json(path: Path, document: Any) -> None:
    """Write `document` to `path` atomically."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(document, indent=1, sort_keys=False, allow_nan=False) + "\n")


def read_json(path: Path, *, kind: str, schema_version: int) -> dict[str, Any]:
    """Read a document of ours, checked for its kind and version."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; a {kind} was expected there") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a {kind}: not valid JSON ({error})") from None
    if not isinstance(document, dict) or document.get("kind") != kind:
        raise InputError(f"{path}: not a {kind}: its 'kind' is missing or another")
    if document.get("schema_version") != schema_version:
        raise InputError(
            f"{path}: {kind} of schema version {document.get('schema_version')}, this program reads "
            f"{schema_version}; make it again with this version"
        )
    return document
