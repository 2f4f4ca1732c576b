"""The report: one HTML page that contains all its pictures, loads nothing and runs no script.

It is made from templates. Values that are filled in are escaped, unless they are Markup.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from calopipe.showers.cells import Geometry
from calopipe.verdict import ALIKE, number, span

if TYPE_CHECKING:
    from validation.report.plots import Plot  # loads matplotlib, not needed without plots

_SETS = {"reference": "Monte Carlo", "candidate": "Candidate", "incumbent": "Incumbent", "training": "Training"}
_MOST_DIFFERENT = 6  # criteria that are shown for a challenger and an incumbent
_MANY = 1_000_000  # showers: a larger number is not stated, as it is not well known and hardly possible
_FOLDER = Path(__file__).parent


def page(document: Mapping[str, Any], plots: Sequence[Plot]) -> str:
    """The report of a verdict `document` with its `plots`, as HTML. Sections that the document lacks are left out."""
    body = render(
        "showers.html", d=document, plots=plots, sets=_SETS, challenge=challenge(document.get("challenge")),
        most_different=_most_different, geometry=_described(document["inputs"]["geometry"]),
    )  # fmt: skip
    return html(f"Showers {document['verdict']}", body)


def _described(geometry: dict[str, Any]) -> list[str]:
    """Lines that describe a calorimeter; layers that are alike share a line."""
    detector = Geometry.from_json(geometry)
    groups = ((layer, len([*alike])) for layer, alike in groupby(detector.every_layer))
    layers = [f"{count} {'layers' if count > 1 else 'layer'} of {layer}" for layer, count in groups]
    return [*layers, f"1 in a file is {detector.file_unit_gev:g} GeV"]


def _most_different(criteria: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The criteria by which a challenger and the incumbent differ most; criteria that decide come first."""

    def order(row: Mapping[str, Any]) -> tuple[bool, float]:
        return row["outcome"] != ALIKE, abs(row["difference"] or 0.0)

    return sorted(criteria, key=order, reverse=True)[:_MOST_DIFFERENT]


def challenge(section: Mapping[str, Any] | None) -> Markup:
    """The section of CaloChallenge's numbers; empty if they were not asked for."""
    return render("challenge.html", c=section, these=_these(section)) if section else Markup()


def _these(section: Mapping[str, Any]) -> dict[str, Any]:
    """The candidate's values, in the form of a row of published values."""
    classifiers, timing = ((section[name] or {}) for name in ("classifier", "timing"))
    auc = {level: figures["auc"] for level, figures in classifiers.get("classifiers", {}).items()}
    distances = {name: section[name]["value"] * 1000 if section.get(name) else None for name in ("fpd", "kpd")}
    times = [timed["ms_per_shower"] for timed in timing.get("times", ())]
    accelerator = timing.get("accelerator", False)
    return {
        "model": "the showers of this report", "fpd_x_1000": distances["fpd"], "kpd_x_1000": distances["kpd"],
        "auc_low": auc.get("low"), "auc_high": auc.get("high"),
        "processor_ms": [] if accelerator else times, "accelerator_ms": times if accelerator else [],
    }  # fmt: skip


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined,
        extensions=["jinja2.ext.do"], trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.globals |= {
        "alike": ALIKE, "number": number, "span": span, "large": large, "why_undecided": why_undecided,
        "grouped": _grouped,
    }  # fmt: skip
    made.filters |= {"number": number, "large": large}
    return made


def render(template: str, **values: Any) -> Markup:
    """The `template`, a file of this package, with `values`."""
    return Markup(_environment().get_template(template).render(values))  # noqa: S704  the template escapes its values


def html(title: str, body: Markup) -> str:
    """A whole page with this `title` and `body`, in the style of reports."""
    style = (_FOLDER / "report.css").read_text(encoding="utf-8")
    page: str = _environment().get_template("parts.html").module.page(title, style, body)  # type: ignore[attr-defined]
    return page.strip()


def _grouped(plots: Sequence[Plot]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Titles and PNGs in base64 of each group."""
    groups = groupby(plots, key=lambda plot: plot.group)
    return [(name, [(plot.title, base64.b64encode(plot.png).decode()) for plot in members]) for name, members in groups]


def large(value: float | None, scale: float = 1) -> str:
    """A number as text: from 1,000 up in whole numbers with commas, without an exponent."""
    return f"{scale * value:,.0f}" if value is not None and abs(scale * value) >= 1000 else number(value, scale)


def why_undecided(criterion: Mapping[str, Any], samples: str) -> str:
    """Why an inconclusive criterion did not fail although it seems to, and how many `samples` would decide it."""
    notes = []
    strict, interval, (low, high) = criterion["strict_interval"], criterion["interval"], criterion["tolerance"]
    least, most = interval or (None, None)
    outside = (None not in (low, most) and most < low) or (None not in (high, least) and least > high)
    if criterion["verdict"] == "inconclusive" and outside:
        notes.append("outside, but the stricter interval is not" + (f": {span(strict)}" if strict else ""))
    needed = criterion["events_needed"]
    if needed and needed > criterion["events"]:
        rounded = round(needed, -max(len(str(needed)) - 2, 0))  # no more than two digits are known
        number_of = f"about {rounded:,}" if needed < _MANY else f"more than {_MANY:,}"
        notes.append(f"{number_of} {samples} would decide")
    return "; ".join(notes)
