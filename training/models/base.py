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
    uses that network's optimizer.
    """

    name: str
    network: str
    losses: Callable[[Batch, Draws], Losses]


class Model(ABC):
    """A generative model of showers.

    `networks` by name; `phases` in order; `loss_weights` by the name of the loss. A loss without a weight is
    reported and not trained on.
    """

    networks: Mapping[str, keras.Model]
    phases: tuple[Phase, ...]
    loss_weights: Mapping[str, float]

    @abstractmethod
    def view(self, batch: Batch, draws: Draws) -> Batch:
        """What the phases of one step share, made of a batch as `preprocessing.reading.decode` gives it."""

    @abstractmethod
    def evaluate(self, batch: Batch, draws: Draws) -> Losses:
        """The losses of generated showers with the labels of `batch`, networks in inference mode."""

    @abstractmethod
    def generate(self, energy_gev: Tensor, theta_rad: Tensor, draws: ShowerDraws) -> Tensor:
        """Showers (N, x, y, layer) in units of 0.02 GeV, networks in inference mode.

        Each is a function of its labels and its row of `draws` alone, and not of the others in its batch.
        """
