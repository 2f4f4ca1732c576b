"""What an energy cut drops, by incident energy, and the energy from which it drops almost no showers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import FloatArray

_BINS_A_DECADE = 20
_NEXT = 3  # bins that are taken together, a factor of 1.4 in energy
_FEW = 0.01  # showers of an energy count as whole if less than this share of them is dropped
_CONCENTRATED = 2  # a cut drops low energies if it drops more than twice the share there that it drops of all showers

Row = tuple[float, float, int, int]  # least and largest energy in GeV, showers, and how many of them were dropped


def counts(energy_gev: FloatArray, dropped: npt.NDArray[np.bool_]) -> dict[str, list[int]]:
    """For a receipt, by bin of energy: the number of showers, and how many are `dropped`. Arguments are (N,)."""
    bins = np.floor(_BINS_A_DECADE * np.log10(energy_gev.astype(np.float64))).astype(int)
    showers, lost = Counter(bins.tolist()), Counter(bins[dropped].tolist())
    return {str(bin_): [showers[bin_], lost[bin_]] for bin_ in sorted(showers)}


def table(parts: Iterable[Mapping[str, Sequence[int]]]) -> tuple[Row, ...]:
    """The sum of what `counts` returned for all ranges, in rows of rising energy."""
    total = defaultdict[int, npt.NDArray[np.int64]](lambda: np.zeros(2, np.int64))
    for part in parts:
        for name, pair in part.items():
            total[int(name)] += pair
    edges = {bin_: 10 ** (bin_ / _BINS_A_DECADE) for bin_ in sorted(total)}
    width = 10 ** (1 / _BINS_A_DECADE)
    return tuple((low, low * width, *total[bin_].tolist()) for bin_, low in edges.items())


def whole_from(rows: Sequence[Row]) -> float:
    """The lowest energy in GeV from which showers are whole: up to 1.4 times this energy, few showers were dropped.

    0 if it is the lowest energy of all, or if the cut drops showers of all energies alike.
    """
    for number, (low, *_) in enumerate(rows):
        near = [row for row in rows[number:] if row[0] < low * 10 ** ((_NEXT - 0.5) / _BINS_A_DECADE)]
        if _share(near) < _FEW:
            return low if number and _share(rows[:number]) > _CONCENTRATED * _share(rows) else 0.0
    return 0.0


def doubt(rows: Sequence[Row], cut_gev: float) -> str:
    """A line that warns of the cut; empty if the cut spoils no energy."""
    if not (begin := whole_from(rows)):
        return ""
    below, above = ([row for row in rows if (row[0] < begin) is side] for side in (True, False))
    (lost, showers), (lost_above, showers_above) = ((_sum(part, 3), _sum(part, 2)) for part in (below, above))
    return (
        f"--cut-gev {cut_gev:g} drops {lost} of {showers} showers below {begin:.3g} GeV, and {lost_above} of "
        f"{showers_above} above: the showers left below have too large a response, and a model will be valid only from "
        f"{begin:.3g} GeV; --cut-gev 0 drops none"
    )


def _sum(rows: Sequence[Row], column: int) -> int:
    return int(sum(row[column] for row in rows))


def _share(rows: Sequence[Row]) -> float:
    return _sum(rows, 3) / _sum(rows, 2)
