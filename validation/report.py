"""The report: one HTML page that holds all it shows, asks for nothing, and runs no script."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import Any

from validation.verdict import number, span

_STYLE = """
:root { color-scheme: light; --line: #d8d8d8; --soft: #666; --pass: #1a7f37; --fail: #b42318; --inconclusive: #8a5a00; }
* { box-sizing: border-box; }
body { font: 15px/1.45 system-ui, sans-serif; color: #1c1c1c; background: #fff; margin: 0 auto; padding: 16px;
  max-width: 1180px; }
h1 { font-size: 1.5rem; margin: 0 0 4px; } h2 { font-size: 1.15rem; margin: 28px 0 8px; }
p { margin: 6px 0; } .soft { color: var(--soft); } code { overflow-wrap: anywhere; font-size: .85em; }
.banner { border-left: 8px solid; padding: 10px 14px; background: #f6f6f6; }
.accepted, .pass { color: var(--pass); } .rejected, .fail { color: var(--fail); }
.inconclusive { color: var(--inconclusive); }
.banner h1 span { text-transform: uppercase; } .banner p { color: #1c1c1c; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: left; padding: 4px 8px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; } td.answer { font-weight: 600; }
img { max-width: 100%; height: auto; display: block; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 350px), 1fr)); gap: 12px; }
.wide { grid-column: 1 / -1; max-width: 820px; }
details > summary { cursor: pointer; margin: 12px 0 6px; font-weight: 600; }
@media (max-width: 700px) {
  .overview { display: none; }
  thead { display: none; } table, tbody, tr, td { display: block; width: 100%; }
  tr { border-bottom: 1px solid var(--line); padding: 6px 0; }
  td { border: 0; padding: 1px 0; display: grid; grid-template-columns: 8.5em 1fr; gap: 8px; }
  td::before { content: attr(data-label); color: var(--soft); }
  td:first-child { display: block; font-weight: 600; } td:first-child::before { content: none; }
}
@media print { body { max-width: none; padding: 0; font-size: 11px; } tr, img { break-inside: avoid; }
  .plots { grid-template-columns: 1fr 1fr; } }
"""

_WORST = 12  # criteria of the first table

_HOW_TO_READ = """<p class="soft">Pass: the whole 95 % interval lies inside the tolerance. Fail: the whole interval
at the level 1 - 0.05/{criteria} lies outside. Otherwise inconclusive, with the number of showers in each set and bin
that would decide, were the value to stay. Floor: how far Monte Carlo typically is from itself, measured between
halves of the reference and scaled to the size of these sets.</p>"""


def page(document: dict[str, Any], overview: bytes, plots: Sequence[tuple[str, bytes]]) -> str:
    """The report of a verdict `document` with its `plots` (title, PNG), as HTML. The overview may be empty."""
    criteria = document["criteria"]
    verdict = document["verdict"]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Showers {escape(verdict)}</title><style>{_STYLE}</style></head><body>",
        _banner(document),
        _findings("Hard failures", "fail", document["hard_failures"]),
        _findings("Caution", "inconclusive", document["cautions"]),
        "<h2>Worst criteria</h2>",
        _criteria_table(criteria[:_WORST]),
        f'<div class="overview">{_image("Overview", overview)}</div>'
        if overview
        else "<p>No shower holds energy in both sets: nothing to draw.</p>",
        "<h2>Plots</h2>" if plots else "",
        '<div class="plots">' + "".join(_plot(title, png) for title, png in plots) + "</div>",
        "<h2>All criteria</h2>",
        _HOW_TO_READ.format(criteria=max(len(criteria), 1)),
        _criteria_table(criteria),
        _metric(document["metric"]),
        _distances(document["distances"]),
        _inputs(document),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _banner(document: dict[str, Any]) -> str:
    events, empty, verdict = document["events"], document["empty"], document["verdict"]
    counts = {answer: int(document["scalars"][f"criteria_{answer}"]) for answer in ("pass", "fail", "inconclusive")}
    per_event = document["per_event"]
    pairing = {
        0: "unpaired: independent showers of the same beam",
        1: "paired: each shower has the energy and angle of its partner",
    }.get(per_event, f"paired: {per_event} showers for each of Monte Carlo's")
    return (
        f'<div class="banner {verdict}"><h1>Showers <span>{escape(verdict)}</span></h1>'
        f"<p>Grade <b>{escape(document['grade']['name'])}</b>: {counts['pass']} criteria pass, {counts['fail']} fail, "
        f"{counts['inconclusive']} inconclusive; {len(document['hard_failures'])} hard failures.</p>"
        f"<p>{events['candidate']:,} showers of the candidate, {events['reference']:,} of Monte Carlo; {pairing}. "
        f"Empty: {empty['candidate']:,} and {empty['reference']:,}; left out of what follows.</p></div>"
    )


def _findings(title: str, answer: str, findings: Sequence[dict[str, Any]]) -> str:
    if not findings:
        return ""
    items = "".join(f"<li><b>{escape(each['name'])}</b>: {escape(each['detail'])}</li>" for each in findings)
    return f'<h2 class="{answer}">{title}</h2><ul>{items}</ul>'


def _criteria_table(criteria: Sequence[dict[str, Any]]) -> str:
    if not criteria:
        return "<p>None: a set has no shower with energy.</p>"
    rows = []
    for each in criteria:
        needed = each["events_needed"]
        answer = escape(each["verdict"]) + (f" (about {_rounded(needed)} would decide)" if needed else "")
        unit = f" {each['unit']}" if each["unit"] else ""
        rows.append(
            {
                "Criterion": escape(each["name"] + (f": {each['worst']}" if each["worst"] else "")),
                "Bin": escape(each["bin"]),
                "Value": number(each["value"]) + escape(unit),
                "95 % interval": span(each["interval"]),
                "Tolerance": span(each["tolerance"]),
                "Floor": number(each["floor"]["value"]) + (" (scaled)" if each["floor"]["scaled"] else ""),
                "Verdict": f'<span class="{escape(each["verdict"])}">{answer}</span>',
            }
        )
    return _table(rows)


def _metric(metric: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} {number(metric[name])}" for name in ("position", "profile", "angle"))
    value = f"<b>{number(metric['value'])}</b> ({parts})" if metric["value"] is not None else "no figure"
    rows = [
        {
            "Bin": f"{each['energy_gev']:g} GeV, {each['theta_deg']:g} degrees",
            "Monte Carlo": f"{each['reference']:,}",
            "Candidate": f"{each['candidate']:,}",
            "P + E + A": number(each["value"]) if each["value"] is not None else "too few showers",
        }
        for each in metric["bins"]
    ]
    return (
        f"<h2>The reference's metric</h2><p>P + E + A: {value}. It needs "
        f"{metric['events_needed']:,} showers of each set in each bin.</p>"
        f"<details><summary>Bins</summary>{_table(rows)}</details>"
    )


def _distances(distances: dict[str, dict[str, Any]]) -> str:
    rows = [
        {
            "Observable": escape(each["label"]),
            "Wasserstein-1": f"{number(each['wasserstein_1'])} {escape(each['unit'])}",
            "Kolmogorov-Smirnov": number(each["kolmogorov_smirnov"]),
        }
        for each in distances.values()
    ]
    if not rows:
        return ""
    return (
        "<h2>Distances</h2><p class='soft'>Not criteria: both are above zero for two samples of one truth.</p>"
        f"<details><summary>Observables</summary>{_table(rows)}</details>"
    )


def _inputs(document: dict[str, Any]) -> str:
    inputs = document["inputs"]
    rows = [
        {
            "Set": {"reference": "Monte Carlo", "candidate": "Candidate"}[side],
            "File": f"<code>{escape(file['file'])}</code>",
            "Showers": f"{file['events']:,}",
            "SHA-256": f"<code>{escape(file['sha256'])}</code>",
        }
        for side in ("reference", "candidate")
        for file in inputs[side]
    ]
    geometry = ", ".join(f"{name} {value}" for name, value in inputs["geometry"].items())
    return (
        f"<h2>What was compared</h2>{_table(rows)}"
        f"<p>Split of the reference: {escape(inputs['split'])}. Seed {inputs['seed']}. calopipe "
        f"{escape(inputs['code_version'])}. Geometry: {escape(geometry)}.</p>"
        f"<p class='soft'>Request <code>{escape(document['request'])}</code></p>"
    )


def _table(rows: Sequence[dict[str, str]]) -> str:
    """A table of cells that are HTML already. On a narrow screen each row becomes a small card."""
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>"
        + "".join(f'<td data-label="{escape(name)}"><div>{cell}</div></td>' for name, cell in row.items())
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _plot(title: str, png: bytes) -> str:
    wide = ' class="wide"' if title == "Two single showers" else ""
    return f"<div{wide}>{_image(title, png)}</div>"


def _image(title: str, png: bytes) -> str:
    return f'<img alt="{escape(title)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def _rounded(events: int) -> str:
    """Two significant digits are all that is known of it."""
    digits = max(len(str(events)) - 2, 0)
    return f"{round(events, -digits):,}"
