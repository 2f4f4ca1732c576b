"""Pieces of HTML that the sections of the report have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from calopipe.verdict import ALIKE, number


def floor(found: Mapping[str, Any] | None, scale: float = 1) -> str:
    """What Monte Carlo shows against itself, and whether it was scaled to the size of these sets."""
    if found is None or found["value"] is None:
        return "none"
    return number(found["value"], scale) + (" (scaled)" if found["scaled"] else "")


def coloured(answer: str) -> str:
    """An answer, or a verdict, in its colour."""
    kind = "" if answer == ALIKE else f' class="{escape(answer)}"'
    return f"<span{kind}>{escape(answer)}</span>"


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """A table of cells that are HTML already. On a narrow screen each row becomes a small card."""
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>"
        + "".join(f'<td data-label="{escape(name)}"><div>{cell}</div></td>' for name, cell in row.items())
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
