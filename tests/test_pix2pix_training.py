"""pix2pix on pairs of frames: what it learns, how it is evaluated and exported, and how its steps are called."""

from __future__ import annotations

from pathlib import Path

import keras_fit
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from flow_models import GRID, REYNOLDS, street, write_model, write_pairs
from trainings import engine_of, evaluator_of, fit_small, history_of, same_training, small_flow

from calopipe.flow.mechanics import vorticity
from preprocessing.dataset import read_manifest
from preprocessing.reading import decode_pairs, ordered_batches
from training.configs import named_config
from training.export import export
from training.model_folder import read_card
from training.models.base import build
from training.models.flow import FlowJudge
from training.rollout.stepper import Stepper
from training.run import loop

_PAIRS = 48  # a file has 17 frames at least
_TRAIN = 32


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
    assert model.stride == 16
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
