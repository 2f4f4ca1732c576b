"""What a model states: networks, losses, evaluation and export. How models are trained is not here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from calopipe.errors import InputError
from calopipe.labels import LabelRange
from preprocessing.manifest import Manifest
from training.models.config import FitConfig
from training.models.precision import arithmetic
from training.models.randomness import Draws

Tensor = Any  # of Keras's backend
Batch = Mapping[str, Tensor]  # named tensors, (N, ...) each
Losses = Mapping[str, Tensor]  # named losses, one value a shower, (N,)
Array = npt.NDArray[Any]
Rows = npt.NDArray[np.float64]  # what a judge keeps of each shower, (N, numbers)
# For each label, the least and the largest value that a model was trained on; for particles, all kinds.
ValidRange = Mapping[str, tuple[Any, ...]]
LossTable = Mapping[str, Mapping[str, float]]  # phase -> loss -> mean over the showers of a step

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Phase:
    """One update in a training step: of the weights of `network`, by the gradient of its weighted losses.

    Phases run in order; each sees the weights that the phases before it have updated. All phases of a network use that
    network's optimizer. Networks that one loss trains together, such as encoder and decoder, are one `keras.Model`.
    `losses` is a function of what `Model.view` made and of random draws. It is also given the progress of the training,
    the scalars `step` (int64) and `epoch` (float32), for a weight that changes with time. `weights` names those of its
    losses that are reported. A loss of weight 0 is not trained on.
    """

    name: str
    network: str
    losses: Callable[[Batch, Draws], Losses]
    weights: Mapping[str, float]


@dataclass(frozen=True)
class Guard:
    """A failure that ends a training if it lasts. `failing` says whether the losses of a step show it.

    It does not count while `improving`, a figure of the same losses, still falls.
    """

    failure: str
    failing: Callable[[LossTable], bool]
    improving: Callable[[LossTable], float] | None = None


class Judge:
    """Looks at what a model makes of the validation split, a batch at a time. This class finds and draws nothing.

    Each worker has one judge, and gives it the batches of its own replicas.
    """

    def add(self, batch: Batch, made: Any) -> Rows:  # noqa: ARG002  what others look at
        """Look at a `batch` from `Model.decode_judged`, and at what `Model.evaluate` `made` of the batch.

        Returns what `found` needs, (N, numbers): a row for each shower.
        """
        return np.zeros((len(next(iter(batch.values()))), 0))

    def found(self, rows: Rows) -> dict[str, Any]:  # noqa: ARG002  what others sum up
        """The findings for the history, as JSON by name, from the `rows` of all batches in order."""
        return {}

    def figures(self) -> Mapping[str, Figure]:
        """Figures for TensorBoard, by name, of the showers that this judge looked at."""
        return {}


class Model(ABC):
    """A model of showers: its networks by name, and its phases in order.

    `averaged` names the networks whose weights may be averaged. `weights` are the weights in the total of the losses
    that `evaluate` returns. `guards` end a training that has failed. `exported` holds fields of an export's card for
    this model alone. `evaluation_cost` is the time to evaluate a shower over the time to train on one. `needed` names
    the attributes that have no default.
    """

    needed: tuple[str, ...] = ("networks", "phases", "weights")
    networks: Mapping[str, keras.Model]
    phases: tuple[Phase, ...]
    weights: Mapping[str, float]
    averaged: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()
    exported: Mapping[str, Any] = _NOTHING
    evaluation_cost: float = 1.0

    # Training

    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:  # noqa: ARG002
        """A new optimizer for the network of this name, which is trained on so many `showers`.

        `learning_rate` is a function without arguments that returns the rate of the step, as Keras's optimizers take.
        """
        return keras.optimizers.Adam(learning_rate)

    @abstractmethod
    def decode(self, records: Tensor, manifest: Manifest) -> Batch:
        """The batch of serialised records (N,), for example by a function of `preprocessing.reading`.

        The batch is made on the host and is copied to the device at every step.
        """

    def adapt(self, batches: Iterable[Batch], manifest: Manifest) -> None:  # noqa: B027  most have nothing to compute
        """Compute constants of the model from showers of the train split, in batches from `decode`.

        Keep them as weights of `networks` that are not trained: evaluation, resumption and loading see nothing else.
        """

    def view(self, batch: Batch, draws: Draws) -> Batch:  # noqa: ARG002  what others draw from
        """What the phases of one step share, computed on the device from a batch of `decode`.

        A model that needs dense showers makes them here from lists of hits (`preprocessing.reading.dense`).
        """
        return batch

    # Judging

    def decode_judged(self, records: Tensor, manifest: Manifest) -> Batch:
        """The batch of serialised records (N,) for `evaluate` and the judge."""
        return self.decode(records, manifest)

    @abstractmethod
    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Any]:
        """In inference mode: the losses of a batch, or of what the model makes with its labels; and what it makes."""

    def judge(self, showers: int, geometry: Any, workers: int = 1) -> Judge:  # noqa: ARG002  what others ask for
        """A new judge for so many `showers` in all, which so many `workers` divide among themselves."""
        return Judge()

    def score(self, losses: Mapping[str, float], found: Mapping[str, Any], showers: int) -> float | None:  # noqa: ARG002
        """The number that chooses among epochs, the smaller the better; None leaves this epoch out.

        `losses` are means over so many `showers`, with their weighted `total`; `found` is what the judge found.
        """
        return losses["total"]

    def card(self, found: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  what others keep of it
        """Fields of the card for this model alone, from what the judge `found`, if it looked at this epoch."""
        return {}

    # Export

    def serving(self, valid: ValidRange) -> Any:  # noqa: ARG002  what others answer for
        """The function of a SavedModel, for `valid` labels: a tf.function with an input signature, without AutoGraph.

        InputError for a model that states none.
        """
        raise InputError(f"a model of the kind {type(self).__name__} cannot be exported; it states no `serving`")

    def onnx(self, valid: ValidRange) -> Any:
        """As `serving`, for an ONNX file, with operations that ONNX has: `tanh` and `silu`, for example, not `gelu`."""
        return self.serving(valid)

    def arrays(self) -> Mapping[str, Array]:
        """All arrays that showers are computed from, by name, for the library in `geant4/`.

        InputError for a model that the library does not know.
        """
        raise InputError(
            f"a model of the kind {type(self).__name__} has no such file, which is for likelihood models; export a "
            "SavedModel or FILE.onnx"
        )


def build(config: FitConfig, geometry: Any, valid: ValidRange = _NOTHING) -> Model:
    """The model that `config` names, for a dataset of `geometry`, with initial weights drawn from the config's seed.

    `valid` says which labels its showers have other than energy and theta. InputError: the model takes no such labels,
    or is not complete.
    """
    labels = LabelRange.from_json(valid)
    config.check_labels(labels)
    varying = (labels,) if labels.vary else ()
    keras.utils.set_random_seed(config.seed)  # the initialisers draw from it
    with arithmetic(config.precision):
        try:
            model: Model = config.build(geometry, *varying)
        except TypeError as error:
            if "abstract" not in str(error):
                raise
            raise InputError(f"{error} (CONTRIBUTING.md, A model)") from None
    _require_complete(model)
    return model


def _require_complete(model: Model) -> None:
    """InputError: the model lacks what every model states, or its networks, phases or losses cannot be used."""
    kind = type(model).__name__
    for name in model.needed:
        if not hasattr(model, name):
            raise InputError(f"the model {kind} does not state `{name}`; set it in __init__ (CONTRIBUTING.md, A model)")
    if unfit := [name for name in model.networks if "/" in name]:
        raise InputError(f"the model {kind}: the network {unfit[0]} is to be the name of a file; leave the slash out")
    for number, phase in enumerate(model.phases):
        if phase.name in {other.name for other in model.phases[:number]}:
            raise InputError(f"the model {kind} has two phases called {phase.name}; give each a name")
        if not any(phase.weights.values()):
            raise InputError(
                f"the model {kind}: the phase {phase.name} has no loss with a weight; give one to train on"
            )
    named = [(f"the phase {phase.name}", phase.network) for phase in model.phases]
    for place, network in named + [("`averaged`", name) for name in model.averaged]:
        if network not in model.networks:
            raise InputError(
                f"the model {kind}: {place} names the network {network}, `networks` has {', '.join(model.networks)}"
            )


def require_losses(losses: Losses, weights: Mapping[str, float], whose: str = "") -> None:
    """Raise InputError, which begins with `whose`, unless each of `weights` has a loss with one value a shower."""
    for name in weights:
        if name not in losses:
            raise InputError(f"{whose}there is a weight of the loss {name}, but the losses are {', '.join(losses)}")
        shape = losses[name].shape
        if shape.rank == 0:
            told = "is one number; give one a shower, (N,): the engine takes the mean"
            raise InputError(f"{whose}the loss {name} {told}")
        if shape.rank is not None and shape.rank > 1:
            raise InputError(f"{whose}the loss {name} has shape {tuple(shape)}; give one number a shower, (N,)")
