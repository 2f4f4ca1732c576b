"""One pass over a set of showers: features into a temporary file, histograms of features and of cells."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np

from calopipe.progress import progress_bar
from calopipe.showers.cells import FloatArray
from calopipe.showers.challenge.highlevel import Array, HighLevel, high_level
from calopipe.showers.flaws import flaws_of_hits
from calopipe.showers.hits import Hits
from calopipe.showers.positions import positions
from calopipe.showers.splits import ALL
from validation.measure.sets import COUNT, ShowerSet

_MEV = 1e3


def stored(rows: int, columns: int) -> Array:
    """Zeros (rows, columns) in a temporary file, gone once the array is."""
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.float64, shape=(rows, columns))


def pieces(showers: ShowerSet, doing: str) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Cells (n, angle, radius, layer) and incident energies (n,) of the showers of a set, some at a time.

    As the challenge does, showers without energy are kept. Cells that are not finite numbers of zero or more are left
    out of a candidate, and their showers out of Monte Carlo; both are reported by the verdict.
    """
    with progress_bar(f"{showers.name}, {doing}", len(showers), "showers") as bar:
        for file, mask in zip(showers.files, showers.masks, strict=True):
            for first, stored in file.pieces(0, file.events):
                inside = slice(first, first + len(stored))
                chosen, energy = mask[inside], file.energy_gev[inside]
                bar.update(int(chosen.sum()))
                hits = Hits.of(stored)
                if showers.selection.split != ALL:
                    of_events = file.digests(hits, inside)
                    chosen = chosen & showers.selection.rule.mask(showers.selection.split, file.path.name, of_events)
                counted = showers.selection.bad_event == COUNT
                cells = np.where(np.isfinite(stored) & (stored > 0), stored, 0) if counted else stored
                if not counted:
                    chosen = chosen & (flaws_of_hits(hits) == 0)
                if chosen.any():
                    yield cells[chosen], energy[chosen]


def features(showers: ShowerSet, doing: str = "features") -> Iterator[tuple[HighLevel, Array]]:
    """High-level features of a set, and its cells that exist in MeV, (n, cells), some showers at a time."""
    exists = positions(showers.geometry).exists
    unit = showers.geometry.file_unit_gev * _MEV
    for cells, energy in pieces(showers, doing):
        flat = cells.reshape(len(cells), -1, exists.shape[0])
        yield high_level(cells, energy, showers.geometry), flat[:, exists.T].astype(np.float64) * unit
