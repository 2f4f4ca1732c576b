"""Calibration up to the ends of the labels: the candidate against Monte Carlo in fine bins of energy and of angle."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from scipy import stats

from calopipe.verdict import number, span
from validation.report.curves import Curve, Summary
from validation.report.markup import table
from validation.statistics.tallies import Points

_UNITS = {"energy_gev": "GeV", "theta_deg": "degrees"}
_REACH = float(stats.norm.ppf(0.975))  # standard errors of a 95 % interval

_TITLE = """<h2>Calibration to the ends of the labels</h2>
<p class="soft">The candidate over Monte Carlo, of angles minus it, with 95 % intervals, in fine bins of the true energy
and angle with a narrow one at either end. Not criteria.</p>"""


def compared(curve: Curve) -> Points:
    """Candidate over Monte Carlo, or minus it, and its standard error, each (bins,); NaN where either is unknown.

    The two sets are taken as independent, which makes the errors too wide for paired sets rather than too narrow.
    """
    (ours, our_error), (theirs, their_error) = curve.reference, curve.candidate
    if curve.frame.below == "difference":
        return theirs - ours, np.hypot(our_error, their_error)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = theirs / ours
        return ratio, np.abs(ratio) * np.hypot(our_error / ours, their_error / theirs)


def edges(summary: Summary) -> dict[str, list[dict[str, Any]]]:
    """For the verdict's document: of each label its bins, each with value and 95 % interval of every quantity."""
    return {label: _bins(list(curves.values()), list(curves)) for label, curves in summary.edges.items()}


def section(found: Mapping[str, Sequence[Mapping[str, Any]]] | None) -> str:
    """The same as HTML: a table for each label."""
    if not found:
        return ""
    parts = [_TITLE]
    for label, bins in found.items():
        rows = [
            {
                "Bin": f"{each['low']:.4g} to {each['high']:.4g} {escape(_UNITS[label])}",
                "Mean response, ratio": _cell(each["response"]),
                "Resolution, ratio": _cell(each["resolution"]),
                "Measured angle, difference in degrees": _cell(each["angle_deg"]),
            }
            for each in bins
        ]
        kind = "energy" if label == "energy_gev" else "angle"
        parts.append(f"<details><summary>{len(rows)} bins of {kind}</summary>{table(rows)}</details>")
    return "".join(parts)


def _bins(curves: Sequence[Curve], names: Sequence[str]) -> list[dict[str, Any]]:
    edges = curves[0].frame.edges
    found: list[dict[str, Any]] = [{"low": low, "high": high} for low, high in itertools.pairwise(edges.tolist())]
    for name, curve in zip(names, curves, strict=True):
        for each, value, error in zip(found, *compared(curve), strict=True):
            known = bool(np.isfinite(value) and np.isfinite(error))
            ends = [float(value - _REACH * error), float(value + _REACH * error)]
            each[name] = {"value": float(value) if known else None, "interval": ends if known else None}
    return found


def _cell(found: Mapping[str, Any]) -> str:
    if found["value"] is None:
        return "too few showers"
    return f"{number(found['value'])}<small>{span(found['interval'])}</small>"
