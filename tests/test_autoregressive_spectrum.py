"""The scores of deposits, whose density has no edges, and the spectra that give deposits their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy.integrate import cumulative_trapezoid
from scipy.stats import norm

from training.models.autoregressive.copula import spectra
from training.models.autoregressive.densities import SCORE_REACH, SCORE_STEP, log_shared, scores
from training.models.autoregressive.sampling.shared_energy import deposits, log_energies

_EDGES = (0.5, 2.0)  # no deposit is less than the first, and none between the second and its double


def _energies(number: int, seed: int = 1) -> Any:
    """Energies of a spectrum that begins at an edge, and has a gap and a tail."""
    rng = np.random.default_rng(seed)
    below = rng.uniform(*_EDGES, number)
    return np.where(rng.random(number) < 0.4, below, 2 * _EDGES[1] + rng.exponential(3.0, number)).astype(np.float32)


@pytest.fixture(scope="module")
def tables() -> Any:
    """The tables of three layers: many hits; hits of twice these energies; no hits."""
    first, second = _energies(20_000), 2 * _energies(20_000, 2)
    parts = [(0, first[:5_000]), (1, second), (0, first[5_000:])]
    return spectra([(np.full(len(each), layer), np.log(each)) for layer, each in parts], 3).astype(np.float32)


def _layer(tables: Any, number: int, score: Any) -> Any:
    place = ((np.asarray(score) + SCORE_REACH) / SCORE_STEP).astype(np.float32)
    return np.exp(log_energies(place, tables[number], np.diff(tables[number]))[0].numpy())


@pytest.mark.parametrize("layer", [0, 1])
def test_the_scores_of_a_layer_are_normal_below_one(tables: Any, layer: int) -> None:
    energy = (1 + layer) * _energies(20_000, 5)
    found = np.sort(scores(energy, np.full(20_000, layer), tables).numpy())
    below = found < 1
    assert below.mean() == pytest.approx(norm.cdf(1), abs=0.04)  # others are counted beside its own
    assert np.abs((np.arange(20_000) + 0.5) / 20_000 - norm.cdf(found))[below].max() < 0.04
    np.testing.assert_allclose(_layer(tables, layer, found), np.sort(energy), rtol=1e-3)


def test_above_one_a_score_rises_with_the_logarithm_as_it_does_just_below(tables: Any) -> None:
    """In the table and beyond it. Energies below the table have scores too."""
    chosen = [0.75, 1, 2, 3.5, 4, 6, 12]
    logs = np.log(_layer(tables, 0, chosen))
    np.testing.assert_allclose((np.diff(logs) / np.diff(chosen))[1:], (logs[1] - logs[0]) / 0.25, rtol=1e-3)
    np.testing.assert_allclose(scores(np.exp(logs), np.zeros(7, int), tables), chosen, atol=2e-3)
    np.testing.assert_allclose(scores(_layer(tables, 0, [-7, -4]), np.zeros(2, int), tables), [-7, -4], atol=0.01)


def test_of_energies_in_steps_the_largest_have_scores_of_some_units() -> None:
    """A step of the read-out holds a fifth of the hits, about the score 1."""
    energy = np.repeat([1.0, 2.0, 3.0, 1000.0], [500, 250, 200, 50])
    tables = spectra([(np.zeros(1000, int), np.log(energy))], 1).astype(np.float32)
    found = scores(np.float32([3.0, 1000.0]), np.zeros(2, int), tables).numpy()
    assert 0.7 < found[0] < 2
    assert found[1] == pytest.approx(8.8, rel=0.1)


@pytest.mark.parametrize("layer", [0, 1])
def test_scores_of_any_smooth_density_have_the_edges_of_the_spectrum(tables: Any, layer: int) -> None:
    """Except for some of a thousand hits that count as hits of the other layer."""
    energy = _layer(tables, layer, np.random.default_rng(3).normal(-0.2, 0.9, size=20_000)) / (1 + layer)
    assert (energy < 0.98 * _EDGES[0]).mean() < 0.01
    assert ((energy > 1.03 * _EDGES[1]) & (energy < 1.97 * _EDGES[1])).mean() < 0.05
    assert ((energy > 0.9 * _EDGES[1]) & (energy < _EDGES[1])).mean() > 0.015
    assert ((energy > 2 * _EDGES[1]) & (energy < 2.2 * _EDGES[1])).mean() > 0.015


def test_a_layer_without_hits_has_the_spectrum_of_all(tables: Any) -> None:
    energy = np.concatenate([_energies(20_000, 7), 2 * _energies(20_000, 8)])
    found = scores(energy, np.full(40_000, 2), tables).numpy()
    found = np.sort(found)[:30_000]  # below one
    assert np.abs((np.arange(30_000) + 0.5) / 40_000 - norm.cdf(found)).max() < 0.02


def test_hits_beyond_the_table_come_to_their_energy(tables: Any) -> None:
    """The last score of the table is 4; the means here have 6 to 15."""
    energy = _layer(tables, 0, [6, 9, 15])
    score = np.random.default_rng(4).normal(0, 0.5, 30).astype(np.float32)
    found = deposits(score, np.ones(30, bool), np.repeat(np.arange(3, dtype=np.int32), 10), 10 * energy, tables[0])
    found, score = found.numpy().reshape(3, 10), score.reshape(3, 10)
    np.testing.assert_allclose(found.sum(1), 10 * energy, rtol=1e-3)
    slope = np.log(energy[1] / energy[0]) / 3
    np.testing.assert_allclose(np.log(found / found[:, :1]), slope * (score - score[:, :1]), atol=1e-3)


def test_a_gap_about_the_score_one_does_not_squeeze_the_core() -> None:
    energy = np.concatenate([np.random.default_rng(6).uniform(0.5, 2, 8_000), np.geomspace(100, 400, 2_000)])
    tables = spectra([(np.zeros(10_000, int), np.log(energy))], 1).astype(np.float32)
    low, high = scores(np.float32([200, 400]), np.zeros(2, int), tables).numpy()
    assert high - low > 0.15


def test_two_deposits_are_drawn_as_they_are_dense() -> None:
    """The density of the first deposit, given the sum: exp(log_shared) times the factor that mixtures do not change.

    The spectrum has an edge. Across a gap Newton's method may not find the shift in its few steps.
    """
    rng = np.random.default_rng(8)
    hits = np.where(rng.random(40_000) < 0.1, rng.uniform(*_EDGES, 40_000), _EDGES[1] + rng.exponential(3.0, 40_000))
    tables = spectra([(np.zeros(40_000, int), np.log(hits))], 1).astype(np.float32)
    means, widths, energy, number = np.array([-0.6, 0.9]), np.array([0.5, 0.8]), 6.0, 20_000
    first = np.linspace(0.02, energy - 0.02, 4_001)
    both = np.stack([first, energy - first], 1).reshape(-1).astype(np.float32)
    score = scores(both, np.zeros(len(both), int), tables)
    mixture = tuple(
        tf.constant(np.tile(each, len(first))[:, None], tf.float32) for each in ([0, 0], means, np.log(widths))
    )
    group = np.repeat(np.arange(len(first), dtype=np.int32), 2)
    shared = log_shared(score, mixture, group, len(first)).numpy().astype(float)
    rise = np.gradient(score.numpy().reshape(-1, 2), first, axis=0) * [1, -1]  # dy/de of both
    density = np.exp(shared) * rise.sum(1)  # prod dy/de times the sum of de/dy
    cumulative = cumulative_trapezoid(density, first, initial=0)
    assert cumulative[-1] == pytest.approx(1, abs=0.02)
    drawn = rng.normal(means, widths, (number, 2)).reshape(-1).astype(np.float32)
    found = deposits(
        drawn, np.ones(2 * number, bool), np.repeat(np.arange(number, dtype=np.int32), 2),
        np.full(number, energy, np.float32), tables[0],
    ).numpy().reshape(-1, 2)  # fmt: skip
    found = energy * found[:, 0] / found.sum(1)
    below = np.searchsorted(np.sort(found), first) / number
    assert np.abs(below - cumulative / cumulative[-1]).max() < 0.015  # .007 by chance once in 100
