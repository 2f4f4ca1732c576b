"""What preprocessing does to a flow, and the manifest of its dataset."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from calopipe.errors import InputError
from calopipe.flow.grid import Grid
from calopipe.showers.splits import SplitRule
from preprocessing.manifest import Manifest


@dataclass(frozen=True)
class PairSettings:
    """Shards are named by it: other settings make other shards.

    The frames of a pair are `step` intervals of the file apart. `rule` divides simulations, not pairs, among the
    splits. `shard_events` is the most pairs of a range, a worker's piece of work.
    """

    rule: SplitRule = field(default_factory=SplitRule)
    step: int = 1
    shard_events: int = 1000

    def __post_init__(self) -> None:
        if self.step < 1 or self.shard_events < 1:
            raise InputError(
                f"--pair-step is {self.step} and --shard-events {self.shard_events}, expected at least 1 of both"
            )

    def to_json(self) -> dict[str, Any]:
        return {"pair_step": self.step, "shard_events": self.shard_events, "split_rule": asdict(self.rule)}


@dataclass(frozen=True, kw_only=True)
class FlowManifest(Manifest):
    """Of a dataset of pairs of frames. `reynolds` are the lowest and highest Reynolds number of the pairs written."""

    kind = "calopipe.flow.dataset"
    domain = Grid

    geometry: Grid
    reynolds: tuple[float, float]

    @property
    def valid_range(self) -> dict[str, tuple[float, float]]:
        return {"reynolds": self.reynolds}
