"""What TensorBoard shows beside the losses: showers and curves, Monte Carlo against generated with the same labels."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from calopipe.showers.cells import FloatArray, Geometry, Showers

Array = npt.NDArray[np.float64]
Curve = tuple[Array, Array]  # in bins: the mean over showers, and its standard error

_MC, _GENERATED = "#3f3f3f", "#c8102e"
_STYLE: dict[Any, Any] = {
    "font.size": 10.0, "legend.frameon": False, "xtick.direction": "in", "ytick.direction": "in", "xtick.top": True,
    "ytick.right": True,
}  # fmt: skip
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
    layers = [_layers(showers, geometry) for showers in (reference, generated)]
    with mpl.rc_context(_STYLE):
        return {
            "showers": _single_showers(reference, generated, geometry),
            "response": _response(reference.energy_gev.astype(np.float64), *layers),
            "longitudinal": _longitudinal(*layers),
        }


def _single_showers(reference: Showers, generated: Showers, geometry: Geometry) -> Figure:
    """Side and front view of showers from the lowest to the highest energy, a row each, on one scale of colours.

    The scale is that of the Monte Carlo showers, so that it stays while the model changes.
    """
    chosen = np.argsort(reference.energy_gev, kind="stable")[_spread(len(reference), _SHOWN)]
    views = [_views(showers[chosen], geometry) for showers in (reference, generated)]
    highest = max(float(view.max()) for view in views[0]) or 1.0
    scale = LogNorm(highest / 10**_DECADES, highest)

    width_x, width_y = (count * geometry.cell_mm / 2 for count in geometry.shape[:2])
    depth = geometry.shape[2] * geometry.layer_pitch_mm
    sides = (("z [mm]", (0, depth, -width_y, width_y)), ("x [mm]", (-width_x, width_x, -width_y, width_y)))
    figure = Figure(figsize=(11, 0.7 + 2.4 * len(chosen)), dpi=_DPI)
    grid = figure.subplots(len(chosen), 4, squeeze=False, sharex="col", sharey=True)
    margin = 0.55 / figure.get_figheight()
    figure.subplots_adjust(left=0.065, right=0.9, bottom=margin, top=1 - margin, wspace=0.14, hspace=0.22)
    for row, shower in enumerate(chosen):
        label = f"{reference.energy_gev[shower]:.0f} GeV, {np.degrees(reference.theta_rad[shower]):.0f}°"
        for column, axis in enumerate(grid[row]):
            side, name = divmod(column, 2)
            along, extent = sides[side]
            image = np.ma.masked_less_equal(views[name][side][row], 0)
            mesh = axis.imshow(image, origin="lower", extent=extent, aspect="auto", cmap="viridis", norm=scale)
            title = f"{('Monte Carlo', 'Generated')[name]}: {label}"
            axis.set_title(title, fontsize=9, loc="left", y=1.02)  # given, so that no place is searched for: slow
            axis.locator_params(nbins=5)
            axis.set(xlabel=along if row == len(chosen) - 1 else "", ylabel="y [mm]" if column == 0 else "")
    figure.colorbar(
        mesh, cax=figure.add_axes((0.92, margin, 0.015, 1 - 2 * margin)), label="Energy [GeV]", extend="both"
    )
    return figure


def _response(energy_gev: Array, reference: Array, generated: Array) -> Figure:
    """E_vis/E of each shower as a dot, and its mean in bins of energy; showers as energies (N, layer) in GeV."""
    edges = _energy_edges(energy_gev)
    responses = [layers.sum(axis=1) / energy_gev for layers in (reference, generated)]
    figure = Figure(figsize=(6, 4.2), dpi=_DPI)
    axis = figure.subplots()
    figure.subplots_adjust(left=0.14, right=0.97, bottom=0.13, top=0.92)
    for response, color in zip(responses, (_MC, _GENERATED), strict=True):
        axis.plot(energy_gev, response, ".", color=color, alpha=0.3, markersize=4)
    _draw(axis, edges, *(_mean_in_bins(response, energy_gev, edges) for response in responses))
    axis.set(xlabel="E [GeV]", ylabel="E_vis / E", xlim=(edges[0], edges[-1]))
    _finish(axis, "Response")
    return figure


def _longitudinal(reference: Array, generated: Array) -> Figure:
    """The mean energy in each layer, and its ratio below; showers as energies (N, layer) in GeV."""
    edges = np.arange(reference.shape[1] + 1, dtype=np.float64)
    curves = [_mean(layers) for layers in (reference, generated)]
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


def _draw(axis: Axes, edges: Array, reference: Curve, generated: Curve) -> None:
    """Steps with a band of one standard error for the reference, points with bars for what is generated."""
    (mean, error), (points, bars) = reference, generated
    axis.stairs(mean, edges, baseline=None, color=_MC, linewidth=1.3, label="Monte Carlo")
    axis.stairs(mean + error, edges, baseline=mean - error, fill=True, color=_MC, alpha=0.25)
    centres = (edges[:-1] + edges[1:]) / 2
    axis.errorbar(centres, points, bars, fmt="o", color=_GENERATED, markersize=4, label="Generated")


def _finish(axis: Axes, title: str) -> None:
    axis.set_ylim(0, 1.25 * axis.get_ylim()[1])  # room for the legend
    axis.set_title(title, loc="left", fontsize=11)
    axis.legend(loc="upper right", ncols=2)


def _views(showers: Showers, geometry: Geometry) -> tuple[FloatArray, FloatArray]:
    """Energies in GeV from the side, (N, y, layer), and from the front, (N, y, x)."""
    side, front = showers.cells.sum(axis=1), showers.cells.sum(axis=3).swapaxes(1, 2)
    return side * np.float32(geometry.file_unit_gev), front * np.float32(geometry.file_unit_gev)


def _layers(showers: Showers, geometry: Geometry) -> Array:
    """Energy in each layer, (N, layer), in GeV."""
    return showers.cells.sum(axis=(1, 2), dtype=np.float64) * geometry.file_unit_gev


def _mean_in_bins(values: Array, energy_gev: Array, edges: Array) -> Curve:
    """Of the showers in each bin of energy; NaN where there is none."""
    place = np.searchsorted(edges[1:-1], energy_gev, side="right")
    bins = [_mean(values[place == each]) for each in range(len(edges) - 1)]
    means, errors = np.array(bins).T
    return means, errors


def _mean(values: Array) -> Curve:
    """Mean over showers of `values` (N, ...) and its standard error; NaN without any."""
    if len(values) == 0:
        return np.full(values.shape[1:], np.nan), np.full(values.shape[1:], np.nan)
    return values.mean(axis=0), values.std(axis=0) / np.sqrt(len(values))


def _energy_edges(energy_gev: Array) -> Array:
    low, high = float(energy_gev.min()), float(energy_gev.max())
    if not high > low:  # a beam of one energy
        low, high = 0.99 * low, 1.01 * high
    return np.linspace(low, high, _ENERGY_BINS + 1)


def _spread(count: int, chosen: int) -> npt.NDArray[np.intp]:
    """`chosen` indices, or as many as there are, evenly from the first to the last of `count`."""
    return np.unique(np.linspace(0, count - 1, chosen).round().astype(np.intp))
