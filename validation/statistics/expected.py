"""What Monte Carlo predicts for an observable at a shower's own labels.

Where the energies of a beam span more than a factor of three, what is measured rises or falls with E by more than it
scatters, and a mean or width over all showers would tell of the beam. Polynomials in log E, fitted to a sample, say
what is expected; a surface in log E and theta, what a difference of labels adds to a mean.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import Array
from validation.measure.edges import wide
from validation.measure.observables import SCALARS, Columns, Observables
from validation.measure.sets import SAMPLE_SHOWERS, Labels, Rows

_MEAN_DEGREE, _WIDTH_DEGREE = 4, 2
_FARTHEST = 5.0
_ROUNDING = 1e-9  # of the largest value: a smaller deviation is none
_LEAST_EVENTS = 100  # for a fit, which must not follow the noise of few; these have one mean and one width


@dataclass(frozen=True)
class AtEnergy:
    """Mean and standard deviation of columns (n, k) at an energy, fitted to showers."""

    _centre: float
    _scale: float
    _means: Array  # coefficients (degree + 1, k), as the next two
    _log_widths: Array
    _factors: Array

    @classmethod
    def fitted(cls, energy_gev: npt.NDArray[Any], values: Array) -> Self:
        """Fit `values` (n, k) of showers of `energy_gev` (n,).

        The width is the exponential of a fit to the logarithms of the deviations, which is never negative, times a fit
        to the squares of the deviations in its units, which tells of the tails.
        """
        log = _log(energy_gev)
        centre, scale = float(log.mean()), float(np.ptp(log)) or 1.0
        u, few = (log - centre) / scale, len(log) < _LEAST_EVENTS
        degrees = (0, 0) if few else (_MEAN_DEGREE, _WIDTH_DEGREE)
        weights = np.ones_like(values)
        for _ in range(2):  # the mean again, once it is known how little each energy says of it
            means = np.column_stack([_fit(u, *pair, degrees[0]) for pair in zip(values.T, weights.T, strict=True)])
            away = np.abs(values - _values(u, means))
            # A shower at its mean is no closer to it than a millionth of the width; what does not vary has a width.
            least = np.maximum(1e-6 * away.std(axis=0), 1e-9 * np.abs(values).max(axis=0) + 1e-30)
            logs = _fit(u, np.log(np.maximum(away, least)), np.ones_like(u), degrees[1])
            weights = np.exp(-_values(u, logs))
        squares = (np.maximum(away, least) / np.exp(_values(u, logs))) ** 2
        return cls(centre, scale, means, logs, _fit(u, squares, np.ones_like(u), degrees[1]))

    def mean(self, energy_gev: npt.NDArray[Any]) -> Array:
        """(n, k)."""
        return _values(self._at(energy_gev), self._means)

    def width(self, energy_gev: npt.NDArray[Any]) -> Array:
        """(n, k)."""
        u = self._at(energy_gev)
        return np.exp(_values(u, self._log_widths)) * np.sqrt(np.maximum(_values(u, self._factors), 1.0))

    def _at(self, energy_gev: npt.NDArray[Any]) -> Array:
        return (_log(energy_gev) - self._centre) / self._scale


def _log(energy_gev: npt.NDArray[Any]) -> Array:
    return np.log(np.asarray(energy_gev, dtype=np.float64))


def _fit(u: Array, values: Array, weights: Array, degree: int) -> Array:
    known = min(degree, len(np.unique(u)) - 1)  # a beam of few energies determines no more
    return np.asarray(np.polynomial.polynomial.polyfit(u, values, known, w=weights), dtype=np.float64)


def _values(u: Array, coefficients: Array) -> Array:
    return np.asarray(np.polynomial.polynomial.polyval(u, coefficients), dtype=np.float64).T


def corrected_for_labels(values: Columns, some: Observables, reference: Rows) -> Columns:
    """`values` (n, k) less what the labels of a table add to their mean in the reference.

    This removes differences that are due to the labels alone, and the noise of their spread; means of sets with the
    same labels stay as they are. The prediction is a surface of second degree in log E and theta, of
    fourth in log E where energies are `wide`, fitted to `some` showers of the reference; with few it is a constant.
    """
    labels = _labels(some.energy_gev, some.theta_rad)
    spread = labels.std(axis=0)
    centre, scale = labels.mean(axis=0), np.where(spread > 1e-6, spread, np.inf)  # a label that is the same for all
    fitted, decades = len(some) >= _LEAST_EVENTS, wide(some.energy_gev)

    def terms(energy_gev: Labels, theta_rad: Labels) -> Array:
        u, v = ((_labels(energy_gev, theta_rad) - centre) / scale).T
        surface = [np.ones_like(u), u, v, u * u, u * v, v * v, *((u**3, u**4) if decades else ())]
        return np.stack(surface if fitted else surface[:1], axis=1)

    coefficients = np.linalg.lstsq(terms(some.energy_gev, some.theta_rad), values(some), rcond=None)[0]
    pieces = max(len(reference) // SAMPLE_SHOWERS, 1)  # so that memory does not grow with the number of showers
    parts = (np.array_split(column, pieces) for column in (reference.energy_gev, reference.theta_rad))
    mean_terms = np.sum([terms(*part).sum(axis=0) for part in zip(*parts, strict=True)], axis=0) / len(reference)
    return lambda table: values(table) - (terms(table.energy_gev, table.theta_rad) - mean_terms) @ coefficients


def _labels(energy_gev: Labels, theta_rad: Labels) -> Array:
    return np.stack([np.log(energy_gev.astype(np.float64)), theta_rad.astype(np.float64)], axis=1)


def pulls(some: Observables, names: Collection[str]) -> Columns:
    """The scalars `names` (n, k), in the order of `SCALARS`, less their mean in `some` showers, over their width there.

    If energies are `wide` both are those at a shower's energy, and a pull beyond five widths counts as five: at the
    lowest energies a few odd showers would make up a correlation.
    """
    columns = [index for index, name in enumerate(SCALARS) if name in names]
    rounding = _ROUNDING * np.abs(some.scalars).max(axis=0)

    def away(table: Observables, mean: Array) -> Array:
        deviation = table.scalars - mean
        return np.where(np.abs(deviation) > rounding, deviation, 0.0)

    if wide(some.energy_gev):
        expected = AtEnergy.fitted(some.energy_gev, some.scalars)
        return lambda table: np.clip(
            away(table, expected.mean(table.energy_gev)) / expected.width(table.energy_gev), -_FARTHEST, _FARTHEST
        )[:, columns]
    centre = some.scalars.mean(axis=0)
    spread = np.maximum(some.scalars.std(axis=0), 1e-30)  # an observable that does not vary
    return lambda table: (away(table, centre) / spread)[:, columns]


def responses(own: Observables, reference: Observables) -> Columns:
    """The response E_vis/E (n, 1), whose width over its mean is the resolution.

    If energies are `wide`: one plus the deviation from the mean of the `own` set at a shower's energy, in units of the
    `reference`'s width there, so that every energy counts alike and the mean's rise or fall adds nothing.
    """
    if not wide(reference.energy_gev):
        return lambda table: table.column("response")[:, None]
    mean = AtEnergy.fitted(own.energy_gev, own.column("response")[:, None])
    expected = AtEnergy.fitted(reference.energy_gev, reference.column("response")[:, None])
    typical = float(np.exp(np.log(_relative_width(expected, reference.energy_gev)).mean()))

    def deviation(table: Observables) -> Array:
        away = table.column("response")[:, None] / mean.mean(table.energy_gev) - 1
        return 1 + away * typical / _relative_width(expected, table.energy_gev)

    return deviation


def _relative_width(expected: AtEnergy, energy_gev: npt.NDArray[Any]) -> Array:
    return expected.width(energy_gev) / expected.mean(energy_gev)
