"""The report of roll-outs: criteria, each simulation's figures, vorticity beside the solver's, and curves by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calopipe.verdict import number
from validation.flow.measured import Measured
from validation.flow.measures import Array
from validation.report.markup import criteria_table, fill, findings, html, images, table
from validation.report.plots import Plot, png, put_title

_COLOURS = {"solver": "#3f3f3f", "roll-out": "#c8102e"}
_PICTURED = 3  # simulations whose vorticity is shown
_WIDTH_IN, _HEADING_IN = 10.0, 0.4  # of such a picture
_BRIGHTEST = 0.99  # the share of the solver's cells whose vorticity the scale of colours holds

_BANNER = """<div class="banner {d[verdict]}"><h1>Roll-outs <span>{d[verdict]}</span></h1>
<p>Grade <b>{d[grade][name]}</b>: {d[scalars][criteria_pass]:.0f} criteria pass, {d[scalars][criteria_fail]:.0f} fail,
{d[scalars][criteria_inconclusive]:.0f} inconclusive; {d[events][candidate]} simulations.</p></div>"""

_HOW_TO_READ = """<p class="soft">Each value is the mean over the simulations, and its 95 % interval Student's: a single
simulation has none. Pass: the whole interval lies inside the tolerance. Fail: the whole of a stricter interval, at the
level 1 - 0.05/{}, lies outside. Floor: how far another resolution, or another solver, is from the target. Energies are
those of the last shedding period of the roll-out; the relative L2 is that of the first.</p>"""

_CURVES = """<p class="soft">Errors by step: a thin line for each simulation, the thick one their mean; dotted is the
mean of --floor, from its frame nearest to the start. Energy and divergence: grey the solver, red the roll-out.</p>"""

_PANELS = {
    "relative_l2": "Relative L2", "psnr": "PSNR [dB]", "ssim": "SSIM", "kinetic_energy": "Kinetic energy [U²]",
    "divergence": "rms divergence [U/D]",
}  # fmt: skip


def page(document: Mapping[str, Any], measured: Sequence[Measured], floors: Sequence[Measured] = ()) -> str:
    """The report of a verdict `document`, as HTML."""
    criteria = document["criteria"]
    parts = [
        fill(_BANNER, d=document),
        findings("Caution", "inconclusive", document["cautions"]),
        Markup("<h2>Criteria</h2>"),
        criteria_table(criteria, with_bin=False, samples="simulations") if criteria else Markup("<p>None.</p>"),
        fill(_HOW_TO_READ, max(len(criteria), 1)),
        Markup("<h2>Simulations</h2>"),
        _simulations(document),
        Markup("<h2>Vorticity</h2>"),
        images([*_pictures(measured)], layout=""),
        Markup("<h2>Curves</h2>"),
        fill(_CURVES),
        images([*_curves(measured, floors)]),
        Markup("<h2>What was compared</h2>"),
        _inputs(document["inputs"]),
        fill('<p class="soft">Request <code>{}</code></p>', document["request"]),
    ]
    return html(f"Roll-outs {document['verdict']}", parts)


def _simulations(document: Mapping[str, Any]) -> Markup:
    limit = number(document["grade"]["tolerance"]["relative_l2"])
    rows = []
    for kind, found in (("roll-out", document["simulations"]), ("floor", document["floors"])):
        for each in found:
            solver, candidate = each["strouhal"]
            steps, length = each["steps_within"], len(each["by_step"]["relative_l2"])
            periods = (length if steps is None else steps) * each["interval_d"] / each["period_d"]
            beyond = f"all {length}" if steps is None else str(steps)
            rows.append(
                {
                    "File": fill("<code>{}</code><small>{}</small>", each["candidate"], kind),
                    "Solver": fill("<code>{}</code>", each["reference"]),
                    "Strouhal, solver": number(solver),
                    "Strouhal": number(candidate),
                    f"Steps until relative L2 is above {limit}": fill(
                        "{}<small>{} periods</small>", beyond, number(periods)
                    ),
                    **{_PANELS[name]: number(each["by_step"][name][-1]) for name in ("psnr", "ssim")},
                }
            )
    return table(rows)


def _inputs(inputs: Mapping[str, Any]) -> Markup:
    rows = [
        {
            "Set": side,
            "File": fill("<code>{}</code>", file["file"]),
            "Frames": f"{file['events']:,}",
            "SHA-256": fill("<code>{}</code>", file["sha256"]),
        }
        for side in ("reference", "candidate", "floor")
        for file in inputs[side]
    ]
    versions = ", ".join(f"{key} {value}" for key, value in inputs["versions"].items())
    return table(rows) + fill("<p>calopipe {}; {}.</p>", inputs["code_version"], versions)


def _pictures(measured: Sequence[Measured]) -> Iterator[Plot]:
    for each in measured[:_PICTURED]:
        x, y = each.pictures[0][1].shape
        height = _HEADING_IN + len(each.pictures) * (0.3 * _WIDTH_IN * y / x + 0.1)
        picture = png(partial(_vorticity, of=each, height=height), height, width=_WIDTH_IN)
        yield Plot(each.candidate, f"Vorticity of {each.candidate}", picture)


def _curves(measured: Sequence[Measured], floors: Sequence[Measured]) -> Iterator[Plot]:
    for name, label in _PANELS.items():
        paint = partial(_by_step, name=name, label=label, measured=measured, floors=floors)
        yield Plot("By step", label, png(paint, 3.6))
    yield Plot("By step", "Spectrum", png(partial(_spectra, measured=measured), 3.6))


def _vorticity(figure: Figure, of: Measured, height: float) -> None:
    """A row for each step: the solver, the roll-out and their difference, on one scale of colours."""
    axes = figure.subplots(len(of.pictures), 3, squeeze=False, sharex=True, sharey=True)
    figure.subplots_adjust(left=0.07, right=0.99, bottom=0.02, top=1 - _HEADING_IN / height, wspace=0.03, hspace=0.1)
    reach = max(float(np.nanquantile(np.abs(ours), _BRIGHTEST)) for _, ours, _ in of.pictures)
    for row, (step, ours, theirs) in zip(axes, of.pictures, strict=True):
        for axis, image in zip(row, (ours, theirs, theirs - ours), strict=True):
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
        curves = [each.steps[name].reshape(-1, len(colours))[:, column] for each in measured]
        for curve in curves:
            axis.plot(curve, color=colour, linewidth=0.6, alpha=0.6)
        axis.plot(_mean(curves), color=colour, linewidth=2)
    if floors and floors[0].steps[name].ndim == 1:
        axis.plot(_mean([each.steps[name] for each in floors]), color=_COLOURS["solver"], linestyle=":")


def _spectra(figure: Figure, measured: Sequence[Measured]) -> None:
    axis = _panel(figure, "Energy spectrum behind the obstacle [U²]", "Wavenumber along x [1/D]")
    for each in measured:
        for (name, colour), energy in zip(_COLOURS.items(), each.spectra.T, strict=True):
            axis.loglog(
                each.wavenumbers, energy, color=colour, linewidth=1, label=name if each is measured[0] else None
            )
    axis.legend(fontsize=10)


def _panel(figure: Figure, title: str, x: str) -> Axes:
    axis = figure.subplots()
    figure.subplots_adjust(left=0.17, right=0.95, bottom=0.15, top=0.91)
    put_title(axis, title)
    axis.set_xlabel(x)
    return axis


def _mean(curves: Sequence[Any]) -> Array:
    """Over the curves, as far as the shortest goes."""
    length = min(map(len, curves))
    return np.mean([curve[:length] for curve in curves], axis=0)
