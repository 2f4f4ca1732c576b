"""What decides the weights of a training, as a frozen config; and the models, by name. No TensorFlow in here.

A model comes with a config of its own, a subclass of `FitConfig` that `register` makes known. Its fields beside the
common ones are the model's settings, and its `build` makes the model. A user's own model is a file, which
`training.models.source` runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
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

    The learning rate rises from 0 over `warm_up_epochs`, and then follows `schedule`: constant, or down to a hundredth
    at the end, by half a cosine or exponentially. With `linear_scaling` it is for a global batch of so many showers,
    and grows in proportion with the batch there is (Goyal et al., arXiv 1706.02677); 0 does not scale it.

    `average` is the decay, an update, of an exponential moving average of the weights and statistics of the networks
    that the model names, which then are what is evaluated and kept; 0 keeps the networks themselves. `patience` ends
    the run after so many epochs without a better score on the validation split; 0 does not. The model is judged by that
    split at the end of each epoch in which a multiple of `evaluation_steps` falls, or of every one if that is 0, and at
    the end of the training. It takes so many showers, evenly from the split, that this takes about `evaluation_share`
    of the time, but at `least_evaluated` if there are as many; 0 takes all.
    """

    least_evaluated: ClassVar[int] = 1000  # showers, by which the metric can choose among epochs
    takes_more_labels: ClassVar[bool] = False  # than energy and theta
    domain: ClassVar[Any] = Geometry  # the class of the geometry of its datasets: `calopipe.flow.grid.Grid` for a flow
    model_file: ClassVar[str] = ""  # SHA-256 of the user's file that states the model; of those in here none

    model: str
    epochs: int = setting(help="passes over the train split", least=1)
    steps: int = setting(0, help="end after N steps, if the epochs have not ended before; 0 does not", least=0)
    batch: int = setting(help="showers a replica and step", least=1)
    learning_rate: float = setting(help="of the optimizers")
    schedule: str = setting("constant", help=f"of the learning rate: {', '.join(SCHEDULES)}", known=SCHEDULES)
    warm_up_epochs: float = setting(0.0, help="in which the learning rate rises from 0")
    linear_scaling: int = setting(
        0, help="the learning rate is for a global batch of N, and grows in proportion with the one there is", least=0
    )
    average: float = setting(
        0.0,
        help="keep a moving average of the weights that make showers, of decay X a step, such as 0.999",
        least=0,
        below=1,
    )
    patience: int = setting(0, help="end after N epochs without a better metric", least=0)
    evaluation_steps: int = setting(
        0,
        help="evaluate only where an epoch passes a multiple of N steps, and at the end",
        least=0,
    )
    evaluation_share: float = setting(
        0.05,
        help="share of time for the validation split, a few hundred showers at least (default 0.05; 0: all)",
        least=0,
        below=1,
    )
    precision: str = setting("float32", help=f"{', '.join(PRECISIONS)} (default float32)", known=PRECISIONS)
    strategy: str = setting("one-device", help=f"{', '.join(STRATEGIES)} (default one-device)", known=STRATEGIES)
    seed: int = setting(1, help="of weights, order and noise (default 1)")

    def __post_init__(self) -> None:
        if _kind(self.model, self.model_file) is not type(self):
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
        has them as a second argument, and says that it `takes_more_labels`.
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

    def require_read(self, whose: str, advice: str = "") -> None:  # noqa: B027
        """Raise InputError, about the model of `whose` and with this `advice`, if a file states it that has not run."""

    def check_labels(self, labels: LabelRange) -> None:
        """Raise InputError unless the model takes showers with these labels."""
        if labels.vary and not self.takes_more_labels:
            raise InputError(
                f"the model {self.model} is given energy and theta alone, the showers differ in "
                f"{' and '.join(DATASETS[name] for name in labels.names)} too; give files of one particle, without phi"
            )

    def with_values(self, values: Mapping[str, Any]) -> FitConfig:
        """This config with `values` in place of its own. InputError where the model has no such setting."""
        changed = self.to_json() | dict(values)
        own = {field.name for field in fields(_kind(changed["model"], self.model_file))}
        for name in values.keys() - own:
            raise InputError(f"{option(name)} is not for the model {changed['model']}; leave it out")
        return self.from_json(changed)

    def last_step(self, steps_an_epoch: int) -> int:
        """How many steps a training has that does not end early."""
        whole = self.epochs * steps_an_epoch
        return min(whole, self.steps or whole)

    def is_evaluated(self, step: int, steps_an_epoch: int) -> bool:
        """Whether the model is evaluated at the end of the epoch that `step` ends; 0 is before the training."""
        every, before = self.evaluation_steps, step - steps_an_epoch
        return every == 0 or step // every > before // every or step == self.last_step(steps_an_epoch)

    def evaluations(self, steps_an_epoch: int) -> int:
        """How often that is in a whole training."""
        last = self.last_step(steps_an_epoch)
        return sum(self.is_evaluated(step, steps_an_epoch) for step in [*range(0, last, steps_an_epoch), last])

    def evaluated_one_of(self, *, train: int, watched: int, replicas: int, cost: float) -> int:
        """One of how many showers of the split that watches, `watched` in all, is evaluated.

        With so many, an evaluation takes about `evaluation_share` of the time from one to the next, in which `train`
        showers are trained on, or `evaluation_steps` steps. `cost` is a `training.models.base.Model.evaluation_cost`.
        """
        if not self.evaluation_share:
            return 1
        trained = max(train, self.evaluation_steps * self.batch * replicas)
        affordable = max(self.least_evaluated, int(self.evaluation_share * trained / cost))
        return max(1, -(-watched // affordable))

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | ({"model_file": self.model_file} if self.model_file else {})

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> FitConfig:
        """The config that `to_json` wrote, by this version or an earlier one: settings that it lacks have defaults.

        That of a user's model whose file has not run in this process says what it is, and builds no model.
        """
        file = document.get("model_file", "")
        unread = bool(file) and (document["model"], file) not in _KINDS
        kind = UnreadConfig if unread else _kind(document["model"], file)
        values = {field.name: document[field.name] for field in fields(kind) if field.name in document}
        return kind(**values | ({"document": document} if unread else {}))


@dataclass(frozen=True, kw_only=True)
class UnreadConfig(FitConfig):
    """The config of a model whose file has not run: a `document` to be read and compared, of no use to build it."""

    takes_more_labels: ClassVar[bool] = True  # or whoever trained it would have been refused

    document: Mapping[str, Any]

    def __post_init__(self) -> None:
        """It was checked when it was made."""

    def require_read(self, whose: str, advice: str = "") -> None:
        raise InputError(
            f"{whose}: the model {self.model} is stated by a user's file, of SHA-256 "
            f"{self.document['model_file'][:16]}, which runs only where it is given; "
            + (advice or "give it as --model-file")
        )

    def build(self, geometry: Any) -> Any:  # noqa: ARG002
        self.require_read("no model")

    def to_json(self) -> dict[str, Any]:
        return dict(self.document)


_KINDS: dict[tuple[str, str], type[FitConfig]] = {}  # by name, and the hash of the user's file that states it
_running: ContextVar[str] = ContextVar("running", default="")  # that hash, while the file runs
CONFIGS: dict[str, FitConfig] = {}  # named configs, to choose from
DEFAULT = "fast"  # the config of a training that names none

Config = TypeVar("Config", bound=type[FitConfig])


def register(*models: str) -> Callable[[Config], Config]:
    """Make the models of these names known, whose config is the class that this decorates."""

    def known(kind: Config) -> Config:
        file = _running.get()
        for name in models:
            if (name, "") in _KINDS or (name, file) in _KINDS:
                raise InputError(f"a model called {name} is known already; give it another name")
        kind.model_file = file
        _KINDS.update({(name, file): kind for name in models})
        return kind

    return known


@contextmanager
def stating(file: str) -> Iterator[None]:
    """Models that are registered in the block are those of the user's file of this SHA-256; after an error none are."""
    token = _running.set(file)
    try:
        yield
    except Exception:
        for key in [key for key in _KINDS if key[1] == file]:
            del _KINDS[key]
        raise
    finally:
        _running.reset(token)


def all_settings() -> dict[str, Field[Any]]:
    """The settings of all models by name, the common ones first."""
    return {name: field for fields_ in settings_by_models().values() for name, field in fields_.items()}


def settings_by_models() -> dict[str, dict[str, Field[Any]]]:
    """The settings by name, for each set of models that a training can name: the common ones, of "", then others'."""
    settings = {"": {field.name: field for field in settings_of(FitConfig)}}
    kinds = {config.model: type(config) for config in CONFIGS.values()}
    for kind in kinds.values():
        for field in settings_of(kind):
            if field.name not in settings[""]:
                having = [model for model, other in kinds.items() if field.name in {own.name for own in fields(other)}]
                settings.setdefault(", ".join(having), {})[field.name] = field
    return settings


def _kind(model: Any, file: str = "") -> type[FitConfig]:
    if (model, file) not in _KINDS:
        known = ", ".join(name for name, of in _KINDS if of == file)
        raise InputError(f"the kind of model {model!r} is unknown; known: {known}")
    return _KINDS[model, file]
