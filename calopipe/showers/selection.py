"""Which events of Monte Carlo files count: one rule for preprocessing, generation and validation."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from calopipe import storage
from calopipe.errors import InputError
from calopipe.showers.cells import Geometry
from calopipe.showers.flaws import STOP
from calopipe.showers.hits import Hits
from calopipe.showers.splits import ALL, SplitRule
from calopipe.storage import Location

CUT_GEV = 0.2  # 10 in the unit of the reference's files


@dataclass(frozen=True)
class Selection:
    """The events of `split` that deposit more than `cut_gev`, and how to read their files.

    `rule` divides events among the splits. `bad_event` says what happens at a corrupt event: "stop" or "skip".
    `geometry` ("cell_mm=5.1,...") overrides the files' attributes, such as the unit that the cut is applied in.
    `memory` is the folder of a dataset that remembers the files' hashes, which saves only time.
    """

    split: str = ALL
    rule: SplitRule = field(default_factory=SplitRule)
    cut_gev: float = CUT_GEV
    bad_event: str = STOP
    geometry: str = ""
    memory: Location | None = None

    def __post_init__(self) -> None:
        require_energy("cut_gev", self.cut_gev)

    @classmethod
    def of(cls, options: argparse.Namespace) -> Selection:
        """The selection that the options of `calopipe.showers.options.add_selection` ask for."""
        given = vars(options)
        return cls(
            split=given.get("split", ALL),
            rule=SplitRule.parse(options.split_file),
            cut_gev=options.cut_gev,
            bad_event=options.on_bad_event,
            geometry=options.geometry,
            memory=storage.location(options.dataset) if given.get("dataset") else None,
        )

    def above_cut(self, hits: Hits, geometry: Geometry) -> npt.NDArray[np.bool_]:
        """Whether each event (N,) deposits more than `cut_gev` in its cells, as they are stored."""
        return np.asarray(hits.sums() > self.cut_gev / geometry.file_unit_gev)


def require_energy(name: str, energy_gev: float) -> None:
    """Raise InputError unless the setting `name` is a finite energy of zero or more."""
    if not 0 <= energy_gev < float("inf"):
        raise InputError(f"{name} is {energy_gev}, expected a number of GeV, zero or more")
