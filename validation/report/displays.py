"""Single showers, Monte Carlo's beside the candidate's, as one would see them in the detector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from calopipe.showers.cells import Geometry
from validation.measure.observables import Array
from validation.measure.reader import Picture
from validation.report.plots import Plot, png

_PAIRS = 3
_DECADES = 1e-4  # of the brightest cell: what is fainter is left white
_Pair = tuple[Picture, Picture]


def draw_pairs(reference: Sequence[Picture], candidate: Sequence[Picture], geometry: Geometry) -> Iterator[Plot]:
    """Pictures of the pairs that `chosen_pairs` picks."""
    for pair in chosen_pairs(reference, candidate):
        title = f"{pair[0].energy_gev:.0f} GeV, {np.degrees(pair[0].theta_rad):.0f} degrees"
        yield Plot("Single showers", title, png(partial(_display, pair=pair, geometry=geometry), 6.0))


def chosen_pairs(reference: Sequence[Picture], candidate: Sequence[Picture]) -> list[_Pair]:
    """At most three pairs, one shower of each set, by rising energy; no shower is shown twice.

    Of the pairs that agree best in energy and angle, those that differ most from one another.
    """
    if not reference or not candidate:
        return []
    labels = np.array([_labels(picture) for picture in reference])
    scale = np.maximum(np.ptp(labels, axis=0), 1e-9)

    def apart(first: Picture, second: Picture) -> float:
        return float(np.abs((_labels(first) - _labels(second)) / scale).sum())

    pairs = sorted(((a, b) for a in reference for b in candidate), key=lambda pair: apart(*pair))
    left = pairs[: max(len(reference), _PAIRS)]
    found: list[_Pair] = []
    while left and len(found) < _PAIRS:
        best = max(left, key=lambda pair: min((apart(pair[0], shown[0]) for shown in found), default=0.0))
        found.append(best)
        left = [pair for pair in left if pair[0] is not best[0] and pair[1] is not best[1]]
    return sorted(found, key=lambda pair: pair[0].energy_gev)


def _labels(picture: Picture) -> Array:
    return np.array([np.log(picture.energy_gev), picture.theta_rad])


def _display(figure: Figure, pair: _Pair, geometry: Geometry) -> None:
    """Side view above, front view below, the two sets side by side on one scale of colours a row."""
    width_x, width_y = (n * geometry.cell_mm / 2 for n in geometry.shape[:2])
    depth = geometry.shape[2] * geometry.layer_pitch_mm
    axes = figure.subplots(2, 2, sharex="row", sharey="row")
    figure.subplots_adjust(left=0.16, right=0.86, bottom=0.09, top=0.91, hspace=0.32, wspace=0.08)
    rows = (
        ("side", "z [mm]", (0, depth, -width_y, width_y)),
        ("front", "x [mm]", (-width_x, width_x, -width_y, width_y)),
    )
    for row, (view, x, extent) in zip(axes, rows, strict=True):
        images = [picture.side if view == "side" else picture.front.T for picture in pair]
        highest = max(float(image.max()) for image in images)
        norm = LogNorm(highest * _DECADES, highest)
        for axis, image in zip(row, images, strict=True):
            shown = np.ma.masked_less_equal(image, highest * _DECADES)
            mesh = axis.imshow(shown, origin="lower", extent=extent, aspect="auto", cmap="viridis", norm=norm)
            axis.set_xlabel(x)
            axis.minorticks_off()
            axis.xaxis.set_major_locator(MaxNLocator(4, prune="upper"))
        row[0].set_ylabel("y [mm]")
        place = row[1].get_position()
        scale = figure.colorbar(mesh, cax=figure.add_axes((0.88, place.y0, 0.025, place.height)))
        scale.ax.minorticks_off()
        scale.ax.set_title("GeV", fontsize=9, y=1.0)
        scale.ax.tick_params(labelsize=9)
    for axis, picture, name in zip(axes[0], pair, ("Monte Carlo", "Candidate"), strict=True):
        label = f"{picture.energy_gev:.0f} GeV, {np.degrees(picture.theta_rad):.0f}°"
        axis.set_title(f"{name}\n{label}", fontsize=10, loc="left", y=1.0)
