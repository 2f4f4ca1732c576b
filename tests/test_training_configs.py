"""Training configs by name: what a run of the pipeline may change of them, and the command line that makes them."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest

from calopipe.errors import InputError
from training import __main__ as command
from training import configs
from training.configs import CONFIGS, DEFAULT, FitConfig, RunOptions, as_options, named_config, with_settings
from training.models.config import register


def test_settings_take_the_place_of_the_configs_own() -> None:
    changed = with_settings(CONFIGS[DEFAULT], {"average": 0.999, "batch": 8.0, "precision": "bfloat16", "patience": 2})
    assert (changed.average, changed.batch, changed.precision, changed.patience) == (0.999, 8, "bfloat16", 2)
    assert type(changed.batch) is int
    assert with_settings(changed, {}) == changed
    assert type(with_settings(changed, {"average": 0}).average) is float  # so that it equals itself read from a card


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"avrage": 0.9}, "training setting 'avrage' is unknown; known: batch, learning_rate"),
        *(({name: 3}, f"training setting '{name}' is unknown") for name in ("model", "epochs", "steps", "seed")),
        ({"momentum": 0.5}, "training setting 'momentum' is unknown"),  # of another model
        ({"batch": 2.5}, "training setting batch is 2.5, expected a whole number"),
        ({"batch": "8"}, "training setting batch is '8', expected a whole number"),
        ({"batch": True}, "training setting batch is True, expected a whole number"),
        ({"average": "much"}, "training setting average is 'much', expected a number"),
        ({"precision": 16}, "training setting precision is 16, expected a name"),
        ({"precision": "float8"}, "--precision 'float8' is unknown"),
        ({"average": float("nan")}, "training setting average is nan, expected a number"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        with_settings(CONFIGS[DEFAULT], settings)


def test_a_setting_is_of_its_model_which_is_registered_once() -> None:
    with pytest.raises(InputError, match="--width is not for the model 3dgan-small; leave it out"):
        named_config("small", width=16)
    with pytest.raises(ValueError, match="a model called autoregressive is known already"):
        register("autoregressive")(FitConfig)


@pytest.mark.parametrize(("name", "own"), [("small", {"momentum": 0.5}), ("fast", {"width": 16})])
def test_options_make_the_config_again(name: str, own: dict[str, Any]) -> None:
    """Through the command's parser, for values that differ from the named config's wherever they may."""
    values = {"batch": 3, "learning_rate": 0.25, "precision": "tf32", "schedule": "cosine", "warm_up_epochs": 0.5}
    values |= {"linear_scaling": 32, "average": 0.75, "patience": 4, "evaluation_steps": 2, "evaluation_share": 0.5}
    values |= own
    others = {"epochs": 7, "steps": 5, "strategy": "multi-worker", "seed": 9}
    assert {*values, *others} == {field.name for field in fields(CONFIGS[name])} - {"model"}
    config = with_settings(named_config(name, **others), values)
    arguments = ["fit", "--dataset", "d", "--output", "o", *as_options(config, name)]
    options = command.parser().parse_args(arguments)
    given = {setting: getattr(options, setting) for setting in configs.all_settings()}
    assert named_config(options.config, **given) == config
    assert as_options(CONFIGS[DEFAULT], DEFAULT) == ["--config", DEFAULT]


def test_the_help_of_a_training_names_the_models_of_a_setting() -> None:
    """In a process of its own: other tests register models, whose settings would be named too."""
    fit = [sys.executable, "-m", "training", "fit", "--help"]
    whole = subprocess.run(fit, capture_output=True, text=True, check=True).stdout
    heads = re.findall(r"^(\S.*):$", whole, re.MULTILINE)
    groups = dict(zip(heads, re.split(r"^\S.*:$", whole, flags=re.MULTILINE)[1:], strict=True))
    assert "--seed" in groups["what is trained (default: the config's values)"]
    of_models = {head: re.findall("--([a-z0-9-]+)", text) for head, text in groups.items() if head.startswith("of the")}
    assert of_models.items() >= {
        "of the model autoregressive": ["width"], "of the model 3dgan, 3dgan-small": ["momentum"],
        "of the model autoencoder": ["code"], "of the model pix2pix, pix2pix-small": ["l1-weight", "noise"],
    }.items()  # fmt: skip
    assert "--hidden" not in whole  # of the classifier, which another command trains


def test_configs_of_earlier_cards_are_read() -> None:
    """They hold the settings of all models, and not those that came later."""
    document = {
        "model": "3dgan-small", "batch": 4, "epochs": 3, "learning_rate": 1e-3, "momentum": 0.9, "width": 0, "seed": 7,
    }  # fmt: skip
    assert FitConfig.from_json(document) == named_config("small", batch=4, epochs=3, seed=7)
    document |= {"model": "autoregressive", "momentum": 0.0, "width": 8, "average": 0.5}
    found = FitConfig.from_json(document)
    assert (found, found.to_json()["width"]) == (FitConfig.from_json(found.to_json()), 8)
    with pytest.raises(InputError, match="the kind of model 'flow' is unknown; known: "):
        FitConfig.from_json(document | {"model": "flow"})


def test_epochs_that_are_given_replace_the_steps_of_a_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIGS, "stepped", named_config("small", steps=50))
    assert (named_config("stepped").steps, named_config("stepped", seed=3).steps) == (50, 50)
    assert (named_config("stepped", epochs=4).epochs, named_config("stepped", epochs=4).steps) == (4, 0)
    assert named_config("stepped", epochs=4, steps=9).steps == 9


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"steps_a_call": -1}, "--steps-a-call is -1"),
        ({"checkpoint_seconds": 0.0}, "--checkpoint-seconds is 0"),
        ({"checkpoint_seconds": float("nan")}, "--checkpoint-seconds is nan"),
        ({"checkpoint_steps": -1}, "--checkpoint-steps is -1"),
        ({"checkpoints_kept": 0}, "--checkpoints-kept is 0"),
    ],
)
def test_options_of_a_run_that_cannot_be(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        RunOptions(**options)


def test_the_help_says_what_a_run_does_of_itself() -> None:
    assert RunOptions() == RunOptions(0, 600.0, 0, 3, profile=False)
    told = {option.name: option.metadata["help"] for option in fields(RunOptions)}
    assert "(default 600)" in told["checkpoint_seconds"]
    assert "(default 3)" in told["checkpoints_kept"]
    assert "10 on GPUs and TPUs, else 1" in told["steps_a_call"]
