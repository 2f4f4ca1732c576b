"""The reference's single figure of merit, P + E + A, for comparison with published numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.showers.angle import angle_of_cells
from calopipe.showers.cells import Array, FloatArray, Geometry

# Geant4 against itself gives 0.14 +- 0.03 with 500 showers a side in a bin, 0.09 with 1,000 and 0.28 +- 0.09 with 200:
# E is a mean of relative errors, and most of these come from cells far from the shower, which hold almost no energy.
LEAST_EVENTS = 500


@dataclass(frozen=True)
class MetricBin:
    """The showers whose energy and angle are near these values; with infinite reaches, all showers."""

    energy_gev: float
    theta_rad: float
    energy_reach_gev: float = 5.0
    theta_reach_rad: float = 0.1

    def holds(self, energy_gev: npt.NDArray[Any], theta_rad: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Whether each shower with these labels (N,) is in the bin, (N,)."""
        return (np.abs(energy_gev - self.energy_gev) <= self.energy_reach_gev) & (
            np.abs(theta_rad - self.theta_rad) <= self.theta_reach_rad
        )


REFERENCE_BINS = tuple(
    MetricBin(energy, math.radians(degrees)) for energy in (110.0, 150.0, 190.0) for degrees in (62.0, 90.0, 118.0)
)


@dataclass(frozen=True)
class Profiles:
    """The input of the metric: `along` x, y and the layers, each (N, bins), and the measured angle (N,), rad.

    Energies are in any unit, the same for both sets. Places are in units of the index; cells in rings have angle and
    radius in place of x and y. `calopipe.showers.angle.angle_of_hits` defines the angle.
    """

    energy_gev: npt.NDArray[Any]
    theta_rad: npt.NDArray[Any]
    along: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
    angle_rad: npt.NDArray[Any]

    def __getitem__(self, chosen: npt.NDArray[np.bool_]) -> Profiles:
        """The showers that a mask (N,) selects."""
        along = self.along[0][chosen], self.along[1][chosen], self.along[2][chosen]
        return Profiles(self.energy_gev[chosen], self.theta_rad[chosen], along, self.angle_rad[chosen])

    def rows(self) -> Array:
        """All values in one array (N, numbers), float64."""
        return np.column_stack((self.energy_gev, self.theta_rad, *self.along, self.angle_rad)).astype(np.float64)

    @classmethod
    def of_rows(cls, rows: Array, shape: tuple[int, int, int]) -> Profiles:
        """The profiles whose `rows` these are, for `shape` cells (x, y, layers); the labels are float32 again."""
        energy, theta, x, y, layers, angle = np.split(rows, np.cumsum((1, 1, *shape)), axis=1)
        return cls(energy[:, 0].astype(np.float32), theta[:, 0].astype(np.float32), (x, y, layers), angle[:, 0])

    @classmethod
    def of(
        cls, cells: FloatArray, energy_gev: npt.NDArray[Any], theta_rad: npt.NDArray[Any], geometry: Geometry
    ) -> Profiles:
        """Profiles of showers `cells` (N, x, y, layer)."""
        in_x = cells.sum(axis=2, dtype=np.float64)
        along = in_x.sum(axis=2), cells.sum(axis=(1, 3), dtype=np.float64), in_x.sum(axis=1)
        return cls(energy_gev, theta_rad, along, angle_of_cells(cells, geometry))


def metric(
    reference: Profiles,
    candidate: Profiles,
    *,
    bins: Sequence[MetricBin] = REFERENCE_BINS,
    least_events: int = LEAST_EVENTS,
    least_share: float = 0.0,
) -> dict[str, Any]:
    """P + E + A, the mean over bins of energy and angle (`metric`, svalleco/3Dgan, which adds P twice).

    Each part is a mean relative error in a bin, the absolute difference over the reference's value: P of the first and
    the second central moments of the showers along x, y and the layers, E of the mean profiles, A of the mean measured
    angle. E leaves out the slices in which the reference's profile holds nothing, or less than `least_share` of its
    energy: slices far from the shower hold almost none, and their errors are noise.

    Returns `value`, its parts `position`, `profile` and `angle`, and for each of `bins` the value and the numbers of
    showers. The value of a bin is None if either set has fewer than `least_events` showers with energy there; then the
    whole value is None, too. With fewer showers the figure is larger, also for a perfect candidate: compare figures of
    equally many showers.
    """
    of_bins, described = [], []
    for chosen in bins:
        of_reference, of_candidate = (
            showers[chosen.holds(showers.energy_gev, showers.theta_rad) & (showers.along[2].sum(axis=1) > 0)]
            for showers in (reference, candidate)
        )
        counts = len(of_reference.energy_gev), len(of_candidate.energy_gev)
        parts = _parts(of_reference, of_candidate, least_share) if min(counts) >= max(least_events, 1) else None
        of_bins.append(parts)
        described.append(
            {
                "energy_gev": chosen.energy_gev,
                "theta_deg": round(math.degrees(chosen.theta_rad), 6),
                "reference": counts[0],
                "candidate": counts[1],
                "value": None if parts is None else sum(parts),
            }
        )
    figures = [parts for parts in of_bins if parts is not None]
    means = np.mean(figures, axis=0).tolist() if len(figures) == len(of_bins) else None
    names = ("position", "profile", "angle")
    return {
        "value": None if means is None else sum(means),
        **dict(zip(names, means or (None, None, None), strict=True)),
        "events_needed": least_events,
        "bins": described,
    }


def _parts(reference: Profiles, candidate: Profiles, least_share: float) -> tuple[float, float, float]:
    position, profile = [], []
    for along in zip(reference.along, candidate.along, strict=True):
        real, fake = (profiles.astype(np.float64) for profiles in along)
        position += [_error(a, b) for a, b in zip(_moments(real), _moments(fake), strict=True)]
        expected, generated = real.mean(axis=0), fake.mean(axis=0)
        filled = (expected > 0) & (expected >= least_share * expected.sum())
        profile.append(float(np.mean(np.abs(generated[filled] - expected[filled]) / expected[filled])))
    angle = _error(float(reference.angle_rad.mean()), float(candidate.angle_rad.mean()))
    return float(np.mean(position)), float(np.mean(profile)), angle


def _moments(profile: Array) -> tuple[float, float]:
    """Means over showers of the first moment and of the second central moment of `profile` (N, bins)."""
    place = np.arange(profile.shape[1])
    total = profile.sum(axis=1)
    first = profile @ place / total
    second = (profile * (place - first[:, None]) ** 2).sum(axis=1) / total
    return float(first.mean()), float(second.mean())


def _error(expected: float, value: float) -> float:
    """|value - expected| / |expected|; if `expected` is 0, it is 0 for a `value` of 0 and 1 for any other."""
    if expected == 0:
        return float(value != 0)
    return abs(value - expected) / abs(expected)
