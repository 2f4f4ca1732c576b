"""The report: one HTML page that holds all it shows, asks for nothing, and runs no script."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from calopipe.verdict import number, span
from validation.report import challenge, resolution, similarity
from validation.report.markup import coloured, fill, floor, folded, joined, table
from validation.report.plots import Plot

_STYLE = Path(__file__).with_name("report.css")
_WORST = 12  # criteria of the first table
_SETS = {"reference": "Monte Carlo", "candidate": "Candidate", "incumbent": "Incumbent", "training": "Training"}

# The browser enforces the policy: no script, and nothing from anywhere else.
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head><body>
{body}
</body></html>
"""

_BANNER = """<div class="banner {d[verdict]}"><h1>Showers <span>{d[verdict]}</span></h1>
<p>Grade <b>{d[grade][name]}</b>: {counts[pass]} criteria pass, {counts[fail]} fail, {counts[inconclusive]}
inconclusive; {failures}.{cautions}</p>
<p>Candidate: {candidate}. Monte Carlo: {reference}.</p>
<p>{d[events][candidate]:,} showers of the candidate, {d[events][reference]:,} of Monte Carlo; {pairing}.
Without energy, and left out of what follows: {d[empty][candidate]:,} and {d[empty][reference]:,}.</p></div>"""

_HOW_TO_READ = """<p class="soft">Pass: the whole 95 % interval lies inside the tolerance. Fail: the whole of a stricter
interval, at the level 1 - 0.05/{}, lies outside. Otherwise inconclusive, with the number of showers in each set and bin
that would decide, were the value to stay. Floor: how far Monte Carlo typically is from itself, measured between halves
of the reference and scaled to the size of these sets. S is the separation power of two histograms, each normalised to
one: half the sum, over the bins, of the squared difference of the two shares over their sum. It is 0 where they are
alike and 1 where they share no bin; what chance alone would give is subtracted, so that it may fall below 0.</p>"""

_PLOTS = """<h2>Plots</h2>
<p class="soft">Grey: Monte Carlo. Points: the candidate. Errors are one standard deviation, over showers. Below, the
ratio of the candidate to Monte Carlo (of angles, the difference in degrees): the errors of the points are the
candidate's and the hatched band Monte Carlo's, those of a difference both; a triangle at the edge is a point beyond it.
The outer bins of a distribution also hold what lies beyond them. Neighbouring points of a profile are correlated;
between unpaired sets the plots also show by how much their energies and angles differ by chance, which the criteria
take out.</p>
{}"""

_METRIC = """<h2>The reference's metric</h2>
<p>P + E + A: {}. It needs {d[events_needed]:,} showers of each set in each bin.</p>
{}"""

_INPUTS = """<h2>What was compared</h2>{files}
<p>Split of the reference: {i[split]}, showers above {i[cut_gev]:g} GeV; corrupt showers: {i[bad_event]}.
Seed {i[seed]}.</p>
<p>calopipe {i[code_version]}; {versions}.</p>
<p>Geometry: {geometry}.</p>
<p>Tolerances of {d[grade][name]}: {tolerances}.</p>
<p class="soft">Request <code>{d[request]}</code></p>"""


def page(document: Mapping[str, Any], plots: Sequence[Plot]) -> str:
    """The report of a verdict `document` with its `plots`, as HTML. What the document does not hold is left out."""
    criteria = document["criteria"]
    parts = [
        _banner(document),
        similarity.incumbent(document.get("incumbent")),
        findings("Hard failures", "fail", document["hard_failures"]),
        findings("Caution", "inconclusive", document["cautions"]),
        Markup("<h2>Worst criteria</h2>"),
        criteria_table(criteria[:_WORST]) if criteria else Markup("<p>None: a set has no shower with energy.</p>"),
        fill(_HOW_TO_READ, max(len(criteria), 1)),
        similarity.overall(document),
        similarity.memorisation(document.get("memorisation")),
        challenge.section(document.get("challenge")),
        _plots(plots),
        resolution.section(document.get("resolution")),
        _all_criteria(criteria),
        _metric(document["metric"]),
        _inputs(document),
    ]
    return html(f"Showers {document['verdict']}", parts)


def html(title: str, parts: Sequence[Markup]) -> str:
    """A page of its own, with the style of reports."""
    style = Markup(_STYLE.read_text(encoding="utf-8"))  # noqa: S704  a file of this package
    return fill(_PAGE, title=title, style=style, body=joined(parts))


def _banner(document: Mapping[str, Any]) -> Markup:
    counts = {answer: int(document["scalars"][f"criteria_{answer}"]) for answer in ("pass", "fail", "inconclusive")}
    per_event, cautions = document["per_event"], len(document["cautions"])
    pairing = {
        0: "unpaired: independent showers of the same beam",
        1: "paired: each shower has the energy and angle of its partner",
    }.get(per_event, f"paired: {per_event} showers for each of Monte Carlo's")
    named = {}
    for side in ("reference", "candidate"):
        first, *more = document["inputs"][side]
        named[side] = fill("<code>{}</code>{}", first["file"], f" and {len(more)} more" if more else "")
    never = f" {_counted(cautions, 'caution')}: not accepted, whatever the criteria say." if cautions else ""
    failures = _counted(len(document["hard_failures"]), "hard failure")
    return fill(_BANNER, d=document, counts=counts, failures=failures, cautions=never, pairing=pairing, **named)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def findings(title: str, answer: str, found: Sequence[Mapping[str, Any]]) -> Markup:
    items = joined(fill("<li><b>{e[name]}</b>: {e[detail]}</li>", e=each) for each in found)
    return fill('<h2 class="{}">{}</h2><ul>{}</ul>', answer, title, items) if found else Markup()


def criteria_table(criteria: Sequence[Mapping[str, Any]], with_bin: bool = True, samples: str = "showers") -> Markup:
    """`samples`: what more of would decide an inconclusive criterion."""
    return table(
        [
            {
                "Criterion": each["name"] + (f": {each['worst']}" if each["worst"] else ""),
                **({"Bin": each["bin"]} if with_bin else {}),
                "Value": f"{number(each['value'])} {each['unit']}".rstrip(),
                "95 % interval": span(each["interval"]),
                "Tolerance": span(each["tolerance"]),
                "Floor": floor(each["floor"]),
                "Verdict": coloured(each["verdict"]) + _why_undecided(each, samples),
            }
            for each in criteria
        ]
    )


def _all_criteria(criteria: Sequence[Mapping[str, Any]]) -> Markup:
    """Every criterion, a table for each bin of energy or angle; the bin with the worst criterion comes first."""
    parts = [Markup("<h2>All criteria</h2>")] if criteria else []
    for place, label in enumerate(dict.fromkeys(each["bin"] for each in criteria)):
        inside = [each for each in criteria if each["bin"] == label]
        answers = [each["verdict"] for each in inside]
        counts = ", ".join(
            f"{answers.count(answer)} {answer}" for answer in ("fail", "inconclusive", "pass") if answer in answers
        )
        parts.append(folded(f"{label}: {counts}", criteria_table(inside, with_bin=False), opened=place == 0))
    return joined(parts)


def _why_undecided(criterion: Mapping[str, Any], samples: str) -> Markup:
    """Why an inconclusive criterion does not fail, where it seems to, and what would decide it."""
    notes = []
    strict, interval, (low, high) = criterion["strict_interval"], criterion["interval"], criterion["tolerance"]
    outside = interval and ((low is not None and interval[1] < low) or (high is not None and interval[0] > high))
    if criterion["verdict"] == "inconclusive" and outside:
        notes.append("outside, but the stricter interval is not" + (f": {span(strict)}" if strict else ""))
    needed = criterion["events_needed"]
    if needed and needed > criterion["events"]:
        rounded = round(needed, -max(len(str(needed)) - 2, 0))  # no more than two digits are known
        notes.append(f"about {rounded:,} {samples} would decide")
    return fill("<small>{}</small>", "; ".join(notes)) if notes else Markup()


def _plots(plots: Sequence[Plot]) -> Markup:
    if not plots:
        return Markup("<p>No shower holds energy in both sets: nothing to draw.</p>")
    return fill(_PLOTS, images(plots))


def images(plots: Sequence[Plot], layout: str = "plots") -> Markup:
    """The pictures, in their groups: several a row, or one where `layout` is empty."""
    image = '<img alt="{}" src="data:image/png;base64,{}">'
    groups = [
        fill(
            '<h3>{}</h3><div class="{}">{}</div>',
            group, layout, joined(fill(image, plot.title, base64.b64encode(plot.png).decode()) for plot in members),
        )
        for group, members in groupby(plots, key=lambda plot: plot.group)
    ]  # fmt: skip
    return joined(groups)


def _metric(found: Mapping[str, Any]) -> Markup:
    parts = ", ".join(f"{name} {number(found[name])}" for name in ("position", "profile", "angle"))
    value = "no figure" if found["value"] is None else fill("<b>{}</b> ({})", number(found["value"]), parts)
    rows = [
        {
            "Bin": f"{each['energy_gev']:g} GeV, {each['theta_deg']:g} degrees",
            "Monte Carlo": f"{each['reference']:,}",
            "Candidate": f"{each['candidate']:,}",
            "P + E + A": "too few showers" if each["value"] is None else number(each["value"]),
        }
        for each in found["bins"]
    ]
    return fill(_METRIC, value, folded(f"{len(rows)} bins", table(rows)), d=found)


def _inputs(document: Mapping[str, Any]) -> Markup:
    given = document["inputs"]
    files = [
        {
            "Set": name,
            "File": fill("<code>{}</code>", file["file"]),
            "Showers": f"{file['events']:,}",
            "SHA-256": fill("<code>{}</code>", file["sha256"]),
        }
        for side, name in _SETS.items()
        for file in given[side]
    ]
    tolerance = {
        name: "not asked" if value is None else f"{value:g}" for name, value in document["grade"]["tolerance"].items()
    }
    listed = {
        name: ", ".join(f"{key} {value}" for key, value in values.items())
        for name, values in (
            ("geometry", given["geometry"]), ("versions", given["versions"]), ("tolerances", tolerance)
        )
    }  # fmt: skip
    return fill(_INPUTS, d=document, i=given, files=table(files), **listed)
