"""What preprocessing needs of a field: settings that find its files, read them, and compose its manifest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from calopipe import storage
from calopipe.events.splits import SplitRule
from calopipe.events.tolerance import Tolerance
from calopipe.storage import Location
from preprocessing.inputs import InputFile, Inputs
from preprocessing.manifest import Content, Manifest

Receipt = dict[str, Any]  # the receipt of a range of a file, as in JSON; docs/formats.md describes it
Made = Sequence[tuple[InputFile, Receipt]]  # the receipts of ranges that were made, each with its file


@dataclass(frozen=True)
class Plan:
    """The work on the events `start` to `stop` of the file `path`, which has this `stamp` (`storage.stamp`) and hash.

    `key` names the output. The events `skip`, by their indices in the file, are copies of others and are not written.
    """

    path: str
    stamp: tuple[int, int]
    sha256: str
    start: int
    stop: int
    key: str
    skip: tuple[int, ...] = ()

    def without(self, copies: Iterable[int]) -> Plan:
        """The plan without these events."""
        skip = tuple(map(int, copies))
        return replace(self, key=f"{self.key}-{storage.fingerprint(skip)[:8]}", skip=skip) if skip else self


class FieldSettings(ABC):
    """What is done to the files of a field. The names of shards depend on the settings.

    `rule` divides events among the splits. `shard_events` is the largest number of events of a range, which is a
    worker's piece of work.
    """

    keeps_copies: ClassVar[bool] = True  # whether events that are equal to an event before are always kept
    says: ClassVar[frozenset[str]]  # entries that the receipt of a good range must have; otherwise it is made again

    rule: SplitRule
    shard_events: int

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The settings for the manifest."""

    @abstractmethod
    def discover(self, patterns: Sequence[str], tolerance: Tolerance, memory: Location | None = None) -> Inputs:
        """The input files that `patterns` name, each checked, each content once. Raises InputError."""

    @abstractmethod
    def read(self, plan: Plan) -> Content:
        """The content of the range of `plan`. BadFileError."""

    @abstractmethod
    def composed(self, made: Made, common: dict[str, Any]) -> Manifest:
        """The manifest, from what was `made` of the good files and the entries `common` to all fields."""

    def require_any_left(self, file: InputFile, counts: Sequence[dict[str, Any]]) -> None:  # noqa: B027
        """Raise InputError if no event of `file`, whose ranges have these counts, is left. Only showers need this."""


def joined_range(made: Made, label: str) -> tuple[float, float]:
    """Lowest and highest value of a label over the receipts that hold events."""
    bounds = [receipt[label] for _, receipt in made if receipt[label] is not None]
    return min(low for low, _ in bounds), max(high for _, high in bounds)
