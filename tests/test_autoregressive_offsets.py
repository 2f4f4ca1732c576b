"""Offsets of the axis: blurred among the totals, and made sharp again by the learned densities of the noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from likelihoods import CONSTANTS, LAYERS, Few, new_model
from showers import SMALL_GEOMETRY

from training.models.autoregressive import frame, totals
from training.models.autoregressive.densities import NumberDensity, log_mixture
from training.models.autoregressive.frame import Labels
from training.models.autoregressive.sampling import shower
from training.models.autoregressive.totals import Drawn
from training.models.randomness import Draws

_OFFSETS = slice(LAYERS, LAYERS + totals.OFFSETS)
_NUMBER = totals.number_of_totals(LAYERS)
_BLUR = np.array([0.4, 0.3, 0.4, 0.3], np.float32)  # at most, of the places and of the slopes
_STORE = Few(
    SMALL_GEOMETRY, **CONSTANTS, mean=np.zeros((frame.MEAN_TERMS, _NUMBER)),
    scale=np.zeros((frame.SCALE_TERMS, _NUMBER)), blur_most=_BLUR,
    blur_scale=np.zeros((frame.SCALE_TERMS, totals.OFFSETS)),  # widths of the beam are 1
)  # fmt: skip


def _showers(offset: Any, seed: int = 1) -> Drawn:
    """Showers with these offsets (N, 4), of all angles, whose energies in the layers differ."""
    rng, number = np.random.default_rng(seed), len(offset)
    values = rng.normal(size=(number, _NUMBER))
    values[:, _OFFSETS] = offset
    energy, terms = rng.uniform(1, 3, (number, LAYERS)), rng.uniform(-1, 1, (number, frame.MEAN_TERMS))
    theta = rng.uniform(1.2, np.pi / 2, number)
    values, energy, theta, terms = (tf.constant(each, tf.float32) for each in (values, energy, theta, terms))
    return Drawn(values, energy, Labels(tf.fill([number], 100.0), theta), terms)


def _normal(*shape: int, seed: int = 2) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).normal(size=shape), tf.float32)


def test_offsets_are_blurred_by_the_width_of_the_beam_and_at_most_a_part_of_a_cell() -> None:
    rng = np.random.default_rng(3)
    labels = rng.uniform(-1, 1, (6, frame.MEAN_TERMS)).astype(np.float32)
    coefficients = rng.normal(-1.5, 1, (frame.SCALE_TERMS, totals.OFFSETS)).astype(np.float32)
    store = Few(SMALL_GEOMETRY, blur_scale=coefficients, blur_most=_BLUR)
    expected = np.minimum(2 * np.exp(labels[:, : frame.SCALE_TERMS] @ coefficients), _BLUR)
    assert (expected < _BLUR).any()
    assert (expected == _BLUR).any()
    drawn, noise = _showers(_normal(6, totals.OFFSETS)), _normal(6, totals.OFFSETS, seed=4)
    moved = (replace(drawn, terms=tf.constant(labels)).with_noise(noise, store).values - drawn.values).numpy()
    np.testing.assert_allclose(moved[:, _OFFSETS], noise * expected, atol=1e-5)
    assert not np.delete(moved, np.r_[_OFFSETS], 1).any()


def test_a_place_is_blurred_by_four_tenths_of_a_cell_at_most() -> None:
    """A slope is blurred by as much over the width of the shower's depth. Constants are of showers."""
    store = new_model().networks["constants"]
    most = store["blur_most"].numpy()
    np.testing.assert_allclose(most[::2], 0.4, rtol=1e-5)
    np.testing.assert_allclose(most[1], most[3])
    assert 0.4 / LAYERS < most[1] <= 0.4


class _Knowing:
    """The density of a noise that is known, (N * 2,); it keeps what it was given."""

    def __init__(self, noise: tf.Tensor) -> None:
        self._noise, self.given = noise, tf.zeros([])

    def mixture(self, given: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        self.given = given
        zero = tf.zeros_like(self._noise)[:, None]
        return zero, self._noise[:, None], zero - 100.0


def _sharp(drawn: Drawn, densities: Any, uniform: tf.Tensor) -> Drawn:
    return shower.sharp(drawn, densities, uniform, _STORE)


def _uniform(showers: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(6).random((showers, 3 * totals.OFFSETS)), tf.float32)


def test_densities_that_know_the_noise_give_the_offsets_back_and_are_told_what_training_tells() -> None:
    drawn, draws = _showers(_normal(20, 4)), Draws.of(3)
    rows = totals.training_rows(drawn, draws, _STORE)
    noise, copies = rows["noise"], drawn.copies()
    assert noise.shape == (20 * totals.COPIES * 2, 2)
    densities = _Knowing(noise[:, 0]), _Knowing(noise[:, 1])
    found = _sharp(copies.with_noise(noise, _STORE), densities, _uniform(20 * totals.COPIES))
    np.testing.assert_allclose(found.values, copies.values, atol=1e-5)
    for density, name in zip(densities, ("place", "slope"), strict=True):
        np.testing.assert_allclose(density.given, rows[f"{name}_given"], atol=2e-4)
    inputs = totals.number_of_inputs(LAYERS, frame.LABEL_INPUTS)
    assert [each.given.shape[1] for each in densities] == [inputs, inputs + 1]


def test_densities_are_told_the_same_in_the_next_cell_but_for_where_the_beam_is() -> None:
    """Phases, slope, depth and labels are the same; only one number differs, the place within the beam."""
    drawn = _showers(_normal(20, 4))
    moved = _showers(_normal(20, 4) + tf.constant([0.0, 0.0, 1.0, 0.0]))
    usual, other = (totals.given_offset(each, _STORE).numpy() for each in (drawn, moved))
    differs = (np.abs(usual - other) > 1e-3).any(0)
    residual = totals.number_of_phases(LAYERS) // 2 + 1  # after the phases of a direction and its slope
    np.testing.assert_array_equal(np.flatnonzero(differs), [residual])
    np.testing.assert_allclose((other - usual)[1::2, residual], 0.25, atol=1e-5)  # of y alone, in fours of the width


def _lattice(showers: int, seed: int) -> Drawn:
    """Showers along a beam that enters several cells. Their places are nearly those of cells."""
    rng = np.random.default_rng(seed)
    cell = rng.integers(-2, 3, (showers, 2)) + 0.02 * rng.normal(size=(showers, 2))
    offset = np.stack([cell[:, 0], np.zeros(showers), cell[:, 1], np.zeros(showers)], 1)
    drawn = _showers(offset, seed)
    return replace(drawn, labels=replace(drawn.labels, theta_rad=tf.fill([showers], np.float32(np.pi / 2))))


def test_densities_learn_the_places_of_the_cells() -> None:
    """From blurred places, which are no places of cells, the places in the original cells are found again."""
    keras.utils.set_random_seed(1)
    inputs = totals.number_of_inputs(LAYERS, frame.LABEL_INPUTS)
    density = NumberDensity("place", inputs, width=32, components=6)
    optimizer, drawn = keras.optimizers.Adam(5e-3), _lattice(2000, 5)

    @tf.function(autograph=False)
    def step(number: tf.Tensor) -> tf.Tensor:
        some = tf.random.stateless_uniform([100], [1, number], 0, 2000, tf.int32)
        values, energy, terms = (tf.gather(each, some) for each in (drawn.values, drawn.energy, drawn.terms))
        batch = Drawn(values, energy, drawn.labels[some], terms)
        rows = totals.training_rows(batch, Draws.of(4, number), _STORE)
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(log_mixture(rows["noise"][:, 0], *density.mixture(rows["place_given"])))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, density.trainable_weights), density.trainable_weights, strict=True)
        )
        return loss

    optimizer.build(density.trainable_weights)
    for number in range(400):
        loss = step(tf.constant(number))
    assert float(loss) < 0  # that of noise of which nothing is known is 1.42

    asked, noise = _lattice(2000, 7), _normal(4000, 2, seed=8) * [1.0, 0.0]
    blurred = asked.with_noise(noise, _STORE)
    found = _sharp(blurred, (density, _Knowing(tf.zeros([4000]))), _uniform(2000))
    true, before, after = (each.values.numpy()[:, [LAYERS, LAYERS + 2]] for each in (asked, blurred, found))
    assert np.abs(before - np.rint(before)).mean() > 0.2  # nearly as if even, which would be 0.25
    away = np.abs(after - np.rint(after))
    assert np.median(away) < 0.06
    assert (away > 0.2).mean() < 0.1
    # cells beside each other are .4 of a width apart, so not all are those that they were
    for cell in range(-2, 3):
        assert (np.rint(after) == cell).mean() == pytest.approx((np.rint(true) == cell).mean(), abs=0.06)
