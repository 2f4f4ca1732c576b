"""The verdict in Markdown, for a user interface that shows nothing else."""

from __future__ import annotations

from typing import Any

from calopipe.verdict import number, span


def summary(document: dict[str, Any], criteria: int = 10) -> str:
    """The verdict in Markdown, for a user interface that shows nothing else: the worst `criteria` in a table."""
    events = document["events"]
    pairing = "paired" if document["paired"] else "unpaired"
    samples = document.get("samples", "showers")
    counts = f"{events['candidate']:,} {samples} against {events['reference']:,} of the reference, {pairing}"
    lines = [
        f"# {document['verdict'].capitalize()}",
        "",
        f"Grade {_plain(document['grade']['name'])}; {counts}.",
        "",
        *(f"- **{_plain(failure['name'])}**: {_plain(failure['detail'])}" for failure in document["hard_failures"]),
        *_overall_figures(document),
        "",
        "| criterion | bin | value | 95 % interval | tolerance | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for row in document["criteria"][:criteria]:
        cells = (row["name"], row["bin"], number(row["value"]), span(row["interval"]), span(row["tolerance"]))
        lines.append("| " + " | ".join(map(_plain, (*cells, row["verdict"]))) + " |")
    return "\n".join(lines) + "\n"


def _overall_figures(document: dict[str, Any]) -> list[str]:
    """A line for each figure of similarity that is known, and one for the incumbent."""
    distances, classifier, neighbours = (document.get(key) or {} for key in ("distances", "classifier", "neighbours"))
    lines = []
    if (fpd := distances.get("fpd")) and fpd["value"] is not None:
        lines.append(f"- FPD x 1000: {number(fpd['value'], 1000)} (0 is perfect)")
    aucs = [f"{name} {number(score['value'])}" for name, score in classifier.items() if score["value"] is not None]
    if aucs:
        lines.append(f"- AUC of a classifier: {', '.join(aucs)} (0.5 is perfect)")
    if (coverage := neighbours.get("coverage")) and coverage["value"] is not None:
        lines.append(f"- Coverage, relative to Monte Carlo's own: {number(coverage['value'])} (1 is perfect)")
    if incumbent := document.get("incumbent"):
        difference = f"difference {number(incumbent['difference'])}, 95 % interval {span(incumbent['interval'])}"
        lines.append(f"- Against the incumbent: **{_plain(incumbent['outcome'])}**; {difference}, below zero is nearer")
    return lines


def _plain(text: str) -> str:
    """`text` with nothing that Markdown or HTML would act on."""
    escaped = "".join("\\" + character if character in r"\`*_[]|#" else character for character in text)
    return " ".join(escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())
