"""What the plots show, added up shower by shower in one pass over each set: nothing here grows with the showers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from calopipe.showers.cells import Geometry
from validation.judge.criteria import CORRELATED
from validation.measure.observables import SCALARS, SPECTRUM_EDGES, Array, Observables, radial_edges_mm
from validation.measure.table import Rows
from validation.statistics.tallies import (
    LEAST_IN_BIN,
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
_LABEL_BINS = 6  # of energy, or angle, for a mean or width against it
_EDGE_BINS, _EDGE_SHARE = 8, 0.02  # between the narrow bins at the ends of a label, each of so much of its range


@dataclass(frozen=True)
class Compared:
    """The two sets, some showers of each held in memory, from which bins are chosen, and the geometry of both."""

    reference: Rows
    candidate: Rows
    sample_reference: Observables
    sample_candidate: Observables
    geometry: Geometry


Scale = Literal["linear", "log"]
Below = Literal["ratio", "difference"]


@dataclass(frozen=True)
class Frame:
    """What a curve is called, its bins, the scales it is seen on, and how the two sets are set against each other."""

    group: str
    title: str
    x: str
    y: str
    edges: Array
    scales: tuple[Scale, ...] = ("linear",)
    below: Below = "ratio"


@dataclass(frozen=True)
class Curve:
    """One quantity in bins, of the reference and of the candidate."""

    frame: Frame
    reference: Points
    candidate: Points


@dataclass(frozen=True)
class Summary:
    """Every curve by its name, and the correlation matrices (k, k) of the observables called `labels`.

    `edges`: the mean response, the resolution and the measured angle less the true one (`response`, `resolution`,
    `angle_deg`), each by fine bins of a label (`energy_gev`, `theta_deg`), with a narrow one at either end.
    """

    curves: dict[str, Curve]
    edges: dict[str, dict[str, Curve]]
    labels: tuple[str, ...]
    reference: Array
    candidate: Array


def summarise(compared: Compared) -> Summary:
    """Read each set once, and add up all that the report draws."""
    plans = _plans(compared) | _edge_plans(compared)
    chosen = [scalar for scalar in SCALARS if scalar.name in CORRELATED]
    found = []
    for rows in (compared.reference, compared.candidate):
        tallies = {name: tally() for name, (_, tally) in plans.items()}
        products = Products([scalar.name for scalar in chosen], compared.sample_reference)
        for piece in rows.pieces():
            products.add(piece)
            for tally in tallies.values():
                tally.add(piece)
        found.append(({name: tally.points() for name, tally in tallies.items()}, products.matrix()))
    (ours, our_matrix), (theirs, their_matrix) = found
    curves = {name: Curve(frame, ours[name], theirs[name]) for name, (frame, _) in plans.items()}
    edges: dict[str, dict[str, Curve]] = {}
    for name in _edge_plans(compared):
        label, _, quantity = name.partition(" ")
        edges.setdefault(label, {})[quantity] = curves.pop(name)
    return Summary(curves, edges, tuple(scalar.label for scalar in chosen), our_matrix, their_matrix)


_Plans = dict[str, tuple[Frame, Callable[[], Tally]]]


def _plans(compared: Compared) -> _Plans:
    geometry, samples = compared.geometry, (compared.sample_reference, compared.sample_candidate)
    events = min(len(compared.reference), len(compared.candidate))
    energies = _label_edges(compared.reference.energy_gev.astype(np.float64), events)
    angles = _label_edges(np.degrees(compared.reference.theta_rad.astype(np.float64)), events)

    def profile(name: str, title: str, x: str, y: str, edges: Array) -> tuple[Frame, Callable[[], Tally]]:
        return Frame("Profiles", title, x, y, edges, ("linear", "log")), lambda: Means(name)

    def distribution(group: str, name: str, title: str, x: str) -> tuple[Frame, Callable[[], Tally]]:
        edges = _edges(np.concatenate([sample.column(name) for sample in samples]), events)
        return Frame(group, title, x, "Share of the showers", edges), lambda: Shares(name, edges)

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
            lambda: InBins(energies, _energy, _response, mean_in_bin),
        ),
        "resolution_against_energy": (
            Frame("Energy", "Resolution against energy", "E [GeV]", r"$\sigma$/mean of $E_\mathrm{vis}/E$", energies),
            lambda: InBins(energies, _energy, _response, relative_width),
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
            lambda: InBins(angles, _angle, _angle_error, mean_at_centre),
        ),
    }  # fmt: skip


def _edge_plans(compared: Compared) -> _Plans:
    """How well a set is calibrated up to the ends of its labels, where a generator has the least to learn from."""
    events = min(len(compared.reference), len(compared.candidate))
    plans: _Plans = {}
    for label, x, values, of in (
        ("energy_gev", "E [GeV]", compared.reference.energy_gev.astype(np.float64), _energy),
        ("theta_deg", "True angle [degrees]", np.degrees(compared.reference.theta_rad.astype(np.float64)), _angle),
    ):
        edges = _narrow_at_the_ends(values, events)
        response = Frame("", "", x, "Mean response", edges), partial(InBins, edges, of, _response, mean_in_bin)
        resolution = Frame("", "", x, "Resolution", edges), partial(InBins, edges, of, _response, relative_width)
        angle = (
            Frame("", "", x, "Angle", edges, below="difference"),
            partial(InBins, edges, of, _angle_error, mean_in_bin),
        )
        parts = {"response": response, "resolution": resolution, "angle_deg": angle}
        plans |= {f"{label} {name}": plan for name, plan in parts.items()}
    return plans


def _energy(piece: Observables) -> Array:
    return piece.energy_gev


def _angle(piece: Observables) -> Array:
    return np.degrees(piece.theta_rad)


def _angle_error(piece: Observables) -> Array:
    return piece.column("angle_deg") - _angle(piece)


def _response(piece: Observables) -> Array:
    return piece.column("response")


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
    count = int(np.clip(events // (2 * LEAST_IN_BIN), 1, _LABEL_BINS))
    return np.linspace(low, high, count + 1)


def _narrow_at_the_ends(values: Array, events: int) -> Array:
    """Bins over the whole range of a label, narrow at either end, wider where there are few showers."""
    low, high = float(values.min()), float(values.max())
    if not high - low > 1e-9 * high:
        return np.array([0.99 * low, 1.01 * high])
    narrow = float(np.clip(2 * LEAST_IN_BIN / events, _EDGE_SHARE, 1 / 4)) * (high - low)
    between = int(np.clip(events // (4 * LEAST_IN_BIN), 1, _EDGE_BINS))
    return np.array([low, *np.linspace(low + narrow, high - narrow, between + 1), high])


def _centred_edges_mm(bins: int, width_mm: float) -> Array:
    return (np.arange(bins + 1, dtype=np.float64) - bins / 2) * width_mm
