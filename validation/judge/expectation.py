"""What Monte Carlo predicts for an observable at a shower's own energy and angle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from validation.measure.observables import Array, Observables
from validation.measure.table import SAMPLE_SHOWERS, Labels, Rows

_LABEL_FIT_EVENTS = 100  # the fit of six numbers below must not follow the noise of the events it is fitted to


@dataclass(frozen=True)
class Expectation:
    """The mean of an observable in Monte Carlo as a function of log E and theta, of second degree.

    Subtracting it removes differences that are due to the labels alone, and the noise of their spread; means of sets
    with the same labels stay as they are. With few events it is a constant.
    """

    values: Callable[[Observables], Array]
    centre: tuple[Array, Array]
    mean_terms: npt.NDArray[Any]
    coefficients: npt.NDArray[Any]

    @classmethod
    def of(cls, some: Observables, reference: Rows, values: Callable[[Observables], Array]) -> Expectation:
        """Fitted to `some` showers of the reference."""
        labels = _labels(some.energy_gev, some.theta_rad)
        spread = labels.std(axis=0)
        centre = labels.mean(axis=0), np.where(spread > 1e-6, spread, np.inf)  # a label that is the same for all
        fitted = len(some) >= _LABEL_FIT_EVENTS
        coefficients = np.linalg.lstsq(_terms(labels, centre, fitted), values(some), rcond=None)[0]
        sums = [
            _terms(_labels(energy, theta), centre, fitted).sum(axis=0)
            for energy, theta in zip(_parts(reference.energy_gev), _parts(reference.theta_rad), strict=True)
        ]
        return cls(values, centre, np.sum(sums, axis=0) / len(reference), coefficients)

    def take_out(self, table: Observables) -> Array:
        """The observable less what the labels add to the mean of the reference, (n, k)."""
        terms = _terms(_labels(table.energy_gev, table.theta_rad), self.centre, len(self.coefficients) > 1)
        return self.values(table) - (terms - self.mean_terms) @ self.coefficients


def _parts(labels: Labels) -> list[Labels]:
    """Few at a time, so that memory does not grow with the number of showers."""
    return np.array_split(labels, max(len(labels) // SAMPLE_SHOWERS, 1))


def _labels(energy_gev: Labels, theta_rad: Labels) -> Array:
    return np.stack([np.log(energy_gev.astype(np.float64)), theta_rad.astype(np.float64)], axis=1)


def _terms(labels: Array, centre: tuple[Array, Array], fitted: bool) -> Array:
    u, v = ((labels - centre[0]) / centre[1]).T
    terms = [np.ones_like(u), u, v, u * u, u * v, v * v]
    return np.stack(terms if fitted else terms[:1], axis=1)
