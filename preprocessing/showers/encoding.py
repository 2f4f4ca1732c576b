"""The showers of a range of a file as records: read, checked, cut, encoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.events.tolerance import FLAWS, SKIP
from calopipe.labels import LabelRange, taken
from calopipe.showers.angle import angle_of_hits
from calopipe.showers.cells import FloatArray
from calopipe.showers.files import open_showers
from calopipe.showers.hits import Hits
from calopipe.showers.selection import Selection
from calopipe.storage import location
from preprocessing.field import Plan
from preprocessing.manifest import Content
from preprocessing.records import example, index_type
from preprocessing.showers import cut


def read_showers(plan: Plan, selection: Selection, threshold_gev: float) -> Content:
    """The good showers of the range of `plan` that are above the cut.

    Cells below `threshold_gev` are then set to zero, and a shower without any other cell is left out.
    """
    file = open_showers(location(plan.path), selection.geometry, SKIP, plan.sha256)
    pieces, encoded = list[tuple[npt.NDArray[Any], ...]](), list[bytes]()
    for showers in file.examined(selection, plan.start, plan.stop):
        places = showers.first + np.arange(len(showers))
        kept = (showers.flaws == 0) & showers.above_cut & ~np.isin(places, plan.skip)
        hits, places = showers.hits[kept].at_least(threshold_gev / file.geometry.file_unit_gev), places[kept]
        filled = np.diff(hits.edges()) > 0
        emptied = places[~filled]
        hits, places = hits[filled], places[filled]
        # if the file has no measured angle, it is computed from the cells that the model will see
        mtheta = angle_of_hits(hits, file.geometry) if file.mtheta_rad is None else file.mtheta_rad[places]
        labels = {"energy": file.energy_gev[places], "theta": file.theta_rad[places], **taken(file.more, places)}
        encoded += encode(hits, labels | {"mtheta": mtheta, "event": places})
        pieces.append((showers.digests, showers.flaws, showers.above_cut, emptied, places, np.diff(hits.edges())))
    digests, flaws, above_cut, emptied, written, counts = map(np.concatenate, zip(*pieces, strict=True))
    bad_events = [(plan.start + row, FLAWS[flaw]) for row, flaw in enumerate(flaws) if flaw]
    good = flaws == 0
    return Content(
        digests=digests,
        events=written,
        emptied=emptied,
        split_by=digests[written - plan.start],
        encoded=encoded,
        bad_events=bad_events,
        first_bad=file.flaw(bad_events[0][0]) if bad_events else "",
        in_receipt={
            "energy_gev": _range(file.energy_gev[written]),
            "theta_rad": _range(file.theta_rad[written]),
            **LabelRange.of(taken(file.more, written)).to_json(),
            "cut_by_energy": cut.counts(file.energy_gev[plan.start : plan.stop][good], ~above_cut[good]),
        },
        hits=counts,
    )


def _range(labels: FloatArray) -> list[float] | None:
    return [float(labels.min()), float(labels.max())] if len(labels) else None


def encode(hits: Hits, labels: Mapping[str, npt.NDArray[Any]]) -> Iterator[bytes]:
    """The serialised `tf.train.Example` of each shower. `labels` (N,), floats or integers, by the features' names."""
    index = hits.cell.astype(np.dtype(index_type(int(np.prod(hits.shape[1:])))).newbyteorder("<"))
    value = hits.value.astype("<f4")
    edges = hits.edges()
    for row in range(len(hits)):
        inside = slice(edges[row], edges[row + 1])
        scalars = {name: values[row].item() for name, values in labels.items()}
        yield example(index=index[inside].tobytes(), value=value[inside].tobytes(), **scalars)
