"""What TensorBoard shows beside the losses: single showers, Monte Carlo beside generated with the same labels."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from calopipe.showers.cells import Geometry, Showers

_SHOWN = 3
_DECADES = 5  # of energy that the colours span


def single_showers(reference: Showers, generated: Showers, geometry: Geometry) -> Figure:
    """Side and front view of some showers, from the least energy to the highest, a row each, on one scale of colours.

    Shower k of `generated` has the labels of shower k of `reference`, of which there is one or more; the cells of both
    are finite, not negative, and in the unit of `geometry`. The scale is that of the Monte Carlo showers, so that it
    stays while the model changes.
    """
    chosen = np.unique(np.linspace(0, len(reference) - 1, _SHOWN).round().astype(np.intp))
    chosen = np.argsort(reference.energy_gev, kind="stable")[chosen]
    cells = [showers.cells[chosen] * np.float32(geometry.file_unit_gev) for showers in (reference, generated)]
    highest = max(float(cells[0].sum(axis=axis).max()) for axis in (1, 3)) or 1.0
    scale = LogNorm(highest / 10**_DECADES, highest)
    width_x, width_y = (count * geometry.cell_mm / 2 for count in geometry.shape[:2])
    depth = geometry.shape[2] * geometry.layer_pitch_mm
    views = (("z [mm]", 0, (0, depth, -width_y, width_y)), ("x [mm]", 2, (-width_x, width_x, -width_y, width_y)))
    figure = Figure(figsize=(11, 0.7 + 2.4 * len(chosen)), dpi=100)
    grid = figure.subplots(len(chosen), 4, squeeze=False, sharex="col", sharey=True)
    figure.subplots_adjust(left=0.065, right=0.9, wspace=0.14, hspace=0.22)
    for (row, column), axis in np.ndenumerate(grid):
        (along, summed, extent), side = views[column // 2], column % 2
        image = cells[side][row].sum(axis=summed)
        image = np.ma.masked_less_equal(image if summed == 0 else image.T, 0)
        mesh = axis.imshow(image, origin="lower", extent=extent, aspect="auto", norm=scale)
        energy, theta = reference.energy_gev[chosen[row]], np.degrees(reference.theta_rad[chosen[row]])
        name = ("Monte Carlo", "Generated")[side]
        # its place is given, or matplotlib would search for one, slowly
        axis.set_title(f"{name}: {energy:.0f} GeV, {theta:.0f}°", fontsize=9, loc="left", y=1.02)
        axis.set(xlabel=along, ylabel="y [mm]" if column == 0 else "")
        axis.label_outer()
    figure.colorbar(mesh, cax=figure.add_axes((0.92, 0.1, 0.015, 0.8)), label="Energy [GeV]", extend="both")
    return figure
