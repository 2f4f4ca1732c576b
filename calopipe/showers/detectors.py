"""Calorimeters by name, or from a small TOML file.

`--geometry` takes either, followed by values to replace: `showers.toml,file_unit_gev=0.001`.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.tolerance import BadFileError
from calopipe.showers.cells import RADIATION_LENGTHS_MM, REFERENCE_GEOMETRY, Geometry, Layer
from calopipe.showers.layouts import GEOMETRY

_FILE = ".toml"
_DETECTORS = Path(__file__).with_name("calochallenge")  # files of calorimeters that have names
_MOST_LAYERS = 10_000  # the largest number of alike layers
_THINNER = 1e-3  # tolerance for rounding, in pitches: a layer's materials fill its pitch
_VALUES = ("cell_mm", "layer_pitch_mm", "x0_per_layer", "file_unit_gev")


@cache
def detectors() -> Mapping[str, Geometry]:
    """The calorimeters of CaloChallenge by name; their numbers of voxels tell them apart."""
    return {path.stem: _from_toml(path.read_bytes()) for path in sorted(_DETECTORS.glob(f"*{_FILE}"))}


def settled(text: str) -> str:
    """The value of `--geometry`; a file or a name in it is replaced by the calorimeter that it stands for, as JSON.

    So the settings of a dataset state the calorimeter itself, and only the command that is given a file reads the file.
    Raises InputError.
    """
    first, _, rest = text.partition(",")
    name = first.strip()
    if not name or name.startswith("{") or (re.match(r"\w+\s*=", name) and Path(name).suffix.lower() != _FILE):
        return text
    document = json.dumps(_named(name).to_json(), separators=(",", ":"))
    return f"{document},{rest}" if rest else document


def split_values(text: str) -> tuple[Geometry | None, dict[str, float]]:
    """The calorimeter that `--geometry` names, or None, and the values that replace others. Raises InputError."""
    geometry, rest = None, settled(text).strip()
    if rest.startswith("{"):
        geometry, rest = _from_json(rest)
    values: dict[str, float] = {}
    for name, _, value in (item.partition("=") for item in filter(str.strip, rest.split(","))):
        try:
            values[name.strip()] = float(value)
        except ValueError:
            raise InputError(f"--geometry: {f'{name}={value}' if value else name!r} is not NAME=NUMBER") from None
    if unknown := set(values) - set(_VALUES):
        raise InputError(f"--geometry: unknown {', '.join(sorted(unknown))}; known: {', '.join(_VALUES)}")
    return geometry, values


def _from_json(text: str) -> tuple[Geometry, str]:
    """The calorimeter that a JSON document describes, and what follows it."""
    try:
        document, end = json.JSONDecoder().raw_decode(text)
        return Geometry.from_json(document), text[end:]
    except InputError as error:
        raise InputError(f"--geometry: {str(error).removeprefix('geometry: ')}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"--geometry: not the whole JSON of a calorimeter ({error})") from None


def with_values(geometry: Geometry, values: Mapping[str, float]) -> Geometry:
    """`geometry` with these values in place of its own. If its layers are listed, a pitch is set for every layer."""
    if not values or not geometry.layers:
        return replace(geometry, **values)  # type: ignore[arg-type]
    if "cell_mm" in values:
        raise InputError("--geometry: cell_mm is not for a calorimeter whose layers are listed; change the list")
    layers = [
        replace(layer, pitch_mm=values.get("layer_pitch_mm", layer.pitch_mm), x0=values.get("x0_per_layer", layer.x0))
        for layer in geometry.layers
    ]
    return Geometry.of_layers(layers, values.get("file_unit_gev", geometry.file_unit_gev))


def _named(name: str) -> Geometry:
    """The calorimeter of this name or file."""
    if name in detectors():
        return detectors()[name]
    if Path(name).suffix.lower() != _FILE:
        raise InputError(
            f"--geometry: {name!r} is neither NAME=NUMBER, nor a file .toml, nor one of {', '.join(detectors())}"
        )
    try:
        with storage.location(name).open("rb") as file:
            content = file.read()
    except FileNotFoundError:
        raise InputError(f"--geometry {name}: no such file; check the path") from None
    except (OSError, InputError) as error:
        raise InputError(f"--geometry {name}: cannot be read ({error})") from None
    try:
        return _from_toml(content)
    except InputError as error:
        raise InputError(f"--geometry {name}: {str(error).removeprefix('geometry: ')}") from None
    except ValueError as error:  # tomllib raises it, too
        raise InputError(f"--geometry {name}: not a whole TOML file ({error})") from None


def _from_toml(content: bytes) -> Geometry:
    """A file with `file_unit_gev` and a list of `layers`; docs/detectors.md describes it."""
    document = tomllib.loads(content.decode("utf-8-sig"))
    _require_known(document, ("file_unit_gev", "layers"), "the file")
    unit = _number(document, "file_unit_gev")
    listed = document.get("layers")
    if not isinstance(listed, list) or not all(isinstance(layer, dict) for layer in listed):
        raise InputError("expected [[layers]], a table for each kind of layer")
    layers: list[Layer] = []
    for number, table in enumerate(listed, 1):
        try:
            layers += _layers_of_toml(table)
        except InputError as error:
            raise InputError(f"[[layers]] number {number}: {str(error).removeprefix('geometry: ')}") from None
    return Geometry.of_layers(layers, unit)


def _layers_of_toml(table: Mapping[str, Any]) -> list[Layer]:
    names = ("count", "materials_mm", "pitch_mm", "x0", "cells", "cell_mm", "r_edges_mm", "angles")
    _require_known(table, names, "a layer")
    materials = _value(table, "materials_mm", dict, "a table such as { W = 1.4, Si = 0.3 }", {})
    thick = {name: _number(materials, name) for name in materials}
    if strange := sorted(set(thick) - set(RADIATION_LENGTHS_MM)):
        raise InputError(
            f"the radiation length of {strange[0]} is not known ({', '.join(RADIATION_LENGTHS_MM)} are); give "
            "pitch_mm and x0"
        )
    if thin := [name for name, mm in thick.items() if not 0 < mm < float("inf")]:
        raise InputError(f"materials_mm: {thin[0]} = {thick[thin[0]]:g}, expected a thickness above 0")
    # a value that is given counts more than a sum over materials: layers have gaps, and materials that are not listed
    made = {"pitch_mm": sum(thick.values()), "x0": sum(mm / RADIATION_LENGTHS_MM[name] for name, mm in thick.items())}
    pitch, x0 = (_number(made | dict(table) if thick else table, name) for name in made)
    if thick and pitch < made["pitch_mm"] * (1 - _THINNER):
        raise InputError(f"pitch_mm is {pitch:g}, but its materials are {made['pitch_mm']:g} mm thick together")
    if "r_edges_mm" in table or "angles" in table:
        _require_known(table, [name for name in names if not name.startswith("cell")], "a layer of rings")
        edges = _numbers(table, "r_edges_mm")
        layer = Layer(pitch, x0, (_value(table, "angles", int, "a count"), len(edges) - 1), r_edges_mm=edges)
    else:
        cells = _value(table, "cells", list, "two counts, along x and y; of rings give r_edges_mm, angles")
        square = not isinstance(table.get("cell_mm"), list)
        size = (_number(table, "cell_mm"),) * 2 if square else _numbers(table, "cell_mm")
        layer = Layer(pitch, x0, tuple(cells), size_mm=size)  # type: ignore[arg-type]  # it checks how many there are
    count = _value(table, "count", int, "a count", 1)
    if not 1 <= count <= _MOST_LAYERS:
        raise InputError(f"count is {count}, expected 1 to {_MOST_LAYERS}")
    return [layer] * count


def _value(table: Mapping[str, Any], name: str, kind: Any, expected: str, default: Any = None) -> Any:
    """The value of this kind in `table`. InputError: it is missing and has no default, or is of another kind."""
    value = table.get(name, default)
    if isinstance(value, bool) or not isinstance(value, kind):
        raise InputError(f"{name} is missing" if value is None else f"{name} is {value!r}, expected {expected}")
    return value


def _number(table: Mapping[str, Any], name: str) -> float:
    return float(_value(table, name, (int, float), "a number"))


def _numbers(table: Mapping[str, Any], name: str) -> tuple[float, ...]:
    return tuple(_number({name: value}, name) for value in _value(table, name, list, "a list of numbers"))


def _require_known(table: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    if unknown := sorted(set(table) - set(names)):
        raise InputError(f"{what} has {', '.join(unknown)}; known: {', '.join(names)}")


def geometry_of(
    attributes: Mapping[str, Any], shape: Sequence[int], text: str, beside: Geometry | None
) -> tuple[Geometry, tuple[str, ...], str]:
    """The geometry, the names of its values that are assumed, and whose values these are.

    Sources, the first counts most: `text`; the file's `attributes`; the geometry `beside`, or the reference's, or the
    known calorimeter with as many voxels. BadFileError, which does not name the file.
    """
    whole, values = split_values(text)
    names = () if whole else ("file_unit_gev",) if GEOMETRY in attributes else _VALUES
    stated = {name: _stated(name, attributes[name]) for name in names if name in attributes and name not in values}
    try:
        described = Geometry.from_json(json.loads(attributes[GEOMETRY])) if GEOMETRY in attributes else None
    except (AttributeError, TypeError, ValueError, KeyError, InputError) as error:
        raise BadFileError(f"its attribute {GEOMETRY} is not the JSON of a calorimeter ({error}); correct it") from None
    cells = tuple(map(int, shape))
    if whole is None and described is None:
        missing = tuple(name for name in _VALUES if name not in {*stated, *values})
        if beside is not None and missing and cells in {beside.shape, (beside.voxels,)}:
            return with_values(beside, stated | values), missing if len(cells) == 3 else (), "model's"
        if len(cells) == 3:
            return with_values(replace(REFERENCE_GEOMETRY, shape=cells), stated | values), missing, "reference's"
    geometry = whole or described or _detector_of(cells[0])
    unit = {name: number for name, number in stated.items() if name == "file_unit_gev"}
    expected = (geometry.voxels,) if len(cells) == 1 else geometry.shape
    if cells != expected:
        raise BadFileError(
            f"its showers have {cells} cells, the geometry has {expected}; give the --geometry of this file"
        )
    return with_values(geometry, unit | values), (), ""


def _stated(name: str, value: Any) -> float:
    """The number that the attribute `name` states, which may be an array of one number, or text. BadFileError."""
    stated = np.asarray(value)
    try:
        number = float(stated.item())
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        text = f"{stated.tolist()!r:.60}"
        raise BadFileError(
            f"its attribute {name} is {text}, expected a number above 0; correct it, or give --geometry {name}=NUMBER"
        )
    return number


def _detector_of(count: int) -> Geometry:
    """The known calorimeter with so many voxels."""
    for geometry in detectors().values():
        if geometry.voxels == count:
            return geometry
    sizes = ", ".join(f"{detector.voxels} ({name})" for name, detector in detectors().items())
    raise BadFileError(f"its showers have {count} voxels, known are {sizes}; give --geometry FILE.toml")
