"""Training the likelihood model: losses fall, replicas agree, and it goes on as if it had not stopped."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from likelihoods import CONFIG
from servers import said
from showers import SMALL_GEOMETRY, make_dataset, make_file, make_showers, write_file
from trainings import history_of

from calopipe.errors import InputError
from preprocessing.dataset import read_manifest
from training import fit
from training.engine.step import Engine
from training.engine.strategies import make_strategy
from training.model_folder import read_card
from training.models.autoregressive.constants import shapes
from training.models.base import build
from training.models.weights import load_weights

# Seven epochs of five steps, judged at the third, the sixth and the last.
_TRAINED = replace(CONFIG, epochs=7, evaluation_steps=15, learning_rate=1e-2)
_DENSITIES = ("totals", "place", "slope", "share", "even_count", "odd_count", "even", "odd")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("likelihood")
    make_dataset(place / "ds", make_file(place / "a.h5", events=120))
    assert read_manifest(place / "ds").count("train") // 16 == 5
    return place / "ds"


@pytest.fixture(scope="module")
def trained(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Engine]:
    """The model, and the engine that trained it, whose graph takes long to trace."""
    place = tmp_path_factory.mktemp("model") / "model"
    engines: list[Engine] = []

    def kept(*given: Any, **more: Any) -> Engine:
        engines.append(Engine(*given, **more))
        return engines[-1]

    with pytest.MonkeyPatch.context() as watched:
        watched.setattr(fit, "Engine", kept)
        fit.fit(dataset, place, _TRAINED)
    return place, engines[0]


@pytest.fixture(scope="module")
def model(trained: tuple[Path, Engine]) -> Path:
    return trained[0]


def test_losses_fall(model: Path) -> None:
    """Losses of every phase, of the train split and, with averaged weights, of the validation split."""
    history = history_of(model)
    first, last = history[1]["train"], history[-1]["train"]
    for phase in ("share", "even_count", "odd_count", "even", "odd"):
        assert last[phase]["total"] < first[phase]["total"]
    assert last["totals"]["total"] < first["totals"]["total"] + 1  # it begins at the copula, which is hard to better
    judged = [entry["validation"] for entry in history if "validation" in entry]
    assert judged[-1]["total"] < judged[0]["total"] - 10
    for losses in judged:
        assert losses["total"] == pytest.approx(
            sum(losses[name] for name in ("totals", "offsets", "shares", "counts", "occupancy", "deposits")), rel=1e-5
        )


def test_an_engine_goes_on_from_a_checkpoint_to_the_same_weights(trained: tuple[Path, Engine]) -> None:
    """An engine that was trained otherwise: the weights and constants of the checkpoint replace all of its own."""
    model, engine = trained
    engine.restore({name: np.zeros_like(array) for name, array in engine.state().items()}, "zeros")
    with np.load(model / "checkpoints/step-000000030.npz") as state:
        engine.restore(dict(state), "step 30")
    engine.run(iter(engine.batches()), 5)
    found = engine.state()
    with np.load(model / "checkpoints/step-000000035.npz") as expected:
        assert set(found) == set(expected.files)
        for name in expected.files:
            if name != "sums":  # over the epoch, which its end takes
                np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_networks_of_few_numbers_a_shower_have_more_weight_decay() -> None:
    """As in docs/model.md: 1.5 for some networks at 1,000 showers, a third of that for cells, none for the axis."""
    model = build(CONFIG, SMALL_GEOMETRY)

    def decay(network: str, showers: int) -> float:
        return float(model.optimizer(network, 1e-3, showers).weight_decay)

    for network in _DENSITIES:
        expected = 0.0 if network in {"place", "slope"} else 0.5 if network in {"even", "odd"} else 1.5
        assert decay(network, 1000) == pytest.approx(expected)
        assert decay(network, 8000) == pytest.approx(expected / 8**1.4)
        assert decay(network, 10) == decay(network, 500) == pytest.approx(expected * 2**1.4)


def test_a_warm_start_takes_all_weights_and_the_constants_they_were_trained_with(model: Path, tmp_path: Path) -> None:
    make_dataset(tmp_path / "ds", make_file(tmp_path / "b.h5", events=60, seed=5))
    manifest, strategy = read_manifest(tmp_path / "ds"), make_strategy("one-device")
    own = Engine(_TRAINED, tmp_path / "ds", manifest, strategy).state()
    engine = Engine(_TRAINED, tmp_path / "ds", manifest, strategy, warm_start=model)
    begun = engine.state()
    with np.load(model / f"checkpoints/step-{read_card(model).trained['chosen_step']:09d}.npz") as state:
        number = 0
        for name in _DENSITIES:
            for k in range(len(engine.model.networks[name].weights)):
                np.testing.assert_array_equal(begun[f"network/{name}/{k}"], state[f"average/{number}"])
                np.testing.assert_array_equal(begun[f"average/{number}"], state[f"average/{number}"])
                number += 1
        for k, name in enumerate(shapes(engine.model._geometry)):
            np.testing.assert_array_equal(begun[f"network/constants/{k}"], state[f"network/constants/{k}"])
            if name in ("depth", "quantiles", "odds", "proposal", "odd_mean"):
                assert (own[f"network/constants/{k}"] != begun[f"network/constants/{k}"]).any(), name


def test_a_model_of_an_earlier_version_is_refused_in_one_line(model: Path, tmp_path: Path) -> None:
    """It lacks a network. In `test_training_fit.py`, the weights belong to a network that has changed since."""
    shutil.copytree(model, tmp_path / "m")
    card = read_card(tmp_path / "m")
    networks = build(card.config, card.geometry).networks
    (tmp_path / "m/share.weights.h5").unlink()
    with pytest.raises(InputError, match=r"share\.weights\.h5: no such file; the folder is not whole, or of"):
        load_weights(tmp_path / "m", networks)


def test_two_replicas_have_the_weights_of_one(tmp_path: Path) -> None:
    showers = make_showers(events=16)
    showers.cells[::4, ..., -1] = 0  # the chance of a layer is trained only where there are empty layers
    # an epoch is one step of either
    make_dataset(tmp_path / "ds", write_file(tmp_path / "a.h5", showers), split_files=["train=*"])
    program = Path(__file__).with_name("autoregressive_replicas.py")
    said(sys.executable, program, tmp_path / "ds", tmp_path / "r.npz")
    with np.load(tmp_path / "r.npz") as found:
        states = {name: found[name] for name in found.files}
    assert (states["one-device/replicas"], states["mirrored/replicas"]) == (1, 2)
    np.testing.assert_allclose(states["mirrored/losses"], states["one-device/losses"], rtol=1e-4)
    trained = 0
    for key in [name for name in states if name.startswith("one-device/after/")]:
        name = key.removeprefix("one-device/after/")
        before, one, two = states[f"one-device/before/{name}"], states[key], states[f"mirrored/after/{name}"]
        np.testing.assert_array_equal(states[f"mirrored/before/{name}"], before)
        if "constants" in name:  # of all replicas alike, whose mean in float32 they would not be
            np.testing.assert_array_equal(one, before)
            np.testing.assert_array_equal(two, before)
            continue
        trained += 1
        change = np.abs(one - before).max()
        assert change > 0, name
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-3 * change + 1e-7, err_msg=name)
    assert trained > 15
