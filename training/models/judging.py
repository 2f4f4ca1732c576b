"""How generated showers are judged during training: the metric, the energy sum, and figures, beside Monte Carlo."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from calopipe.errors import InputError
from calopipe.showers.angle import angle_of_cells
from calopipe.showers.cells import REFERENCE_UNIT_GEV, Geometry, Showers
from calopipe.showers.metric import LEAST_EVENTS, MetricBin, Profiles, metric
from training.models.base import Judge, Rows

_SHOWN = 100  # showers that are kept to be drawn
# Of the energy, that a slice of a profile must hold to count in the metric. Those at the edges hold 0.5 % of it all
# together, and their relative errors would be 99.9 % of the figure.
_LEAST_SHARE = 1e-3


class ShowerJudge(Judge):
    """Compares generated showers with Monte Carlo showers of the same labels, of which there are `showers` in all.

    They are divided among `workers`, each with a judge of its own, which draws showers of its own.
    """

    def __init__(self, showers: int, geometry: Geometry, workers: int = 1) -> None:
        self._geometry = replace(geometry, file_unit_gev=REFERENCE_UNIT_GEV)
        self._every = -(-showers // (_SHOWN * workers))
        # empty showers do not count in the metric; half of them may be empty
        self._least = LEAST_EVENTS // 2 if enough(showers) else LEAST_EVENTS
        self._seen = 0
        self._shown: list[tuple[npt.NDArray[Any], ...]] = []  # cells, energies, angles, generated cells

    def add(self, batch: Mapping[str, Any], made: Any) -> Rows:
        cells, labels = batch["cells"].numpy(), (batch["energy_gev"].numpy(), batch["theta_rad"].numpy())
        generated = made.numpy().astype(np.float32)
        if generated.shape != cells.shape:
            raise InputError(f"the model made showers of shape {generated.shape}, expected {cells.shape}")
        kept = slice(-self._seen % self._every, None, self._every)
        # a view, even an empty one, would keep the whole batch in memory
        self._shown.append(tuple(values[kept].copy() for values in (cells, *labels, generated)))
        self._seen += len(cells)
        return np.hstack([Profiles.of(each, *labels, self._geometry).rows() for each in (cells, generated)])

    def found(self, rows: Rows) -> dict[str, Any]:
        """`metric` as `calopipe.showers.metric` gives it; `energy_sum`, the mean visible energy over Monte Carlo's."""
        reference, generated = (Profiles.of_rows(half, self._geometry.shape) for half in np.hsplit(rows, 2))
        bins = selection_bins(reference.energy_gev, reference.theta_rad)
        return {
            "metric": metric(reference, generated, bins=bins, least_events=self._least, least_share=_LEAST_SHARE),
            "energy_sum": float(generated.along[2].sum() / reference.along[2].sum()),
        }

    def figures(self) -> Mapping[str, Figure]:
        return {"showers": single_showers(*self.shown(), self._geometry)}

    def shown(self) -> tuple[Showers, Showers]:
        """Some of the Monte Carlo showers, evenly from all, and those generated with their labels."""
        cells, energy_gev, theta_rad, made = (np.concatenate(values) for values in zip(*self._shown, strict=True))
        reference, generated = (
            Showers(each, energy_gev, theta_rad, angle_of_cells(each, self._geometry)) for each in (cells, made)
        )
        return reference, generated


def enough(showers: int) -> bool:
    """Whether a split of so many `showers` has a metric that can choose among epochs."""
    return showers >= LEAST_EVENTS


def selection_bins(energy_gev: npt.NDArray[Any], theta_rad: npt.NDArray[Any]) -> list[MetricBin]:
    """Bins of energy and angle for the metric, as fine as the number of showers allows: 3 x 3, 3 x 1, or one of all.

    The reference's bins, a tenth of the energies and a hundredth of the angles wide, are for tens of thousands of
    showers. These are of equal widths, and each of a finer grid must hold `LEAST_EVENTS` showers.
    """
    for energies, angles in ((3, 3), (3, 1)):
        bins = [
            MetricBin(energy, theta, energy_reach_gev=energy_reach, theta_reach_rad=theta_reach)
            for energy, energy_reach in _grid(energy_gev, energies)
            for theta, theta_reach in _grid(theta_rad, angles)
        ]
        if min(np.sum(each.holds(energy_gev, theta_rad)) for each in bins) >= LEAST_EVENTS:
            return bins
    return [MetricBin(0.0, 0.0, energy_reach_gev=math.inf, theta_reach_rad=math.inf)]


def _grid(values: npt.NDArray[Any], cells: int) -> Iterator[tuple[float, float]]:
    """Middle and reach of each of `cells` equal parts of the range of `values`."""
    low, width = float(values.min()), float(np.ptp(values)) / cells
    reach = width / 2 * (1 + 1e-6)  # labels are float32, and the ends belong to a bin
    return ((low + width * (number + 0.5), reach) for number in range(cells))


_DRAWN = 3  # of them, in a picture
_DECADES = 5  # of energy that the colours span


def single_showers(reference: Showers, generated: Showers, geometry: Geometry) -> Figure:
    """Side and front view of some showers, from the least energy to the highest, a row each, on one scale of colours.

    Shower k of `generated` has the labels of shower k of `reference`, of which there is one or more; the cells of both
    are finite, not negative, and in the unit of `geometry`. The scale is that of the Monte Carlo showers, so that it
    stays while the model changes.
    """
    chosen = np.unique(np.linspace(0, len(reference) - 1, _DRAWN).round().astype(np.intp))
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
