"""The resolution of a calorimeter, sigma/E = a/sqrt(E) (+) b/E (+) c (Particle Data Group, Review of Particle Physics,
"Particle detectors at accelerators", calorimeters): stochastic, noise and constant term, added in quadrature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from validation.measure.observables import Array, Observables

_LEAST_FACTOR = 3.0  # of the energies, to tell a/sqrt(E) from c
_NOISE_FACTOR = 10.0  # to tell b/E from a/sqrt(E)
_ROUNDS = 10  # of the fit, with the weights of the one before
_LEAST_EVENTS = 50  # in a bin: its width is then known to 10 %
_BINS_PER_DECADE, _MOST_BINS = 8, 40
TERMS = {"a": "sqrt(GeV)", "b": "GeV", "c": ""}


def energy_edges(low: float, high: float, events: int) -> Array:
    """Edges of narrow bins, equal in log E, each with enough of `events` showers if these are log-uniform."""
    wanted = math.ceil(_BINS_PER_DECADE * math.log10(high / low)) if high > low else 1
    count = int(np.clip(wanted, 1, max(min(_MOST_BINS, events // (2 * _LEAST_EVENTS)), 1)))
    return np.geomspace(low * (1 - 1e-6), high * (1 + 1e-6), count + 1)


class ByEnergy:
    """Sums over the showers in bins of energy, piece by piece: what the response and its width are computed from."""

    def __init__(self, edges: Array) -> None:
        self._edges, self._sums = edges, np.zeros((8, len(edges) - 1))

    def add(self, piece: Observables) -> None:
        energy, response = piece.energy_gev.astype(np.float64), piece.column("response")
        bins = len(self._edges) - 1
        place = (np.searchsorted(self._edges, energy, side="right") - 1).clip(0, bins - 1)
        # A squared deviation from one keeps its digits.
        values = np.ones_like(energy), energy, 1 / energy, energy**-2, *(response - 1) ** np.arange(1, 5)[:, None]
        self._sums += [np.bincount(place, each, bins) for each in values]

    def found(self) -> Resolutions:
        chosen = self._sums[0] >= _LEAST_EVENTS
        count, *sums = self._sums[:, chosen]
        energy, inverse, square, shift, *powers = (each / count for each in sums)
        variance = np.maximum(powers[0] - shift**2, 0)
        fourth = powers[2] - 4 * shift * powers[1] + 6 * shift**2 * powers[0] - 3 * shift**4
        tails = np.maximum(fourth / np.where(variance > 0, 3 * variance**2, np.inf), 1 / 3)
        return Resolutions(
            count, energy, inverse, square, 1 + shift, variance * count / (count - 1), _smoothed(tails, count)
        )


@dataclass(frozen=True)
class Resolutions:
    """Of each bin with enough showers: their number, the means of E, 1/E, 1/E² and of the response E_vis/E, and the
    variance of the response. `tails`: its fourth moment over that of a normal distribution, of five bins together.
    """

    count: Array
    energy_gev: Array
    inverse: Array
    square: Array
    response: Array
    variance: Array
    tails: Array

    @property
    def _relative_error(self) -> Array:
        """Of the variances: of normal values sqrt(2 / (n - 1)), of others more."""
        error: Array = np.sqrt((3 * self.tails - 1) / np.maximum(self.count - 1, 1)).clip(1e-3)
        return error

    @property
    def width(self) -> tuple[Array, Array]:
        """sigma/E, relative to the mean response, and its standard error."""
        width: Array = np.sqrt(self.variance) / self.response
        return width, width * self._relative_error / 2

    def fit(self, factor: float) -> dict[str, Any]:
        """a, b and c, none below zero, with standard errors, for energies that span so large a `factor`.

        Weighted least squares of the squared widths, which are linear in a², b² and c², with the errors of the fitted
        widths; where these scatter about the law by more than their errors, those of the terms grow as much. The error
        of a term that is zero is the value that its square's error would give. Without b (zero) below a factor of ten;
        `reason` says why there is no fit.
        """
        names = ("a", "b", "c") if factor >= _NOISE_FACTOR else ("a", "c")
        reason = ""
        if factor < _LEAST_FACTOR:
            reason = f"The energies span a factor of {factor:.3g}; a fit needs {_LEAST_FACTOR:g}."
        elif len(self.count) <= len(names):
            reason = f"Bins with {_LEAST_EVENTS} showers: {len(self.count)}; a fit needs more than {len(names)}."
        if reason:
            return {"reason": reason, "terms": {}, "chi2_per_dof": None}
        squares = self.width[0] ** 2
        terms = np.stack([{"a": self.inverse, "b": self.square, "c": np.ones_like(squares)}[name] for name in names], 1)
        found, errors, chi2 = _least_squares(terms, squares, self._relative_error)
        per_dof = chi2 / (len(squares) - len(names))
        errors *= math.sqrt(max(per_dof, 1.0))
        described = {}
        for name, value, error in zip(names, np.sqrt(found), errors, strict=True):
            of_root = error / (2 * value) if value**2 > error else math.sqrt(error)
            described[name] = {"value": float(value), "error": float(of_root)}
        return {"reason": "", "terms": described, "chi2_per_dof": per_dof}


def curve(fit: dict[str, Any], energy_gev: npt.NDArray[Any]) -> Array:
    """sigma/E of a fit at these energies."""
    a, b, c = (fit["terms"].get(name, {"value": 0.0})["value"] for name in TERMS)
    found: Array = np.sqrt(a**2 / energy_gev + (b / energy_gev) ** 2 + c**2)
    return found


def _smoothed(values: Array, count: Array) -> Array:
    """Means over each bin and the two to either side, by their showers: a fourth moment is known poorly in one."""
    window = np.abs(np.subtract.outer(np.arange(len(values)), np.arange(len(values)))) <= 2
    mean: Array = (window @ (values * count)) / (window @ count)
    return mean


def _least_squares(terms: Array, squares: Array, relative: Array) -> tuple[Array, Array, float]:
    """Coefficients (k,) of no less than zero of the `terms` (bins, k), their standard errors, and chi².

    The errors of the squares, `relative`, are taken of the fit: a bin that came out low by chance would weigh too much.
    Errors of the coefficients are those without the bounds.
    """
    expected = squares
    for _ in range(_ROUNDS):
        error = np.maximum(expected, 1e-12 * squares.max() + 1e-300) * relative
        scale = 1 / np.abs(terms / error[:, None]).max(axis=0)
        design = terms / error[:, None] * scale
        found = nnls(design, squares / error)[0]
        expected = terms @ (found * scale)
    covariance = np.linalg.pinv(design.T @ design)
    chi2 = float((((squares - expected) / error) ** 2).sum())
    return found * scale, np.sqrt(np.diag(covariance)) * scale, chi2
