"""How far apart sets are: FPD, KPD, the AUC of a classifier, coverage, density and memorisation, with their intervals:
against closed forms, loops and planted faults.

`test_challenge.py` has the distances against jetnet.
"""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest
from judging import rng
from scipy import stats
from showers import make_showers, observed

from calopipe.showers.cells import Array, FloatArray
from validation.measure.observables import FEATURES, SCALARS, features
from validation.statistics import classifier, neighbours
from validation.statistics import distances as module
from validation.statistics.classifier import LEAST_SHOWERS, auc, delong
from validation.statistics.distances import _frechet, _intercept, distances, fpd, kpd
from validation.statistics.neighbours import _coverage_and_density, coverage, memorisation


def test_subsets_are_as_large_as_the_smaller_set_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, int]] = []
    for distance in ("_frechet", "_mmd"):
        monkeypatch.setattr(module, distance, lambda first, second: drawn.append((len(first), len(second))) or 0.0)
    for many, few, largest in ((80_000, 70_000, 50_000), (600, 500, 500), (500, 600, 500)):
        drawn.clear()
        fpd(np.ones((many, 1)), np.ones((few, 1)))
        assert (drawn[0][0], *drawn[-1]) == pytest.approx((largest / 5, largest, largest), abs=1)
        assert len(set(drawn)) == 10
    drawn.clear()
    for many, few in ((12_000, 11_000), (60, 80), (80, 60)):
        kpd(np.ones((many, 1)), np.ones((few, 1)))
    assert drawn == [(10_000, 10_000)] * 10 + [(60, 60)] * 20


def test_the_line_has_no_negative_slope_or_intercept() -> None:
    inverse = np.linspace(1e-4, 1e-3, 10)
    falling = 2.0 - 100.0 * inverse
    assert _intercept(inverse, falling)[0] == pytest.approx(falling.mean())
    assert _intercept(inverse, 300.0 * inverse - 0.01)[0] == 0


def test_frechet_distance_of_known_normals() -> None:
    values = rng(6).normal(size=(500, 3))
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
    reference, candidate, draw = rng(10).normal(size=(400, 5)), rng(11).normal(0.5, 1, (300, 5)), 100
    found = distances(reference, candidate, batch=draw)
    assert found is not None
    assert json.loads(json.dumps(found)) == found
    assert found["fpd"]["value"] == pytest.approx(5 * (0.5 / 3) ** 2, rel=0.4)  # the largest of 400 is 3 sigma
    halves = reference[::2], reference[1::2]  # each larger than a draw
    for name, distance in (("fpd", fpd), ("kpd", partial(kpd, batch=draw))):
        value, uncertainty = distance(reference, candidate)
        assert value > 3 * abs(distance(*halves)[0])
        assert found[name] == {"value": value, "uncertainty": uncertainty, "own": distance(*halves)[0]}
    assert distances(reference[:99], reference) is distances(reference, reference[:49]) is None
    assert distances(reference[:100], reference[:50], batch=draw) is not None


def components(negative: Array, positive: Array) -> tuple[Array, Array]:
    """DeLong's structural components, as defined in the paper, pair by pair."""
    wins = [[float(p > n) + 0.5 * float(p == n) for p in positive] for n in negative]
    return np.array([np.mean(row) for row in wins]), np.array(
        [np.mean([row[j] for row in wins]) for j in range(len(positive))]
    )


def test_delong_agrees_with_loops_also_where_scores_tie() -> None:
    negative, positive = rng(1).integers(0, 8, 23) / 2, rng(2).integers(2, 10, 31) / 2
    of_negative, of_positive = components(negative, positive)
    value, variance = delong(negative, positive)
    assert value == pytest.approx(np.mean(of_negative))
    assert variance == pytest.approx(np.var(of_negative, ddof=1) / 23 + np.var(of_positive, ddof=1) / 31)


def test_delong_of_paired_scores_sums_over_an_event() -> None:
    negative, positive = rng(3).normal(size=20), rng(4).normal(0.5, 1, 40)
    of_negative, of_positive = components(negative, positive)
    of_event = [of_negative[i] + (of_positive[2 * i] + of_positive[2 * i + 1]) / 2 for i in range(20)]
    assert delong(negative, positive, per_event=2)[1] == pytest.approx(np.var(of_event, ddof=1) / 20)


@pytest.mark.parametrize("per_event", [0, 2])
def test_the_interval_of_both_halves_is_as_wide_as_that_of_one(per_event: int, monkeypatch: pytest.MonkeyPatch) -> None:
    of_events = [rng(seed).normal(size=200) for seed in (1, 2)]
    halves = [(x, np.repeat(x, 2) / 2 + rng(seed).normal(0.4, 1, 400)) for seed, x in enumerate(of_events)]
    answers = iter(halves)
    monkeypatch.setattr(classifier, "_scores", lambda *_, **__: next(answers))
    found = auc(np.zeros((400, 1)), np.zeros((800, 1)), per_event=per_event, rng=rng(0))
    values, variances = zip(*(delong(*half, per_event=per_event) for half in halves), strict=True)
    reach = 1.959964 * np.sqrt(variances).mean()
    value = np.mean(values)
    assert (found["value"], *found["interval"]) == pytest.approx((value, value - reach, value + reach), rel=1e-6)
    away = (value - 0.5) * 1.959964 / reach
    assert found["p_value"] == pytest.approx(math.erfc(away / math.sqrt(2)), rel=1e-5)  # to either side


@pytest.mark.parametrize(("shift", "ends"), [(2.0, (None, 1.0)), (-2.0, (0.0, None))])
def test_an_interval_ends_at_zero_and_one(
    shift: float, ends: tuple[float | None, float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = np.arange(6) / 2, np.arange(6) / 2 + shift
    monkeypatch.setattr(classifier, "_scores", lambda *_, **__: scores)
    area = auc(np.zeros((50, 1)), np.zeros((50, 1)), per_event=0, rng=rng(0))
    value, variance = delong(*scores)
    reach = 1.959964 * math.sqrt(variance)
    assert max(value - 0.5, 0.5 - value) + reach > 0.5
    expected = [value + side * reach if end is None else end for side, end in zip((-1, 1), ends, strict=True)]
    assert area["interval"] == pytest.approx(expected, rel=1e-6)


def test_halves_are_equal_and_drawn_at_random() -> None:
    first, second = (classifier._half(1_001, rng(seed)) for seed in (1, 2))
    assert first.sum() == second.sum() == 500
    assert 200 < (first & second).sum() < 300  # 250 expected
    assert 200 < first[:500].sum() < 300


def test_a_shift_is_found_up_to_the_best_possible_auc() -> None:
    values = rng(7).normal(size=(4_000, 3))
    candidate = values[2_000:] + np.array([1.0, 0.0, 0.0])
    found = auc(values[:2_000], candidate, per_event=0, rng=rng(8))
    best = float(stats.norm.cdf(1 / math.sqrt(2)))  # that of the first feature itself
    assert best - 0.03 < found["value"] < best + 0.015
    assert found["interval"][0] < found["value"] < found["interval"][1]
    assert found["p_value"] == pytest.approx(0, abs=1e-12)


def test_sets_without_overlap_have_an_auc_of_one() -> None:
    values = rng(9).normal(size=(120, 2))
    found = auc(values, values + 50, per_event=1, rng=rng(10))
    assert found == {"value": 1.0, "interval": [1.0, 1.0], "p_value": 0.0}


def test_an_event_and_its_partners_are_in_the_same_half() -> None:
    # Each event has labels of its own, with no more to learn. Trees that had seen a partner could find its event.
    labels = rng(11).normal(size=(400, 3))
    reference, candidate = np.concatenate([labels, labels[:, :1]], axis=1), np.repeat(labels, 2, axis=0)
    candidate = np.concatenate([candidate, candidate[:, :1]], axis=1)
    found = auc(reference, candidate, per_event=2, rng=rng(12))
    assert found["value"] == pytest.approx(0.5, abs=1e-9)


def test_the_answer_depends_on_the_seed_alone_and_missing_values_are_allowed() -> None:
    values = rng(13).normal(size=(400, 3))
    values[::7, 1] = np.nan
    first, again = (auc(values[:200], values[200:], per_event=0, rng=rng(14)) for _ in range(2))
    assert first == again
    assert first["value"] is not None


def test_too_few_showers_have_no_auc() -> None:
    nothing = {"value": None, "interval": None, "p_value": None}
    few, many = np.zeros((LEAST_SHOWERS - 1, 2)), np.zeros((LEAST_SHOWERS, 2))
    assert auc(few, many, per_event=0, rng=rng(15)) == nothing
    assert auc(many, few, per_event=0, rng=rng(15)) == nothing
    least = auc(many, many, per_event=0, rng=rng(15))
    assert (least["value"], least["p_value"]) == (0.5, 1.0)  # nothing to tell them apart by


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


def test_the_interval_covers_one_as_often_as_it_says() -> None:
    inside, student = 0, float(stats.t.ppf(0.975, 9))
    for trial in range(100):
        values = rng(1_000 + trial).normal(size=(1_000, 3))
        found = coverage(values[:500], values[500:], per_event=0, rng=rng(trial)).coverage
        inside += abs(found.value - 1) < student * found.standard_error
    assert 88 <= inside <= 99  # 95 expected


def test_independent_monte_carlo_is_not_called_copied() -> None:
    found = [memorisation(*(blobs(n, 3 * trial + k) for k, n in enumerate((400, 800, 500)))) for trial in range(10)]
    assert not any(each["copied"] for each in found)
    assert 0.2 < np.median([each["p_value"] for each in found]) < 0.95
