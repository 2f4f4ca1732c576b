"""All numbers of CaloChallenge for two sets of showers, a part of the verdict's document that changes no verdict."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from calopipe.documents import finite
from calopipe.errors import InputError
from calopipe.showers.calochallenge import CLASSIFIER, TIMING
from calopipe.showers.calochallenge.highlevel import HighLevel, high_level
from calopipe.showers.cells import Array
from calopipe.showers.positions import positions
from calopipe.storage import Location
from validation.calochallenge.histograms import Histograms, separations
from validation.calochallenge.published import published
from validation.measure.sets import ShowerSet
from validation.statistics.distances import distances

_MEV = 1e3
_LABELS = {
    "total": "Energy in all cells over the incident energy",
    "layer": "Energy of a layer",
    "x": "Centre in x (the challenge's eta)",
    "y": "Centre in y (phi)",
    "x_width": "Width in x",
    "y_width": "Width in y",
    "sparsity": "Share of cells that are not empty",
    "cells": "Energies of single cells",
}
SKIPPED = (
    "Separation powers, FPD and KPD of CaloChallenge are left out: its features are for cells in rings, and this "
    "calorimeter's are rectangular."
)


@dataclass(frozen=True)
class Documents:
    """The documents of `python -m training discriminate` and `generate --timing`, if they are given."""

    classifier: dict[str, Any] | None = None
    timing: dict[str, Any] | None = None

    @classmethod
    def read(cls, classifier: Location | None, timing: Location | None) -> Documents:
        """Read the documents that are given. InputError: a file is not of its kind."""
        return cls(CLASSIFIER.read(classifier) if classifier else None, TIMING.read(timing) if timing else None)

    def require_of(self, reference: ShowerSet, candidate: ShowerSet) -> None:
        """Raise InputError unless the classifier was trained on the files of these sets, and on this split."""
        if self.classifier is None:
            return
        if (split := self.classifier["inputs"]["split"]) != reference.selection.split:
            raise InputError(
                f"--classifier: was trained on the split {split} of the reference, and --split is "
                f"{reference.selection.split}; run `python -m training discriminate` with that"
            )
        for name, showers in (("reference", reference), ("candidate", candidate)):
            used = {file.sha256 for file in showers.files}
            if used != set(self.classifier["inputs"][name]):
                raise InputError(
                    f"--classifier: was trained on other {name} files than {showers.files[0].path} and those beside "
                    "it; run `python -m training discriminate` on these"
                )


def numbers(reference: ShowerSet, candidate: ShowerSet, documents: Documents) -> dict[str, Any]:
    """Separation powers by observable, FPD and KPD, with Monte Carlo's own values, and the `documents`.

    Monte Carlo's own values compare its even with its odd showers, so they are of half as many.
    """
    results: dict[str, Any] = {"classifier": documents.classifier, "timing": documents.timing, "skipped": SKIPPED}
    showers = min(len(reference), len(candidate))
    if reference.geometry.rings:
        histograms, vectors = _measured(reference, candidate)
        counts = {name: len(rows) for name, rows in vectors.items()}
        showers = min(counts.values())
        results |= {
            "skipped": None,
            "showers": counts,
            "separations": _separations(histograms),
            **(distances(*vectors.values()) or {"fpd": None, "kpd": None}),
        }
    return results | {"published": published(reference.geometry, showers)}


def _measured(reference: ShowerSet, candidate: ShowerSet) -> tuple[dict[str, Histograms], dict[str, Array]]:
    """Histograms of Monte Carlo, of its even and odd showers, and of the candidate; features (N, f) of both sets."""
    largest_layer, largest_cell = np.zeros(reference.geometry.shape[2]), 0.0
    for piece, cells in features(reference, "largest energies"):
        largest_layer = np.maximum(largest_layer, piece.layer_mev.max(axis=0))
        largest_cell = max(largest_cell, float(cells.max()))
    names = ("reference", "even", "odd", "candidate")
    filled = {name: Histograms(reference.geometry, largest_layer, largest_cell) for name in names}
    of_reference = _fill(reference, filled["reference"], filled["even"], filled["odd"])
    of_candidate = _fill(candidate, filled["candidate"])
    return filled, {"reference": of_reference, "candidate": of_candidate}


def _fill(showers: ShowerSet, whole: Histograms, *parts: Histograms) -> Array:
    """Fill the histograms of the `whole` set, and of its `parts`, by turns. Returns the features (N, f) of the set."""
    vectors, count = np.empty((0, 0)), 0
    for piece, cells in features(showers):
        vector = piece.vector()
        if not count:
            vectors = _stored(len(showers), vector.shape[1])
        vectors[count : count + len(vector)] = vector
        whole.add(piece, cells)
        for turn, part in enumerate(parts):
            rows = slice((turn - count) % len(parts), None, len(parts))
            part.add(piece[rows], cells[rows])
        count += len(vector)
    return vectors[:count]


def _separations(of_each: dict[str, Histograms]) -> dict[str, Any]:
    values = separations(of_each["reference"], of_each["candidate"])
    own = separations(of_each["even"], of_each["odd"])
    return {
        name: {
            "label": label,
            "value": _mean(values[name]),
            "own": _mean(own[name]),
            "largest": finite(np.nanmax(values[name])) if np.isfinite(values[name]).any() else None,
            "each": [finite(value) for value in values[name]],
        }
        for name, label in _LABELS.items()
    }


def _mean(values: list[float]) -> float | None:
    """The mean over layers with a finite value; None if there are none."""
    finite_values = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite_values)) if finite_values else None


def _stored(rows: int, columns: int) -> Array:
    """Zeros (rows, columns) in a temporary file, which is removed with the array."""
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.float64, shape=(rows, columns))


def features(showers: ShowerSet, doing: str = "features") -> Iterator[tuple[HighLevel, Array]]:
    """High-level features of a set, and the energies of its existing cells in MeV, (n, cells), n showers at a time.

    Showers without energy are kept, as in the challenge, unless the selection has a cut.
    """
    exists = positions(showers.geometry).exists
    unit = showers.geometry.file_unit_gev * _MEV
    for part, chosen, _ in showers.parts(f", {doing}"):
        kept = chosen & part.above_cut if showers.selection.cut_gev > 0 else chosen
        if kept.any():
            cells, energy = part.cells[kept], part.energy_gev[kept]
            flat = cells.reshape(len(cells), -1, exists.shape[0])
            yield high_level(cells, energy, showers.geometry), flat[:, exists.T].astype(np.float64) * unit
