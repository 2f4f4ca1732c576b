"""The scores of deposits, among which there are no edges, and the spectra that they have theirs from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from training.models.autoregressive.copula import spectra
from training.models.autoregressive.densities import log_energies, scores

_EDGES = (0.5, 2.0)  # no deposit is less than the first, and none between the second and its double


def _energies(number: int, seed: int = 1) -> Any:
    """Of a spectrum that begins at an edge, has a gap, and a tail."""
    rng = np.random.default_rng(seed)
    below = rng.uniform(*_EDGES, number)
    return np.where(rng.random(number) < 0.4, below, 2 * _EDGES[1] + rng.exponential(3.0, number)).astype(np.float32)


@pytest.fixture(scope="module")
def tables() -> Any:
    """Of three layers: many hits; twice these energies; none."""
    first, second = _energies(20_000), 2 * _energies(20_000, 2)
    parts = [(0, first[:5_000]), (1, second), (0, first[5_000:])]
    return spectra([(np.full(len(each), layer), np.log(each)) for layer, each in parts], 3).astype(np.float32)


def _layer(tables: Any, number: int, score: Any) -> Any:
    return np.exp(log_energies(np.asarray(score, np.float32), tables[number])[0].numpy())


@pytest.mark.parametrize("layer", [0, 1])
def test_the_scores_of_a_layer_are_normal_if_hits_count_by_the_root_of_their_energy(tables: Any, layer: int) -> None:
    energy = (1 + layer) * _energies(20_000, 5)
    found = scores(energy, np.full(20_000, layer), tables).numpy()
    order = np.argsort(found)
    weight = np.sqrt(energy[order])
    cumulative = np.cumsum(weight) / weight.sum()
    assert np.abs(cumulative - norm.cdf(found[order])).max() < 0.04  # others are counted beside its own
    np.testing.assert_allclose(_layer(tables, layer, found), energy, rtol=1e-3)


@pytest.mark.parametrize("layer", [0, 1])
def test_scores_of_any_smooth_density_have_the_edges_of_the_spectrum(tables: Any, layer: int) -> None:
    """But for some of a thousand hits that are counted as those of the other layer."""
    energy = _layer(tables, layer, np.random.default_rng(3).normal(-0.2, 0.9, size=20_000)) / (1 + layer)
    assert (energy < 0.98 * _EDGES[0]).mean() < 0.01
    assert ((energy > 1.03 * _EDGES[1]) & (energy < 1.97 * _EDGES[1])).mean() < 0.05
    assert ((energy > 0.9 * _EDGES[1]) & (energy < _EDGES[1])).mean() > 0.015
    assert ((energy > 2 * _EDGES[1]) & (energy < 2.2 * _EDGES[1])).mean() > 0.015


def test_a_layer_without_hits_has_the_spectrum_of_all(tables: Any) -> None:
    energy = np.concatenate([_energies(20_000, 7), 2 * _energies(20_000, 8)])
    found = scores(energy, np.full(40_000, 2), tables).numpy()
    order = np.argsort(found)
    weight = np.sqrt(energy[order])
    assert np.abs(np.cumsum(weight) / weight.sum() - norm.cdf(found[order])).max() < 0.02


def test_energies_beyond_the_table_have_scores_too() -> None:
    tables = spectra([(np.zeros(500, int), np.log(_energies(500)))], 1).astype(np.float32)
    score = np.array([-7, -4, 0, 4, 7], np.float32)
    energy = _layer(tables, 0, score)
    assert (np.diff(energy) > 0).all()
    np.testing.assert_allclose(scores(energy, np.zeros(5, int), tables), score, atol=0.01)
