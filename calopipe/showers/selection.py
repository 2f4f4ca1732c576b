"""Which events count: the cut on their energy, in one place for all that read Monte Carlo."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calopipe.showers.cells import Geometry
from calopipe.showers.hits import Hits

CUT_GEV = 0.2  # 10 in the unit of the reference's files


def above_cut(hits: Hits, geometry: Geometry, cut_gev: float) -> npt.NDArray[np.bool_]:
    """Whether each event (N,) deposits more than `cut_gev` in its cells, as they are stored."""
    return np.asarray(hits.sums() > cut_gev / geometry.file_unit_gev)
