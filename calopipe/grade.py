"""Grades: how far from Monte Carlo a model may be. A validation judges by one grade; a registry always uses the same.

Grades of showers lie in `grades/`, grades of another field in a subfolder with the name of the field.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calopipe.documents import finite
from calopipe.errors import InputError
from calopipe.storage import location

_GRADES = Path(__file__).parent / "grades"


class _Tolerances(dict[str, float]):
    """Tolerances by key. InputError for an unknown key: a criterion was added without its tolerance."""

    def __missing__(self, key: str) -> float:
        raise InputError(f"{_GRADES}: no grade has tolerance.{key}, which a criterion needs; add it to each")


@dataclass(frozen=True)
class Grade:
    """How far from Monte Carlo a candidate may be: an absolute tolerance for each of `tolerances`.

    An infinite tolerance leaves its criteria out.
    """

    name: str
    tolerance: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "tolerance": {key: finite(value) for key, value in self.tolerance.items()}}


def built_in_grades(field: str = "") -> list[str]:
    return sorted(path.stem for path in (_GRADES / field).glob("*.toml"))


def tolerances(field: str = "") -> list[str]:
    """The keys of the built-in grades, which every grade must have. A key is for one or more criteria."""
    return list(tomllib.loads((_GRADES / field / "precision.toml").read_text())["tolerance"])


def load_grade(name_or_path: str, field: str = "") -> Grade:
    """The built-in grade of this name, or the grade in the TOML file at this path."""
    built_in = name_or_path in built_in_grades(field)
    path = _GRADES / field / f"{name_or_path}.toml" if built_in else location(name_or_path)
    try:
        document = tomllib.loads(path.read_text())
    except FileNotFoundError:
        grades = ", ".join(built_in_grades(field))
        raise InputError(f"--grade {name_or_path}: neither a grade ({grades}) nor a file; check the name") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML ({error}); copy a built-in grade and change its numbers") from None
    table = document.get("tolerance")
    if set(document) != {"tolerance"} or not isinstance(table, dict):
        raise InputError(f"{path}: holds {', '.join(document) or 'nothing'}, expected the table [tolerance] alone")
    keys = tolerances(field)
    if unknown := sorted(set(table) - set(keys)):
        raise InputError(f"{path}: unknown key tolerance.{unknown[0]}; known: {', '.join(keys)}")
    for key in keys:
        value = table.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            state = "it is missing" if value is None else f"found {value!r}"
            raise InputError(f"{path}: tolerance.{key} must be a positive number or inf, {state}")
    return Grade(name_or_path if built_in else path.name, _Tolerances({key: float(table[key]) for key in keys}))
