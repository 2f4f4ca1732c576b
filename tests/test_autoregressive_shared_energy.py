"""Cells that share an energy: which are hit, and how their deposits come to sum to it."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq, least_squares
from scipy.special import expit, logit

from training.models.autoregressive.sampling.shared_energy import hit, scaled, shares

_LEAST = np.float32(1e-6)


def _uniform(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.integers(0, 2**24, shape) * 2.0**-24).astype(np.float32)


def test_so_many_cells_are_hit_as_are_told() -> None:
    """Likely, rare and impossible ones, of showers one after the other; all that can be where more are told."""
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
    """Of eight cells whose chances sum to the number; pairs nearly as often as of all sets of so many, whose cells have
    such odds that each is hit as often.
    """
    chance = np.array([0.9, 0.6, 0.45, 0.4, 0.3, 0.2, 0.1, 0.05])
    chance = expit(brentq(lambda shift: expit(logit(chance) + shift).sum() - number, -9, 9) + logit(chance))
    showers, rng = 40_000, np.random.default_rng(6)
    found = hit(
        np.tile(chance, showers).astype(np.float32), np.repeat(np.arange(showers), 8).astype(np.int32),
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


def test_chances_that_do_not_sum_to_the_number_change_by_one_factor_of_the_odds() -> None:
    chance, showers, rng = np.array([0.95, 0.5, 0.3, 0.1, 0.02]), 40_000, np.random.default_rng(7)
    found = hit(
        np.tile(chance, showers).astype(np.float32), np.repeat(np.arange(showers), 5).astype(np.int32),
        np.full(showers, 3, np.float32), _uniform(rng, 5 * showers), _uniform(rng, showers),
    ).numpy().reshape(showers, 5)  # fmt: skip
    shift = brentq(lambda shift: expit(logit(chance) + shift).sum() - 3, -9, 9)
    np.testing.assert_allclose(found.mean(0), expit(logit(chance) + shift), atol=0.01)


@pytest.mark.parametrize("level", [0, 300, -300])
def test_deposits_are_in_proportion_and_sum_to_the_energy(level: float) -> None:
    """Of any number of hits, wherever their logarithms lie; and cells that are not hit have nothing."""
    rng = np.random.default_rng(3)
    shower = np.sort(rng.integers(0, 50, 400)).astype(np.int32)
    logs, is_hit = rng.normal(-2, 2, 400).astype(np.float32), rng.random(400) < 0.8
    logs[is_hit] += level
    energy = rng.uniform(2, 20, 50).astype(np.float32)
    energy[7] = 0
    found = shares(logs, is_hit, shower, len(energy)).numpy()
    parts = np.where(is_hit, np.exp(logs.astype(float)), 0)
    whole = np.bincount(shower, parts, 50)
    np.testing.assert_allclose(found, parts / np.where(whole > 0, whole, 1)[shower], rtol=1e-4, atol=1e-30)
    value = np.where(is_hit, found * energy[shower], 0).astype(np.float32)
    exact = scaled(value, shower, energy, _LEAST, len(energy)).numpy()
    hit_at_all = np.bincount(shower, is_hit, 50) > 0
    np.testing.assert_allclose(np.bincount(shower, exact, 50)[hit_at_all], energy[hit_at_all], rtol=1e-4)
    assert (exact[~is_hit] == 0).all()
