"""What the plots show, added up shower by shower in one pass over each set: nothing here grows with the showers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import hist
import numpy as np

from preprocessing.showers import Geometry
from validation.measurements import CORRELATED
from validation.observables import SCALARS, SPECTRUM_EDGES, Array, Observables, radial_edges_mm
from validation.statistics import correlations, with_products
from validation.table import Rows

_FEWEST_BINS, _MOST_BINS = 5, 40  # of a distribution; between them the root of the showers
_LABEL_BINS = 6  # of energy, or angle, for a mean or width against it
_LEAST_IN_BIN = 20  # showers for a point of these


@dataclass(frozen=True)
class Compared:
    """The two sets, some showers of each held in memory, from which bins are chosen, and the geometry of both."""

    reference: Rows
    candidate: Rows
    sample_reference: Observables
    sample_candidate: Observables
    geometry: Geometry


Scale = Literal["linear", "log"]


@dataclass(frozen=True)
class Frame:
    """What a curve is called, its bins, the scales it is seen on, and how the two sets are set against each other."""

    group: str
    title: str
    x: str
    y: str
    edges: Array
    scales: tuple[Scale, ...] = ("linear",)
    below: Literal["ratio", "difference"] = "ratio"


Points = tuple[Array, Array]  # a value for each bin and its standard error over showers; NaN where unknown


@dataclass(frozen=True)
class Curve:
    """One quantity in bins, of the reference and of the candidate."""

    frame: Frame
    reference: Points
    candidate: Points


@dataclass(frozen=True)
class Summary:
    """Every curve by its name, and the correlation matrices (k, k) of the observables called `labels`."""

    curves: dict[str, Curve]
    labels: tuple[str, ...]
    reference: Array
    candidate: Array


def summarise(compared: Compared) -> Summary:
    """Read each set once, and add up all that the report draws."""
    plans = _plans(compared)
    chosen = [scalar for scalar in SCALARS if scalar.name in CORRELATED]
    found = []
    for rows in (compared.reference, compared.candidate):
        tallies = {name: tally() for name, (_, tally) in plans.items()}
        products = _Products([scalar.name for scalar in chosen], compared.sample_reference)
        for piece in rows.pieces():
            products.add(piece)
            for tally in tallies.values():
                tally.add(piece)
        found.append(({name: tally.points() for name, tally in tallies.items()}, products.matrix()))
    (ours, our_matrix), (theirs, their_matrix) = found
    curves = {name: Curve(frame, ours[name], theirs[name]) for name, (frame, _) in plans.items()}
    return Summary(curves, tuple(scalar.label for scalar in chosen), our_matrix, their_matrix)


class _Tally(Protocol):
    def add(self, piece: Observables) -> None: ...
    def points(self) -> Points: ...


_Plans = dict[str, tuple[Frame, Callable[[], _Tally]]]


def _plans(compared: Compared) -> _Plans:
    geometry, samples = compared.geometry, (compared.sample_reference, compared.sample_candidate)
    events = min(len(compared.reference), len(compared.candidate))
    energies = _label_edges(compared.reference.energy_gev.astype(np.float64), events)
    angles = _label_edges(np.degrees(compared.reference.theta_rad.astype(np.float64)), events)

    def profile(name: str, title: str, x: str, y: str, edges: Array) -> tuple[Frame, Callable[[], _Tally]]:
        return Frame("Profiles", title, x, y, edges, ("linear", "log")), lambda: _Means(name)

    def distribution(group: str, name: str, title: str, x: str) -> tuple[Frame, Callable[[], _Tally]]:
        edges = _edges(np.concatenate([sample.column(name) for sample in samples]), events)
        return Frame(group, title, x, "Share of the showers", edges), lambda: _Shares(name, edges)

    layers = np.arange(geometry.shape[2] + 1, dtype=np.float64)
    along_x, along_y = (_centred_edges_mm(bins, geometry.cell_mm) for bins in geometry.shape[:2])
    energy, radial = "Mean energy [GeV]", radial_edges_mm(geometry)
    return {
        "layers": profile("layers", "Longitudinal profile", "Layer", energy, layers),
        "along_x": profile("along_x", "Profile along x", "x [mm]", energy, along_x),
        "along_y": profile("along_y", "Profile along y", "y [mm]", energy, along_y),
        "radial": profile("radial", "Radial profile", "Distance from the axis [mm], last bin open", energy, radial),
        "spectrum": profile(
            "spectrum", "Hit energies", r"$\log_{10}(E_\mathrm{hit}$ / GeV)", "Hits a shower", SPECTRUM_EDGES
        ),
        "response": distribution("Energy", "response", "Response", r"$E_\mathrm{vis}/E$"),
        "response_against_energy": (
            Frame("Energy", "Response against energy", "E [GeV]", r"Mean $E_\mathrm{vis}/E$", energies),
            lambda: _InBins(energies, _energy, _response, _mean),
        ),
        "resolution_against_energy": (
            Frame("Energy", "Resolution against energy", "E [GeV]", r"$\sigma$/mean of $E_\mathrm{vis}/E$", energies),
            lambda: _InBins(energies, _energy, _response, _relative_width),
        ),
        "hits": distribution("Shape", "hits", "Number of hits", "Hits above 0.3 MeV"),
        "depth_x0": distribution("Shape", "depth_x0", "Mean shower depth", "Depth [$X_0$]"),
        "depth_width_x0": distribution("Shape", "depth_width_x0", "Longitudinal width", "Width [$X_0$]"),
        "r90_mm": distribution("Shape", "r90_mm", "R90", "Radius that holds 90 % of the energy [mm]"),
        "second_x_mm2": distribution("Shape", "second_x_mm2", "Second moment along x", "Second moment [mm²]"),
        "second_y_mm2": distribution("Shape", "second_y_mm2", "Second moment along y", "Second moment [mm²]"),
        "angle_deg": distribution("Angle", "angle_deg", "Measured angle", "Measured angle [degrees]"),
        "angle_against_angle": (
            Frame(
                "Angle", "Measured angle against true angle", "True angle [degrees]", "Mean angle [degrees]",
                angles, below="difference",
            ),
            # What is averaged is the distance from the true angle, so that angles within a bin do not add their spread.
            lambda: _InBins(angles, _angle, lambda piece: piece.column("angle_deg") - _angle(piece), _mean_at_centre),
        ),
    }  # fmt: skip


class _Means:
    """The mean over showers of each column of `name` (N, bins)."""

    def __init__(self, name: str) -> None:
        self._name, self._events = name, 0
        self._sum = self._squares = np.zeros(1)

    def add(self, piece: Observables) -> None:
        values = getattr(piece, self._name).astype(np.float64)
        self._events += len(values)
        self._sum = self._sum + values.sum(axis=0)
        self._squares = self._squares + (values**2).sum(axis=0)

    def points(self) -> Points:
        mean = self._sum / self._events
        return mean, np.sqrt(np.maximum(self._squares / self._events - mean**2, 0) / self._events)


class _Shares:
    """The share of the showers in each bin of the scalar `name`, the outer two open, with its binomial error."""

    def __init__(self, name: str, edges: Array) -> None:
        self._name, self._filled = name, hist.Hist(hist.axis.Variable(edges))

    def add(self, piece: Observables) -> None:
        self._filled.fill(_inside(piece.column(self._name), self._filled.axes[0].edges))

    def points(self) -> Points:
        counts = self._filled.values()
        share = counts / counts.sum()
        return share, np.sqrt(share * (1 - share) / counts.sum())


_Answer = Callable[[Array, Array, Array, Array], Points]


class _InBins:
    """`answer` of the edges, and of the number, mean and variance of `value` in bins of `label`, the outer two open."""

    def __init__(
        self,
        edges: Array,
        label: Callable[[Observables], Array],
        value: Callable[[Observables], Array],
        answer: _Answer,
    ) -> None:
        self._edges, self._label, self._value, self._answer = edges, label, value, answer
        self._filled = hist.Hist(hist.axis.Variable(edges), storage=hist.storage.Mean())

    def add(self, piece: Observables) -> None:
        self._filled.fill(_inside(self._label(piece), self._edges), sample=self._value(piece))

    def points(self) -> Points:
        view = self._filled.view()
        known = view.count >= _LEAST_IN_BIN
        count, mean, variance = (np.where(known, each, np.nan) for each in (view.count, view.value, view.variance))
        return self._answer(self._edges, count, mean, variance)


class _Products:
    """Pearson's coefficients of the scalars `names`, standardised by `sample` to keep the sums of products exact."""

    def __init__(self, names: Sequence[str], sample: Observables) -> None:
        self._columns = [index for index, scalar in enumerate(SCALARS) if scalar.name in names]
        self._centre = sample.scalars.mean(axis=0)
        self._spread = np.maximum(sample.scalars.std(axis=0), 1e-30)  # an observable that does not vary
        self._sum, self._events = np.zeros(1), 0

    def add(self, piece: Observables) -> None:
        standard = ((piece.scalars - self._centre) / self._spread)[:, self._columns]
        self._sum = self._sum + with_products(standard).sum(axis=0)
        self._events += len(piece)

    def matrix(self) -> Array:
        size = len(self._columns)
        matrix = np.eye(size)
        rows, columns = np.triu_indices(size, 1)
        matrix[rows, columns] = matrix[columns, rows] = correlations(self._sum / self._events, size)
        return matrix


def _energy(piece: Observables) -> Array:
    return piece.energy_gev


def _angle(piece: Observables) -> Array:
    return np.degrees(piece.theta_rad)


def _response(piece: Observables) -> Array:
    return piece.column("response")


def _mean(_edges: Array, count: Array, mean: Array, variance: Array) -> Points:
    return mean, np.sqrt(variance / count)


def _mean_at_centre(edges: Array, count: Array, mean: Array, variance: Array) -> Points:
    return (edges[1:] + edges[:-1]) / 2 + mean, np.sqrt(variance / count)


def _relative_width(_edges: Array, count: Array, mean: Array, variance: Array) -> Points:
    """sigma/mean; its error is that of a normal distribution whose mean is well known."""
    width = np.sqrt(variance) / mean
    return width, width / np.sqrt(2 * count)


def _inside(values: Array, edges: Array) -> Array:
    """`values` with those beyond the outer edges moved into the outer bins."""
    return values.clip(edges[0], np.nextafter(edges[-1], -np.inf))


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


def _label_edges(values: Array, events: int) -> Array:
    """Even bins over the whole range of a label, twice as many showers in each as a point needs."""
    low, high = float(values.min()), float(values.max())
    if not high - low > 1e-9 * high:
        low, high = 0.99 * low, 1.01 * high
    count = int(np.clip(events // (2 * _LEAST_IN_BIN), 1, _LABEL_BINS))
    return np.linspace(low, high, count + 1)


def _centred_edges_mm(bins: int, width_mm: float) -> Array:
    return (np.arange(bins + 1, dtype=np.float64) - bins / 2) * width_mm
