"""Uniform numbers of showers and of their cells: what they depend on, and that they look random."""

from __future__ import annotations

import itertools
import zlib

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from scipy.stats import chisquare, kstest

from training.models.randomness import ShowerDraws, hashed_uniform

Numbers = npt.NDArray[np.float32]


def _require_uniform(numbers: Numbers) -> None:
    """Test numbers (R,) in [0, 1) by mean and variance, by their distribution, and by each byte of their bits."""
    assert numbers.dtype == np.float32
    assert numbers.min() >= 0
    assert numbers.max() < 1
    bits = np.asarray(numbers, np.float64) * 2**24
    assert (bits == np.floor(bits)).all()
    assert numbers.mean(dtype=np.float64) == pytest.approx(0.5, abs=4.5 / np.sqrt(12 * len(numbers)))
    assert numbers.var(dtype=np.float64) == pytest.approx(1 / 12, abs=4.5 / np.sqrt(180 * len(numbers)))
    assert kstest(numbers[:50_000], "uniform").pvalue > 1e-3
    for shift in (16, 8, 0):
        counts = np.bincount((bits.astype(np.int64) >> shift) & 255, minlength=256)
        assert chisquare(counts).pvalue > 1e-3, shift


def _require_independent(one: Numbers, other: Numbers) -> None:
    """Test pairs of numbers (R,), (R,): no correlation, and equally many pairs in each of 16 x 16 squares."""
    assert abs(np.corrcoef(one, other)[0, 1]) < 4.5 / np.sqrt(len(one))
    squares = (16 * one).astype(int) * 16 + (16 * other).astype(int)
    assert chisquare(np.bincount(squares, minlength=256)).pvalue > 1e-3


def test_numbers_of_a_shower_are_the_upper_bits_of_philox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Philox has the known answers of its authors (Random123, kat_vectors, philox 4x32 10); then Box and Muller's."""
    draws, known = ShowerDraws(0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    monkeypatch.setattr(zlib, "crc32", lambda _: 0)
    bits = np.array(known) // 2**8
    for numbers in (3, 4):
        np.testing.assert_array_equal(draws.uniform("", (1, numbers)).numpy()[0] * 2.0**24, bits[:numbers])
    u = (bits + 0.5) / 2**24
    radius, angle = np.sqrt(-2 * np.log(u[:2])), 2 * np.pi * u[2:]
    expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    np.testing.assert_allclose(draws.normal("", (1, 3)).numpy()[0], expected[:3], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("numbers", [1, 4, 7])
def test_numbers_of_a_shower_do_not_depend_on_its_batch(numbers: int) -> None:
    whole = ShowerDraws(3, 0).uniform("x", (1200, numbers)).numpy()
    np.testing.assert_array_equal(ShowerDraws(3, 1000).uniform("x", (3, numbers)), whole[1000:1003])
    for row in (0, 1, 1199):
        np.testing.assert_array_equal(ShowerDraws(3, row).uniform("x", (1, numbers)), whole[row : row + 1])
    compiled = tf.function(lambda first: ShowerDraws(3, first).uniform("x", (16, numbers)), jit_compile=True)
    np.testing.assert_array_equal(compiled(tf.constant(500, tf.int64)), whole[500:516])


def test_numbers_of_showers_are_uniform_and_of_each_shower_purpose_and_seed_alone() -> None:
    whole = ShowerDraws(1, 0).uniform("x", (4000, 254)).numpy()
    _require_uniform(whole.ravel())
    _require_independent(whole[:-1].ravel(), whole[1:].ravel())
    _require_independent(whole[:, :-1].ravel(), whole[:, 1:].ravel())
    for others in (ShowerDraws(2, 0).uniform("x", (4000, 254)), ShowerDraws(1, 0).uniform("y", (4000, 254))):
        _require_independent(whole.ravel(), others.numpy().ravel())


def _hashed(keys: npt.NDArray[np.int64], counters: npt.ArrayLike, numbers: int) -> Numbers:
    several = np.asarray(counters)[..., None] * numbers + np.arange(numbers)
    return hashed_uniform(tf.constant(keys, tf.int32), tf.constant(several, tf.int32)).numpy()


def test_a_hash_in_numpys_words_of_32_bits() -> None:
    """Also for keys and counters whose products overflow, in graphs, and by XLA."""
    rng = np.random.default_rng(1)
    keys = rng.integers(-(2**31), 2**31, (500, 2))
    counters = rng.integers(0, 2**31, (500, 5))
    one, other = keys.astype(np.uint32).T[:, :, None]
    word = counters.astype(np.uint32) * np.uint32(0x9E3779B1) + one
    for first, second, key in ((0x85EBCA6B, 0xC2B2AE35, other), (0xCC9E2D51, 0x1B873593, one)):
        word = (word ^ (word >> np.uint32(16))) * np.uint32(first)
        word = (word ^ (word >> np.uint32(13))) * np.uint32(second) + key
    word ^= word >> np.uint32(16)
    traced, compiled = (tf.function(hashed_uniform, jit_compile=compile_) for compile_ in (False, True))
    for function in (hashed_uniform, traced, compiled):
        found = function(tf.constant(keys, tf.int32), tf.constant(counters, tf.int32)).numpy()
        np.testing.assert_array_equal(found * 2.0**24, word >> np.uint32(8))


@pytest.mark.parametrize("key", [[9_283_131, 1_020_847], [0, 0]])
def test_hashes_of_a_shower_are_uniform_and_independent(key: list[int]) -> None:
    """For all cells of the sample's calorimeter, under one key, along columns, counters, rows and layers."""
    cells = 51 * 51 * 25
    found = _hashed(np.tile(key, (cells, 1)), np.arange(cells), 4)
    _require_uniform(found.ravel())
    for one, other in itertools.combinations(range(4), 2):
        _require_independent(found[:, one], found[:, other])
    for apart in (1, 2, 51, 51 * 51):
        for column in range(4):
            _require_independent(found[:-apart, column], found[apart:, column])
    _require_independent(found[:-1, 3], found[1:, 0])


def test_hashes_of_neighbouring_keys_are_independent() -> None:
    """For random keys and the same counters; and for the key 0 and its neighbours."""
    rng = np.random.default_rng(3)
    keys, counters = rng.integers(0, 2**23, (100_000, 2)), rng.integers(0, 65_025, 100_000)
    zero, alike = np.zeros((65_025, 2), np.int64), np.arange(65_025)
    ours, first = _hashed(keys, counters, 2), _hashed(zero, alike, 1)[:, 0]
    _require_uniform(ours.ravel())
    for others in (np.add(keys, [1, 0]), np.add(keys, [0, 1]), keys[:, ::-1]):
        for column, theirs in enumerate(_hashed(others, counters, 2).T):
            _require_independent(ours[:, column], theirs)
    for step in ([1, 0], [0, 1]):
        _require_independent(first, _hashed(np.add(zero, step), alike, 1)[:, 0])
