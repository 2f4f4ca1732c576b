"""Showers cell by cell about their axis, for a classifier that is to see what no observable does."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from validation.measure.axis import RING_EDGES, Array, in_rings

FineCells = npt.NDArray[np.float16]
Places = npt.NDArray[np.integer[Any]]

_REACH = 3  # cells to either side of the axis: 7 x 7 of them hold 96 % of the energy of the Geant4 sample
_LAYERS_JOINED = 5  # for the rings, of which a single layer holds a few cells only


def fine_columns(layers: int) -> int:
    """How many numbers `fine_cells` makes of a shower of so many layers: 1,515 of 25."""
    return (2 * _REACH + 1) ** 2 * layers + 2 * len(RING_EDGES) * _groups(layers)


def fine_cells(
    event: Places, place: tuple[Places, Places, Places], energy: Array, ring: npt.NDArray[np.intp],
    axis: tuple[Array, Array], *, events: int, layers: int, filled: npt.NDArray[np.bool_],
) -> FineCells:  # fmt: skip
    """Numbers of each shower, (events, `fine_columns`), in half precision: 0.05 % of a value, 3 kB a shower.

    The root of the energy, in GeV, of each cell of 7 x 7 about the cell that the axis crosses, layer by layer; and of
    each ring (`axis`) in each five layers the root of the energy and the number of cells that are `filled`.
    Each of the other arguments is (hits,): which event, the cell's indices (x, y, layer), its energy, its ring, and
    where the axis crosses its layer, along x and y in cells.
    """
    width = 2 * _REACH + 1
    x, y, layer = place
    column, row = (index - np.floor(at).astype(np.intp) + _REACH for index, at in zip((x, y), axis, strict=True))
    near = (column >= 0) & (column < width) & (row >= 0) & (row < width)
    window = np.zeros((events, layers, width, width))
    window[event[near], layer[near], column[near], row[near]] = energy[near]
    group = event * _groups(layers) + layer // _LAYERS_JOINED
    sums = in_rings(group, ring, events * _groups(layers), energy)
    counts = in_rings(group[filled], ring[filled], events * _groups(layers), None)
    parts = np.sqrt(window), np.sqrt(sums), counts
    numbers = np.concatenate([part.reshape(events, -1) for part in parts], axis=1)
    return np.minimum(numbers, np.finfo(np.float16).max).astype(np.float16)  # cells in another unit may be larger


def _groups(layers: int) -> int:
    return -(-layers // _LAYERS_JOINED)
