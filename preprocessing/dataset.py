"""The dataset: shards, and the manifest that lists them. It is written last, and readers use only what it lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from calopipe import storage
from calopipe.documents import Form
from calopipe.errors import InputError
from calopipe.events.contents import Header
from calopipe.events.splits import ALL, SPLITS, SplitRule
from calopipe.events.tolerance import FLAWS, Tolerance
from calopipe.labels import DATASETS, LabelRange
from calopipe.options import check_settings, setting
from calopipe.showers.cells import Geometry
from calopipe.showers.selection import Reading, Selection, require_energy
from calopipe.storage import Location
from preprocessing.field import FieldSettings, Made, Plan, joined_range
from preprocessing.flow.manifest import FlowManifest
from preprocessing.inputs import InputFile, Inputs, discover
from preprocessing.manifest import SCHEMA_VERSION, Content, Manifest, Source, identity
from preprocessing.records import index_type
from preprocessing.showers import cut

KIND = "calopipe.dataset"
RECEIPT = Form("calopipe.shards", SCHEMA_VERSION)
MANIFEST = "manifest.json"
SHARDS = "shards"

# Why an event that was read was not written.
BELOW_CUT, BELOW_THRESHOLD, COPY, BAD_FILE = "below_cut", "below_threshold", "copy", "bad_file"
DROPPED = (BELOW_CUT, BELOW_THRESHOLD, COPY, *FLAWS[1:], BAD_FILE)


@dataclass(frozen=True)
class Settings(FieldSettings):
    """What preprocessing does to the showers.

    Of `selection` the cut, the rule and the geometry count: events of every split are written, and corrupt ones never.
    Cells below `threshold_gev` are then set to zero (the published training used 0; the reference's converter 2e-6,
    which is 1e-4 in its files' unit), and a shower that has none left is not written.
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
        """The settings by which files are read so. InputError."""
        selection = Selection(rule=reading.rule, cut_gev=reading.cut_gev, geometry=reading.geometry)
        return cls(selection, reading.threshold_gev, **more)

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
        most = [receipt["most_hits"] for _, receipt in made]  # of each split
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
        if any(count["written"] for count in counts):
            return
        unit = f"its unit may be another than {file.geometry.file_unit_gev} GeV (--geometry file_unit_gev=...)"
        if any(count["dropped"].get(BELOW_THRESHOLD) for count in counts):
            raise InputError(
                f"{file.path}: no shower has a cell of {self.threshold_gev} GeV; {unit}, or lower --threshold-gev"
            )
        if any(count["dropped"][BELOW_CUT] for count in counts):
            raise InputError(
                f"{file.path}: no shower is above the cut of {self.selection.cut_gev} GeV; {unit}, or lower --cut-gev"
            )


@dataclass(frozen=True, kw_only=True)
class ShowerManifest(Manifest):
    """Of a dataset of showers. `energy_gev` and `theta_rad` are the lowest and highest label of the events written.

    `phi_rad` and `particle` are as in `calopipe.labels.LabelRange`.
    `plausibility` holds the `preprocessing.showers.plausibility.Look` of each file used, `cut_by_energy` says what the
    cut drops, in rows of `preprocessing.showers.cut.Row`.
    """

    kind = KIND
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
        return [doubt] if doubt else []


_KINDS: dict[str, type[Manifest]] = {manifest.kind: manifest for manifest in (ShowerManifest, FlowManifest)}


def ranges(file: Header, settings: FieldSettings) -> list[tuple[int, int, str]]:
    """First event, end and name of each range of `file`: at most `shard_events` events, or one chunk of the file.

    Receipts and shards are called by the name, which follows from the content of the file and the settings.
    """
    step = max(settings.shard_events // file.chunk_events, 1) * file.chunk_events
    name = storage.fingerprint([SCHEMA_VERSION, identity(Source.of(file), settings.rule), settings.to_json()])[:16]
    bounds = ((start, min(start + step, file.events)) for start in range(0, file.events, step))
    return [(start, stop, f"{name}-{start:08d}-{stop:08d}") for start, stop in bounds]


def fingerprint_of(inputs: Sequence[Source], settings: FieldSettings, *, copies: int = 0) -> str:
    """Identifies a dataset by the content of its input files, the settings, the schema and how many `copies` it has."""
    identities = sorted(identity(source, settings.rule) for source in inputs)
    return storage.fingerprint([SCHEMA_VERSION, identities, settings.to_json(), *([copies] if copies else [])])


def require_unaltered(
    folder: Location, manifest: Manifest, splits: Sequence[str] = SPLITS, copy: Location | None = None
) -> None:
    """Raise InputError unless the shards of `splits` in `folder`, read from a `copy` if there is one, are those of the
    manifest.
    """
    shards = [shard for shard in manifest.shards if shard.split in splits]
    hashes = storage.at_once(lambda shard: storage.sha256_of_file((copy or folder) / shard.name), shards)
    for shard, sha256 in zip(shards, hashes, strict=True):
        if sha256 != shard.sha256:
            raise InputError(f"{folder / shard.name}: altered since it was written; delete it, and preprocess again")


def news(files: Sequence[Header], folder: Location) -> str:
    """What has changed in the input `files` since the dataset in `folder` was made, in a line; empty without one."""
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


def require_dataset(folder: Location, fingerprint: str) -> None:
    """Raise InputError unless the dataset in `folder` is complete and has this fingerprint."""
    if read_manifest(folder).fingerprint != fingerprint:
        raise InputError(f"{folder}: holds another dataset than the one just made; does another run write there?")


def read_manifest(folder: Location) -> Manifest:
    """The manifest of the dataset in `folder`. InputError: not valid, or a shard is missing or of a wrong size."""
    path = folder / MANIFEST
    document = storage.read_json(path, *_KINDS, schema_version=SCHEMA_VERSION)
    try:
        manifest = _KINDS[document["kind"]].from_json(document)
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: not a whole manifest ({error!r}); preprocess again") from None
    dropped = sum(manifest.events["dropped"].values())
    if manifest.events["written"] != manifest.count(ALL) or manifest.events["read"] != manifest.count(ALL) + dropped:
        raise InputError(f"{path}: its counts of events do not add up; preprocess again")
    sizes = storage.listing(folder / SHARDS)
    for shard in manifest.shards:
        size = sizes.get(shard.name.removeprefix(f"{SHARDS}/"))
        if size != shard.bytes:
            state = "missing" if size is None else f"{size} bytes long"
            raise InputError(
                f"{folder / shard.name}: {state}, the manifest expects {shard.bytes} bytes; preprocess again"
            )
    return manifest
