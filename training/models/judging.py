"""How generated showers are judged during training: the metric and the energy sum, beside Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from calopipe.showers.cells import REFERENCE_UNIT_GEV, Geometry
from calopipe.showers.metric import LEAST_EVENTS, MetricBin, Profiles, metric
from training.models.base import Judge, Rows

# Of the energy, that a slice of a profile must hold to count in the metric. Those at the edges hold 0.5 % of it all
# together, and their relative errors would be 99.9 % of the figure.
_LEAST_SHARE = 1e-3


class ShowerJudge(Judge):
    """Compares generated showers with Monte Carlo showers of the same labels, of which there are `showers` in all."""

    def __init__(self, showers: int, geometry: Geometry) -> None:
        self._geometry = replace(geometry, file_unit_gev=REFERENCE_UNIT_GEV)
        # empty showers do not count in the metric; half of them may be empty
        self._least = LEAST_EVENTS // 2 if enough(showers) else LEAST_EVENTS

    def add(self, batch: Mapping[str, Any], made: Any) -> Rows:
        cells, labels = batch["cells"].numpy(), (batch["energy_gev"].numpy(), batch["theta_rad"].numpy())
        generated = made.numpy().astype(np.float32)
        if generated.shape != cells.shape:
            raise InputError(f"the model made showers of shape {generated.shape}, expected {cells.shape}")
        return np.hstack([Profiles.of(showers, *labels, self._geometry).rows() for showers in (cells, generated)])

    def found(self, rows: Rows) -> dict[str, Any]:
        """`metric` as `calopipe.showers.metric` gives it; `energy_sum`, the mean visible energy over Monte Carlo's."""
        reference, generated = (Profiles.of_rows(half, self._geometry.shape) for half in np.hsplit(rows, 2))
        bins = selection_bins(reference.energy_gev, reference.theta_rad)
        return {
            "metric": metric(reference, generated, bins=bins, least_events=self._least, least_share=_LEAST_SHARE),
            "energy_sum": float(generated.along[2].sum() / reference.along[2].sum()),
        }


def enough(showers: int) -> bool:
    """Whether a split of so many `showers` has a metric that can choose among epochs."""
    return showers >= LEAST_EVENTS


def selection_bins(energy_gev: npt.NDArray[Any], theta_rad: npt.NDArray[Any]) -> list[MetricBin]:
    """Bins of energy and angle for the metric, as fine as the number of showers allows: 3 x 3, 3 x 1, or one of all.

    The reference's bins, a tenth of the energies and a hundredth of the angles wide, are for tens of thousands of
    showers. These are of equal widths, and each of a finer grid must hold `LEAST_EVENTS` showers.
    """
    for energies, angles in ((3, 3), (3, 1)):
        bins = [
            MetricBin(energy, theta, energy_reach_gev=energy_reach, theta_reach_rad=theta_reach)
            for energy, energy_reach in _grid(energy_gev, energies)
            for theta, theta_reach in _grid(theta_rad, angles)
        ]
        if min(np.sum(metric_bin.holds(energy_gev, theta_rad)) for metric_bin in bins) >= LEAST_EVENTS:
            return bins
    return [MetricBin(0.0, 0.0, energy_reach_gev=math.inf, theta_reach_rad=math.inf)]


def _grid(values: npt.NDArray[Any], cells: int) -> Iterator[tuple[float, float]]:
    """Middle and reach of each of `cells` equal parts of the range of `values`."""
    low, width = float(values.min()), float(np.ptp(values)) / cells
    reach = width / 2 * (1 + 1e-6)  # labels are float32, and the ends belong to a bin
    return ((low + width * (number + 0.5), reach) for number in range(cells))
