"""The report of roll-outs: criteria, each simulation's figures, vorticity beside the solver's, and curves by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from validation.flow.measurements import Array, Measured
from validation.report.page import html, render
from validation.report.plots import CANDIDATE, MC, Plot, png, put_title

_COLOURS = {"solver": MC, "roll-out": CANDIDATE}
_PICTURED = 3  # simulations whose vorticity is shown
_WIDTH_IN, _HEADING_IN = 10.0, 0.4  # width of such a picture, and height of its heading
_BRIGHTEST = 0.99  # share of the solver's cells whose vorticity is within the scale of colours

_PANELS = {
    "relative_l2": "Relative L2",
    "psnr": "PSNR [dB]",
    "ssim": "SSIM",
    "kinetic_energy": "Kinetic energy [U²]",
    "divergence": "rms divergence [U/D]",
}


def page(document: Mapping[str, Any], measured: Sequence[Measured], floors: Sequence[Measured] = ()) -> str:
    """The report of a verdict `document`, as HTML."""
    body = render(
        "flow.html", d=document, panels=_PANELS, pictures=[*_pictures(measured)], curves=[*_curves(measured, floors)]
    )
    return html(f"Roll-outs {document['verdict']}", body)


def _pictures(measured: Sequence[Measured]) -> Iterator[Plot]:
    for rollout in measured[:_PICTURED]:
        x, y = rollout.pictures[0][1].shape
        height = _HEADING_IN + len(rollout.pictures) * (0.3 * _WIDTH_IN * y / x + 0.1)
        picture = png(partial(_vorticity, of=rollout, height=height), height, width=_WIDTH_IN)
        yield Plot(rollout.candidate, f"Vorticity of {rollout.candidate}", picture)


def _curves(measured: Sequence[Measured], floors: Sequence[Measured]) -> Iterator[Plot]:
    for name, label in _PANELS.items():
        paint = partial(_by_step, name=name, label=label, measured=measured, floors=floors)
        yield Plot("By step", label, png(paint, 3.6))
    yield Plot("By step", "Spectrum", png(partial(_spectra, measured=measured), 3.6))


def _vorticity(figure: Figure, of: Measured, height: float) -> None:
    """A row for each step: the solver, the roll-out and their difference, on one scale of colours."""
    axes = figure.subplots(len(of.pictures), 3, squeeze=False, sharex=True, sharey=True)
    figure.subplots_adjust(left=0.07, right=0.99, bottom=0.02, top=1 - _HEADING_IN / height, wspace=0.03, hspace=0.1)
    reach = max(float(np.nanquantile(np.abs(solver), _BRIGHTEST)) for _, solver, _ in of.pictures)
    for row, (step, solver, rollout) in zip(axes, of.pictures, strict=True):
        for axis, image in zip(row, (solver, rollout, rollout - solver), strict=True):
            axis.imshow(image.T, origin="lower", cmap="RdBu_r", vmin=-reach, vmax=reach)
            axis.set_facecolor("0.4")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.minorticks_off()
        row[0].set_ylabel(f"step {step}", fontsize=10)
    for axis, name in zip(axes[0], ("Solver", "Roll-out", "Roll-out minus solver"), strict=True):
        put_title(axis, name, size=11)


def _by_step(figure: Figure, name: str, label: str, measured: Sequence[Measured], floors: Sequence[Measured]) -> None:
    axis = _panel(figure, label, "Step")
    colours = list(_COLOURS.values())[-measured[0].steps[name].ndim :]  # a comparison has no curve of the solver
    for column, colour in enumerate(colours):
        curves = [rollout.steps[name].reshape(-1, len(colours))[:, column] for rollout in measured]
        for curve in curves:
            axis.plot(curve, color=colour, linewidth=0.6, alpha=0.6)
        axis.plot(_mean(curves), color=colour, linewidth=2)
    if floors and floors[0].steps[name].ndim == 1:
        axis.plot(_mean([floor.steps[name] for floor in floors]), color=_COLOURS["solver"], linestyle=":")


def _spectra(figure: Figure, measured: Sequence[Measured]) -> None:
    axis = _panel(figure, "Energy spectrum behind the obstacle [U²]", "Wavenumber along x [1/D]")
    for rollout in measured:
        for (name, colour), energy in zip(_COLOURS.items(), rollout.spectra.T, strict=True):
            axis.loglog(
                rollout.wavenumbers, energy, color=colour, linewidth=1, label=name if rollout is measured[0] else None
            )
    axis.legend(fontsize=10)


def _panel(figure: Figure, title: str, x: str) -> Axes:
    axis = figure.subplots()
    figure.subplots_adjust(left=0.17, right=0.95, bottom=0.15, top=0.91)
    put_title(axis, title)
    axis.set_xlabel(x)
    return axis


def _mean(curves: Sequence[Any]) -> Array:
    """The mean over the curves, up to the length of the shortest."""
    length = min(map(len, curves))
    return np.mean([curve[:length] for curve in curves], axis=0)
