"""Whether the energies of single hits are those of Monte Carlo: their spectrum, and a classifier that sees it alone.

    python benchmarks/hit_energies.py --reference 'test/*.h5' --candidate generated.h5 [--geometry FILE.toml]

It prints hits of the candidate over those of the reference by energy, and the AUC of boosted trees that are given the
numbers of hits of each shower by energy, cross-validated in four parts: .5 if the spectra are alike. If one side has
more showers, its first ones are taken.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from calopipe import storage
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection

_BINS_A_DECADE = 14
_SHOWN = 0.002  # of the hits: a bin with fewer is not printed


def by_energy(paths: Iterable[storage.Location], geometry: str, edges: Any) -> Any:
    """Numbers of hits of each shower, (N, bins); those beyond the last edge are in the last bin."""
    parts = []
    for path in paths:
        file = open_showers(path, geometry)
        for piece in file.examined(Selection()):
            gev = piece.hits.value * file.geometry.file_unit_gev
            seen = gev > edges[0]
            place = np.searchsorted(edges, gev[seen]) - 1
            numbers = np.zeros((len(piece), len(edges)))
            np.add.at(numbers, (piece.hits.row[seen], place), 1)
            parts.append(numbers)
    return np.concatenate(parts)


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--reference", nargs="+", required=True)
    command.add_argument("--candidate", nargs="+", required=True)
    command.add_argument("--geometry", default="")
    command.add_argument("--least-gev", type=float, default=1e-5)
    command.add_argument("--most-gev", type=float, default=0.1)
    options = command.parse_args()
    low, high = np.log10([options.least_gev, options.most_gev])
    edges = np.logspace(low, high, round((high - low) * _BINS_A_DECADE) + 1)
    named = [storage.expand(patterns) for patterns in (options.reference, options.candidate)]
    sides = [by_energy(paths, options.geometry, edges) for paths in named]
    showers = min(map(len, sides))
    sides = [side[:showers] for side in sides]
    (expected, found), spread = (side.mean(0) for side in sides), [side.std(0) / showers**0.5 for side in sides]
    for k in np.flatnonzero(expected > _SHOWN * expected.sum()):
        error = np.hypot(spread[0][k] * found[k] / expected[k], spread[1][k]) / expected[k]
        ratio = f"{found[k] / expected[k]:.3f} +- {error:.3f}"
        print(f"from {edges[k]:.3g} GeV: {expected[k]:.2f} hits a shower, {ratio}")
    trees = HistGradientBoostingClassifier(max_iter=150, learning_rate=0.06, max_leaf_nodes=15, min_samples_leaf=40)
    given, label = np.concatenate(sides), np.repeat([0, 1], showers)
    parts = StratifiedKFold(4, shuffle=True, random_state=1)
    chance = cross_val_predict(trees, given, label, cv=parts, method="predict_proba")[:, 1]
    print(f"{showers} showers a side, AUC {roc_auc_score(label, chance):.3f}")


if __name__ == "__main__":
    main()
