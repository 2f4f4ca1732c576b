"""The events that judge a model, for the steps that generate and validate."""

from calopipe.showers.selection import Selection
from calopipe.showers.splits import SplitRule
from calopipe.storage import location


def held_out(dataset: str, split_files: list[str], geometry: str, cut_gev: float, on_bad_event: str) -> Selection:
    """The test split, by the pipeline's parameters. Raises InputError."""
    return Selection(
        split="test",
        rule=SplitRule.parse(split_files),
        cut_gev=cut_gev,
        bad_event=on_bad_event,
        geometry=geometry,
        memory=location(dataset),
    )
