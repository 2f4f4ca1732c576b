"""Cells that share an energy: which of them are hit, and how their deposits sum to this energy."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.interpolate import interp1d
from scipy.optimize import brentq, least_squares
from scipy.special import expit, logit

from training.models.autoregressive.densities import SCORE_REACH, SCORES
from training.models.autoregressive.sampling.shared_energy import deposits, energies, hit, scaled

_LEAST = np.float32(1e-6)


def _uniform(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.integers(0, 2**24, shape) * 2.0**-24).astype(np.float32)


def test_so_many_cells_are_hit_as_are_told() -> None:
    """Likely, rare and impossible cells of several showers in a row. If more are told, all possible cells are hit."""
    rng = np.random.default_rng(5)
    shower = np.repeat(np.arange(6), [1, 7, 40, 0, 300, 5]).astype(np.int32)
    chance = rng.choice([0.0, 1e-6, 0.01, 0.3, 0.9], len(shower)).astype(np.float32)
    number = np.array([1, 2, 11, 4, 0, 9], np.float32)
    found = hit(chance, shower, number, _uniform(rng, len(shower)), _uniform(rng, 6)).numpy()
    can = np.bincount(shower, chance > 0, 6)
    np.testing.assert_array_equal(np.bincount(shower, found, 6), np.minimum(number, can))
    assert not found[chance == 0].any()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_cells_are_hit_as_often_as_they_are_likely(number: int) -> None:
    """Eight cells, whose chances sum to three, or have this sum changed by a common factor of all odds. Pairs are hit
    nearly as often as if sets of this number of cells were drawn with odds that give each cell the same chance.
    """
    told = np.array([0.9, 0.6, 0.45, 0.4, 0.3, 0.2, 0.1, 0.05])
    chance = expit(brentq(lambda shift: expit(logit(told) + shift).sum() - number, -9, 9) + logit(told))
    showers, rng = 40_000, np.random.default_rng(6)
    found = hit(
        np.tile(told, showers).astype(np.float32), np.repeat(np.arange(showers), 8).astype(np.int32),
        np.full(showers, number, np.float32), _uniform(rng, 8 * showers), _uniform(rng, showers),
    ).numpy().reshape(showers, 8)  # fmt: skip
    assert (found.sum(1) == number).all()
    assert (np.abs(found.mean(0) - chance) < 4.5 * np.sqrt(chance * (1 - chance) / showers)).all()
    sets = np.array([np.isin(np.arange(8), each) for each in combinations(range(8), number)]).astype(float)

    def pairs(odds: Any) -> Any:
        likely = np.exp(sets @ odds)
        return np.einsum("s,si,sj->ij", likely / likely.sum(), sets, sets)

    odds = least_squares(lambda odds: np.diag(pairs(odds)) - chance, logit(chance)).x
    together = np.einsum("si,sj->ij", found.astype(float), found) / showers
    np.testing.assert_allclose(together, pairs(odds), atol=0.05)


def _rising(rng: np.random.Generator) -> Any:
    """Logarithms of energies by score; they rise steeply in some places and little in others."""
    rise = np.interp(np.arange(SCORES), np.arange(0, 140, 10), rng.choice([0.03, 0.08, 0.2], 14))
    return np.cumsum(rise).astype(np.float32) - 5


@pytest.mark.parametrize("level", [0, 300, -300])
def test_the_scores_of_deposits_are_moved_together_until_these_sum_to_the_energy(level: float) -> None:
    """This holds for any number of hits and any scores. Cells that are not hit hold nothing."""
    rng = np.random.default_rng(3)
    shower = np.sort(rng.integers(0, 50, 400)).astype(np.int32)
    score, is_hit = rng.normal(0, 1, 400).astype(np.float32), rng.random(400) < 0.8
    score[is_hit] += level
    energy, table = rng.uniform(2, 200, 50).astype(np.float32), _rising(rng)
    energy[7] = 0
    found = deposits(score, is_hit, shower, energy, table).numpy()
    scores = np.linspace(-SCORE_REACH, SCORE_REACH, SCORES)
    log_value = interp1d(scores, table.astype(float), fill_value="extrapolate")
    for number in range(50):
        own = is_hit & (shower == number)
        if not own.any() or energy[number] == 0:
            continue

        def values(shift: float, own: Any = own) -> Any:
            return np.exp(log_value(score[own] - level + shift))

        def missing(shift: float, values: Any = values, wanted: float = energy[number]) -> float:
            return float(values(shift).sum() - wanted)

        expected = values(brentq(missing, -9, 9))
        np.testing.assert_allclose(found[own], expected, rtol=0.02)
    own = energies(score[is_hit] - np.float32(level), table)
    np.testing.assert_allclose(own, np.exp(log_value(score[is_hit] - level)), rtol=1e-3)
    value = np.where(is_hit, found, 0).astype(np.float32)
    exact = scaled(value, shower, energy, _LEAST, len(energy)).numpy()
    hit_at_all = np.bincount(shower, is_hit, 50) > 0
    np.testing.assert_allclose(np.bincount(shower, exact, 50)[hit_at_all], energy[hit_at_all], rtol=1e-4)
    assert (exact[~is_hit] == 0).all()
