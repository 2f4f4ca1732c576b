"""The cells that a training step takes represent all cells, and get the same input as in sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from likelihoods import as_batch, cells_of, layer_drawing, new_model, of_every_cell, uneven_showers
from showers import SMALL_GEOMETRY

from training.models.autoregressive import cells, frame
from training.models.autoregressive import model as model_module
from training.models.autoregressive.context import COUNT_NUMBERS, SHARE_NUMBERS
from training.models.autoregressive.densities import BETWEEN, log_mixture, log_shared, scores
from training.models.autoregressive.model import Autoregressive
from training.models.autoregressive.sampling import shared_energy
from training.models.base import Batch
from training.models.randomness import Draws

Array = npt.NDArray[Any]

_NX, _NY, _LAYERS = SMALL_GEOMETRY.shape
_SHOWERS = 3


@pytest.fixture(scope="module")
def model() -> Autoregressive:
    return of_every_cell(new_model())


def _view(model: Autoregressive, events: int, seed: int = 1) -> Batch:
    return model.view(as_batch(*uneven_showers(events=events, seed=seed)), Draws.of(1, 2, 3))


def _image(view: Batch, shower: int = 0) -> Array:
    """Energies (x, y, layer) of a shower, in its reflected frame."""
    image = np.zeros(SMALL_GEOMETRY.shape)
    for (x, y, layer), value in zip(view["place"][shower].numpy(), view["value"][shower].numpy(), strict=True):
        image[x, y, layer] += value
    return image


def _colours(view: Batch, place: Any) -> Array:
    """The colours of cells `place` (cells, 4): 0 at an even number of steps from the cell on the axis, else 1."""
    shower, x, y, layer = np.asarray(place).T
    met = 8 + np.rint(view["axis"].numpy()[shower, layer]).astype(int)
    return (np.abs(x - met[:, 0]) + np.abs(y - met[:, 1])) % 2


def _every_place(showers: int) -> Array:
    return np.array(list(np.ndindex(showers, *SMALL_GEOMETRY.shape)))


def _known(model: Autoregressive, view: Batch, place: Any, *, odd: bool) -> Any:
    return cells.known_in(view, tf.constant(place, tf.int32), model._store, odd=odd)


@pytest.mark.parametrize("odd", [False, True])
def test_what_is_known_of_a_cell_is_what_is_around_it(model: Autoregressive, *, odd: bool) -> None:
    view = _view(model, 2)
    place = _every_place(2)[::3]
    found, radius = (each.numpy() for each in _known(model, view, place, odd=odd))
    assert found.shape[1] == (cells.ODD_INPUTS if odd else cells.EVEN_INPUTS)
    showers = [_image(view, shower) for shower in range(2)]
    wide = [np.pad(np.log1p(each / float(model._store["deposit"])), [(2, 2), (2, 2), (0, 0)]) for each in showers]
    axis = view["axis"].numpy()
    for row, (shower, x, y, layer) in enumerate(place):
        window = wide[shower][x : x + 5, y : y + 5]
        before = {0: [], 1: [0, 0]}.get(layer, [layer - 1, layer - 2])
        around = [window[..., each].ravel() for each in before] or [np.zeros(25)] * 2
        if odd:
            other = np.add.outer(np.arange(5), np.arange(5)) % 2 == 1
            around.append((window[..., layer] * other).ravel())
        shares = [showers[shower][x, y, each] / showers[shower][..., each].sum() for each in before] or [0, 0]
        flat = np.concatenate([*around, shares])
        np.testing.assert_allclose(found[row, : len(flat)], flat, rtol=1e-5, atol=1e-6)
        away = np.array([x - 8, y - 8]) - axis[shower, layer]
        assert radius[row] == pytest.approx(np.hypot(*away), rel=1e-4, abs=1e-5)


def test_shares_are_told_how_the_layers_before_were_shared_by_the_cells_around(model: Autoregressive) -> None:
    view = _view(model, 2)
    known, _ = _known(model, view, cells.met(view, model._store.mesh), odd=False)
    told = cells.of_met(known).numpy().reshape(2, _LAYERS, -1)
    np.testing.assert_array_equal(told[..., 4 + 18 :], known.numpy()[:, 50:].reshape(2, _LAYERS, -1))
    unit = float(model._store["deposit"])
    for shower in range(2):
        wide = np.pad(_image(view, shower), [(2, 2), (2, 2), (0, 0)]) / unit
        for layer in range(_LAYERS):
            x, y = np.rint(view["axis"][shower, layer]).astype(int) + 8
            for back in (1, 2):
                window = wide[x : x + 5, y : y + 5, max(layer - back, 0)] * (layer > 0)
                for part, these in enumerate((np.add.outer(np.arange(5), np.arange(5)) % 2 == 0, np.s_[2:3, 2:3])):
                    mine, whole = window[these].sum(), window.sum()
                    least = 3e-3 * whole + 1e-3
                    expected = np.log((mine + least) / (whole - mine + least))
                    assert told[shower, layer, 2 * (back - 1) + part] == pytest.approx(expected, abs=1e-2)
                nearest = window[1:4, 1:4].reshape(-1) / (window.sum() or 1.0)
                np.testing.assert_allclose(told[shower, layer, 9 * back - 5 : 9 * back + 4], nearest, atol=1e-5)


def test_shares_are_told_of_the_cell_that_the_axis_meets(
    model: Autoregressive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They get its neighbours in the layers before, and the place of the axis in it; sampling gives the same."""
    view = _view(model, 2)
    place, axis = cells.met(view, model._store.mesh).numpy(), view["axis"].numpy()
    expected = [(s, *(np.rint(axis[s, layer]).astype(int) + 8), layer) for s in range(2) for layer in range(_LAYERS)]
    np.testing.assert_array_equal(place, expected)
    known, _ = _known(model, view, place, odd=False)
    told = tf.concat([view["even"][:, : -SHARE_NUMBERS - COUNT_NUMBERS], cells.of_met(known)], 1)
    cases, mixtures = model.networks["share"].cases_and_mixture(told)
    dense = (cases[:, BETWEEN] + log_mixture(_true_logits(view), *mixtures)).numpy().reshape(2, _LAYERS)
    np.testing.assert_allclose(model._of_shares(view, Draws.of(1))["shares"], -dense.sum(1), rtol=1e-5)
    planes = tf.reshape(view["planes"], [2, _LAYERS + 1, _NX * _NY + 1])
    context = tf.reshape(told[:, : -cells.MET_INPUTS], [2, _LAYERS, -1])
    scale, mean = (model._store[f"even_{name}"][: context.shape[-1]] for name in ("scale", "mean"))
    monkeypatch.setattr(shared_energy, "drawn_share", lambda *given: given[1])
    for layer in range(_LAYERS):
        drawing = layer_drawing(model, view, layer, (planes[:, layer], planes[:, max(layer - 1, 0)]))
        about, _ = drawing._known(drawing._middle)
        found = drawing._drawn_share(context[:, layer] * scale + mean, about)
        for mine, other in zip(found, mixtures, strict=True):
            np.testing.assert_allclose(mine, tf.reshape(other, [2, _LAYERS, -1])[:, layer], rtol=1e-3, atol=1e-4)


def _true_logits(view: Batch) -> Any:
    """The logits of the shares of the layers' energies in cells of the colour of the axis."""
    found = []
    for shower, layer in np.ndindex(2, _LAYERS):
        place = np.array([(shower, x, y, layer) for x, y in np.ndindex(_NX, _NY)])
        image = _image(view, shower)[..., layer].reshape(-1)
        even, odd = (image[_colours(view, place) == colour].sum() for colour in (0, 1))
        found.append(np.log(even / odd))
    return tf.constant(np.array(found), tf.float32)


@pytest.mark.parametrize("colour", [0, 1])
def test_the_likelihood_of_some_cells_is_that_of_all(
    model: Autoregressive, colour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mean over draws, for all hits and empty cells of each shower. In half of the layers hits share no energy."""
    view, density, odd = _view(model, _SHOWERS), cells_of(model)[colour], bool(colour)
    images = np.stack([_image(view, shower) for shower in range(_SHOWERS)])
    hits, empty = (place[_colours(view, place) == colour] for place in map(np.argwhere, (images > 0, images == 0)))
    numbers = frame.column(view["sums"], "cells").numpy()[..., colour].reshape(-1)
    monkeypatch.setattr(frame, "ALONE", int(np.median(numbers)))
    few = numbers <= frame.ALONE
    assert 0 < few.sum() < len(few)

    def of_cells(place: Array) -> tuple[Any, Any]:
        known, radius = _known(model, view, place, odd=odd)
        shared = density.of_layers(view[density.name])
        hidden = density.hidden(known, tf.gather(shared, place[:, 0] * _LAYERS + place[:, 3]))
        usual_odds, usual = cells.priors(cells.prior_tables(model._store), tf.constant(place[:, 3], tf.int32), radius)
        odds = density.log_odds(hidden, usual_odds)
        return odds.numpy().astype(np.float64), density.score(hidden, usual)

    odds, mixture = of_cells(hits)
    of_empty, _ = of_cells(empty)
    value, group = tf.constant(images[tuple(hits.T)], tf.float32), hits[:, 0] * _LAYERS + hits[:, 3]
    score = scores(value, tf.constant(hits[:, 3], tf.int32), model._store["spectra"])
    together = log_shared(score, mixture, tf.constant(group, tf.int32), len(few)).numpy()
    alone = np.bincount(group, log_mixture(score, *mixture), len(few))
    missed = np.concatenate([np.log1p(np.exp(-odds)), np.log1p(np.exp(of_empty))])
    truth = {
        "occupancy": np.bincount(np.concatenate([hits, empty])[:, 0], missed),
        "deposits": -np.where(few, alone, together).reshape(_SHOWERS, _LAYERS).sum(1),
    }
    monkeypatch.setattr(model_module, "HITS_A_SHOWER", len(hits) // 2 // _SHOWERS)
    monkeypatch.setattr(model_module, "EMPTY_A_SHOWER", 60)
    losses = tf.function(lambda number: model._of_cells(density.name, view, Draws.of(8, number)), autograph=False)
    found = [losses(tf.constant(k)) for k in range(1000)]
    for name, expected in truth.items():
        values = np.array([each[name] for each in found])
        error = values.std(0) / np.sqrt(len(values))
        assert (np.abs(values.mean(0) - expected) < 4 * error + 1e-4 * np.abs(expected)).all(), name
        assert (error < 0.03 * np.abs(expected)).all(), name  # or the test would say little
