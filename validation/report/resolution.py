"""Response and resolution against energy, with the calorimeter's own law fitted to both sets: a figure and a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from calopipe.verdict import number
from validation.report.markup import fill, table
from validation.statistics.resolution import TERMS, Resolutions, curve

_MANY = 2e3  # a range of energies
NAMES = {"reference": "Monte Carlo", "candidate": "Candidate"}

_SECTION = """<h2>Response and resolution against energy</h2>
<p class="soft">Width over mean of the response in narrow bins of energy, fitted by a/√E ⊕ b/E ⊕ c, added in
quadrature: the stochastic, the noise and the constant term, none below zero. Errors are one standard
deviation, larger where the law does not describe the points. Not criteria.</p>
{}"""


def section(found: Mapping[str, Any] | None) -> Markup:
    """The fitted terms of each set, or why there are none."""
    if not found:
        return Markup()
    rows, reasons = [], dict.fromkeys(fit["reason"] for fit in found.values() if fit["reason"])
    for side, name in NAMES.items():
        fit = found[side]
        if fit["reason"]:
            continue
        row = {"Set": name}
        for term, unit in TERMS.items():
            of = fit["terms"].get(term)
            row[f"{term} [{unit}]" if unit else term] = (
                "not fitted" if of is None else f"{number(of['value'])} ± {number(of['error'])}"
            )
        rows.append(row | {"χ² a degree of freedom": number(fit["chi2_per_dof"])})
    parts = [fill("<p>No fit. {}</p>", reason) for reason in reasons] + ([table(rows)] if rows else [])
    return fill(_SECTION, Markup("\n").join(parts))


def draw(figure: Figure, sides: Mapping[str, Resolutions], fits: Mapping[str, Any], colours: Mapping[str, str]) -> None:
    """The mean response above, the resolution with the fitted curves below; energies on a logarithmic axis.

    The terms of the curves are in the table.
    """
    axes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.6), gridspec_kw={"hspace": 0.08})
    figure.subplots_adjust(left=0.18, right=0.945, bottom=0.1, top=0.93)
    for side, name in NAMES.items():
        found, fit, colour = sides[side], fits[side], colours[side]
        width, error = found.width
        style = {"fmt": "o" if side == "candidate" else "s", "color": colour, "markersize": 4, "linewidth": 1.2}
        axes[0].errorbar(
            found.energy_gev, found.response, yerr=np.sqrt(found.variance / found.count), label=name, **style
        )
        axes[1].errorbar(found.energy_gev, width, yerr=error, **style)
        if fit["terms"]:
            along = np.geomspace(found.energy_gev.min(), found.energy_gev.max(), 100)
            axes[1].plot(along, curve(fit, along), color=colour, linewidth=1.2)
    axes[0].set_ylabel(r"Mean $E_\mathrm{vis}/E$")
    axes[1].set_ylabel(r"$\sigma/E$")
    axes[1].set_xlabel("E [GeV]")
    axes[1].set_ylim(0, None)
    log_energies(axes[1])
    axes[0].legend(fontsize=10)
    axes[0].set_title("Response and resolution", loc="left", fontsize=12, y=1.0)
    for axis in axes:
        axis.yaxis.set_label_coords(-0.145, 0.5)


def log_energies(axis: Axes) -> None:
    """Energies on a logarithmic axis: 1, 2, 5, 10; whole decades only where there are many."""
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    subs = (1.0,) if high / low > _MANY else (1.0, 2.0, 5.0)
    axis.xaxis.set_major_locator(LogLocator(subs=subs))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
