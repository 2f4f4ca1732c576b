"""The value that Monte Carlo predicts for an observable at the labels of a shower.

If the energies of a beam span more than a factor of three, an observable changes with E by more than it scatters, and
its mean or width over all showers would describe the beam. So polynomials in log E, fitted to a sample, predict the
mean and the width. A surface in log E and theta predicts what a difference of labels adds to a mean.
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
_ROUNDING = 1e-9  # a deviation below this share of the largest value counts as zero
_LEAST_EVENTS = 100  # for a fit: with fewer it would follow the noise, so one mean and one width are taken


@dataclass(frozen=True)
class AtEnergy:
    """Mean and standard deviation of columns (n, k) at an energy, fitted to showers."""

    _centre: float
    _scale: float
    _means: Array  # coefficients (degree + 1, k); the next two have this shape too
    _log_widths: Array
    _factors: Array

    @classmethod
    def fitted(cls, energy_gev: npt.NDArray[Any], values: Array) -> Self:
        """Fit `values` (n, k) of showers of `energy_gev` (n,).

        The width is a product. The first factor is the exponential of a fit to the logarithms of the deviations, which
        is never negative. The second factor is the root of a fit to the squares of the deviations in units of the
        first; it accounts for the tails.
        """
        log = _log(energy_gev)
        centre, scale = float(log.mean()), float(np.ptp(log)) or 1.0
        u, few = (log - centre) / scale, len(log) < _LEAST_EVENTS
        degrees = (0, 0) if few else (_MEAN_DEGREE, _WIDTH_DEGREE)
        weights = np.ones_like(values)
        for _ in range(2):  # the mean is fitted again when the width, and so the weight, at each energy is known
            means = np.column_stack([_fit(u, *pair, degrees[0]) for pair in zip(values.T, weights.T, strict=True)])
            away = np.abs(values - _values(u, means))
            # A deviation is at least a millionth of the width, and a column that does not vary has a width above 0.
            least = np.maximum(1e-6 * away.std(axis=0), 1e-9 * np.abs(values).max(axis=0) + 1e-30)
            logs = _fit(u, np.log(np.maximum(away, least)), np.ones_like(u), degrees[1])
            weights = np.exp(-_values(u, logs))
        squares = (np.maximum(away, least) / np.exp(_values(u, logs))) ** 2
        return cls(centre, scale, means, logs, _fit(u, squares, np.ones_like(u), degrees[1]))

    def mean(self, energy_gev: npt.NDArray[Any]) -> Array:
        """The mean of each column at these energies, (n, k)."""
        return _values(self._at(energy_gev), self._means)

    def width(self, energy_gev: npt.NDArray[Any]) -> Array:
        """The standard deviation of each column at these energies, (n, k)."""
        u = self._at(energy_gev)
        return np.exp(_values(u, self._log_widths)) * np.sqrt(np.maximum(_values(u, self._factors), 1.0))

    def _at(self, energy_gev: npt.NDArray[Any]) -> Array:
        return (_log(energy_gev) - self._centre) / self._scale


def _log(energy_gev: npt.NDArray[Any]) -> Array:
    return np.log(np.asarray(energy_gev, dtype=np.float64))


def _fit(u: Array, values: Array, weights: Array, degree: int) -> Array:
    determined = min(degree, len(np.unique(u)) - 1)  # a beam of few energies determines no higher degree
    return np.asarray(np.polynomial.polynomial.polyfit(u, values, determined, w=weights), dtype=np.float64)


def _values(u: Array, coefficients: Array) -> Array:
    return np.asarray(np.polynomial.polynomial.polyval(u, coefficients), dtype=np.float64).T


def corrected_for_labels(values: Columns, sample: Observables, reference: Rows) -> Columns:
    """`values` (n, k) less what the labels of a shower add to the mean in the reference.

    This removes differences that are due to the labels alone, and the noise from the spread of labels. Differences of
    means between sets with the same labels stay the same. The prediction is a surface of second degree in log E and
    theta, of fourth degree in log E if energies are `wide`. It is fitted to a `sample` of the reference; with few
    showers it is a constant.
    """
    labels = _labels(sample.energy_gev, sample.theta_rad)
    spread = labels.std(axis=0)
    centre, scale = labels.mean(axis=0), np.where(spread > 1e-6, spread, np.inf)  # a label that is the same for all
    fitted, decades = len(sample) >= _LEAST_EVENTS, wide(sample.energy_gev)

    def terms(energy_gev: Labels, theta_rad: Labels) -> Array:
        u, v = ((_labels(energy_gev, theta_rad) - centre) / scale).T
        surface = [np.ones_like(u), u, v, u * u, u * v, v * v, *((u**3, u**4) if decades else ())]
        return np.stack(surface if fitted else surface[:1], axis=1)

    coefficients = np.linalg.lstsq(terms(sample.energy_gev, sample.theta_rad), values(sample), rcond=None)[0]
    pieces = max(len(reference) // SAMPLE_SHOWERS, 1)  # so that memory does not grow with the number of showers
    parts = (np.array_split(column, pieces) for column in (reference.energy_gev, reference.theta_rad))
    mean_terms = np.sum([terms(*part).sum(axis=0) for part in zip(*parts, strict=True)], axis=0) / len(reference)
    return lambda table: values(table) - (terms(table.energy_gev, table.theta_rad) - mean_terms) @ coefficients


def _labels(energy_gev: Labels, theta_rad: Labels) -> Array:
    return np.stack([np.log(energy_gev.astype(np.float64)), theta_rad.astype(np.float64)], axis=1)


def pulls(sample: Observables, names: Collection[str]) -> Columns:
    """The scalars `names` (n, k), in the order of `SCALARS`, less their mean, over their width, both of the `sample`.

    If energies are `wide`, mean and width are those at a shower's energy, and a pull beyond five widths counts as five:
    otherwise a few odd showers at the lowest energies would decide a correlation.
    """
    columns = [index for index, name in enumerate(SCALARS) if name in names]
    rounding = _ROUNDING * np.abs(sample.scalars).max(axis=0)

    def away(table: Observables, mean: Array) -> Array:
        deviation = table.scalars - mean
        return np.where(np.abs(deviation) > rounding, deviation, 0.0)

    if wide(sample.energy_gev):
        expected = AtEnergy.fitted(sample.energy_gev, sample.scalars)
        return lambda table: np.clip(
            away(table, expected.mean(table.energy_gev)) / expected.width(table.energy_gev), -_FARTHEST, _FARTHEST
        )[:, columns]
    centre = sample.scalars.mean(axis=0)
    spread = np.maximum(sample.scalars.std(axis=0), 1e-30)  # an observable that does not vary
    return lambda table: (away(table, centre) / spread)[:, columns]


def responses(own: Observables, reference: Observables) -> Columns:
    """The response E_vis/E (n, 1); its width over its mean is the resolution.

    If energies are `wide`, it is one plus the deviation from the mean of the `own` set at a shower's energy, in units
    of the `reference`'s width there. So every energy counts alike, and a change of the mean with energy adds nothing.
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
