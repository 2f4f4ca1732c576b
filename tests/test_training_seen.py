"""No event judges a model that has seen it, or whose ancestor has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from showers import make_dataset, make_file, make_showers, write_file
from trainings import fit_layers

from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.showers.files import open_showers
from calopipe.showers.selection import Selection
from training import folder
from training.asked.conditions import Conditions
from training.folder import Card, read_card
from training.generation import EXTRAPOLATE, generate


def _seen(path: Path) -> set[int]:
    """What a model that is trained on `path` sees, by reading that."""
    chosen = [open_showers(path).chosen(Selection(split)) for split in ("train", "validation")]
    return {int(digest) for mask, digests in chosen for digest in digests[mask]}


def _fit(output: Path, *paths: Path, warm_start: Path, split_files: tuple[str, ...] = ()) -> Card:
    """A training of one step on the dataset of these files."""
    dataset = output.with_name(f"{output.name}-ds")
    make_dataset(dataset, *paths, split_files=split_files)
    fit_layers(dataset, output, "--steps", "1", "--warm-start", str(warm_start))
    return read_card(output)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Monte Carlo `mc.h5`, its dataset `ds`, and a model of it."""
    place = tmp_path_factory.mktemp("seen")
    make_dataset(place / "ds", make_file(place / "mc.h5", events=100))
    fit_layers(place / "ds", place / "model", "--steps", "2")
    return place


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    """The showers that the model was trained on, in another order, precision and compression, beside twenty others."""
    order = np.random.default_rng(0).permutation(120)
    own, others = make_showers(events=100), make_showers(events=20, seed=7)
    mixed = type(own)(*(np.concatenate([getattr(each, name) for each in (own, others)])[order] for name in own.arrays))
    return write_file(tmp_path / "copy.h5", mixed, chunks=False, ECAL=mixed.cells.astype(np.float64))


def test_a_model_knows_what_it_and_its_ancestor_have_seen(trained: Path, copy: Path, tmp_path: Path) -> None:
    assert set(np.load(trained / "model/seen.npy").tolist()) == _seen(trained / "mc.h5")
    other = make_file(tmp_path / "other.h5", events=30, seed=3)
    _fit(tmp_path / "child", other, warm_start=trained / "model")
    assert set(np.load(tmp_path / "child/seen.npy").tolist()) == _seen(trained / "mc.h5") | _seen(other)
    rule = SplitRule.parse(["test=copy.h5"])
    with pytest.raises(InputError, match=r"was trained on 7\d of the 120 test events, which then cannot judge"):
        generate(tmp_path / "child", Conditions([copy], Selection("test", rule)), tmp_path / "g.h5")
    assert not (tmp_path / "g.h5").exists()


def test_a_copy_of_the_files_leaves_the_test_events_unseen(trained: Path, copy: Path, tmp_path: Path) -> None:
    card = _fit(tmp_path / "m", copy, warm_start=trained / "model")
    assert card.trained["warm_start"]
    for model in (trained / "model", tmp_path / "m"):
        conditions = Conditions([copy], Selection("test"))
        made = generate(model, conditions, tmp_path / f"{model.name}.h5", outside=EXTRAPOLATE)
        assert 0 < made < 60


def test_a_warm_start_that_has_seen_the_test_events_is_refused(trained: Path, copy: Path, tmp_path: Path) -> None:
    other = make_file(tmp_path / "other.h5", events=30, seed=3)
    with pytest.raises(InputError, match=r"--warm-start \S+: was trained on 7\d of the 120 test events"):
        _fit(tmp_path / "m", copy, other, split_files=("test=copy.h5",), warm_start=trained / "model")
    assert not (tmp_path / "m").exists()
    swapped = _fit(tmp_path / "n", copy, other, split_files=("test=other.h5",), warm_start=trained / "model")
    assert swapped.trained["warm_start"]


def test_a_model_that_does_not_know_generates_and_begins_nothing(trained: Path, tmp_path: Path) -> None:
    folder.take_over(trained / "model", tmp_path / "old", overwrite=False)
    card = json.loads((tmp_path / "old/card.json").read_text())
    del card["dataset"]["seen"]
    (tmp_path / "old/card.json").write_text(json.dumps(card))
    (tmp_path / "old/seen.npy").unlink()
    with pytest.raises(InputError, match="does not say which events it was trained on"):
        generate(tmp_path / "old", Conditions([trained / "mc.h5"], Selection("test")), tmp_path / "g.h5")
    with pytest.raises(InputError, match=r"--warm-start .* does not say which events it was trained on"):
        _fit(tmp_path / "m", trained / "mc.h5", warm_start=tmp_path / "old")


def test_what_was_seen_goes_with_the_model_and_is_checked(trained: Path, tmp_path: Path) -> None:
    folder.take_over(trained / "model", tmp_path / "m", overwrite=False)
    np.save(tmp_path / "m/seen.npy", np.zeros(3, np.uint64))
    with pytest.raises(InputError, match=r"seen\.npy: not the file that the card was written for"):
        read_card(tmp_path / "m")
