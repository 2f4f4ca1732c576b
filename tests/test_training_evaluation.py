"""The look at the model, an evaluation that chooses the best: bins, losses, and which weights are judged."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from showers import (
    RING_GEOMETRY,
    SMALL_GEOMETRY,
    make_dataset,
    make_file,
    make_ring_showers,
    make_showers,
)
from trainings import LAYERS, engine_of, evaluator_of

from calopipe.errors import InputError
from preprocessing.dataset import read_manifest
from preprocessing.reading import ordered_batches
from training.configs import named_config
from training.models.config import FitConfig
from training.models.showers import ShowerJudge, selection_bins
from training.models.source import ModelFile


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("evaluation")
    files = [str(make_file(place / f"{name}.h5", events=40, seed=seed)) for seed, name in enumerate(("a", "b"))]
    make_dataset(place / "ds", *files, split_files=["train=a*", "validation=b*"])
    return place / "ds"


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What judges of showers were given, batch by batch: Monte Carlo's cells and energies, and the cells `made`."""
    add, batches = ShowerJudge.add, []

    def noting(judge: ShowerJudge, batch: Any, made: Any) -> Any:
        batches.append(
            {"cells": batch["cells"].numpy(), "energy_gev": batch["energy_gev"].numpy(), "made": made.numpy()}
        )
        return add(judge, batch, made)

    monkeypatch.setattr(ShowerJudge, "add", noting)
    return batches


def _joined(looked: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([batch[name] for batch in looked]) for name in looked[0]}


@pytest.mark.parametrize(("showers", "bins"), [(73, 1), (1_800, 3), (6_000, 9)])
def test_bins_are_as_wide_as_the_showers_at_hand_ask(showers: int, bins: int) -> None:
    rng = np.random.default_rng(1)
    energy = rng.uniform(100, 200, showers).astype(np.float32)
    theta = rng.uniform(1.05, 2.09, showers).astype(np.float32)
    chosen = selection_bins(energy, theta)
    assert len(chosen) == bins
    held = [
        np.sum((abs(energy - b.energy_gev) <= b.energy_reach_gev) & (abs(theta - b.theta_rad) <= b.theta_reach_rad))
        for b in chosen
    ]
    assert sum(held) == pytest.approx(showers, abs=3)  # none is left out, but for one on an edge that is in two
    assert bins == 1 or min(held) >= 500


def test_losses_and_metric_are_of_every_shower_of_the_split(dataset: Path, looked: list[dict[str, Any]]) -> None:
    config = named_config("small")
    evaluator = evaluator_of(config, dataset, engine_of(config, dataset))
    found = evaluator.evaluate()
    seen = _joined(looked)
    assert evaluator._evaluate.experimental_get_tracing_count() == 1
    assert found.findings["energy_sum"] == pytest.approx(seen["made"].sum() / seen["cells"].sum(), rel=1e-4)
    assert found.findings["metric"]["value"] is None  # 40 showers are too few for a figure
    assert evaluator.score(found) == found.losses["total"]
    (told,) = found.findings["metric"]["bins"]
    assert (told["reference"], told["candidate"]) == (40, 40)
    # 40 showers are a batch of 32 and one of 8, drawn apart; the split's order is that of its file
    showers = make_showers(events=40, seed=1)
    order = np.argsort(seen["energy_gev"]), np.argsort(showers.energy_gev)
    np.testing.assert_array_equal(seen["cells"][order[0]], showers.cells[order[1]])
    ecal = 100 * abs(seen["made"].sum((1, 2, 3)) / seen["cells"].sum((1, 2, 3)) - 1)
    assert found.losses["ecal"] == pytest.approx(ecal.mean(), rel=1e-4)
    weights = evaluator.model.weights
    assert found.losses["total"] == pytest.approx(sum(weights[name] * found.losses[name] for name in weights))


@pytest.mark.parametrize(
    ("settings", "every"),
    [({}, 3), ({"evaluation_share": 0.5}, 2), ({"evaluation_share": 0.5, "evaluation_steps": 20}, 1),
     ({"evaluation_share": 0.0}, 1)],
)  # fmt: skip
def test_a_look_takes_its_share_of_the_training_and_is_of_showers_from_all_over_the_split(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, looked: list[dict[str, Any]], settings: dict[str, Any], every: int
) -> None:
    """With batches of 4: half of a training on 40 showers is 20, half of one on 80 (20 steps) is all; at least 15."""
    monkeypatch.setattr(FitConfig, "least_evaluated", 15)
    layers = ModelFile.read(Path(LAYERS[1])).run()["layers"]
    evaluator = evaluator_of(layers.with_values({"batch": 4, **settings}), dataset)
    evaluator.evaluate()
    energies = _joined(looked)["energy_gev"]
    (whole,) = ordered_batches(dataset, read_manifest(dataset), "validation", batch=40)
    np.testing.assert_array_equal(energies, whole["energy_gev"][::every])
    assert (evaluator.every, evaluator.showers) == (every, len(energies))


def test_an_accelerator_looks_at_whole_batches(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 40 showers, one batch of 32."""
    model = SimpleNamespace(evaluation_cost=0.1, decode_judged=lambda records, _: {"records": records})
    monkeypatch.setattr("training.run.evaluator.build", lambda *_: model)
    monkeypatch.setattr("training.run.evaluator.computes_on_processors", lambda _: False)
    evaluator = evaluator_of(named_config("small"), dataset)
    assert evaluator.showers == 32
    assert evaluator._part(0).element_spec["records"].shape == (32,)


@pytest.mark.slow
def test_a_look_that_xla_compiles_finds_the_same(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, looked: list[dict[str, Any]]
) -> None:
    """Up to the noise, which XLA draws in another way."""
    config = named_config("small")
    engine, looks = engine_of(config, dataset), []
    for compiled in (False, True):
        monkeypatch.setattr("training.run.evaluator.compiled_by_xla", lambda _, compiled=compiled: compiled)
        looks.append(evaluator_of(config, dataset, engine).evaluate())
    plain, compiled = looks
    for one, other in zip(looked[:2], looked[2:], strict=True):
        np.testing.assert_array_equal(one["cells"], other["cells"])
    assert compiled.losses.keys() == plain.losses.keys()
    for name, value in compiled.losses.items():
        assert value == pytest.approx(plain.losses[name], rel=0.3), name


def test_enough_showers_are_judged_by_the_metric_without_what_holds_next_to_nothing(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, looked: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr("training.models.showers.LEAST_EVENTS", 40)
    evaluator = evaluator_of(named_config("small"), dataset)
    found = evaluator.evaluate()
    assert evaluator.score(found) == found.findings["metric"]["value"]
    profile, seen = [], _joined(looked)
    for others in ((2, 3), (1, 3), (1, 2)):
        expected, made = (seen[name].sum(axis=others, dtype=float).mean(axis=0) for name in ("cells", "made"))
        kept = expected > 1e-3 * expected.sum()
        profile.append(np.mean(abs(made[kept] / expected[kept] - 1)))
    assert found.findings["metric"]["profile"] == pytest.approx(np.mean(profile), rel=1e-4)


def test_a_judge_keeps_no_showers() -> None:
    """Its memory does not grow with the cells of the showers."""
    judge = ShowerJudge(1_000_000, SMALL_GEOMETRY)
    showers = make_showers(events=32)
    batch = {name: tf.constant(getattr(showers, name)) for name in ("cells", "energy_gev", "theta_rad")}
    tracemalloc.start()
    try:
        for _ in range(40):
            judge.add(batch, batch["cells"])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < held < 0.3 * 40 * 2 * showers.cells.nbytes


def test_a_model_that_fills_places_without_a_cell_is_refused_before_it_is_trained() -> None:
    showers = make_ring_showers(events=2)
    batch = {name: tf.constant(getattr(showers, name)) for name in ("cells", "energy_gev", "theta_rad")}
    judge = ShowerJudge(2, RING_GEOMETRY)
    judge.add(batch, batch["cells"])
    showers.cells[1, 5, 2, 0] = 1e-3  # of eight angles this layer has one
    with pytest.raises(InputError, match=r"not 0 at \(5, 2, 0\), where the calorimeter has no cell"):
        judge.add(batch, tf.constant(showers.cells))


def test_averages_are_what_is_judged(dataset: Path) -> None:
    """Averages of the generator's weights and statistics; the discriminator has no averages."""
    config = named_config("small", average=0.9)
    state = engine_of(config, dataset).state()
    state |= {name: value + np.float32(0.01) for name, value in state.items() if name.startswith("average/")}
    evaluator = evaluator_of(config, dataset)
    evaluator.take_over(state)
    for name, network in evaluator.model.networks.items():
        shift = 0.01 if name == "generator" else 0.0
        for number, weight in enumerate(network.weights):
            np.testing.assert_allclose(weight, state[f"network/{name}/{number}"] + shift, rtol=1e-6)
