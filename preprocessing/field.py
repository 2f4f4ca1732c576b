"""What preprocessing asks of a field: its settings, which find its files, read them, and compose its manifest."""

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

Receipt = dict[str, Any]  # of a range of a file, as in JSON; docs/formats.md describes it
Made = Sequence[tuple[InputFile, Receipt]]  # what was made of ranges of files


@dataclass(frozen=True)
class Plan:
    """Events `start` to `stop` of the file `path`, of this stamp (`storage.stamp`) and hash. `key` names the output.

    The events `skip`, by their indices in the file, are copies of others, and not written.
    """

    path: str
    stamp: tuple[int, int]
    sha256: str
    start: int
    stop: int
    key: str
    skip: tuple[int, ...] = ()

    def without(self, copies: Iterable[int]) -> Plan:
        """The plan for the other events."""
        skip = tuple(map(int, copies))
        return replace(self, key=f"{self.key}-{storage.fingerprint(skip)[:8]}", skip=skip) if skip else self


class FieldSettings(ABC):
    """What is done to the files of a field. Shards are named by it: other settings make other shards.

    `rule` divides events among the splits. `shard_events` is the most events of a range, a worker's piece of work.
    """

    keeps_copies: ClassVar[bool] = True  # events that are equal to one before, whatever is asked for
    says: ClassVar[frozenset[str]]  # what each receipt of a good range says; one that does not is made again

    rule: SplitRule
    shard_events: int

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """For the manifest."""

    @abstractmethod
    def discover(self, patterns: Sequence[str], tolerance: Tolerance, memory: Location | None = None) -> Inputs:
        """The input files that `patterns` name, each checked, each content once. Raises InputError."""

    @abstractmethod
    def read(self, plan: Plan) -> Content:
        """What the range of `plan` holds. BadFileError."""

    @abstractmethod
    def composed(self, made: Made, common: dict[str, Any]) -> Manifest:
        """The manifest of what was `made` of the good files, and of what is `common` to all fields."""

    def require_any_left(self, file: InputFile, counts: Sequence[dict[str, Any]]) -> None:  # noqa: B027
        """Raise InputError if nothing is left of `file`, whose ranges have these counts of events. Most keep all."""


def joined_range(made: Made, label: str) -> tuple[float, float]:
    """Lowest and highest value of a label over the receipts that hold events."""
    bounds = [receipt[label] for _, receipt in made if receipt[label] is not None]
    return min(low for low, _ in bounds), max(high for _, high in bounds)
