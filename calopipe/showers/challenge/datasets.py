"""The calorimeters of CaloChallenge, by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from calopipe.showers.cells import RADIATION_LENGTHS_MM, Geometry, Layer

_MEV = 1e-3  # of the files, in GeV


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
    listed = []
    for name, (angles, text) in layers.items():
        edges = tuple(map(float, text.split()))
        pitch, x0 = sizes[name]
        listed.append(Layer(pitch, x0, (angles, len(edges) - 1), r_edges_mm=edges))
    return Geometry.of_layers(listed, _MEV)


@cache
def known() -> Mapping[str, Geometry]:
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
