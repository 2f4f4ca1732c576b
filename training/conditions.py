"""The energies and angles that showers are asked for with: those of events of Monte Carlo files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calopipe.showers.cells import FloatArray
from calopipe.showers.files import open_all
from calopipe.showers.hits import Digests
from calopipe.showers.selection import Selection
from calopipe.storage import Location
from preprocessing.events import receipts_of


@dataclass(frozen=True)
class Events:
    """Labels and digests of events, (N,) each."""

    energy_gev: FloatArray
    theta_rad: FloatArray
    digests: Digests


class Conditions:
    """The events of the files `like` that a `selection` chooses, for one model or several that are asked alike.

    The files are opened at once; the events are found when they are first needed, and only once. The dataset
    `selection.memory` tells them from its receipts; of files that it does not hold all cells are read. Raises
    InputError.
    """

    def __init__(self, like: Sequence[Location], selection: Selection) -> None:
        self.selection = selection
        self.files = open_all(like, selection)

    @cached_property
    def events(self) -> Events:
        told = receipts_of(self.files, self.selection)
        chosen = [found or file.chosen(self.selection) for file, found in zip(self.files, told, strict=True)]
        labels = [
            (file.energy_gev[mask], file.theta_rad[mask], digests[mask])
            for file, (mask, digests) in zip(self.files, chosen, strict=True)
        ]
        return Events(*(np.concatenate(parts) for parts in zip(*labels, strict=True)))
