"""The verdict, its criteria and its inputs, each a piece of HTML made from a piece of the verdict document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from calopipe.verdict import number, span
from validation.report.markup import coloured, floor, table

_SETS = {"reference": "Monte Carlo", "candidate": "Candidate", "incumbent": "Incumbent", "training": "Training"}


def banner(document: Mapping[str, Any]) -> str:
    events, empty, verdict = document["events"], document["empty"], document["verdict"]
    counts = {answer: int(document["scalars"][f"criteria_{answer}"]) for answer in ("pass", "fail", "inconclusive")}
    per_event = document["per_event"]
    cautions = len(document["cautions"])
    never = f" {_counted(cautions, 'caution')}: not accepted, whatever the criteria say." if cautions else ""
    pairing = {
        0: "unpaired: independent showers of the same beam",
        1: "paired: each shower has the energy and angle of its partner",
    }.get(per_event, f"paired: {per_event} showers for each of Monte Carlo's")
    return (
        f'<div class="banner {escape(verdict)}"><h1>Showers <span>{escape(verdict)}</span></h1>'
        f"<p>Grade <b>{escape(document['grade']['name'])}</b>: {counts['pass']} criteria pass, {counts['fail']} fail, "
        f"{counts['inconclusive']} inconclusive; {_counted(len(document['hard_failures']), 'hard failure')}.{never}</p>"
        f"<p>Candidate: {_named(document, 'candidate')}. Monte Carlo: {_named(document, 'reference')}.</p>"
        f"<p>{events['candidate']:,} showers of the candidate, {events['reference']:,} of Monte Carlo; {pairing}. "
        f"Without energy, and left out of what follows: {empty['candidate']:,} and {empty['reference']:,}.</p></div>"
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _named(document: Mapping[str, Any], side: str) -> str:
    """The first of the files, and how many more there are."""
    files = document["inputs"][side]
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"<code>{escape(files[0]['file'])}</code>{more}"


def findings(title: str, answer: str, found: Sequence[Mapping[str, Any]]) -> str:
    if not found:
        return ""
    items = "".join(f"<li><b>{escape(each['name'])}</b>: {escape(each['detail'])}</li>" for each in found)
    return f'<h2 class="{answer}">{title}</h2><ul>{items}</ul>'


def how_to_read(criteria: int) -> str:
    return f"""<p class="soft">Pass: the whole 95 % interval lies inside the tolerance. Fail: the whole of a stricter
interval, at the level 1 - 0.05/{max(criteria, 1)}, lies outside. Otherwise inconclusive, with the number of showers in
each set and bin that would decide, were the value to stay. Floor: how far Monte Carlo typically is from itself,
measured between halves of the reference and scaled to the size of these sets. S is the separation power of two
histograms, each normalised to one: half the sum, over the bins, of the squared difference of the two shares over their
sum. It is 0 where they are alike and 1 where they share no bin; what chance alone would give is subtracted, so that it
may fall below 0.</p>"""


def criteria_table(criteria: Sequence[Mapping[str, Any]], with_bin: bool = True) -> str:
    if not criteria:
        return "<p>None: a set has no shower with energy.</p>"
    rows = []
    for each in criteria:
        unit = f" {each['unit']}" if each["unit"] else ""
        row = {
            "Criterion": escape(each["name"] + (f": {each['worst']}" if each["worst"] else "")),
            "Bin": escape(each["bin"]),
            "Value": number(each["value"]) + escape(unit),
            "95 % interval": span(each["interval"]),
            "Tolerance": span(each["tolerance"]),
            "Floor": floor(each["floor"]),
            "Verdict": coloured(each["verdict"]) + _why_undecided(each),
        }
        rows.append(row if with_bin else {name: cell for name, cell in row.items() if name != "Bin"})
    return table(rows)


def all_criteria(criteria: Sequence[Mapping[str, Any]]) -> str:
    """Every criterion, a table for each bin of energy or angle; the bin with the worst criterion comes first."""
    parts = ["<h2>All criteria</h2>"]
    for place, label in enumerate(dict.fromkeys(each["bin"] for each in criteria)):
        inside = [each for each in criteria if each["bin"] == label]
        answers = [each["verdict"] for each in inside]
        counts = ", ".join(
            f"{answers.count(answer)} {answer}" for answer in ("fail", "inconclusive", "pass") if answer in answers
        )
        opened = " open" if place == 0 else ""
        parts.append(
            f"<details{opened}><summary>{escape(label)}: {counts}</summary>{criteria_table(inside, False)}</details>"
        )
    return "\n".join(parts) if criteria else ""


def metric(found: Mapping[str, Any]) -> str:
    parts = ", ".join(f"{name} {number(found[name])}" for name in ("position", "profile", "angle"))
    value = f"<b>{number(found['value'])}</b> ({parts})" if found["value"] is not None else "no figure"
    rows = [
        {
            "Bin": f"{each['energy_gev']:g} GeV, {each['theta_deg']:g} degrees",
            "Monte Carlo": f"{each['reference']:,}",
            "Candidate": f"{each['candidate']:,}",
            "P + E + A": number(each["value"]) if each["value"] is not None else "too few showers",
        }
        for each in found["bins"]
    ]
    return (
        f"<h2>The reference's metric</h2><p>P + E + A: {value}. It needs "
        f"{found['events_needed']:,} showers of each set in each bin.</p>"
        f"<details><summary>{len(rows)} bins</summary>{table(rows)}</details>"
    )


def inputs(document: Mapping[str, Any]) -> str:
    given = document["inputs"]
    files = [
        {
            "Set": name,
            "File": f"<code>{escape(file['file'])}</code>",
            "Showers": f"{file['events']:,}",
            "SHA-256": f"<code>{escape(file['sha256'])}</code>",
        }
        for side, name in _SETS.items()
        for file in given[side]
    ]
    geometry = ", ".join(f"{name} {value}" for name, value in given["geometry"].items())
    versions = ", ".join(f"{name} {value}" for name, value in given["versions"].items())
    tolerances = ", ".join(
        f"{name} {'not asked' if value is None else f'{value:g}'}"
        for name, value in document["grade"]["tolerance"].items()
    )
    return (
        f"<h2>What was compared</h2>{table(files)}"
        f"<p>Split of the reference: {escape(given['split'])}, showers above {given['cut_gev']:g} GeV; corrupt "
        f"showers: {escape(given['bad_event'])}. Seed {given['seed']}.</p>"
        f"<p>calopipe {escape(given['code_version'])}; {escape(versions)}.</p>"
        f"<p>Geometry: {escape(geometry)}.</p>"
        f"<p>Tolerances of {escape(document['grade']['name'])}: {escape(tolerances)}.</p>"
        f"<p class='soft'>Request <code>{escape(document['request'])}</code></p>"
    )


def _why_undecided(criterion: Mapping[str, Any]) -> str:
    """What keeps an inconclusive criterion from failing, where it seems to, and what would decide it."""
    notes = []
    strict = criterion.get("strict_interval")
    if criterion["verdict"] == "inconclusive" and _outside(criterion["interval"], criterion["tolerance"]):
        stricter = f": {span(strict)}" if strict else ""
        notes.append(f"outside, but the stricter interval is not{stricter}")
    needed = criterion["events_needed"]
    if needed and needed > criterion["events"]:
        notes.append(f"about {_rounded(needed)} showers would decide")
    return f"<small>{'; '.join(notes)}</small>" if notes else ""


def _outside(interval: Sequence[float] | None, tolerance: Sequence[float | None]) -> bool:
    if interval is None:
        return False
    low, high = tolerance
    return (low is not None and interval[1] < low) or (high is not None and interval[0] > high)


def _rounded(events: int) -> str:
    """Two significant digits are all that is known of it."""
    digits = max(len(str(events)) - 2, 0)
    return f"{round(events, -digits):,}"
