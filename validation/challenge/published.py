"""Published values of CaloChallenge, from a dated file, and when they may be compared."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from calopipe.showers.cells import Geometry
from calopipe.showers.detectors import known

_FILE = Path(__file__).with_name("published.toml")
_COLUMNS = ("model", "fpd_x_1000", "auc_low", "auc_high")

_WHEN = (
    "Published values hold for the challenge's own files, {showers:,} showers of Geant4 and as many generated. They "
    "may be set beside the figures here only where Monte Carlo is that file and both sets have that size: showers of "
    "another detector or other energies on the same grid are another task, and with fewer showers the separation "
    "powers, FPD and the AUC of a network are larger or less certain, also for two samples of one truth."
)


def dataset_of(geometry: Geometry) -> str | None:
    """The dataset of the challenge whose cells these are, if they are one's."""
    cells = [(layer.cells, layer.r_edges_mm) for layer in geometry.layers]
    return next(
        (name for name, each in known().items() if [(layer.cells, layer.r_edges_mm) for layer in each.layers] == cells),
        None,
    )


def published(geometry: Geometry, showers: int) -> dict[str, Any]:
    """The published values of this grid, none where there are none; with what stands against a comparison.

    `showers` is the size of the smaller set.
    """
    document = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    name = dataset_of(geometry)
    found = next((each for each in document["dataset"] if each["name"] == name), None)
    needed = found["showers"] if found else 100_000
    against = []
    if name is None:
        against.append("the cells are not those of a dataset of the challenge")
    elif found is None:
        against.append(f"no published values of {name} are in the file")
    if showers < needed:
        against.append(f"the smaller set has {showers:,} showers, not {needed:,}")
    source = next(each for each in document["source"] if found is None or each["name"] == found["source"])
    return {
        "date": document["date"],
        "dataset": name,
        "source": f"{source['name']}, {source['where']}",
        "rows": [dict(zip(_COLUMNS, row, strict=True)) for row in found["rows"]] if found else [],
        "when": _WHEN.format(showers=needed),
        "against": against,
    }
