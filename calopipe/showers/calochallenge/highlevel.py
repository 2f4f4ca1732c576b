"""The high-level features of CaloChallenge, the input of its histograms, FPD, KPD and high-level classifier.

HighLevelFeatures.py and evaluate.py of the public repository CaloChallenge/homepage (arXiv 2410.21611) define them, for
cells in rings. The challenge calls the directions across the beam eta and phi; here they are x and y, in mm.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from calopipe.showers.cells import Array, FloatArray, Geometry
from calopipe.showers.positions import positions

_MEV = 1e3  # in a GeV
_NOTHING = 1e-16  # added to an energy in a denominator, as published: the centre of an empty layer is 0
_LEAST_MEV = 1e-8  # added to an energy whose logarithm is taken, as published
_SCALE_MM = 100.0  # unit of lengths in the vector of features


@dataclass(frozen=True)
class HighLevel:
    """High-level features of N showers. Energies in MeV, lengths in mm, all in double precision.

    (N,): `incident_mev`; `total_mev`, the energy in all cells. (N, layers): `layer_mev`; `sparsity`, the share of empty
    cells; centre and width in radius. (N, layers with more than one angle): centres `x_mm` and `y_mm`, and their
    widths. A width is the standard deviation of the distribution of energy.
    """

    incident_mev: Array
    total_mev: Array
    layer_mev: Array
    sparsity: Array
    x_mm: Array
    y_mm: Array
    x_width_mm: Array
    y_width_mm: Array
    r_mm: Array
    r_width_mm: Array

    def __getitem__(self, rows: Any) -> HighLevel:
        """The showers that a slice, an index array or a mask selects."""
        return HighLevel(*(getattr(self, field.name)[rows] for field in fields(self)))

    def vector(self) -> Array:
        """The features as classifier, FPD and KPD take them, (N, 2 + 4 layers + 4 layers with angles).

        Decimal logarithms of energies in MeV, lengths in units of 100 mm, the sparsity: 362 numbers in dataset 2.
        """
        lengths = np.concatenate([self.x_mm, self.y_mm, self.x_width_mm, self.y_width_mm], axis=1) / _SCALE_MM
        radial = np.concatenate([self.r_mm, self.r_width_mm], axis=1) / _SCALE_MM
        return np.concatenate(
            [
                np.log10(self.incident_mev)[:, None], np.log10(self.layer_mev + _LEAST_MEV), lengths,
                np.log10(self.total_mev + _LEAST_MEV)[:, None], self.sparsity, radial,
            ],
            axis=1,
        )  # fmt: skip


def require_rings(geometry: Geometry) -> None:
    """Raise InputError unless the cells are in rings."""
    if not geometry.rings:
        raise InputError(
            "CaloChallenge's features are for cells in rings, and this calorimeter's are rectangular; leave them out"
        )


def layers_with_angles(geometry: Geometry) -> npt.NDArray[np.intp]:
    """The layers whose rings are divided in angle. In a layer of undivided rings, the centre is always the axis."""
    return np.flatnonzero([layer.cells[0] > 1 for layer in geometry.layers])


def high_level(cells: FloatArray, energy_gev: FloatArray, geometry: Geometry) -> HighLevel:
    """The features of showers `cells` (N, angle, radius, layer), in file units, of incident `energy_gev` (N,).

    InputError: cells that are not in rings.
    """
    require_rings(geometry)
    place = positions(geometry)
    layers = geometry.shape[2]
    deposits = cells.reshape(len(cells), -1, layers).astype(np.float64) * (geometry.file_unit_gev * _MEV)
    energy = deposits.sum(axis=1)
    angles = layers_with_angles(geometry)

    def moments(distance: Array, chosen: npt.NDArray[np.intp]) -> tuple[Array, Array]:
        """Mean and width of a distance (layers, places) in the chosen layers."""
        distances, weights = np.nan_to_num(distance[chosen].T), deposits[:, :, chosen]
        norm = energy[:, chosen] + _NOTHING
        mean, square = (np.einsum("npl,pl->nl", weights, power) / norm for power in (distances, distances**2))
        return mean, np.sqrt(np.maximum(square - mean**2, 0))

    (x, x_width), (y, y_width) = moments(place.x_mm, angles), moments(place.y_mm, angles)
    r, r_width = moments(place.r_mm, np.arange(layers))
    return HighLevel(
        incident_mev=energy_gev.astype(np.float64) * _MEV,
        total_mev=energy.sum(axis=1),
        layer_mev=energy,
        sparsity=1 - (deposits > 0).sum(axis=1) / place.exists.sum(axis=1),
        x_mm=x, y_mm=y, x_width_mm=x_width, y_width_mm=y_width, r_mm=r, r_width_mm=r_width,
    )  # fmt: skip
