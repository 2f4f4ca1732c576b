"""pix2pix: its networks as published, and properties of flows; what it learns, and its export."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import keras
import keras_fit
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from flow_models import GRID, REYNOLDS, street, write_model, write_pairs
from trainings import engine_of, evaluator_of, fit_small, history_of, same_training, small_flow

from calopipe.errors import InputError
from calopipe.flow.grid import Grid
from calopipe.flow.mechanics import divergence, vorticity
from preprocessing.dataset import read_manifest
from preprocessing.reading import decode_pairs, ordered_batches
from training.configs import named_config
from training.export import export
from training.model_folder import read_card
from training.models.base import build
from training.models.flow import FlowJudge, conditions, mirrored
from training.models.pix2pix.networks import curl, patch_gan, unet
from training.models.pix2pix.tables import PUBLISHED, SMALL, Networks2D, table_of
from training.models.randomness import Draws, Dropout
from training.rollout.rollout import Stepper
from training.run import loop

TINY = replace(SMALL, down=(4, 6), full=3)
NORMALISED = Networks2D((4, 6, 6), 1, patch=(4,), patch_last=4)
_PAIRS = 48  # a file has 17 frames at least
_TRAIN = 32


def _network(table: Networks2D) -> keras.Model:
    """A U-Net whose weights, with its statistics, are far from zero."""
    keras.utils.set_random_seed(3)
    network = unet(table, 4, 2)
    rng = np.random.default_rng(5)
    for weight in network.weights:
        weight.assign(rng.uniform(0.1, 0.5, weight.shape) * rng.choice([-1, 1], weight.shape))
        if weight.name in {"moving_variance", "scale"}:
            weight.assign(rng.uniform(0.5, 2, weight.shape))
    return network


def test_the_networks_have_the_published_sizes() -> None:
    generator, discriminator = unet(PUBLISHED, 3, 3), patch_gan(PUBLISHED, 6)
    scale = generator.get_layer("scale").count_params()  # the unit of the output is not trained
    assert generator.count_params() - scale == 54_425_859
    assert discriminator.count_params() == 2_770_433
    layers = [*generator.layers, *discriminator.layers]
    assert {layer.negative_slope for layer in layers if isinstance(layer, keras.layers.LeakyReLU)} == {0.2}
    assert [layer.rate for layer in layers if isinstance(layer, Dropout)] == [0.5] * 3
    kernels = [layer for layer in layers if isinstance(layer, keras.layers.Conv2D | keras.layers.Conv2DTranspose)]
    assert {layer.kernel_initializer.stddev for layer in kernels} == {0.02}
    assert discriminator.compute_output_shape((1, 256, 256, 6)) == (1, 30, 30, 1)


def test_levels_are_as_many_as_a_frame_can_be_halved() -> None:
    assert table_of("pix2pix", (256, 256)) == PUBLISHED
    assert table_of("pix2pix", (256, 96)).down == (64, 128, 256, 512, 512)
    assert table_of("pix2pix-small", (64, 12)).down == (32, 64)
    with pytest.raises(InputError, match=r"\(128, 34\) cells, pix2pix-small .* sides are multiples of 4"):
        named_config("pix2pix-small").check_shape(Grid((128, 34), cell_d=0.25, interval_d=0.25))


def test_a_curl_is_free_of_divergence() -> None:
    """By NumPy's gradient; and for the output of the small network, by the measure of the validation."""
    stream = np.random.default_rng(6).normal(size=(2, 12, 9))
    found = curl(tf.constant(stream)).numpy()
    expected = np.stack([np.gradient(stream, axis=2), -np.gradient(stream, axis=1)], -1)
    np.testing.assert_allclose(found[:, :, 1:-1], expected[:, :, 1:-1])
    np.testing.assert_allclose(found[..., 1], expected[..., 1])
    made = _made_of_noise()
    assert np.abs(divergence(made, 1.0)[:, :, 1:-1]).max() < 1e-5 * np.abs(vorticity(made, 1.0)).max()


def test_nothing_flows_through_the_walls() -> None:
    """The flow through a cross-section does not change. By hand, for a shear between walls: u = d (y^2) / dy."""
    made = _made_of_noise()
    np.testing.assert_allclose(made[..., 0].sum(axis=2), 0, atol=1e-5 * np.abs(made[..., 0]).sum(axis=2).max())
    y = np.arange(8) + 0.5
    found = curl(tf.constant(np.tile(y * (8 - y), (1, 5, 1)))).numpy()
    np.testing.assert_allclose(found[0, :, 1:-1], np.tile(np.stack([8 - 2 * y, 0 * y], -1)[1:-1], (5, 1, 1)))


def test_what_flows_through_the_obstacle_is_missed_and_cut_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that is wrong there by .3 U along y, else right: L1 is .3 / 2 times the share of the obstacle."""
    model = build(named_config("pix2pix-small"), Grid((32, 16), cell_d=0.25, interval_d=0.25))
    solid = np.zeros((1, 32, 16), np.float32)
    solid[:, 8:12, 6:10] = 1
    frame = np.float32([1, 0]) * (1 - solid[..., None])
    monkeypatch.setattr(model, "_unet", lambda given, *, training: np.float32([0, 0.3]) * solid[..., None])  # noqa: ARG005
    reynolds = np.float32([100])
    losses = model._generator({"now": frame, "next": frame, "solid": solid, "reynolds": reynolds}, Draws.of(1))
    np.testing.assert_allclose(losses["l1"], [0.15 * 16 / 512], rtol=1e-5)
    np.testing.assert_array_equal(model.advance(frame, solid, reynolds), frame)


def test_each_network_is_trained_against_the_others_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The discriminator is right with 95 % in half of the patches, with 75 % in others; also its input."""
    model = build(named_config("pix2pix-small"), Grid((16, 16), cell_d=0.25, interval_d=0.25))
    now = np.random.default_rng(1).normal(size=(1, 16, 16, 2)).astype(np.float32)
    view = {"now": now, "next": now + 1, "solid": np.zeros((1, 16, 16), np.float32), "reynolds": np.float32([100])}
    model._unit.assign([0.5, 0.25])
    shown: list[np.ndarray] = []

    def answered(image: tf.Tensor, *, training: bool) -> np.ndarray:
        shown.append(image.numpy())
        real = np.allclose(shown[-1][..., 4:], [2, 4], rtol=1e-5)  # a change of 1 U, in units of the changes
        return np.log(np.float32([19, 3] * 8).reshape(1, 4, 4, 1)) * (1 if real else -1)

    monkeypatch.setattr(model, "_patches", answered)
    monkeypatch.setattr(model, "_unet", lambda given, *, training: 0 * now)  # noqa: ARG005
    losses = model._discriminator(view, Draws.of(1)) | model._generator(view, Draws.of(1))
    right, wrong = (-np.log(probabilities).mean() for probabilities in ([0.95, 0.75], [0.05, 0.25]))
    expected = {"real": right, "fake": right, "adversarial": wrong, "l1": (2 + 4) / 2}
    assert {name: float(loss[0]) for name, loss in losses.items()} == pytest.approx(expected, rel=1e-5)
    for image in shown:
        np.testing.assert_allclose(image[..., :2], now - [1, 0], rtol=1e-6)
    assert [image[..., 4:].any() for image in shown] == [True, False, False]


def _made_of_noise() -> np.ndarray:
    network = _network(TINY)
    network.get_layer("scale").scale.assign([0.5, 0.5])
    return network(np.random.default_rng(7).normal(size=(1, 32, 16, 4))).numpy()


def test_a_mirrored_flow_turns_the_other_way_round() -> None:
    """The mirror image of a vortex solves the equation of motion: vorticity changes its sign, divergence does not."""
    x, y = np.meshgrid(np.arange(16.0), np.arange(12.0), indexing="ij")
    velocity = np.stack([np.sin(x / 3) * np.cos(y / 4), np.cos(x / 5 + y / 2)], -1)[None].astype(np.float32)
    solid = (np.hypot(x - 4, y - 3) < 2)[None].astype(np.float32)
    batch = {"now": np.repeat(velocity, 2, 0), "next": np.repeat(velocity * 2, 2, 0), "solid": np.repeat(solid, 2, 0)}
    turned = {name: value.numpy() for name, value in mirrored(batch, tf.constant([False, True])).items()}
    for name, value in turned.items():
        np.testing.assert_array_equal(value[0], batch[name][0])
    np.testing.assert_array_equal(turned["solid"][1], solid[0, :, ::-1])
    for measure, sign in ((vorticity, -1), (divergence, 1)):
        before, after = measure(turned["next"], 1.0)
        np.testing.assert_allclose(after, sign * before[:, ::-1], atol=1e-6)


def test_beyond_the_border_is_the_inflow() -> None:
    """Convolutions pad with zeros, which stand for the inflow of Reynolds number 100 without an obstacle."""
    inflow = np.broadcast_to(np.float32([1, 0]), (1, 8, 8, 2))
    assert not conditions(inflow, np.zeros((1, 8, 8), np.float32), np.float32([100.0])).numpy().any()
    solid = np.zeros((2, 8, 8), np.float32)
    solid[1, 2, 3] = 1
    faster, reynolds = np.repeat(inflow, 2, 0) + np.float32([0.25, -0.5]), np.float32([100 * np.e, 100 / np.e])
    given = conditions(faster, solid, reynolds).numpy()
    np.testing.assert_allclose(given[..., :2], np.broadcast_to([0.25, -0.5], (2, 8, 8, 2)))
    np.testing.assert_array_equal(given[..., 2], solid)
    np.testing.assert_allclose(given[..., 3], np.broadcast_to([[[1.0]], [[-1.0]]], (2, 8, 8)), rtol=1e-6)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("made") / "pairs", street(_PAIRS + 1), GRID, train=_TRAIN)


def test_pairs_are_read_as_they_were_written(dataset: Path) -> None:
    frames = [frame.tobytes() for frame in street(_PAIRS + 1)]
    for split, first, last, reynolds in (("train", 0, _TRAIN, 80), ("validation", _TRAIN, _PAIRS, 120)):
        (batch,) = ordered_batches(dataset, read_manifest(dataset), split, batch=_TRAIN, decode=decode_pairs)
        found = zip(*([frame.tobytes() for frame in batch[name].numpy()] for name in ("now", "next")), strict=True)
        assert sorted(found) == sorted(zip(frames[first:last], frames[first + 1 : last + 1], strict=True))
        np.testing.assert_array_equal(batch["reynolds"], np.full(last - first, reynolds))
        assert not batch["solid"].numpy().any()


def test_a_model_that_makes_no_change_misses_all_of_it(dataset: Path) -> None:
    config = named_config("pix2pix-small")
    engine = engine_of(config, dataset)
    network = engine.model.networks["generator"]
    frames = street(_PAIRS + 1).astype(np.float64)
    change = np.diff(frames, axis=0)
    np.testing.assert_allclose(network.get_layer("scale").scale, [np.sqrt((change[:_TRAIN] ** 2).mean())] * 2, 1e-5)
    last = network.layers[-3]
    last.set_weights([np.zeros_like(weight) for weight in last.get_weights()])
    evaluator = evaluator_of(config, dataset, engine)
    looked = evaluator.evaluate()
    norms = [np.sqrt((each[_TRAIN:] ** 2).sum((1, 2, 3))) for each in (change, frames[1:])]
    assert looked.losses["l1"] == looked.losses["total"] == pytest.approx(np.abs(change[_TRAIN:]).mean(), rel=1e-5)
    assert looked.losses["of_change"] == pytest.approx(1, rel=1e-5)
    assert looked.losses["relative_l2"] == pytest.approx((norms[0] / norms[1]).mean(), rel=1e-5)
    assert evaluator._evaluate.experimental_get_tracing_count() == 1


def test_it_learns_what_moves(dataset: Path) -> None:
    """After 100 steps the error is a fraction of the change; the discriminator learns too, and stays undecided."""
    config = named_config("pix2pix-small", epochs=25, batch=8)
    engine = engine_of(config, dataset)
    losses, _ = engine.run(iter(engine.batches()), engine.last_step)
    assert engine.last_step == 100
    assert evaluator_of(config, dataset, engine).evaluate().losses["of_change"] < 0.5
    answers = engine.table(losses)
    assert 0.05 < answers["discriminator"]["total"] < 1.0


def test_noise_and_mirrors_are_drawn_for_each_frame(dataset: Path) -> None:
    engine = engine_of(named_config("pix2pix-small", noise=0.1), dataset)
    (batch,) = ordered_batches(dataset, read_manifest(dataset), "train", batch=_TRAIN, decode=decode_pairs)
    batch["solid"] = tf.one_hot(tf.fill(batch["solid"].shape[:2], 3), GRID.shape[1])
    view = engine.view(batch, tf.constant([1, 2]))
    pairs = (view["next"], batch["next"])
    turned = [np.allclose(after, before[:, ::-1] * [1, -1]) for after, before in zip(*pairs, strict=True)]
    assert 8 < sum(turned) < 24
    chosen = np.reshape(turned, (-1, 1, 1, 1))
    noise = view["now"].numpy() - np.where(chosen, batch["now"][:, :, ::-1] * [1, -1], batch["now"])
    in_obstacle = np.where(chosen[:, :, 0, 0], noise[:, :, GRID.shape[1] - 4, 0], noise[:, :, 3, 0])
    assert np.abs(in_obstacle).max() < 1e-6 < np.abs(noise[:, :, 4]).min(axis=(1, 2)).max()
    spreads = noise.std((1, 2, 3))  # uniform from 0 to 0.1, but for the row that has none
    assert 0.03 < spreads.mean() < 0.07
    assert spreads.min() < 0.02
    assert 0.08 < spreads.max() < 0.11


def test_the_judge_draws_vorticity_beside_the_solvers(dataset: Path) -> None:
    frames = street(9)
    judge = FlowJudge(8, GRID, 1)
    batch = {"next": frames[1:], "solid": np.zeros((8, *GRID.shape), np.float32), "reynolds": np.full(8, 90.0)}
    judge.add({name: values[:5] for name, values in batch.items()}, frames[:5])
    judge.add({name: values[5:] for name, values in batch.items()}, frames[5:8])
    of_two_workers = FlowJudge(8, GRID, 2)  # of whose four frames each it shows two
    of_two_workers.add({name: values[:4] for name, values in batch.items()}, frames[:4])
    assert len(of_two_workers.figures()["vorticity"].axes) == 2 * 4  # with the scales of colours
    figure = judge.figures()["vorticity"]
    images = [axis.get_images()[0].get_array() for axis in figure.axes if axis.get_images()][:9]
    for row, number in enumerate((0, 3, 6)):  # one of three
        made, true = vorticity(frames[number : number + 2], GRID.cell_d)
        for image, expected in zip(images[3 * row : 3 * row + 3], (true, made, made - true), strict=True):
            np.testing.assert_allclose(image.T, expected, atol=1e-4)


def test_one_step_is_exported(tmp_path: Path) -> None:
    write_model(tmp_path / "m", named_config("pix2pix-small"), spread=0.02)
    export(tmp_path / "m", tmp_path / "saved")
    served = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    velocity, solid = street(2), np.zeros((2, *GRID.shape), np.float32)
    expected = Stepper(tmp_path / "m").step(velocity, solid > 0, np.float32(REYNOLDS))
    given = {"velocity": tf.constant(velocity), "solid": tf.constant(solid)}
    made = served(**given, reynolds=tf.constant(REYNOLDS))["next_velocity"]
    np.testing.assert_allclose(made, expected, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"valid for reynolds from {REYNOLDS[0]:g} to"):
        served(**given, reynolds=tf.constant([70.0, 900.0]))
    export(tmp_path / "m", tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for order, outside in ((slice(None), 900.0), (slice(None, None, -1), 59.0)):
        reynolds = np.float32([REYNOLDS[order][0], outside])
        (made,) = session.run(None, {"velocity": velocity[order], "solid": solid, "reynolds": reynolds})
        np.testing.assert_allclose(made[0], expected[order][0], atol=1e-5)
        assert np.isnan(made[1]).all()


def test_the_published_networks_make_the_frame_itself() -> None:
    """The frame is in units of 2 U, so that tanh can reach it; for no weights is it beyond 2 U."""
    model = build(named_config("pix2pix"), GRID)
    for weight in model.networks["generator"].trainable_weights:
        weight.assign(weight * 50)
    made = model.advance(street(1), np.zeros((1, *GRID.shape), np.float32), np.float32([100])).numpy()
    assert 1.9 < np.abs(made).max() <= 2


def test_however_its_steps_are_called_they_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step a call; three, which do not divide the seven of an epoch; or by Keras's `fit`. As for showers."""
    flow = small_flow(tmp_path)
    fit_small(flow, tmp_path / "one")
    monkeypatch.setattr(loop, "_STEPS_A_CALL_ON_PROCESSORS", 3)
    fit_small(flow, tmp_path / "three")
    monkeypatch.setattr(loop.Loop, "steps", keras_fit.steps)
    fit_small(flow, tmp_path / "keras")
    assert read_card(tmp_path / "one").trained["steps"] == 14
    last = history_of(tmp_path / "one")[-1]["train"]
    made, judged = last["generator"], last["discriminator"]  # with the published weights
    assert made["total"] == pytest.approx(made["adversarial"] + 100 * made["l1"])
    assert judged["total"] == pytest.approx((judged["real"] + judged["fake"]) / 2)
    for name in ("three", "keras"):
        same_training(tmp_path / name, tmp_path / "one")
