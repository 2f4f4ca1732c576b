"""What a training run is: the frozen config, and the named ones to choose from. No TensorFlow in here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from calopipe.errors import InputError, require_seed
from calopipe.showers.cells import Geometry

# Models by name, each with the one shape of showers (x, y, layer) that it is for, if it is for one.
# Those called plain are of stock Keras layers, for comparison: the same functions of the same weights, slower.
MODELS: dict[str, tuple[int, int, int] | None] = {
    "3dgan": (51, 51, 25),
    "3dgan-plain": (51, 51, 25),
    "3dgan-small": (17, 17, 5),
    "3dgan-small-plain": (17, 17, 5),
    "autoregressive": None,
}
STRATEGIES = ("one-device", "mirrored", "multi-worker", "tpu")
# Names of arithmetic, each with Keras's name of the policy. Energy sums, angles and losses are in float32 under all
# but float64, which is for checks; tf32 is float32 whose products a GPU rounds to 10 bits.
PRECISIONS = {
    "float32": "float32",
    "tf32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
    "float64": "float64",
}
SCHEDULES = ("constant", "cosine", "exponential")
APPROACHES = ("custom", "builtin")
# What a training of the pipeline begins with: the weights of the registry's current model, or new ones.
FROM_INCUMBENT, ANEW = "incumbent", "none"
DEFAULT = "fast"  # the config of a training that names none


@dataclass(frozen=True)
class FitConfig:
    """What decides the weights that a training ends with, beside its dataset.

    `batch` counts showers a replica; `learning_rate` is that of every network's optimizer; `momentum` is the batch
    normalisation's; `steps` ends the run early, after so many optimisation steps, 0 meaning that `epochs` alone
    decides. `precision` names the arithmetic.

    The learning rate rises from 0 over `warm_up_epochs`, and then follows `schedule`: constant, or down to a hundredth
    at the end, by half a cosine or exponentially. With `linear_scaling` it is for a global batch of so many showers,
    and grows in proportion with the batch there is (Goyal et al., arXiv 1706.02677); 0 takes it as it stands.

    `average` is the decay, an update, of an exponential moving average of the weights that make showers, which then
    are what is evaluated and kept; 0 keeps the weights themselves. `patience` ends the run after so many epochs without
    a better metric on the validation split; 0 does not. The model is judged by that split at the end of each epoch in
    which a multiple of `evaluation_steps` falls, or of every one if that is 0, and at the end of the training.

    `width` is that of the networks of the model `autoregressive`; others have their own.
    """

    model: str
    batch: int
    epochs: int
    learning_rate: float
    momentum: float
    strategy: str = "one-device"
    precision: str = "float32"
    schedule: str = "constant"
    warm_up_epochs: float = 0.0
    linear_scaling: int = 0
    average: float = 0.0
    patience: int = 0
    steps: int = 0
    evaluation_steps: int = 0
    width: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        for name, known in (
            ("model", MODELS), ("strategy", STRATEGIES), ("precision", PRECISIONS), ("schedule", SCHEDULES),
        ):  # fmt: skip
            if (value := getattr(self, name)) not in known:
                raise InputError(f"--{name} {value!r} is unknown; known: {', '.join(known)}")
        require_seed(self.seed)
        for name, low in (
            ("batch", 1), ("epochs", 1), ("steps", 0), ("linear_scaling", 0), ("patience", 0),
            ("evaluation_steps", 0), ("width", 0),
        ):  # fmt: skip
            if getattr(self, name) < low:
                raise InputError(f"{_option(name)} is {getattr(self, name)}, expected at least {low}")
        if not 0 < self.learning_rate < 1:
            raise InputError(f"--learning-rate is {self.learning_rate}, expected a number between 0 and 1")
        if not 0 <= self.warm_up_epochs < self.epochs:
            raise InputError(
                f"--warm-up-epochs is {self.warm_up_epochs}, expected at least 0 and under --epochs {self.epochs}"
            )
        if self.model == "autoregressive" and self.width == 0:
            raise InputError("--width is 0, expected at least 1 for the model autoregressive")
        if self.model == "autoregressive" and self.precision == "float64":
            raise InputError("--precision float64 is not for the model autoregressive")
        for name in ("momentum", "average"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{_option(name)} is {getattr(self, name)}, expected at least 0 and under 1")
        if self.strategy == "tpu" and self.precision == "float16":
            raise InputError("--precision float16 is not for TPUs; give bfloat16")

    def check_shape(self, geometry: Geometry) -> None:
        """Raise InputError unless the model takes showers of `geometry`."""
        if MODELS[self.model] not in (None, geometry.shape):
            raise InputError(
                f"the showers have {geometry.shape} cells, the model {self.model} is for {MODELS[self.model]}; "
                f"choose --config {DEFAULT}, which takes any shape"
            )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> FitConfig:
        return cls(**{field.name: document[field.name] for field in fields(cls) if field.name in document})


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
                raise InputError(f"{_option(name)} is {getattr(self, name)}, expected at least {low}")
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


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


CONFIGS = {
    # The published training (reference: svalleco/3Dgan; arXiv 2111.04628): days on a laptop, an hour on 8 GPUs.
    "3dgan": FitConfig(model="3dgan", batch=64, epochs=60, learning_rate=1e-3, momentum=0.99),
    # Likelihoods of a shower's totals and of its cells, for about 3, 12 and 60 minutes on two cores.
    **{
        name: FitConfig(
            model="autoregressive",
            batch=32,
            epochs=1_000_000,
            steps=steps,
            learning_rate=3e-3,
            momentum=0.0,
            schedule="cosine",
            average=0.998,
            evaluation_steps=steps // 4,
            width=64,
        )
        for name, steps in (("fast", 1_600), ("standard", 6_000), ("full", 30_000))
    },
    # The reference's network for a coarse calorimeter of 17 x 17 x 5 cells: seconds.
    "small": FitConfig(model="3dgan-small", batch=8, epochs=2, learning_rate=1e-3, momentum=0.9),
}


# What a run of the pipeline may change of a config, beside what it has parameters of its own for.
SETTINGS = (
    "batch", "learning_rate", "precision", "schedule", "warm_up_epochs", "linear_scaling", "average", "patience",
    "evaluation_steps", "width",
)  # fmt: skip


def require_origin(origin: str) -> None:
    """Raise InputError unless `origin` is one of FROM_INCUMBENT and ANEW."""
    if origin not in (FROM_INCUMBENT, ANEW):
        raise InputError(f"--warm-start {origin!r} is unknown; known: {FROM_INCUMBENT}, {ANEW}")


def with_settings(config: FitConfig, settings: Mapping[str, Any]) -> FitConfig:
    """`config` with values of SETTINGS in place of its own, such as {"average": 0.999}; InputError for any other."""
    checked: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in SETTINGS:
            raise InputError(f"training setting {name!r} is unknown; known: {', '.join(SETTINGS)}")
        kind = type(getattr(config, name))
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if kind is str and isinstance(value, str):
            checked[name] = value
        elif kind is not str and number and kind(value) == value:  # JSON has one kind of number
            checked[name] = kind(value)
        else:
            expected = {str: "a name", int: "a whole number", float: "a number"}[kind]
            raise InputError(f"training setting {name} is {value!r}, expected {expected}")
    return replace(config, **checked)


def as_options(config: FitConfig, name: str) -> list[str]:
    """The options of `python -m training fit` that make `config` of the config called `name`."""
    options = ["--config", name]
    for field in fields(FitConfig):
        if (value := getattr(config, field.name)) != getattr(CONFIGS[name], field.name):
            options += [_option(field.name), str(value)]
    return options


def named_config(name: str, **overrides: Any) -> FitConfig:
    """The config `name`, with the values of `overrides` that are not None. Epochs that are given replace its steps."""
    if name not in CONFIGS:
        raise InputError(f"--config {name!r} is unknown; known: {', '.join(CONFIGS)}")
    given = {key: value for key, value in overrides.items() if value is not None}
    if "epochs" in given:
        given = {"steps": 0, **given}
    return replace(CONFIGS[name], **given)
