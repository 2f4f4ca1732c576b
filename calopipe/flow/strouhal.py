"""The Strouhal number of a wake that sheds vortices."""

from __future__ import annotations

import numpy as np
from scipy import signal

from calopipe.flow.mechanics import LEAST_AMPLITUDE, Array

LEAST_FRAMES = 8  # of an oscillation that a sine is fitted to
_TRIED = 16  # frequencies for each that the length of a record tells apart
_LONGEST = 0.75  # of the lowest frequency's periods in a record: below, a trend would pass for an oscillation


def strouhal(swing: Array, interval_d: float) -> float:
    """The frequency f D / U of the sine, with a constant, that fits an evenly spaced `swing` best in least squares.

    The periodogram of Zechmeister and Kuerster (A&A 496, 577 (2009)), refined by a parabola: unlike a Fourier
    transform's, its resolution suffices for one period or two. NaN where nothing swings, is not finite or is too
    short.
    """
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
