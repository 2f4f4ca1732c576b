"""How many cells of a layer are hit: chances against all combinations, and draws kept as often as they are told."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from training.models.autoregressive.sampling.shared_energy import COUNTS, kept, log_chances

_CHANCES = np.array([0.9, 0.5, 0.3, 0.12, 0.04, 0.01])
_SHOWERS, _DRAWS = 40_000, 8


def _by_combinations(chances: np.ndarray) -> np.ndarray:
    """Of each number of hits, the last of COUNTS - 1 and more, by all subsets of the cells."""
    found = np.zeros(COUNTS)
    for hit in itertools.product((False, True), repeat=len(chances)):
        found[min(sum(hit), COUNTS - 1)] += math.prod(np.where(hit, chances, 1 - chances))
    return found


@pytest.mark.parametrize("chances", [_CHANCES, np.full(10, 0.2), np.array([0.999, 1e-4, 1e-5]), np.array([0.0, 0.0])])
def test_chances_of_numbers_of_hits_agree_with_all_combinations(chances: np.ndarray) -> None:
    rows = tf.constant(np.tile(chances, 2), tf.float32)
    shower = tf.repeat(tf.range(2), len(chances))
    found = np.exp(log_chances(rows, shower, 3))
    np.testing.assert_allclose(found[:2], np.tile(_by_combinations(chances), (2, 1)), rtol=2e-4, atol=2e-8)
    np.testing.assert_allclose(found[2], [1, 0, 0, 0, 0], atol=1e-8)  # a shower without cells


def test_draws_are_kept_as_often_as_their_number_of_hits_is_told() -> None:
    """And of draws with the same number each cell as often as without choice."""
    rng = np.random.default_rng(1)
    told = np.array([0.0, 0.45, 0.35, 0.15, 0.05])
    drawn = rng.random((_SHOWERS, len(_CHANCES), _DRAWS)) < _CHANCES[:, None]
    independent = np.log(_by_combinations(_CHANCES))[None]
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(told), -1e3)[None]
    given = (tf.constant(np.tile(each, (_SHOWERS, 1)), tf.float32) for each in (logs, independent))
    uniform = tf.constant(rng.random((_SHOWERS, _DRAWS)), tf.float32)
    which = kept(tf.constant(drawn.sum(1), tf.float32), *given, uniform).numpy()
    hit = drawn[np.arange(_SHOWERS), :, which]
    number = hit.sum(1)
    found = np.bincount(np.minimum(number, COUNTS - 1), minlength=COUNTS) / _SHOWERS
    assert found[0] < 1e-3  # where all of the draws are empty
    np.testing.assert_allclose(found, told, atol=0.02)  # of eight draws each
    for count in (1, 2):
        alike = drawn[:, :, 0][drawn[:, :, 0].sum(1) == count]
        error = np.sqrt(0.25 / len(alike) + 0.25 / (number == count).sum())
        np.testing.assert_allclose(hit[number == count].mean(0), alike.mean(0), atol=4 * error)
