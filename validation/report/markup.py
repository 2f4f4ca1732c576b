"""Pieces of HTML that the sections of the report have in common. What is filled in is escaped, unless it is Markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from calopipe.verdict import ALIKE, number


def fill(template: str, *values: object, **named: object) -> Markup:
    """`template`, which is HTML, with values in the places of `str.format`."""
    return Markup(template).format(*values, **named)  # noqa: S704  templates are constants of this package


def joined(parts: Iterable[str]) -> Markup:
    return Markup("\n").join(part for part in parts if part)


def table(rows: Sequence[Mapping[str, str]]) -> Markup:
    """A row of headings, those of the first row, and the rows. On a narrow screen each becomes a small card."""
    head = joined(fill("<th>{}</th>", name) for name in rows[0])
    body = joined(
        fill("<tr>{}</tr>", joined(fill('<td data-label="{}"><div>{}</div></td>', *cell) for cell in row.items()))
        for row in rows
    )
    return fill("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>", head, body)


def folded(summary: str, content: str, opened: bool = False) -> Markup:
    """`content` behind a line that unfolds it."""
    return fill("<details{}><summary>{}</summary>{}</details>", " open" if opened else "", summary, content)


def coloured(answer: str) -> Markup:
    """An answer, or a verdict, in its colour."""
    return fill('<span class="{}">{}</span>', "" if answer == ALIKE else answer, answer)


def floor(found: Mapping[str, Any] | None, scale: float = 1) -> str:
    """What Monte Carlo shows against itself, and whether it was scaled to the size of these sets."""
    if found is None or found["value"] is None:
        return "none"
    return number(found["value"], scale) + (" (scaled)" if found["scaled"] else "")
