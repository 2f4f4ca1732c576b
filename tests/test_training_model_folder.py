"""The card in a model's folder: its entries, the files that it may name, and what it says about the model."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from verdicts import candidate

from calopipe import storage
from calopipe.errors import InputError
from training import model_folder
from training.model_folder import read_card


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The folder of files that stand for a trained model."""
    return candidate(tmp_path, 1).model


def test_a_card_names_files_of_its_folder_alone(model: Path) -> None:
    """The files that a card names are copied to another folder."""
    card = read_card(model)
    for name in ("../run.json", "..", "below/weights.h5"):
        path = model / name
        if name != "..":
            path.parent.mkdir(exist_ok=True)
            path.write_text("{}")
        sha256 = storage.sha256_of_file(path) if path.is_file() else ""
        model_folder.write_card(model, replace(card, weights={name: sha256}))
        with pytest.raises(InputError, match=rf"card\.json: names the file '{name}', which is not one of its folder"):
            read_card(model)


def test_a_model_of_a_kind_that_is_not_known_is_named_by_its_card(model: Path) -> None:
    """It is not named by an option; the option of `generate` is for the folder."""
    card = model / model_folder.CARD
    card.write_text(card.read_text().replace('"3dgan-small"', '"mine"'))
    with pytest.raises(InputError, match=f"^{re.escape(str(card))}: the kind of model 'mine' is unknown; known: "):
        read_card(model)


@pytest.mark.parametrize("name", ["config", "geometry", "valid_range", "dataset", "trained", "losses", "weights"])
def test_a_card_whose_part_is_no_object_is_told_in_a_line(model: Path, name: str) -> None:
    """Also by every command that is given the model: such a command first looks for a user's file."""
    card = model / model_folder.CARD
    whole = json.loads(card.read_text())
    told = f"^{re.escape(str(card))}: not a whole model card \\('{name}' is missing, or no JSON object\\); train again$"
    for value in (["generator.weights.h5"], "generator.weights.h5", None):
        card.write_text(json.dumps(whole | {name: value}))
        with pytest.raises(InputError, match=told):
            read_card(model)
        with pytest.raises(InputError, match=told), model_folder.model_on_disk(str(model)):
            pytest.fail("the model was taken")


def test_a_step_of_a_run_takes_the_model_that_was_just_trained_alone_and_sums_it_up(
    model: Path, tmp_path: Path
) -> None:
    card = read_card(model)
    fingerprint = card.fingerprint()
    assert card.summary() == "1 steps; on the validation split: no showers"
    assert replace(card, losses={"a": 0.123456, "b": 2.0}).summary().endswith("split: a 0.1235, b 2")
    model_folder.require_model(model, fingerprint)
    for name, asked in ((model, "another"), (tmp_path, fingerprint)):
        with pytest.raises(InputError, match="holds another model than the one just trained"):
            model_folder.require_model(name, asked)
