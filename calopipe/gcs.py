"""Objects of Google Cloud Storage as paths, with the methods of `pathlib.Path` that the stages use, and transfers.

Only `calopipe.storage`, `calopipe.mirror` and `calopipe.lock` use this module. Credentials are those of the
environment (Application Default Credentials); STORAGE_EMULATOR_HOST names an emulator instead.
"""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import google.api_core.exceptions as api_errors
import google.auth.exceptions as auth_errors
import requests
from google.cloud import storage
from google.cloud.storage import transfer_manager
from google.cloud.storage.exceptions import DataCorruption
from google.cloud.storage.retry import DEFAULT_RETRY

from calopipe.errors import InputError

SCHEME = "gs://"

_RETRY_SECONDS = 120.0  # how long a failed request is repeated, with growing pauses
_UPLOAD_CHUNK = 8 << 20  # bytes; an upload whose connection is cut resumes at a multiple of it
_READ_BYTES = 4 << 20  # bytes of one request of a reader; HDF5 asks for fewer bytes, in several places
_TRANSFERS = 8  # downloads at the same time
# Types of content, by the end of the name, that let a browser show a file instead of storing it.
_SHOWN = {
    ".html": "text/html; charset=utf-8", ".json": "application/json", ".jsonl": "text/plain; charset=utf-8",
    ".log": "text/plain; charset=utf-8", ".png": "image/png",
}  # fmt: skip
_WILD = re.compile(r"[*?\[]")
# Without this, a thread of the client asks for the bucket's metadata, only for its traces. If the request fails, the
# thread draws pauses from Python's `random` while a training draws its first weights from it.
os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")


@dataclass(frozen=True)
class GcsPath:
    """The object `key` of `bucket`, or the folder of objects whose names begin with it."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, text: str) -> GcsPath:
        bucket, _, key = text.removeprefix(SCHEME).partition("/")
        if not bucket or not text.startswith(SCHEME):
            raise InputError(f"{text}: expected {SCHEME}BUCKET/NAME")
        return cls(bucket, key.strip("/"))

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}".rstrip("/")

    def __truediv__(self, name: str) -> GcsPath:
        return GcsPath(self.bucket, f"{self.key}/{name}".lstrip("/"))

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def _kind(self) -> str:
        return _SHOWN.get(Path(self.name).suffix, "application/octet-stream")

    @property
    def parent(self) -> GcsPath:
        return GcsPath(self.bucket, self.key.rpartition("/")[0])

    def absolute(self) -> GcsPath:
        return self

    def is_file(self) -> bool:
        with _store_errors(self):
            return bool(_blob(self).exists(retry=_retry()))

    def stat(self) -> SimpleNamespace:
        """`st_size` in bytes, `st_mtime` in s, and `generation`, which every change replaces. FileNotFoundError."""
        with _store_errors(self):
            blob = _blob(self)
            blob.reload(retry=_retry())
        return SimpleNamespace(st_size=blob.size, generation=blob.generation, st_mtime=blob.updated.timestamp())

    def read_text(self) -> str:
        with _store_errors(self):
            return str(_blob(self).download_as_text(retry=_retry()))

    @contextmanager
    def open(self, mode: Literal["rb"]) -> Iterator[io.BufferedReader[Any]]:  # noqa: ARG002  as of `pathlib.Path`
        """A reader of the object as it is now. FileNotFoundError at its end: the object was replaced meanwhile."""
        source = _Reader(self)
        with io.BufferedReader(source, _READ_BYTES) as reader:
            try:
                yield reader
            finally:
                error, source.error = source.error, None
                if error is not None:
                    try:
                        raise error
                    finally:
                        del error  # the error would keep the reader alive, which crashes HDF5

    def unlink(self, *, missing_ok: bool = False, generation: int | None = None) -> None:
        """Remove the object, or this `generation` of it. FileExistsError: another generation is there."""
        with _store_errors(self):
            try:
                _blob(self).delete(retry=_retry(), if_generation_match=generation)
            except api_errors.NotFound:
                if not missing_ok:
                    raise

    def upload(self, file: Path) -> None:
        """Atomically put the content of `file` here."""
        with _store_errors(self, missing_ok=True):
            blob = _blob(self)
            blob.chunk_size = _UPLOAD_CHUNK
            blob.upload_from_filename(str(file), content_type=self._kind, retry=_retry())

    def write(self, text: str, *, generation: int | None = None, once: bool = False) -> int:
        """Atomically put `text` here, in place of this `generation`: 0 if nothing may be there. Returns the new one.

        FileExistsError: another generation is there. It may be this process's own, if the answer to a first try was
        lost. If several processes write at the same time, one succeeds. With `once`, a failed request is not repeated,
        and no number is drawn from Python's `random`, so other threads can rely on its sequence. Otherwise the client
        draws a boundary for each upload of known size, and a pause for each request that it may repeat.
        """
        with _store_errors(self, missing_ok=True):
            blob = _blob(self)
            content = text.encode()
            how = {"retry": None} if once else {"size": len(content), "retry": _retry()}
            blob.upload_from_file(io.BytesIO(content), content_type=self._kind, if_generation_match=generation, **how)
            return int(blob.generation)


def objects(folder: GcsPath, begin: str = "") -> dict[str, int]:
    """Bytes of each object under `folder` whose name begins with `begin`, by name relative to `folder`, sorted."""
    prefix = f"{folder.key}/" if folder.key else ""
    with _store_errors(folder, missing_ok=True):
        blobs = _client_of(os.getpid()).list_blobs(
            folder.bucket, prefix=prefix + begin, fields="items(name,size),nextPageToken", retry=_retry()
        )
        # consoles and mounted buckets mark folders by empty objects whose names end with a slash
        return {blob.name.removeprefix(prefix): blob.size for blob in blobs if not blob.name.endswith("/")}


def matching(folder: GcsPath, pattern: str) -> list[str]:
    """The names, relative to `folder`, of its objects that match `pattern`: only `**` matches a slash."""
    begin = _WILD.split(pattern)[0]
    return [name for name in objects(folder, begin) if _matches(name.split("/"), pattern.split("/"))]


def _matches(name: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "**":
        return any(_matches(name[passed:], pattern[1:]) for passed in range(len(name) + 1))
    return bool(name) and fnmatch.fnmatchcase(name[0], pattern[0]) and _matches(name[1:], pattern[1:])


def download(files: Mapping[GcsPath, Path]) -> None:
    """Download objects of one bucket to local files, several at a time. Missing folders are made."""
    if not files:
        return
    for file in files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
    first = next(iter(files))
    with _store_errors(first):
        pairs = [(_blob(path), str(file)) for path, file in files.items()]
        transfer_manager.download_many(
            pairs, download_kwargs={"retry": _retry()}, worker_type=transfer_manager.THREAD, max_workers=_TRANSFERS,
            raise_exception=True,
        )  # fmt: skip


class _Reader(io.RawIOBase):
    """Random access to one generation of an object: each read is a request.

    HDF5 crashes the process if a read raises, or returns less than HDF5 asked for. So a read that fails returns zeros
    and stores its error in `error`. `GcsPath.open` raises that error at its end.
    """

    error: Exception | None = None

    def __init__(self, path: GcsPath) -> None:
        status = path.stat()
        self._path, self._size, self._position = path, status.st_size, 0
        self._blob = _blob(path, status.generation)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        start, end = self._position, min(self._position + len(buffer), self._size)
        if start >= end:
            return 0
        try:
            with _store_errors(self._path):
                data = self._blob.download_as_bytes(start=start, end=end - 1, retry=_retry(), checksum=None)
        except (InputError, OSError) as error:
            self.error = error.with_traceback(None)
            data = bytes(end - start)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def _blob(path: GcsPath, generation: int | None = None) -> Any:
    return _client_of(os.getpid()).bucket(path.bucket).blob(path.key, generation=generation)


def _retry() -> Any:
    return DEFAULT_RETRY.with_timeout(_RETRY_SECONDS)


@lru_cache(maxsize=1)
def _client_of(process: int) -> storage.Client:  # noqa: ARG001  a process that forks must not share its connections
    # A project is needed only to make buckets.
    return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT", "none"))


@contextmanager
def _store_errors(path: GcsPath, *, missing_ok: bool = False) -> Iterator[None]:
    """Raise the store's errors as errors of `pathlib`, or as InputError.

    With `missing_ok` a missing object is no error: "not found" then means the bucket.
    """
    try:
        yield
    except api_errors.NotFound:
        if missing_ok:
            raise InputError(f"{path}: there is no bucket {path.bucket}; check the address, or create it") from None
        raise FileNotFoundError(errno.ENOENT, "no such object", str(path)) from None
    except api_errors.PreconditionFailed:
        raise FileExistsError(errno.EEXIST, "another generation is there", str(path)) from None
    except (api_errors.Unauthorized, api_errors.Forbidden) as error:
        raise InputError(
            f"{path}: permission denied ({error.code}{_reason(error)}); give this account access to the bucket, or room"
        ) from None
    except auth_errors.GoogleAuthError as error:
        reason = str(error).partition(".")[0]
        raise InputError(
            f"{path}: no credentials for Google Cloud ({reason}); run 'gcloud auth application-default login', or on "
            "a cluster give the pod's service account access"
        ) from None
    except (api_errors.GoogleAPIError, DataCorruption, requests.RequestException, ConnectionError) as error:
        cause = getattr(error, "cause", None) or error
        reason = f"{type(cause).__name__}{_reason(cause) or f': {str(cause)[:200]}'}"
        raise InputError(
            f"{path}: the store cannot be reached or does not answer as it should, tried for {_RETRY_SECONDS:.0f} s at "
            f"most ({reason}); run again, finished work is kept"
        ) from None


def _reason(error: BaseException) -> str:
    """The store's own message about an error, after a colon; empty if there is none."""
    try:
        return f": {error.response.json()['error']['message']}"  # type: ignore[attr-defined]
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""
