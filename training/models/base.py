"""What a model states of itself, and nothing of how it is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras

from training.randomness import Draws, ShowerDraws

Tensor = Any  # of whichever backend Keras runs on
Batch = Mapping[str, Tensor]  # named tensors, (N, ...) each
Losses = Mapping[str, Tensor]  # named losses, one value a shower, (N,)


@dataclass(frozen=True)
class Phase:
    """One update in a training step: of the weights of `network`, by the gradient of its weighted losses.

    Phases are carried out in order, each seeing the weights that the ones before it left. Every phase of a network
    uses that network's optimizer. `weights` names every loss that `losses` gives; one of weight 0 is reported and not
    trained on.
    """

    name: str
    network: str
    losses: Callable[[Batch, Draws], Losses]
    weights: Mapping[str, float]


class Model(ABC):
    """A generative model of showers.

    `networks` by name; `phases` in order; `generator` is the network that makes showers, the one whose weights may be
    averaged; `weights` the weights of the losses that `evaluate` gives.
    """

    networks: Mapping[str, keras.Model]
    phases: tuple[Phase, ...]
    generator: keras.Model
    weights: Mapping[str, float]

    def optimizer(self, learning_rate: Any) -> keras.optimizers.Optimizer:
        """A new optimizer for one of the networks."""
        return keras.optimizers.RMSprop(learning_rate)

    @abstractmethod
    def view(self, batch: Batch, draws: Draws) -> Batch:
        """What the phases of one step share, made of a batch as `preprocessing.reading.decode` gives it."""

    @abstractmethod
    def inputs(self, batch: Batch, draws: Draws) -> Tensor:
        """What the generator is given to make showers with the labels of `batch`."""

    @abstractmethod
    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Tensor]:
        """Losses of showers generated with the labels of `batch`, and those showers, networks in inference mode.

        Showers are (N, x, y, layer) in units of 0.02 GeV.
        """

    @abstractmethod
    def generate(self, energy_gev: Tensor, theta_rad: Tensor, draws: ShowerDraws) -> Tensor:
        """Showers (N, x, y, layer) in units of 0.02 GeV, networks in inference mode.

        Each is a function of its labels and its row of `draws` alone, and not of the others in its batch.
        """
