"""The resolution of a calorimeter, sigma/E = a/sqrt(E) (+) b/E (+) c (Particle Data Group, Review of Particle Physics,
"Particle detectors at accelerators", calorimeters): stochastic, noise and constant term, added in quadrature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.optimize import curve_fit

from calopipe.showers.cells import Array
from validation.measure.observables import Observables

_LEAST_FACTOR = 3.0  # the energies must span this factor to tell a/sqrt(E) from c
_NOISE_FACTOR = 10.0  # the energies must span this factor to tell b/E from a/sqrt(E)
_LEAST_EVENTS = 50  # in a bin: the width of the response is then known to 10 %
_BINS_PER_DECADE, _MOST_BINS = 8, 40


def energy_edges(low: float, high: float, events: int) -> Array:
    """Edges of narrow bins, equal in log E, each with enough of `events` showers if these are log-uniform."""
    wanted = math.ceil(_BINS_PER_DECADE * math.log10(high / low)) if high > low else 1
    count = int(np.clip(wanted, 1, max(min(_MOST_BINS, events // (2 * _LEAST_EVENTS)), 1)))
    return np.geomspace(low * (1 - 1e-6), high * (1 + 1e-6), count + 1)


@dataclass(frozen=True)
class Resolutions:
    """For each bin of energy with enough showers: 1 over the mean of 1/E, the width of the response E_vis/E over its
    mean, and the relative standard error of the width.
    """

    energy_gev: Array
    width: Array
    width_error: Array

    @classmethod
    def of(cls, table: Observables, edges: Array) -> Self:
        """The widths in bins between `edges` in which the response varies. Errors allow for the response's tails."""
        place, response = np.digitize(table.energy_gev, edges[1:-1]), table.column("response")
        every = (np.flatnonzero(place == k) for k in range(len(edges) - 1))
        chosen = [rows for rows in every if len(rows) >= _LEAST_EVENTS and np.ptp(response[rows]) > 0]
        energy = [1 / np.mean(1 / table.energy_gev[rows]) for rows in chosen]
        bins = [response[rows] for rows in chosen]
        count, width = np.array([*map(len, bins)]), np.array([values.std(ddof=1) / values.mean() for values in bins])
        # mean over the bins, as a fourth moment is not well known in one bin
        tails = np.average([*map(_kurtosis, bins)], weights=count) if bins else 3.0
        return cls(np.array(energy), width, np.sqrt((tails - 1) / (4 * count)))

    def fit(self, factor: float) -> dict[str, Any]:
        """a, b and c, none below zero, with standard errors, for energies that span this `factor`.

        Least squares of the logarithms of the widths, in a², b² and c². If the widths scatter about the law by more
        than their errors, the errors of the terms grow in proportion. If the square of a term is not above its error,
        the error of the term is the root of that error. b is zero below a factor of ten. `reason` says why there is no
        fit.
        """
        names = ("a", "b", "c") if factor >= _NOISE_FACTOR else ("a", "c")
        reason = ""
        if factor < _LEAST_FACTOR:
            reason = f"The energies span a factor of {factor:.3g}; a fit needs {_LEAST_FACTOR:g}."
        elif len(self.width) <= len(names):
            bins = f"Bins with {_LEAST_EVENTS} showers whose response varies"
            reason = f"{bins}: {len(self.width)}; a fit needs more than {len(names)}."
        if reason:
            return {"reason": reason, "terms": {}, "chi2_per_dof": None}
        terms = np.stack([self.energy_gev ** {"a": -1.0, "b": -2.0, "c": 0.0}[name] for name in names])

        def law(_energy: Array, *squares: float) -> Array:
            return np.log(squares @ terms) / 2

        squares, covariance = curve_fit(
            law, self.energy_gev, np.log(self.width), (self.width**2 / terms).min(axis=1), sigma=self.width_error,
            absolute_sigma=True, bounds=(0, np.inf), x_scale="jac",
        )  # fmt: skip
        away = (np.log(self.width) - law(self.energy_gev, *squares)) / self.width_error
        per_dof = float(away @ away) / (len(away) - len(names))
        errors = np.sqrt(np.diag(covariance) * max(per_dof, 1.0))
        described = {}
        for name, square, error in zip(names, squares.tolist(), errors.tolist(), strict=True):
            value = math.sqrt(square)
            described[name] = {"value": value, "error": error / (2 * value) if square > error else math.sqrt(error)}
        return {"reason": "", "terms": described, "chi2_per_dof": per_dof}


def curve(fit: dict[str, Any], energy_gev: npt.NDArray[Any]) -> Array:
    """sigma/E of a fit at these energies."""
    a, b, c = (fit["terms"].get(name, {"value": 0.0})["value"] for name in "abc")
    return np.sqrt(a**2 / energy_gev + (b / energy_gev) ** 2 + c**2)


def _kurtosis(values: Array) -> float:
    """The fourth moment over the squared variance, 3 for normal values; at least 1.1, so that errors are not zero."""
    return max(float(stats.kurtosis(values, fisher=False)), 1.1)
