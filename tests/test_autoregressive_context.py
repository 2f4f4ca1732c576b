"""The context of a cell from its layer: training computes it for all layers at once, sampling layer after layer."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from likelihoods import LAYERS, adapted, as_batch, labels_of, new_model, uneven_showers

from calopipe.showers.cells import Geometry, Layer
from training.models.autoregressive import frame, totals
from training.models.autoregressive.context import (
    COUNT_NUMBERS,
    SHARE_NUMBERS,
    Plan,
    context,
    context_numbers,
    contexts_of,
    normalised,
    plan,
    with_count,
    with_share,
)
from training.models.autoregressive.densities import share_logit
from training.models.autoregressive.frame import SUMS
from training.models.autoregressive.mesh import Tensor
from training.models.autoregressive.model import Autoregressive


@pytest.fixture(scope="module")
def model() -> Autoregressive:
    return new_model()


@pytest.fixture(autouse=True)
def _some_are_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise `ALONE`, so that the promised energy of some colours is not the energy that they hold."""
    monkeypatch.setattr(frame, "ALONE", 30)


def _planned(model: Autoregressive) -> tuple[Plan, Tensor, Tensor, Tensor]:
    """Plan, sums (N, layers, 2, 16), promised energies (N, layers, 2) and axes of test showers."""
    store = model.networks["constants"]
    batch = as_batch(*uneven_showers(events=12, seed=5))
    noise = partial(tf.random.stateless_normal, seed=[3, 4])
    _, axis, sums, promised, values, present = totals.described(batch, labels_of(batch), noise, store)
    return plan(values, present, labels_of(batch).reflected(store.mesh), store), sums, promised, axis


@pytest.mark.parametrize("odd", [False, True])
def test_contexts_of_all_layers_are_those_of_one_after_the_other(model: Autoregressive, *, odd: bool) -> None:
    planned, sums, promised, _ = _planned(model)
    moments = [float(name.startswith("near")) for name in SUMS]  # to which noise is added
    off = tf.random.stateless_normal([12, len(SUMS)], [1, 2]) * moments
    at_once = contexts_of(planned, sums, promised, off, odd=odd).numpy()
    assert at_once.shape == (12 * LAYERS, context_numbers(LAYERS, odd=odd))
    at_once = at_once.reshape(12, LAYERS, -1)
    before, one, two = off, tf.zeros_like(off), tf.zeros_like(off)
    for layer in range(LAYERS):
        earlier = tf.stack([before, one, two], 1)
        energy = promised[:, layer]
        of_even = (sums[:, layer, 0], energy[:, 0]) if odd else None
        found = context(planned.at(tf.constant(layer)), earlier, of_even)
        if not odd:
            found = with_share(found, share_logit(energy[:, 0], tf.reduce_sum(energy, 1)), tf.reduce_sum(energy, 1))
        found = with_count(found, frame.column(sums[:, layer, int(odd)], "cells"), energy[:, int(odd)])
        # what a difference of sums leaves over, where a budget is all but spent, is small beside its floor
        np.testing.assert_allclose(at_once[:, layer], found, rtol=1e-3, atol=2e-3, err_msg=f"layer {layer}")
        own = tf.reduce_sum(sums[:, layer], 1)
        before, one, two = before + own, own, one
    # what is not drawn before them is told from the next layer on; odd cells are told of the even ones of theirs
    changed = sums.numpy().copy()
    changed[:, 2, int(odd) :] *= 1.5
    other = contexts_of(planned, tf.constant(changed), promised, off, odd=odd).numpy().reshape(at_once.shape)
    differs = (other != at_once)[..., : -COUNT_NUMBERS - (0 if odd else SHARE_NUMBERS)].any(axis=(0, 2))
    np.testing.assert_array_equal(differs, np.arange(LAYERS) > 2)


def test_the_plan_is_the_shower_that_its_totals_are_of(model: Autoregressive) -> None:
    planned, sums, promised, axis = _planned(model)
    whole, energy = sums.numpy().sum(2), promised.numpy().sum(2, dtype=np.float64)
    alone = frame.column(sums, "cells").numpy() <= frame.ALONE
    np.testing.assert_array_equal(promised.numpy() == frame.column(sums, "energy").numpy(), ~alone)
    assert alone.any()
    for layer in range(LAYERS):
        np.testing.assert_allclose(planned.before[:, layer], energy[:, :layer].sum(1), rtol=1e-3)
    np.testing.assert_allclose(planned.energy, energy, rtol=1e-3)
    np.testing.assert_allclose(planned.axis, axis, atol=1e-4)
    for number, name in enumerate(totals.BUDGETS):
        budget = np.repeat(whole[..., SUMS.index(name)].sum(1)[:, None], LAYERS, 1)
        np.testing.assert_allclose(planned.budgets[..., number], budget, rtol=1e-3)
    for number, name in enumerate(totals.MOMENTS):
        moment = np.repeat(whole[..., SUMS.index(name)].sum(1)[:, None], LAYERS, 1)
        np.testing.assert_allclose(planned.moments[..., number], moment, rtol=1e-3, atol=1e-3)


def test_where_the_rest_of_the_energy_has_to_be() -> None:
    """By hand, in cells of each layer: for all energy, and for energy near the axis, where wide cells count less."""
    sizes = [(5.0, 5.0), (10.0, 20.0), (10.0, 20.0)]
    geometry = Geometry.of_layers([Layer(5.0, 1.0, (8, 8), size_mm=size) for size in sizes], 0.02)
    rng = np.random.default_rng(3)
    batch = as_batch(rng.gamma(0.5, size=(6, 8, 8, 3)).astype(np.float32), *np.full((2, 6), [[50], [1.5]], np.float32))
    store = adapted(geometry, batch).networks["constants"]
    _, _, sums, promised, values, present = totals.described(batch, labels_of(batch), tf.zeros, store)
    planned = plan(values, present, labels_of(batch).reflected(store.mesh), store)
    told = contexts_of(planned, sums, promised, tf.zeros([1, len(SUMS)]), odd=False).numpy()
    told = told.reshape(6, 3, -1)[..., : -SHARE_NUMBERS - COUNT_NUMBERS][..., -8:]
    energy, whole, depth = promised.numpy().sum(2), sums.numpy().sum(2), np.arange(3) - float(store["depth"])
    for number, name in enumerate(("x", "y", "near_x", "near_y")):
        side = np.array(sizes)[:, number % 2] / geometry.cell_mm
        weight = 1 / side**2 if "near" in name else np.ones(3)
        for shower, layer in np.ndindex(6, 3):
            moments = [whole[shower, :, SUMS.index(each)] for each in (name, f"{name}_depth")]
            spent = [each[:layer].sum() - (0 if "near" in name else each.sum()) for each in moments]
            rest = (energy[shower] * weight)[layer:]
            mean = np.average(depth[layer:], weights=rest)
            variance = np.average((depth[layer:] - mean) ** 2, weights=rest)
            at, moment = (-each / rest.sum() for each in spent)
            here = at + (moment - at * mean) / (variance + 0.5) * (depth[layer] - mean)
            expected = [np.clip(at / side[layer], -1, 1), np.clip(here / side[layer], -2, 2)]
            np.testing.assert_allclose(told[shower, layer, 2 * number : 2 * number + 2], expected, atol=2e-3)


def test_contexts_are_about_one_wide(model: Autoregressive) -> None:
    """For showers that were not used for the constants. Values that are far off are clipped."""
    planned, sums, promised, _ = _planned(model)
    for odd in (False, True):
        told = contexts_of(planned, sums, promised, tf.zeros([1, len(SUMS)]), odd=odd)
        found = normalised(told, model.networks["constants"], odd=odd).numpy()
        assert np.abs(found).max() <= 6
        assert np.abs(found.mean(0)).max() < 1.2
        assert 0.5 < np.median(found.std(0)) < 1.5
