"""Monte Carlo beside the candidate, as the field draws it: steps for the one, points for the other, ratio below."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import hist
import matplotlib as mpl
import mplhep
import numpy as np
import numpy.typing as npt
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import MaxNLocator

from preprocessing.showers import Geometry
from validation.measuring import Picture
from validation.observables import SPECTRUM_EDGES, Array, Observables, radial_edges_mm

_MC, _CANDIDATE = "#3f3f3f", "#c8102e"
_STYLE: dict[Any, Any] = {
    "font.size": 11.0, "axes.labelsize": 12.0, "legend.frameon": False, "xtick.top": True, "ytick.right": True,
    "xtick.direction": "in", "ytick.direction": "in", "xtick.minor.visible": True, "ytick.minor.visible": True,
}  # fmt: skip
_DPI = 110
_ENERGY_BINS = 6
_LEAST_IN_BIN = 20  # showers for a point of the resolution


@dataclass(frozen=True)
class Compared:
    """What a plot shows: the two sets, without empty showers, and their geometry."""

    reference: Observables
    candidate: Observables
    geometry: Geometry


@dataclass(frozen=True)
class Curve:
    """One quantity in bins: the value and its standard error for the reference and for the candidate."""

    title: str
    x: str
    y: str
    edges: Array
    reference: tuple[Array, Array]
    candidate: tuple[Array, Array]


def curves(compared: Compared) -> dict[str, Curve]:
    """Every curve of the report, by name. Uncertainties are over events, one standard deviation."""
    geometry = compared.geometry
    widths = {"layers": (geometry.shape[2], 1.0), "along_x": (geometry.shape[0], geometry.cell_mm)}
    widths["along_y"] = (geometry.shape[1], geometry.cell_mm)
    places = {name: np.arange(bins + 1, dtype=np.float64) * width for name, (bins, width) in widths.items()}
    places["along_x"] -= places["along_x"][-1] / 2
    places["along_y"] -= places["along_y"][-1] / 2

    def profile(title: str, name: str, x: str, y: str, edges: Array) -> Curve:
        return Curve(title, x, y, edges, *(_mean(getattr(table, name)) for table in _tables(compared)))

    def distribution(title: str, name: str, x: str) -> Curve:
        values = [table.column(name) for table in _tables(compared)]
        edges = _edges(np.concatenate(values), min(map(len, values)))
        return Curve(title, x, "Share of the showers", edges, *(_shares(each, edges) for each in values))

    energies = _edges_of_energy(compared)
    return {
        "longitudinal": profile("Longitudinal profile", "layers", "Layer", "Energy [GeV]", places["layers"]),
        "along_x": profile("Profile along x", "along_x", "x [mm]", "Energy [GeV]", places["along_x"]),
        "along_y": profile("Profile along y", "along_y", "y [mm]", "Energy [GeV]", places["along_y"]),
        "radial": profile(
            "Radial profile", "radial", "Distance from the axis [mm]", "Energy [GeV]", radial_edges_mm(geometry)
        ),
        "response": distribution("Response", "response", "E_vis / E"),
        "resolution": Curve(
            "Resolution", "E [GeV]", "sigma / mean of E_vis / E", energies,
            *(_resolution(table, energies) for table in _tables(compared)),
        ),
        "visible": Curve(
            "Visible energy", "E [GeV]", "Mean E_vis [GeV]", energies,
            *(_mean_in_bins(table, energies) for table in _tables(compared)),
        ),
        "hits": distribution("Number of hits", "hits", "Hits above 0.3 MeV"),
        "spectrum": profile("Hit energies", "spectrum", "log10(E_hit / GeV)", "Hits a shower", SPECTRUM_EDGES),
        "angle": distribution("Measured angle", "angle_deg", "Measured angle [degrees]"),
        "depth": distribution("Mean shower depth", "depth_x0", "Depth [X0]"),
        "r90": distribution("R90", "r90_mm", "R90 [mm]"),
    }  # fmt: skip


def draw_all(compared: Compared, pictures: tuple[Picture, Picture] | None) -> Iterator[tuple[str, bytes]]:
    """Every plot of the report: its title, and a PNG."""
    for name, curve in curves(compared).items():
        yield curve.title, _png(partial(_draw, curve=curve), (5.0, 4.6))
        if name in ("longitudinal", "along_y"):
            title = f"{curve.title}, logarithmic"
            yield title, _png(partial(_draw, curve=curve, log=True), (5.0, 4.6))
    if pictures is not None:
        yield "Two single showers", _png(partial(_event_display, pictures=pictures, compared=compared), (7.5, 6.5))


def overview(compared: Compared) -> bytes:
    """One PNG, two rows of three: what tells most of a shower."""
    drawn = curves(compared)
    chosen = [drawn[name] for name in ("longitudinal", "along_y", "response", "hits", "spectrum", "angle")]

    def paint(figure: Figure) -> None:
        parts: npt.NDArray[Any] = np.asarray(figure.subfigures(2, 3))
        for part, curve in zip(parts.flat, chosen, strict=True):
            _draw(part, curve, log=curve.title == "Hit energies")

    return _png(paint, (14.0, 8.6))


def _draw(figure: FigureBase, curve: Curve, log: bool = False) -> None:
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1], gridspec_kw={"hspace": 0.1})
    figure.subplots_adjust(
        left=0.17, right=0.96, bottom=0.13, top=0.92
    )  # by hand: a layout engine takes twice the time
    ours, theirs = (_histogram(curve.edges, *values) for values in (curve.reference, curve.candidate))
    mplhep.histplot(
        ours, ax=above, color=_MC, label="Monte Carlo", histtype="fill", alpha=0.25, yerr=False, flow="none"
    )
    mplhep.histplot(ours, ax=above, color=_MC, histtype="step", yerr=True, flow="none")
    mplhep.histplot(
        theirs, ax=above, color=_CANDIDATE, label="Candidate", histtype="errorbar", flow="none", markersize=4
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        mplhep.comp.comparison(
            theirs, ours, below, comparison="ratio", flow="none", color=_CANDIDATE, markersize=4,
            comparison_ylabel="Ratio", comparison_ylim=_ratio_range(curve),
        )  # fmt: skip
    if log:
        above.set_yscale("log")
        positive = curve.reference[0][curve.reference[0] > 0]
        if len(positive):
            above.set_ylim(positive.min() / 3, positive.max() * 5)
    else:
        above.set_ylim(0, above.get_ylim()[1] * 1.35)  # room for the legend
    above.set_ylabel(curve.y)
    above.set_xlabel("")
    above.set_title(curve.title, loc="left", fontsize=12)
    above.legend(fontsize=10)
    below.set_xlabel(curve.x)
    below.set_xlim(curve.edges[0], curve.edges[-1])
    below.xaxis.set_major_locator(MaxNLocator(5))


def _event_display(figure: Figure, pictures: tuple[Picture, Picture], compared: Compared) -> None:
    """Side and front view of one Monte Carlo shower and of one of the candidate, on one scale of colours."""
    geometry = compared.geometry
    width_x, width_y = (n * geometry.cell_mm / 2 for n in geometry.shape[:2])
    depth = geometry.shape[2] * geometry.layer_pitch_mm
    axes = figure.subplots(2, 2)
    figure.subplots_adjust(left=0.09, right=0.99, bottom=0.08, top=0.95, hspace=0.3, wspace=0.25)
    rows = (
        ("side", "z [mm]", "y [mm]", (0, depth, -width_y, width_y)),
        ("front", "x [mm]", "y [mm]", (-width_x, width_x, -width_y, width_y)),
    )
    for row, (view, x, y, extent) in enumerate(rows):
        images = [getattr(picture, view) for picture in pictures]
        highest = max(float(image.max()) for image in images)
        for axis, picture, image, name in zip(axes[row], pictures, images, ("Monte Carlo", "Candidate"), strict=True):
            shown = np.ma.masked_less_equal(image if view == "side" else image.T, highest * 1e-5)
            mesh = axis.imshow(
                shown,
                origin="lower",
                extent=extent,
                aspect="auto",
                cmap="viridis",
                norm=LogNorm(highest * 1e-5, highest),
            )
            axis.set_xlabel(x)
            axis.set_ylabel(y)
            title = f"{name}: {picture.energy_gev:.0f} GeV, {np.degrees(picture.theta_rad):.0f} degrees"
            axis.set_title(title, fontsize=10, loc="left")
        figure.colorbar(mesh, ax=axes[row], label="Energy [GeV]")


def closest(reference: tuple[Picture, ...], candidate: tuple[Picture, ...]) -> tuple[Picture, Picture] | None:
    """The two showers, one of each, that agree best in energy and angle; None where a set has none to show."""
    pairs = [(a, b) for a in reference for b in candidate]

    def apart(pair: tuple[Picture, Picture]) -> float:
        a, b = pair
        return abs(np.log(a.energy_gev / b.energy_gev)) + abs(a.theta_rad - b.theta_rad)

    return min(pairs, key=apart, default=None)


def _histogram(edges: Array, values: Array, errors: Array) -> hist.Hist:
    filled = hist.Hist(hist.axis.Variable(edges), storage=hist.storage.Weight())
    view = filled.view()
    view.value, view.variance = np.nan_to_num(values), np.nan_to_num(errors) ** 2
    return filled


def _tables(compared: Compared) -> tuple[Observables, Observables]:
    return compared.reference, compared.candidate


def _mean(values: npt.NDArray[np.float32]) -> tuple[Array, Array]:
    """Mean over showers (N, bins) and its standard error."""
    return values.mean(axis=0, dtype=np.float64), values.std(axis=0, dtype=np.float64) / np.sqrt(len(values))


def _shares(values: Array, edges: Array) -> tuple[Array, Array]:
    """Share of `values` in each bin, the outer two open, with its binomial standard error."""
    filled = hist.Hist(hist.axis.Variable(edges)).fill(values.clip(edges[0], np.nextafter(edges[-1], -np.inf)))
    share = filled.values() / len(values)
    return share, np.sqrt(share * (1 - share) / len(values))


def _edges(values: Array, events: int) -> Array:
    """Even bins over all but the outermost half percent; as many as events allow, one where all values are alike."""
    low, high = np.quantile(values, [0.005, 0.995])
    if not high > low:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, int(np.clip(np.sqrt(events), 5, 40)) + 1)


def _edges_of_energy(compared: Compared) -> Array:
    energy = compared.reference.energy_gev
    low, high = float(energy.min()), float(energy.max())
    if not high > low:
        low, high = 0.99 * low, 1.01 * high
    return np.linspace(low, high, _ENERGY_BINS + 1)


def _in_bins(table: Observables, edges: Array) -> Iterator[Observables]:
    place = np.searchsorted(edges[1:-1], table.energy_gev, side="right")
    return (table[place == k] for k in range(len(edges) - 1))


def _resolution(table: Observables, edges: Array) -> tuple[Array, Array]:
    """sigma/mean of the response in bins of energy; its error sigma/sqrt(2 n) is that of a normal distribution."""
    values, errors = [], []
    for part in _in_bins(table, edges):
        response, enough = part.column("response"), len(part) >= _LEAST_IN_BIN
        values.append(float(response.std() / response.mean()) if enough else np.nan)
        errors.append(values[-1] / np.sqrt(2 * len(part)) if enough else np.nan)
    return np.array(values), np.array(errors)


def _mean_in_bins(table: Observables, edges: Array) -> tuple[Array, Array]:
    parts = [part.column("visible_gev") for part in _in_bins(table, edges)]
    means = [float(part.mean()) if len(part) else np.nan for part in parts]
    return np.array(means), np.array(
        [float(part.std()) / np.sqrt(len(part)) if len(part) else np.nan for part in parts]
    )


def _ratio_range(curve: Curve) -> tuple[float, float]:
    """A range that shows the well-known bins: wide enough for nine in ten of them, at least 10 % and at most 100 %."""
    (ours, _), (theirs, _) = curve.reference, curve.candidate
    known = np.isfinite(ours) & np.isfinite(theirs) & (ours > 0.01 * np.nanmax(ours, initial=0.0))
    away = np.abs(theirs[known] / ours[known] - 1)
    reach = float(np.clip(1.3 * np.quantile(away, 0.9), 0.1, 1.0)) if known.any() else 1.0
    return 1 - reach, 1 + reach


def _png(paint: Callable[[Figure], None], size: tuple[float, float]) -> bytes:
    """What `paint` draws, as a PNG. A figure of its own, so that no window, and no state of pyplot, is involved."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size)
        paint(figure)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=_DPI, metadata={"Software": None})
        return stream.getvalue()
