"""The hits of showers in GeV, sums over hits, moments, and the straight line that is fitted to a shower."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calopipe.errors import InputError
from calopipe.showers.cells import Array, Geometry, Index, Mask
from calopipe.showers.hits import Hits
from calopipe.showers.positions import positions


@dataclass(frozen=True)
class Deposits:
    """The hits of N showers (`events` is N), (hits,) each: the event, the place in the layer as in
    `calopipe.showers.positions`, the layer, and the energy in GeV.
    """

    event: Index
    places: Index
    layer: Index
    energy: Array
    events: int

    @classmethod
    def of(cls, hits: Hits, geometry: Geometry) -> Deposits:
        """The deposits of `hits`. InputError: there is energy in a place where the calorimeter has no cell."""
        places, layer = np.divmod(hits.cell, geometry.shape[2])
        if not (exists := positions(geometry).exists[layer, places]).all():
            raise InputError(
                f"showers hold energy in {int((~exists).sum())} places that are no cells, the first in layer "
                f"{layer[~exists][0]}; give the --geometry of these files"
            )
        return cls(hits.row, places, layer, hits.value.astype(np.float64) * geometry.file_unit_gev, len(hits))

    def sums(self, place: Index | int, places: int, weights: Array | Mask) -> Array:
        """Sum of the `weights` of each shower's hits by their `place`, (N, places). A mask as weights counts hits."""
        sums = np.bincount(self.event * places + place, weights=weights, minlength=self.events * places)
        return sums.reshape(self.events, places).astype(np.float64, copy=False)


def line(layers: Array, moment: Array, z: Array) -> Array:
    """The line place(z), (N, layer), fitted to showers by weighted least squares: `layers` (N, layer) are the energies
    of the layers, `moment` (N, layer) their sums of energy times place.

    A shower in a single layer has no slope: its line is parallel to z.
    """
    total = layers.sum(axis=1)
    mean_z, variance_z = moments(layers, z)
    mean = divided(moment.sum(axis=1), total)
    covariance = divided((moment * (z - mean_z[:, None])).sum(axis=1), total)
    flat = ~(variance_z > 1e-9 * z[0] ** 2)  # one layer, up to rounding
    slope = np.where(flat, 0.0, covariance / np.where(flat, 1.0, variance_z))
    return mean[:, None] + slope[:, None] * (z - mean_z[:, None])


def moments(profile: Array, place: Array) -> tuple[Array, Array]:
    """Mean and variance of `place` (bins,), weighted by each `profile` (N, bins); NaN without energy."""
    total = profile.sum(axis=1)
    mean = divided(profile @ place, total)
    return mean, divided((profile * (place - mean[:, None]) ** 2).sum(axis=1), total)


def divided(values: Array, total: Array) -> Array:
    """`values` (N, ...) over `total` (N,), NaN where the total is zero."""
    divisor = np.where(total > 0, total, np.nan).reshape(-1, *(1 for _ in values.shape[1:]))
    return values / divisor
