"""The axis of a shower, the straight line through its cells, and rings about it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Edges of the rings, in cells: a quarter of a cell apart where the density falls by half within a cell, wider where
# few cells hold energy. The last ring is open.
RING_EDGES = np.concatenate([np.arange(0, 4, 0.25), np.arange(4, 8, 0.5), np.arange(8, 13)])


def ring_shares(rings: npt.NDArray[np.floating]) -> Array:
    """The share of each ring in the sum over `rings` (N, rings), NaN where that is zero."""
    held = rings.astype(np.float64)
    return divided(held, held.sum(axis=1))


def line(layers: Array, moment: Array, z: Array) -> Array:
    """The line place(z), (N, layer), fitted to showers by weighted least squares: `layers` (N, layer) are the energies
    of the layers, `moment` (N, layer) their sums of energy times place.

    A shower in a single layer has no slope, and its line runs along z.
    """
    total = layers.sum(axis=1)
    mean_z, variance_z = moments(layers, z)
    mean = divided(moment.sum(axis=1), total)
    covariance = divided((moment * (z - mean_z[:, None])).sum(axis=1), total)
    flat = ~(variance_z > 1e-9 * z[0] ** 2)  # one layer, up to rounding
    slope = np.where(flat, 0.0, covariance / np.where(flat, 1.0, variance_z))
    return mean[:, None] + slope[:, None] * (z - mean_z[:, None])


def moments(profile: Array, place: Array) -> tuple[Array, Array]:
    """Mean and variance of `place` (bins,) in each `profile` (N, bins); NaN without energy."""
    total = profile.sum(axis=1)
    mean = divided(profile @ place, total)
    return mean, divided((profile * (place - mean[:, None]) ** 2).sum(axis=1), total)


def divided(values: Array, total: Array) -> Array:
    """`values` (N, ...) over `total` (N,), NaN where the total is zero."""
    divisor = np.where(total > 0, total, np.nan).reshape(-1, *(1 for _ in values.shape[1:]))
    return values / divisor
