"""What a training run is: a named config with changes, and run options. Loads the models' configs, no TensorFlow."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.errors import InputError
from calopipe.mirror import address
from calopipe.options import add_settings, check_settings, option, setting, settings_of, type_of
from training.models import autoregressive, gan  # noqa: F401  which register themselves, in the order of the help

# isort: split
from training.models import pix2pix  # noqa: F401
from training.models.config import (
    CONFIGS,
    DEFAULT,
    STRATEGIES,
    FitConfig,
    all_settings,
    settings_by_models,
)
from training.models.source import file_of

__all__ = [
    "ANEW", "CONFIGS", "DEFAULT", "FROM_INCUMBENT", "PARAMETERS", "STRATEGIES", "FitConfig", "RunOptions", "add_config",
    "all_settings", "as_options", "config_of", "named_config", "require_origin", "settings_by_models", "with_settings",
]  # fmt: skip

# What a training of the pipeline begins with: the weights of the registry's current model, or new ones.
FROM_INCUMBENT, ANEW = "incumbent", "none"
# The settings for which the pipeline has parameters of their own; the step `train` takes each of them.
PARAMETERS = ("epochs", "steps", "strategy", "seed")


@dataclass(frozen=True)
class RunOptions:
    """How a training is run. These options do not change the weights that it ends with."""

    checkpoint_seconds: float = setting(
        600.0, help="between checkpoints, beside those at ends of epochs (default 600)", least=1
    )
    checkpoint_steps: int = setting(0, help="between checkpoints (default: by time alone)", least=0)
    profile: bool = setting(False, help="first trace ten steps for TensorBoard, and undo them")

    def __post_init__(self) -> None:
        check_settings(self)


def require_origin(origin: str) -> None:
    """Raise InputError unless `origin` is one of FROM_INCUMBENT and ANEW."""
    if origin not in (FROM_INCUMBENT, ANEW):
        raise InputError(f"--warm-start {origin!r} is unknown; known: {FROM_INCUMBENT}, {ANEW}")


def named_config(name: str, **overrides: Any) -> FitConfig:
    """The config `name`, with the values of `overrides` that are not None. If epochs are given, steps become 0."""
    if name not in CONFIGS:
        raise InputError(f"--config {name!r} is unknown; known: {', '.join(CONFIGS)}")
    values = {key: value for key, value in overrides.items() if value is not None}
    if "epochs" in values:
        values = {"steps": 0, **values}
    return CONFIGS[name].with_values(values)


def add_config(task: argparse.ArgumentParser) -> Any:
    """Add the options of a command that name a config and change it; returns the group of the common settings."""
    task.add_argument(
        "--config",
        default=DEFAULT if DEFAULT in CONFIGS else next(iter(CONFIGS)),
        metavar="NAME",
        help="; ".join(_summary(name, config) for name, config in CONFIGS.items()) + " (default %(default)s)",
    )
    task.add_argument(
        "--model-file", metavar="FILE.py", help="a model of your own: a file that states it, with its configs"
    )
    trained = task.add_argument_group("what is trained (default: the config's values)")
    for models, settings in settings_by_models().items():
        add_settings(task.add_argument_group(f"of the model {models}") if models else trained, settings.values())
    return trained


def _summary(name: str, config: FitConfig) -> str:
    length = f"{config.steps} steps" if config.steps else f"{config.epochs} epochs"
    return f"{name}: {config.model}, batch {config.batch}, {length}"


def config_of(options: argparse.Namespace) -> FitConfig:
    """The config that the options of `add_config` name. InputError."""
    return named_config(options.config, **{name: getattr(options, name) for name in all_settings()})


def with_settings(config: FitConfig, settings: Mapping[str, Any]) -> FitConfig:
    """`config` with other `settings`, such as {"average": 0.999}, as a run of the pipeline may change them.

    InputError for a setting that the model does not have, or for which the pipeline has a parameter.
    """
    types = {field.name: type_of(field) for field in settings_of(type(config)) if field.name not in PARAMETERS}
    checked: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in types:
            raise InputError(f"training setting {name!r} is unknown; known: {', '.join(types)}")
        kind = types[name]
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        fits = isinstance(value, kind) if kind in (str, bool) else number and kind(value) == value
        if not fits:
            expected = {str: "a name", int: "a whole number", float: "a number", bool: "true or false"}[kind]
            raise InputError(f"training setting {name} is {value!r}, expected {expected}")
        checked[name] = kind(value)  # JSON has one kind of number
    return config.with_values(checked)


def as_options(config: FitConfig, name: str) -> list[str]:
    """The options of `python -m training fit` that turn the config called `name` into `config`.

    A user's file must be on the machine where the command runs, at the path it was read from, or on gs://.
    """
    options = ["--config", name]
    if file := file_of(config):
        place = storage.location(file.place)
        options = ["--model-file", address(place) if isinstance(place, Path) else file.place, *options]
    for field in settings_of(type(config)):
        if (value := getattr(config, field.name)) != getattr(CONFIGS[name], field.name):
            options += [option(field.name, value)] if type_of(field) is bool else [option(field.name), str(value)]
    return options
