"""Calorimeters by name, from a small TOML file, or from a binning file (XML) of CaloChallenge.

`--geometry` takes any of these, followed by values to replace: `showers.toml,file_unit_gev=0.001`.
"""

from __future__ import annotations

import json
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.errors import InputError
from calopipe.showers.cells import Geometry, Layer

_MEV = 1e-3  # of CaloChallenge's files, in GeV
_VALUES = ("cell_mm", "layer_pitch_mm", "x0_per_layer", "file_unit_gev")

# Radiation lengths in mm: Particle Data Group, Review of Particle Physics, "Atomic and nuclear properties".
RADIATION_LENGTHS_MM = {
    "Al": 88.97, "Cu": 14.35, "Fe": 17.57, "LAr": 140.0, "Pb": 5.612, "PbWO4": 8.903, "Si": 93.70, "Sn": 12.06,
    "U": 3.166, "W": 3.504, "polystyrene": 413.1,
}  # fmt: skip


def _of_silicon_and_tungsten(angles: int, rings: int) -> Geometry:
    """45 layers of 1.4 mm W and 0.3 mm Si, rings to 41.85 mm: Par04 of Geant4, and datasets 2 and 3."""
    x0 = 1.4 / RADIATION_LENGTHS_MM["W"] + 0.3 / RADIATION_LENGTHS_MM["Si"]
    edges = tuple(round(41.85 * k / rings, 6) for k in range(rings + 1))
    return Geometry.of_layers((Layer(1.7, x0, (angles, rings), r_edges_mm=edges),) * 45, _MEV)


def _of_atlas(layers: Mapping[str, tuple[int, str]]) -> Geometry:
    """Layers (samplings of ATLAS's barrel at eta 0.2) by name, each with its number of angles and its radii in mm.

    Depths and radiation lengths are rough: they matter only for the depth of a shower in X0, which holds for photons.
    """
    sizes = {  # mm, X0: ATLAS collaboration, JINST 3 (2008) S08003, sections 5.2 and 5.3
        "presampler": (11, 0.1), "EM1": (90, 4.3), "EM2": (340, 16.0), "EM3": (40, 2.0),
        "tile1": (300, 13.0), "tile2": (840, 36.0), "tile3": (370, 16.0),
    }  # fmt: skip
    found = []
    for name, (angles, text) in layers.items():
        edges = tuple(map(float, text.split()))
        pitch, x0 = sizes[name]
        found.append(Layer(pitch, x0, (angles, len(edges) - 1), r_edges_mm=edges))
    return Geometry.of_layers(found, _MEV)


def known() -> dict[str, Geometry]:
    """The calorimeters of CaloChallenge by name; their numbers of voxels tell them apart.

    Edges as in the binning files of its public repository (CaloChallenge/homepage, folder `code`).
    """
    return {
        "calochallenge-1-photons": _of_atlas(
            {
                "presampler": (1, "0 5 10 30 50 100 200 400 600"),
                "EM1": (10, "0 2 4 6 8 10 12 15 20 30 40 50 70 90 120 150 200"),
                "EM2": (10, "0 2 5 10 15 20 25 30 40 50 60 80 100 130 160 200 250 300 350 400"),
                "EM3": (1, "0 50 100 200 400 600"),
                "tile1": (1, "0 100 200 400 1000 2000"),
            }
        ),
        "calochallenge-1-pions": _of_atlas(
            {
                "presampler": (1, "0 5 10 30 50 100 200 400 600"),
                "EM1": (10, "0 1 4 7 10 15 30 50 90 150 200"),
                "EM2": (10, "0 5 10 20 30 50 80 130 200 300 400"),
                "EM3": (1, "0 50 100 200 400 600"),
                "tile1": (10, "0 10 20 30 50 80 100 130 160 200 250 300 350 400 1000 2000"),
                "tile2": (10, "0 10 20 30 50 80 100 130 160 200 250 300 350 400 600 1000 2000"),
                "tile3": (1, "0 50 100 150 200 250 300 400 600 1000 2000"),
            }
        ),
        "calochallenge-2": _of_silicon_and_tungsten(16, 9),
        "calochallenge-3": _of_silicon_and_tungsten(50, 18),
    }


def voxels(geometry: Geometry) -> int:
    """Number of cells that exist."""
    return sum(layer.cells[0] * layer.cells[1] for layer in geometry.layers) or geometry.cells


def settled(text: str) -> str:
    """The value of `--geometry` with a file or a name replaced by what it describes, as JSON; else as it is.

    So the settings of a dataset name the calorimeter itself, and only the command that is given a file reads it.
    """
    first, _, rest = text.partition(",")
    if not text or text.startswith("{") or "=" in first:
        return text
    geometry = _named(first.strip())
    document = json.dumps(geometry.to_json(), separators=(",", ":"))
    return document + ("," + rest if rest else "")


def split_values(text: str) -> tuple[Geometry | None, dict[str, float]]:
    """The calorimeter that `--geometry` names, if it does, and the values that replace others. Raises InputError."""
    geometry, rest = None, settled(text)
    if rest.startswith("{"):
        document, end = json.JSONDecoder().raw_decode(rest)
        geometry, rest = Geometry.from_json(document), rest[end:]
    values: dict[str, float] = {}
    for item in filter(None, rest.split(",")):
        name, _, value = item.partition("=")
        try:
            values[name.strip()] = float(value)
        except ValueError:
            raise InputError(f"--geometry: {item!r} is not NAME=NUMBER") from None
    if unknown := set(values) - set(_VALUES):
        raise InputError(f"--geometry: unknown {', '.join(sorted(unknown))}; known: {', '.join(_VALUES)}")
    return geometry, values


def with_values(geometry: Geometry, values: Mapping[str, float]) -> Geometry:
    """`geometry` with values in place of its own. Where its layers are listed, a pitch is that of each layer."""
    if not geometry.layers:
        return replace(geometry, **values)  # type: ignore[arg-type]
    if "cell_mm" in values:
        raise InputError("--geometry: cell_mm is not for a calorimeter whose layers are listed; change the list")
    layers = [
        replace(layer, pitch_mm=values.get("layer_pitch_mm", layer.pitch_mm), x0=values.get("x0_per_layer", layer.x0))
        for layer in geometry.layers
    ]
    return Geometry.of_layers(layers, values.get("file_unit_gev", geometry.file_unit_gev))


def _named(name: str) -> Geometry:
    if name in known():
        return known()[name]
    reader = {".toml": _from_toml, ".xml": _from_xml}.get(Path(name).suffix)
    if reader is None:
        raise InputError(
            f"--geometry: {name!r} is neither NAME=NUMBER, nor a file .toml or .xml, nor one of {', '.join(known())}"
        )
    try:
        with storage.location(name).open("rb") as file:
            content = file.read()
    except FileNotFoundError:
        raise InputError(f"--geometry {name}: no such file; check the path") from None
    except (OSError, InputError) as error:
        raise InputError(f"--geometry {name}: cannot be read ({error})") from None
    try:
        return reader(content)
    except InputError as error:
        raise InputError(f"--geometry {name}: {str(error).removeprefix('geometry: ')}") from None
    except (ValueError, ET.ParseError) as error:  # also what tomllib raises
        raise InputError(f"--geometry {name}: not a whole {Path(name).suffix[1:].upper()} file ({error})") from None


def _from_toml(content: bytes) -> Geometry:
    """A file with `file_unit_gev` and a list of `layers`; docs/formats.md describes it."""
    document = tomllib.loads(content.decode())
    _require_known(document, ("file_unit_gev", "layers"), "the file")
    unit, listed = document.get("file_unit_gev", 1.0), document.get("layers")
    if not isinstance(listed, list) or not listed or not all(isinstance(each, dict) for each in listed):
        raise InputError("expected [[layers]], a table for each kind of layer")
    layers: list[Layer] = []
    for number, table in enumerate(listed):
        try:
            layers += _layers_of_toml(table)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise InputError(f"[[layers]] number {number}: {reason}") from None
    return Geometry.of_layers(layers, float(unit))


def _layers_of_toml(table: Mapping[str, Any]) -> list[Layer]:
    names = ("count", "materials_mm", "pitch_mm", "x0", "cells", "cell_mm", "r_edges_mm", "angles")
    _require_known(table, names, "a layer")
    materials: Mapping[str, float] = table.get("materials_mm", {})
    if strange := set(materials) - set(RADIATION_LENGTHS_MM):
        raise ValueError(
            f"the radiation length of {strange.pop()} is not known ({', '.join(RADIATION_LENGTHS_MM)} are); give "
            "pitch_mm and x0"
        )
    x0 = table["x0"] if not materials else sum(mm / RADIATION_LENGTHS_MM[name] for name, mm in materials.items())
    pitch = table["pitch_mm"] if not materials else sum(materials.values())
    if "r_edges_mm" in table:
        edges = tuple(map(float, table["r_edges_mm"]))
        cells = (int(table["angles"]), len(edges) - 1)
        layer = Layer(float(pitch), float(x0), cells, r_edges_mm=edges)
    else:
        x, y = table["cells"]
        size = table["cell_mm"] if isinstance(table["cell_mm"], list) else [table["cell_mm"]] * 2
        layer = Layer(float(pitch), float(x0), (int(x), int(y)), size_mm=(float(size[0]), float(size[1])))
    return [layer] * int(table.get("count", 1))


def _require_known(table: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    if unknown := sorted(set(table) - set(names)):
        raise InputError(f"{what} has {', '.join(unknown)}; known: {', '.join(names)}")


def _from_xml(content: bytes) -> Geometry:
    """A binning file of CaloChallenge: particles `Bin`, layers `Layer` with `r_edges` in mm and `n_bin_alpha`.

    It states no depths. They are those of the known calorimeter with the same rings, else of dataset 2's; give others
    as layer_pitch_mm=... and x0_per_layer=....
    """
    particles = ET.fromstring(content).findall("Bin")
    if len(particles) != 1:
        names = ", ".join(each.get("name", "?") for each in particles) or "none"
        raise InputError(f"describes {len(particles)} particles ({names}), expected one <Bin>")
    layers = []
    for element in particles[0].findall("Layer"):
        edges = [float(text) for text in _attribute(element, "r_edges").split(",")]
        if len(edges) > 1:  # others hold nothing
            angles = int(_attribute(element, "n_bin_alpha"))
            layers.append(Layer(1.7, 0.4027, (angles, len(edges) - 1), r_edges_mm=tuple(edges)))
    found = Geometry.of_layers(layers, _MEV)
    for geometry in known().values():
        if [(each.cells, each.r_edges_mm) for each in geometry.layers] == [
            (each.cells, each.r_edges_mm) for each in found.layers
        ]:
            return geometry
    return found


def _attribute(element: ET.Element, name: str) -> str:
    text = element.get(name)
    if text is None:
        raise InputError(f"layer {element.get('id', '?')} has no {name}; is it a binning file?")
    return text
