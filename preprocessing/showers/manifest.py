"""What preprocessing does to showers, and the manifest of their dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from calopipe.errors import InputError
from calopipe.events.splits import SPLITS, SplitRule
from calopipe.events.tolerance import Tolerance
from calopipe.labels import DATASETS, LabelRange
from calopipe.options import check_settings, setting
from calopipe.showers.cells import Geometry
from calopipe.showers.selection import Reading, Selection, require_energy
from calopipe.storage import Location
from preprocessing.field import FieldSettings, Made, Plan, joined_range
from preprocessing.inputs import InputFile, Inputs
from preprocessing.manifest import BELOW_CUT, BELOW_THRESHOLD, COPY, Content, Manifest
from preprocessing.records import index_type
from preprocessing.showers import cut
from preprocessing.showers.inputs import discover


@dataclass(frozen=True)
class Settings(FieldSettings):
    """What preprocessing does to the showers.

    The cut, the rule and the geometry of `selection` count: events of every split are written, corrupt events never.
    Cells below `threshold_gev` are then set to zero, and a shower without any other cell is not written. The published
    training used a threshold of 0, the reference's converter 2e-6, which is 1e-4 in the unit of its files.
    """

    keeps_copies = False
    says = frozenset({"energy_gev", "theta_rad", "cut_by_energy", "most_hits"})

    selection: Selection = field(default_factory=Selection)
    threshold_gev: float = 0.0
    shard_events: int = setting(1000, least=1, help="Events of one range of a file, the piece of work of one worker.")

    def __post_init__(self) -> None:
        require_energy("threshold_gev", self.threshold_gev)
        check_settings(self)

    @property
    def rule(self) -> SplitRule:  # type: ignore[override]  # a part of the selection
        return self.selection.rule

    def to_json(self) -> dict[str, Any]:
        return {
            "threshold_gev": self.threshold_gev,
            "cut_gev": self.selection.cut_gev,
            "shard_events": self.shard_events,
            "split_rule": asdict(self.selection.rule),
            "geometry": self.selection.geometry,
        }

    @classmethod
    def of(cls, reading: Reading, **more: int) -> Settings:
        """The settings of a preprocessing that reads files as `reading` says. InputError."""
        return cls(reading.selection(), reading.threshold_gev, **more)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Settings:
        """The settings of a manifest."""
        rule = SplitRule(tuple((split, pattern) for split, pattern in document["split_rule"]["by_file"]))
        selection = Selection(rule=rule, cut_gev=document["cut_gev"], geometry=document["geometry"])
        return cls(selection, document["threshold_gev"], document["shard_events"])

    def discover(self, patterns: Sequence[str], tolerance: Tolerance, memory: Location | None = None) -> Inputs:
        return discover(patterns, self.selection.geometry, tolerance=tolerance, memory=memory)

    def read(self, plan: Plan) -> Content:
        from preprocessing.showers.encoding import read_showers  # noqa: PLC0415  a finished dataset needs no HDF5

        return read_showers(plan, self.selection, self.threshold_gev)

    def composed(self, made: Made, common: dict[str, Any]) -> ShowerManifest:
        files = {file.sha256: file for file, _ in made}.values()
        most = [receipt["most_hits"] for _, receipt in made]  # by split
        return ShowerManifest(
            **common,
            index_type=index_type(common["geometry"].cells),
            energy_gev=joined_range(made, "energy_gev"),
            theta_rad=joined_range(made, "theta_rad"),
            **vars(LabelRange.joined(LabelRange.from_json(receipt) for _, receipt in made)),
            cut_by_energy=cut.table(receipt["cut_by_energy"] for _, receipt in made),
            plausibility=tuple({"name": file.path.name} | asdict(file.look) for file in files if file.look),
            most_hits={split: max(hits[split] for hits in most) for split in SPLITS},
        )

    def require_any_left(self, file: InputFile, counts: Sequence[dict[str, Any]]) -> None:
        if any(count["written"] or count["dropped"].get(COPY) for count in counts):
            return
        unit = f"its unit may be another than {file.geometry.file_unit_gev} GeV (--geometry file_unit_gev=...)"
        if any(count["dropped"].get(BELOW_THRESHOLD) for count in counts):
            raise InputError(
                f"{file.path}: no shower has a cell of {self.threshold_gev} GeV; {unit}, or lower --threshold-gev"
            )
        if any(count["dropped"][BELOW_CUT] for count in counts):
            if not self.selection.cut_gev:
                raise InputError(f"{file.path}: no shower holds energy; leave the file out of --input")
            raise InputError(
                f"{file.path}: no shower is above the cut of {self.selection.cut_gev} GeV; {unit}, or lower --cut-gev"
            )


@dataclass(frozen=True, kw_only=True)
class ShowerManifest(Manifest):
    """The manifest of a dataset of showers.

    `energy_gev` and `theta_rad` are the lowest and highest label of the events written. `phi_rad` and `particle` are as
    in `calopipe.labels.LabelRange`. `plausibility` holds the `preprocessing.showers.plausibility.Look` at each file
    used. `cut_by_energy` says what the cut drops, in rows of `preprocessing.showers.cut.Row`.
    """

    kind = "calopipe.dataset"
    domain = Geometry

    geometry: Geometry
    index_type: str
    energy_gev: tuple[float, float]
    theta_rad: tuple[float, float]
    phi_rad: tuple[float, float] | None = None
    particle: tuple[int, ...] = ()
    plausibility: tuple[dict[str, Any], ...]
    cut_by_energy: tuple[cut.Row, ...] = ()

    @property
    def valid_range(self) -> dict[str, tuple[Any, ...]]:
        more = {name: values for name in DATASETS if (values := getattr(self, name))}
        return {"energy_gev": self.energy_gev, "theta_rad": self.theta_rad, **more}

    @property
    def whole_range(self) -> dict[str, tuple[Any, ...]]:
        low, high = self.energy_gev
        whole = cut.whole_from(self.cut_by_energy) if self.settings["cut_gev"] else 0.0
        return self.valid_range | {"energy_gev": (max(low, whole), high)}

    def doubts(self) -> list[str]:
        doubt = cut.doubt(self.cut_by_energy, self.settings["cut_gev"]) if self.settings["cut_gev"] else ""
        odd = [f"{file['name']}: {file['doubts'][0]}" for file in self.plausibility if file["doubts"]]
        files = f"{len(odd)} of the {len(self.plausibility)} input files are not plausible: {odd[0]}" if odd else ""
        return [text for text in (doubt, files) if text]
