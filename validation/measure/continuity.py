"""Whether the core of a shower continues from layer to layer. Clustering and pointing depend on this."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from calopipe.showers.cells import Array, Geometry, Index
from calopipe.showers.positions import nearest
from validation.measure.deposits import Deposits


def continuity(hits: Deposits, layers: Array, geometry: Geometry) -> tuple[Array, Array]:
    """Two measures of how the core of each shower continues, (N,) each; `layers` (N, layers) are energies of layers.

    The first is the share of pairs of neighbouring layers in which the hottest cell of the second layer lies behind
    the hottest cell of the first. The second is the overlap of two neighbouring layers: each cell has a share of the
    energy of its layer, and the overlap is the sum over cells of the smaller share. Pairs are weighted by energy. If
    cells differ, the cell before a given cell is the one in which the middle of the given cell lies. Both measures are
    0 if no two neighbouring layers hold energy.
    """
    count, places = geometry.shape[2], geometry.shape[0] * geometry.shape[1]
    pair = (layers[:, 1:] > 0) & (layers[:, :-1] > 0)
    weight = np.where(pair, layers[:, 1:] + layers[:, :-1], 0.0)
    weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-30)
    before = _before(geometry)

    group = hits.event * count + hits.layer  # a group is one layer of one shower
    order = np.argsort(group * places + hits.places)
    cell, group = (group * places + hits.places)[order], group[order]
    share = hits.energy[order] / layers.reshape(-1)[group]
    behind = before[hits.layer, hits.places][order]
    sought = np.where(behind >= 0, (group - 1) * places + behind, -1)  # the cell before, in the layer before
    at = np.searchsorted(cell, sought).clip(0, len(cell) - 1)
    common = np.where(cell[at] == sought, np.minimum(share, share[at]), 0.0)
    overlap = np.bincount(group, common, len(layers) * count).reshape(-1, count)[:, 1:]

    rising, flat = np.lexsort((share, group)), np.full(len(layers) * count, -1)
    flat[group[rising]] = cell[rising] % places  # the last cell of a layer, its hottest, stays
    hottest = flat.reshape(-1, count)
    expected = before[np.arange(1, count), hottest[:, 1:]]
    kept = pair & (expected == hottest[:, :-1])
    return (weight * kept).sum(axis=1), (weight * overlap).sum(axis=1)


@lru_cache(maxsize=4)
def _before(geometry: Geometry) -> Index:
    """The cell of the previous layer in which the middle of each cell lies, (layers, places); -1 if there is none."""
    n, m, layers = geometry.shape
    return np.stack([np.full(n * m, -1), *(nearest(geometry, layer, layer - 1) for layer in range(1, layers))])
