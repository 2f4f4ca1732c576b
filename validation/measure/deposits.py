"""The hits of showers in GeV, and sums over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from calopipe.showers.cells import Geometry
from calopipe.showers.hits import Hits
from calopipe.showers.positions import positions
from validation.measure.axis import Array

Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Deposits:
    """The hits of N showers (`events`): which event, where, and how much in GeV, (hits,) each.

    `shape` is the calorimeter's. Where cells are in rings, x counts their angles and y their radii.
    """

    event: Index
    x: Index
    y: Index
    layer: Index
    energy: Array
    shape: tuple[int, int, int]
    events: int

    @classmethod
    def of(cls, hits: Hits, geometry: Geometry) -> Deposits:
        """InputError: energy in a place where the calorimeter has no cell."""
        energy = hits.value.astype(np.float64) * geometry.file_unit_gev
        x, y, layer = np.unravel_index(hits.cell, geometry.shape)
        deposits = cls(hits.row, x, y, layer, energy, geometry.shape, len(hits))
        if not (exists := positions(geometry).exists[layer, deposits.places]).all():
            raise InputError(
                f"showers hold energy in {int((~exists).sum())} places that are no cells, the first in layer "
                f"{layer[~exists][0]}; give the --geometry of these files"
            )
        return deposits

    @property
    def places(self) -> Index:
        """Where in its layer each hit is, as in `calopipe.showers.positions`, (hits,)."""
        place: Index = self.x * self.shape[1] + self.y
        return place

    def sums(self, place: Index, places: int, weights: Array) -> Array:
        """Sum of the `weights` of each shower's hits by their `place`, (N, places)."""
        sums = np.bincount(self.event * places + place, weights=weights, minlength=self.events * places)
        return sums.reshape(self.events, places).astype(np.float64, copy=False)

    def counts(self, chosen: npt.NDArray[np.bool_], place: Index | int = 0, places: int = 1) -> Array:
        """The number of `chosen` hits of each shower by their `place`, (N, places)."""
        counts = np.bincount(self.event[chosen] * places + place, minlength=self.events * places)
        return counts.reshape(self.events, places).astype(np.float64)
