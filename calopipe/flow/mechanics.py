"""What follows from a velocity field: vorticity, divergence, energy, and how the wake swings. Arrays in, arrays out.

Velocities are in units of the inflow speed U, lengths in heights D of the obstacle, times in D/U. x is downstream.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

LEAST_AMPLITUDE = 0.02  # in U: a wake that swings less does not shed vortices
_SETTLED = 0.6  # a wake has settled if the first half of a record swings at least this share of its last half
LEAST_FRAMES = 8  # that an oscillation must have for the fit of a sine
_TRIED = 16  # frequencies tried in each interval of frequency that the length of a record resolves
_LONGEST = 0.75  # periods in a record at the lowest frequency: with fewer, a trend would pass for an oscillation


def vorticity(velocity: Array, cell_d: float) -> Array:
    """dv/dx - du/dy in U/D: (..., x, y) from (..., x, y, 2), by central differences, one-sided at the edges."""
    return np.gradient(velocity[..., 1], cell_d, axis=-2) - np.gradient(velocity[..., 0], cell_d, axis=-1)


def divergence(velocity: Array, cell_d: float) -> Array:
    """du/dx + dv/dy in U/D: (..., x, y) from (..., x, y, 2), by differences as in `vorticity`; zero in a liquid."""
    return np.gradient(velocity[..., 0], cell_d, axis=-2) + np.gradient(velocity[..., 1], cell_d, axis=-1)


def kinetic_energy(velocity: Array, fluid: Mask) -> Array:
    """The mean of |velocity|^2 / 2 over the cells where `fluid` (x, y) is true, in U^2: (...) from (..., x, y, 2)."""
    return np.asarray(0.5 * (velocity[..., fluid, :].astype(np.float64) ** 2).sum(axis=-1).mean(axis=-1))


def wake(solid: Mask) -> slice:
    """The columns behind the obstacle; all columns if there is no obstacle."""
    columns = np.flatnonzero(solid.any(axis=1))
    return slice(int(columns[-1]) + 1 if len(columns) else 0, len(solid))


def transverse(velocity: Array, solid: Mask, cell_d: float) -> Array:
    """The transverse velocity 2 D behind the obstacle, averaged over its height: (T,) from (T, x, y, 2).

    The velocity swings once in a shedding period, as the lift does. It is taken in the last column if the frame ends
    before 2 D.
    """
    rows = np.flatnonzero(solid.any(axis=0)) if solid.any() else np.arange(solid.shape[1])
    column = min(wake(solid).start + round(2 / cell_d), len(solid) - 1)
    return velocity[:, column, rows[0] : rows[-1] + 1, 1].mean(axis=1, dtype=np.float64)


def unsettled(swing: Array) -> str:
    """Why a wake that swings by `swing` (T,) does not shed vortices evenly; "" if it does."""
    if len(swing) < 2:
        return "no two frames have finite velocities behind the obstacle"
    early, late = (float(np.ptp(half)) / 2 for half in np.array_split(swing, 2))
    if late < LEAST_AMPLITUDE:
        return f"the wake swings by {late:.2g} U"
    if early < _SETTLED * late:
        return f"the wake's swing still grows, from {early:.2g} to {late:.2g} U"
    return ""


def strouhal(swing: Array, interval_d: float) -> float:
    """The frequency f D / U of the sine plus constant that fits an evenly spaced `swing` best in least squares.

    The method is the periodogram of Zechmeister and Kuerster (A&A 496, 577 (2009)), refined by a parabola. Its
    resolution, unlike a Fourier transform's, suffices for one or two periods. NaN: `swing` is flat, not finite or too
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
