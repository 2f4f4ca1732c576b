"""Warm starts: losses do not rise, other ranges begin anew, and no event judges a model that was trained on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from likelihoods import CONFIG
from replicas import tiny
from showers import SMALL_GEOMETRY, make_dataset, make_file, make_showers, write_file
from trainings import engine_of, evaluator_of, fit_layers, layers_model

from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from preprocessing.dataset import read_manifest
from preprocessing.reading import ordered_batches
from training import fit, model_folder
from training.configs import FitConfig, named_config
from training.engine.step import Engine
from training.generation.conditions import Conditions
from training.generation.generate import generate
from training.load_model import load_model
from training.model_folder import Card, read_card
from training.models.randomness import Draws
from training.models.weights import save_weights
from training.registry.retraining import _may_begin
from training.run.evaluator import Evaluator

_WATCHED = 200  # showers
_GAN = named_config("small", epochs=100)
_LIKELIHOODS = replace(CONFIG, epochs=100, learning_rate=1e-2, schedule="cosine", average=0.99)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("warm")
    files = [str(make_file(place / name, events=events)) for name, events in (("a.h5", 400), ("b.h5", _WATCHED))]
    make_dataset(place / "ds", *files, split_files=["train=a*", "validation=b*"])
    return place / "ds"


def _judge(evaluator: Evaluator, dataset: Path) -> Callable[[Engine], dict[str, npt.NDArray[np.float64]]]:
    """A function that returns the losses of each validation shower, (N,), of an engine's model."""
    decode = evaluator.model.decode_judged
    (batch,) = ordered_batches(dataset, read_manifest(dataset), "validation", batch=_WATCHED, decode=decode)
    evaluate = tf.function(lambda: evaluator.model.evaluate(batch, Draws.of(1))[0], autograph=False)

    def judge(engine: Engine) -> dict[str, npt.NDArray[np.float64]]:
        evaluator.take_over(engine.state())
        return {name: loss.numpy() for name, loss in evaluate().items() if evaluator.model.weights[name]}

    return judge


@pytest.mark.slow
@pytest.mark.parametrize(("config", "steps"), [(_GAN, 60), (_LIKELIHOODS, 200)], ids=["3dgan", "likelihoods"])
def test_the_first_hundred_steps_leave_the_losses_where_they_were(
    dataset: Path, tmp_path: Path, config: FitConfig, steps: int
) -> None:
    """They stay within twice the standard error of their mean over the showers."""
    evaluator = evaluator_of(config, dataset)
    incumbent = engine_of(replace(config, steps=steps), dataset)
    incumbent.run(iter(incumbent.batches()), steps)
    judge = _judge(evaluator, dataset)
    before = judge(incumbent)
    save_weights(tmp_path, evaluator.model.networks)

    engine = engine_of(config, dataset, warm_start=tmp_path)
    batches, done = iter(engine.batches()), 0
    for step in (1, 5, 25, 100):
        engine.run(batches, step - done)
        done = step
        for name, values in judge(engine).items():
            noise = before[name].std() / np.sqrt(_WATCHED)
            assert values.mean() < before[name].mean() + 2 * noise, (name, step)


def test_the_rate_rises_after_a_warm_start_and_not_for_longer_than_a_quarter(dataset: Path, tmp_path: Path) -> None:
    config = tiny(epochs=100)
    save_weights(tmp_path, engine_of(config, dataset).model.networks)
    rates = []
    for steps, warm_start in ((4000, None), (4000, tmp_path), (40, tmp_path)):
        engine = engine_of(replace(config, steps=steps), dataset, warm_start=warm_start)
        rates.append([])
        for step in (0, 9, 499, 500):
            engine._step.assign(step)
            rates[-1].append(engine.learning_rate())
    full = config.learning_rate
    expected = [[full] * 4, [full / 500, full / 50, full, full], [full / 10, full, full, full]]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)  # single precision


_RANGE = {"energy_gev": (100.0, 200.0), "theta_rad": (1.1, 2.0)}


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({"energy_gev": (120.0, 180.0)}, ""),
        ({"energy_gev": (98.0, 204.0)}, ""),
        ({"energy_gev": (10.0, 400.0)}, "energy_gev 100 to 200, the dataset of 10 to 400"),
        ({"energy_gev": (100.0, 230.0)}, "energy_gev 100 to 200"),
        ({"theta_rad": (0.9, 2.0)}, "theta_rad 1.1 to 2"),
    ],
)
def test_which_ranges_go_on(changed: dict[str, Any], differs: str) -> None:
    """A new range may add a tenth of the old range, in log E and in the cosine, at either end."""
    reason = named_config("fast").begins_anew(_RANGE, _RANGE | changed)
    assert (differs in reason) if differs else not reason
    assert not named_config("3dgan").begins_anew(_RANGE, _RANGE | changed)  # it has no constants of its showers


def test_retraining_says_why_it_begins_anew(capsys: pytest.CaptureFixture[str]) -> None:
    config = named_config("fast")
    incumbent: Any = SimpleNamespace(config=config, valid_range=_RANGE)
    wider: Any = SimpleNamespace(valid_range=_RANGE | {"energy_gev": (10.0, 400.0)})
    assert _may_begin(incumbent, config, incumbent)
    assert not _may_begin(incumbent, config, wider)
    *_, last = capsys.readouterr().out.splitlines()
    assert "new weights" in last
    assert "100 to 200, the dataset of 10 to 400" in last


def test_a_training_that_is_told_to_begin_with_weights_of_another_range_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = named_config("fast")
    old: Any = SimpleNamespace(config=config, geometry=SMALL_GEOMETRY, valid_range=_RANGE)
    wider: Any = SimpleNamespace(geometry=SMALL_GEOMETRY, valid_range=_RANGE | {"energy_gev": (10.0, 400.0)})
    monkeypatch.setattr(model_folder, "read_card", lambda _: old)
    assert fit._earlier(tmp_path / "old", tmp_path / "new", config, old) is old
    with pytest.raises(InputError, match="old: of the model autoregressive, not 3dgan-small; give --config for it"):
        fit._earlier(tmp_path / "old", tmp_path / "new", named_config("small"), old)
    told = r"--warm-start .*old: that is of energy_gev 100 to 200, the dataset of 10 to 400; leave --warm-start out"
    with pytest.raises(InputError, match=told):
        fit._earlier(tmp_path / "old", tmp_path / "new", config, wider)


def _seen(path: Path) -> set[int]:
    """The events that a model sees if it is trained on `path`, by reading the file."""
    chosen = [open_showers(path).chosen(Selection(split)) for split in ("train", "validation")]
    return {int(digest) for mask, digests in chosen for digest in digests[mask]}


def _fit(output: Path, *paths: Path, warm_start: Path, split_files: tuple[str, ...] = ()) -> Card:
    """A training of one step, which hardly changes the weights, on the dataset of these files."""
    dataset = output.with_name(f"{output.name}-ds")
    make_dataset(dataset, *paths, split_files=split_files)
    fit_layers(dataset, output, "--steps", "1", "--warm-start", str(warm_start), "--learning-rate", "1e-9")
    return read_card(output)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return layers_model(tmp_path_factory.mktemp("seen"))


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    """The showers that the model was trained on, in another order, precision and compression, with twenty others."""
    order = np.random.default_rng(0).permutation(120)
    own, others = make_showers(events=100), make_showers(events=20, seed=7)
    mixed = type(own)(*(np.concatenate([getattr(each, name) for each in (own, others)])[order] for name in own.arrays))
    return write_file(tmp_path / "copy.h5", mixed, chunks=False, ECAL=mixed.cells.astype(np.float64))


def test_a_model_knows_what_it_and_its_ancestor_have_seen(trained: Path, copy: Path, tmp_path: Path) -> None:
    assert set(np.load(trained / "model/seen.npy").tolist()) == _seen(trained / "mc.h5")
    other = make_file(tmp_path / "other.h5", events=30, seed=3)
    card = _fit(tmp_path / "child", other, warm_start=trained / "model")
    assert card.trained["warm_start"] == read_card(trained / "model").fingerprint()
    networks = [load_model(model)[1].networks["layers"] for model in (trained / "model", tmp_path / "child")]
    for before, after in zip(*(network.get_weights() for network in networks), strict=True):
        np.testing.assert_allclose(after, before, atol=1e-6)
    assert set(np.load(tmp_path / "child/seen.npy").tolist()) == _seen(trained / "mc.h5") | _seen(other)
    rule = SplitRule.parse(["test=copy.h5"])
    with pytest.raises(InputError, match=r"was trained on 7\d of the 120 test events, which then cannot judge"):
        generate(tmp_path / "child", Conditions([copy], Selection("test", rule)), tmp_path / "g.h5")
    assert not (tmp_path / "g.h5").exists()


def test_a_warm_start_that_has_seen_the_test_events_is_refused(trained: Path, copy: Path, tmp_path: Path) -> None:
    other = make_file(tmp_path / "other.h5", events=30, seed=3)
    with pytest.raises(InputError, match=r"--warm-start \S+: was trained on 7\d of the 120 test events"):
        _fit(tmp_path / "m", copy, other, split_files=("test=copy.h5",), warm_start=trained / "model")
    assert not (tmp_path / "m").exists()


def test_a_model_that_does_not_know_generates_and_begins_nothing(trained: Path, tmp_path: Path) -> None:
    card = model_folder.take_over(trained / "model", tmp_path / "old", overwrite=False)
    model_folder.write_card(tmp_path / "old", replace(card, dataset=card.dataset | {"seen": None}))
    (tmp_path / "old/seen.npy").unlink()
    with pytest.raises(InputError, match="does not say which events it was trained on"):
        generate(tmp_path / "old", Conditions([trained / "mc.h5"], Selection("test")), tmp_path / "g.h5")
    with pytest.raises(InputError, match=r"--warm-start .* does not say which events it was trained on"):
        _fit(tmp_path / "m", trained / "mc.h5", warm_start=tmp_path / "old")


def test_what_was_seen_goes_with_the_model_and_is_checked(trained: Path, tmp_path: Path) -> None:
    model_folder.take_over(trained / "model", tmp_path / "m", overwrite=False)
    np.save(tmp_path / "m/seen.npy", np.zeros(3, np.uint64))
    with pytest.raises(InputError, match=r"seen\.npy: not the file that the card was written for"):
        read_card(tmp_path / "m")
