"""What a training run is: a named config with changes, and how it is run. Loads the models' configs, no TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calopipe.errors import InputError
from training.models import autoregressive, gan  # noqa: F401  which register themselves
from training.models.config import (
    CONFIGS,
    DEFAULT,
    STRATEGIES,
    FitConfig,
    all_settings,
    option,
    settings_of,
    type_of,
)

__all__ = [
    "ANEW", "CONFIGS", "DEFAULT", "FROM_INCUMBENT", "STRATEGIES", "FitConfig", "RunOptions", "all_settings",
    "as_options", "named_config", "option", "require_origin", "type_of", "with_settings",
]  # fmt: skip

APPROACHES = ("custom", "builtin")
# What a training of the pipeline begins with: the weights of the registry's current model, or new ones.
FROM_INCUMBENT, ANEW = "incumbent", "none"
# The settings that a run of the pipeline has parameters of its own for.
_PARAMETERS = ("epochs", "steps", "strategy", "seed")


@dataclass(frozen=True)
class RunOptions:
    """How a training is run, which does not change what it ends with.

    `approach` is `custom`, our loop, or `builtin`, Keras's `fit`. `steps_a_call` steps run in the graph before Python
    has its turn; 0 means 10 on GPUs and TPUs, and 1 on CPUs, where a step outlasts a call many times. A checkpoint is
    written every `checkpoint_seconds` and, where `checkpoint_steps` is not 0, at each multiple of it, beside those
    that end epochs; the newest `checkpoints_kept` stand, and the best. `cache` holds the train split's records in
    memory. `profile` says where the time of a step goes.
    """

    approach: str = "custom"
    steps_a_call: int = 0
    checkpoint_seconds: float = 600.0
    checkpoint_steps: int = 0
    checkpoints_kept: int = 3
    cache: bool = False
    profile: bool = False

    def __post_init__(self) -> None:
        if self.approach not in APPROACHES:
            raise InputError(f"--approach {self.approach!r} is unknown; known: {', '.join(APPROACHES)}")
        for name, low in (("steps_a_call", 0), ("checkpoint_steps", 0), ("checkpoints_kept", 1)):
            if getattr(self, name) < low:
                raise InputError(f"{option(name)} is {getattr(self, name)}, expected at least {low}")
        if not self.checkpoint_seconds > 0:
            raise InputError(f"--checkpoint-seconds is {self.checkpoint_seconds}, expected more than 0")
        if self.approach == "builtin" and self.steps_a_call > 1:
            raise InputError("--steps-a-call is for --approach custom; Keras's fit is given one step at a time")

    def check_strategy(self, strategy: str) -> None:
        """Raise InputError where Keras cannot do what is asked."""
        if self.approach == "builtin" and strategy == "multi-worker":
            raise InputError(
                "--approach builtin: Keras 3's fit does not run on several workers (keras issue 20585); "
                "give --approach custom"
            )


def require_origin(origin: str) -> None:
    """Raise InputError unless `origin` is one of FROM_INCUMBENT and ANEW."""
    if origin not in (FROM_INCUMBENT, ANEW):
        raise InputError(f"--warm-start {origin!r} is unknown; known: {FROM_INCUMBENT}, {ANEW}")


def named_config(name: str, **overrides: Any) -> FitConfig:
    """The config `name`, with the values of `overrides` that are not None. Epochs that are given replace its steps."""
    if name not in CONFIGS:
        raise InputError(f"--config {name!r} is unknown; known: {', '.join(CONFIGS)}")
    given = {key: value for key, value in overrides.items() if value is not None}
    if "epochs" in given:
        given = {"steps": 0, **given}
    return CONFIGS[name].with_values(given)


def with_settings(config: FitConfig, settings: Mapping[str, Any]) -> FitConfig:
    """`config` with `settings` in place of its own, such as {"average": 0.999}: what a run of the pipeline may change.

    InputError for a setting that the model does not have, or that the pipeline has a parameter for.
    """
    known = {each.name: type_of(each) for each in settings_of(type(config)) if each.name not in _PARAMETERS}
    checked: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in known:
            raise InputError(f"training setting {name!r} is unknown; known: {', '.join(known)}")
        kind = known[name]
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if kind is str and isinstance(value, str):
            checked[name] = value
        elif kind is not str and number and kind(value) == value:  # JSON has one kind of number
            checked[name] = kind(value)
        else:
            expected = {str: "a name", int: "a whole number", float: "a number"}[kind]
            raise InputError(f"training setting {name} is {value!r}, expected {expected}")
    return config.with_values(checked)


def as_options(config: FitConfig, name: str) -> list[str]:
    """The options of `python -m training fit` that make `config` of the config called `name`."""
    options = ["--config", name]
    for field in settings_of(type(config)):
        if (value := getattr(config, field.name)) != getattr(CONFIGS[name], field.name):
            options += [option(field.name), str(value)]
    return options
