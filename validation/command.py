"""What the command lines of validation have in common: the options of the answer, and how it is told."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from calopipe.storage import Location
from calopipe.verdict import REPORT_FILE, VERDICT_FILE, number, span

_NOT_AS_REQUIRED = 3  # exit code: the comparison was made, and the verdict is not the one required


def add_output(command: argparse.ArgumentParser, grades: str) -> None:
    """The options that say by which of the `grades` (text for the help) is judged, and what becomes of the verdict."""
    command.add_argument(
        "--output", required=True, metavar="DIR", help="folder for the report and verdict, or a gs:// address"
    )
    command.add_argument("--require", choices=("accepted",), help="exit with 3 unless this is the verdict")
    command.add_argument(
        "--grade", default="precision", metavar="NAME|FILE", help=f"tolerances: {grades} (default: precision)"
    )


def answer_line(criterion: Mapping[str, Any], where: str = "") -> str:
    """The line that says how a criterion of a verdict was judged; `where` follows its name."""
    value = f"{number(criterion['value'])}, interval {span(criterion['interval'])}"
    return (
        f"  {criterion['verdict']:<12}  {criterion['name']}{where}: {value}, tolerance {span(criterion['tolerance'])}"
    )


def finish(document: Mapping[str, Any], output: Location, required: str | None) -> None:
    """Print where the verdict is; end the process if it is not the one that is `required`."""
    print(f"report:  {output / REPORT_FILE}\nverdict: {output / VERDICT_FILE}")
    if required and document["verdict"] != required:
        sys.exit(_NOT_AS_REQUIRED)
