"""The verdict: the document that a promotion trusts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from calopipe.documents import Form
from calopipe.errors import InputError
from calopipe.storage import Location

FORM = Form("calopipe.verdict", 2)
BETTER, WORSE, ALIKE = "better", "worse", "no significant difference"  # a challenger, beside the incumbent
VERDICT_FILE, REPORT_FILE = "verdict.json", "report.html"
_NEEDED = ("verdict", "grade", "paired", "events", "criteria", "hard_failures", "cautions", "inputs", "request")


def overall(answers: Sequence[str], hard_failures: Sequence[object], cautions: Sequence[object]) -> str:
    """The verdict that the answers of the criteria ("pass", "fail", "inconclusive") add up to.

    Rejected: at least one failure. Accepted: all pass, an intersection of tests that needs no correction for their
    number, and there is no caution. Otherwise inconclusive, and so where there is no criterion at all.
    """
    if hard_failures or "fail" in answers:
        return "rejected"
    return "accepted" if answers and set(answers) == {"pass"} and not cautions else "inconclusive"


def read_verdict(path: Location) -> dict[str, Any]:
    """Read a verdict. InputError: another kind or version, incomplete, or not what its criteria add up to."""
    document = FORM.read(path)
    if missing := [key for key in _NEEDED if key not in document]:
        raise InputError(f"{path}: not a whole {FORM.kind}: {missing[0]!r} is missing; validate again")
    answers = [criterion.get("verdict") for criterion in document["criteria"]]
    if None in answers:
        raise InputError(f"{path}: not a whole {FORM.kind}: a criterion has no verdict; validate again")
    expected = overall(answers, document["hard_failures"], document["cautions"])
    if document["verdict"] != expected:
        raise InputError(f"{path}: says {document['verdict']!r} where its criteria say {expected!r}; validate again")
    return document


def summary_line(document: dict[str, Any]) -> str:
    """The verdict, how many criteria led to it, and how the candidate compares with an incumbent."""
    answers = [criterion["verdict"] for criterion in document["criteria"]]
    counts = ", ".join(f"{answers.count(answer)} {answer}" for answer in ("pass", "fail", "inconclusive"))
    beside = f"; against the incumbent: {document['incumbent']['outcome']}" if document.get("incumbent") else ""
    return f"{document['verdict']} (grade {document['grade']['name']}); criteria: {counts}{beside}"


def finite(value: float) -> float | None:
    """`value` for JSON, which has no infinity and no NaN."""
    return float(value) if math.isfinite(value) else None


def number(value: float | None, scale: float = 1) -> str:
    return "none" if value is None else f"{scale * value:.4g}"


def span(ends: Sequence[float | None] | None) -> str:
    """An interval as text; an end that is None is open."""
    if ends is None:
        return "none yet"
    low, high = ends
    if low is None or high is None:
        return f"at most {number(high)}" if low is None else f"at least {number(low)}"
    return f"{number(low)} to {number(high)}"
