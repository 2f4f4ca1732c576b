"""The fast convolutions against Keras's own: outputs and gradients in float64, and the error of float32."""

from __future__ import annotations

from collections.abc import Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf
from likelihoods import uneven
from stock import convolution, stock_layers

from training.models import precision
from training.models.gan import convolutions, networks
from training.models.gan.convolutions import Conv3D, arrange, restore
from training.models.gan.networks import SMALL, discriminator_3d, generator_3d
from training.models.precision import arithmetic
from training.models.randomness import Draws

Arrays = dict[str, np.ndarray]
Size = tuple[int, int, int]
Case = tuple[tuple[int, ...], int, Size, Size | str, int]  # input (x, y, layer, c), filters, kernel, pad, upsample


@pytest.fixture
def _float64() -> Iterator[None]:
    with arithmetic("float64"):
        yield


def _fill(network: keras.Model) -> None:
    """Random weights, biases too: for a bias of 0 and an empty image, rectifiers would be at their kink."""
    uneven(network.trainable_variables, 0.1)


def _answers(network: keras.Model, inputs: np.ndarray, *, training: bool = False) -> Arrays:
    """Outputs of a network, and the gradients of their weighted sum with respect to inputs and each variable."""
    values = tf.constant(inputs, network.inputs[0].dtype)
    rng = np.random.default_rng(5)
    with tf.GradientTape() as tape, Draws.of(2).active():
        tape.watch(values)
        outputs = tf.nest.flatten(network(values, training=training))
        total = sum(
            tf.reduce_sum(output * tf.constant(rng.normal(size=output.shape), output.dtype)) for output in outputs
        )
    variables = network.trainable_variables
    gradients = tape.gradient(total, [values, *(variable.value for variable in variables)])
    names = ["inputs", *(variable.path for variable in variables)]
    found = dict(zip(names, gradients, strict=True)) | {f"output {i}": output for i, output in enumerate(outputs)}
    state = {variable.path: variable.numpy() for variable in network.non_trainable_variables}
    return {name: np.asarray(value, np.float64) for name, value in found.items()} | state


def _assert_same(found: Arrays, expected: Arrays, tolerance: float) -> None:
    assert len(found) == len(expected)
    for (name, value), truth in zip(found.items(), expected.values(), strict=True):
        assert np.abs(value - truth).max() <= tolerance * np.abs(truth).max(), name


def _pair(
    shape: tuple[int, ...], filters: int, kernel: Size, pad: Size | str, upsample: int
) -> tuple[keras.Model, keras.Model]:
    """A network of only our layer, and one of Keras's own layer, with equal weights."""
    ours, stock = keras.Input(shape), keras.Input(shape)
    layer = Conv3D(filters, kernel, pad=pad, upsample=upsample)
    flow = convolution(filters, kernel, pad=pad, upsample=upsample)(stock)
    networks = keras.Model(ours, restore(layer(ours if upsample > 1 else arrange(ours)))), keras.Model(stock, flow)
    assert networks[0].output_shape == networks[1].output_shape
    _fill(networks[0])
    networks[1].set_weights(networks[0].get_weights())
    return networks


CASES: list[Case] = [
    ((7, 8, 5, 1), 16, (5, 6, 6), "same", 1),
    ((9, 8, 7, 16), 8, (5, 6, 6), (0, 0, 1), 1),
    ((5, 6, 8, 8), 6, (4, 4, 6), (2, 2, 1), 1),
    ((4, 5, 6, 6), 6, (3, 3, 5), (1, 1, 0), 1),
    ((4, 3, 5, 6), 1, (2, 2, 2), (0, 0, 0), 1),
    ((4, 4, 1, 2), 3, (1, 2, 1), (0, 1, 0), 1),
    ((2, 3, 3, 8), 8, (6, 6, 8), (0, 0, 0), 6),
    ((3, 2, 3, 4), 3, (3, 3, 4), (0, 0, 0), 4),
    ((2, 3, 4, 2), 2, (1, 5, 2), (0, 0, 0), 2),
]


@pytest.mark.parametrize(
    ("devices", "computed_in", "first"),
    [
        ([], "float32", True), (["GPU"], "float32", True), (["TPU"], "float32", False),
        (["GPU"], "bfloat16", True), (["TPU"], "bfloat16", False), (["GPU"], "float16", False),
    ],
)  # fmt: skip
def test_layers_are_first_where_that_is_fast(
    devices: list[str], computed_in: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind] if kind in devices else [])
    with arithmetic(computed_in):
        assert convolutions.layers_first() is first


@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_a_layer_is_kerass(monkeypatch: pytest.MonkeyPatch, first: bool, case: Case) -> None:
    monkeypatch.setattr(convolutions, "layers_first", lambda: first)
    ours, stock = _pair(*case)
    inputs = np.random.default_rng(3).normal(size=(2, *case[0]))
    _assert_same(_answers(ours, inputs), _answers(stock, inputs), 1e-10)


@pytest.mark.usefixtures("_float64")
@pytest.mark.parametrize("training", [False, True])
def test_the_small_networks_are_the_plain_ones(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "_DROPPED", 0.0)  # cells in another order would draw other numbers
    rng = np.random.default_rng(6)
    latent, image = rng.normal(size=(2, 256)), rng.uniform(size=(2, *SMALL.shape, 1))
    for build, inputs in ((generator_3d, latent), (discriminator_3d, image)):
        ours = build(SMALL, momentum=0.9)
        with stock_layers():
            plain = build(SMALL, momentum=0.9)
        _fill(ours)
        plain.set_weights(ours.get_weights())
        assert [v.name for v in ours.variables] == [v.name for v in plain.variables]
        _assert_same(_answers(ours, inputs, training=training), _answers(plain, inputs, training=training), 1e-10)


@pytest.mark.parametrize("upsample", [1, 2])
def test_bfloat16_is_summed_in_float32(upsample: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of ones, which in bfloat16 would end at 256. Each final sum here is a number of bfloat16."""
    monkeypatch.setattr(convolutions, "layers_first", lambda: False)
    with arithmetic("bfloat16"):
        layer = Conv3D(2, (3, 3, 3), upsample=upsample, kernel_initializer="ones")
    size = 12 // upsample
    with tf.GradientTape() as tape:
        outputs = tf.cast(layer(tf.ones((4, size, size, size, 16))), tf.float32)
        total = tf.reduce_sum(outputs)
    gradients = tape.gradient(total, [variable.value for variable in layer.trainable_variables])
    np.testing.assert_array_equal(outputs, np.full((4, 10, 10, 10, 2), 27 * 16))
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, np.full(gradient.shape, 4 * 10**3))


@pytest.mark.parametrize(
    ("rounded_to", "rounding"),
    [
        ("float32", 1e-6),
        pytest.param(
            "bfloat16", 1e-3,
            marks=pytest.mark.skipif(precision.emulates_bfloat16(), reason="this processor adds in bfloat16"),
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("case", [CASES[1], CASES[2], CASES[6]])
def test_the_error_in_frequencies_is_that_of_the_sum_over_taps(
    case: Case, rounded_to: str, rounding: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root mean squares against float64. Frequencies are rounded too, so up to three times the error is allowed."""
    inputs = np.random.default_rng(3).normal(size=(2, *case[0]))
    with arithmetic("float64"):
        truth, _ = _pair(*case)
    exact, errors = _answers(truth, inputs), {}
    for first in (True, False):
        monkeypatch.setattr(convolutions, "layers_first", lambda first=first: first)
        with arithmetic(rounded_to):
            network, _ = _pair(*case)
        network.set_weights(truth.get_weights())
        found = _answers(network, inputs)
        errors[first] = [
            np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(found.values(), exact.values(), strict=True)
        ]
    for ours, taps in zip(errors[True], errors[False], strict=True):
        assert 0 < ours <= 3 * taps + rounding
