"""The observables of each shower, from its cells, in physical units. The means of an empty shower are NaN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import HIT_GEV, Array, FloatArray, Geometry, Mask
from calopipe.showers.hits import Hits
from calopipe.showers.positions import positions
from validation.measure.continuity import continuity
from validation.measure.deposits import Deposits, divided, moments
from validation.measure.edges import (
    CELL_GEV,
    RADIAL_BINS,
    SPECTRUM_EDGES,
    coarse_blocks,
    lateral_edges_mm,
    radial_edges_mm,
    ring_count,
    ring_places,
    thirds,
)
from validation.measure.profiles import seen

_FINE_PER_CELL = 20  # R90 is read from a radial histogram with so many bins in a cell: 0.26 mm for cells of 5.1 mm


# Numbers measured of each shower: how each is named here, with its unit, and in plots and reports.
SCALARS = {
    "visible_gev": "Visible energy",
    "response": "Response E_vis/E",
    "depth_x0": "Mean shower depth",
    "depth_width_x0": "Longitudinal width",
    "layer_of_maximum": "Layer of the maximum",
    "mean_x_mm": "First moment along x",
    "mean_y_mm": "First moment along y",
    "second_x_mm2": "Second moment along x",
    "second_y_mm2": "Second moment along y",
    "r90_mm": "R90",
    "hits": "Number of hits",
    "sparsity": "Sparsity",
    "first_third": "Share of the first third",
    "middle_third": "Share of the middle third",
    "last_third": "Share of the last third",
    "angle_deg": "Measured angle",
    "hottest_kept": "Hottest cell kept to the next layer",
    "overlap": "Overlap of neighbouring layers",
}
_COLUMN = {name: index for index, name in enumerate(SCALARS)}


@dataclass(frozen=True)
class Observables:
    """A table with a row for each shower: 3.1 kB for a shower whose cells fill 260 kB.

    Labels, (N,): `energy_gev`, `theta_rad`, `phi_rad`, and the PDG code `particle`; azimuth and code are 0 if files
    have none. `scalars` are (N, len(SCALARS)), see `column`. Energies in GeV: `layers` (N, layers); `along_x`,
    `along_y` and `radial` (N, bins); `ring_energy` (N, rings) in rings about the axis; `coarse` (N, blocks) in blocks
    of cells. Counts of cells with energy: `ring_cells` (N, rings), and `spectrum` (N, bins) by log10 of their energy in
    GeV. `validation.measure.edges` defines bins and blocks. `index_angle_rad` (N,) is the reference's measured angle,
    in units of the index; `angle_x_deg` (N,) is the measured angle to the axis x, NaN if files have no azimuth.
    """

    energy_gev: Array
    theta_rad: Array
    phi_rad: Array
    particle: npt.NDArray[np.int32]
    scalars: Array
    layers: FloatArray
    along_x: FloatArray
    along_y: FloatArray
    radial: FloatArray
    ring_energy: FloatArray
    ring_cells: FloatArray
    spectrum: FloatArray
    coarse: FloatArray
    index_angle_rad: Array
    angle_x_deg: Array

    def __len__(self) -> int:
        return len(self.energy_gev)

    def __getitem__(self, index: Any) -> Observables:
        """The rows that a slice, an index array or a mask selects."""
        return Observables(*(getattr(self, field.name)[index] for field in fields(self)))

    def column(self, name: str) -> Array:
        """The scalar `name` of every shower, (N,)."""
        return self.scalars[:, _COLUMN[name]]

    @property
    def empty(self) -> Mask:
        """Whether each shower has no hit, (N,)."""
        return self.column("hits") == 0

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Observables:
        """One table with all rows of `parts`, in order."""
        return Observables(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


# The middle third is one minus the other two: with it the covariance would be singular. Layers are left out too, as
# the depth and the thirds are sums of their shares. Even the logarithms of the shares raise the condition number of
# the correlation matrix from 2e3 to 8e4 in the Geant4 sample; besides, some showers there have an empty layer.
FEATURES = tuple(name for name in SCALARS if name != "middle_third")


def features(table: Observables) -> Array:
    """The `FEATURES` of each shower, (n, len(FEATURES)), in their units; finite for showers that are not empty."""
    return np.stack([table.column(name) for name in FEATURES], axis=1)


def shares(columns: npt.NDArray[np.floating]) -> Array:
    """The share of each column in the sum of its row of `columns` (N, k); NaN if the sum is zero."""
    held = columns.astype(np.float64)
    return divided(held, held.sum(axis=1))


Columns = Callable[[Observables], Array]  # values of each shower, (n,) or (n, k)


def observe(
    hits: Hits, energy_gev: npt.NDArray[Any], theta_rad: npt.NDArray[Any], geometry: Geometry, *,
    particle: npt.NDArray[Any] | None = None, phi_rad: npt.NDArray[Any] | None = None,
) -> Observables:  # fmt: skip
    """Measure showers by their `hits`, which are finite and not negative. `particle` and `phi_rad` are optional labels.

    A shower without energy has zeros in every profile, energy and count, a sparsity of one, and NaN for every average:
    depth, moments, R90, shares, angle, layer of the maximum.
    """
    deposits = Deposits.of(hits, geometry)
    view = seen(deposits, geometry)
    layers, total = view.layers, view.layers.sum(axis=1)
    fine_radial, ring = _fine_radial(deposits, view.distance, geometry), ring_places(view.distance, geometry)
    hottest_kept, overlap = continuity(deposits, layers, geometry)
    filled, above = deposits.energy > CELL_GEV, deposits.energy > HIT_GEV
    empty = total <= 0

    depth, depth_variance = moments(layers, positions(geometry).z_x0)
    (mean_x, second_x), (mean_y, second_y) = view.x, view.y
    angle, angle_x = (
        np.where(empty, np.nan, np.degrees(each.astype(np.float64))) for each in (view.angle_rad, view.angle_x_rad)
    )
    columns = {
        "visible_gev": total,
        "response": total / energy_gev,
        "depth_x0": depth,
        "depth_width_x0": np.sqrt(depth_variance),
        "layer_of_maximum": np.where(empty, np.nan, layers.argmax(axis=1)),
        "mean_x_mm": mean_x,
        "mean_y_mm": mean_y,
        "second_x_mm2": second_x,
        "second_y_mm2": second_y,
        "r90_mm": containment_radius(fine_radial, geometry.cell_mm / _FINE_PER_CELL, 0.9),
        "hits": deposits.sums(0, 1, above)[:, 0],
        "sparsity": 1 - deposits.sums(0, 1, filled)[:, 0] / int(positions(geometry).exists.sum()),
        "angle_deg": angle,
        "hottest_kept": np.where(empty, np.nan, hottest_kept),
        "overlap": np.where(empty, np.nan, overlap),
    }
    of_third = [layers[:, thirds(geometry) == k].sum(axis=1) for k in range(3)]
    in_thirds = divided(np.stack(of_third, axis=1), total)
    columns |= dict(zip(("first_third", "middle_third", "last_third"), in_thirds.T, strict=True))
    rings = ring_count(geometry)
    return Observables(
        energy_gev=np.asarray(energy_gev, dtype=np.float64),
        theta_rad=np.asarray(theta_rad, dtype=np.float64),
        phi_rad=np.zeros(len(hits)) if phi_rad is None else np.asarray(phi_rad, dtype=np.float64),
        particle=np.zeros(len(hits), np.int32) if particle is None else np.asarray(particle, dtype=np.int32),
        scalars=np.stack([columns[name] for name in SCALARS], axis=1),
        layers=layers.astype(np.float32),
        along_x=view.along_x.astype(np.float32),
        along_y=view.along_y.astype(np.float32),
        radial=_radial(deposits, view.distance, geometry).astype(np.float32),
        ring_energy=deposits.sums(ring, rings, deposits.energy).astype(np.float32),
        ring_cells=deposits.sums(ring, rings, filled).astype(np.float32),
        spectrum=_spectrum(deposits, filled).astype(np.float32),
        coarse=_coarse(deposits, geometry).astype(np.float32),
        index_angle_rad=view.index_angle_rad.astype(np.float64),
        angle_x_deg=np.full(len(hits), np.nan) if phi_rad is None else angle_x,
    )


def containment_radius(radial: Array, width: float, share: float) -> Array:
    """The radius, (N,), that holds `share` of the energy of `radial` (N, bins), in bins of `width` from zero outwards.

    It is interpolated linearly within a bin. NaN for a shower without energy.
    """
    total = radial.sum(axis=1)
    inside = radial.cumsum(axis=1)
    wanted = share * total
    place = (inside < wanted[:, None]).sum(axis=1).clip(max=radial.shape[1] - 1)  # the bin that reaches the share
    rows = np.arange(len(radial))
    before = np.where(place > 0, inside[rows, place - 1], 0.0)
    held = radial[rows, place]
    within = (wanted - before) / np.where(held > 0, held, 1.0)
    return np.where(total > 0, (place + within) * width, np.nan)


def _fine_radial(hits: Deposits, distance: Array, geometry: Geometry) -> Array:
    """Energy by distance from the shower's axis, (N, bins), in bins of a twentieth of a cell; the last bin is open."""
    reach = math.ceil(2 * max(edges[-1] for edges in lateral_edges_mm(geometry)) / geometry.cell_mm)
    bins = _FINE_PER_CELL * max(reach, RADIAL_BINS // 2 + 1)
    place = np.minimum((distance * _FINE_PER_CELL).astype(np.intp), bins - 1)
    return hits.sums(place, bins, hits.energy)


def _radial(hits: Deposits, distance: Array, geometry: Geometry) -> Array:
    """Energy in the bins of `radial_edges_mm`, (N, bins)."""
    inner = radial_edges_mm(geometry)[1:-1] / geometry.cell_mm
    return hits.sums(np.searchsorted(inner, distance, side="right"), len(inner) + 1, hits.energy)


def _coarse(hits: Deposits, geometry: Geometry) -> Array:
    """Energy in the `coarse_blocks` of cells, (N, blocks)."""
    blocks = coarse_blocks(geometry)
    return hits.sums(blocks[hits.layer, hits.places], int(blocks.max()) + 1, hits.energy)


def _spectrum(hits: Deposits, filled: Mask) -> Array:
    """The number of `filled` cells by log10 of their energy in GeV, (N, bins); the last bin is open."""
    bins = len(SPECTRUM_EDGES) - 1
    place = np.searchsorted(SPECTRUM_EDGES, np.log10(hits.energy), side="right") - 1
    return hits.sums(place.clip(0, bins - 1), bins, filled)
