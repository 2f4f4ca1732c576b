"""Labels that showers may have beside energy and polar angle: the azimuth of the incident particle, and its kind.

A particle of polar angle theta and azimuth phi moves along (sin theta sin phi, cos theta, sin theta cos phi) in x, y
and depth. Where a file has no phi, phi is 0: the particle moves in the plane of y and depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

PHI, PARTICLE = "phi_rad", "particle"
DATASETS = {PHI: "phi", PARTICLE: "pdg"}  # the datasets of HDF5 files

# Arrays (N,) by the name of the label: azimuths in float32, above -pi/2 and below pi/2 rad, and int32 codes of the
# Particle Data Group ("Monte Carlo particle numbering scheme"). A label that the showers do not have is left out.
MoreLabels = Mapping[str, npt.NDArray[Any]]
AllLabels = Mapping[str, npt.NDArray[Any]]  # the same, with `energy_gev` and `theta_rad`, float32


def taken(more: MoreLabels, index: Any) -> dict[str, npt.NDArray[Any]]:
    """The labels of the showers that a slice, an index array or a mask selects."""
    return {name: values[index] for name, values in more.items()}


@dataclass(frozen=True)
class LabelRange:
    """The labels that showers have, and their values: the least and the largest azimuth; all kinds, in rising order."""

    phi_rad: tuple[float, float] | None = None
    particle: tuple[int, ...] = ()

    @classmethod
    def of(cls, more: MoreLabels) -> LabelRange:
        phi, kinds = more.get(PHI, np.empty(0)), more.get(PARTICLE, np.empty(0, np.int32))
        return cls((float(phi.min()), float(phi.max())) if len(phi) else None, tuple(np.unique(kinds).tolist()))

    @classmethod
    def joined(cls, parts: Iterable[LabelRange]) -> LabelRange:
        """The range of all showers of the `parts`."""
        listed = list(parts)
        ends = [end for labels in listed for end in labels.phi_rad or ()]
        kinds = {kind for labels in listed for kind in labels.particle}
        return cls((min(ends), max(ends)) if ends else None, tuple(sorted(kinds)))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LabelRange:
        """The range that `to_json` wrote; the `document` may hold other entries too."""
        return cls(**{name: tuple(document[name]) for name in DATASETS if name in document})

    def to_json(self) -> dict[str, list[Any]]:
        """The values by the name of the label; labels that the showers do not have are left out."""
        return {name: list(values) for name in DATASETS if (values := getattr(self, name))}

    def difference(self, other: LabelRange) -> tuple[str, str] | None:
        """The labels and kinds here and in `other`, in words; None if they are the same."""
        if (self.names, self.particle) == (other.names, other.particle):
            return None
        own_labels, other_labels = (
            " and ".join(DATASETS[name] + f" {labels.particle}" * (name == PARTICLE) for name in labels.names)
            for labels in (self, other)
        )
        return own_labels or "neither phi nor pdg", other_labels or "neither phi nor pdg"

    @property
    def vary(self) -> bool:
        """Whether these labels differ among showers of one energy and polar angle."""
        return self.phi_rad is not None or len(self.particle) > 1

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.to_json())


NO_LABELS = LabelRange()  # beside energy and angle
