"""Plots in the style of particle physics: Monte Carlo as a histogram, the candidate as points, and the ratio below."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import hist
import matplotlib as mpl
import mplhep
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from calopipe.showers.cells import Array, Geometry
from validation.measure.pictures import Picture, views_mm
from validation.report.curves import Curve, Points, Scale, Summary
from validation.statistics.resolution import curve as law

MC, CANDIDATE = "#3f3f3f", "#c8102e"
_STYLE: dict[Any, Any] = {
    "font.size": 11.0, "axes.labelsize": 12.0, "legend.frameon": False, "xtick.top": True, "ytick.right": True,
    "xtick.direction": "in", "ytick.direction": "in", "xtick.minor.visible": True, "ytick.minor.visible": True,
    "xtick.minor.ndivs": 2, "ytick.minor.ndivs": 2, "hatch.linewidth": 0.5,
}  # fmt: skip
_DPI = 110
_WIDTH_IN = 5.0  # of every picture, so that letters have one size in all of them
_OVERVIEW = ("layers", "along_y", "response", "hits", "spectrum", "angle_deg")
_WELL_KNOWN = 0.01  # bins with less than this share of the highest bin do not decide the range of the lower panel
_MANY = 2e3  # ratio of energies, above which the axis labels only whole decades
_MARGIN = 1.2  # the range of the lower panel over what it has to show
_SMALLEST_REACH = 0.02  # least range of a ratio on either side of one
_SMALLEST_DIFFERENCE = 0.5  # least range of a difference in degrees: the tolerance of the stricter grade


@dataclass(frozen=True)
class Plot:
    """A picture of the report, and its heading."""

    group: str
    title: str
    png: bytes


def draw_all(summary: Summary) -> Iterator[Plot]:
    """Every plot of the report except single showers. The resolution is drawn with its fits, if there are any."""
    for name, curve in summary.curves.items():
        height = 4.4 if len(curve.frame.scales) == 1 else 6.2
        laws = summary.resolution if name == "resolution_against_energy" else {}
        picture = png(partial(_draw, curve=curve, scales=curve.frame.scales, laws=laws), height)
        yield Plot(curve.frame.group, curve.frame.title, picture)
    difference = summary.candidate - summary.reference
    largest = max(float(np.nanmax(np.abs(difference), initial=0.0)), 0.1)
    for title, matrix, reach in (
        ("Correlations, Monte Carlo", summary.reference, 1.0),
        ("Correlations, candidate", summary.candidate, 1.0),
        ("Candidate minus Monte Carlo", difference, largest),
    ):
        paint = partial(_correlations, title=title, matrix=matrix, labels=summary.labels, reach=reach)
        yield Plot("Correlations", title, png(paint, 4.8))


def overview(summary: Summary) -> bytes:
    """One PNG of six curves, for a page that has room for only one picture."""

    def paint(figure: Figure) -> None:
        parts: npt.NDArray[Any] = np.asarray(figure.subfigures(2, 3))
        shown = _OVERVIEW if "angle_against_angle" in summary.curves else (*_OVERVIEW[:-1], "radial")
        for part, name in zip(parts.flat, shown, strict=True):
            _draw(part, summary.curves[name], ("log",) if name == "spectrum" else ("linear",), laws={})

    return png(paint, 8.6, width=14.0)


def png(paint: Callable[[Figure], None], height: float, width: float = _WIDTH_IN) -> bytes:
    """What `paint` draws, as a PNG, without a window and without pyplot's state."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        paint(figure)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", dpi=_DPI, metadata={"Software": "calopipe"})
        return stream.getvalue()


def _draw(figure: FigureBase, curve: Curve, scales: Sequence[Scale], laws: Mapping[str, Any]) -> None:
    axes = figure.subplots(
        len(scales) + 1, 1, sharex=True, height_ratios=[*(3 for _ in scales), 1.3], gridspec_kw={"hspace": 0.08}
    )
    # Places of axes, titles and labels are set here: Matplotlib takes longer to find them than to draw.
    figure.subplots_adjust(left=0.18, right=0.945, bottom=0.13 if len(scales) == 1 else 0.09, top=0.93)
    for axis, scale in zip(axes, scales, strict=False):
        _absolute(axis, curve, scale)
    for side, fit in laws.items():
        if fit["terms"]:
            along = np.geomspace(curve.frame.edges[0], curve.frame.edges[-1], 100)
            axes[0].plot(along, law(fit, along), color=MC if side == "reference" else CANDIDATE, linewidth=1.2)
    put_title(axes[0], curve.frame.title)
    axes[0].legend(fontsize=10)
    draw_relative(axes[-1], curve)
    axes[-1].set_xlabel(curve.frame.x)
    last = -1
    if curve.frame.trimmed and (filled := np.flatnonzero(curve.reference[0] + curve.candidate[0])).size:
        last = int(filled[-1]) + 1
    axes[-1].set_xlim(curve.frame.edges[0], curve.frame.edges[last])
    if curve.frame.log_x:
        _log_energies(axes[-1])
    else:
        axes[-1].xaxis.set_major_locator(MaxNLocator(4, prune="upper"))
    for axis in axes:
        axis.yaxis.set_label_coords(-0.165, 0.5)


def _log_energies(axis: Axes) -> None:
    """Label energies on a logarithmic axis with 1, 2, 5, 10, or only with whole decades if there are many."""
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > _MANY else (1.0, 2.0, 5.0)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _absolute(axis: Axes, curve: Curve, scale: Scale) -> None:
    mc, candidate = _histogram(curve, curve.reference), _histogram(curve, curve.candidate)
    mplhep.histplot(mc, ax=axis, color=MC, label="Monte Carlo", histtype="fill", alpha=0.25, yerr=False, flow="none")
    mplhep.histplot(mc, ax=axis, color=MC, histtype="step", yerr=True, flow="none")
    mplhep.histplot(
        candidate, ax=axis, color=CANDIDATE, label="Candidate", histtype="errorbar", flow="none", markersize=4
    )
    values = np.concatenate([curve.reference[0], curve.candidate[0]])
    values = values[np.isfinite(values)]
    low, high = float(values.min(initial=np.inf)), float(values.max(initial=0.0))
    if scale == "log":
        axis.set_yscale("log")
        above_zero = curve.reference[0][curve.reference[0] > 0]
        axis.set_ylim(float(above_zero.min(initial=high)) / 3, high * 5)
    elif high / 2 < low < np.inf:  # far from zero throughout: a mean against energy or angle
        room = max(high - low, 0.05 * high)
        axis.set_ylim(low - 0.3 * room, high + 0.8 * room)
    else:
        axis.set_ylim(0, max(axis.get_ylim()[1], 1e-9) * 1.25)  # room for the legend
    axis.set_ylabel(curve.frame.y)
    axis.set_xlabel("")


def draw_relative(axis: Axes, curve: Curve) -> None:
    """Draw the lower panel. A triangle at its edge stands for a point beyond the edge."""
    ratio = curve.frame.below == "ratio"
    mc, candidate = _histogram(curve, curve.reference), _histogram(curve, curve.candidate)
    low, high = lower_range(curve)
    with np.errstate(divide="ignore", invalid="ignore"):
        mplhep.comp.comparison(
            candidate, mc, axis, comparison="split_ratio" if ratio else "difference", flow="none", color=CANDIDATE,
            markersize=4, comparison_ylabel="Ratio" if ratio else "Difference", comparison_ylim=(low, high),
        )  # fmt: skip
    compared, _ = curve.relative()
    for beyond, edge, marker in ((compared > high, high, "^"), (compared < low, low, "v")):
        edges = np.full(int(beyond.sum()), edge)
        axis.plot(curve.frame.centres[beyond], edges, marker, color=CANDIDATE, markersize=6, clip_on=False, zorder=5)


def lower_range(curve: Curve) -> tuple[float, float]:
    """The range of the lower panel, which holds nine in ten of the well-known bins with their errors.

    It goes beyond a ratio of two only if half the bins do, and never below zero.
    """
    mc, (compared, errors) = curve.reference[0], curve.relative()
    well_known = np.isfinite(compared) & (mc > _WELL_KNOWN * np.nanmax(mc, initial=0.0))
    ratio = curve.frame.below == "ratio"
    away = np.abs(compared - ratio)[well_known] + errors[well_known]
    if not well_known.any():
        reach = 1.0
    else:
        most, half = (_MARGIN * float(np.quantile(away, q, method="higher")) for q in (0.9, 0.5))
        reach = min(max(most, _SMALLEST_REACH), max(half, 1.0)) if ratio else max(most, _SMALLEST_DIFFERENCE)
    return (max(1 - reach, 0.0), 1 + reach) if ratio else (-reach, reach)


def _correlations(figure: Figure, title: str, matrix: Array, labels: Sequence[str], reach: float) -> None:
    """Draw the lower triangle of the matrix, each coefficient as a colour and as a number in hundredths."""
    axis = figure.subplots()
    figure.subplots_adjust(left=0.36, right=0.98, bottom=0.34, top=0.93)
    shown = np.ma.masked_where(np.triu(np.ones_like(matrix, dtype=bool)), matrix)[1:, :-1]
    axis.imshow(shown, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto")
    for (row, column), value in np.ndenumerate(shown.filled(np.nan)):
        if column <= row:
            text = "" if np.isnan(value) else f"{value:z.2f}".replace("0.", ".")
            colour = "white" if abs(value) > 0.6 * reach else "black"
            axis.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(len(labels) - 1), labels[:-1], rotation=90, fontsize=9)
    axis.set_yticks(range(len(labels) - 1), labels[1:], fontsize=9)
    axis.minorticks_off()
    axis.tick_params(length=0)
    axis.spines[["top", "right"]].set_visible(False)
    put_title(axis, title)


def put_title(axis: Axes, text: str, size: float = 12) -> None:
    axis.set_title(text, loc="left", fontsize=size, y=1.0)


def _histogram(curve: Curve, points: Points) -> hist.Hist:
    filled = hist.Hist(hist.axis.Variable(curve.frame.edges), storage=hist.storage.Weight())
    view = filled.view()
    view.value, view.variance = points[0], points[1] ** 2
    return filled


_FAINTEST = 1e-4  # cells below this share of the brightest cell are left white


def draw_pairs(reference: Sequence[Picture], candidate: Sequence[Picture], geometry: Geometry) -> Iterator[Plot]:
    """Pictures of the first showers of both sets; in paired sets they have one energy and angle."""
    for pair in zip(reference, candidate, strict=False):
        heading = f"{_gev(pair[0])}, {np.degrees(pair[0].theta_rad):.0f} degrees"
        yield Plot("Single showers", heading, png(partial(_display, pair=pair, geometry=geometry), 6.0))


def _gev(picture: Picture) -> str:
    return f"{picture.energy_gev:.{0 if picture.energy_gev >= 10 else 1}f} GeV"


def _display(figure: Figure, pair: tuple[Picture, Picture], geometry: Geometry) -> None:
    """Draw side views above and front views below, with the two sets side by side. A row has one scale of colours."""
    axes = figure.subplots(2, 2, sharex="row", sharey="row")
    figure.subplots_adjust(left=0.16, right=0.86, bottom=0.09, top=0.91, hspace=0.32, wspace=0.08)
    rows = zip(("side", "front"), ("z [mm]", "x [mm]"), views_mm(geometry), strict=True)
    for row, (view, x, edges) in zip(axes, rows, strict=True):
        images = [picture.side if view == "side" else picture.front.T for picture in pair]
        highest = max(float(image.max()) for image in images) or 1.0  # 1 GeV if all energy is outside the view
        norm = LogNorm(highest * _FAINTEST, highest)
        for axis, image in zip(row, images, strict=True):
            shown = np.ma.masked_less_equal(image, highest * _FAINTEST)
            mesh = axis.pcolormesh(*edges, shown, cmap="viridis", norm=norm)
            axis.set_xlabel(x)
            if view == "front":  # rings are round
                axis.set_aspect("equal")
                axis.apply_aspect()
            axis.minorticks_off()
            axis.xaxis.set_major_locator(MaxNLocator(4, prune="upper"))
        row[0].set_ylabel("y [mm]")
        place = row[1].get_position()
        scale = figure.colorbar(mesh, cax=figure.add_axes((0.88, place.y0, 0.025, place.height)))
        scale.ax.minorticks_off()
        scale.ax.set_title("GeV", fontsize=9, y=1.0)
        scale.ax.tick_params(labelsize=9)
    for axis, picture, name in zip(axes[0], pair, ("Monte Carlo", "Candidate"), strict=True):
        label = f"{_gev(picture)}, {np.degrees(picture.theta_rad):.0f}°"
        put_title(axis, f"{name}\n{label}", size=10)
