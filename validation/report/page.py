"""The report: one HTML page that holds all it shows, asks for nothing, and runs no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from markupsafe import Markup

from calopipe.showers.cells import Geometry
from calopipe.verdict import ALIKE
from validation.report.markup import html, render
from validation.report.plots import Plot

_SETS = {"reference": "Monte Carlo", "candidate": "Candidate", "incumbent": "Incumbent", "training": "Training"}
_MOST_DIFFERENT = 6  # criteria of a challenger and an incumbent


def page(document: Mapping[str, Any], plots: Sequence[Plot]) -> str:
    """The report of a verdict `document` with its `plots`, as HTML. What the document does not hold is left out."""
    body = render(
        "showers.html", d=document, plots=plots, sets=_SETS, challenge=challenge(document.get("challenge")),
        most_different=_most_different, geometry=_described(document["inputs"]["geometry"]),
    )  # fmt: skip
    return html(f"Showers {document['verdict']}", body)


def _described(geometry: dict[str, Any]) -> list[str]:
    """What a calorimeter is, the layers that are alike together."""
    known = Geometry.from_json(geometry)
    groups = ((layer, len([*alike])) for layer, alike in groupby(known.every_layer))
    layers = [f"{count} {'layers' if count > 1 else 'layer'} of {layer}" for layer, count in groups]
    return [*layers, f"1 in a file is {known.file_unit_gev:g} GeV"]


def _most_different(criteria: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The criteria by which a challenger and the incumbent differ most: those that decide first."""

    def order(row: Mapping[str, Any]) -> tuple[bool, float]:
        return row["outcome"] != ALIKE, abs(row["difference"] or 0.0)

    return sorted(criteria, key=order, reverse=True)[:_MOST_DIFFERENT]


def challenge(section: Mapping[str, Any] | None) -> Markup:
    """The section of CaloChallenge's numbers; nothing where they were not asked for."""
    return render("challenge.html", c=section, these=_these(section)) if section else Markup()


def _these(section: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the candidate, as a row of published values."""
    classifiers, timing = ((section[name] or {}) for name in ("classifier", "timing"))
    auc = {level: figures["auc"] for level, figures in classifiers.get("classifiers", {}).items()}
    distances = {name: section[name]["value"] * 1000 if section.get(name) else None for name in ("fpd", "kpd")}
    powers = {name: (section.get("separations") or {}).get(name, {}).get("value") for name in ("total", "cells")}
    times = [timed["ms_per_shower"] for timed in timing.get("times", ())]
    accelerator = timing.get("accelerator", False)
    return {
        "model": "the showers of this report", "fpd_x_1000": distances["fpd"], "kpd_x_1000": distances["kpd"],
        "auc_low": auc.get("low"), "auc_high": auc.get("high"),
        "processor_ms": [] if accelerator else times, "accelerator_ms": times if accelerator else [], **powers,
    }  # fmt: skip
