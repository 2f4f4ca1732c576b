"""Random calorimeters: layers, cells and beams are drawn at random.

    python benchmarks/calorimeters/draw.py DIR [--number 8] [--seed 1]

Writes `DIR/drawn-1.toml` and so on, and their beams, `DIR/bench.toml`, for `simulate.py --calorimeters DIR`. Seven of
ten are sampling calorimeters, with silicon, scintillator or liquid argon behind an absorber; the others are of one
material. They are about 17 to 28 radiation lengths deep, in up to three sections. At a depth of six radiation lengths
they reach three to four Molière radii beyond the beam on either side. Molière radii are from the Particle Data Group's
tables; the radius of an absorber is multiplied by the depth of its layer over the depth of the absorber.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from calopipe.showers.cells import RADIATION_LENGTHS_MM

# Molière radii in mm; for active layers also the least and the largest thickness.
ABSORBERS_MM = {"Fe": 17.19, "Cu": 15.68, "Pb": 16.02, "W": 9.327, "U": 10.09}
HOMOGENEOUS_MM = {"PbWO4": 19.59, "BGO": 22.59, "CsI": 35.31, "LKr": 58.57}
ACTIVE_MM = {"Si": (0.2, 0.8), "polystyrene": (1.0, 5.0), "LAr": (2.0, 6.0)}
MOST_CELLS = 60  # along a side


def _thickness(rng: np.random.Generator) -> tuple[dict[str, float], float, float]:
    """A layer's materials in mm, its depth in radiation lengths, and the calorimeter's Molière radius in mm."""
    if rng.uniform() < 0.7:
        absorber, active = str(rng.choice(list(ABSORBERS_MM))), str(rng.choice(list(ACTIVE_MM)))
        lengths, gap = rng.uniform(0.3, 1.5), rng.uniform(*ACTIVE_MM[active])
        thick = RADIATION_LENGTHS_MM[absorber] * lengths
        return {absorber: thick, active: gap}, lengths, ABSORBERS_MM[absorber] * (thick + gap) / thick
    material = str(rng.choice(list(HOMOGENEOUS_MM)))
    lengths = np.exp(rng.uniform(*np.log((1, 6))))
    return {material: RADIATION_LENGTHS_MM[material] * lengths}, lengths, HOMOGENEOUS_MM[material]


def draw(rng: np.random.Generator) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The sections of a calorimeter in the form of its file, and its beam in the form of `bench.toml`."""
    materials, lengths, radius = _thickness(rng)
    layers = max(round(rng.uniform(17, 28) / lengths), 2)
    sections = min(int(rng.integers(1, 4)), layers)
    spread = rng.uniform(0, 2 * radius)
    side = spread + 2 * radius * rng.uniform(3, 4)
    counts = np.diff(np.concatenate([[0], np.sort(rng.choice(np.arange(1, layers), sections - 1, False)), [layers]]))
    described = []
    for count in counts.tolist():
        cells = []
        for _ in "xy":
            cell = radius * np.exp(rng.uniform(*np.log((0.2, 2))))
            cells.append(int(np.clip(round(side / cell), 4, MOST_CELLS)))
        described.append(
            {
                "count": count,
                "materials_mm": {name: round(mm, 2) for name, mm in materials.items()},
                "cells": cells,
                "cell_mm": [round(side / each, 2) for each in cells],
            }
        )
    low = float(np.exp(rng.uniform(*np.log((0.5, 10)))))
    high = float(min(low * np.exp(rng.uniform(*np.log((5, 50)))), 50))
    angle, turn = rng.uniform(0, 30), rng.uniform(0, 20)
    if rng.integers(0, 2):
        turn = 0.0
    beam = {
        "energy_gev": [round(low, 2), round(high, 2)],
        "theta_deg": [round(90 - angle, 1), round(90 + angle, 1)],
        "phi_deg": [0.0 - round(turn, 1), round(turn, 1)],
        "spread_mm": [round(spread, 1)] * 2,
        "depth_mm": round(6 / lengths * sum(materials.values()), 1),  # six radiation lengths: about mid-shower
        "particles": [[11], [22], [11, 22]][rng.integers(3)],
    }
    return described, beam


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    return str(value)


def _lines(keys: dict[str, Any]) -> str:
    return "".join(f"{key} = {_toml(value)}\n" for key, value in keys.items())


def write(folder: Path, number: int, seed: int) -> None:
    """Write `number` calorimeters and their beams to `folder`. Calorimeter k of a seed does not depend on `number`."""
    folder.mkdir(parents=True, exist_ok=True)
    beams = []
    for k in range(1, number + 1):
        sections, beam = draw(np.random.default_rng((seed, k)))
        layers = "".join(f"\n[[layers]]\n{_lines(section)}" for section in sections)
        (folder / f"drawn-{k}.toml").write_text(f"file_unit_gev = 0.001\n{layers}")
        beams.append(f"[drawn-{k}]\n{_lines(beam)}")
    (folder / "bench.toml").write_text("\n".join(beams))


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("output", type=Path, metavar="DIR")
    command.add_argument("--number", type=int, default=8)
    command.add_argument("--seed", type=int, default=1)
    options = command.parse_args()
    write(options.output, options.number, options.seed)


if __name__ == "__main__":
    main()
