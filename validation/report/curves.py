"""The curves of two samples of showers that the plots show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import hist
import numpy as np

from calopipe.showers.cells import Array, Geometry
from validation.judge.criteria import CORRELATED
from validation.measure.edges import SPECTRUM_EDGES, lateral_edges_mm, radial_edges_mm, wide
from validation.measure.observables import SCALARS, Observables
from validation.statistics.binning import degrees, energies
from validation.statistics.expected import pulls
from validation.statistics.resolution import Resolutions, energy_edges

_FEWEST_BINS, _MOST_BINS = 5, 40  # of a distribution; between these limits, the root of the number of showers
# Bins of energy, or angle, for a mean or width against it. The narrow bins at both ends have so much of the range each:
# a generator has the least to learn from at the ends.
_LABEL_BINS, _END_SHARE = 8, 0.02
_LEAST_IN_BIN = 20  # showers that a mean or width in a bin needs

Points = tuple[Array, Array]  # a value for each bin and its standard error over showers; NaN where unknown

Scale = Literal["linear", "log"]
Below = Literal["ratio", "difference"]


@dataclass(frozen=True)
class Frame:
    """A curve's heading, title, axes, bins and scales, and how the panel below compares the two sets."""

    group: str
    title: str
    x: str
    y: str
    edges: Array
    scales: tuple[Scale, ...] = ("linear",)
    below: Below = "ratio"
    log_x: bool = False
    trimmed: bool = False  # show only the range of bins with entries

    @property
    def centres(self) -> Array:
        if self.log_x:
            return np.sqrt(self.edges[1:] * self.edges[:-1])
        return (self.edges[1:] + self.edges[:-1]) / 2


@dataclass(frozen=True)
class Curve:
    """One quantity in bins, of the reference and of the candidate."""

    frame: Frame
    reference: Points
    candidate: Points

    def relative(self) -> Points:
        """Candidate over reference, or minus it, and its standard error, each (bins,).

        A ratio is infinite if only the candidate has entries, and NaN if neither set has. The error assumes independent
        sets; for paired sets it is too wide.
        """
        (reference, reference_error), (candidate, candidate_error) = self.reference, self.candidate
        if self.frame.below == "difference":
            return candidate - reference, np.hypot(reference_error, candidate_error)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = candidate / reference
            return ratio, np.hypot(reference_error * ratio, candidate_error) / reference


@dataclass(frozen=True)
class Summary:
    """Every curve by its name, and the correlation matrices (k, k) of the observables called `labels`.

    `resolution`: the fit (`Resolutions.fit`) to the resolution of the reference, and of the candidate.
    """

    curves: dict[str, Curve]
    labels: tuple[str, ...]
    reference: Array
    candidate: Array
    resolution: dict[str, dict[str, Any]]


def summarise(reference: Observables, candidate: Observables, geometry: Geometry) -> Summary:
    """All curves and matrices that the report draws of showers with energy."""
    sides = {"reference": reference, "candidate": candidate}
    standard = pulls(reference, CORRELATED)
    of_reference, of_candidate = (_pearson(standard(table)) for table in sides.values())
    low, high = float(reference.energy_gev.min()), float(reference.energy_gev.max())
    edges = energy_edges(low, high, min(len(reference), len(candidate)))
    resolution = {name: Resolutions.of(table, edges).fit(high / low) for name, table in sides.items()}
    labels = tuple(label for name, label in SCALARS.items() if name in CORRELATED)
    return Summary(_curves(reference, candidate, geometry), labels, of_reference, of_candidate, resolution)


def _pearson(values: Array) -> Array:
    """Coefficients (k, k) of the columns of `values` (n, k). NaN for a column that does not vary, or for one shower."""
    with np.errstate(divide="ignore", invalid="ignore"):
        standard = (values - values.mean(axis=0)) / values.std(axis=0)
        correlation: Array = standard.T @ standard / len(values)
    return correlation


Answer = Callable[[Array, Array, Array], Points]  # arguments: number, mean and variance in each bin


def _curves(reference: Observables, candidate: Observables, geometry: Geometry) -> dict[str, Curve]:
    events = min(len(reference), len(candidate))

    def curve(frame: Frame, points: Callable[[Observables], Points]) -> Curve:
        return Curve(frame, points(reference), points(candidate))

    def profile(name: str, title: str, x: str, edges: Array, y: str = "Mean energy [GeV]") -> Curve:
        frame = Frame("Profiles", title, x, y, edges, ("linear", "log"), trimmed=name == "spectrum")
        return curve(frame, lambda table: _means(getattr(table, name).astype(np.float64)))

    def distribution(group: str, name: str, title: str, x: str) -> Curve:
        edges = _edges(np.concatenate([table.column(name) for table in (reference, candidate)]), events)
        frame = Frame(group, title, x, "Share of the showers", edges)
        return curve(frame, lambda table: _shares(table.column(name), edges))

    def against_energy(title: str, y: str, answer: Answer) -> Curve:
        log_x = wide(reference.energy_gev)
        edges = _label_edges(energies(reference), events, log_x)
        frame = Frame("Energy", title, "E [GeV]", y, edges, log_x=log_x)
        return curve(frame, lambda table: _in_bins(energies(table), table.column("response"), edges, answer))

    def against_angle(title: str, y: str) -> Curve:
        """The mean measured angle. Its error leaves out the spread of true angles within a bin."""
        edges = _label_edges(degrees(reference), events, log_x=False)
        frame = Frame("Angle", title, "True angle [degrees]", y, edges, below="difference")

        def points(table: Observables) -> Points:
            away, error = _in_bins(degrees(table), table.column("angle_deg") - degrees(table), edges, mean_in_bin)
            return frame.centres + away, error

        return curve(frame, points)

    layers = np.arange(geometry.shape[2] + 1, dtype=np.float64)
    along_x, along_y = lateral_edges_mm(geometry)
    radial, cell_energy = radial_edges_mm(geometry), r"$\log_{10}(E_\mathrm{cell}$ / GeV)"
    curves = {
        "layers": profile("layers", "Longitudinal profile", "Layer", layers),
        "along_x": profile("along_x", "Profile along x", "x [mm]", along_x),
        "along_y": profile("along_y", "Profile along y", "y [mm]", along_y),
        "radial": profile("radial", "Radial profile", "Distance from the axis [mm], last bin open", radial),
        "spectrum": profile("spectrum", "Cell energies", cell_energy, SPECTRUM_EDGES, "Cells a shower"),
        "response": distribution("Energy", "response", "Response", r"$E_\mathrm{vis}/E$"),
        "response_against_energy": against_energy("Response against energy", r"Mean $E_\mathrm{vis}/E$", mean_in_bin),
        "resolution_against_energy": against_energy(
            "Resolution against energy", r"$\sigma$/mean of $E_\mathrm{vis}/E$", relative_width
        ),
        "hits": distribution("Shape", "hits", "Number of hits", "Hits above 0.3 MeV"),
        "depth_x0": distribution("Shape", "depth_x0", "Mean shower depth", "Depth [$X_0$]"),
        "depth_width_x0": distribution("Shape", "depth_width_x0", "Longitudinal width", "Width [$X_0$]"),
        "r90_mm": distribution("Shape", "r90_mm", "R90", "Radius that holds 90 % of the energy [mm]"),
        "second_x_mm2": distribution("Shape", "second_x_mm2", "Second moment along x", "Second moment [mm²]"),
        "second_y_mm2": distribution("Shape", "second_y_mm2", "Second moment along y", "Second moment [mm²]"),
        "angle_deg": distribution("Angle", "angle_deg", "Measured angle", "Measured angle [degrees]"),
    }
    if not geometry.rings:
        curves["angle_against_angle"] = against_angle("Measured angle against true angle", "Mean angle [degrees]")
    return curves


def _means(values: Array) -> Points:
    """The mean over showers of each column (N, bins)."""
    return values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))


def _shares(values: Array, edges: Array) -> Points:
    """The share of the showers in each bin, with its binomial error. The outer two bins are open."""
    share = np.histogram(_inside(values, edges), edges)[0] / len(values)
    return share, np.sqrt(share * (1 - share) / len(values))


def _in_bins(label: Array, values: Array, edges: Array, answer: Answer) -> Points:
    """The `answer` for the `values` in bins of the `label`. The outer two bins are open."""
    filled = hist.Hist(hist.axis.Variable(edges), storage=hist.storage.Mean())
    view = filled.fill(_inside(label, edges), sample=values).view()
    enough = view.count >= _LEAST_IN_BIN
    return answer(*(np.where(enough, column, np.nan) for column in (view.count, view.value, view.variance)))


def _inside(values: Array, edges: Array) -> Array:
    """`values`, where values beyond the outer edges are moved into the outer bins."""
    return values.clip(edges[0], np.nextafter(edges[-1], -np.inf))


def mean_in_bin(count: Array, mean: Array, variance: Array) -> Points:
    return mean, np.sqrt(variance / count)


def relative_width(count: Array, mean: Array, variance: Array) -> Points:
    """sigma/mean, with the error for a normal distribution whose mean is well known."""
    width = np.sqrt(variance) / mean
    return width, width / np.sqrt(2 * count)


def _edges(values: Array, events: int) -> Array:
    """Edges of equal bins, as many as events allow, over all values but the outermost half per cent at either end.

    Whole numbers are never on an edge. If all values are the same, the bins span one unit around the value.
    """
    low, high = np.quantile(values, [0.005, 0.995])
    if not high - low > 1e-9 * abs(high):  # alike, up to rounding
        low, high = low - 0.5, high + 0.5
    count = int(np.clip(np.sqrt(events), _FEWEST_BINS, _MOST_BINS))
    if np.array_equal(values, values.round()):  # a bin of 7 and a bin of 8 whole numbers would zigzag
        width = np.ceil((high - low) / count)
        return np.arange(np.floor(low) - 0.5, high + width, width)
    return np.linspace(low, high, count + 1)


def _label_edges(values: Array, events: int, log_x: bool) -> Array:
    """Edges of bins over the whole range of a label, each bin with at least twice the showers that a point needs.

    Bins are equal, or equal in the logarithm (`log_x`), with a narrow bin at either end. If the label is the same for
    all showers, there is one bin of 2 % around it.
    """
    low, high = float(values.min()), float(values.max())
    if not high - low > 1e-9 * high:
        return np.array([0.99 * low, 1.01 * high])
    first, last = np.log([low, high]) if log_x else (low, high)
    narrow = float(np.clip(2 * _LEAST_IN_BIN / events, _END_SHARE, 1 / 4)) * (last - first)
    bins = int(np.clip(events // (4 * _LEAST_IN_BIN), 1, _LABEL_BINS))
    between = np.linspace(first + narrow, last - narrow, bins + 1)
    return np.array([low, *(np.exp(between) if log_x else between), high])
