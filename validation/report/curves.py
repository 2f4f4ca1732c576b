"""What the plots show, added up in one pass over each set: nothing here grows with the number of showers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from calopipe.showers.cells import Geometry
from validation.judge.criteria import CORRELATED
from validation.measure.edges import lateral_edges_mm, radial_edges_mm, spectrum_edges, wide
from validation.measure.observables import SCALARS, Array, Columns, Observables
from validation.measure.table import Rows
from validation.statistics.binning import degrees, energies
from validation.statistics.resolution import ByEnergy, Resolutions, energy_edges
from validation.statistics.tallies import (
    LEAST_IN_BIN,
    Answer,
    InBins,
    Means,
    Points,
    Products,
    Shares,
    Tally,
    mean_at_centre,
    mean_in_bin,
    relative_width,
)

_FEWEST_BINS, _MOST_BINS = 5, 40  # of a distribution; between them the root of the showers
# Of energy, or angle, for a mean or width against it: between narrow bins at the ends, each of so much of the range. A
# generator has the least to learn from there.
_LABEL_BINS, _END_SHARE = 8, 0.02


@dataclass(frozen=True)
class Compared:
    """The two sets, a sample of each in memory, from which bins are chosen, and the geometry of both."""

    reference: Rows
    candidate: Rows
    sample_reference: Observables
    sample_candidate: Observables
    geometry: Geometry


Scale = Literal["linear", "log"]
Below = Literal["ratio", "difference"]


@dataclass(frozen=True)
class Frame:
    """A curve's heading, title, axes and bins, its scales, and how the two sets are compared below it."""

    group: str
    title: str
    x: str
    y: str
    edges: Array
    scales: tuple[Scale, ...] = ("linear",)
    below: Below = "ratio"
    log_x: bool = False
    trimmed: bool = False  # to the bins that hold anything

    @property
    def centres(self) -> Array:
        if self.log_x:
            middles: Array = np.sqrt(self.edges[1:] * self.edges[:-1])
            return middles
        return (self.edges[1:] + self.edges[:-1]) / 2


@dataclass(frozen=True)
class Curve:
    """One quantity in bins, of the reference and of the candidate."""

    frame: Frame
    reference: Points
    candidate: Points

    def relative(self) -> Points:
        """Candidate over reference, or minus it, and its standard error, each (bins,).

        A ratio is infinite where only the candidate has any, NaN where neither has. The error takes the two sets as
        independent, so that of paired sets is too wide.
        """
        (ours, our_error), (theirs, their_error) = self.reference, self.candidate
        if self.frame.below == "difference":
            return theirs - ours, np.hypot(our_error, their_error)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = theirs / ours
            return ratio, np.abs(ratio) * np.hypot(our_error / ours, their_error / theirs)


@dataclass(frozen=True)
class Summary:
    """Every curve by its name, and the correlation matrices (k, k) of the observables called `labels`.

    `resolutions`: of the reference and the candidate, whose energies span so large a `factor`.
    """

    curves: dict[str, Curve]
    labels: tuple[str, ...]
    reference: Array
    candidate: Array
    resolutions: dict[str, Resolutions]
    factor: float


def summarise(compared: Compared) -> Summary:
    """Read each set once, and add up all that the report draws."""
    plans = _plans(compared)
    points, matrices, resolutions = [], [], {}
    low, high = (float(end(compared.reference.energy_gev)) for end in (np.min, np.max))
    energy = energy_edges(low, high, min(len(compared.reference), len(compared.candidate)))
    for side, rows in (("reference", compared.reference), ("candidate", compared.candidate)):
        tallies = {name: tally() for name, (_, tally) in plans.items()}
        products, by_energy = Products(CORRELATED, compared.sample_reference), ByEnergy(energy)
        for piece in rows.pieces():
            products.add(piece)
            by_energy.add(piece)
            for tally in tallies.values():
                tally.add(piece)
        points.append({name: tally.points() for name, tally in tallies.items()})
        matrices.append(products.matrix())
        resolutions[side] = by_energy.found()
    curves = {name: Curve(frame, *(found[name] for found in points)) for name, (frame, _) in plans.items()}
    reference, candidate = matrices
    return Summary(
        curves,
        tuple(scalar.label for scalar in SCALARS if scalar.name in CORRELATED),
        reference,
        candidate,
        resolutions,
        high / low,
    )


_Plan = tuple[Frame, Callable[[], Tally]]
_LABELS = {"energy_gev": ("E [GeV]", energies), "theta_deg": ("True angle [degrees]", degrees)}


def _response(piece: Observables) -> Array:
    return piece.column("response")


def _angle_error(piece: Observables) -> Array:
    """Freed of the spread of the true angles within a bin."""
    return piece.column("angle_deg") - degrees(piece)


def _plans(compared: Compared) -> dict[str, _Plan]:
    geometry, samples = compared.geometry, (compared.sample_reference, compared.sample_candidate)
    events = min(len(compared.reference), len(compared.candidate))

    def profile(name: str, title: str, x: str, edges: Array, y: str = "Mean energy [GeV]") -> _Plan:
        trimmed = name == "spectrum" and bool(geometry.layers)
        return Frame("Profiles", title, x, y, edges, ("linear", "log"), trimmed=trimmed), partial(Means, name)

    def distribution(group: str, name: str, title: str, x: str) -> _Plan:
        edges = _edges(np.concatenate([sample.column(name) for sample in samples]), events)
        return Frame(group, title, x, "Share of the showers", edges), partial(Shares, name, edges)

    def against(label: str, title: str, y: str, value: Columns, answer: Answer) -> _Plan:
        x, values = _LABELS[label]
        log_x = label == "energy_gev" and wide(compared.reference.energy_gev)
        edges = _label_edges(values(compared.reference), events, log_x)
        below: Below = "ratio" if label == "energy_gev" else "difference"
        group = "Energy" if label == "energy_gev" else "Angle"
        return Frame(group, title, x, y, edges, below=below, log_x=log_x), partial(InBins, edges, values, value, answer)

    layers = np.arange(geometry.shape[2] + 1, dtype=np.float64)
    along_x, along_y = lateral_edges_mm(geometry)
    radial, hit_energy = radial_edges_mm(geometry), r"$\log_{10}(E_\mathrm{hit}$ / GeV)"
    found = {
        "layers": profile("layers", "Longitudinal profile", "Layer", layers),
        "along_x": profile("along_x", "Profile along x", "x [mm]", along_x),
        "along_y": profile("along_y", "Profile along y", "y [mm]", along_y),
        "radial": profile("radial", "Radial profile", "Distance from the axis [mm], last bin open", radial),
        "spectrum": profile("spectrum", "Hit energies", hit_energy, spectrum_edges(geometry), "Hits a shower"),
        "response": distribution("Energy", "response", "Response", r"$E_\mathrm{vis}/E$"),
        "response_against_energy": against(
            "energy_gev", "Response against energy", r"Mean $E_\mathrm{vis}/E$", _response, mean_in_bin
        ),
        "resolution_against_energy": against(
            "energy_gev", "Resolution against energy", r"$\sigma$/mean of $E_\mathrm{vis}/E$", _response, relative_width
        ),
        "hits": distribution("Shape", "hits", "Number of hits", "Hits above 0.3 MeV"),
        "depth_x0": distribution("Shape", "depth_x0", "Mean shower depth", "Depth [$X_0$]"),
        "depth_width_x0": distribution("Shape", "depth_width_x0", "Longitudinal width", "Width [$X_0$]"),
        "r90_mm": distribution("Shape", "r90_mm", "R90", "Radius that holds 90 % of the energy [mm]"),
        "second_x_mm2": distribution("Shape", "second_x_mm2", "Second moment along x", "Second moment [mm²]"),
        "second_y_mm2": distribution("Shape", "second_y_mm2", "Second moment along y", "Second moment [mm²]"),
        "angle_deg": distribution("Angle", "angle_deg", "Measured angle", "Measured angle [degrees]"),
        "angle_against_angle": against(
            "theta_deg", "Measured angle against true angle", "Mean angle [degrees]", _angle_error, mean_at_centre
        ),
    }
    if geometry.rings:
        del found["angle_against_angle"]
    return found


def _edges(values: Array, events: int) -> Array:
    """Even bins over all but the outermost half percent, as many as events allow; whole numbers fall in their middle.

    One value for all is given a width.
    """
    low, high = np.quantile(values, [0.005, 0.995])
    if not high - low > 1e-9 * abs(high):  # alike, up to rounding
        low, high = low - 0.5, high + 0.5
    count = int(np.clip(np.sqrt(events), _FEWEST_BINS, _MOST_BINS))
    if np.array_equal(values, values.round()):  # bins that hold now seven, now eight whole numbers would zigzag
        width = np.ceil((high - low) / count)
        return np.arange(np.floor(low) - 0.5, high + width, width)
    return np.linspace(low, high, count + 1)


def _label_edges(values: Array, events: int, log_x: bool) -> Array:
    """Bins over the whole range of a label, each with at least twice the showers that a point needs.

    Even, or even in the logarithm (`log_x`), with a narrow one at either end. A label that is the same for all has one
    bin of 2 % about it.
    """
    low, high = float(values.min()), float(values.max())
    if not high - low > 1e-9 * high:
        return np.array([0.99 * low, 1.01 * high])
    first, last = np.log([low, high]) if log_x else (low, high)
    narrow = float(np.clip(2 * LEAST_IN_BIN / events, _END_SHARE, 1 / 4)) * (last - first)
    between = np.linspace(first + narrow, last - narrow, int(np.clip(events // (4 * LEAST_IN_BIN), 1, _LABEL_BINS)) + 1)
    return np.array([low, *(np.exp(between) if log_x else between), high])
