"""The shards of a dataset on a local disk, checked against the manifest: once a host, not once a process."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.documents import Form
from calopipe.errors import InputError
from calopipe.events.splits import SPLITS
from calopipe.mirror import own_temporary
from calopipe.storage import Location
from preprocessing.dataset import require_unaltered
from preprocessing.manifest import Manifest, Shard

MEMORY = "checked.json"  # the hashes of shards as they were checked; not part of the dataset
_MEMORY_FORM = Form("calopipe.checked", 1)


@contextmanager
def at_hand(folder: Location, manifest: Manifest, splits: Sequence[str] = SPLITS) -> Iterator[Path]:
    """The dataset's folder, or, if it is not local, a copy of its shards of `splits`.

    All processes of a user on a host share the copy, and the last one that leaves the block removes it. Raises
    InputError unless these shards are those of the manifest. They are hashed by one process while the others wait. A
    shard that has not changed since it was hashed is not hashed again, by a later process either.
    """
    if isinstance(folder, Path):
        with _turn(folder):
            _check(folder, folder, manifest, splits)
        yield folder
        return
    copy = _own_place(folder, "")
    with _own_place(folder, ".users").open("a") as users:
        try:
            with _turn(folder):
                fcntl.flock(users, fcntl.LOCK_SH)  # never waits: it is asked for exclusively in a turn alone
                there = storage.listing(copy)
                missing = [shard for shard in _of(manifest, splits) if there.get(shard.name) != shard.bytes]
                storage.fetched(folder, [shard.name for shard in missing], copy)
                _check(folder, copy, manifest, splits)
            yield copy
        finally:
            with _turn(folder):
                with suppress(BlockingIOError):  # others still read it
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    storage.discard(copy)
                fcntl.flock(users, fcntl.LOCK_UN)


def _of(manifest: Manifest, splits: Sequence[str]) -> list[Shard]:
    return [shard for shard in manifest.shards if shard.split in splits]


def _own_place(folder: Location, suffix: str) -> Path:
    """A path among the temporary files of this host that this user's processes, and no others, have for `folder`."""
    return own_temporary() / f"{storage.fingerprint(str(folder.absolute()))[:16]}{suffix}"


@contextmanager
def _turn(folder: Location) -> Iterator[None]:
    """Wait until no other process of this user on this host is in this block for `folder`.

    The lock ends with the process that holds it, however that ends. Its file is empty, and stays.
    """
    with _own_place(folder, ".turn").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _check(folder: Location, copy: Path, manifest: Manifest, splits: Sequence[str]) -> None:
    """`require_unaltered`, except for shards that `copy` remembers as checked; remembers the others."""
    began = time.time()
    try:
        known = _MEMORY_FORM.read(copy / MEMORY)["shards"]
    except (storage.DocumentError, KeyError):
        known = {}
    now = {shard: _state(copy / shard.name, shard) for shard in _of(manifest, splits)}
    unknown = {shard: state for shard, state in now.items() if known.get(shard.name) != state}
    require_unaltered(folder, replace(manifest, shards=tuple(unknown)), splits, copy)
    added = {
        shard.name: state for shard, state in unknown.items() if storage.settled(copy, (state[0], state[1]), began)
    }
    if added:
        with suppress(InputError, OSError):  # only time is lost, for example where the dataset may only be read
            _MEMORY_FORM.write(copy / MEMORY, {"shards": known | added})


def _state(path: Path, shard: Shard) -> list[Any]:
    """What changes if the file is written, restored or replaced; and the hash that it should have."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, shard.sha256]
