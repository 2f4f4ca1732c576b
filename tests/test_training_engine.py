"""The step: the same mathematics for any number of replicas, any precision and any compiler."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from replicas import Normalised, Tiny, tiny
from servers import said, together
from showers import make_dataset, make_file
from trainings import engine_of

from preprocessing.dataset import read_manifest
from preprocessing.reading import ordered_batches
from training.configs import named_config
from training.engine.exchange import statistics
from training.engine.schedules import learning_rate
from training.engine.step import Engine
from training.models.gan import convolutions
from training.models.randomness import Draws

Weights = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen showers, all of the train split, so that an epoch is one step of any number of replicas."""
    place = tmp_path_factory.mktemp("engine")
    make_dataset(place / "ds", make_file(place / "a.h5", events=16), split_files=["train=*"])
    return place / "ds"


@pytest.fixture(scope="module")
def trained(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What a step of tests/replicas.py changed, by strategy: one replica of 16 showers, or two of 8."""
    place = tmp_path_factory.mktemp("replicas")
    program = [sys.executable, str(Path(__file__).with_name("replicas.py")), str(dataset), str(place)]
    said(*program)
    together(program)
    return {path.stem: dict(np.load(path)) for path in place.glob("*.npz")}


@pytest.mark.parametrize("strategy", ["mirrored", "multi-worker"])
def test_two_replicas_have_the_gradients_of_one(trained: dict[str, dict[str, Any]], strategy: str) -> None:
    one, two = trained["one-device"], trained[strategy]
    assert (one["replicas"], two["replicas"]) == (1, 2)
    names = [name for name in one if name.startswith("network")]
    assert len(names) == 4
    for name in names:
        assert np.abs(one[name]).max() > 1e-3
        np.testing.assert_allclose(two[name], one[name], rtol=1e-5, atol=1e-5 * np.abs(one[name]).max())


@pytest.mark.parametrize(("strategy", "replicas"), [("one-device", 1), ("mirrored", 2), ("multi-worker", 2)])
def test_every_replica_draws_its_own_noise(trained: dict[str, dict[str, Any]], strategy: str, replicas: int) -> None:
    """The mean over all showers of a number that is drawn for each, by the definition of each replica's draws."""
    for found, phase in zip(trained[strategy]["noise"], ("first", "second"), strict=True):
        draws = [Draws.of(1, 0, replica).fold(phase).normal("noise", (16 // replicas,)) for replica in range(replicas)]
        assert found == pytest.approx(np.mean(draws), rel=1e-5)


@pytest.mark.parametrize("batch", [6, 32])
@pytest.mark.parametrize(("strategy", "of_three"), [("mirrored", 3), ("multi-worker", 2)])
def test_a_look_of_two_replicas_finds_what_one_finds(
    trained: dict[str, dict[str, Any]], strategy: str, of_three: int, batch: int
) -> None:
    """A look is an evaluation. Each worker sees the batches of its own replicas, and traces the graph once."""
    one, two = trained["one-device"], trained[strategy]
    assert one[f"batches/{batch}"] == (3 if batch == 6 else 1)
    assert two[f"batches/{batch}"] == (of_three if batch == 6 else 1)
    np.testing.assert_allclose(two[f"look/{batch}"], one[f"look/{batch}"], rtol=1e-5)
    assert one[f"traces/{batch}"] == two[f"traces/{batch}"] == 1
    assert one["look/6"][-2] == 16


def test_collectives_of_a_step(trained: dict[str, dict[str, Any]]) -> None:
    """One collective for the gradients of each of two phases; the last also carries losses and statistics."""
    assert trained["multi-worker"]["collectives"] == 2


@pytest.fixture(scope="module")
def found(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Weights:
    """The output of tests/weights_on_replicas.py for the sixteen showers."""
    output = tmp_path_factory.mktemp("weights") / "found.npz"
    said(sys.executable, Path(__file__).with_name("weights_on_replicas.py"), dataset, output)
    return dict(np.load(output))


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


def _engine(dataset: Path, kind: type[Tiny] = Tiny, *, compiled: bool = False, **settings: Any) -> Engine:
    config = tiny(kind, **settings)
    return engine_of(config, dataset, compiled=compiled)


def _averages(state: dict[str, Any]) -> list[Any]:
    return [value for name, value in state.items() if name.startswith("average/")]


class Adapted(Normalised):
    def adapt(self, *_: Any) -> None:
        self.networks["generator"].layers[2].moving_mean.assign(np.full(1445, 7.0))


def test_an_average_of_weights_and_statistics_follows_them(dataset: Path) -> None:
    """It begins with the adapted values of the model; weights that the optimizer trains come first."""
    engine = _engine(dataset, Adapted, average=0.9)
    batches = iter(engine.batches())
    expected = _averages(engine.state())
    assert [value.shape for value in expected] == [(1445,), (1445,), (1445, 1), (1,), (1445,), (1445,)]
    np.testing.assert_array_equal(expected[4], 7.0)
    for step in range(3):
        engine.run(batches, 1)
        state = engine.state()
        scale, shift, mean, variance, *dense = (state[f"network/generator/{number}"] for number in range(6))
        decay = min(0.9, (1 + step) / (10 + step))
        now = [scale, shift, *dense, mean, variance]
        expected = [decay * old + (1 - decay) * new for old, new in zip(expected, now, strict=True)]
    assert np.abs(mean - 7.0).max() > 0.1
    for found, value in zip(_averages(state), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-7)


def test_a_model_is_adapted_to_the_train_split_or_evenly_to_some_of_it(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sixteen showers, known by their energies in the order of the shards: all, or every fourth."""
    manifest = read_manifest(dataset)
    (whole,) = ordered_batches(dataset, manifest, "train", batch=16)
    told: list[tuple[list[float], Any]] = []

    def adapt(model: Tiny, batches: Any, manifest: Any) -> None:
        told.append(([float(energy) for batch in batches for energy in batch["energy_gev"]], manifest))

    monkeypatch.setattr(Tiny, "adapt", adapt)
    for most, every in ((20_000, 1), (16, 1), (5, 4)):
        monkeypatch.setattr("training.engine.step._ADAPTED_TO", most)
        monkeypatch.setattr("training.engine.step._ADAPTED_AT_ONCE", 3)
        _engine(dataset)
        assert told.pop() == (whole["energy_gev"].numpy()[::every].tolist(), manifest)


def test_float16_leaves_a_step_out_that_overflows_and_scales_the_loss_down(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, moments and the count of updates stay as they were; without an overflow the scale changes nothing."""
    monkeypatch.setattr(Tiny, "optimizer", lambda *_: keras.optimizers.Adam(1e-2))
    engine = _engine(dataset, precision="float16")
    batches = iter(engine.batches())
    engine.run(batches, 2)  # so that there are moments
    scale = engine.optimizers["generator"].dynamic_scale
    assert float(scale) == 2.0**15
    before = engine.state()
    scale.assign(2.0**40)  # past what float16 holds
    engine.run(batches, 1)
    after = engine.state()
    assert float(scale) == 2.0**38  # halved by each of two phases
    changed = {name for name in before if (before[name] != after[name]).any()}
    steps, scales = "optimizer/generator/2", "optimizer/generator/3"
    assert changed == {"step", "sums", steps, scales}
    scale.assign(2.0**8)
    engine.run(batches, 1)
    plain = _engine(dataset, precision="float16")
    plain.restore(after | {scales: np.float32(1.0)}, "test")
    plain.run(iter(plain.batches()), 1)
    for number in range(4):
        name = f"network/generator/{number}"
        change = plain.state()[name] - after[name]
        assert np.abs(change).max() > 0
        np.testing.assert_allclose(engine.state()[name] - after[name], change, atol=0.02 * np.abs(change).max())


@pytest.mark.parametrize("first", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["TPU", "GPU"])
def test_the_whole_step_compiles_with_static_shapes_and_without_the_host(
    dataset: Path, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a TPU needs it: XLA compiles the whole step, updates too, and all shapes are known before it runs."""
    monkeypatch.setattr(convolutions, "layers_first", lambda: first)  # the form that the networks have there
    engine = engine_of(named_config("small"), dataset, compiled=True)
    batch = next(iter(engine.batches()))
    assert "cells" not in batch  # dense showers are made on the device
    assert all(tensor.shape.is_fully_defined() for tensor in batch.values())
    step = tf.function(engine.replica_step, jit_compile=True, autograph=False)
    program = step.experimental_get_compiler_ir(batch, tf.constant(0.0))(stage="hlo")
    assert "convolution" in program
    for foreign in ("infeed", "outfeed", "send(", "recv(", "<=", "callback"):
        assert foreign not in program, foreign


def test_what_xla_compiles_is_the_same_step(dataset: Path) -> None:
    """The whole step, or only forward and backward pass. XLA draws other numbers, but Tiny does not learn from them."""
    states = []
    for compiled in (False, True):
        engine = _engine(dataset, compiled=compiled)
        engine.run(iter(engine.batches()), 2)
        states.append(engine.state())
    engine = _engine(dataset)
    step = tf.function(engine.replica_step, jit_compile=True, autograph=False)
    batches = iter(engine.batches())
    for _ in range(2):
        step(next(batches), tf.constant(0.0))
    for state in (states[1], engine.state()):
        assert state["step"] == 2
        for name in (f"network/generator/{number}" for number in range(4)):
            np.testing.assert_allclose(state[name], states[0][name], rtol=1e-5, atol=1e-6, err_msg=name)


def _rates(steps: int, **more: Any) -> list[float]:
    """The rate at each of `steps` steps of ten an epoch."""
    config = named_config("small", epochs=10, learning_rate=0.01, **more)
    of_training = {"global_batch": 256, "total_steps": 100, "steps_an_epoch": 10}
    return [float(learning_rate(config, tf.constant(step), **of_training)) for step in range(steps)]


class Linear(Tiny):
    """A model whose loss has a gradient that does not depend on the weights."""

    def answer(self, cells: Any) -> Any:
        return keras.layers.Dense(1)(cells)

    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:
        return keras.optimizers.SGD(learning_rate)

    def _losses(self, view: Any, draws: Any) -> Any:
        found = self.networks["generator"](view["cells"])[:, 0]
        return {"square": found, "noise": 0.0 * found}


def test_both_updates_of_a_step_have_its_rate(dataset: Path) -> None:
    changes = {}
    for schedule in ("constant", "exponential"):
        engine = _engine(dataset, Linear, schedule=schedule)
        batches, weights = iter(engine.batches()), [engine.state()["network/generator/0"]]
        for _ in range(3):
            engine.run(batches, 1)
            weights.append(engine.state()["network/generator/0"])
        changes[schedule] = np.diff(weights, axis=0)
    ratios = changes["exponential"].sum((1, 2)) / changes["constant"].sum((1, 2))
    np.testing.assert_allclose(ratios, 0.01 ** (np.arange(3) / engine.last_step), rtol=1e-3)


def test_learning_rates() -> None:
    assert _rates(100) == pytest.approx([0.01] * 100)
    assert _rates(3, linear_scaling=64) == pytest.approx([0.04] * 3)  # a batch four times as large
    warm = _rates(100, warm_up_epochs=2, schedule="cosine")
    assert warm[:20] == pytest.approx([0.01 * (step + 1) / 20 for step in range(20)])
    falling = [0.01 * (0.01 + 0.99 * (1 + np.cos(np.pi * step / 80)) / 2) for step in range(80)]
    assert warm[20:] == pytest.approx(falling, rel=1e-4)
    exponential = _rates(100, schedule="exponential")
    assert exponential == pytest.approx([0.01 * 0.01 ** (step / 100) for step in range(100)], rel=1e-4)
