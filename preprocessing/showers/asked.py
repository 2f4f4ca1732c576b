"""How files of showers are read: options of a command, parameters of the pipeline, and one value between its steps."""

from __future__ import annotations

from dataclasses import dataclass

from calopipe.events.splits import SplitRule
from calopipe.events.tolerance import Tolerance
from calopipe.options import setting
from calopipe.showers.selection import Selection
from calopipe.storage import location
from preprocessing.dataset import Settings


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What decides which showers of the files count, and what is done about bad ones."""

    dataset: str = setting(
        "", help="Folder or gs:// address of a dataset that several runs share; empty for OUTPUT/dataset."
    )
    split_files: tuple[str, ...] = setting(
        (), flag="--split-file", metavar="SPLIT=PATTERN", help="Whole files assigned to a split, SPLIT=PATTERN each."
    )
    geometry: str = setting(
        "",
        metavar="[FILE|NAME][,KEY=VALUE...]",
        help="Geometry that the files do not state: FILE.toml or a name, and NAME=VALUE,...",
    )
    threshold_gev: float = setting(0.0, help="Cells below it are set to zero.")
    cut_gev: float = setting(
        0.0, help="Showers that deposit no more GeV are dropped; 0 drops those without any energy."
    )
    on_bad_event: str = setting(
        "stop", help="What to do about an event with NaN, negative or impossible values: stop, or skip it."
    )
    on_bad_file: str = setting("stop", help="What to do about a file that cannot be read as showers: stop, or skip it.")
    max_bad_events: float = setting(
        0.01, help="Stop, although corrupt events are skipped, past this share of the events."
    )
    max_bad_files: float = setting(0.1, help="Stop, although corrupt files are skipped, past this share of the files.")
    on_doubt: str = setting(
        "stop", help="What to do about a file whose unit, scale or labels are not plausible: stop, or warn."
    )

    @property
    def rule(self) -> SplitRule:
        return SplitRule.parse(self.split_files)

    def preprocessed(self, **more: int) -> Settings:
        """The settings of preprocessing. InputError, as below."""
        selection = Selection(rule=self.rule, cut_gev=self.cut_gev, geometry=self.geometry)
        return Settings(selection, self.threshold_gev, **more)

    def tolerance(self) -> Tolerance:
        limits = self.max_bad_events, self.max_bad_files
        return Tolerance(self.on_bad_event, self.on_bad_file, *limits, doubt=self.on_doubt)

    def test_split(self) -> Selection:
        """What showers are generated for, and judged by."""
        return Selection("test", self.rule, self.cut_gev, self.on_bad_event, self.geometry, location(self.dataset))
