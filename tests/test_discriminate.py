"""CaloChallenge's classifiers: the network in NumPy, planted differences, and bad input."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from showers import RINGS, SMALL_GEOMETRY, make_file, make_rings

from calopipe import storage
from calopipe.errors import InputError
from calopipe.lock import alone
from calopipe.showers.files import open_all, open_showers
from calopipe.showers.positions import voxel_order
from calopipe.showers.selection import Selection
from training import __main__ as command
from training.calochallenge import discriminate as module
from training.calochallenge.discriminate import discriminate
from training.models.classifier import ClassifierConfig
from training.models.classifier.model import Discriminator


def test_the_network_in_numpy() -> None:
    model = Discriminator(RINGS, high=False, hidden=5, layers=2, dropout=0.0)
    weights = [weight.numpy().astype(np.float64) for weight in model.networks["discriminator"].weights]
    inputs = 1 + 3 + 3 * 24
    assert [weight.shape for weight in weights] == [(inputs, 5), (5,), (5, 5), (5,), (5, 5), (5,), (5, 1), (1,)]
    assert 0.9 / np.sqrt(inputs) < np.abs(weights[0]).max() <= 1 / np.sqrt(inputs)  # PyTorch's first weights
    rng = np.random.default_rng(4)
    order = voxel_order(RINGS)
    deposits = rng.exponential(200, (2, len(order)))  # MeV
    energy = np.array([10.0, 40.0], np.float32)
    cell = np.tile(order, (2, 1)).astype(np.int32)
    batch = {"cell": cell, "value": (deposits / 20).astype(np.float32), "energy_gev": energy}
    flow = np.concatenate([np.log10(energy * 1e3)[:, None], 100 * deposits / (energy[:, None] * 1e3)], axis=1)
    for weight, bias in zip(weights[0:6:2], weights[1:6:2], strict=True):
        flow = flow @ weight + bias
        flow = np.where(flow > 0, flow, 0.01 * flow)
    expected = (flow @ weights[6] + weights[7])[:, 0]
    found = model.answer({name: tf.constant(values) for name, values in batch.items()})
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_planted_differences_are_found_and_none_where_there_is_none(tmp_path: Path) -> None:
    reference = make_rings(tmp_path / "geant4.h5", events=300, seed=1)
    wider = make_rings(tmp_path / "wider.h5", events=330, seed=2, width_mm=30.0)
    settings = {"epochs": 12, "batch": 36, "learning_rate": 3e-3, "hidden": 64}
    found = discriminate([reference], [wider], tmp_path / "result.json", **settings)  # type: ignore[arg-type]
    assert found["showers"] == 300
    assert found["inputs"]["candidate"] == [storage.sha256_of_file(wider)]
    for level in ("low", "high"):
        each = found["classifiers"][level]
        assert each["tested"] == 120  # a fifth of either set
        assert each["auc"] > 0.85, level
        assert each["jsd"] > 0.2, level
    assert discriminate([reference], [wider], tmp_path / "result.json", **settings) == found  # type: ignore[arg-type]
    alike = make_rings(tmp_path / "alike.h5", events=300, seed=3)
    found = discriminate([reference], [alike], tmp_path / "result.json", levels=["high"], **settings | {"epochs": 3})  # type: ignore[arg-type]
    assert 0.34 < found["classifiers"]["high"]["auc"] < 0.66  # three standard errors of 60 against 60
    assert "low" not in found["classifiers"]


@pytest.mark.parametrize(
    ("watched", "judged", "auc", "jsd"),
    [
        # in bits: of eight that the calibration gives 3/4, seven are right
        (6, 7, 56 / 64, 1 - 7 / 8 * np.log2(4 / 3) - 1 / 8 * 2),
        # sure, to a millionth, and wrong once in eight
        (8, 7, 56 / 64, 1 + np.log2(1e-6) / 8),
        (4, 8, 1.0, 0.0),
    ],
)
def test_the_numbers_of_a_classifier_of_two_answers(
    monkeypatch: pytest.MonkeyPatch, watched: int, judged: int, auc: float, jsd: float
) -> None:
    """Eight showers of Monte Carlo and eight generated showers; a given number of each have the right answer."""
    right = {"validation": watched, "test": judged}

    def batches(dataset: Path, manifest: Any, split: str, **_: Any) -> list[dict[str, tf.Tensor]]:
        answer = np.where(np.arange(8) < right[split], 1.0, -1.0)
        labels, logits = np.repeat([1, 0], 8), np.concatenate([answer, -answer]).astype(np.float32)
        both = {"monte_carlo": labels, "logits": logits}
        return [
            {name: tf.constant(values[part]) for name, values in both.items()} for part in np.split(np.arange(16), 2)
        ]

    card = SimpleNamespace(trained={"chosen_step": 5})
    network = SimpleNamespace(decode=None, answer=lambda batch: batch["logits"])
    monkeypatch.setattr(module, "load_model", lambda _: (card, network))
    monkeypatch.setattr(module, "ordered_batches", batches)
    unread: Any = None
    numbers = module._judged(unread, unread, unread)
    assert numbers == {"auc": auc, "jsd": pytest.approx(jsd, abs=1e-5), "tested": 16, "chosen_step": 5}


@pytest.mark.parametrize("where", ["on a disk", "on a bucket"])
def test_a_training_that_was_done_is_not_done_again(
    where: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first run ends when it evaluates what it has trained."""
    if where == "on a bucket":
        request.getfixturevalue("proxy")
    folder = "gs://runs/c" if where == "on a bucket" else str(tmp_path / "c")
    sets = [make_rings(tmp_path / f"{seed}.h5", events=40, seed=seed) for seed in (1, 2)]
    options = ["--reference", str(sets[0]), "--candidate", str(sets[1]), "--output", f"{folder}/r.json"]
    options += ["--epochs", "1", "--batch", "12", "--hidden", "4", "--level", "high"]
    with monkeypatch.context() as ends:
        ends.setattr(module, "_judged", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            command.main(["discriminate", *options])
    assert len(storage.listing(storage.location(folder))) > 3
    capsys.readouterr()
    command.main(["discriminate", *options])
    assert "model stands" in capsys.readouterr().out
    assert list(storage.listing(storage.location(folder))) == ["r.json"]


def test_a_second_training_into_a_file_is_refused_and_so_is_anothers_file(tmp_path: Path) -> None:
    sets = [make_rings(tmp_path / f"{seed}.h5", events=40, seed=seed) for seed in (1, 2)]
    with alone(tmp_path, ".result.json.lock"), pytest.raises(InputError, match="another run writes there"):
        discriminate(sets[:1], sets[1:], tmp_path / "result.json")
    before = sets[0].read_bytes()
    for output in (sets[0], tmp_path / "notes.json"):
        output.touch()
        with pytest.raises(InputError, match="exists, and calopipe did not write it"):
            discriminate(sets[:1], sets[1:], output)
    assert sets[0].read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.h5", "2.h5", "notes.json"]


def test_both_sets_take_part_in_pairs_and_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files in each set, 35 and 33 showers, which are identified by their energies."""
    monkeypatch.setattr(module, "_AT_ONCE", 7)
    sets = []
    for name, events in (("mc", (20, 15)), ("made", (18, 15))):
        files = [make_file(tmp_path / f"{name}{n}.h5", events=n, seed=n) for n in events]
        sets.append(open_all(files))
    showers = module._merged(*sets, tmp_path, Selection(cut_gev=0.0), seed=3)
    assert showers == 33
    mc, made = (np.concatenate([file.energy_gev for file in files]) for files in sets)
    pairs = []
    for split, events in (("train", 19), ("validation", 6), ("test", 8)):
        energy = open_showers(tmp_path / f"{split}.h5").energy_gev
        first = [mc.tolist().index(value) for value in energy[::2]]
        second = [made.tolist().index(value) for value in energy[1::2]]
        assert (len(first), first, first) == (events, second, sorted(first))
        pairs += first
    assert sorted(pairs) == list(range(33))
    assert pairs[:19] != list(range(19))
    few = [open_all([make_file(tmp_path / f"{n}.h5", events=20, seed=n)]) for n in (1, 2)]
    assert module._merged(*few, tmp_path, Selection(cut_gev=0.0), seed=3) == 20  # which are enough


def test_bad_input(tmp_path: Path) -> None:
    rings = make_rings(tmp_path / "rings.h5", events=30, seed=1)
    few = make_rings(tmp_path / "few.h5", events=19, seed=1)
    square = make_file(tmp_path / "square.h5", events=30)
    with pytest.raises(InputError, match="of another detector"):
        discriminate([rings], [square], tmp_path / "result.json")
    with pytest.raises(InputError, match="share 19 showers, a classifier needs 20"):
        discriminate([rings], [few], tmp_path / "result.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.h5", "rings.h5", "square.h5"]
    with pytest.raises(InputError, match="rectangular"):
        discriminate([square], [square], tmp_path / "result.json", levels=["high"])
    with pytest.raises(InputError, match="--dropout is 1"):
        ClassifierConfig(model="low-level-classifier", dropout=1.0)
    assert SMALL_GEOMETRY.cells == len(voxel_order(SMALL_GEOMETRY))  # rectangular cells are all inputs
