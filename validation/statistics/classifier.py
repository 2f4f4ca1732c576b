"""How well a classifier tells the candidate from Monte Carlo: the area under its ROC curve, 0.5 if it cannot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from calopipe.showers.cells import Array, Mask

LEAST_SHOWERS = 50  # a side: with fewer, a classifier that is trained on half of them learns nothing
_ROUNDS = 100
_BINS = 128


def auc(reference: Array, candidate: Array, *, per_event: int, rng: np.random.Generator) -> dict[str, Any]:
    """AUC of gradient-boosted trees on features of showers, `reference` (n, f) and `candidate` (m, f); NaN is allowed.

    `value` is the share of pairs, one shower of each set, in which the candidate scores higher; ties count half.
    `interval` is at 95 %; `p_value` is two-sided, for a true AUC of 0.5. All are None with too few showers.

    The trees learn on one half of the events and are scored on the other half, then the reverse; the two AUCs are
    averaged. An event and its partners (`per_event`, 0 if the sets are not paired) are in the same half.
    The sets should have labels of one distribution, or the classifier tells the beams apart.

    The interval assumes that the two AUCs are fully correlated, as each half is trained on what the other is scored on:
    between halves of Geant4 the correlation is 0.4, and independence would exclude 0.5 in one of eight comparisons.
    """
    if min(len(reference), len(candidate)) < LEAST_SHOWERS:
        return {"value": None, "interval": None, "p_value": None}
    in_first = _half(len(reference), rng)
    partners_first = np.repeat(in_first, per_event) if per_event else _half(len(candidate), rng)
    values, errors = [], []
    for rows, partners in ((in_first, partners_first), (~in_first, ~partners_first)):
        scores = _scores(reference, candidate, rows, partners, seed=int(rng.integers(2**31)))
        value, variance = delong(*scores, per_event=per_event)
        values.append(value)
        errors.append(math.sqrt(variance))
    value, error = float(np.mean(values)), float(np.mean(errors))
    reach = float(stats.norm.ppf(0.975)) * error
    p_value = float(2 * stats.norm.sf(abs(value - 0.5) / error)) if error > 0 else float(value == 0.5)
    return {"value": value, "interval": [max(value - reach, 0.0), min(value + reach, 1.0)], "p_value": p_value}


def delong(negative: Array, positive: Array, *, per_event: int = 0) -> tuple[float, float]:
    """AUC of scores `negative` (n,) and `positive` (m,), and the variance of that AUC.

    The method is that of DeLong, DeLong and Clarke-Pearson, Biometrics 44 (1988) 837, computed from mid-ranks in
    n log n steps as in Sun and Xu, IEEE Signal Processing Letters 21 (2014) 1389. If each negative has `per_event`
    positives, in the same order, the components are first summed over an event: Obuchowski, Biometrics 53 (1997) 567.
    """
    n, m = len(negative), len(positive)
    ranks = stats.rankdata(np.concatenate([negative, positive]))
    # For each shower, the share of the other set that is on the right side of it.
    of_negative = 1 - (ranks[:n] - stats.rankdata(negative)) / m
    of_positive = (ranks[n:] - stats.rankdata(positive)) / n
    value = float(of_positive.mean())
    if per_event:
        of_event = of_negative + of_positive.reshape(n, per_event).mean(axis=1)
        return value, float(of_event.var(ddof=1)) / n
    return value, float(of_negative.var(ddof=1) / n + of_positive.var(ddof=1) / m)


def _half(events: int, rng: np.random.Generator) -> Mask:
    """A mask of a random half of the events; this half is scored first."""
    return rng.permutation(events) < events // 2


def _scores(reference: Array, candidate: Array, rows: Mask, partners: Mask, *, seed: int) -> tuple[Array, Array]:
    """Scores of the showers that `rows` and `partners` select, by trees that have learned on the other showers.

    It uses one thread, since a sum over several threads depends on their number.
    """
    trees = HistGradientBoostingClassifier(
        max_iter=_ROUNDS, max_leaf_nodes=15, max_bins=_BINS, early_stopping=True, random_state=seed
    )
    learned = np.concatenate([reference[~rows], candidate[~partners]])
    is_candidate = np.repeat([0, 1], [int((~rows).sum()), int((~partners).sum())])
    with threadpool_limits(limits=1, user_api="openmp"):
        trees.fit(learned, is_candidate)
        return trees.decision_function(reference[rows]), trees.decision_function(candidate[partners])
