"""The observables of each shower, from its cells, in physical units. An empty shower's means are NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from calopipe.showers.angle import angle_of_projections
from calopipe.showers.cells import FloatArray, Geometry
from calopipe.showers.hits import Hits
from validation.measure.axis import RING_EDGES, divided, fitted_line, moments, ring_of
from validation.measure.deposits import Deposits
from validation.measure.voxels import FineCells, coarse_cells, fine_cells

Array = npt.NDArray[np.float64]

HIT_GEV = 3e-4  # a hit: 64 % of the non-zero cells of the Geant4 sample, 98 % of its energy
CELL_GEV = 2e-6  # a cell with less (1e-4 in the reference's units) counts as without energy in the sparsity

# log10(E/GeV) of the hits: from the threshold to 1 GeV, more than any cell of a 200 GeV electron holds.
SPECTRUM_EDGES = np.linspace(np.log10(HIT_GEV), 0.0, 41)
_RADIAL_BINS = 30  # of half a cell each, the last one open: 15 cells hold all but 1e-3 of the energy
_FINE_PER_CELL = 20  # R90 is read off a radial histogram this much finer than a cell: 0.26 mm for cells of 5.1 mm


@dataclass(frozen=True)
class Scalar:
    """A number measured of each shower: its name, how plots and reports call it, and its unit ("" where none)."""

    name: str
    label: str
    unit: str


SCALARS = (
    Scalar("visible_gev", "Visible energy", "GeV"),
    Scalar("response", "Response E_vis/E", ""),
    Scalar("depth_x0", "Mean shower depth", "X0"),
    Scalar("depth_width_x0", "Longitudinal width", "X0"),
    Scalar("layer_of_maximum", "Layer of the maximum", ""),
    Scalar("mean_x_mm", "First moment along x", "mm"),
    Scalar("mean_y_mm", "First moment along y", "mm"),
    Scalar("second_x_mm2", "Second moment along x", "mm²"),
    Scalar("second_y_mm2", "Second moment along y", "mm²"),
    Scalar("r90_mm", "R90", "mm"),
    Scalar("hits", "Number of hits", ""),
    Scalar("sparsity", "Sparsity", ""),
    Scalar("first_third", "Share of the first third", ""),
    Scalar("middle_third", "Share of the middle third", ""),
    Scalar("last_third", "Share of the last third", ""),
    Scalar("angle_deg", "Measured angle", "degrees"),
)
_COLUMN = {scalar.name: index for index, scalar in enumerate(SCALARS)}


@dataclass(frozen=True)
class Observables:
    """A table with a row a shower, of 2.7 kB where the shower's cells fill 260 kB.

    `energy_gev`, `theta_rad` (N,) are the labels; `scalars` (N, len(SCALARS)), see `column`; `layers` (N, layers),
    `along_x` (N, x), `along_y` (N, y) and `radial` (N, 30) are energies in GeV; so is `ring_energy` (N, 29), of
    the rings of `axis`, in which `ring_cells` counts the cells with energy; `spectrum` (N, 40) counts hits
    by log10 of their energy; `coarse` (N, blocks) are the energies of blocks of cells in GeV (`voxels`);
    `index_angle_rad` (N,) is the reference's measured angle, in units of the index; `fine` (N, columns) are the cells
    about the axis (`voxels`), no columns unless they were asked for.
    """

    energy_gev: Array
    theta_rad: Array
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
    fine: FineCells

    def __len__(self) -> int:
        return len(self.energy_gev)

    def __getitem__(self, index: Any) -> Observables:
        """The rows that a slice, an index array or a mask selects."""
        return Observables(*(getattr(self, field.name)[index] for field in fields(self)))

    def column(self, name: str) -> Array:
        """The scalar `name` of every shower, (N,)."""
        return self.scalars[:, _COLUMN[name]]

    @property
    def empty(self) -> npt.NDArray[np.bool_]:
        """Showers without a single hit, (N,)."""
        return self.column("hits") == 0

    def pieces(self) -> Iterator[Observables]:
        """The table as one piece: what a table on disk gives in many (`validation.measure.table`)."""
        yield self

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Observables:
        """One table of all the rows of `parts`, in order."""
        return Observables(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


Columns = Callable[[Observables], Array]  # of each shower, (n,) or (n, k)


def observe(
    cells: FloatArray, energy_gev: npt.NDArray[Any], theta_rad: npt.NDArray[Any], geometry: Geometry
) -> Observables:
    """Measure showers `cells` (N, x, y, layer), in file units, finite and not negative.

    A shower without energy has zeros in every profile, energy and count, a sparsity of one, and NaN where there is
    nothing to average: depth, moments, R90, shares, angle, layer of the maximum.
    """
    return observe_hits(Hits.of(cells), energy_gev, theta_rad, geometry)


def observe_hits(
    hits: Hits, energy_gev: npt.NDArray[Any], theta_rad: npt.NDArray[Any], geometry: Geometry, *, fine: bool = False
) -> Observables:
    """`observe` of the hits of showers; with `fine` cells, if asked."""
    deposits = Deposits.of(hits, geometry)
    layers, along_x, along_y = deposits.in_x.sum(axis=1), deposits.in_x.sum(axis=2), deposits.in_y.sum(axis=2)
    total = layers.sum(axis=1)
    axis = _axis(deposits, geometry)
    distance = np.hypot(deposits.x + 0.5 - axis[0], deposits.y + 0.5 - axis[1])  # in the plane of a layer
    fine_radial, ring = _fine_radial(deposits, distance), ring_of(distance)
    filled, above = deposits.energy > CELL_GEV, deposits.energy > HIT_GEV
    empty = total <= 0

    depth, depth_variance = moments(layers, _centres(geometry.shape[2], geometry.x0_per_layer))
    (mean_x, second_x), (mean_y, second_y) = (
        moments(profile, _centres(profile.shape[1], geometry.cell_mm)) for profile in (along_x, along_y)
    )
    projections = deposits.in_x, deposits.in_y
    angle = np.degrees(angle_of_projections(*projections, geometry.cell_mm, geometry.layer_pitch_mm).astype(np.float64))
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
        "hits": deposits.counts(above)[:, 0],
        "sparsity": 1 - deposits.counts(filled)[:, 0] / geometry.cells,
        "angle_deg": np.where(empty, np.nan, angle),
    }
    columns |= dict(zip(("first_third", "middle_third", "last_third"), depth_shares(layers).T, strict=True))
    rings = len(RING_EDGES)
    fine_columns = fine_cells(deposits, axis, ring, filled) if fine else np.empty((len(hits), 0), np.float16)
    return Observables(
        energy_gev=np.asarray(energy_gev, dtype=np.float64),
        theta_rad=np.asarray(theta_rad, dtype=np.float64),
        scalars=np.stack([columns[scalar.name] for scalar in SCALARS], axis=1),
        layers=layers.astype(np.float32),
        along_x=along_x.astype(np.float32),
        along_y=along_y.astype(np.float32),
        radial=_radial(fine_radial).astype(np.float32),
        ring_energy=deposits.sums(ring, rings, deposits.energy).astype(np.float32),
        ring_cells=deposits.counts(filled, ring[filled], rings).astype(np.float32),
        spectrum=_spectrum(deposits, above).astype(np.float32),
        coarse=coarse_cells(deposits),
        index_angle_rad=angle_of_projections(*projections).astype(np.float64),
        fine=fine_columns,
    )


def radial_edges_mm(geometry: Geometry) -> Array:
    """Edges of `Observables.radial`, (31,); the last bin is open."""
    return np.arange(_RADIAL_BINS + 1, dtype=np.float64) * geometry.cell_mm / 2


def depth_shares(layers: npt.NDArray[Any]) -> Array:
    """Share of the energy in each third of the depth, (N, 3), of `layers` (N, layers).

    Layer i of L is in third 3i // L, so that 25 layers divide into 9, 8 and 8. NaN for a shower without energy.
    """
    third = np.arange(layers.shape[1]) * 3 // layers.shape[1]
    return divided(np.stack([layers[:, third == k].sum(axis=1) for k in range(3)], axis=1), layers.sum(axis=1))


def containment_radius(radial: Array, width: float, share: float) -> Array:
    """The radius, (N,), that holds `share` of the energy of `radial` (N, bins), bins of `width` from zero outwards.

    Linear within a bin. NaN for a shower without energy.
    """
    total = radial.sum(axis=1)
    inside = radial.cumsum(axis=1)
    wanted = share * total
    place = (inside < wanted[:, None]).sum(axis=1).clip(max=radial.shape[1] - 1)  # the bin in which it is reached
    rows = np.arange(len(radial))
    before = np.where(place > 0, inside[rows, place - 1], 0.0)
    held = radial[rows, place]
    within = (wanted - before) / np.where(held > 0, held, 1.0)
    return np.where(total > 0, (place + within) * width, np.nan)


def _axis(hits: Deposits, geometry: Geometry) -> tuple[Array, Array]:
    """Where the axis of its shower crosses the layer of each hit, along x and y in cells, (hits,) each.

    The axis is the straight line x(z), y(z) fitted to the shower's cells with their energy as the weight. Distances
    from it are taken in the plane of a layer, so that a tilted shower is as narrow as an upright one.
    """
    x, y, layers = geometry.shape
    z = _centres(layers, geometry.layer_pitch_mm)
    axis_x, axis_y = fitted_line(hits.in_x, _centres(x, 1), z), fitted_line(hits.in_y, _centres(y, 1), z)
    return axis_x[hits.event, hits.layer], axis_y[hits.event, hits.layer]


def _fine_radial(hits: Deposits, distance: Array) -> Array:
    """Energy by the distance from the shower's axis, (N, bins), in bins of a twentieth of a cell."""
    bins = _FINE_PER_CELL * max(hits.shape[0], hits.shape[1], _RADIAL_BINS // 2 + 1)
    place = np.minimum((distance * _FINE_PER_CELL).astype(np.intp), bins - 1)
    return hits.sums(place, bins, hits.energy)


def _radial(fine: Array) -> Array:
    """The bins of `radial_edges_mm`, (N, 30), from those of `_fine_radial`."""
    starts = np.arange(_RADIAL_BINS) * (_FINE_PER_CELL // 2)
    merged: Array = np.add.reduceat(fine, starts, axis=1)
    return merged


def _spectrum(hits: Deposits, above: npt.NDArray[np.bool_]) -> Array:
    """Hits above the threshold by log10 of their energy in GeV, (N, 40); the last bin is open."""
    bins = len(SPECTRUM_EDGES) - 1
    place = np.searchsorted(SPECTRUM_EDGES, np.log10(hits.energy[above]), side="right") - 1
    return hits.counts(above, place.clip(0, bins - 1), bins)


def _centres(bins: int, width: float) -> Array:
    return (np.arange(bins, dtype=np.float64) + 0.5) * width
