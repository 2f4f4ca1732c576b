"""One pass over a set of showers: its table, digests, bad cells and some pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calopipe.events.splits import Digests
from calopipe.labels import PARTICLE, PHI, taken
from calopipe.showers.hits import Hits
from validation.measure.observables import Observables, observe_hits
from validation.measure.pictures import Picture, pictures
from validation.measure.sets import COUNT, ShowerSet
from validation.measure.table import Table

_GALLERY = 3  # showers of each set of which pictures are kept


@dataclass(frozen=True)
class Measured:
    """What one pass over a set leaves: `digests` (see `Hits.digests`) of the showers with energy, and how many are
    `bad`, with a cell that is not a finite number of zero or more, and where the first is.
    """

    table: Table
    digests: Digests
    bad: int
    first_bad: str
    gallery: tuple[Picture, ...]


def measure(showers: ShowerSet) -> Measured:
    """Read a set once, piece by piece.

    InputError: a corrupt shower where `bad_event` is "stop", or no Monte Carlo with energy.
    """
    geometry, selection = showers.geometry, showers.selection
    above_cut: list[npt.NDArray[np.bool_]] = []
    digests: list[Digests] = []
    gallery: list[Picture] = []
    bad_showers, first_bad = 0, ""

    def rows() -> Iterator[Observables]:
        nonlocal bad_showers, first_bad
        for part, kept, bad in showers.parts():
            hits = part.hits
            if bad.any():
                bad_showers += int(bad.sum())
                first_bad = first_bad or f"event {part.first + int(np.argmax(bad))} of {part.file}"
                if selection.bad_event == COUNT:
                    hits = _without_bad_cells(hits)
            hits, more = hits[kept], taken(part.more, kept)
            labels = part.energy_gev[kept], part.theta_rad[kept]
            table = observe_hits(hits, *labels, geometry, particle=more.get(PARTICLE), phi_rad=more.get(PHI))
            above_cut.append(selection.above_cut(hits, geometry))
            digests.append(hits.digests()[table.column("visible_gev") > 0])
            if len(gallery) < _GALLERY:
                gallery.extend(pictures(part.cells[kept], table, geometry, _GALLERY - len(gallery)))
            yield table

    table = Table(rows())
    table.empty |= ~np.concatenate(above_cut)
    if table.empty.all() and selection.bad_event != COUNT:
        raise showers.nothing_left()
    return Measured(table, np.concatenate(digests), bad_showers, first_bad, tuple(gallery))


def _without_bad_cells(hits: Hits) -> Hits:
    good = np.isfinite(hits.value) & (hits.value > 0)
    return Hits(hits.row[good], hits.cell[good], hits.value[good], hits.shape)
