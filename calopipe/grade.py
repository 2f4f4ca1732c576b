"""Grades: how far from Monte Carlo a model may be. Validation judges by one, a registry keeps to one."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calopipe.errors import InputError

TOLERANCES = (
    "response", "resolution", "layer_energy", "layer_energy_tail", "depth_x0", "r90", "second_moment", "ring",
    "ring_tail", "hits", "angle_deg", "separation", "correlation", "coverage",
)  # fmt: skip
_GRADES = Path(__file__).parent / "grades"


@dataclass(frozen=True)
class Grade:
    """How far from Monte Carlo a candidate may be: an absolute tolerance for each of `TOLERANCES`.

    An infinite one leaves its criteria out.
    """

    name: str
    tolerance: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "tolerance": {key: _finite(value) for key, value in self.tolerance.items()}}


def built_in_grades() -> list[str]:
    return sorted(path.stem for path in _GRADES.glob("*.toml"))


def load_grade(name_or_path: str) -> Grade:
    """The grade of that name, or the one in the TOML file at that path."""
    built_in = name_or_path in built_in_grades()
    path = _GRADES / f"{name_or_path}.toml" if built_in else Path(name_or_path)
    try:
        document = tomllib.loads(path.read_text())
    except FileNotFoundError:
        known = ", ".join(built_in_grades())
        raise InputError(f"--grade {name_or_path}: neither a grade ({known}) nor a file; check the name") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML ({error}); copy a built-in grade and change its numbers") from None
    if unknown := sorted(set(document) - {"tolerance"}):
        raise InputError(f"{path}: unknown key {unknown[0]!r}; a grade holds the table [tolerance] and nothing else")
    table = document.get("tolerance")
    if not isinstance(table, dict):
        raise InputError(f"{path}: the table [tolerance] is missing; copy a built-in grade and change its numbers")
    if unknown := sorted(set(table) - set(TOLERANCES)):
        raise InputError(f"{path}: unknown key tolerance.{unknown[0]}; known: {', '.join(TOLERANCES)}")
    for key in TOLERANCES:
        value = table.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            found = "it is missing" if value is None else f"found {value!r}"
            raise InputError(f"{path}: tolerance.{key} must be a positive number or inf, {found}")
    return Grade(path.stem if built_in else path.name, {key: float(table[key]) for key in TOLERANCES})


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
