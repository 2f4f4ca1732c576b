"""What a training run is: the frozen config, and the named ones to choose from. No TensorFlow in here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from preprocessing.errors import InputError, require_seed
from preprocessing.showers import Geometry

# Models by name, each with the one shape of showers (x, y, layer) that it is for, if it is for one.
# Those called plain are of stock Keras layers, for comparison: the same functions of the same weights, slower.
MODELS: dict[str, tuple[int, int, int] | None] = {
    "3dgan": (51, 51, 25),
    "3dgan-plain": (51, 51, 25),
    "3dgan-small": (17, 17, 5),
    "3dgan-small-plain": (17, 17, 5),
    "2dgan": None,
}
STRATEGIES = ("one-device", "mirrored")


@dataclass(frozen=True)
class FitConfig:
    """Settings of one training run.

    `batch` counts showers a replica; `learning_rate` is RMSprop's, of every network; `steps` ends the run early,
    after so many optimisation steps, 0 meaning that `epochs` alone decides; `momentum` is the batch normalisation's.
    """

    model: str
    batch: int
    epochs: int
    learning_rate: float
    momentum: float
    strategy: str = "one-device"
    steps: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise InputError(f"model {self.model!r} is unknown; known: {', '.join(MODELS)}")
        if self.strategy not in STRATEGIES:
            raise InputError(f"--strategy {self.strategy!r} is unknown; known: {', '.join(STRATEGIES)}")
        require_seed(self.seed)
        for name, low in (("batch", 1), ("epochs", 1), ("steps", 0)):
            if getattr(self, name) < low:
                raise InputError(f"--{name} is {getattr(self, name)}, expected at least {low}")
        if not 0 < self.learning_rate < 1:
            raise InputError(f"--learning-rate is {self.learning_rate}, expected a number between 0 and 1")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum is {self.momentum}, expected at least 0 and under 1")

    def check_shape(self, geometry: Geometry) -> None:
        """Raise InputError unless the model takes showers of `geometry`."""
        if MODELS[self.model] not in (None, geometry.shape):
            raise InputError(
                f"the showers have {geometry.shape} cells, the model {self.model} is for {MODELS[self.model]}; "
                "choose --config quick, which takes any shape"
            )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> FitConfig:
        return cls(**{field.name: document[field.name] for field in fields(cls)})


CONFIGS = {
    # The published training (reference: svalleco/3Dgan; arXiv 2111.04628): days on a laptop, an hour on 8 GPUs.
    "3dgan": FitConfig(model="3dgan", batch=64, epochs=60, learning_rate=1e-3, momentum=0.99),
    # Minutes on two cores: layers as channels of a 2-D network, small batches, statistics that follow quickly.
    "quick": FitConfig(model="2dgan", batch=16, epochs=4, learning_rate=5e-4, momentum=0.9),
    # The reference's network for a coarse calorimeter of 17 x 17 x 5 cells: seconds.
    "small": FitConfig(model="3dgan-small", batch=8, epochs=2, learning_rate=1e-3, momentum=0.9),
}


def named_config(name: str, **overrides: Any) -> FitConfig:
    """The config `name`, with the values of `overrides` that are not None."""
    if name not in CONFIGS:
        raise InputError(f"--config {name!r} is unknown; known: {', '.join(CONFIGS)}")
    return replace(CONFIGS[name], **{key: value for key, value in overrides.items() if value is not None})
