"""Showers dealt anew between two sets, which then differ by chance alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Deals = npt.NDArray[np.bool_]

PERMUTATIONS = 199  # the least p-value is 0.005


def deal(
    reference: int, candidate: int, *, per_event: int, rng: np.random.Generator, permutations: int = PERMUTATIONS
) -> Deals:
    """Which of the pooled showers, the reference's first, play the reference: (1 + permutations, showers).

    The first row is the truth. Every row chooses `reference` showers. Paired showers (`per_event` of the candidate for
    each of the reference) are exchanged within their event only, so that each side keeps every label.
    """
    truth = np.arange(reference + candidate) < reference
    if not per_event:
        dealt = rng.permuted(np.tile(truth, (permutations, 1)), axis=1)
    else:
        player = rng.integers(0, per_event + 1, (permutations, reference))
        copies = player[:, :, None] == np.arange(1, per_event + 1)
        dealt = np.concatenate([player == 0, copies.reshape(permutations, candidate)], axis=1)
    return np.concatenate([truth[None], dealt])


def p_value(statistics: Array) -> float:
    """The share of `statistics` (1 + permutations,) that are no smaller than the first, the observed one.

    This is (1 + count)/(1 + permutations), which rejects a true null no more often than it says. NaN without any,
    or where one is.
    """
    if not len(statistics) or not np.isfinite(statistics).all():
        return float("nan")
    observed = statistics[0]
    return float(np.mean(statistics >= observed - 1e-9 * abs(observed)))  # equal up to the order of a sum is equal
