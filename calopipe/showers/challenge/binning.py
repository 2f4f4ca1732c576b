"""Binning files (XML) of CaloChallenge."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace

from calopipe.errors import InputError
from calopipe.showers.cells import Geometry


def read_binning(content: bytes, known: Mapping[str, Geometry]) -> Geometry:
    """The calorimeter of particles `Bin`, layers `Layer` with `r_edges` in mm and `n_bin_alpha`.

    It states no depths. They are those of the known calorimeter with the same rings, else of dataset 2's; give others
    as layer_pitch_mm=... and x0_per_layer=....
    """
    particles = ET.fromstring(content).findall("Bin")  # noqa: S314  the user's own file, and expat limits entities
    if len(particles) != 1:
        names = ", ".join(each.get("name", f"pid {each.get('pid', '?')}") for each in particles) or "none"
        raise InputError(
            f"describes {len(particles)} particles ({names}), expected one <Bin>; is it the binning of one particle?"
        )
    alike = known["calochallenge-2"]
    layers = [
        replace(alike.layers[0], cells=(angles, len(edges) - 1), r_edges_mm=edges)
        for angles, edges in map(_rings_of, particles[0].findall("Layer"))
        if len(edges) > 1  # others hold nothing
    ]
    found = Geometry.of_layers(layers, alike.file_unit_gev)
    rings = [(each.cells, each.r_edges_mm) for each in layers]
    twins = (each for each in known.values() if [(one.cells, one.r_edges_mm) for one in each.layers] == rings)
    return next(twins, found)


def _rings_of(element: ET.Element) -> tuple[int, tuple[float, ...]]:
    """Number of angles, and radii in mm, of a layer."""
    what = f"layer {element.get('id', '?')}"
    texts = {name: element.get(name) for name in ("r_edges", "n_bin_alpha")}
    if missing := [name for name, text in texts.items() if text is None]:
        raise InputError(f"{what} has no {missing[0]}; is it a binning file?")
    try:
        edges = tuple(float(text) for text in (texts["r_edges"] or "").split(","))
        return int(texts["n_bin_alpha"] or ""), edges
    except ValueError as error:
        raise InputError(f"{what}: r_edges or n_bin_alpha is not in numbers ({error})") from None
