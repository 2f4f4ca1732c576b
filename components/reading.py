"""How the files of a run are read: one value, which discover makes of parameters, and the other steps are given."""

from dataclasses import dataclass, field

from calopipe.events.splits import SplitRule
from calopipe.events.tolerance import Tolerance
from calopipe.showers.selection import Selection
from calopipe.storage import location
from preprocessing.dataset import Settings


@dataclass(frozen=True)
class Reading:
    """By the names of the parameters. InputError, as soon as it is made: one of them is wrong."""

    dataset: str = ""
    split_files: list[str] = field(default_factory=list)
    geometry: str = ""
    threshold_gev: float = 0.0
    cut_gev: float = 0.0
    on_bad_event: str = "stop"
    on_bad_file: str = "stop"
    max_bad_events: float = 0.01
    max_bad_files: float = 0.1
    on_doubt: str = "stop"

    def settings(self) -> Settings:
        """Of preprocessing."""
        selection = Selection(rule=SplitRule.parse(self.split_files), cut_gev=self.cut_gev, geometry=self.geometry)
        return Settings(selection, self.threshold_gev)

    def tolerance(self) -> Tolerance:
        limits = self.max_bad_events, self.max_bad_files
        return Tolerance(self.on_bad_event, self.on_bad_file, *limits, doubt=self.on_doubt)

    def test_split(self) -> Selection:
        """What the showers are generated for, and judged by."""
        rule, place = SplitRule.parse(self.split_files), location(self.dataset)
        return Selection("test", rule, self.cut_gev, self.on_bad_event, self.geometry, place)
