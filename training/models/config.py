"""What decides the weights of a training, as a frozen config; and the models, by name. No TensorFlow in here.

A model comes with a config of its own, a subclass of `FitConfig` that `register` makes known. Its fields beside the
common ones are the model's settings, and its `build` makes the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

from calopipe.errors import InputError, require_seed
from calopipe.labels import DATASETS, LabelRange
from calopipe.options import check_settings, option, setting, settings_of
from calopipe.showers.cells import Geometry

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


@dataclass(frozen=True, kw_only=True)
class FitConfig(ABC):
    """What decides the weights that a training ends with, beside its dataset.

    `batch` counts showers a replica; `learning_rate` is that of every network's optimizer; `steps` ends the run early,
    after so many optimisation steps, 0 meaning that `epochs` alone decides. `precision` names the arithmetic.

    The learning rate rises from 0 over `warm_up_epochs`, and then follows `schedule`: constant, or down to a hundredth
    at the end, by half a cosine or exponentially. With `linear_scaling` it is for a global batch of so many showers,
    and grows in proportion with the batch there is (Goyal et al., arXiv 1706.02677); 0 does not scale it.

    `average` is the decay, an update, of an exponential moving average of the weights of the networks that the model
    names, which then are what is evaluated and kept; 0 keeps the weights themselves. `patience` ends the run after so
    many epochs without a better score on the validation split; 0 does not. The model is judged by that split at the end
    of each epoch in which a multiple of `evaluation_steps` falls, or of every one if that is 0, and at the end of the
    training. It looks at so many showers, evenly from the split, that this takes about `evaluation_share` of the time,
    but at `least_evaluated` if there are as many; 0 takes all.
    """

    least_evaluated: ClassVar[int] = 1000  # showers, by which the metric can choose among epochs
    domain: ClassVar[Any] = Geometry  # the class of the geometry of its datasets: `calopipe.flow.grid.Grid` for a flow

    model: str
    epochs: int = setting(help="passes over the train split", least=1)
    steps: int = setting(0, help="end after N steps, if the epochs have not ended before", least=0)
    batch: int = setting(help="showers a replica and step", least=1)
    learning_rate: float = setting(help="of the optimizers")
    schedule: str = setting("constant", help=f"of the learning rate: {', '.join(SCHEDULES)}", known=SCHEDULES)
    warm_up_epochs: float = setting(0.0, help="in which the learning rate rises from 0")
    linear_scaling: int = setting(
        0, help="the learning rate is for a global batch of N, and grows in proportion with the one there is", least=0
    )
    average: float = setting(
        0.0, help="keep a moving average of the weights that make showers, of decay X a step, such as 0.999",
        least=0, below=1,
    )  # fmt: skip
    patience: int = setting(0, help="end after N epochs without a better metric", least=0)
    evaluation_steps: int = setting(
        0, help="look at the validation split only where an epoch passes a multiple of N steps, and at the end", least=0
    )
    evaluation_share: float = setting(
        0.05, help="share of time for the validation split, a few hundred showers at least (default 0.05; 0: all)",
        least=0, below=1,
    )  # fmt: skip
    precision: str = setting("float32", help=f"{', '.join(PRECISIONS)} (default float32)", known=PRECISIONS)
    strategy: str = setting("one-device", help=f"{', '.join(STRATEGIES)} (default one-device)", known=STRATEGIES)
    seed: int = setting(1, help="of weights, order and noise (default 1)")

    def __post_init__(self) -> None:
        if _kind(self.model) is not type(self):
            raise InputError(f"--model {self.model!r} is not one of {type(self).__name__}")
        check_settings(self)
        require_seed(self.seed)
        if not 0 < self.learning_rate < 1:
            raise InputError(f"--learning-rate is {self.learning_rate}, expected a number between 0 and 1")
        if not 0 <= self.warm_up_epochs < self.epochs:
            raise InputError(
                f"--warm-up-epochs is {self.warm_up_epochs}, expected at least 0 and under --epochs {self.epochs}"
            )
        if self.strategy == "tpu" and self.precision == "float16":
            raise InputError("--precision float16 is not for TPUs; give bfloat16")

    @abstractmethod
    def build(self, geometry: Any) -> Any:
        """The `training.models.base.Model` for a dataset of `geometry`; Keras has the config's seed and precision.

        Layers compute in that precision; losses and showers are float32. A model that takes showers with more labels
        has them as a second argument, and lets `check_labels` pass.
        """

    def check(self, geometry: Any) -> None:
        """Raise InputError unless the model takes a dataset of `geometry`."""
        if not isinstance(geometry, self.domain):
            raise InputError(
                f"the dataset holds {geometry.items}, the model {self.model} is for {self.domain.items}; give another "
                "--config"
            )
        self.check_shape(geometry)

    def check_shape(self, geometry: Any) -> None:  # noqa: B027  most take any
        """Raise InputError unless the model takes this `geometry` of its `domain`."""

    def begins_anew(self, earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:  # noqa: ARG002  most never do
        """Why training cannot begin with the weights of a model of the valid range `earlier` on showers of the range
        `now`, by names of labels; "" if it can.
        """
        return ""

    def check_labels(self, labels: LabelRange) -> None:
        """Raise InputError unless the model takes showers with these labels. Most know energy and theta alone."""
        if labels.vary:
            raise InputError(
                f"the model {self.model} is given energy and theta alone, the showers differ in "
                f"{' and '.join(DATASETS[name] for name in labels.names)} too; give files of one particle, without phi"
            )

    def evaluated_one_of(self, *, train: int, watched: int, replicas: int, cost: float) -> int:
        """One of how many showers of the split that watches, `watched` in all, is evaluated at a look.

        With so many, the look takes about `evaluation_share` of the time from one look to the next, in which `train`
        showers are trained on, or `evaluation_steps` steps. `cost` is a `training.models.base.Model.evaluation_cost`.
        """
        if not self.evaluation_share:
            return 1
        trained = max(train, self.evaluation_steps * self.batch * replicas)
        affordable = max(self.least_evaluated, int(self.evaluation_share * trained / cost))
        return max(1, -(-watched // affordable))

    def with_values(self, values: Mapping[str, Any]) -> FitConfig:
        """This config with `values` in place of its own. InputError where the model has no such setting."""
        changed = self.to_json() | dict(values)
        own = {each.name for each in fields(_kind(changed["model"]))}
        for name in values.keys() - own:
            raise InputError(f"{option(name)} is not for the model {changed['model']}; leave it out")
        return self.from_json(changed)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> FitConfig:
        """The config that `to_json` wrote, by this version or an earlier one: settings that it lacks have defaults."""
        kind = _kind(document["model"])
        return kind(**{each.name: document[each.name] for each in fields(kind) if each.name in document})


_KINDS: dict[str, type[FitConfig]] = {}
CONFIGS: dict[str, FitConfig] = {}  # named configs, to choose from
DEFAULT = "fast"  # the config of a training that names none

Config = TypeVar("Config", bound=type[FitConfig])


def register(*models: str) -> Callable[[Config], Config]:
    """Make the models of these names known, whose config is the class that this decorates."""

    def known(kind: Config) -> Config:
        if taken := _KINDS.keys() & set(models):
            raise ValueError(f"a model called {taken.pop()} is known already")
        _KINDS.update(dict.fromkeys(models, kind))
        return kind

    return known


def all_settings() -> dict[str, Field[Any]]:
    """The settings of all models by name, the common ones first."""
    return {name: each for fields_ in settings_by_models().values() for name, each in fields_.items()}


def settings_by_models() -> dict[str, dict[str, Field[Any]]]:
    """The settings by name, for each set of models that a training can name: the common ones, of "", then others'."""
    found = {"": {each.name: each for each in settings_of(FitConfig)}}
    kinds = {config.model: type(config) for config in CONFIGS.values()}
    for kind in kinds.values():
        for each in settings_of(kind):
            if each.name not in found[""]:
                having = [model for model, other in kinds.items() if each.name in {own.name for own in fields(other)}]
                found.setdefault(", ".join(having), {})[each.name] = each
    return found


def _kind(model: Any) -> type[FitConfig]:
    if model not in _KINDS:
        raise InputError(f"--model {model!r} is unknown; known: {', '.join(_KINDS)}")
    return _KINDS[model]
