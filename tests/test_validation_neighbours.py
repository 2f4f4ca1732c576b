"""Coverage, density and memorisation against loops, closed forms and planted faults."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from judging import rng

from calopipe.showers.cells import Array, FloatArray
from validation.statistics import neighbours
from validation.statistics.neighbours import _coverage_and_density, coverage, memorisation


def covered_and_dense(balls: Array, others: Array) -> tuple[float, float]:
    """Naeem et al.'s definitions, one pair at a time."""
    hold, inside = 0, 0
    for i, ball in enumerate(balls):
        radius = sorted(math.dist(ball, each) for j, each in enumerate(balls) if j != i)[4]
        held = sum(math.dist(ball, other) <= radius for other in others)
        hold, inside = hold + (held > 0), inside + held
    return hold / len(balls), inside / len(others) / 5


def test_a_shower_at_the_edge_of_a_ball_is_in_it() -> None:
    assert _coverage_and_density(np.zeros((6, 1)), np.zeros((2, 1))) == (1.0, 6 / 5)


def test_three_blocks_agree_with_loops() -> None:
    reference, candidate = rng(1).normal(size=(150, 3)) * [1, 10, 100], rng(2).normal(size=(150, 3)) * [1, 10, 60]
    found = coverage(reference, candidate, per_event=1, rng=rng(3))
    blocks = rng(3).permutation(150).reshape(3, 50)
    mine, theirs = reference / reference.std(axis=0), candidate / reference.std(axis=0)
    own = np.mean([covered_and_dense(mine[blocks[i]], mine[blocks[(i + 1) % 3]]) for i in range(3)], axis=0)
    other = np.mean([covered_and_dense(mine[blocks[i]], theirs[blocks[(i + 1) % 3]]) for i in range(3)], axis=0)
    assert (found.own_coverage, found.own_density) == pytest.approx(tuple(own))
    assert (found.coverage.value, found.density.value) == pytest.approx(tuple(other / own))


def test_monte_carlos_own_coverage_is_that_of_exchangeable_showers() -> None:
    values = rng(4).normal(size=(8_400, 2))
    found = coverage(values[:4_200], values[4_200:], per_event=0, rng=rng(5))
    # A ball is empty where the five nearest of n - 1 and n showers are all of its own block.
    expected = 1 - math.prod((349 - i) / (699 - i) for i in range(5))
    assert found.coverage.groups == 12
    assert found.own_coverage == pytest.approx(expected, abs=0.012)  # more than four times the error of 4,200 balls
    assert found.own_density == pytest.approx(1, abs=0.06)
    assert found.floor == pytest.approx(found.coverage.standard_error, rel=0.8)


def test_the_error_is_that_of_a_ratio_of_means_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[tuple[float, float]] = []

    def noted(*pair: Array) -> tuple[float, float]:
        blocks.append(_coverage_and_density(*pair))
        return blocks[-1]

    monkeypatch.setattr(neighbours, "_coverage_and_density", noted)
    monkeypatch.setattr(neighbours, "BOOTSTRAP_RESAMPLES", 20_000)
    values = rng(4).normal(size=(1_000, 2))
    error = coverage(values[:500], values[500:], per_event=0, rng=rng(5)).coverage.standard_error
    own, other = np.array(blocks)[:20, 0].reshape(2, 10)
    away = other - own * other.mean() / own.mean()
    assert error == pytest.approx(away.std(ddof=1) / math.sqrt(10) / own.mean(), rel=0.02)  # no less for ten blocks


def test_a_dropped_mode_is_not_covered() -> None:
    reference = rng(6).normal(size=(3_500, 4))
    candidate = rng(7).normal(size=(9_000, 4))
    found = coverage(reference, candidate[candidate[:, 0] > 0], per_event=0, rng=rng(8))
    assert found.coverage.value + 4 * found.coverage.standard_error < 0.85
    assert found.coverage.replicates.shape == (400,)
    assert found.coverage.replicates.mean() == pytest.approx(found.coverage.value, abs=0.01)
    for estimate in (found.coverage, found.density):
        assert estimate.replicates.std(ddof=1) == pytest.approx(estimate.standard_error)


def test_partners_labels_do_not_help_to_cover() -> None:
    """Each candidate is a copy of its event. Compared with the balls of other events, it covers like Monte Carlo."""
    reference = rng(9).normal(size=(1_000, 4))
    found = coverage(reference, np.repeat(reference, 2, axis=0), per_event=2, rng=rng(10))
    assert (found.coverage.value, found.coverage.standard_error) == (1, 0)
    far = np.repeat(reference, 2, axis=0) + np.tile([[0.0], [1e3]], (1_000, 1))  # one of an event's two takes part
    assert coverage(reference, far, per_event=2, rng=rng(10)).density.value == pytest.approx(0.5, abs=0.1)


def test_few_showers_have_a_value_without_an_error_and_fewer_have_none() -> None:
    values = rng(11).normal(size=(900, 3))
    some = coverage(values[:450], values[450:], per_event=0, rng=rng(12))
    assert 0.8 < some.coverage.value < 1.2
    assert np.isnan([some.coverage.standard_error, some.floor]).all()
    none = coverage(values[:149], values[450:], per_event=0, rng=rng(12))
    assert math.isnan(none.coverage.value)
    assert none.coverage.replicates.shape == (400,)


def test_features_that_say_nothing_are_left_out_and_empty_showers_cover_nothing() -> None:
    values = rng(13).normal(size=(1_200, 3))
    constant = np.concatenate([values, np.full((1_200, 1), 7.0)], axis=1)
    plain, wider = (coverage(v[:600], v[600:], per_event=0, rng=rng(14)) for v in (values, constant))
    assert plain.coverage == wider.coverage
    candidate = values[600:].copy()
    candidate[::2] = np.nan
    halved = coverage(values[:600], candidate, per_event=0, rng=rng(14))
    assert halved.density.value == pytest.approx(plain.density.value / 2, rel=0.15)
    holes = np.where(np.arange(600)[:, None] % 2, np.nan, values[:600])
    assert coverage(holes, candidate, per_event=0, rng=rng(14)).own_coverage < 0.6


def blobs(count: int, seed: int, spread: float = 1.0) -> FloatArray:
    """Points of a correlated normal distribution in twelve dimensions, of order one."""
    return (0.3 * spread * rng(seed).normal(size=(count, 12)) @ np.diag(np.linspace(1, 0.3, 12))).astype(np.float32)


def test_five_percent_of_training_showers_with_noise_are_found() -> None:
    training, candidate = blobs(2_000, 201), blobs(2_000, 203)
    candidate[:100] = training[:100] * (1 + 0.05 * rng(204).normal(size=(100, 12)))
    found = memorisation(training, blobs(2_000, 202), candidate)
    assert found["copied"]
    low, high = found["interval"]
    assert low < found["share"] < high
    assert found["share"] == pytest.approx(0.06, abs=0.012)
    assert found["expected"] == pytest.approx(0.01, rel=0.01)
    assert json.loads(json.dumps(found)) == found


def test_a_generator_of_narrow_showers_is_not_a_copier() -> None:
    found = memorisation(blobs(2_000, 301), blobs(2_000, 302), blobs(2_000, 303, spread=0.5))
    assert found["median_distance_ratio"] < 0.8  # it does come nearer to the training showers
    assert not found["copied"]


def test_memorisation_of_too_few_showers_is_not_judged() -> None:
    for training, reference, candidate in ((50, 199, 50), (0, 200, 50), (50, 200, 0)):
        none = memorisation(blobs(training, 401), blobs(reference, 402), blobs(candidate, 403))
        assert (none["share"], none["copied"]) == (None, False)
    assert memorisation(blobs(50, 401), blobs(200, 402), blobs(50, 403))["share"] is not None


def test_the_median_distance_is_held_against_monte_carlos_own() -> None:
    training = np.zeros((1, 1), dtype=np.float32)
    reference = np.repeat(np.linspace(1, 3, 101, dtype=np.float32), 2)[:, None]
    candidate = np.array([[0.5], [1.0], [9.0]], dtype=np.float32)
    assert memorisation(training, reference, candidate)["median_distance_ratio"] == pytest.approx(1 / 2)
    assert memorisation(reference, reference, candidate)["median_distance_ratio"] is None  # all of it learned from


def test_the_exact_p_value_is_the_share_of_orders_as_extreme() -> None:
    # Of 2 candidates and 100 of Monte Carlo, both below the lowest: one of the 102 * 101 / 2 choices of two places.
    training = np.zeros((1, 1), dtype=np.float32)
    reference = np.concatenate([[[10.0], [1.0 + k / 100]] for k in range(100)]).astype(np.float32)
    found = memorisation(training, reference, np.array([[0.1], [0.2]], dtype=np.float32))
    assert found["p_value"] == pytest.approx(2 / (102 * 101))
    assert found["copied"]
    single = memorisation(training, reference, np.array([[0.1]], dtype=np.float32))
    assert (single["copied"], single["p_value"]) == (False, pytest.approx(1 / 101))
    none = memorisation(training, reference, reference[1::2])  # of these the nearest is no nearer
    assert (none["share"], none["interval"]) == (0, pytest.approx([0, 1 - 0.025**0.01]))
    # between the lowest and the next: nearer than all but two
    found = memorisation(training, reference, np.array([[0.1], [1.005]], dtype=np.float32))
    assert (found["share"], found["expected"]) == (0.5, 1 / 101)
