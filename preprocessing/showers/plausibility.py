"""Whether a file's units and scale are plausible: some of its showers are compared with shower physics.

Electromagnetic showers in any sampling calorimeter have this in common (Particle Data Group, Review of Particle
Physics, "Passage of particles through matter"): a part of the energy is seen; the depth of a shower grows with the
logarithm of its energy over the critical energy, 7 to 25 MeV from uranium to iron; its width is a few Moliere radii,
each one to three radiation lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calopipe.labels import PARTICLE, PHI
from calopipe.showers.cells import Array, FloatArray, Geometry
from calopipe.showers.hits import Hits, flaws_of_hits
from calopipe.showers.layouts import ENERGIES, VOXELS
from calopipe.showers.positions import positions

if TYPE_CHECKING:
    from calopipe.showers.files import ShowerFile

_SHOWERS, _STRETCHES = 100, 5  # showers that are looked at, and the stretches of the file that they are read from
_ELECTRON = 11
_ELECTROMAGNETIC = (_ELECTRON, 22, 111)  # codes of particles without their sign
# Ranges of visible over incident energy: of raw cells, from thin to thick gaps; of cells calibrated to incident energy.
_RESPONSES = ((1e-3, 0.35), (0.7, 1.2))
_CRITICAL_GEV = (0.025, 0.007)
_MARGIN_X0 = (3.0, 2.0)  # for material before the first layer; for showers of photons
_RADII_X0 = (0.1, 20.0)
_HIGHEST_GEV = 1e4  # above the beam of any accelerator
_ENOUGH = 20  # showers that a correlation needs
_VARIES, _RISES = 1.8, 0.3  # if largest over least energy is above 1.8, the rank correlation must be at least 0.3
_SPREAD = 4.0  # ratio of visible energies of nine in ten showers of one energy: beyond any resolution
_WIDER = 4.0  # ratio of the widths of two layers that is not plausible


@dataclass(frozen=True)
class Look:
    """Measured values of some showers of a file, for a comparison with shower physics.

    `response` is visible over incident energy. Half of the visible energy lies within `depth_x0` radiation lengths;
    `expected_x0` (low, high) is the expected range. `radius_mm` is the root mean square distance from each layer's
    barycentre, or from the axis for cells all round the axis. `doubts` says in words what is not plausible.
    """

    showers: int
    response: float
    depth_x0: float
    expected_x0: tuple[float, float]
    radius_mm: float
    doubts: tuple[str, ...]

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Look:
        return cls(**document | {name: tuple(document[name]) for name in ("expected_x0", "doubts")})


def look_at(file: ShowerFile) -> Look | None:
    """The values of some showers of `file`; None if all of these showers are corrupt or empty."""
    stretches = _stretches(file.events)
    hits = Hits.of(np.concatenate([file.cells(*stretch) for stretch in stretches]))
    sums, events = hits.sums(), np.concatenate([np.arange(*stretch) for stretch in stretches])
    good = (flaws_of_hits(hits) == 0) & (file.label_flaws[events] == 0) & (sums > 0)
    if not good.any():
        return None
    geometry, events = file.geometry, events[good]
    energies = file.energy_gev[events]
    energy = float(energies.mean(dtype=np.float64))
    along = np.cos(file.more[PHI][events]) if PHI in file.more else 1.0
    slant = float((1 / (np.sin(file.theta_rad[events].astype(np.float64)) * along)).mean())
    depth, low, high = _depths(hits[good], energy, slant, geometry)
    radius, in_x0 = _radius(hits[good], geometry)
    response = float(sums[good].mean()) * geometry.file_unit_gev / energy
    doubts: list[str] = []
    label, axes = "energy in GeV", ", are the cells (N, x, y, layer)"
    if file.deposits == VOXELS:
        label, axes = f"{ENERGIES} in MeV", ""
    # for particles that are not electromagnetic, by the codes in the file, depth and width say nothing
    particles = file.more[PARTICLE][events] if PARTICLE in file.more else _ELECTRON
    electromagnetic = bool(np.isin(np.abs(particles), _ELECTROMAGNETIC).all())
    if not energy <= _HIGHEST_GEV or (electromagnetic and not low <= depth <= high):
        doubts.append(
            f"half the energy lies within {depth:.3g} X0, {low:.2g} to {high:.2g} are expected of "
            f"{energy:.4g} GeV: is {label}, is x0_per_layer right{axes}, are these electromagnetic showers?"
        )
    if not any(least <= response <= most for least, most in _RESPONSES):
        doubts.append(
            f"E_vis/E is {response:.3g} with file_unit_gev={geometry.file_unit_gev:g}: is that the unit of "
            f"{file.deposits} (--geometry file_unit_gev=...), is {label}?"
        )
    if electromagnetic and not doubts and not _RADII_X0[0] < in_x0 < _RADII_X0[1]:
        sizes = "its layers" if geometry.layers else "cell_mm and layer_pitch_mm"
        doubts.append(f"its showers are {radius:.3g} mm wide, {in_x0:.3g} X0: are {sizes} right?")
    more = _doubt_of_energies(energies, sums[good]), _doubt_of_widths(geometry)
    doubts += [doubt for doubt in more if doubt]
    response, depth, low, high, radius = (float(f"{value:.4g}") for value in (response, depth, low, high, radius))
    return Look(int(good.sum()), response, depth, (low, high), radius, tuple(doubts))


def _stretches(events: int) -> list[tuple[int, int]]:
    """First and end of the stretches to read in a file of `events` events. Several, as its showers may be sorted."""
    if events <= _SHOWERS:
        return [(0, events)]
    length = _SHOWERS // _STRETCHES
    return [(int(first), int(first) + length) for first in np.linspace(0, events - length, _STRETCHES)]


def _doubt_of_energies(energy_gev: FloatArray, visible: Array) -> str:
    """A doubt if the energies (N,) do not fit the showers' visible energies (N,); empty if they do."""
    least, most = float(energy_gev.min()), float(energy_gev.max())
    if len(visible) < _ENOUGH:
        return ""
    if most > _VARIES * least:
        by_energy, by_visible = (np.argsort(np.argsort(values)) for values in (energy_gev, visible))
        rises = float(np.cov(by_energy, by_visible)[0, 1] / by_energy.var(ddof=1))
        beam = f"the energies of {least:.4g} to {most:.4g} GeV (rank correlation {rises:.2f})"
        question = "are they those of these showers, in the same order?"
        return f"E_vis does not rise with {beam}: {question}" if rises < _RISES else ""
    low, high = np.quantile(visible, [0.05, 0.95])
    beam = f"all energies are {least:.4g} GeV, but E_vis of nine in ten showers spreads {high / low:.2g}-fold"
    return f"{beam}: is energy that of each shower?" if most < 1.01 * least and high > _SPREAD * low else ""


def _doubt_of_widths(geometry: Geometry) -> str:
    """A doubt if one layer of rectangular cells is much narrower than another; else empty."""
    widths = [
        min(n * size for n, size in zip(layer.cells, layer.size_mm, strict=True)) if layer.size_mm else np.nan
        for layer in geometry.every_layer
    ]
    if np.isnan(widths).all() or not np.nanmax(widths) > _WIDER * np.nanmin(widths):
        return ""
    narrow, wide = np.nanargmin(widths), np.nanargmax(widths)
    sizes = f"layer {narrow} is {widths[narrow]:.3g} mm wide and layer {wide} {widths[wide]:.3g} mm"
    return f"{sizes}: are their cells in mm, and as many as stated?"


def _depths(hits: Hits, energy_gev: float, slant: float, geometry: Geometry) -> tuple[float, float, float]:
    """The depth in radiation lengths within which half of the showers' energy lies, and the lower and the upper end of
    its expected range at `energy_gev`. A shower's path through a layer is `slant` times the layer's depth.

    dE/dt is a gamma function with its maximum at ln(E / critical energy) - 0.5 and b = 0.5. Layers that are listed may
    be as thick as a shower is long; so the range is computed as such layers would measure it.
    """
    edges = np.concatenate([[0.0], np.cumsum(positions(geometry).x0)]) * slant
    profile = hits.in_layers(hits.value).sum(axis=0)
    half = float(np.interp(0.5, np.concatenate([[0.0], np.cumsum(profile)]) / profile.sum(), edges))
    depth = np.linspace(0, edges[-1] + (_MARGIN_X0[0] if geometry.layers else 0), 2001)[1:]
    bounds = []
    for critical, earlier in zip(_CRITICAL_GEV, (_MARGIN_X0[0], -_MARGIN_X0[1]), strict=True):
        maximum = max(np.log(energy_gev / critical) - 0.5, 0.5)
        reached = np.cumsum(np.exp(0.5 * maximum * np.log(depth) - 0.5 * depth))
        if geometry.layers:
            within = np.interp(edges + earlier, depth, reached, left=0.0)
            bounds.append(float(np.interp((within[0] + within[-1]) / 2, within, edges)))
        else:
            bounds.append(float(np.interp(0.5, reached / reached[-1], depth)) - earlier)
    return half, max(bounds[0], 0.0), bounds[1]


def _radius(hits: Hits, geometry: Geometry) -> tuple[float, float]:
    """The root mean square radius of the showers, in mm and in radiation lengths."""
    where, energy = positions(geometry), hits.in_layers(hits.value)
    place, layer = np.divmod(hits.cell, geometry.shape[2])
    value = hits.value.astype(np.float64)
    x, y = where.x_mm[layer, place], where.y_mm[layer, place]
    centres = (hits.in_layers(value * along) ** 2 / np.where(energy > 0, energy, 1.0) for along in (x, y))
    squares = float((value * where.r_mm[layer, place] ** 2).sum() - sum(centre.sum() for centre in centres))
    radius_mm = float(np.sqrt(max(squares, 0.0) / energy.sum()))
    pitch = np.array([layer.pitch_mm for layer in geometry.every_layer])
    return radius_mm, radius_mm * float((energy.sum(axis=0) * where.x0 / pitch).sum() / energy.sum())
