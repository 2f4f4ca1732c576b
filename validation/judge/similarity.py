"""How alike two sets are as a whole: distances, a classifier, coverage and memorisation, as parts of a document."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from calopipe.documents import finite
from calopipe.events.splits import Digests
from calopipe.showers.cells import FloatArray
from calopipe.showers.metric import REFERENCE_BINS, Profiles, metric
from validation.judge import faults
from validation.judge.answers import LEVEL
from validation.measure.edges import wide
from validation.measure.observables import Observables, features, shares
from validation.measure.sets import SAMPLE_SHOWERS, Measured, Rows, Samples, Tables, selected, thinned
from validation.statistics.classifier import auc
from validation.statistics.distances import distances
from validation.statistics.estimates import Estimate
from validation.statistics.neighbours import coverage, memorisation

_KPD_SHOWERS = 4_000  # showers in a draw of KPD, which takes seconds
_METRIC_SHOWERS = 5_000  # of each set in a bin: the figure depends on the number, but no longer above this one
_UNKNOWN = {"value": None, "uncertainty": None, "own": None}


def similarity(sample: Samples, *, rng: np.random.Generator) -> dict[str, Any]:
    """`distances`, `classifier` and `neighbours` of samples without empty showers, for the verdict's document."""
    reference, candidate, per_event = sample
    pair = features(reference), features(candidate)
    near = coverage(*pair, per_event=per_event, rng=rng)
    apart = None
    if len(reference):  # the mean is subtracted, as the distances divide by the largest value: it then tells the spread
        centre = pair[0].mean(axis=0)
        apart = distances(*(side - centre for side in pair), batch=_KPD_SHOWERS)
    views: dict[str, Callable[[Observables], npt.NDArray[Any]]] = {"observables": _observables, "cells": _root_shares}
    if wide(reference.energy_gev):
        views = {name: partial(_with_energy, columns) for name, columns in views.items()}
    return {
        "distances": apart or {"fpd": _UNKNOWN, "kpd": _UNKNOWN},
        "classifier": {
            name: _classified(columns(reference), columns(candidate), per_event, rng) for name, columns in views.items()
        },
        "neighbours": {
            "coverage": _relative(near.coverage, near.own_coverage),
            "density": _relative(near.density, near.own_density),
        },
    }


def figure_of_merit(compared: Tables) -> dict[str, Any]:
    """The published figure of merit, `calopipe.showers.metric`, of showers with energy."""
    return metric(_profiles(compared.reference), _profiles(compared.candidate))


def memorised(
    learned: Measured, reference: Digests, candidate: Digests, sample: Samples, *, rng: np.random.Generator
) -> tuple[dict[str, Any], faults.Findings]:
    """Whether a candidate repeats the showers it was trained on: the section of the document, and the cautions.

    Exact copies are sought among all showers, by the digests `reference` and `candidate`, and near copies in samples.
    Showers of the reference in the training set are a caution, too.
    """
    training = thinned(selected(learned.table, ~learned.table.empty), SAMPLE_SHOWERS, rng)
    copies = memorisation(*(_root_shares(table) for table in (training, sample.reference, sample.candidate)))
    section = copies | {"training": len(training)}
    cautions = [
        *faults.copied(candidate, learned.digests, "Showers of the training set"),
        *faults.copied(reference, learned.digests, "Monte Carlo that is in the training set"),
    ]
    if copies["copied"]:
        detail = (
            f"{100 * copies['share']:.1f} % of the candidate's showers are as near to a training shower as only "
            f"{100 * copies['expected']:.1f} % of Monte Carlo's are (p = {copies['p_value']:.1g})"
        )
        count = round(copies["share"] * len(sample.candidate))
        cautions += faults.finding("Training showers repeated", count, detail)
    return section, cautions


def _root_shares(table: Observables) -> FloatArray:
    """The root of each block's share of the incident energy, (N, blocks), for distances between showers.

    Up to a factor, the Euclidean distance of such roots is the Hellinger distance. The root makes the fluctuation of a
    sum of many deposits independent of its size. So the blocks in the core do not dominate the distance.
    """
    return np.sqrt(table.coarse / table.energy_gev[:, None]).astype(np.float32)


def _observables(table: Observables) -> npt.NDArray[Any]:
    """The features of the distances, and the shares of the rings about the axis."""
    return np.concatenate([features(table), shares(table.ring_energy), shares(table.ring_cells)], axis=1)


def _with_energy(columns: Callable[[Observables], npt.NDArray[Any]], table: Observables) -> npt.NDArray[Any]:
    """`columns` and log E, since usual values at one energy are unusual at another."""
    return np.column_stack([columns(table), np.log(table.energy_gev)])


def _classified(
    reference: npt.NDArray[Any], candidate: npt.NDArray[Any], per_event: int, rng: np.random.Generator
) -> dict[str, Any]:
    """AUC of the two sets. Its floor is the AUC of two halves of the reference."""
    separated = auc(reference, candidate, per_event=per_event, rng=rng)
    order = rng.permutation(len(reference))
    half = len(reference) // 2
    floor = auc(reference[order[:half]], reference[order[half:]], per_event=0, rng=rng)
    return separated | {"floor": {"value": floor["value"], "scaled": False}}


def _relative(estimate: Estimate, own: float) -> dict[str, Any]:
    """A mean over blocks relative to Monte Carlo's own, for JSON."""
    value, ends = finite(estimate.value), estimate.interval(LEVEL)
    return {"value": value, "interval": ends and list(ends), "own": None if value is None else own}


def _profiles(rows: Rows) -> Profiles:
    """At most 5,000 showers, evenly spread, in each bin of the metric; the bins share no shower."""
    parts = []
    for chosen in REFERENCE_BINS:
        inside = np.flatnonzero(chosen.holds(rows.energy_gev, rows.theta_rad))
        taken = min(len(inside), _METRIC_SHOWERS)
        inside = inside[np.arange(taken) * len(inside) // max(taken, 1)]  # files may be in the order of an angle
        part = rows[inside]
        profiles = part.along_x, part.along_y, part.layers
        parts.append((part.energy_gev, part.theta_rad, *profiles, part.index_angle_rad))
    energy, theta, along_x, along_y, layers, angle = map(np.concatenate, zip(*parts, strict=True))
    return Profiles(energy, theta, (along_x, along_y, layers), angle)
