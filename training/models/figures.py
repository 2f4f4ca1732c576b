"""What TensorBoard shows beside the losses: showers and curves, Monte Carlo against generated with the same labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from scipy.stats import binned_statistic

from calopipe.showers.cells import Geometry, Showers

Array = npt.NDArray[np.float64]
Pair = tuple[Array, Array]  # of the Monte Carlo showers, and of the generated ones

_SIDES = (("Monte Carlo", "#3f3f3f"), ("Generated", "#c8102e"))
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
    return {
        "showers": _single_showers(reference[chosen], generated[chosen], geometry),
        "response": _response(reference.energy_gev.astype(np.float64), (mine, theirs)),
        "longitudinal": _longitudinal((mine, theirs)),
    }


def _single_showers(reference: Showers, generated: Showers, geometry: Geometry) -> Figure:
    """Side and front view of each shower, a row each, on one scale of colours.

    The scale is that of the Monte Carlo showers, so that it stays while the model changes.
    """
    cells = [showers.cells * np.float32(geometry.file_unit_gev) for showers in (reference, generated)]
    highest = max(float(cells[0].sum(axis=axis).max()) for axis in (1, 3)) or 1.0
    scale = LogNorm(highest / 10**_DECADES, highest)
    width_x, width_y = (count * geometry.cell_mm / 2 for count in geometry.shape[:2])
    depth = geometry.shape[2] * geometry.layer_pitch_mm
    views = (("z [mm]", 0, (0, depth, -width_y, width_y)), ("x [mm]", 2, (-width_x, width_x, -width_y, width_y)))
    figure = Figure(figsize=(11, 0.7 + 2.4 * len(reference)), dpi=_DPI)
    grid = figure.subplots(len(reference), 4, squeeze=False, sharex="col", sharey=True)
    figure.subplots_adjust(left=0.065, right=0.9, wspace=0.14, hspace=0.22)
    for (row, column), axis in np.ndenumerate(grid):
        (along, summed, extent), side = views[column // 2], column % 2
        image = cells[side][row].sum(axis=summed)
        image = np.ma.masked_less_equal(image if summed == 0 else image.T, 0)
        mesh = axis.imshow(image, origin="lower", extent=extent, aspect="auto", norm=scale)
        label = f"{reference.energy_gev[row]:.0f} GeV, {np.degrees(reference.theta_rad[row]):.0f}°"
        # its place is given, or matplotlib would search for one, slowly
        axis.set_title(f"{_SIDES[side][0]}: {label}", fontsize=9, loc="left", y=1.02)
        axis.set(xlabel=along, ylabel="y [mm]" if column == 0 else "")
        axis.label_outer()
    figure.colorbar(mesh, cax=figure.add_axes((0.92, 0.1, 0.015, 0.8)), label="Energy [GeV]", extend="both")
    return figure


def _response(energy_gev: Array, layers: Pair) -> Figure:
    """E_vis/E of each shower as a dot, and its mean in bins of energy; showers as energies (N, layer) in GeV."""
    figure = Figure(figsize=(6, 4.2), dpi=_DPI)
    axis = figure.subplots()
    for each, (name, colour) in zip(layers, _SIDES, strict=True):
        response = each.sum(axis=1) / energy_gev
        axis.plot(energy_gev, response, ".", color=colour, alpha=0.3, markersize=4)
        means, edges, _ = binned_statistic(energy_gev, response, "mean", _ENERGY_BINS)
        axis.stairs(means, edges, baseline=None, color=colour, label=name)
    _finish(axis, "Response", xlabel="E [GeV]", ylabel="E_vis / E")
    return figure


def _longitudinal(layers: Pair) -> Figure:
    """The mean energy in each layer, and its ratio below; showers as energies (N, layer) in GeV."""
    figure = Figure(figsize=(6, 5), dpi=_DPI)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    expected = layers[0].mean(axis=0)
    for each, (name, colour) in zip(layers, _SIDES, strict=True):
        above.stairs(each.mean(axis=0), baseline=None, color=colour, label=name)
        ratio = np.divide(each.mean(axis=0), expected, out=np.full_like(expected, np.nan), where=expected > 0)
        below.stairs(ratio, baseline=None, color=colour)
    _finish(above, "Longitudinal profile", ylabel="Mean energy in a layer [GeV]")
    below.set(xlabel="Layer", ylabel="Ratio", ylim=(0, 2))
    return figure


def _finish(axis: Axes, title: str, **labels: str) -> None:
    axis.set(**labels)
    axis.set_title(title, loc="left", y=1.0)
    axis.legend(loc="upper right", ncols=2)
