"""The constants before training: showers are taken evenly from all batches; the copula against closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from likelihoods import new_model, uneven_showers
from scipy.special import ndtri
from scipy.stats import rankdata

from training.models.autoregressive import frame
from training.models.autoregressive.constants import _some, radius_of
from training.models.autoregressive.copula import _about_energies, copula, mean_and_scale

_KNOTS = np.linspace(-4, 4, 129)


def _labels(showers: int, more: int = 0) -> Any:
    """Terms of labels that are nearly independent; the first term is 1."""
    terms = np.random.default_rng(1).uniform(-1, 1, (showers, frame.MEAN_TERMS + more))
    terms[:, 0] = 1
    return terms


def _copula_of(values: Any, known: Any = None) -> Any:
    """The copula of totals (N, D) of showers with the same labels."""
    known = np.ones(values.shape, bool) if known is None else known
    labels = np.eye(frame.MEAN_TERMS)[np.zeros(len(values), int)]
    return copula(values, labels, known, 0.0, np.zeros((len(values), 0)))


def _scores_of_ranks(values: Any) -> Any:
    return ndtri((rankdata(values) - 0.5) / len(values))


def test_mean_and_log_width_are_least_squares_also_in_labels_beside_energy_and_angle() -> None:
    labels, rng = _labels(2000, more=2), np.random.default_rng(2)
    width = np.exp(0.3 * labels[:, 3] - 0.8 * labels[:, -1])
    values = labels @ rng.normal(size=labels.shape[1]) + width * rng.normal(size=2000)
    mean, scale, residual = mean_and_scale(values, labels)
    expected = np.linalg.lstsq(labels, values)[0]
    np.testing.assert_allclose(mean, expected, atol=2e-4)
    left = values - labels @ expected
    terms = np.delete(labels, np.arange(6, 11), axis=1)
    # a thousandth of the residuals' width keeps the logarithm of one that is 0 finite
    of_width = np.linalg.lstsq(terms, np.log(np.abs(left) + 1e-3 * left.std()))[0]
    np.testing.assert_allclose(scale, of_width, atol=2e-3)
    assert (scale[3], scale[-1]) == pytest.approx((0.3, -0.8), abs=0.15)
    np.testing.assert_allclose(residual, left / np.exp(terms @ of_width), rtol=0.01, atol=1e-3)


def test_a_least_squares_fit_of_few_showers_is_that_of_the_equations() -> None:
    """Values on the fitted plane have a residual of zero up to rounding, however small the units are."""
    labels = _labels(60)
    for unit in (1.0, 1e-4):
        coefficients = unit * np.arange(1.0, 12.0)
        mean, _, _ = mean_and_scale(labels @ coefficients, labels)
        np.testing.assert_allclose(mean, coefficients, atol=3e-4 * unit)


@pytest.mark.parametrize("showers", [100, 500, 1000])
def test_quantiles_go_on_by_the_slope_of_the_outer_fiftieths(showers: int) -> None:
    """For a skewed number: its closed form within the sample, and beyond it the chord of the outer two in a hundred."""
    scores, outer = ndtri((np.arange(showers) + 0.5) / showers), showers // 50
    values = np.exp(scores)
    found = _copula_of(np.random.default_rng(3).permutation(values)[:, None])
    again = found["mean"][0] + np.exp(found["scale"][0]) * found["quantiles"][0, :, 0]
    inside = np.abs(scores[0]) > np.abs(_KNOTS)
    np.testing.assert_allclose(again[inside], np.exp(_KNOTS[inside]), rtol=0.03)
    for beyond, edge, inner in ((scores[0] > _KNOTS, 0, outer), (scores[-1] < _KNOTS, -1, -1 - outer)):
        slope = (values[edge] - values[inner]) / (scores[edge] - scores[inner])
        np.testing.assert_allclose(again[beyond], values[edge] + slope * (_KNOTS[beyond] - scores[edge]), atol=5e-3)


def test_correlations_are_those_of_the_scores_of_ranks() -> None:
    """Totals are monotonic in normal numbers. A total that a quarter of the showers have counts as 0 in the others."""
    rng = np.random.default_rng(4)
    normal = rng.normal(size=(2000, 3)) @ np.array([[1, 0.8, -0.5], [0, 0.6, 0.3], [0, 0, 0.8]])
    values = np.stack([normal[:, 0], np.exp(normal[:, 1]), normal[:, 2] ** 3], 1)
    known = np.ones(values.shape, bool)
    known[500:, 1] = False
    found = _copula_of(np.where(known, values, 77.0), known)["colouring"]
    scores = np.stack([_scores_of_ranks(values[:, 0]), np.zeros(2000), _scores_of_ranks(values[:, 2])], 1)
    scores[:500, 1] = _scores_of_ranks(values[:500, 1])
    np.testing.assert_allclose(found @ found.T, np.corrcoef(scores.T), atol=4e-3)
    np.testing.assert_array_equal(found, np.tril(found))


@pytest.mark.parametrize(
    ("showers", "decades", "energies"),
    [
        (5000, 4.0, 9), (4600, 4.0, 5), (5000, 3.9, 5), (2500, 4.0, 5), (2300, 4.0, 3), (5000, 1.9, 3), (1300, 1.0, 3),
        (1100, 4.0, 1), (5000, 0.9, 1), (5000, 0.0, 1),
    ],
)  # fmt: skip
def test_energies_have_quantiles_of_their_own_where_showers_and_their_range_are_enough(
    showers: int, decades: float, energies: int
) -> None:
    """For n energies, half a unit apart, the outer two have N / 2 (n - 1) showers, 300 at least."""
    even = (np.arange(showers) + 0.5) / showers * 2 - 1
    weights = _about_energies(even, decades)
    assert weights.shape == (showers, energies)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    if energies > 1:
        peaks = np.linspace(-1, 1, energies)
        expected = np.maximum(1 - np.abs(even[:, None] - peaks) / (peaks[1] - peaks[0]), 0)
        np.testing.assert_allclose(weights, expected, atol=1e-5)


@pytest.mark.parametrize(("rows", "regressed"), [(49, False), (50, True)])
def test_a_total_that_few_showers_have_is_their_mean_alone(rows: int, regressed: bool) -> None:
    """Its placeholder in the other showers does not count; a total that no shower has is finite."""
    values = np.random.default_rng(6).exponential(size=(200, 1)) + 3
    found, alone = _copula_of(values, np.arange(200)[:, None] < rows), _copula_of(values[:rows])
    for name in ("mean", "scale", "quantiles"):
        np.testing.assert_allclose(found[name], alone[name], rtol=1e-6, atol=1e-9)
    assert found["mean"][0, 0] == pytest.approx(values[:rows].mean(), rel=1e-4)
    assert (found["scale"] != 0).any() == regressed
    assert np.allclose(found["quantiles"][..., 0], _KNOTS) == (not regressed)
    none = _copula_of(values, np.zeros((200, 1), bool))
    assert all(np.isfinite(each).all() for each in none.values())


def _batches(sizes: list[int]) -> list[dict[str, Any]]:
    """Batches of showers of rising energies and rising numbers of hits."""
    found, first = [], 0
    for number, size in enumerate(sizes):
        energy = np.arange(first, first + size, dtype=np.float32)
        first += size
        cell = np.tile(np.arange(number + 2, dtype=np.int32), (size, 1))
        value = np.ones(cell.shape, np.float32) * (energy[:, None] + 1)
        found.append({"energy_gev": energy, "theta_rad": energy / 1000, "cell": cell, "value": value, "pdg": energy})
    return found


@pytest.mark.parametrize("sizes", [[100] * 7, [256, 256, 37], [3] * 50, [1, 400, 2]])
@pytest.mark.parametrize("number", [10, 60, 10_000])
def test_some_showers_are_taken_evenly_from_all_batches(sizes: list[int], number: int) -> None:
    """From showers sorted by energy, every k-th one is taken, with its labels and its hits."""
    found, every = _some(_batches(sizes), number), sum(sizes)
    step = max(1, every // number)
    np.testing.assert_array_equal(found["energy_gev"], np.arange(0, every, step))
    for name, unit in (("theta_rad", 1000), ("pdg", 1)):
        np.testing.assert_allclose(found[name], np.arange(0, every, step) / unit, rtol=1e-6)
    assert found["cell"].shape == found["value"].shape == (len(found["energy_gev"]), len(sizes) + 1)
    of_batch = np.repeat(np.arange(len(sizes)), sizes)[::step]
    hits = found["cell"] >= 0
    np.testing.assert_array_equal(hits.sum(1), of_batch + 2)
    np.testing.assert_array_equal(found["value"], np.where(hits, found["energy_gev"][:, None] + 1, 0))


def test_the_deposits_of_reference_are_those_of_all_batches() -> None:
    cells, _, _ = uneven_showers(events=300)
    constants = new_model().networks["constants"]
    assert float(constants["deposit"]) == pytest.approx(np.median(cells[cells > 0]), rel=1e-6)
    assert float(constants["least"]) == cells[cells > 0].min()


def test_a_radius_holds_its_share_of_the_energy_or_lies_between_two_rings() -> None:
    rng = np.random.default_rng(3)
    radius, energy = rng.exponential(size=(2, 5000))
    for share in (0.5, 0.9):
        found = radius_of(share, radius, energy)
        assert energy[radius < found].sum() / energy.sum() == pytest.approx(share, abs=1e-3)
    rings, beam_in_a_cell = (0.5, 1.5, 2.5, 3.5), (0.1, 1.0, 2**0.5, 2.0)
    for share, places, between in ((0.5, rings, (0, 1)), (0.9, rings, (1, 2)), (0.5, beam_in_a_cell, (0, 1))):
        place = np.array(places)[rng.choice(4, 5000, p=[0.7, 0.17, 0.1, 0.03])]
        found = radius_of(share, place + 0.03 * rng.normal(size=5000), energy)
        low, high = (places[number] for number in between)
        assert low + 0.12 < found < high - 0.12
        assert energy[place > found].sum() / energy.sum() == pytest.approx(1 - share, rel=0.55)
    place = np.array(rings)[rng.choice(4, 5000, p=[0.9, 0.06, 0.03, 0.01])]  # none near it has about half beyond it
    assert radius_of(0.5, place + 0.03 * rng.normal(size=5000), energy) == pytest.approx(0.5, abs=0.1)
    assert radius_of(0.5, np.array([0.3]), np.array([1.0])) == pytest.approx(0.3)
