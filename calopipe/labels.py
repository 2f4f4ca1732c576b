"""Labels that showers may have beside energy and polar angle: the azimuth of the incident particle, and its kind.

A particle of polar angle theta and azimuth phi moves along (sin theta sin phi, cos theta, sin theta cos phi): along x,
y and into the depth. So it moves in the plane of y and depth where there is no phi, which is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

PHI, PARTICLE = "phi_rad", "particle"
DATASETS = {PHI: "phi", PARTICLE: "pdg"}  # the datasets of HDF5 files

# By name of the label, one number a shower each, (N,): float32 rad above -pi/2 and below pi/2, and int32 codes of the
# Particle Data Group ("Monte Carlo particle numbering scheme"). A label that the showers do not have is left out.
MoreLabels = Mapping[str, npt.NDArray[Any]]
AllLabels = Mapping[str, npt.NDArray[Any]]  # and beside them `energy_gev` and `theta_rad`, float32


def taken(more: MoreLabels, index: Any) -> dict[str, npt.NDArray[Any]]:
    """The labels of the showers that a slice, an index array or a mask selects."""
    return {name: values[index] for name, values in more.items()}


@dataclass(frozen=True)
class LabelRange:
    """Which of these labels showers have, and within what: the least and the largest azimuth; all kinds, rising."""

    phi_rad: tuple[float, float] | None = None
    particle: tuple[int, ...] = ()

    @classmethod
    def of(cls, more: MoreLabels) -> LabelRange:
        phi, kinds = more.get(PHI, np.empty(0)), more.get(PARTICLE, np.empty(0, np.int32))
        return cls((float(phi.min()), float(phi.max())) if len(phi) else None, tuple(np.unique(kinds).tolist()))

    @classmethod
    def joined(cls, parts: Iterable[LabelRange]) -> LabelRange:
        """That of all showers of the `parts`."""
        listed = list(parts)
        ends = [end for labels in listed for end in labels.phi_rad or ()]
        kinds = {kind for labels in listed for kind in labels.particle}
        return cls((min(ends), max(ends)) if ends else None, tuple(sorted(kinds)))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LabelRange:
        """What `to_json` gave, among other things."""
        return cls(**{name: tuple(document[name]) for name in DATASETS if name in document})

    def to_json(self) -> dict[str, list[Any]]:
        """By name of the label, of those that there are."""
        return {name: list(values) for name in DATASETS if (values := getattr(self, name))}

    def difference(self, other: LabelRange) -> tuple[str, str] | None:
        """The labels and kinds here and those in `other`, in words, where they are not the same; else None."""
        if (self.names, self.particle) == (other.names, other.particle):
            return None
        here, there = (
            " and ".join(DATASETS[name] + f" {labels.particle}" * (name == PARTICLE) for name in labels.names)
            for labels in (self, other)
        )
        return here or "neither phi nor pdg", there or "neither phi nor pdg"

    @property
    def vary(self) -> bool:
        """Whether showers of one energy and polar angle differ by them."""
        return self.phi_rad is not None or len(self.particle) > 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.to_json())


NO_LABELS = LabelRange()  # beside energy and angle
