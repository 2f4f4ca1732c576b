"""Weights that are frozen, not reached or changed in the forward pass: on two replicas as on one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pytest
from servers import said
from showers import make_dataset, make_file

from training.engine.exchange import statistics

Weights = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    """The output of tests/weights_on_replicas.py for sixteen showers."""
    place = tmp_path_factory.mktemp("weights")
    make_dataset(place / "ds", make_file(place / "a.h5", events=16), split_files=["train=*"])
    program = Path(__file__).with_name("weights_on_replicas.py")
    said(sys.executable, program, place / "ds", place / "found.npz")
    return dict(np.load(place / "found.npz"))


def _of(found: Weights, model: str, run: str) -> list[npt.NDArray[Any]]:
    """Each weight of a model after a run, (replicas, ...)."""
    names = sorted(name for name in found if name.startswith(f"{model}/{run}/") and name[-1].isdigit())
    return [found[name] for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("run", ["two", "xla"])
def test_two_replicas_have_the_weights_of_one(found: Weights, run: str) -> None:
    """For any compiler: a teacher, spectral normalisation, and phases that leave weights without gradient."""
    weights = list(zip(*(_of(found, "Mixed", name) for name in ("before", "one", run)), strict=True))
    assert len(weights) == 6 + 3 + 4  # of the teacher, of the normalised layer, of the heads
    for number, (before, (one,), (first, second)) in enumerate(weights):
        np.testing.assert_array_equal(first, second)
        if number < 6:
            np.testing.assert_array_equal(first, before)
        else:
            assert np.abs(one - before).max() > 1e-3
            np.testing.assert_allclose(first, one, rtol=1e-5, atol=1e-5 * np.abs(one).max())


@pytest.mark.slow
@pytest.mark.parametrize("run", ["two", "xla"])
def test_an_overflow_leaves_its_phase_out_on_two_replicas(found: Weights, run: str) -> None:
    """One of two updates is done, from gradients in float16."""
    of_all = (_of(found, "Overflowing", name) for name in ("before", "one", run))
    for before, (one,), (first, second) in zip(*of_all, strict=True):
        np.testing.assert_array_equal(first, second)
        most = np.abs(one - before).max()
        assert 0 < most < 1
        np.testing.assert_allclose(first, one, rtol=0, atol=0.02 * most)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["two", "xla"])
def test_statistics_of_two_replicas_are_the_mean_of_theirs(found: Weights, run: str) -> None:
    """By hand: each replica has its own showers, twice, since there are two phases, at a momentum of 0.9."""
    cells = found[f"Normalised/{run}/cells"].astype(np.float64)
    assert cells.shape == (2, 8, 17, 17, 5)
    assert (cells[0] != cells[1]).any()
    _, _, means, variances, *_ = _of(found, "Normalised", run)
    of_each = [(own.mean(0), own.var(0)) for own in cells.reshape(2, 8, -1)]
    for copy in (0, 1):
        np.testing.assert_allclose(means[copy], 0.19 * np.mean([mean for mean, _ in of_each], 0), rtol=1e-4, atol=1e-6)
        expected = 0.81 + 0.19 * np.mean([variance for _, variance in of_each], 0)
        np.testing.assert_allclose(variances[copy], expected, rtol=1e-4)


def test_what_replicas_have_the_mean_of() -> None:
    """It is of numbers that a forward pass changes, not of frozen weights or a random generator's state."""
    cells = keras.Input((3,))
    normalisation = keras.layers.BatchNormalization()
    spectral = keras.layers.SpectralNormalization(keras.layers.Dense(2))
    inner = keras.Model(cells, spectral(keras.layers.Dropout(0.5)(normalisation(keras.layers.Dense(4)(cells)))))
    teacher = keras.Model(cells, keras.layers.BatchNormalization()(keras.layers.Dense(3)(cells)))
    teacher.trainable = False
    network = keras.Model(cells, inner(teacher(cells)))
    expected = [normalisation.moving_mean, normalisation.moving_variance, spectral.vector_u]
    assert {id(each) for each in statistics(network)} == {id(each) for each in expected}
