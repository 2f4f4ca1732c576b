"""Published values of CaloChallenge, from a dated file, and the conditions for a comparison with them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from calopipe.documents import finite
from calopipe.showers.cells import Geometry
from calopipe.showers.detectors import detectors

_FILE = Path(__file__).with_name("published.toml")
_COLUMNS = ("model", "fpd_x_1000", "kpd_x_1000", "auc_low", "auc_high", "processor_ms", "accelerator_ms")

_WHEN = (
    "Published values hold for the challenge's own files, {showers:,} showers of Geant4 and as many generated. They "
    "may be set beside the figures here only where Monte Carlo is that file and both sets have that size: showers of "
    "another detector or other energies on the same grid are another task. With fewer showers separation powers and "
    "FPD are larger, also for two samples of one truth, and a classifier learns less, so that its AUC is smaller. "
    "Times are of the survey's devices, which its files do not name."
)


def published(geometry: Geometry, showers: int) -> dict[str, Any]:
    """The published values for this calorimeter, if there are any, and the reasons `against` a comparison with them.

    `showers` is the size of the smaller set. Times are for batches of 1, 100 and 10,000, None where unknown.
    """
    document = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    of_these_cells = (entry for entry in document["dataset"] if _cells(detectors()[entry["name"]]) == _cells(geometry))
    dataset = next(of_these_cells, None)
    against = [] if dataset else ["the cells are not those of a dataset of the challenge"]
    if dataset and showers < dataset["showers"]:
        against.append(f"the smaller set has {showers:,} showers, not {dataset['showers']:,}")
    return {
        "date": document["date"],
        "dataset": dataset["name"] if dataset else None,
        "source": document["source"],
        "rows": _rows(dataset),
        "when": _WHEN.format(showers=dataset["showers"]) if dataset else None,
        "against": against,
    }


def _cells(geometry: Geometry) -> list[tuple[object, ...]]:
    return [(layer.cells, layer.r_edges_mm) for layer in geometry.layers]


def _rows(dataset: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [
        {
            name: [finite(number) for number in value] if isinstance(value, list) else value
            for name, value in zip(_COLUMNS, row, strict=True)
        }
        for row in (dataset["rows"] if dataset else ())
    ]
