"""Drawn showers: cells are hit as often as the densities say, whatever is proposed; they depend on noise and labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from likelihoods import LAYERS, cells_of, drawn, in_graph, independent, new_model, noise_of, of_every_cell
from scipy.special import expit
from scipy.stats import poisson
from showers import SMALL_GEOMETRY

from calopipe.showers.cells import FloatArray
from training.models.autoregressive.densities import scores
from training.models.autoregressive.frame import Labels
from training.models.autoregressive.model import Autoregressive
from training.models.autoregressive.sampling import layer as layer_module
from training.models.autoregressive.sampling import shared_energy
from training.models.autoregressive.sampling.shower import drawn_plan, drawn_showers

_NX, _NY, _ = SMALL_GEOMETRY.shape
_SHOWERS = 400
_RADII = np.array([0, 0.7, 1.5, 2.5, 4, 6, 8, 30])
_AS_IT_IS = 0.75  # the last number of a shower's noise: no reflection in x


def _set_heads(model: Autoregressive, *, log_odds: float, log_width: float) -> None:
    """Let cells be hit with the log odds of their prior plus `log_odds`; scores are normal about their prior."""
    for density in cells_of(model):
        for head, bias in (
            (density._occupied, [log_odds]),
            (density._deposit, np.repeat([0, 0, log_width], density.components)),
        ):
            head.set_weights([np.zeros(head.kernel.shape), np.array(bias)])


def _both_colours(model: Autoregressive) -> None:
    """Let every layer have energy in both colours."""
    last = model.networks["share"]._last
    kernel, bias = last.get_weights()
    bias[:2] = -60.0
    last.set_weights([kernel, bias])


def _labels(showers: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(8)
    angles = rng.uniform(math.radians(62), math.pi / 2, showers)
    return rng.uniform(105, 195, showers).astype(np.float32), angles.astype(np.float32)


@pytest.fixture(scope="module")
def model() -> Autoregressive:
    return of_every_cell(new_model())


class _Drawn:
    """Showers that are drawn only from priors: images (N, x, y, layers), and the cells' radii and chances."""

    def __init__(self, model: Autoregressive, log_odds: float, hits: float = 0) -> None:
        _set_heads(model, log_odds=log_odds, log_width=math.log(0.3))
        _both_colours(model)
        self.energy_gev, theta = _labels(_SHOWERS)
        noise = noise_of(model, _SHOWERS)
        noise[:, -1] = _AS_IT_IS
        with pytest.MonkeyPatch.context() as patch:
            if hits:  # so many of each colour
                patch.setattr(shared_energy, "drawn_count", lambda *_: tf.fill([_SHOWERS], float(hits)))
            else:
                patch.setattr(shared_energy, "hit", independent)  # whatever the number of hits
            self.images = drawn(model, self.energy_gev, theta, noise)
        labels = Labels(tf.constant(self.energy_gev), tf.constant(theta))
        self.plan = drawn_plan(model.networks, labels, tf.constant(noise[:, :-3]))
        axis = self.plan.axis.numpy()
        dx = np.arange(_NX)[None, None] - 8 - axis[..., 0, None]  # (N, layers, x)
        dy = np.arange(_NY)[None, None] - 8 - axis[..., 1, None]
        self.radius = np.hypot(dx[..., None], dy[..., None, :]).transpose(0, 2, 3, 1)
        self.odds, self.score = (self._prior(model, name) for name in ("odds", "score"))
        self.store = model._store
        middle = np.rint(axis).astype(int)
        busy = self.plan.cells.numpy() / model._store["layer_cells"].numpy()
        self.chance = self._chance(model, busy, middle)
        at = np.indices((_NX, _NY))[:, None, :, :, None] - 8 - np.moveaxis(middle, -1, 0)[:, :, None, None]
        self.odd = at.sum(0) % 2 == 1  # (N, x, y, layers), from the cell that the axis meets
        filled = self.plan.energy.numpy()[:, None, None] > 0  # a few layers are drawn empty
        self.probability = expit(self.odds + log_odds) * filled

    def _prior(self, model: Autoregressive, name: str) -> npt.NDArray[np.float64]:
        table, knots = model._store[name].numpy().astype(np.float64), model._store[name].shape[1]
        place = np.log1p(self.radius / 0.5) / 0.15
        found = np.empty(self.radius.shape)
        for number in range(LAYERS):
            found[..., number] = np.interp(place[..., number], np.arange(knots), table[number])
        return found

    @staticmethod
    def _chance(model: Autoregressive, busy: Any, middle: Any) -> npt.NDArray[np.float64]:
        """The chance of each cell to be proposed."""
        rate, total = (model._store[name].numpy().astype(np.float64) for name in ("rate", "far_total"))
        found = np.zeros((_SHOWERS, _NX, _NY, LAYERS))
        for shower, layer in np.ndindex(_SHOWERS, LAYERS):
            steps = np.ceil(4 * np.log2(np.clip(busy[shower, layer], 0.05, None) / 0.05) - 1e-5)
            least, most = (draws / max(total[layer], 1) for draws in (32, 256))
            busier = np.clip(0.05 * 2 ** (steps / 4), least, most)
            drawn = 1 - (1 - np.minimum(busier * rate[layer] / 256, 1)) ** 256
            chance = np.where(rate[layer] * max(busier, 1) > 1.2, 1.0, drawn)
            at = np.argwhere(np.ones((2 * _NX - 1, 2 * _NY - 1))) - (_NX - 1, _NY - 1) + middle[shower, layer] + 8
            inside = ((at >= 0) & (at < (_NX, _NY))).all(1)
            found[shower, at[inside, 0], at[inside, 1], layer] = chance[inside]
        return found


@pytest.fixture(scope="module")
def of_priors() -> Autoregressive:
    return new_model()


@pytest.fixture(scope="module", params=[0.0, 2.5], ids=["likely", "likelier than proposed"])
def sampled(of_priors: Autoregressive, request: pytest.FixtureRequest) -> _Drawn:
    return _Drawn(of_priors, request.param)


def test_cells_are_hit_as_often_as_the_densities_say(sampled: _Drawn) -> None:
    """By layer, colour and radius. A cell whose chance is above its chance to be proposed is hit as often as proposed.

    An odd cell beside an even hit is always proposed. Given the even cells, odd cells are hit independently.
    """
    hit = sampled.images > 0
    likely = np.minimum(sampled.probability, sampled.chance)
    odd = sampled.odd
    even_hits = np.pad(hit & ~odd, ((0, 0), (1, 1), (1, 1), (0, 0)))
    beside = even_hits[:, 2:, 1:-1] | even_hits[:, :-2, 1:-1] | even_hits[:, 1:-1, 2:] | even_hits[:, 1:-1, :-2]
    likely = np.where(odd & beside, sampled.probability, likely)
    ring = np.digitize(sampled.radius, _RADII)
    seen = 0
    for layer in range(LAYERS):
        for parity in (False, True):
            for number in range(1, len(_RADII)):
                these = (ring[..., layer] == number) & (odd[..., layer] == parity)
                expected = likely[..., layer][these]
                if expected.sum() < 10:
                    continue
                error = np.sqrt((expected * (1 - expected)).sum())
                found = hit[..., layer][these].sum()
                # of nearly sure cells a tenth of one is missed on the average, and now and then a few: no normal number
                few = poisson.isf(1e-6, error**2) if error < 1 else 0
                assert abs(found - expected.sum()) < max(4.5 * error + 0.5, few), (layer, parity, number)
                seen += 1
    assert seen > 50


def _off(sampled: _Drawn) -> npt.NDArray[np.float64]:
    """The scores of hits less their prior means, in the shape of the images; NaN in cells that are not hit."""
    hits = np.argwhere(sampled.images > 0)
    off = np.full(sampled.images.shape, np.nan)
    found = scores(tf.constant(sampled.images[tuple(hits.T)]), tf.constant(hits[:, 3]), sampled.store["spectra"])
    off[tuple(hits.T)] = found - sampled.score[tuple(hits.T)]
    return off


def test_a_hit_alone_holds_what_its_score_says_and_not_what_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """One hit of each colour: their scores are those of the densities, and are not moved to the layers' energies."""
    monkeypatch.setattr(layer_module, "_MOST_OF_PROMISE", np.inf)
    sampled = _Drawn(new_model(), 0.0, hits=1.0)
    off = _off(sampled)
    assert (np.isfinite(off).sum((1, 2)) <= 2).all()
    off = off[np.isfinite(off)]
    assert abs(off.mean()) < 5 * 0.3 / np.sqrt(len(off)) + 0.01
    assert off.std() == pytest.approx(0.3, rel=0.1)
    assert (abs(sampled.images.sum((1, 2)) / sampled.plan.energy.numpy() - 1) > 0.1).mean() > 0.9
    model, most = new_model(), 1e-2
    monkeypatch.setattr(layer_module, "_MOST_OF_PROMISE", most)
    bounded = _Drawn(model, 0.0, hits=1.0)
    # one hit of each colour, and each holds the least deposit or more
    expected = most * bounded.plan.energy.numpy() + 2 * float(model._store["least"])
    assert (bounded.images.sum((1, 2)) <= 1.001 * expected).all()


def test_deposits_are_about_their_prior(sampled: _Drawn) -> None:
    """By radius, apart from the shift that gives the even cells of a layer, or the odd cells, their energy."""
    off = _off(sampled)
    for colour in (sampled.odd, ~sampled.odd):
        these = colour & ~np.isnan(off)
        mean = np.where(these, off, 0).sum((1, 2)) / np.maximum(these.sum((1, 2)), 1)
        off -= np.where(these, mean[:, None, None], 0)
    ring = np.digitize(sampled.radius, _RADII)
    assert np.nanstd(off) == pytest.approx(0.3, rel=0.1)
    for number in range(2, 6):
        these = off[(ring == number) & ~np.isnan(off)]
        assert abs(these.mean()) < 5 * 0.3 / np.sqrt(len(these)) + 0.01


def test_a_shower_does_not_depend_on_its_batch(model: Autoregressive) -> None:
    energy, theta = _labels(7)
    theta[::2] = np.float32(math.pi) - theta[::2]
    noise = noise_of(model, 7)
    seven, three = drawn(model, energy, theta, noise), drawn(model, energy[4:], theta[4:], noise[4:])
    np.testing.assert_array_equal(three > 0, seven[4:] > 0)
    np.testing.assert_allclose(three, seven[4:], rtol=1e-4, atol=1e-5)
    others = drawn(model, energy[4:], theta[4:], noise_of(model, 3, seed=1))
    assert ((others > 0) != (three > 0)).any(axis=(1, 2, 3)).all()


def test_showers_are_mirrored_with_their_angle_and_by_their_noise(model: Autoregressive) -> None:
    energy, theta = _labels(8)
    noise = noise_of(model, 8)
    usual = drawn(model, energy, theta, noise)
    mirrored = drawn(model, energy, np.float32(math.pi) - theta, noise)
    np.testing.assert_array_equal(mirrored > 0, usual[:, :, ::-1] > 0)
    np.testing.assert_allclose(mirrored, usual[:, :, ::-1], rtol=1e-3, atol=1e-4)
    noise[:, -1] = 1 - 2.0**-24 - noise[:, -1]
    np.testing.assert_array_equal(drawn(model, energy, theta, noise), usual[:, ::-1])


def test_what_xla_compiles_of_static_shapes_makes_the_same_showers(model: Autoregressive) -> None:
    energy, theta = _labels(5)
    noise = noise_of(model, 5)
    expected = drawn(model, energy, theta, noise)
    made = in_graph(model, 150, jit_compile=True)(*map(tf.constant, (energy, theta, noise))).numpy()
    np.testing.assert_array_equal(made > 0, expected > 0)
    np.testing.assert_allclose(made, expected, rtol=1e-3, atol=1e-4)


def test_showers_that_static_shapes_have_no_room_for_are_not_thinned(model: Autoregressive) -> None:
    """If a batch needs more cells than the capacity, its last showers are NaN, and the others are complete."""
    energy, theta = _labels(5)
    noise = noise_of(model, 5)
    expected = drawn(model, energy, theta, noise)
    made = in_graph(model, 25)(*map(tf.constant, (energy, theta, noise))).numpy()
    lost = np.isnan(made).any(axis=(1, 2, 3))
    assert lost[-1]
    assert not lost[0]
    np.testing.assert_array_equal(lost, np.sort(lost))
    np.testing.assert_allclose(made[~lost], expected[~lost], rtol=1e-3, atol=1e-4)


def test_a_layer_without_a_hit_has_its_energy_on_the_axis(
    of_priors: Autoregressive, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = of_priors
    monkeypatch.setattr(shared_energy, "hit", lambda chance, *_: tf.zeros_like(chance, tf.bool))
    labels, noise = Labels(*map(tf.constant, _labels(6))), tf.constant(noise_of(model, 6))
    found = drawn_showers(model.networks, labels, noise).numpy()
    assert ((found > 0).sum((1, 2)) == 1).all()
    plan = drawn_plan(model.networks, labels, noise[:, :-3])
    np.testing.assert_allclose(found.sum((1, 2)), plan.energy, rtol=1e-5)
    y = found.sum(1).argmax(1)  # x may be mirrored
    np.testing.assert_array_equal(y, np.rint(plan.axis[..., 1]) + 8)
