"""The dataset: shards and a manifest. The manifest is written last, and readers use only the shards that it lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from calopipe import storage
from calopipe.documents import Form, read_json, require_own
from calopipe.errors import InputError
from calopipe.events.contents import Header
from calopipe.events.splits import ALL, SPLITS, SplitRule
from calopipe.mirror import own_scratch
from calopipe.storage import Location
from preprocessing.field import FieldSettings
from preprocessing.flow.manifest import FlowManifest
from preprocessing.manifest import SCHEMA_VERSION, Manifest
from preprocessing.showers.manifest import ShowerManifest

RECEIPT = Form("calopipe.shards", SCHEMA_VERSION)
MANIFEST = "manifest.json"
TRAINING = "training.json"  # the file that is written first in the folder of a model
SHARDS = "shards"

_KINDS: dict[str, type[Manifest]] = {manifest.kind: manifest for manifest in (ShowerManifest, FlowManifest)}


def ranges(file: Header, settings: FieldSettings) -> list[tuple[int, int, str]]:
    """First event, end and name of each range of `file`. A range is at most `shard_events` events, or one chunk.

    The name follows from the content of the file and the settings. Receipts and shards have this name.
    """
    step = max(settings.shard_events // file.chunk_events, 1) * file.chunk_events
    name = storage.fingerprint([SCHEMA_VERSION, _identity(file, settings.rule), settings.to_json()])[:16]
    bounds = ((start, min(start + step, file.events)) for start in range(0, file.events, step))
    return [(start, stop, f"{name}-{start:08d}-{stop:08d}") for start, stop in bounds]


def fingerprint_of(files: Sequence[Header], settings: FieldSettings, *, copies: int = 0) -> str:
    """A hash that identifies a dataset: of its inputs' content, the settings, the schema and the number of `copies`."""
    identities = sorted(_identity(file, settings.rule) for file in files)
    return storage.fingerprint([SCHEMA_VERSION, identities, settings.to_json(), *([copies] if copies else [])])


def _identity(file: Header, rule: SplitRule) -> list[str]:
    """What an input file's shards depend on: its content, and its name if files are assigned to splits by name."""
    return [file.sha256, file.path.name if rule.by_file else ""]


@contextmanager
def at_hand(folder: Location, manifest: Manifest, splits: Sequence[str] = SPLITS) -> Iterator[Path]:
    """The dataset's folder or, if it is on gs://, a copy of its shards of `splits` that is removed at the end.

    InputError: these shards are not those of the manifest.
    """
    with nullcontext(folder) if isinstance(folder, Path) else own_scratch() as local:
        if local != folder:
            storage.fetched(folder, [shard.name for shard in manifest.shards if shard.split in splits], local)
        require_unaltered(folder, manifest, splits, local)
        yield local


def require_unaltered(
    folder: Location, manifest: Manifest, splits: Sequence[str] = SPLITS, copy: Location | None = None
) -> None:
    """Raise InputError unless the shards of `splits` in `folder` have the hashes in the manifest. If there is a `copy`,
    the shards are read from there.
    """
    shards = [shard for shard in manifest.shards if shard.split in splits]
    hashes = storage.at_once(lambda shard: storage.sha256_of_file((copy or folder) / shard.name), shards)
    for shard, sha256 in zip(shards, hashes, strict=True):
        if sha256 != shard.sha256:
            raise InputError(f"{folder / shard.name}: altered since it was written; delete it, and preprocess again")


def news(files: Sequence[Header], folder: Location) -> str:
    """A line on what has changed in the input `files` since the dataset in `folder` was made; empty without one."""
    try:
        before = {source.sha256: source.name for source in read_manifest(folder).inputs}
    except InputError:
        return ""
    now = {file.sha256: file.path.name for file in files}
    new, gone = ([name for sha256, name in a.items() if sha256 not in b] for a, b in ((now, before), (before, now)))
    counts = [
        f"{len(names)} {what} ({', '.join(names[:3])})" for what, names in (("new", new), ("gone", gone)) if names
    ]
    return f"since the last run: of {len(now)} input files {', '.join(counts) or 'none is new and none is gone'}"


def require_own_folder(folder: Location) -> None:
    """Raise InputError if a dataset in `folder` would replace another program's file, or if `folder` holds a model."""
    try:
        require_own(folder / MANIFEST, *_KINDS)
    except InputError:  # a damaged manifest is replaced if the folder has receipts of a dataset
        receipts = [name for name in storage.listing(folder / SHARDS) if name.endswith(".json")]
        if not receipts:
            raise
        require_own(folder / SHARDS / receipts[0], RECEIPT.kind)
    if (folder / TRAINING).is_file():
        raise InputError(f"{folder}: holds {TRAINING}, as a model's folder does; give another --output")


def require_dataset(folder: Location, fingerprint: str) -> None:
    """Raise InputError unless the dataset in `folder` is complete and has this fingerprint."""
    if read_manifest(folder).fingerprint != fingerprint:
        raise InputError(f"{folder}: holds another dataset than the one just made; does another run write there?")


def read_manifest(folder: Location) -> Manifest:
    """The manifest of the dataset in `folder`. InputError: not valid, or a shard is missing or of a wrong size."""
    path = folder / MANIFEST
    document = read_json(path, *_KINDS, schema_version=SCHEMA_VERSION)
    try:
        manifest = _KINDS[document["kind"]].from_json(document)
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: not a whole manifest ({error!r}); preprocess again") from None
    dropped = sum(manifest.events["dropped"].values())
    if manifest.events["written"] != manifest.count(ALL) or manifest.events["read"] != manifest.count(ALL) + dropped:
        raise InputError(f"{path}: its counts of events do not add up; preprocess again")
    sizes = storage.listing(folder / SHARDS)
    for receipt in sorted({shard.receipt for shard in manifest.shards}):
        if receipt.removeprefix(f"{SHARDS}/") not in sizes:
            raise InputError(f"{folder / receipt}: missing, it says what the shards hold; preprocess again")
    for shard in manifest.shards:
        size = sizes.get(shard.name.removeprefix(f"{SHARDS}/"))
        if size != shard.bytes:
            state = "missing" if size is None else f"{size} bytes long"
            raise InputError(
                f"{folder / shard.name}: {state}, the manifest expects {shard.bytes} bytes; preprocess again"
            )
    return manifest
