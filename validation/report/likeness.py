"""How alike two sets of showers are beyond the criteria: sections of the report, each a piece of HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from calopipe.verdict import ALIKE, number, span
from validation.report.markup import coloured, floor, table

_MOST_DIFFERENT = 6  # criteria of a challenger and an incumbent


@dataclass(frozen=True)
class _Measure:
    """A number of the document: where it is, what it is called and multiplied by, and how it is read."""

    section: str
    key: str
    name: str
    scale: float
    reading: str


# Published values are those of CaloChallenge's data set 2 (arXiv 2410.21611).
_MEASURES = (
    _Measure(
        "distances", "fpd", "FPD x 1000", 1000,
        "Distance between the clouds that the showers form in the space of the observables, each taken as a normal "
        "distribution (Fréchet); 0 is perfect. Observables are in units of their spread in Monte Carlo, so that these "
        "figures cannot be set beside CaloChallenge's, whose features and scales are others.",
    ),
    _Measure(
        "distances", "kpd", "KPD x 1000", 1000,
        "The same by a polynomial kernel, which also sees shapes that are not normal; 0 is perfect.",
    ),
    _Measure(
        "classifier", "observables", "AUC on observables", 1,
        "How well a classifier trained on the observables tells the sets apart: 0.5 not at all, 1 without fail. For "
        "scale: Geant4 against itself 0.499, CaloDREAM 0.521, CaloDiffusion 0.591, L2LFlows 0.737, the GANs DeepTree "
        "0.927 and MDMA 0.987.",
    ),
    _Measure(
        "classifier", "cells", "AUC on cells", 1,
        "The same on the energies of cells. For scale: Geant4 against itself 0.500, CaloDREAM 0.531, CaloDiffusion "
        "0.577, L2LFlows 0.708, the GANs MDMA 0.942 and DeepTree 0.963.",
    ),
    _Measure(
        "classifier", "fine_cells", "AUC on fine cells", 1,
        "The same on single cells, layer by layer in a window about the axis, and on rings a quarter of a cell wide: "
        "what the field calls a low-level classifier.",
    ),
    _Measure(
        "neighbours", "coverage", "Coverage, all showers", 1,
        "Share of Monte Carlo's showers that have one of the candidate's in their neighbourhood, over the share that "
        "other showers of Monte Carlo reach: 1 is perfect, less means that kinds of showers are missing. In each "
        "bin of energy it is a criterion.",
    ),
    _Measure(
        "neighbours", "density", "Density, relative", 1,
        "In how many neighbourhoods of Monte Carlo's showers one of the candidate's lies, over the number for other "
        "showers of Monte Carlo: 1 is perfect, less means showers unlike any of Monte Carlo's, more that they crowd "
        "around the usual ones.",
    ),
)  # fmt: skip


def incumbent(found: Mapping[str, Any] | None) -> str:
    """A challenger against the generator in use, of which lower figures are better."""
    if not found:
        return ""
    criteria = sorted(
        found["criteria"], key=lambda each: (each["outcome"] != ALIKE, abs(each["difference"] or 0.0)), reverse=True
    )
    rows = [
        {
            "Criterion": escape(each["name"]),
            "Bin": escape(each["bin"]),
            "Challenger": number(each["challenger"]),
            "Incumbent": number(each["incumbent"]),
            "Difference": number(each["difference"]),
            "95 % interval": span(each["interval"]),
            "Outcome": coloured(each["outcome"]),
        }
        for each in criteria[:_MOST_DIFFERENT]
    ]
    listed = f"<p class='soft'>The criteria that differ most:</p>{table(rows)}" if rows else ""
    return (
        f"<h2>Against the incumbent: {coloured(found['outcome'])}</h2>"
        f"<p>Difference <b>{number(found['difference'])}</b>, 95 % interval {span(found['interval'])}: below zero the "
        f"challenger is nearer to Monte Carlo. The incumbent's own verdict: {coloured(found['verdict'])}.</p>"
        "<p class='soft'>By each criterion a candidate has a squared distance from its target in units of the "
        "tolerance, less what noise adds to it, so that it may fall below zero. Their difference is divided by one "
        f"plus their mean, so that no criterion decides alone, and averaged over the criteria.</p>{listed}"
    )


def alike(document: Mapping[str, Any]) -> str:
    """What tells in one number how alike the sets are, with how it is read."""
    rows = [
        _row(measure, document[measure.section][measure.key])
        for measure in _MEASURES
        if measure.key in (document.get(measure.section) or {})
    ]
    if not rows:
        return ""
    return (
        f"<h2>How alike overall</h2>{table(rows)}"
        "<p class='soft'>p: how often two sets of one truth would be at least this far apart. Figures for scale are "
        "CaloChallenge's, of its data set 2, with other showers and observables (arXiv 2410.21611).</p>"
    )


def memorisation(found: Mapping[str, Any] | None) -> str:
    if not found or found["share"] is None:
        return ""
    share, expected, ratio = _percent(found["share"]), _percent(found["expected"]), found["median_distance_ratio"]
    low, high = map(_percent, found["interval"])
    return (
        f"<h3>Memorisation</h3><p>Of the candidate's showers <b>{share}</b> (95 % interval {low} to {high}, p "
        f"{number(found['p_value'])}) lie nearer to one of {found['training']:,} showers of the training set than all "
        f"but {expected} of Monte Carlo's do; expected are {expected}. The median distance to the nearest is "
        f"{number(ratio)} of Monte Carlo's.</p>"
    )


def distances(found: Mapping[str, Any] | None) -> str:
    if not found or not found.get("observables"):
        return ""
    names = {
        "Wasserstein-1": "wasserstein_1",
        "Kolmogorov-Smirnov": "kolmogorov_smirnov",
        "χ² a degree of freedom": "chi2_per_dof",
    }
    rows = [
        {"Observable": escape(each["label"])}
        | {
            title: _distance(each[name], each["unit"] if name == "wasserstein_1" else "")
            for title, name in names.items()
            if name in each
        }
        for each in found["observables"].values()
    ]
    showers = found["showers"]
    return (
        "<h2>Distances</h2><p class='soft'>Not criteria: all are above zero for two samples of one truth too, by about "
        f"the floor. Of {showers['candidate']:,} showers of the candidate and {showers['reference']:,} of Monte "
        f"Carlo.</p><details><summary>{len(rows)} observables</summary>{table(rows)}</details>"
    )


def _row(measure: _Measure, found: Mapping[str, Any]) -> dict[str, str]:
    scale = measure.scale
    if found["value"] is None:
        value, own = "too few showers", ""
    else:
        known = f"± {number(found['uncertainty'], scale)}" if "uncertainty" in found else span(found["interval"])
        value = f"<b>{number(found['value'], scale)}</b><small>{known}</small>"
        own = number(found["own"]) if "own" in found else floor(found["floor"], scale)
    p_value = number(found["p_value"]) if found.get("p_value") is not None else ""
    return {
        "Measure": measure.name,
        "Value": value,
        "Monte Carlo's own": own,
        "p": p_value,
        "How to read it": f"<p>{measure.reading}</p>",
    }


def _distance(found: Mapping[str, Any], unit: str) -> str:
    if found["value"] is None:
        return "too few showers"
    details = f"p {number(found['p_value'])}, floor {floor(found['floor'])}"
    return f"{number(found['value'])} {escape(unit)}<small>{details}</small>"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
