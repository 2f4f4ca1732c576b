"""What is wrong with showers: in their cells, and in their labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calopipe.events.tolerance import FLAWS
from calopipe.showers.angle import EMPTY_SHOWER_ANGLE
from calopipe.showers.cells import FloatArray
from calopipe.showers.hits import Hits

_NONE, _NAN, _NEGATIVE, _OUT_OF_RANGE = range(len(FLAWS))

Flaws = npt.NDArray[np.int8]


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
    if name == "mtheta":  # that of an empty shower is no angle
        inside |= values == EMPTY_SHOWER_ANGLE
    return np.where(~np.isfinite(values), _NAN, np.where(inside, _NONE, _OUT_OF_RANGE)).astype(np.int8)
