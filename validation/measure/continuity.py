"""Whether the core of a shower goes on from layer to layer, which clustering and pointing need."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from calopipe.showers.cells import Array, Geometry, Index
from calopipe.showers.positions import nearest
from validation.measure.deposits import Deposits


def continuity(hits: Deposits, layers: Array, geometry: Geometry) -> tuple[Array, Array]:
    """How far the core of each shower goes on, (N,) and (N,); `layers` (N, layers) are the energies of its layers.

    First the share of pairs of neighbouring layers in which the hottest cell of the second lies behind that of the
    first. Then the energy that both layers hold in the same cells, as a share of either's: the sum over cells of the
    smaller of the two shares. Each pair counts by its energy. Where cells differ, the cell before another is the one in
    which its middle lies. Both are 0 without two neighbouring layers that hold energy.
    """
    count, places = geometry.shape[2], geometry.shape[0] * geometry.shape[1]
    pair = (layers[:, 1:] > 0) & (layers[:, :-1] > 0)
    weight = np.where(pair, layers[:, 1:] + layers[:, :-1], 0.0)
    weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-30)
    before = _before(geometry)

    group = hits.event * count + hits.layer  # one layer of one shower
    order = np.argsort(group * places + hits.places)
    cell, group = (group * places + hits.places)[order], group[order]
    share = hits.energy[order] / layers.reshape(-1)[group]
    behind = before[hits.layer, hits.places][order]
    sought = np.where(behind >= 0, (group - 1) * places + behind, -1)  # the cell before, in the layer before
    at = np.searchsorted(cell, sought).clip(0, len(cell) - 1)
    common = np.where(cell[at] == sought, np.minimum(share, share[at]), 0.0)
    overlap = np.bincount(group, common, len(layers) * count).reshape(-1, count)[:, 1:]

    rising, flat = np.lexsort((share, group)), np.full(len(layers) * count, -1)
    flat[group[rising]] = cell[rising] % places  # the last one of each layer stays
    hottest = flat.reshape(-1, count)
    expected = before[np.arange(1, count), hottest[:, 1:]]
    kept = pair & (expected == hottest[:, :-1])
    return (weight * kept).sum(axis=1), (weight * overlap).sum(axis=1)


@lru_cache(maxsize=4)
def _before(geometry: Geometry) -> Index:
    """The cell of the layer before in which the middle of each cell lies, (layers, places); -1 where there is none."""
    n, m, layers = geometry.shape
    return np.stack([np.full(n * m, -1), *(nearest(geometry, layer, layer - 1) for layer in range(1, layers))])
