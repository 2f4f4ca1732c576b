"""What is measured of each shower. Pure functions of arrays, in physical units; empty showers read NaN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from preprocessing.angle import measured_angle
from preprocessing.showers import FloatArray, Geometry

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
    """A table with a row a shower: N rows of about 1 kB where the shower's cells fill 260 kB.

    `energy_gev`, `theta_rad` (N,) are the labels; `scalars` (N, len(SCALARS)), see `column`; `layers` (N, layers),
    `along_x` (N, x), `along_y` (N, y) and `radial` (N, 30) are energies in GeV; `spectrum` (N, 40) counts hits by
    log10 of their energy; `index_angle_rad` (N,) is the reference's measured angle, in units of the index.
    """

    energy_gev: Array
    theta_rad: Array
    scalars: Array
    layers: FloatArray
    along_x: FloatArray
    along_y: FloatArray
    radial: FloatArray
    spectrum: FloatArray
    index_angle_rad: Array

    def __len__(self) -> int:
        return len(self.energy_gev)

    def __getitem__(self, index: Any) -> Observables:
        """The rows that a slice, an index array or a mask selects."""
        return Observables(*(getattr(self, field.name)[index] for field in fields(self)))

    def column(self, name: str) -> Array:
        """The scalar `name` of every shower, (N,)."""
        return self.scalars[:, _COLUMN[name]]

    def pieces(self) -> Iterator[Observables]:
        """The whole table, as the one piece that it is."""
        yield self

    @property
    def empty(self) -> npt.NDArray[np.bool_]:
        """Showers without a single hit, (N,)."""
        return self.column("hits") == 0

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Observables:
        """One table of all the rows of `parts`, in order."""
        return Observables(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def observe(
    cells: FloatArray, energy_gev: npt.NDArray[Any], theta_rad: npt.NDArray[Any], geometry: Geometry
) -> Observables:
    """Measure showers `cells` (N, x, y, layer), in file units, finite and not negative.

    A shower without energy has zeros in every profile, energy and count, a sparsity of one, and NaN where there is
    nothing to average: depth, moments, R90, shares, angle, layer of the maximum.
    """
    hits = _Cells.of(cells, geometry)
    layers, along_x, along_y = hits.in_x.sum(axis=1), hits.in_x.sum(axis=2), hits.in_y.sum(axis=2)
    total = layers.sum(axis=1)
    fine = _fine_radial(hits, geometry)
    empty = total <= 0

    depth, depth_variance = _moments(layers, _centres(geometry.shape[2], geometry.x0_per_layer))
    (mean_x, second_x), (mean_y, second_y) = (
        _moments(profile, _centres(profile.shape[1], geometry.cell_mm)) for profile in (along_x, along_y)
    )
    count = _count(hits.event[hits.energy > HIT_GEV], len(cells))
    angle = np.degrees(measured_angle(cells, geometry.cell_mm, geometry.layer_pitch_mm).astype(np.float64))
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
        "r90_mm": containment_radius(fine, geometry.cell_mm / _FINE_PER_CELL, 0.9),
        "hits": count,
        "sparsity": 1 - _count(hits.event[hits.energy > CELL_GEV], len(cells)) / geometry.cells,
        "angle_deg": np.where(empty, np.nan, angle),
    }
    columns |= dict(zip(("first_third", "middle_third", "last_third"), depth_shares(layers).T, strict=True))
    return Observables(
        energy_gev=np.asarray(energy_gev, dtype=np.float64),
        theta_rad=np.asarray(theta_rad, dtype=np.float64),
        scalars=np.stack([columns[scalar.name] for scalar in SCALARS], axis=1),
        layers=layers.astype(np.float32),
        along_x=along_x.astype(np.float32),
        along_y=along_y.astype(np.float32),
        radial=_coarse(fine, _FINE_PER_CELL // 2, _RADIAL_BINS).astype(np.float32),
        spectrum=_spectrum(hits, len(cells)).astype(np.float32),
        index_angle_rad=measured_angle(cells).astype(np.float64),
    )


def radial_edges_mm(geometry: Geometry) -> Array:
    """Edges of `Observables.radial`, (31,); the last bin also holds all that lies farther out."""
    return np.arange(_RADIAL_BINS + 1, dtype=np.float64) * geometry.cell_mm / 2


def depth_shares(layers: npt.NDArray[Any]) -> Array:
    """Share of the energy in each third of the depth, (N, 3), of `layers` (N, layers).

    Layer i of L is in third 3i // L, so that 25 layers divide into 9, 8 and 8. NaN for a shower without energy.
    """
    third = np.arange(layers.shape[1]) * 3 // layers.shape[1]
    return _divide(np.stack([layers[:, third == k].sum(axis=1) for k in range(3)], axis=1), layers.sum(axis=1))


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


@dataclass(frozen=True)
class _Cells:
    """The cells that hold energy, 1-2 % of all in Geant4's showers: which event, where, and how much in GeV.

    `in_x` (N, x, layer) and `in_y` (N, y, layer) are their sums over the other lateral direction.
    """

    event: npt.NDArray[np.intp]
    x: npt.NDArray[np.intp]
    y: npt.NDArray[np.intp]
    layer: npt.NDArray[np.intp]
    energy: Array
    in_x: Array
    in_y: Array

    @classmethod
    def of(cls, cells: FloatArray, geometry: Geometry) -> _Cells:
        flat = np.ascontiguousarray(cells).reshape(-1)
        filled = np.flatnonzero(flat)
        energy = flat[filled].astype(np.float64) * geometry.file_unit_gev
        event, x, y, layer = np.unravel_index(filled, cells.shape)
        events, layers = len(cells), geometry.shape[2]

        def projected(place: npt.NDArray[np.intp], bins: int) -> Array:
            flat_place = (event * bins + place) * layers + layer
            sums = np.bincount(flat_place, weights=energy, minlength=events * bins * layers)
            return sums.reshape(events, bins, layers).astype(np.float64, copy=False)

        return cls(event, x, y, layer, energy, projected(x, geometry.shape[0]), projected(y, geometry.shape[1]))


def _fine_radial(hits: _Cells, geometry: Geometry) -> Array:
    """Energy by the distance from the shower's axis, (N, bins), in bins of a twentieth of a cell.

    The axis is the straight line x(z), y(z) fitted to the shower's cells with their energy as the weight; the
    distance is taken in the plane of a layer. So a tilted shower is as narrow as an upright one. A shower in a
    single layer has no slope, and its axis runs along z.
    """
    x, y, z = (
        _centres(bins, width)
        for bins, width in zip(
            geometry.shape, (geometry.cell_mm, geometry.cell_mm, geometry.layer_pitch_mm), strict=True
        )
    )
    axis_x, axis_y = _axis(hits.in_x, x, z), _axis(hits.in_y, y, z)  # (N, layer): where the axis crosses each layer
    distance = np.hypot(x[hits.x] - axis_x[hits.event, hits.layer], y[hits.y] - axis_y[hits.event, hits.layer])

    events = len(axis_x)
    bins = _FINE_PER_CELL * max(geometry.shape[0], geometry.shape[1], _RADIAL_BINS // 2 + 1)
    place = np.minimum((distance * (_FINE_PER_CELL / geometry.cell_mm)).astype(np.intp), bins - 1)
    sums = np.bincount(hits.event * bins + place, weights=hits.energy, minlength=events * bins)
    return sums.reshape(events, bins).astype(np.float64, copy=False)


def _axis(energy: Array, place: Array, z: Array) -> Array:
    """The line place(z), (N, layer), fitted to `energy` (N, bins, layer) by weighted least squares."""
    layers = energy.sum(axis=1)
    moment = np.einsum("nbl,b->nl", energy, place)
    total = layers.sum(axis=1)
    mean_z, variance_z = _moments(layers, z)
    mean = _divide(moment.sum(axis=1), total)
    covariance = _divide((moment * (z - mean_z[:, None])).sum(axis=1), total)
    flat = ~(variance_z > 1e-9 * z[0] ** 2)  # one layer, up to rounding
    slope = np.where(flat, 0.0, covariance / np.where(flat, 1.0, variance_z))
    return mean[:, None] + slope[:, None] * (z - mean_z[:, None])


def _spectrum(hits: _Cells, events: int) -> Array:
    """Hits by log10 of their energy in GeV, (N, 40); what exceeds the last edge is counted in the last bin."""
    bins = len(SPECTRUM_EDGES) - 1
    above = hits.energy > HIT_GEV
    place = np.searchsorted(SPECTRUM_EDGES, np.log10(hits.energy[above]), side="right") - 1
    flat = hits.event[above] * bins + place.clip(0, bins - 1)
    return np.bincount(flat, minlength=events * bins).reshape(events, bins).astype(np.float64)


def _moments(profile: Array, place: Array) -> tuple[Array, Array]:
    """Mean and variance of `place` (bins,) in each `profile` (N, bins); NaN without energy."""
    total = profile.sum(axis=1)
    mean = _divide(profile @ place, total)
    return mean, _divide((profile * (place - mean[:, None]) ** 2).sum(axis=1), total)


def _centres(bins: int, width: float) -> Array:
    return (np.arange(bins, dtype=np.float64) + 0.5) * width


def _coarse(fine: Array, merge: int, bins: int) -> Array:
    """`bins` bins, each of `merge` bins of `fine` (N, many), the last with all the rest."""
    starts = np.arange(bins) * merge
    merged: Array = np.add.reduceat(fine, starts, axis=1)
    return merged


def _count(event: npt.NDArray[np.intp], events: int) -> Array:
    return np.bincount(event, minlength=events).astype(np.float64)


def _divide(values: Array, total: Array) -> Array:
    """`values` (N, ...) over `total` (N,), NaN where the total is zero."""
    divisor = np.where(total > 0, total, np.nan).reshape(-1, *(1 for _ in values.shape[1:]))
    return values / divisor
