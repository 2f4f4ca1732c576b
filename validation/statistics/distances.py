"""FPD and KPD of two sets of showers, reported beside the criteria; they decide nothing.

Two samples of one truth are at some distance too. So each value has a p-value, from showers dealt anew between the two
sets, and a floor, the distance of Monte Carlo from Monte Carlo.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calopipe.verdict import finite
from validation.measure.observables import Observables
from validation.statistics.fpd import dealt_frechet_distances, dealt_squared_mmds, features, fpd, kpd, standardised
from validation.statistics.permutations import deal, p_value

_LEAST_SHOWERS = 100  # a side: a quarter then has a covariance of fifteen features, and a tenth a mean
_HALVES = 20  # ways to divide the reference in two, whose mean is the floor


def compare_distances(
    reference: Observables, candidate: Observables, *, per_event: int, rng: np.random.Generator
) -> dict[str, Any]:
    """`fpd` and `kpd` of `candidate` from `reference`, neither with an empty shower, as a document for JSON.

    `per_event`: showers of the candidate for each of the reference, in its order, where the two are paired, else 0.
    All `FEATURES` count, standardised by the reference so that those far from zero count too; so the distances are not
    on the scale of published values.

    Each has `value`, `p_value`, `uncertainty` and `floor`: its mean size between two random halves of the reference,
    brought to these numbers of showers. Halves are not paired, so that a paired candidate may lie below the floor.
    None: too few showers, or nothing that varies.
    """
    mine, theirs = features(reference), features(candidate)
    n, m = len(mine), len(theirs)
    showers = {"showers": {"reference": n, "candidate": m}}
    if min(n, m) < _LEAST_SHOWERS or not (np.isfinite(mine).all() and np.isfinite(theirs).all()):
        nothing = {"value": None, "p_value": None, "floor": {"value": None, "scaled": True}, "uncertainty": None}
        return {"fpd": nothing, "kpd": nothing, **showers}
    dealt = deal(n, m, per_event=per_event, rng=rng)
    halves = deal(n // 2, n - n // 2, per_event=0, rng=rng, permutations=_HALVES)[1:]
    nulls = {
        "fpd": dealt_frechet_distances(mine, theirs, dealt),
        "kpd": dealt_squared_mmds(mine, theirs, per_event=per_event, rng=rng),
    }
    first, second = standardised(mine, mine), standardised(theirs, mine)
    found: dict[str, Any] = {}
    for name, distance in (("fpd", fpd), ("kpd", kpd)):
        value, uncertainty = distance(first, second, per_event=per_event, rng=rng)
        of_halves = np.array([distance(first[half], first[~half], per_event=0, rng=rng)[0] for half in halves])
        # the distance of two samples of one truth falls as the number of their showers
        floor = float(np.abs(of_halves).mean()) * (1 / n + 1 / m) / (4 / n)
        found[name] = {
            "value": finite(value),
            "p_value": finite(p_value(nulls[name])),
            "floor": {"value": finite(floor), "scaled": True},
            "uncertainty": uncertainty,
        }
    return found | showers
