"""Single showers, one of Monte Carlo beside one of the candidate, seen from two sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from calopipe.showers.cells import Geometry
from validation.measure.pictures import Picture, views_mm
from validation.report.plots import Plot, png, put_title

_FAINTEST = 1e-4  # of the brightest cell: what is fainter is left white


def draw_pairs(reference: Sequence[Picture], candidate: Sequence[Picture], geometry: Geometry) -> Iterator[Plot]:
    """Pictures of the first showers of both sets; in paired sets they have one energy and angle."""
    for pair in zip(reference, candidate, strict=False):
        heading = f"{_gev(pair[0])}, {np.degrees(pair[0].theta_rad):.0f} degrees"
        yield Plot("Single showers", heading, png(partial(_display, pair=pair, geometry=geometry), 6.0))


def _gev(picture: Picture) -> str:
    return f"{picture.energy_gev:.{0 if picture.energy_gev >= 10 else 1}f} GeV"


def _display(figure: Figure, pair: tuple[Picture, Picture], geometry: Geometry) -> None:
    """Side view above, front view below, the two sets side by side on one scale of colours a row."""
    axes = figure.subplots(2, 2, sharex="row", sharey="row")
    figure.subplots_adjust(left=0.16, right=0.86, bottom=0.09, top=0.91, hspace=0.32, wspace=0.08)
    rows = zip(("side", "front"), ("z [mm]", "x [mm]"), views_mm(geometry), strict=True)
    for row, (view, x, edges) in zip(axes, rows, strict=True):
        images = [picture.side if view == "side" else picture.front.T for picture in pair]
        highest = max(float(image.max()) for image in images)
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
