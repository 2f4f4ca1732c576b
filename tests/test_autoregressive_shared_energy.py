"""Cells that share an energy: how many are hit, and how their deposits come to sum to it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from training.models.autoregressive.sampling.shared_energy import COUNTS, kept, log_chances, scaled, stretched

_LEAST = np.float32(1e-6)


def _of_each_number(chance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How likely 0, 1, 2, 3 and more of cells are hit, cell after cell."""
    found = np.array([1.0])
    for each in chance:
        found = np.convolve(found, [1 - each, each])
    found = np.pad(found, (0, COUNTS))
    return np.append(found[: COUNTS - 1], found[COUNTS - 1 :].sum())


def test_numbers_of_hits_are_as_likely_as_of_independent_cells() -> None:
    """Of none, one, several rare ones, many, and sure ones, mixed in one list."""
    rng = np.random.default_rng(5)
    sets = [[], [0.3], 0.05 * rng.random(40), rng.random(6), [0.9, 0.99, 0.1], 0.3 * rng.random(80)]
    shower = np.repeat(np.arange(len(sets)), [len(each) for each in sets])
    order, chance = rng.permutation(len(shower)), np.concatenate(sets)
    found = log_chances(chance[order].astype(np.float32), shower[order].astype(np.int32), len(sets)).numpy()
    expected = np.stack([_of_each_number(np.array(each)) for each in sets])
    np.testing.assert_allclose(np.exp(found), expected, atol=2e-5)


def test_hits_are_kept_in_the_numbers_that_are_told_and_cells_as_often_as_before() -> None:
    """Ten cells with the energy of one hit, some likelier: of each number the same cells as when drawn alone."""
    rng = np.random.default_rng(6)
    showers, chance = 20_000, np.linspace(0.02, 0.2, 10)
    drawn = rng.random((showers, 8, 10)) < chance
    hits = drawn.sum(2)
    told = np.array([0.02, 0.7, 0.2, 0.06, 0.02])
    independent = _of_each_number(chance)
    logs = (np.tile(np.log(each).astype(np.float32), (showers, 1)) for each in (told, independent))
    which = kept(hits.astype(np.float32), *logs, rng.random((showers, 8)).astype(np.float32)).numpy()
    number = np.minimum(hits[np.arange(showers), which], COUNTS - 1)
    found = np.bincount(number, minlength=COUNTS) / showers
    weight = (told / independent)[np.minimum(hits, COUNTS - 1)]
    weight /= weight.sum(1, keepdims=True)
    expected = np.array([(weight * (np.minimum(hits, COUNTS - 1) == n)).sum(1).mean() for n in range(COUNTS)])
    assert (np.abs(found - expected) < 4.5 * np.sqrt(expected / showers)).all()
    np.testing.assert_allclose(found, told, atol=0.05)  # of eight draws, not of all that there are
    assert np.abs(independent - told).max() > 0.25
    one = drawn[np.arange(showers), which][number == 1].mean(0)
    odds = chance / (1 - chance)
    np.testing.assert_allclose(one, odds / odds.sum(), atol=0.015)


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
