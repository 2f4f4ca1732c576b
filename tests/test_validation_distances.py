"""FPD and KPD against closed forms. `test_challenge.py` has them against jetnet."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from showers import make_showers, observed

from validation.measure.observables import FEATURES, SCALARS, features
from validation.statistics import distances as module
from validation.statistics.distances import _frechet, _intercept, distances, fpd, kpd, sizes


def test_subsets_are_as_large_as_the_smaller_set_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sizes(500) == (100, 500)
    assert sizes(1_000_000) == (10_000, 50_000)
    drawn: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "_mmd", lambda first, second: drawn.append((len(first), len(second))) or 0.0)
    for many, few in ((12_000, 11_000), (60, 80), (80, 60)):
        kpd(np.ones((many, 1)), np.ones((few, 1)))
    assert drawn == [(10_000, 10_000)] * 10 + [(60, 60)] * 20


def test_the_line_has_no_negative_slope_or_intercept() -> None:
    inverse = np.linspace(1e-4, 1e-3, 10)
    falling = 2.0 - 100.0 * inverse
    assert _intercept(inverse, falling).value == pytest.approx(falling.mean())
    assert _intercept(inverse, 300.0 * inverse - 0.01).value == 0


def test_frechet_distance_of_known_normals() -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(size=(500, 3))
    values = (values - values.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(values.T))).T  # exactly standard
    assert _frechet(values, 2 * values + np.array([1, 0, 0])) == pytest.approx(1 + 3 * (2 - 1) ** 2)
    flat = values * [1, 1, 0]  # a covariance that cannot be inverted
    assert _frechet(flat, flat + np.array([0, 0, 2])) == pytest.approx(4)


def test_features_are_finite_and_independent() -> None:
    showers = make_showers(events=300)
    showers.cells[:5] = 0
    showers.cells[np.arange(5), 8, 8, np.arange(5)] = 1.0  # all the energy in one cell
    # Were all cells hits, the sparsity would follow from their number.
    showers.cells[:] *= np.random.default_rng(16).lognormal(0, 2, showers.cells.shape)
    found = features(observed(showers))
    assert found.shape == (300, len(FEATURES)) == (300, len(SCALARS) - 1)
    assert np.isfinite(found).all()
    standard = (found - found.mean(axis=0)) / found.std(axis=0)
    assert np.linalg.matrix_rank(standard) == len(FEATURES)


def test_the_document_has_monte_carlos_own_distances_beside_those_of_the_candidate() -> None:
    rng = np.random.default_rng(10)
    reference, candidate, draw = rng.normal(size=(400, 5)), rng.normal(0.5, 1, (300, 5)), 100
    found = distances(reference, candidate, batch=draw)
    assert found is not None
    assert json.loads(json.dumps(found)) == found
    assert found["fpd"]["value"] == pytest.approx(5 * (0.5 / 3) ** 2, rel=0.4)  # the largest of 400 is 3 sigma
    halves = reference[::2], reference[1::2]  # each larger than a draw
    for name, distance in (("fpd", fpd), ("kpd", partial(kpd, batch=draw))):
        assert found[name]["value"] == distance(reference, candidate).value > 3 * abs(found[name]["own"])
        assert found[name]["own"] == distance(*halves).value
        assert found[name]["uncertainty"] == distance(reference, candidate).uncertainty
    assert distances(reference[:99], reference) is distances(reference, reference[:49]) is None
    assert distances(reference[:100], reference[:50], batch=draw) is not None
