"""Whether the energies of single hits are those of Monte Carlo: their spectrum, and a classifier that sees it alone.

    python benchmarks/hit_energies.py --reference 'test/*.h5' --candidate generated.h5 [--geometry FILE.toml]

It prints hits of the candidate over those of the reference by energy, and the AUC of validation's classifier if it is
given the numbers of hits of each shower by energy: .5 if the spectra are alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

import numpy as np

from calopipe import storage
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from validation.statistics.classifier import auc

_EDGES_GEV = np.logspace(-5, -1, 57)
_SHOWN = 0.002  # of the hits: a bin with fewer is not printed


def by_energy(paths: Iterable[storage.Location], geometry: str) -> Any:
    """Numbers of hits of each shower, (N, bins); those beyond the last edge are in the last bin."""
    parts = []
    for path in paths:
        file = open_showers(path, geometry)
        for piece in file.examined(Selection()):
            gev = piece.hits.value * file.geometry.file_unit_gev
            seen = gev > _EDGES_GEV[0]
            place = np.searchsorted(_EDGES_GEV, gev[seen]) - 1
            numbers = np.zeros((len(piece), len(_EDGES_GEV)))
            np.add.at(numbers, (piece.hits.row[seen], place), 1)
            parts.append(numbers)
    return np.concatenate(parts)


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--reference", nargs="+", required=True)
    command.add_argument("--candidate", nargs="+", required=True)
    command.add_argument("--geometry", default="")
    options = command.parse_args()
    named = [storage.expand(patterns) for patterns in (options.reference, options.candidate)]
    sides = [by_energy(paths, options.geometry) for paths in named]
    (expected, found), spread = (side.mean(0) for side in sides), [side.std(0) / len(side) ** 0.5 for side in sides]
    for k in np.flatnonzero(expected > _SHOWN * expected.sum()):
        error = np.hypot(spread[0][k] * found[k] / expected[k], spread[1][k]) / expected[k]
        ratio = f"{found[k] / expected[k]:.3f} +- {error:.3f}"
        print(f"from {_EDGES_GEV[k]:.3g} GeV: {expected[k]:.2f} hits a shower, {ratio}")
    told = auc(*sides, per_event=0, rng=np.random.default_rng(0))
    low, high = told["interval"]
    print(f"{len(sides[0])} and {len(sides[1])} showers, AUC {told['value']:.3f} [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main()
