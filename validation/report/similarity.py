"""How alike two sets of showers are beyond the criteria: sections of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from calopipe.verdict import ALIKE, number, span
from validation.report.markup import coloured, fill, floor, table

_MOST_DIFFERENT = 6  # criteria of a challenger and an incumbent
_UNKNOWN = "too few showers"


class _Measure(NamedTuple):
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

_OVERALL = """<h2>How alike overall</h2>{}
<p class="soft">p: how often two sets of one truth would be at least this far apart. Figures for scale are
CaloChallenge's, of its data set 2, with other showers and observables (arXiv 2410.21611).</p>"""

_INCUMBENT = """<h2>Against the incumbent: {outcome}</h2>
<p>Difference <b>{difference}</b>, 95 % interval {interval}: below zero the challenger is nearer to Monte Carlo. The
incumbent's own verdict: {verdict}.</p>
<p class="soft">By each criterion a candidate has a squared distance from its target in units of the tolerance, less
what noise adds to it, so that it may fall below zero. Their difference is divided by one plus their mean, so that no
criterion decides alone, and averaged over the criteria.</p>
{listed}"""

_MEMORISATION = """<h3>Memorisation</h3>
<p>Of the candidate's showers <b>{share}</b> (95 % interval {low} to {high}, p {p_value}) lie nearer to one of
{training:,} showers of the training set than all but {expected} of Monte Carlo's do; expected are {expected}. The
median distance to the nearest is {ratio} of Monte Carlo's.</p>"""


def overall(document: Mapping[str, Any]) -> Markup:
    """Each figure of similarity, with how it is read."""
    rows = []
    for section, key, name, scale, reading in _MEASURES:
        found = (document.get(section) or {}).get(key)
        if found is None:
            continue
        value, own = _UNKNOWN, ""
        if found["value"] is not None:
            known = f"± {number(found['uncertainty'], scale)}" if "uncertainty" in found else span(found["interval"])
            value = fill("<b>{}</b><small>{}</small>", number(found["value"], scale), known)
            own = number(found["own"]) if "own" in found else floor(found["floor"], scale)
        p_value = found.get("p_value")
        rows.append(
            {
                "Measure": name,
                "Value": value,
                "Monte Carlo's own": own,
                "p": "" if p_value is None else number(p_value),
                "How to read it": fill("<p>{}</p>", reading),
            }
        )
    return fill(_OVERALL, table(rows)) if rows else Markup()


def incumbent(found: Mapping[str, Any] | None) -> Markup:
    """A challenger against the generator in use, of which lower figures are better."""
    if not found:
        return Markup()
    criteria = sorted(
        found["criteria"], key=lambda each: (each["outcome"] != ALIKE, abs(each["difference"] or 0.0)), reverse=True
    )
    rows = [
        {
            "Criterion": each["name"],
            "Bin": each["bin"],
            "Challenger": number(each["challenger"]),
            "Incumbent": number(each["incumbent"]),
            "Difference": number(each["difference"]),
            "95 % interval": span(each["interval"]),
            "Outcome": coloured(each["outcome"]),
        }
        for each in criteria[:_MOST_DIFFERENT]
    ]
    return fill(
        _INCUMBENT, outcome=coloured(found["outcome"]), verdict=coloured(found["verdict"]),
        difference=number(found["difference"]), interval=span(found["interval"]),
        listed=fill('<p class="soft">The criteria that differ most:</p>{}', table(rows)) if rows else "",
    )  # fmt: skip


def memorisation(found: Mapping[str, Any] | None) -> Markup:
    if not found or found["share"] is None:
        return Markup()
    shares = dict(zip(("low", "high"), found["interval"], strict=True)) | {k: found[k] for k in ("share", "expected")}
    return fill(
        _MEMORISATION, p_value=number(found["p_value"]), training=found["training"],
        ratio=number(found["median_distance_ratio"]),
        **{name: f"{100 * share:.3g} %" for name, share in shares.items()},
    )  # fmt: skip
