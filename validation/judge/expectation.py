"""What Monte Carlo predicts for an observable at a shower's own energy and angle."""

from __future__ import annotations

import numpy as np

from validation.measure.edges import wide
from validation.measure.observables import Array, Columns, Observables
from validation.measure.table import SAMPLE_SHOWERS, Labels, Rows

_LABEL_FIT_EVENTS = 100  # the fit of six or eight numbers below must not follow the noise of the events it is fitted to


def corrected_for_labels(values: Columns, some: Observables, reference: Rows) -> Columns:
    """`values` (n, k) less what the labels of a table add to their mean in the reference.

    This removes differences that are due to the labels alone, and the noise of their spread; means of sets with the
    same labels stay as they are. The prediction is a surface of second degree in log E and theta, of
    fourth in log E where energies are `wide`, fitted to `some` showers of the reference; with few it is a constant.
    """
    labels = _labels(some.energy_gev, some.theta_rad)
    spread = labels.std(axis=0)
    centre, scale = labels.mean(axis=0), np.where(spread > 1e-6, spread, np.inf)  # a label that is the same for all
    fitted, decades = len(some) >= _LABEL_FIT_EVENTS, wide(some.energy_gev)

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
