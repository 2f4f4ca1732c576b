"""Showers without their empty cells (98 % of all cells), the digests of showers, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.events.splits import Digests
from calopipe.events.tolerance import FLAWS
from calopipe.labels import DATASETS, MoreLabels
from calopipe.showers.cells import EMPTY_SHOWER_ANGLE, FloatArray

_NONE, _NAN, _NEGATIVE, _OUT_OF_RANGE = range(len(FLAWS))

Flaws = npt.NDArray[np.int8]  # what is wrong with each shower, as an index into `FLAWS`


@dataclass(frozen=True)
class Hits:
    """The non-zero cells of N showers, shower by shower, in the order of the cells.

    `row` (hits,) is the shower a hit is in, `cell` (hits,) its position in the flattened (x, y, layer) array, `value`
    (hits,) its deposit in file units; `shape` is (N, x, y, layer).
    """

    row: npt.NDArray[np.intp]
    cell: npt.NDArray[np.intp]
    value: FloatArray
    shape: tuple[int, int, int, int]

    @classmethod
    def of(cls, cells: FloatArray) -> Hits:
        """The hits of `cells` (N, x, y, layer). A cell that is NaN is a hit."""
        flat = cells.reshape(-1)
        position = np.flatnonzero(flat != 0)  # on booleans it is several times faster than on floats
        showers, x, y, layers = cells.shape
        return cls(*np.divmod(position, x * y * layers), flat[position], (showers, x, y, layers))

    def __len__(self) -> int:
        """Number of showers."""
        return self.shape[0]

    def __getitem__(self, chosen: npt.NDArray[np.bool_]) -> Hits:
        """The showers that a mask (N,) selects."""
        kept = chosen[self.row]
        place = np.cumsum(chosen) - 1
        shape = (int(chosen.sum()), *self.shape[1:])
        return Hits(place[self.row[kept]], self.cell[kept], self.value[kept], shape)

    def sums(self) -> npt.NDArray[np.float64]:
        """Sum of each shower's cells (N,), in file units."""
        return np.bincount(self.row, self.value, len(self))  # type: ignore[return-value]  # weights make it floats

    def edges(self) -> npt.NDArray[np.intp]:
        """The index of each shower's first hit, and the number of all hits at the end, (N + 1,)."""
        return np.searchsorted(self.row, np.arange(len(self) + 1))

    def digests(self) -> Digests:
        """64 bits of a hash of each shower's cells, (N,). One in 10^7 sets of a million showers has two equal ones.

        The hash is a sum over hits, of the mixed bits of position and value; so it needs no loop over showers.
        """
        bits = np.ascontiguousarray(self.value, dtype=np.float32).view(np.uint32)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed(joined(self.cell, bits)), dtype=np.uint64)])
        edges = self.edges()
        return mixed(sums[edges[1:]] - sums[edges[:-1]])  # sums overflow, and their differences are still right

    def at_least(self, threshold: float) -> Hits:
        """The hits with a deposit of at least `threshold`, in file units."""
        kept = self.value >= threshold
        return Hits(self.row[kept], self.cell[kept], self.value[kept], self.shape)

    def in_layers(self, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The sum of the `values` of hits, (hits,), in each layer of each shower, (N, layer)."""
        layers = self.shape[3]
        to = self.row * layers + self.cell % layers
        return np.bincount(to, values, len(self) * layers).reshape(len(self), layers).astype(np.float64)


def joined(high: npt.NDArray[np.integer], low: npt.NDArray[np.uint32]) -> Digests:
    """Pairs of 32 bits, (K,) each, as words of 64 bits."""
    return (high.astype(np.uint64) << np.uint64(32)) | low


def mixed(words: Digests) -> Digests:
    """A bijection of 64-bit words that looks random: the step of SplitMix64 (Steele et al., OOPSLA 2014)."""
    z = words + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def event_digests(hits: Hits, energy_gev: FloatArray, theta_rad: FloatArray, more: MoreLabels | None = None) -> Digests:
    """64 bits (N,) of a hash of each event: its labels (N,) and its non-zero cells, as float32 in the file's unit.

    The labels in `more` count if the file has them. Nothing else of the file counts: not its bytes, attributes or
    precision, nor the order of its events.
    """
    labels = [np.ascontiguousarray(label, dtype=np.float32).view(np.uint32) for label in (energy_gev, theta_rad)]
    digests = mixed(hits.digests() ^ mixed(joined(*labels)))
    for number, name in enumerate(DATASETS, 1):
        if more and name in more:
            bits = np.ascontiguousarray(more[name]).view(np.uint32)
            digests = mixed(digests ^ mixed(joined(np.full(len(bits), number), bits)))
    return digests


def flaws_of_hits(hits: Hits) -> Flaws:
    """The flaw (N,) in the cells of each shower."""
    flaws = np.zeros(len(hits), dtype=np.int8)
    flaws[hits.row[hits.value < 0]] = _NEGATIVE
    flaws[hits.row[~np.isfinite(hits.value)]] = _NAN
    return flaws


def flaws_of_label(name: str, values: FloatArray) -> Flaws:
    """The flaw (N,) in the label `name`: an energy in GeV is above zero, an angle between zero and pi rad, an azimuth
    `phi` between -pi/2 and pi/2.
    """
    low, high = {"energy": (0, np.inf), "phi": (-np.pi / 2, np.pi / 2)}.get(name, (0, np.pi))
    with np.errstate(invalid="ignore"):
        inside = (values > low) & (values < high)
    if name == "mtheta":  # the value of an empty shower is not an angle
        inside |= values == EMPTY_SHOWER_ANGLE
    return np.where(~np.isfinite(values), _NAN, np.where(inside, _NONE, _OUT_OF_RANGE)).astype(np.int8)
