"""The hits of showers in GeV, and sums over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import Geometry
from calopipe.showers.hits import Hits
from validation.measure.axis import Array

Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Deposits:
    """The hits of N showers in a calorimeter of `shape`: which event, where, and how much in GeV, (hits,) each.

    `in_x` (N, x, layer) and `in_y` (N, y, layer) are their sums over the other lateral direction.
    """

    event: Index
    x: Index
    y: Index
    layer: Index
    energy: Array
    in_x: Array
    in_y: Array
    shape: tuple[int, int, int]

    @classmethod
    def of(cls, hits: Hits, geometry: Geometry) -> Deposits:
        in_x, in_y = (projection * geometry.file_unit_gev for projection in hits.projections())
        energy = hits.value.astype(np.float64) * geometry.file_unit_gev
        x, y, layer = np.unravel_index(hits.cell, geometry.shape)
        return cls(hits.row, x, y, layer, energy, in_x, in_y, geometry.shape)

    @property
    def events(self) -> int:
        return len(self.in_x)

    def sums(self, place: Index, places: int, weights: Array) -> Array:
        """Sum of the `weights` of each shower's hits by their `place`, (N, places)."""
        found = np.bincount(self.event * places + place, weights=weights, minlength=self.events * places)
        return found.reshape(self.events, places).astype(np.float64, copy=False)

    def counts(self, chosen: npt.NDArray[np.bool_], place: Index | int = 0, places: int = 1) -> Array:
        """The number of `chosen` hits of each shower by their `place`, (N, places)."""
        found = np.bincount(self.event[chosen] * places + place, minlength=self.events * places)
        return found.reshape(self.events, places).astype(np.float64)
