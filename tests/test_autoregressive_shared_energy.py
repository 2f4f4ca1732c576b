"""Deposits that share an energy: which draw of the hits is kept, and how its deposits come to sum to the energy."""

from __future__ import annotations

import numpy as np
import pytest

from training.models.autoregressive.shared_energy import fitting, scaled, stretched

_LEAST = np.float32(1e-6)


@pytest.mark.parametrize(("hits", "allowed"), [(0, 0.3), (3, 0.6), (30, 3.3)])
def test_draws_are_kept_with_the_chances_of_how_well_they_fit(hits: int, allowed: float) -> None:
    expected = np.tile(np.array([0.0, 0.8, 1.0, 1.5], np.float32), (20_000, 1))
    energy = np.full(20_000, 1.0, np.float32)
    chance = np.random.default_rng(1).random(expected.shape).astype(np.float32)
    found = fitting(expected, np.full_like(expected, hits), energy, _LEAST, chance).numpy()
    kept = np.bincount(found, minlength=4) / 20_000
    off = np.log([float(_LEAST), 0.8, 1.0, 1.5]) / allowed
    weight = np.exp(-0.5 * off**2)
    np.testing.assert_allclose(kept, weight / weight.sum(), atol=0.015)


def test_one_hit_is_likelier_where_the_energy_is_that_of_one() -> None:
    """Ten cells, each hit one time in ten with an energy of about 1: of independent draws 35 % have none."""
    rng = np.random.default_rng(2)
    hits = (rng.random((5_000, 8, 10)) < 0.1).sum(2).astype(np.float32)
    kept = fitting(hits, hits, np.ones(5_000, np.float32), _LEAST, rng.random((5_000, 8)).astype(np.float32)).numpy()
    number = hits[np.arange(5_000), kept]
    assert (hits == 1).mean() == pytest.approx(10 * 0.1 * 0.9**9, abs=0.01)
    assert (number == 1).mean() > 0.8


def test_deposits_sum_to_the_energy() -> None:
    rng = np.random.default_rng(3)
    shower = np.sort(rng.integers(0, 50, 400)).astype(np.int32)
    mean = rng.uniform(0.5, 2, 400).astype(np.float32)
    value = (mean * rng.lognormal(0, 0.7, 400)).astype(np.float32)
    energy = rng.uniform(2, 20, 50).astype(np.float32)
    energy[7] = 0
    found = stretched(value, mean, shower, energy, _LEAST).numpy()
    sums = np.bincount(shower, found, minlength=50)
    np.testing.assert_allclose(sums[energy > 0], energy[energy > 0], rtol=0.02)
    exact = scaled(found, shower, energy, _LEAST).numpy()
    np.testing.assert_allclose(np.bincount(shower, exact, minlength=50), energy, rtol=1e-4)


def test_a_deposit_above_its_mean_is_left_and_the_others_make_up_for_it() -> None:
    """Sixteen cells of 1 and one of 5, whose mean is 0.5, that are to hold 17 together."""
    mean = np.array([1.0] * 16 + [0.5], np.float32)
    value = np.array([1.0] * 16 + [5.0], np.float32)
    found = stretched(value, mean, np.zeros(17, np.int32), np.array([17.0], np.float32), _LEAST).numpy()
    assert found.sum() == pytest.approx(17, rel=1e-3)
    factor = found[0]  # of cells at their mean; the other's is a tenth as strong in the logarithm
    np.testing.assert_allclose(found[:16], factor)
    assert found[16] == pytest.approx(5 * factor**0.1, rel=1e-5)
    assert found[16] > 4.8 > 5 * 17 / 21


def test_deposits_below_their_means_are_scaled_alike() -> None:
    value = np.array([0.2, 0.4, 0.1], np.float32)
    found = stretched(value, value * 2, np.zeros(3, np.int32), np.array([1.4], np.float32), _LEAST)
    np.testing.assert_allclose(found, 2 * value, rtol=1e-5)
