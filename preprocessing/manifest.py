"""What the datasets of all fields are: shards, and a manifest that lists them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from calopipe.events.splits import ALL, SPLITS, Digests
from calopipe.events.tolerance import FLAWS

SCHEMA_VERSION = 3

# Why an event that was read was not written.
BELOW_CUT, BELOW_THRESHOLD, COPY, BAD_FILE = "below_cut", "below_threshold", "copy", "bad_file"
DROPPED = (BELOW_CUT, BELOW_THRESHOLD, COPY, *FLAWS[1:], BAD_FILE)


@dataclass(frozen=True)
class Source:
    """An input file, by its content."""

    name: str
    sha256: str
    events: int


@dataclass(frozen=True)
class BadFile:
    """A file that was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class BadEvent:
    """A corrupt event that was left out: the name of its file, its index there, and one of `events.tolerance.FLAWS`."""

    name: str
    event: int
    reason: str


@dataclass(frozen=True)
class Shard:
    """A TFRecord file of one split of one range of one input file. `name` is relative to the dataset's folder."""

    name: str
    split: str
    events: int
    bytes: int
    sha256: str

    @property
    def receipt(self) -> str:
        """Name of the JSON file that says what the shards of the range hold, relative to the dataset's folder."""
        return f"{self.name.removesuffix(f'-{self.split}.tfrecord')}.json"


@dataclass(frozen=True, kw_only=True)
class Content:
    """The content of a range of an input file: N events, of which K are to be written.

    All events: `digests` (N,). The events to be written: `events` (K,), their indices in the file; `encoded`, their
    records; `split_by` (K,), the digests that decide their splits; `hits` (K,), their numbers of hits (None in a flow).
    `emptied` are the indices of the events in which the threshold left no cell. `bad_events` are the index and the flaw
    of each corrupt event; `first_bad` says what is wrong with the first. `in_receipt` is copied into the receipt.
    """

    digests: Digests
    events: npt.NDArray[np.int64]
    split_by: Digests
    encoded: list[bytes]
    bad_events: list[tuple[int, str]]
    first_bad: str
    in_receipt: dict[str, Any]
    hits: npt.NDArray[np.intp] | None = None
    emptied: npt.NDArray[np.intp] = field(default_factory=lambda: np.empty(0, np.intp))


@dataclass(frozen=True, kw_only=True)
class Manifest(ABC):
    """What a dataset of any field holds, and how it was made; `docs/formats.md` describes the JSON.

    An event is the content of one record: a shower, or a pair of frames of a flow. `geometry` says where its values
    lie. `fingerprint` depends on the files that were used, `request` on all files that were given. `events` counts
    {"read", "written", "repeated", "dropped": {reason: count}}: read = written + dropped. Repeated events are written,
    and have the content of another event of their split. `bad_files` and `bad_events` were left out. `most_hits` is
    the largest number of hits of an event in each split, {} if events are not lists of hits.
    """

    kind: ClassVar[str]  # the kind of the document
    domain: ClassVar[Any]  # the class of the geometry

    fingerprint: str
    request: str
    settings: dict[str, Any]
    geometry: Any
    events: dict[str, Any]
    inputs: tuple[Source, ...]
    bad_files: tuple[BadFile, ...]
    bad_events: tuple[BadEvent, ...]
    shards: tuple[Shard, ...]
    most_hits: dict[str, int] = field(default_factory=dict)

    @property
    @abstractmethod
    def valid_range(self) -> dict[str, tuple[Any, ...]]:
        """The lowest and the highest value of each label over the events written."""

    @property
    def whole_range(self) -> dict[str, tuple[Any, ...]]:
        """The part of `valid_range` that a model may be asked for: there the selection dropped almost no event."""
        return self.valid_range

    def doubts(self) -> list[str]:
        """Lines on what may be wrong with the events written, or is not plausible in the input files."""
        return []

    @property
    def split_files(self) -> list[list[str]]:
        """[split, pattern] of the files that were assigned to a split by name."""
        return [list(pair) for pair in self.settings["split_rule"]["by_file"]]

    def count(self, split: str) -> int:
        """Number of events in `split` ("all": in all splits)."""
        return sum(shard.events for shard in self.shards if split in (ALL, shard.split))

    def summary(self) -> str:
        """One line: how many events the dataset holds, and how many were left out."""
        counts = ", ".join(f"{split} {self.count(split)}" for split in SPLITS)
        dropped = ", ".join(f"{count} {reason}" for reason, count in self.events["dropped"].items() if count)
        return f"{self.events['written']} {self.domain.items} ({counts}); dropped: {dropped or 'none'}"

    def facts(self) -> dict[str, Any]:
        """The few values that distinguish this dataset from others, for a user interface."""
        return {
            "fingerprint": self.fingerprint,
            "events": {split: self.count(split) for split in SPLITS},
            "ranges": {name: list(bounds) for name, bounds in self.valid_range.items()},
        }

    def to_json(self) -> dict[str, Any]:
        splits = {split: self.count(split) for split in SPLITS}
        own = asdict(self) | {"geometry": self.geometry.to_json(), "splits": splits}
        return {"kind": self.kind, "schema_version": SCHEMA_VERSION} | own

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """The manifest that `to_json` wrote. KeyError, TypeError or InputError: the document is not whole."""
        values = {entry.name: document[entry.name] for entry in fields(cls)}
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        listed = {"inputs": Source, "bad_files": BadFile, "bad_events": BadEvent, "shards": Shard}
        values |= {name: tuple(of(**entry) for entry in document[name]) for name, of in listed.items()}
        return cls(**values | {"geometry": cls.domain.from_json(document["geometry"])})
