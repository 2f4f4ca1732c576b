"""The example of a user's own model: a progressive GAN of frames of a flow, of 24 x 8 and then 48 x 16 cells."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from flow_models import GRID
from scipy.stats import norm
from trainings import history_of, small_flow

from training import __main__ as command
from training import model_folder
from training.models.base import build
from training.models.source import ModelFile

EXAMPLE = Path(__file__).parent.parent / "examples/progressive_gan.py"


@pytest.fixture(scope="module")
def example() -> Any:
    """The config of the example's file, and its module."""
    config = ModelFile.read(EXAMPLE).run()["progressive"]
    return config, sys.modules[type(config).__module__]


def test_it_grows_is_judged_and_is_exported(tmp_path: Path) -> None:
    paths = ("--model-file", str(EXAMPLE), "--dataset", str(small_flow(tmp_path)), "--output", str(tmp_path / "m"))
    steps = ("--levels", "2", "--growth-steps", "2", "--steps", "4", "--batch", "8", "--evaluation-steps", "2")
    command.main(["fit", *paths, *steps])
    history = history_of(tmp_path / "m")
    assert history[-1]["swd"].keys() == {"24x8", "48x16", "mean"}
    assert model_folder.read_card(tmp_path / "m").trained["chosen_step"] == 4
    # steps 0 to 3: the second resolution begins at step 2, and is in at step 3
    assert history[-1]["train"]["generator"]["growth"] == pytest.approx((0 + 0 + 0 + 1) / 4)
    images = [path for path in (tmp_path / "m/tensorboard").glob("events*") if b"images" in path.read_bytes()]
    assert len(images) == 1
    command.main(["export", "--model", str(tmp_path / "m"), "--output", str(tmp_path / "saved")])
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"](latent=tf.ones([3, 64]))
    assert served["velocity"].shape == (3, *GRID.shape, 2)
    one, next_one = served["velocity"][:, ::2, ::2], served["velocity"][:, 1::2, 1::2]
    assert not np.allclose(one, next_one)  # it is of the second resolution, not the first one with its cells doubled


def test_a_resolution_fades_in_from_what_was_there(example: Any) -> None:
    """At first a finer image is the coarser one with doubled cells, and the discriminator's answer is the same."""
    config, _ = example
    model: Any = build(config.with_values({"levels": 2}), GRID)
    latent, zero = tf.random.stateless_normal([4, 64], [1, 2]), tf.constant(0.0)
    coarse = model.generator(latent, level=0, faded=zero)
    fine = model.generator(latent, level=1, faded=zero)
    np.testing.assert_allclose(fine, np.repeat(np.repeat(coarse, 2, 1), 2, 2), rtol=1e-5, atol=1e-6)
    answers = [model.discriminator(images, level=level, faded=zero) for level, images in enumerate((coarse, fine))]
    np.testing.assert_allclose(answers[0], answers[1], rtol=1e-4, atol=1e-5)
    whole = model.generator(latent, level=1, faded=tf.constant(1.0))
    half = model.generator(latent, level=1, faded=tf.constant(0.5))
    np.testing.assert_allclose(half, (fine + whole) / 2, rtol=1e-4, atol=1e-5)


def test_rates_are_equalised(example: Any) -> None:
    """Weights are of order one, and outputs have twice the inputs' variance, as with He's initial values."""
    layer = example[1].Equalised(16, 400, 1)
    assert float(np.std(layer.kernel)) == pytest.approx(1, abs=0.05)
    assert float(np.var(layer(tf.random.stateless_normal([2, 20, 20, 16], [3, 4])))) == pytest.approx(2, rel=0.15)


def test_quantiles_of_noise_are_those_of_a_normal_distribution(example: Any) -> None:
    """A unit projection of independent normal numbers is normal; the scale of the images does not count."""
    noise = np.random.default_rng(5).normal(size=(40, 16, 16, 2))
    (found,) = example[1]._quantiles(noise, 1)
    expected = norm.ppf((np.arange(len(found)) + 0.5) / len(found))
    assert np.abs(found.mean(1) - expected).max() < 0.05
    (scaled,) = example[1]._quantiles(7 * noise + [1, -3], 1)
    np.testing.assert_allclose(scaled, found, atol=1e-6)
    levels = example[1]._quantiles(noise, 2)
    assert [each.shape for each in levels] == [found.shape] * 2
