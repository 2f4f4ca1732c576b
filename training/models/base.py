"""What a model states of itself, and nothing of how it is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import keras

from preprocessing.dataset import Manifest
from training.models.randomness import Draws, NoiseDraws

Tensor = Any  # of whichever backend Keras runs on
Batch = Mapping[str, Tensor]  # named tensors, (N, ...) each
Losses = Mapping[str, Tensor]  # named losses, one value a shower, (N,)


@dataclass(frozen=True)
class Phase:
    """One update in a training step: of the weights of `network`, by the gradient of its weighted losses.

    Phases are carried out in order, each seeing the weights that the ones before it left. Every phase of a network
    uses that network's optimizer. `weights` names the losses, of those that `losses` gives, that are reported; one of
    weight 0 is not trained on.
    """

    name: str
    network: str
    losses: Callable[[Batch, Draws], Losses]
    weights: Mapping[str, float]


class Model(ABC):
    """A generative model of showers.

    `networks` by name; `phases` in order; `averaged` names the networks that make showers, whose weights may be
    averaged; `weights` those of the losses that `evaluate` gives in their total, by which epochs are compared.
    `chosen_by` says which epoch is the best: that of the smallest total on the validation split, where the losses are
    likelihoods, or of the smallest `metric` of its showers, where these are enough for it. `generation_batch` is how
    many showers are best made at a time on a processor, `noise_numbers` how many uniform numbers a shower is made of.
    """

    networks: Mapping[str, keras.Model]
    phases: tuple[Phase, ...]
    averaged: tuple[str, ...]
    weights: Mapping[str, float]
    chosen_by: Literal["losses", "metric"]
    generation_batch: int
    noise_numbers: int

    @abstractmethod
    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:
        """A new optimizer for the network of that name, which is trained on so many `showers`."""

    @abstractmethod
    def decode(self, records: Tensor, manifest: Manifest) -> Batch:
        """What the model is given of serialised records (N,): a function of `preprocessing.reading`."""

    def adapt(self, batches: Iterable[Batch], manifest: Manifest) -> None:  # noqa: B027  most have nothing to compute
        """Compute what does not change in training from showers of the train split, as `decode` gives them."""

    @abstractmethod
    def view(self, batch: Batch, draws: Draws) -> Batch:
        """What the phases of one step share, made of a batch as `decode` gives it."""

    def exercise(self, batch: Batch, draws: Draws) -> None:  # noqa: B027  only batch normalisation asks for it
        """Call the averaged networks in training mode, so that they collect statistics of their present weights.

        Of `batch` only the labels are given, `energy_gev` and `theta_rad` (N,).
        """

    @abstractmethod
    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Tensor]:
        """Losses of the showers of `batch`, or of those made with its labels, and those made; in inference mode.

        Showers are (N, x, y, layer) in units of 0.02 GeV.
        """

    @abstractmethod
    def generate(self, energy_gev: Tensor, theta_rad: Tensor, draws: NoiseDraws) -> Tensor:
        """Showers (N, x, y, layer) in units of 0.02 GeV, networks in inference mode.

        Each is a function of its labels and its row of `draws` alone, and not of the others in its batch.
        """
