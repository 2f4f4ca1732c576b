"""What TensorBoard shows beside the losses: showers and curves, Monte Carlo against generated with the same labels."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from calopipe.showers.cells import FloatArray, Geometry, Showers

Array = npt.NDArray[np.float64]
Pair = tuple[Array, Array]  # of the Monte Carlo showers, and of the generated ones
Curve = tuple[Array, Array]  # in bins: the mean over showers, and its standard error

_NAMES, _COLOURS = ("Monte Carlo", "Generated"), ("#3f3f3f", "#c8102e")
_DPI = 100
_SHOWN = 3  # single showers
_ENERGY_BINS = 6
_DECADES = 5  # of energy that the colours span


def figures(reference: Showers, generated: Showers, geometry: Geometry) -> dict[str, Figure]:
    """The figures by name: single showers, the response against energy, and the mean longitudinal profile.

    Shower k of `generated` has the labels of shower k of `reference`, of which there is one or more; the cells of both
    are finite, not negative, and in the unit of `geometry`. Empty showers count: with a response of zero, and in the
    mean profile. Raises ValueError where the labels differ.
    """
    for name in ("energy_gev", "theta_rad"):
        if not np.array_equal(getattr(reference, name), getattr(generated, name)):
            raise ValueError(f"generated showers have another {name} than the Monte Carlo showers beside them")
    unit = geometry.file_unit_gev
    mine, theirs = (showers.cells.sum(axis=(1, 2), dtype=np.float64) * unit for showers in (reference, generated))
    chosen = np.unique(np.linspace(0, len(reference) - 1, _SHOWN).round().astype(np.intp))
    chosen = np.argsort(reference.energy_gev, kind="stable")[chosen]
    with mpl.rc_context({"font.size": 10.0, "legend.frameon": False}):
        return {
            "showers": _single_showers(reference[chosen], generated[chosen], geometry),
            "response": _response(reference.energy_gev.astype(np.float64), (mine, theirs)),
            "longitudinal": _longitudinal((mine, theirs)),
        }


def _single_showers(reference: Showers, generated: Showers, geometry: Geometry) -> Figure:
    """Side and front view of each shower, a row each, on one scale of colours.

    The scale is that of the Monte Carlo showers, so that it stays while the model changes.
    """
    views = [_views(showers.cells * np.float32(geometry.file_unit_gev)) for showers in (reference, generated)]
    highest = max(float(view.max()) for view in views[0]) or 1.0
    scale = LogNorm(highest / 10**_DECADES, highest)
    width_x, width_y = (count * geometry.cell_mm / 2 for count in geometry.shape[:2])
    depth = geometry.shape[2] * geometry.layer_pitch_mm
    sides = (("z [mm]", (0, depth, -width_y, width_y)), ("x [mm]", (-width_x, width_x, -width_y, width_y)))
    rows = len(reference)
    figure = Figure(figsize=(11, 0.7 + 2.4 * rows), dpi=_DPI)
    grid = figure.subplots(rows, 4, squeeze=False, sharex="col", sharey=True)
    margin = 0.55 / figure.get_figheight()
    figure.subplots_adjust(left=0.065, right=0.9, bottom=margin, top=1 - margin, wspace=0.14, hspace=0.22)
    for (row, column), axis in np.ndenumerate(grid):
        side, name = divmod(column, 2)
        along, extent = sides[side]
        image = np.ma.masked_less_equal(views[name][side][row], 0)
        mesh = axis.imshow(image, origin="lower", extent=extent, aspect="auto", cmap="viridis", norm=scale)
        label = f"{reference.energy_gev[row]:.0f} GeV, {np.degrees(reference.theta_rad[row]):.0f}°"
        # its place is given, or matplotlib would search for one, slowly
        axis.set_title(f"{_NAMES[name]}: {label}", fontsize=9, loc="left", y=1.02)
        axis.locator_params(nbins=5)
        axis.set(xlabel=along if row == rows - 1 else "", ylabel="y [mm]" if column == 0 else "")
    place = figure.add_axes((0.92, margin, 0.015, 1 - 2 * margin))
    figure.colorbar(mesh, cax=place, label="Energy [GeV]", extend="both")
    return figure


def _views(cells: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Showers (N, x, y, layer) from the side, (N, y, layer), and from the front, (N, y, x)."""
    return cells.sum(axis=1), cells.sum(axis=3).swapaxes(1, 2)


def _response(energy_gev: Array, layers: Pair) -> Figure:
    """E_vis/E of each shower as a dot, and its mean in bins of energy; showers as energies (N, layer) in GeV."""
    low, high = float(energy_gev.min()), float(energy_gev.max())
    if not high > low:  # a beam of one energy
        low, high = 0.99 * low, 1.01 * high
    edges = np.linspace(low, high, _ENERGY_BINS + 1)
    place = np.digitize(energy_gev, edges[1:-1])
    figure = Figure(figsize=(6, 4.2), dpi=_DPI)
    axis = figure.subplots()
    figure.subplots_adjust(left=0.14, right=0.97, bottom=0.13, top=0.92)
    curves = []
    for each, colour in zip(layers, _COLOURS, strict=True):
        response = each.sum(axis=1) / energy_gev
        axis.plot(energy_gev, response, ".", color=colour, alpha=0.3, markersize=4)
        means, errors = np.array([_mean(response[place == number]) for number in range(_ENERGY_BINS)]).T
        curves.append((means, errors))
    _draw(axis, edges, *curves)
    axis.set(xlabel="E [GeV]", ylabel="E_vis / E", xlim=(low, high))
    _finish(axis, "Response")
    return figure


def _longitudinal(layers: Pair) -> Figure:
    """The mean energy in each layer, and its ratio below; showers as energies (N, layer) in GeV."""
    edges = np.arange(layers[0].shape[1] + 1, dtype=np.float64)
    curves = [_mean(each) for each in layers]
    figure = Figure(figsize=(6, 5), dpi=_DPI)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    figure.subplots_adjust(left=0.14, right=0.97, bottom=0.11, top=0.93, hspace=0.08)
    _draw(above, edges, *curves)
    above.set(ylabel="Mean energy in a layer [GeV]")
    _finish(above, "Longitudinal profile")
    expected = np.where(curves[0][0] > 0, curves[0][0], np.nan)
    _draw(below, edges, *((mean / expected, error / expected) for mean, error in curves))
    below.set(xlabel="Layer", ylabel="Ratio", xlim=(edges[0], edges[-1]), ylim=(0, 2))
    return figure


def _mean(values: Array) -> Curve:
    """Mean over showers of `values` (N, ...) and its standard error; NaN without any."""
    if len(values) == 0:
        return np.full(values.shape[1:], np.nan), np.full(values.shape[1:], np.nan)
    return values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))


def _draw(axis: Axes, edges: Array, reference: Curve, generated: Curve) -> None:
    """Steps with a band of one standard error for the reference, points with bars for what is generated."""
    (mean, error), (points, bars) = reference, generated
    axis.stairs(mean, edges, baseline=None, color=_COLOURS[0], linewidth=1.3, label=_NAMES[0])
    axis.stairs(mean + error, edges, baseline=mean - error, fill=True, color=_COLOURS[0], alpha=0.25)
    centres = (edges[:-1] + edges[1:]) / 2
    axis.errorbar(centres, points, bars, fmt="o", color=_COLOURS[1], markersize=4, label=_NAMES[1])


def _finish(axis: Axes, title: str) -> None:
    axis.set_ylim(0, 1.25 * axis.get_ylim()[1])  # room for the legend
    axis.set_title(title, loc="left", fontsize=11)
    axis.legend(loc="upper right", ncols=2)
