"""The numbers of CaloChallenge beside published ones: a section of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from calopipe.verdict import number
from validation.report.markup import fill, folded, joined, table

_SECTION = """<h2>Beside the literature: CaloChallenge</h2>
<p class="soft">Not criteria. Features, histograms and scales are the challenge's (arXiv 2410.21611), so that nothing is
subtracted for chance. Monte Carlo's own: its even showers against its odd ones, half as many.</p>
{}"""
_PUBLISHED = """<h3>Published values: {p[dataset]}</h3>
<p><b>{verdict}</b> {p[when]}</p>{rows}
<p class="soft">{p[source]}; collected {p[date]}.</p>"""
_TIMES = """<p>Time of generation, {t[device]}, {t[cores]} cores: {times}.</p>"""


def section(found: Mapping[str, Any] | None) -> Markup:
    """Nothing where the challenge's numbers were not asked for."""
    if not found:
        return Markup()
    parts = [_table(found)]
    if found["skipped"]:
        parts.append(fill("<p>{}</p>", found["skipped"]))
    else:
        parts.append(_layers(found["separations"]))
    if found["timing"]:
        times = "; ".join(
            f"batch {each['batch']:,}: {number(each['ms_per_shower'])} ms a shower" for each in found["timing"]["times"]
        )
        parts.append(fill(_TIMES, t=found["timing"], times=times))
    parts.append(_published(found["published"]))
    return fill(_SECTION, joined(parts))


def _table(found: Mapping[str, Any]) -> Markup:
    rows = []
    for name, title in (("fpd", "FPD x 1000"), ("kpd", "KPD x 1000")):
        if each := found.get(name):
            value = f"{number(each['value'], 1000)} ± {number(each['uncertainty'], 1000)}"
            rows.append({"Number": title, "Value": value, "Monte Carlo's own": number(each["own"], 1000)})
    for name, each in ((found["classifier"] or {}).get("classifiers") or {}).items():
        value = f"{number(each['auc'])} (JSD {number(each['jsd'])}, calibrated)"
        rows.append({"Number": f"AUC, {name}-level classifier", "Value": value, "Monte Carlo's own": "0.5 expected"})
    for each in (found.get("separations") or {}).values():
        layers = len(each["each"])
        title = f"S: {each['label']}" + (f", mean of {layers} layers" if layers > 1 else "")
        value = number(each["value"]) + (f" (at most {number(each['largest'])})" if layers > 1 else "")
        rows.append({"Number": title, "Value": value, "Monte Carlo's own": number(each["own"])})
    return table(rows) if rows else Markup()


def _layers(found: Mapping[str, Any]) -> Markup:
    """The separation power of every histogram. Where layers have no angles, centres count only those that have."""
    rows = [
        {"Observable": each["label"], "S of each layer": ", ".join(number(value) for value in each["each"])}
        for each in found.values()
        if len(each["each"]) > 1
    ]
    return folded("Separation power of each layer", table(rows)) if rows else Markup()


def _published(found: Mapping[str, Any]) -> Markup:
    if not found["rows"]:
        return fill('<p class="soft">No published values: {}.</p>', "; ".join(found["against"]))
    rows = [
        {
            "Model": each["model"],
            "FPD x 1000": number(each["fpd_x_1000"]),
            "AUC, low-level": number(each["auc_low"]),
            "AUC, high-level": number(each["auc_high"]),
        }
        for each in found["rows"]
    ]
    against = "; ".join(found["against"])
    verdict = (
        f"Not to be compared here: {against}." if against else "Comparable if Monte Carlo is the challenge's file."
    )
    return fill(_PUBLISHED, p=found, verdict=verdict, rows=table(rows))
