"""What follows from a velocity field: vorticity, divergence, energy, and how the wake swings. Arrays in, arrays out.

Velocities are in units of the inflow speed U, lengths in heights D of the obstacle, times in D/U. x is downstream.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

LEAST_AMPLITUDE = 0.02  # of U: a wake that swings less does not shed
_SETTLED = 0.6  # of the swing in a record's last half, that its first half has at least once a wake has settled
LEAST_FRAMES = 8  # of an oscillation that a sine is fitted to
_TRIED = 16  # frequencies for each that the length of a record tells apart
_LONGEST = 0.75  # of the lowest frequency's periods in a record: below, a trend would pass for an oscillation


def vorticity(velocity: Array, cell_d: float) -> Array:
    """dv/dx - du/dy in U/D, (..., x, y) of (..., x, y, 2): central differences, one-sided ones at the edges."""
    return np.gradient(velocity[..., 1], cell_d, axis=-2) - np.gradient(velocity[..., 0], cell_d, axis=-1)


def divergence(velocity: Array, cell_d: float) -> Array:
    """du/dx + dv/dy in U/D, (..., x, y) of (..., x, y, 2), by the same differences; zero in the flow of a liquid."""
    return np.gradient(velocity[..., 0], cell_d, axis=-2) + np.gradient(velocity[..., 1], cell_d, axis=-1)


def kinetic_energy(velocity: Array, fluid: Mask) -> Array:
    """The mean of |velocity|^2 / 2 over the cells where `fluid` (x, y) is true, in U^2, (...) of (..., x, y, 2)."""
    return np.asarray(0.5 * (velocity[..., fluid, :].astype(np.float64) ** 2).sum(axis=-1).mean(axis=-1))


def wake(solid: Mask) -> slice:
    """The columns behind the obstacle; all where there is none."""
    columns = np.flatnonzero(solid.any(axis=1))
    return slice(int(columns[-1]) + 1 if len(columns) else 0, len(solid))


def transverse(velocity: Array, solid: Mask, cell_d: float) -> Array:
    """The transverse velocity two D behind the obstacle, mean over its height, by frame: (T,) of (T, x, y, 2).

    It swings once a shedding period, as the lift does. Where the frame ends before, in the last column.
    """
    rows = np.flatnonzero(solid.any(axis=0)) if solid.any() else np.arange(solid.shape[1])
    column = min(wake(solid).start + round(2 / cell_d), len(solid) - 1)
    return velocity[:, column, rows[0] : rows[-1] + 1, 1].mean(axis=1, dtype=np.float64)


def unsettled(swing: Array) -> str:
    """Why a wake that swings by `swing` (T,) is not shedding vortices evenly; "" where it is."""
    if len(swing) < 2:
        return "no two frames have finite velocities behind the obstacle"
    early, late = (float(np.ptp(half)) / 2 for half in np.array_split(swing, 2))
    if late < LEAST_AMPLITUDE:
        return f"the wake swings by {late:.2g} U"
    if early < _SETTLED * late:
        return f"the wake's swing still grows, from {early:.2g} to {late:.2g} U"
    return ""


def strouhal(swing: Array, interval_d: float) -> float:
    """The frequency f D / U of the sine, with a constant, that fits an evenly spaced `swing` best in least squares.

    The periodogram of Zechmeister and Kuerster (A&A 496, 577 (2009)), refined by a parabola: unlike a Fourier
    transform's, its resolution suffices for one period or two. NaN where nothing swings, is not finite or is too
    short.
    """
    from scipy import signal  # noqa: PLC0415  a third of a second

    n = len(swing)
    if n < LEAST_FRAMES or not np.isfinite(swing).all() or np.ptp(swing) < 2 * LEAST_AMPLITUDE:
        return np.nan
    step = 1 / (_TRIED * n)  # in cycles a frame
    frequencies = np.arange(_LONGEST / n, 0.5, step)
    time = np.arange(n, dtype=np.float64) - (n - 1) / 2
    power = signal.lombscargle(time, swing, 2 * np.pi * frequencies, floating_mean=True, normalize=True)
    best = int(power.argmax())
    if not 0 < best < len(power) - 1:
        return np.nan
    before, highest, after = power[best - 1 : best + 2]
    bend = before - 2 * highest + after
    shift = 0.5 * (before - after) / bend if bend < 0 else 0.0
    return float((frequencies[best] + shift * step) / interval_d)
