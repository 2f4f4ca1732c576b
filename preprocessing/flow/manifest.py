"""What preprocessing does to a flow, and the manifest of its dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.events.tolerance import Tolerance
from calopipe.flow.grid import Grid
from calopipe.options import check_settings, setting
from calopipe.storage import Location, location
from preprocessing.field import FieldSettings, Made, Plan, joined_range
from preprocessing.inputs import Inputs
from preprocessing.manifest import Content, Manifest


@dataclass(frozen=True)
class PairSettings(FieldSettings):
    """What preprocessing does to simulations: the frames of a pair are `pair_step` intervals of the file apart.

    `rule` divides simulations, not pairs, among the splits.
    """

    says = frozenset({"reynolds", "flow"})

    rule: SplitRule = field(default_factory=SplitRule)
    pair_step: int = setting(1, least=1, help="Of a flow: frames of a pair are so many intervals of the file apart.")
    shard_events: int = setting(1000, least=1, help="Pairs of one range of a file, the piece of work of one worker.")

    def __post_init__(self) -> None:
        check_settings(self)

    def to_json(self) -> dict[str, Any]:
        return {"pair_step": self.pair_step, "shard_events": self.shard_events, "split_rule": asdict(self.rule)}

    def discover(self, patterns: Sequence[str], tolerance: Tolerance, _memory: Location | None = None) -> Inputs:
        from preprocessing.flow.pairs import discover_pairs  # noqa: PLC0415  a finished dataset needs no HDF5

        return discover_pairs(patterns, self.pair_step, tolerance)

    def read(self, plan: Plan) -> Content:
        from preprocessing.flow.pairs import read_pairs  # noqa: PLC0415

        return read_pairs(location(plan.path), plan.start, plan.stop, self.pair_step)

    def composed(self, made: Made, common: dict[str, Any]) -> FlowManifest:
        """The manifest. InputError: a flow is in two splits, as whole files were assigned to splits by name."""
        splits: dict[str, tuple[str, Location]] = {}  # the split of each flow, and the flow's first file
        for file, receipt in made:
            for shard in receipt["shards"]:
                split, first = splits.setdefault(receipt["flow"], (shard["split"], file.path))
                if split != shard["split"]:
                    raise InputError(
                        f"--split-file: {file.path} is in {shard['split']} and {first} in {split}, but both are of one "
                        "obstacle and Reynolds number; leave one of them out, or give both to one split"
                    )
        return FlowManifest(**common, reynolds=joined_range(made, "reynolds"))


@dataclass(frozen=True, kw_only=True)
class FlowManifest(Manifest):
    """The manifest of a dataset of pairs of frames. `reynolds`: lowest and highest Reynolds number of written pairs."""

    kind = "calopipe.flow.dataset"
    domain = Grid

    geometry: Grid
    reynolds: tuple[float, float]

    @property
    def valid_range(self) -> dict[str, tuple[float, float]]:
        return {"reynolds": self.reynolds}
