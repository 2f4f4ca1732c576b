"""One pass over a set of showers: features into a temporary file, histograms of features and of cells."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np

from calopipe.showers.cells import FloatArray
from calopipe.showers.challenge.highlevel import Array, HighLevel, high_level
from calopipe.showers.hits import Hits
from calopipe.showers.positions import positions
from validation.measure.sets import COUNT, ShowerSet

_MEV = 1e3


def stored(rows: int, columns: int) -> Array:
    """Zeros (rows, columns) in a temporary file, gone once the array is."""
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.float64, shape=(rows, columns))


def pieces(showers: ShowerSet, doing: str) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Cells (n, angle, radius, layer) and incident energies (n,) of the showers of a set, some at a time.

    As the challenge does, showers without energy are kept, unless the selection has a cut. Cells that are not finite
    numbers of zero or more are left out of a candidate, which the verdict reports. In Monte Carlo they are an error, or
    their showers are left out, as the selection says.
    """
    selection = showers.selection
    for part, chosen, _ in showers.parts(f", {doing}"):
        cells, kept = part.cells, chosen
        if selection.bad_event == COUNT:
            cells = np.where(np.isfinite(cells) & (cells > 0), cells, 0)
        if selection.cut_gev > 0:
            kept = kept & selection.above_cut(Hits.of(cells), showers.geometry)
        if kept.any():
            yield cells[kept], part.energy_gev[kept]


def features(showers: ShowerSet, doing: str = "features") -> Iterator[tuple[HighLevel, Array]]:
    """High-level features of a set, and its cells that exist in MeV, (n, cells), some showers at a time."""
    exists = positions(showers.geometry).exists
    unit = showers.geometry.file_unit_gev * _MEV
    for cells, energy in pieces(showers, doing):
        flat = cells.reshape(len(cells), -1, exists.shape[0])
        yield high_level(cells, energy, showers.geometry), flat[:, exists.T].astype(np.float64) * unit
