"""The config, which decides the weights of a training; and the models, by name. No TensorFlow in here.

A model comes with a config of its own, a subclass of `FitConfig` that `register` makes known. The fields that it adds
are the model's settings, and its `build` makes the model. A user's own model is a file, which `training.models.source`
runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import Field, asdict, dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

from calopipe.errors import InputError, require_seed
from calopipe.labels import DATASETS, LabelRange
from calopipe.options import check_settings, option, setting, settings_of
from calopipe.showers.cells import Geometry

STRATEGIES = ("one-device", "mirrored", "multi-worker", "tpu")
# Names of precisions, each with Keras's name of the policy. Energy sums, angles and losses are in float32 under all
# but float64, which is for checks. tf32 is float32 whose factors a GPU rounds to 10 bits before it multiplies them.
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
    """What decides, with the dataset, the weights that a training ends with.

    The learning rate rises from 0 over `warm_up_epochs`. Then it follows `schedule`: constant, or down to a hundredth
    at the end, by half a cosine or exponentially. With `linear_scaling` the rate is for a global batch of so many
    showers, and grows in proportion to the actual global batch (Goyal et al., arXiv 1706.02677); 0 does not scale it.

    `average` is the decay, at each update, of an exponential moving average of the weights and statistics of the
    networks in `Model.averaged`. The averages are evaluated and kept; with 0, the weights themselves are. `patience`
    ends the training after so many epochs without a better score on the validation split; 0 never does. The model is
    evaluated on that split at the end of each epoch in which a multiple of `evaluation_steps` falls (0: of each epoch),
    and at the end of the training. An evaluation takes showers evenly from the split: so many that it takes about
    `evaluation_share` of the time, but at least `least_evaluated`, or all there are. A share of 0 takes all.
    """

    least_evaluated: ClassVar[int] = 1000  # showers from which the metric can choose among epochs
    takes_more_labels: ClassVar[bool] = False  # whether showers may have more labels than energy and theta
    domain: ClassVar[Any] = Geometry  # the class of the geometry of its datasets: `calopipe.flow.grid.Grid` for a flow
    model_file: ClassVar[str] = ""  # SHA-256 of the user's file that states the model; "" for calopipe's own models

    model: str
    epochs: int = setting(help="passes over the train split", least=1)
    steps: int = setting(0, help="end after N steps, if the epochs do not end before; 0: no such limit", least=0)
    batch: int = setting(help="showers a replica and step", least=1)
    learning_rate: float = setting(help="of the optimizers")
    schedule: str = setting("constant", help=f"of the learning rate: {', '.join(SCHEDULES)}", known=SCHEDULES)
    warm_up_epochs: float = setting(0.0, help="in which the learning rate rises from 0")
    linear_scaling: int = setting(
        0, help="the learning rate is for a global batch of N, and scaled in proportion for any other", least=0
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
        help="share of time for evaluations, of a few hundred validation showers at least (default 0.05; 0: of all)",
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
        """The `training.models.base.Model` for a dataset of `geometry`. Keras has the config's seed and precision.

        Layers compute in that precision; losses and showers are float32. For showers with more labels a `LabelRange` is
        the second argument, if the config `takes_more_labels`.
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
        """Why a training cannot begin with the weights of an earlier model; "" if it can. `earlier` is the valid range
        of that model, and `now` the range of the new dataset, by names of labels.
        """
        return ""

    def require_read(self, whose: str, advice: str = "") -> None:  # noqa: B027
        """Raise InputError, which says `whose` the model is and gives `advice`, if its file has not run."""

    def check_labels(self, labels: LabelRange) -> None:
        """Raise InputError unless the model takes showers with these labels."""
        if labels.vary and not self.takes_more_labels:
            raise InputError(
                f"the model {self.model} is given energy and theta alone, the showers differ in "
                f"{' and '.join(DATASETS[name] for name in labels.names)} too; give files of one particle, without phi"
            )

    def with_values(self, values: Mapping[str, Any]) -> FitConfig:
        """This config with `values` in place of its own. InputError where the model has no such setting."""
        for name in values.keys() - {field.name for field in fields(self)}:
            raise InputError(f"{option(name)} is not for the model {self.model}; leave it out")
        return replace(self, **values)

    def last_step(self, steps_an_epoch: int) -> int:
        """How many steps a training has if it does not end early."""
        whole = self.epochs * steps_an_epoch
        return min(whole, self.steps or whole)

    def is_evaluated(self, step: int, steps_an_epoch: int) -> bool:
        """Whether the model is evaluated after `step`, the last of an epoch, or 0 for before the training."""
        every, before = self.evaluation_steps, step - steps_an_epoch
        return every == 0 or step // every > before // every or step == self.last_step(steps_an_epoch)

    def evaluations(self, steps_an_epoch: int) -> int:
        """How often the model is evaluated in a whole training."""
        last = self.last_step(steps_an_epoch)
        return sum(self.is_evaluated(step, steps_an_epoch) for step in [*range(0, last, steps_an_epoch), last])

    def evaluated_one_of(self, *, train: int, watched: int, replicas: int, cost: float) -> int:
        """The number n, if an evaluation takes one of n of the `watched` showers in the validation split.

        Then an evaluation takes about `evaluation_share` of the time between evaluations, in which the training takes
        `train` showers, or `evaluation_steps` steps if these are more. `cost` is the model's `evaluation_cost`.
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
        """The config that `to_json` of this or an earlier version wrote. Missing settings have their defaults.

        For a user's model whose file has not run in this process, it is an `UnreadConfig`, which builds no model.
        """
        file = document.get("model_file", "")
        unread = bool(file) and (document["model"], file) not in _KINDS
        kind = UnreadConfig if unread else _kind(document["model"], file)
        values = {field.name: document[field.name] for field in fields(kind) if field.name in document}
        return kind(**values | ({"document": document} if unread else {}))


@dataclass(frozen=True, kw_only=True)
class UnreadConfig(FitConfig):
    """The config of a model whose file has not run: a `document` to read and compare. It cannot build the model."""

    takes_more_labels: ClassVar[bool] = True  # its training has checked the labels already

    document: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Checks nothing: the settings were checked when the config was first made."""

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


_KINDS: dict[tuple[str, str], type[FitConfig]] = {}  # by model, and the hash of the user's file that states the model
_running: ContextVar[str] = ContextVar("running", default="")  # the hash of the user's file that runs now
CONFIGS: dict[str, FitConfig] = {}  # named configs, to choose from
DEFAULT = "fast"  # the config of a training that names none

Config = TypeVar("Config", bound=type[FitConfig])


def register(*models: str) -> Callable[[Config], Config]:
    """A decorator of a config's class, which makes it the config of the models with these names."""

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
    """Models that the block registers belong to the user's file of this SHA-256. An error removes them again."""
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
    """Settings by name, for each group of models that have them in common: "" has those of all models, and is first."""
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
