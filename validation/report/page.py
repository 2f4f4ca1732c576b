"""The report: one HTML page that holds all it shows, asks for nothing, and runs no script."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from validation.report import edges, likeness, sections
from validation.report.plots import Plot

_STYLE = Path(__file__).with_name("report.css")
_WORST = 12  # criteria of the first table

# What a browser that follows it enforces: no script, and nothing from anywhere else.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

_PLOTS = """<p class="soft">Grey: Monte Carlo. Points: the candidate. Errors are one standard deviation, over showers;
those of the calibration to the ends of the labels are 95 % intervals. Below, the ratio of the candidate to Monte Carlo
(of angles, the difference in degrees): the errors of the points are the candidate's and the hatched band Monte
Carlo's, those of a difference both; a triangle at the edge is a point beyond it. The outer bins of a distribution also
hold what lies beyond them. Neighbouring points of a profile are correlated; between unpaired sets the plots also show
by how much their energies and angles differ by chance, which the criteria take out.</p>"""


def page(document: dict[str, Any], plots: Sequence[Plot]) -> str:
    """The report of a verdict `document` with its `plots`, as HTML. What the document does not hold is left out."""
    criteria = document["criteria"]
    verdict = document["verdict"]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Showers {escape(verdict)}</title><style>{_STYLE.read_text(encoding='utf-8')}</style></head><body>",
        sections.banner(document),
        likeness.incumbent(document.get("incumbent")),
        sections.findings("Hard failures", "fail", document["hard_failures"]),
        sections.findings("Caution", "inconclusive", document["cautions"]),
        "<h2>Worst criteria</h2>",
        sections.criteria_table(criteria[:_WORST]),
        sections.how_to_read(len(criteria)),
        likeness.alike(document),
        likeness.memorisation(document.get("memorisation")),
        _plots(plots),
        edges.section(document.get("edges")),
        sections.all_criteria(criteria),
        likeness.distances(document.get("distances")),
        sections.metric(document["metric"]),
        sections.inputs(document),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _plots(plots: Sequence[Plot]) -> str:
    if not plots:
        return "<p>No shower holds energy in both sets: nothing to draw.</p>"
    parts = ["<h2>Plots</h2>", _PLOTS]
    for group, members in groupby(plots, key=lambda plot: plot.group):
        images = "".join(map(_image, members))
        parts.append(f'<h3>{escape(group)}</h3><div class="plots">{images}</div>')
    return "\n".join(parts)


def _image(plot: Plot) -> str:
    return f'<img alt="{escape(plot.title)}" src="data:image/png;base64,{base64.b64encode(plot.png).decode()}">'
