"""Showers with faults that a verdict must find. Each fault is planted in the cells, or labels, of Geant4's own showers.

`power.py` judges the showers. FAULTS names each fault, and the criterion that must find it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import REFERENCE_GEOMETRY, FloatArray, Showers
from validation.measure.deposits import line
from validation.measure.edges import coarse_blocks

Rows = npt.NDArray[np.intp]
Planted = Callable[[Showers, np.random.Generator], Showers]

# Edges of the rings, in cells. A generator that tabulates its density about the axis may have errors in rings.
_RINGS = np.array([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12])
_RESPONSE_SPREAD = 0.0187  # sigma/mean of E_vis/E in the Geant4 sample, all energies together


def unchanged(showers: Showers, _: np.random.Generator) -> Showers:
    return showers


def energy_scale(showers: Showers, _: np.random.Generator) -> Showers:
    """Every deposit 3 % too large."""
    return replace(showers, cells=showers.cells * np.float32(1.03))


def resolution(showers: Showers, rng: np.random.Generator) -> Showers:
    """Every shower's energy smeared, so that the response spreads 20 % more: 1.2^2 = 1 + 0.44."""
    factor = rng.normal(1, np.sqrt(0.44) * _RESPONSE_SPREAD, (len(showers), 1, 1, 1))
    return replace(showers, cells=showers.cells * factor.astype(np.float32))


def one_layer(showers: Showers, _: np.random.Generator) -> Showers:
    """Every shower a layer deeper; what leaves at the back is lost."""
    cells = np.zeros_like(showers.cells)
    cells[..., 1:] = showers.cells[..., :-1]
    return replace(showers, cells=cells)


def cells_dropped(showers: Showers, rng: np.random.Generator) -> Showers:
    """A tenth of the cells without energy, the rest of each shower scaled up to its energy."""
    cells = showers.cells.copy()
    filled = np.flatnonzero(cells)
    cells.reshape(-1)[filled[rng.random(len(filled)) < 0.1]] = 0
    return replace(showers, cells=_with_energy_of(showers.cells, cells))


def softer_hits(showers: Showers, _: np.random.Generator) -> Showers:
    """Deposits to the power 0.9, each shower then scaled to its energy: large ones smaller, small ones larger."""
    return replace(showers, cells=_with_energy_of(showers.cells, showers.cells ** np.float32(0.9)))


def smeared_hits(showers: Showers, rng: np.random.Generator) -> Showers:
    """Deposits smeared by a fifth, at equal energy: the edge of minimum ionising particles is lost."""
    cells = showers.cells.copy()
    filled = cells > 0
    cells[filled] *= np.exp(rng.normal(0, 0.2, filled.sum())).astype(np.float32)
    return replace(showers, cells=_with_energy_of(showers.cells, cells))


def angle_bias(showers: Showers, _: np.random.Generator) -> Showers:
    """A shower of theta + 2 degrees has the label theta."""
    return replace(showers, theta_rad=showers.theta_rad - np.float32(np.radians(2)))


def energy_in_rings(showers: Showers, _: np.random.Generator) -> Showers:
    """The density of energy is 20 % too high and too low by turns, in rings about each shower's axis. The energy of
    each block of cells is unchanged.
    """
    factor = np.append(np.resize([1.2, 0.8], len(_RINGS) - 1), 1.0).astype(np.float32)
    shape = showers.cells.shape[1:]
    block = coarse_blocks(replace(REFERENCE_GEOMETRY, shape=shape)).T.reshape(-1)
    cells = np.empty_like(showers.cells)
    for before, after, ring in zip(showers.cells, cells, rings_of(showers.cells), strict=True):
        stepped = before * factor[ring]
        sums = [np.bincount(block, each.reshape(-1)) for each in (before, stepped)]
        after[:] = stepped * (sums[0] / np.where(sums[1] > 0, sums[1], 1.0))[block].reshape(shape)
    return replace(showers, cells=cells)


def cells_in_rings(showers: Showers, rng: np.random.Generator) -> Showers:
    """One ring of each pair of rings, by turns the inner and the outer one, has a fifth fewer cells with energy. Their
    deposits are moved to empty cells of the other ring in the same layer. Deposits and layers' energies are unchanged.
    """
    cells, layer = showers.cells.copy(), np.arange(showers.cells.shape[3])
    for shower, ring in zip(cells, rings_of(cells), strict=True):
        place = (ring // 2 * len(layer) + layer).reshape(-1)  # a pair of rings in a layer
        leaves = ring % 2 == ring // 2 % 2
        inside, flat = ring < len(_RINGS) - 1, shower.reshape(-1)
        moved = inside & leaves & (shower > 0) & (rng.random(shower.shape) < 0.2)
        origin, source = _numbered(np.flatnonzero(moved), place, rng)
        free, target = _numbered(np.flatnonzero(inside & ~leaves & (shower == 0)), place, rng)
        _, mine, theirs = np.intersect1d(source, target, return_indices=True)
        flat[free[theirs]], flat[origin[mine]] = flat[origin[mine]], 0
    return replace(showers, cells=cells)


def rings_of(cells: FloatArray) -> Iterator[Rows]:
    """For each shower, the ring of each cell, (x, y, layer), about the line fitted to the shower's energy."""
    x, y, z = (np.arange(size, dtype=np.float64) + 0.5 for size in cells.shape[1:])
    for shower in cells.astype(np.float64):
        seen = ((shower.sum(axis=k), along) for k, along in ((1, x), (0, y)))
        axis_x, axis_y = (line(plane.sum(axis=0)[None], (along @ plane)[None], z)[0] for plane, along in seen)
        distance = np.hypot((x[:, None] - axis_x)[:, None], y[:, None] - axis_y)
        yield np.searchsorted(_RINGS, distance, side="right") - 1


def _numbered(cells: Rows, place: Rows, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """`cells` in random order within each place, and numbers that identify the place and the rank in that order."""
    cells = cells[np.lexsort((rng.random(len(cells)), place[cells]))]
    held = place[cells]
    return cells, held * len(place) + np.arange(len(cells)) - np.searchsorted(held, held)


def layers_of_others(showers: Showers, _: np.random.Generator) -> Showers:
    """Every second layer is from the shower with the next angle, scaled to the energy that the layer had."""
    order = np.argsort(showers.theta_rad)
    mixed = showers.cells[order]
    own = mixed[..., 1::2].sum(axis=(1, 2))
    mixed[..., 1::2] = np.roll(mixed, 1, axis=0)[..., 1::2]
    mixed[..., 1::2] *= (own / np.maximum(mixed[..., 1::2].sum(axis=(1, 2)), 1e-9))[:, None, None]
    cells = np.empty_like(mixed)
    cells[order] = mixed
    return replace(showers, cells=cells)


def labels_shuffled(showers: Showers, rng: np.random.Generator) -> Showers:
    """Energies and angles, together, permuted among the showers of a file."""
    order = rng.permutation(len(showers))
    return replace(showers, energy_gev=showers.energy_gev[order], theta_rad=showers.theta_rad[order])


def _with_energy_of(showers: FloatArray, cells: FloatArray) -> FloatArray:
    """`cells` (N, x, y, layer), each shower scaled to the energy it has in `showers`."""
    factor = showers.sum(axis=(1, 2, 3), dtype=np.float64) / cells.sum(axis=(1, 2, 3), dtype=np.float64)
    scaled: FloatArray = cells * factor.astype(np.float32)[:, None, None, None]
    return scaled


def every_row(rows: Rows) -> Rows:
    return rows


def a_tenth_twice(rows: Rows) -> Rows:
    """The first tenth of the showers is replaced by the second tenth."""
    tenth = len(rows) // 10
    return np.concatenate([rows[tenth : 2 * tenth], rows[tenth:]])


@dataclass(frozen=True)
class Fault:
    """A fault of the candidate: `planted` changes its showers, or `rows` changes which showers it holds.

    `named_by` is the criterion, or hard failure, that must find the fault.
    """

    name: str
    named_by: str = ""
    planted: Planted = unchanged
    rows: Callable[[Rows], Rows] = every_row


INDEPENDENT = Fault("independent Monte Carlo")
FAULTS = (
    Fault("energy scale +3 %", "Mean response", energy_scale),
    Fault("resolution +20 %", "Resolution sigma/E", resolution),
    Fault("one layer deeper", "Mean shower depth", one_layer),
    Fault("10 % of cells dropped, equal energy", "Mean number of hits", cells_dropped),
    Fault("softer hits, equal energy", "S: Cell energies", softer_hits),
    Fault("hits smeared by 20 %, equal energy", "Cells by energy", smeared_hits),
    Fault("2 degrees of angle bias", "Mean measured angle", angle_bias),
    Fault("rings of energy, +-20 %", "Energy in rings about the axis", energy_in_rings),
    Fault("rings of cells, -20 %", "Cells in rings about the axis, tail", cells_in_rings),
    Fault("10 % of showers twice", "The same shower twice", rows=a_tenth_twice),
    Fault("layers of other showers", "Overlap of neighbouring layers", layers_of_others),
    Fault("labels shuffled", "Visible energy does not rise with E", labels_shuffled),
)
