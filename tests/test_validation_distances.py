"""Distances against SciPy, closed forms and jetnet; their p-values under the null and on a shift."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from showers import SMALL_GEOMETRY, make_showers

from validation.measure.observables import SCALARS, Observables, observe
from validation.statistics.distances import compare_distances
from validation.statistics.fpd import (
    FEATURES,
    Normals,
    dealt_frechet_distances,
    dealt_squared_mmds,
    extrapolated,
    features,
    fpd,
    frechet_distances,
    kpd,
    scaled,
    squared_mmds,
)
from validation.statistics.permutations import Array, Deals, deal, p_value


def first_of(n: int, m: int) -> Deals:
    return np.arange(n + m)[None] < n


def frechet(reference: Array, candidate: Array) -> float:
    sides = (Normals.of(values, np.ones((1, len(values)), dtype=bool)) for values in (reference, candidate))
    return float(frechet_distances(*sides)[0])


def squared_mmd(reference: Array, candidate: Array) -> float:
    values = np.concatenate([reference, candidate])
    return float(squared_mmds(values, first_of(len(reference), len(candidate)))[0])


def table(*, events: int, seed: int = 0, shift: float = 0.0) -> Observables:
    """Showers with every scalar normal about 10, the candidate's shifted by so many standard deviations."""
    showers = make_showers(events=1)
    one = observe(showers.cells, showers.energy_gev, showers.theta_rad, SMALL_GEOMETRY)
    many = one[np.zeros(events, dtype=int)]
    many.scalars[:] = np.random.default_rng(seed).normal(10 + shift, 1, many.scalars.shape)
    return many


# --- permutations


def test_deals_keep_the_numbers_and_the_events() -> None:
    rng = np.random.default_rng(0)
    unpaired = deal(30, 50, per_event=0, rng=rng)
    assert unpaired.shape == (200, 80)
    assert unpaired[0].tolist() == [True] * 30 + [False] * 50
    assert (unpaired.sum(axis=1) == 30).all()
    assert np.abs(unpaired[1:].mean(axis=0) - 30 / 80).max() < 0.15  # every shower plays either part
    paired = deal(30, 60, per_event=2, rng=rng)
    players = paired[:, :30].astype(int) + paired[:, 30:].reshape(-1, 30, 2).sum(axis=2)
    assert (players == 1).all()  # one reference in each event
    assert np.abs(paired[1:, :30].mean() - 1 / 3) < 0.03


def test_the_p_value_counts_what_is_no_smaller() -> None:
    assert p_value(np.array([2.0, 1.0, 2.0, 3.0])) == 3 / 4
    assert p_value(np.array([-1.0, -2.0, -1.0 - 1e-13, -3.0])) == 2 / 4  # a tie, but for rounding
    assert np.isnan(p_value(np.array([1.0, np.nan])))
    assert np.isnan(p_value(np.empty(0)))


# --- p-values under the null, and on a shift


def nulls(reference: Array, candidate: Array, per_event: int, rng: np.random.Generator) -> list[Array]:
    """FPD's and KPD's distance, as dealt."""
    dealt = deal(len(reference), len(candidate), per_event=per_event, rng=rng)
    return [
        dealt_frechet_distances(reference, candidate, dealt),
        dealt_squared_mmds(reference, candidate, per_event=per_event, rng=rng),
    ]


def p_values(reference: Array, candidate: Array, per_event: int, rng: np.random.Generator) -> list[float]:
    return [p_value(statistics) for statistics in nulls(reference, candidate, per_event, rng)]


def sample(rng: np.random.Generator, per_event: int) -> tuple[Array, Array]:
    """Two sets of one truth; paired events share a label that makes most of their spread."""
    if not per_event:
        return rng.normal(5, 1, (83, 3)), rng.normal(5, 1, (101, 3))
    label = rng.normal(5, 1, (60, 3))
    return tuple(np.repeat(label, k, axis=0) + rng.normal(0, 0.4, (60 * k, 3)) for k in (1, per_event))  # type: ignore[return-value]


@pytest.mark.parametrize("per_event", [0, 1, 2])
def test_p_values_are_uniform_under_the_null(per_event: int) -> None:
    rng = np.random.default_rng(2)
    trials = [nulls(*sample(rng, per_event), per_event, rng) for _ in range(150)]
    for name, statistics in zip(("fpd", "kpd"), np.swapaxes(trials, 0, 1), strict=True):
        found = np.array([p_value(each) for each in statistics])
        for level in (0.05, 0.1, 0.5):  # no more often than it says, to three standard deviations
            assert np.mean(found <= level) < level + 3 * np.sqrt(level * (1 - level) / 150), name
        # Statistics of small sets often tie, where the p-value errs upwards: break the ties by lot, here.
        ties = np.mean(np.isclose(statistics, statistics[:, :1], rtol=1e-9, atol=0), axis=1)
        assert stats.kstest(found - rng.random(150) * ties, "uniform").pvalue > 0.01, name


@pytest.mark.parametrize("per_event", [0, 1, 2])
def test_a_shift_has_the_least_p_value(per_event: int) -> None:
    rng = np.random.default_rng(3)
    reference, candidate = sample(rng, per_event)
    assert p_values(reference, candidate + 1.0, per_event, rng) == [1 / 200] * 2


def test_pairs_show_what_labels_hide() -> None:
    rng = np.random.default_rng(4)
    reference, candidate = sample(rng, 1)
    shifted = candidate - candidate.mean(axis=0) + reference.mean(axis=0) + 0.3  # a third of the labels' spread
    paired, unpaired = (p_values(reference, shifted, per_event, rng) for per_event in (1, 0))
    assert paired[0] == 1 / 200
    assert unpaired[0] > 0.05


# --- FPD and KPD


def recipe(events: int, more_events: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    mixing, offset = rng.normal(size=(4, 4)), np.array([3.0, -1.0, 0.0, 10.0])
    reference = rng.normal(size=(events, 4)) @ mixing + offset
    return reference, 1.1 * rng.normal(size=(more_events, 4)) @ mixing + offset + 0.2


# From jetnet 0.2.5, NumPy 2.4.6 and SciPy 1.17.1 (jetnet/evaluation/gen_metrics.py alone, with its unused imports of
# torch and energyflow left empty), where X, Y = _normalise_features(*recipe(3_000, 2_500)):
JETNET_FRECHET = 0.004898628479697353  # _calculate_frechet_distance(mean X, cov X, mean Y, cov Y)
JETNET_MMD = 0.006027562514470564  # _mmd_poly_quadratic_unbiased(X, Y)
JETNET_FPD = 0.004878835743833273  # fpd(*recipe(3_000, 2_500), min_samples=500, max_samples=2_000)
JETNET_KPD = 0.004260611254035762  # kpd(*recipe(3_000, 2_500), batch_size=500)
JETNET_FPD_50K = 0.002975295133134693, 6.615391677762039e-05  # fpd(*recipe(50_000, 50_000))
JETNET_KPD_50K = 0.0026573554322415482, 0.0009566156495199648  # kpd(*recipe(50_000, 50_000))


def test_whole_samples_agree_with_jetnet() -> None:
    pair = scaled(*recipe(3_000, 2_500))
    assert frechet(*pair) == pytest.approx(JETNET_FRECHET, rel=1e-9)
    assert squared_mmd(*pair) == pytest.approx(JETNET_MMD, rel=1e-9)


def test_the_extrapolation_agrees_with_jetnet_on_its_subsets() -> None:
    first, second = scaled(*recipe(3_000, 2_500))
    sizes = (1 / np.linspace(1 / 500, 1 / 2_000, 10)).astype(int)
    rng = np.random.default_rng(42)
    means = [
        np.mean([frechet(first[rng.choice(3_000, size)], second[rng.choice(2_500, size)]) for _ in range(20)])
        for size in sizes
    ]
    # jetnet's bounded fit is iterative, and stops 7e-8 from the line of least squares.
    assert extrapolated(sizes, np.array(means)) == pytest.approx(JETNET_FPD, abs=1e-7)


def test_the_median_agrees_with_jetnet_on_its_batches() -> None:
    first, second = scaled(*recipe(3_000, 2_500))
    values = []
    for batch in range(10):
        rng = np.random.default_rng(42 + 1_000 * batch)
        values.append(squared_mmd(first[rng.choice(3_000, 500)], second[rng.choice(2_500, 500)]))
    assert np.median(values) == pytest.approx(JETNET_KPD, rel=1e-9)


def test_values_agree_with_jetnet_within_their_errors() -> None:
    reference, candidate = recipe(50_000, 50_000)
    rng = np.random.default_rng(5)
    value, error = fpd(reference, candidate, per_event=0, rng=rng)
    assert value == pytest.approx(JETNET_FPD_50K[0], abs=2 * error)
    assert error < 0.1 * value
    value, error = kpd(reference[:10_000], candidate[:10_000], per_event=0, rng=rng)
    assert value == pytest.approx(JETNET_KPD_50K[0], abs=2 * np.hypot(error, JETNET_KPD_50K[1] / np.sqrt(10)))


def test_frechet_distance_of_known_normals() -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(size=(500, 3))
    values = (values - values.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(values.T))).T  # exactly standard
    assert frechet(values, 2 * values + np.array([1, 0, 0])) == pytest.approx(1 + 3 * (2 - 1) ** 2)
    flat = values * [1, 1, 0]  # a covariance that cannot be inverted
    assert frechet(flat, flat + np.array([0, 0, 2])) == pytest.approx(4)
    assert frechet(values + 1e6, values + 1e6) == 0


def test_what_is_dealt_does_not_depend_on_which_set_is_the_reference() -> None:
    rng = np.random.default_rng(17)
    first, second = rng.normal(size=(40, 3)), rng.normal(2, 5, (40, 3))
    there, back = (dealt_frechet_distances(*pair, first_of(40, 40))[0] for pair in ((first, second), (second, first)))
    assert there == pytest.approx(back)
    there, back = (dealt_squared_mmds(*pair, per_event=0, rng=rng)[0] for pair in ((first, second), (second, first)))
    assert there == pytest.approx(back)


def test_squared_mmd_agrees_with_loops() -> None:
    rng = np.random.default_rng(7)
    first, second = rng.normal(size=(6, 2)), rng.normal(size=(5, 2))

    def mean(a: Array, b: Array, same: bool) -> float:
        return float(
            np.mean([(x @ y / 2 + 1) ** 4 for i, x in enumerate(a) for j, y in enumerate(b) if i != j or not same])
        )

    expected = mean(first, first, True) + mean(second, second, True) - 2 * mean(first, second, False)
    assert squared_mmd(first, second) == pytest.approx(expected)


@pytest.mark.parametrize("per_event", [0, 1, 3])
def test_fpd_has_no_bias_and_its_error_is_that_of_the_value(per_event: int) -> None:
    rng = np.random.default_rng(8)
    pulls = []
    for _ in range(40):
        reference = rng.normal(size=(600, 2))
        noise = rng.normal(size=(600 * max(per_event, 1), 2))
        if per_event:  # correlated with the reference's event, but as wide
            noise = 0.8 * np.repeat(reference, per_event, axis=0) + 0.6 * noise
        candidate = 1.3 * noise + [0.5, 0.0]
        largest = np.abs(reference).max(axis=0)
        truth = float(((np.array([0.5, 0]) / largest) ** 2 + (0.3 / largest) ** 2).sum())
        value, error = fpd(reference, candidate, per_event=per_event, rng=rng)
        pulls.append((value - truth) / error)
    assert abs(np.mean(pulls)) < 3.5 / np.sqrt(40)
    assert 0.7 < np.std(pulls) < 1.4


@pytest.mark.parametrize("distance", [fpd, kpd])
@pytest.mark.parametrize("per_event", [1, 2])
def test_pairs_are_at_no_distance(distance: Callable[..., tuple[float, float]], per_event: int) -> None:
    """Labels shared by both sets, and by showers of one of them, must not look like a distance."""
    rng = np.random.default_rng(9)
    found = []
    for _ in range(40):
        label = rng.normal(size=(400, 2))
        pair = (np.repeat(label, k, axis=0) + rng.normal(0, 0.1, (400 * k, 2)) for k in (1, per_event))
        found.append(distance(*pair, per_event=per_event, rng=rng))
    values, errors = np.array(found).T
    assert abs(np.median(values)) < errors.mean()


def test_features_are_finite_and_independent() -> None:
    showers = make_showers(events=300)
    showers.cells[:5] = 0
    showers.cells[np.arange(5), 8, 8, np.arange(5)] = 1.0  # all the energy in one cell
    # Were all cells hits, the sparsity would follow from their number.
    showers.cells[:] *= np.random.default_rng(16).lognormal(0, 2, showers.cells.shape)
    found = features(observe(showers.cells, showers.energy_gev, showers.theta_rad, SMALL_GEOMETRY))
    assert found.shape == (300, len(FEATURES)) == (300, len(SCALARS) - 1)
    assert np.isfinite(found).all()
    standard = (found - found.mean(axis=0)) / found.std(axis=0)
    assert np.linalg.matrix_rank(standard) == len(FEATURES)


# --- the document


@pytest.mark.parametrize("per_event", [0, 2])
def test_the_document_holds_values_with_p_values_and_floors(per_event: int) -> None:
    reference, candidate = table(events=200), table(events=400, seed=1, shift=0.5)
    found = compare_distances(reference, candidate, per_event=per_event, rng=np.random.default_rng(10))
    assert json.loads(json.dumps(found)) == found
    assert found["showers"] == {"reference": 200, "candidate": 400}
    assert set(found["fpd"]) == set(found["kpd"]) == {"value", "uncertainty", "p_value", "floor"}
    assert found["fpd"]["value"] == pytest.approx(15 * (0.5 / 2.8) ** 2, rel=0.3)  # the largest of 200 is 2.8 sigma
    for entry in (found["fpd"], found["kpd"]):
        assert entry["p_value"] == 1 / 200
        assert entry["value"] > entry["floor"]["value"] > 0


def test_floors_are_what_monte_carlo_shows_at_this_size() -> None:
    rng = np.random.default_rng(11)
    found = [
        compare_distances(table(events=300, seed=2 * k), table(events=900, seed=2 * k + 1), per_event=0, rng=rng)
        for k in range(4)
    ]
    distances: dict[str, Callable[..., tuple[float, float]]] = {"fpd": fpd, "kpd": kpd}
    for name, distance in distances.items():
        pairs = [[rng.normal(size=(events, 15)) for events in (300, 900)] for _ in range(60)]
        typical = np.mean([abs(distance(*pair, per_event=0, rng=rng)[0]) for pair in pairs])
        floor = np.mean([each[name]["floor"]["value"] for each in found])
        assert floor == pytest.approx(typical, rel=0.5)  # unscaled: threefold


@pytest.mark.parametrize("per_event", [0, 1])
def test_a_copy_of_the_reference_is_at_no_distance(per_event: int) -> None:
    reference = table(events=150)
    reference.scalars[:, 3] = 7.0  # one observable that does not vary
    found = compare_distances(reference, reference, per_event=per_event, rng=np.random.default_rng(12))
    assert found["fpd"]["value"] == 0
    assert found["fpd"]["p_value"] == 1
    assert found["kpd"]["p_value"] == 1


@pytest.mark.parametrize("events", [0, 1, 99])
def test_few_showers_have_what_can_be_said(events: int) -> None:
    found = compare_distances(
        table(events=events), table(events=120, seed=1), per_event=0, rng=np.random.default_rng(13)
    )
    for name in ("fpd", "kpd"):
        assert found[name]["value"] is found[name]["p_value"] is found[name]["uncertainty"] is None
        assert found[name]["floor"]["value"] is None


def test_what_is_not_finite_has_no_distance() -> None:
    reference, candidate = table(events=120), table(events=120, seed=1)
    candidate.scalars[7, 2] = np.nan
    found = compare_distances(reference, candidate, per_event=1, rng=np.random.default_rng(14))
    assert found["fpd"]["value"] is found["kpd"]["p_value"] is None


def test_the_same_seed_gives_the_same_document() -> None:
    first, second = (
        compare_distances(table(events=110), table(events=110, seed=1), per_event=0, rng=np.random.default_rng(15))
        for _ in range(2)
    )
    assert first == second
