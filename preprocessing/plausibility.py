"""Whether a file's units, scale and order of axes are plausible: its first showers, compared with shower physics.

Electromagnetic showers in any sampling calorimeter have this in common (Particle Data Group, Review of Particle
Physics, "Passage of particles through matter"): a part of the energy is seen; the depth of a shower grows with the
logarithm of its energy over the critical energy, 7 to 25 MeV from uranium to iron; its width is a few Moliere radii,
each one to three radiation lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calopipe.showers.flaws import flaws_of_hits
from calopipe.showers.hits import Hits

if TYPE_CHECKING:
    from calopipe.showers.files import ShowerFile

_SHOWERS = 100
# Visible over incident energy: from thin gaps to thick ones; and of cells calibrated to the incident energy.
_RESPONSES = ((1e-3, 0.35), (0.7, 1.2))
_CRITICAL_GEV = (0.025, 0.007)
_MARGIN_X0 = (3.0, 2.0)  # material before the first layer, showers of photons
_RADII_X0 = (0.1, 20.0)
_HIGHEST_GEV = 1e4  # above the beam of any accelerator
_ENERGIES = {"MeV": 1e-3, "keV": 1e-6, "TeV": 1e3}
_DEPOSITS = {"GeV": 1.0, "MeV": 1e-3, "keV": 1e-6, "GeV x 50": 0.02}

Sides = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]  # showers along y (N, x, layer), along x (N, y, layer)


@dataclass(frozen=True)
class Look:
    """What the first showers of a file look like.

    `response` is visible over incident energy. Half of the visible energy lies within `depth_x0` radiation lengths;
    `expected_x0` (low, high) is the expected range. `radius_mm` is the root mean square distance from each layer's
    barycentre. `doubts` says in words what is not plausible.
    """

    showers: int
    response: float
    depth_x0: float
    expected_x0: tuple[float, float]
    radius_mm: float
    doubts: tuple[str, ...]

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Look:
        low, high = document["expected_x0"]
        return cls(**document | {"expected_x0": (low, high), "doubts": tuple(document["doubts"])})


def look_at(file: ShowerFile) -> Look | None:
    """What the first showers of `file` look like; None if each of them is corrupt or empty."""
    cells = file.cells(0, min(_SHOWERS, file.events))
    hits = Hits.of(cells)
    sums = hits.sums()
    good = (flaws_of_hits(hits) == 0) & (file.label_flaws[: len(cells)] == 0) & (sums > 0)
    if not good.any():
        return None
    geometry = file.geometry
    sides = hits[good].projections()
    energy = float(file.energy_gev[: len(good)][good].mean(dtype=np.float64))
    slant = float((1 / np.sin(file.theta_rad[: len(good)][good].astype(np.float64))).mean())
    x0 = geometry.x0_per_layer * slant
    response = float(sums[good].mean()) * geometry.file_unit_gev / energy
    depth, total = _half_depth(sides, 2) * x0, geometry.shape[2] * x0
    radius = _radius(sides) * geometry.cell_mm
    doubts: list[str] = []
    scale = 1.0
    if energy > _HIGHEST_GEV or not _fits(depth, energy, total):
        axes = _other_axes(sides, geometry.shape, energy, x0) if energy <= _HIGHEST_GEV else ""
        name = _other_energy(depth, energy, total)
        scale = 1.0 if axes else _ENERGIES.get(name, 1.0)
        doubts.append(axes or _doubt_of_energy(name, energy, depth, total))
    if not _sampled(response / scale):
        whole = bool((hits.value == np.rint(hits.value)).all())
        doubts.append(_doubt_of_deposits(response / scale, geometry.file_unit_gev, whole=whole))
    in_x0 = radius / geometry.layer_pitch_mm * geometry.x0_per_layer
    if not doubts and not _RADII_X0[0] < in_x0 < _RADII_X0[1]:
        doubts.append(f"its showers are {radius:.3g} mm wide, {in_x0:.3g} X0: are cell_mm and layer_pitch_mm right?")
    low, high = _expected(energy * scale, total)
    return Look(
        int(good.sum()), _rounded(response), _rounded(depth), (_rounded(low), _rounded(high)), _rounded(radius),
        tuple(doubts),
    )  # fmt: skip


def summary(looks: Sequence[Look]) -> str:
    """One line on the first showers of several files."""
    if not looks:
        return "none of the first showers is sound and holds energy"

    def span(values: Sequence[float]) -> str:
        return " to ".join(dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values))))

    doubtful = sum(bool(look.doubts) for look in looks)
    return (
        f"E_vis/E {span([look.response for look in looks])}, half the energy within "
        f"{span([look.depth_x0 for look in looks])} X0, radius "
        f"{span([look.radius_mm for look in looks])} mm: " + (f"{doubtful} not plausible" if doubtful else "plausible")
    )


def _slices(sides: Sides, axis: int) -> npt.NDArray[np.float64]:
    """Energy of each shower in each slice along `axis` (0, 1, 2: x, y, layer), (N, slices)."""
    return sides[0].sum(axis=1) if axis == 2 else sides[axis].sum(axis=2)


def _half_depth(sides: Sides, axis: int) -> float:
    """The number of slices along `axis` that hold half of the energy of all showers."""
    profile = _slices(sides, axis).sum(axis=0)
    reached = np.concatenate([[0.0], np.cumsum(profile)]) / profile.sum()
    return float(np.interp(0.5, reached, np.arange(len(reached))))


def _radius(sides: Sides) -> float:
    """Root mean square distance from each layer's barycentre, weighted by energy, in cells."""
    layers = _slices(sides, 2)
    weight = np.where(layers > 0, layers, 1.0)[:, None]  # (N, 1, layer)
    squares = 0.0
    for side in sides:  # (N, place, layer)
        place = np.arange(side.shape[1])[:, None]
        centre = (side * place).sum(axis=1, keepdims=True) / weight
        squares += float((side * (place - centre) ** 2).sum())
    return float(np.sqrt(squares / layers.sum()))


def _expected(energy_gev: float, total_x0: float) -> tuple[float, float]:
    """The range of the depth within which half of a shower's energy lies, in a calorimeter of `total_x0`.

    dE/dt is a gamma function with its maximum at ln(E / critical energy) - 0.5 and b = 0.5.
    """
    depth = np.linspace(0, total_x0, 2001)[1:]
    bounds = []
    for critical in _CRITICAL_GEV:
        maximum = max(np.log(energy_gev / critical) - 0.5, 0.5)
        reached = np.cumsum(np.exp(0.5 * maximum * np.log(depth) - 0.5 * depth))
        bounds.append(float(np.interp(0.5, reached / reached[-1], depth)))
    return max(bounds[0] - _MARGIN_X0[0], 0.0), bounds[1] + _MARGIN_X0[1]


def _fits(depth_x0: float, energy_gev: float, total_x0: float) -> bool:
    low, high = _expected(energy_gev, total_x0)
    return low <= depth_x0 <= high


def _other_axes(sides: Sides, shape: tuple[int, int, int], energy_gev: float, x0: float) -> str:
    """The doubt to report if showers have a plausible depth along another axis, and are spread along it more evenly."""

    def brightest(axis: int) -> float:
        slices = _slices(sides, axis)
        return float((slices.max(axis=1) / slices.sum(axis=1)).mean())

    for axis in (0, 1):
        fits = _fits(_half_depth(sides, axis) * x0, energy_gev, shape[axis] * x0)
        if fits and brightest(axis) < brightest(2):
            order = ["x", "y"]
            order.insert(axis, "layer")
            shown = ", ".join(map(str, shape))
            return f"ECAL of shape (N, {shown}) looks like (N, {', '.join(order)}), expected (N, x, y, layer)"
    return ""


def _other_energy(depth_x0: float, energy_gev: float, total_x0: float) -> str:
    """The unit in which the energies would fit the depth of the showers; empty if none."""
    fitting = (
        name for name, unit in _ENERGIES.items()
        if energy_gev * unit <= _HIGHEST_GEV and _fits(depth_x0, energy_gev * unit, total_x0)
    )  # fmt: skip
    return next(fitting, "")


def _doubt_of_energy(name: str, energy_gev: float, depth_x0: float, total_x0: float) -> str:
    low, high = _expected(energy_gev, total_x0)
    found = (
        f"half the energy lies within {depth_x0:.3g} X0, {low:.2g} to {high:.2g} are expected of {energy_gev:.4g} GeV"
    )
    if name:
        return f"{found}: energy looks like {name}, GeV are expected"
    return f"{found}: is energy in GeV, is x0_per_layer right, are these electromagnetic showers?"


def _sampled(response: float) -> bool:
    return any(low <= response <= high for low, high in _RESPONSES)


def _doubt_of_deposits(response: float, unit_gev: float, *, whole: bool) -> str:
    known = {"MeV in place of GeV": unit_gev * 1e-3, "GeV in place of MeV": unit_gev * 1e3} | _DEPOSITS
    fitting = ((name, unit) for name, unit in known.items() if _sampled(response * unit / unit_gev))
    found = f"E_vis/E is {response:.3g} with file_unit_gev={unit_gev:g}"
    if whole:
        return f"{found}, and ECAL holds whole numbers: counts of another unit? give --geometry file_unit_gev=..."
    name, unit = next(fitting, ("", 0.0))
    if name:
        then = f"by which E_vis/E is {response * unit / unit_gev:.3g}"
        return f"{found}: ECAL looks like {name}, {then}; give --geometry file_unit_gev={unit:g}"
    return f"{found}: is that the unit of ECAL (--geometry file_unit_gev=...)?"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
