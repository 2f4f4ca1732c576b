"""The numbers of CaloChallenge beside published ones: a section of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
<p class="soft">{p[source]}; collected {p[date]}.</p>{separations}"""
_SEPARATIONS = """<h3>Published separation powers: {p[dataset]}</h3>{rows}
<p class="soft">{p[separations_source]}. What was said of comparisons holds here too.</p>"""
_TIMES = """<p>Time of generation ({t[device]}, cores: {t[cores]}): {times}.</p>"""
_THESE = "the showers of this report"


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
    parts.append(_published(found))
    return fill(_SECTION, joined(parts))


def _table(found: Mapping[str, Any]) -> Markup:
    rows = []
    for name, title in (("fpd", "FPD x 1000"), ("kpd", "KPD x 1000")):
        if each := found.get(name):
            value, error, own = (_large(each[key] and 1000 * each[key]) for key in ("value", "uncertainty", "own"))
            rows.append({"Number": title, "Value": f"{value} ± {error}", "Monte Carlo's own": own})
    for name, each in ((found["classifier"] or {}).get("classifiers") or {}).items():
        value = f"{number(each['auc'])} (JSD {number(each['jsd'])}, calibrated), of {each['tested']:,} showers"
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
    published = found["published"]
    against = "; ".join(published["against"])
    if not published["rows"]:
        return fill('<p class="soft">No published values: {}.</p>', against)
    verdict = (
        f"Not to be compared here: {against}." if against else "Comparable if Monte Carlo is the challenge's file."
    )
    rows = [_row(each) for each in (_these(found), *published["rows"])]
    separations = Markup()
    if published["separations"]:
        powers = {name: (found.get("separations") or {}).get(name, {}).get("value") for name in ("total", "cells")}
        some = table([_powers(each) for each in ({"model": _THESE, **powers}, *published["separations"])])
        separations = fill(_SEPARATIONS, p=published, rows=some)
    return fill(_PUBLISHED, p=published, verdict=verdict, rows=table(rows), separations=separations)


def _these(found: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the candidate, as a row of published values."""
    classifiers, timing = ((found[name] or {}) for name in ("classifier", "timing"))
    auc = {level: each["auc"] for level, each in classifiers.get("classifiers", {}).items()}
    distances = {name: found[name]["value"] * 1000 if found.get(name) else None for name in ("fpd", "kpd")}
    times = [each["ms_per_shower"] for each in timing.get("times", ())]
    accelerator = timing.get("accelerator", False)
    return {
        "model": _THESE, "fpd_x_1000": distances["fpd"], "kpd_x_1000": distances["kpd"],
        "auc_low": auc.get("low"), "auc_high": auc.get("high"),
        "processor_ms": [] if accelerator else times, "accelerator_ms": times if accelerator else [],
    }  # fmt: skip


def _row(each: Mapping[str, Any]) -> dict[str, str]:
    return {
        "Model": each["model"],
        "FPD x 1000": _large(each["fpd_x_1000"]),
        "KPD x 1000": _large(each["kpd_x_1000"]),
        "AUC, low-level": number(each["auc_low"]),
        "AUC, high-level": number(each["auc_high"]),
        "Processor, ms a shower in batches of 1; 100; 10,000": _times(each["processor_ms"]),
        "Accelerator, the same": _times(each["accelerator_ms"]),
    }


def _powers(each: Mapping[str, Any]) -> dict[str, str]:
    names = {"total": "S: energy in all cells over the incident energy", "cells": "S: energies of single cells"}
    return {"Model": each["model"], **{title: number(each[name]) for name, title in names.items()}}


def _times(some: Sequence[float | None]) -> str:
    """Of batches of 1, 100 and 10,000."""
    if not any(some):
        return "none"
    return "; ".join(map(_large, some))


def _large(value: float | None) -> str:
    """Without an exponent, where thousands are common."""
    return f"{value:,.0f}" if value is not None and abs(value) >= 1000 else number(value)
