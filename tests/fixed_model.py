"""Showers of a model with fixed weights, and a hash of the tables of quality that were measured with the same code.

    python tests/fixed_model.py

writes both into `golden/fixed_model.json`. It refuses to do so if the showers have changed but the tables have not.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from likelihoods import drawn, new_model, noise_of, uneven

GOLDEN = Path(__file__).parent / "golden/fixed_model.json"
_TABLES = Path(__file__).parent.parent / "docs/model.md"
_SHOWERS = 16
_SPREAD = 0.2  # added to weights: with initial weights all cells are alike, whatever the networks are told of them


def showers() -> dict[str, list[Any]]:
    """Number of hits, energy, place and energy of the hottest cell of each of some showers, by layer."""
    energy_gev = np.geomspace(20, 200, _SHOWERS, dtype=np.float32)
    theta_rad = np.linspace(1.2, 1.9, _SHOWERS, dtype=np.float32)
    model = new_model()
    uneven((weight for network in model.networks.values() for weight in network.trainable_weights), _SPREAD, seed=4)
    cells = drawn(model, energy_gev, theta_rad, noise_of(model, _SHOWERS))
    return {
        "hits": (cells > 0).sum((1, 2)).tolist(),
        "energy": cells.sum((1, 2)).round(4).tolist(),
        "hottest": cells.reshape(_SHOWERS, -1, cells.shape[3]).argmax(1).tolist(),
        "largest": cells.max((1, 2)).round(4).tolist(),
    }


def tables() -> str:
    """The SHA-256 of the tables of the model's quality."""
    quality = _TABLES.read_text().split("\n## Quality\n")[1].split("\n## ")[0]
    rows = [line for line in quality.splitlines() if line.startswith("|")]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def main() -> None:
    now = {"showers": showers(), "tables": tables()}
    before = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if before and before["showers"] != now["showers"] and before["tables"] == now["tables"]:
        raise SystemExit(f"{_TABLES}: its tables of quality are of other showers; measure them again first")
    GOLDEN.write_text(json.dumps(now) + "\n")


if __name__ == "__main__":
    main()
