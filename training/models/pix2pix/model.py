"""The adversarial training of pix2pix on pairs of frames: the next frame of a flow, given the frame before it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from calopipe.flow.grid import Grid
from preprocessing.manifest import Manifest
from training.models.base import Batch, Losses, Phase, Tensor
from training.models.flow import FlowModel, conditions, mirrored
from training.models.pix2pix.networks import cross_entropy, curl, patch_gan, unet
from training.models.pix2pix.tables import table_of
from training.models.randomness import Draws

_CHANNELS = 4  # channels of `conditions`
_BOUND = 2.0  # tanh is scaled to this velocity, in U: no velocity beside an obstacle is as high
_BETA_1 = 0.5  # of Adam, as published


class Pix2Pix(FlowModel):
    """A U-Net against a PatchGAN; the PatchGAN sees the frame before, and what the U-Net makes of it.

    The published U-Net makes the next frame, in units of 2 U. The small U-Net makes the change to the next frame, free
    of divergence, in units of the spread that changes have in the train split.
    """

    averaged = ("generator",)

    def __init__(self, name: str, geometry: Grid, *, noise: float, l1_weight: float) -> None:
        self._noise = noise
        table = table_of(name, geometry.shape)
        self.shape = geometry.shape
        self._makes_change = bool(table.full)
        self._unet = unet(table, _CHANNELS, 2, 1.0 if self._makes_change else _BOUND)
        self._unit = self._unet.get_layer("scale").scale
        self._patches = patch_gan(table, _CHANNELS + 2)
        self.networks = {"generator": self._unet, "discriminator": self._patches}
        self.phases = (
            Phase("discriminator", "discriminator", self._discriminator, {"real": 0.5, "fake": 0.5}),
            Phase("generator", "generator", self._generator, {"adversarial": 1.0, "l1": l1_weight}),
        )

    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:  # noqa: ARG002
        return keras.optimizers.Adam(learning_rate, _BETA_1)

    def adapt(self, batches: Iterable[Batch], manifest: Manifest) -> None:  # noqa: ARG002
        """Set the unit of the changes that the U-Net makes to their spread, over all cells and both components."""
        if not self._makes_change:
            return
        squares, count = 0.0, 0
        for batch in batches:
            change = np.asarray(batch["next"] - batch["now"], np.float64)
            squares += float(np.square(change).sum())
            count += change.size
        self._unit.assign(np.full(2, max(np.sqrt(squares / count), keras.config.epsilon())))

    def view(self, batch: Batch, draws: Draws) -> Batch:
        """The batch with half of its flows upside down, and with noise on the velocity `now` outside of the obstacle.

        If the model's changes are free of divergence, the noise is too, like the errors that it stands for.
        """
        flow = mirrored(batch, draws.uniform("mirror", batch["reynolds"].shape) < 0.5)
        share = draws.uniform("share", (*batch["reynolds"].shape, 1, 1, 1)) * self._noise
        if self._makes_change:
            noise = math.sqrt(2) * curl(draws.normal("noise", batch["solid"].shape))  # of spread 1
        else:
            noise = draws.normal("noise", batch["now"].shape)
        return {**flow, "now": flow["now"] + share * noise * (1.0 - flow["solid"][..., None])}

    def advance(self, velocity: Tensor, solid: Tensor, reynolds: Tensor) -> Tensor:
        return _outside(solid, self._made(velocity, conditions(velocity, solid, reynolds), training=False))

    def _made(self, velocity: Tensor, given: Tensor, *, training: bool) -> Tensor:
        """The next frame from the U-Net, which is not set to 0 in the obstacle."""
        made = self._unet(given, training=training)
        return velocity + made if self._makes_change else made

    def _discriminator(self, view: Batch, draws: Draws) -> Losses:  # noqa: ARG002
        given = _given(view)
        made = ops.stop_gradient(_outside(view["solid"], self._made(view["now"], given, training=True)))
        return {
            "real": cross_entropy(self._answer(view, given, view["next"]), real=True),
            "fake": cross_entropy(self._answer(view, given, made), real=False),
        }

    def _generator(self, view: Batch, draws: Draws) -> Losses:  # noqa: ARG002
        """L1 counts in the obstacle too: a flow into it would be lost, and the flow around it would then drift."""
        given = _given(view)
        made = self._made(view["now"], given, training=True)
        return {
            "adversarial": cross_entropy(self._answer(view, given, _outside(view["solid"], made)), real=True),
            "l1": ops.mean(ops.abs(made - view["next"]) / self._unit, (1, 2, 3)),
        }

    def _answer(self, view: Batch, given: Tensor, frame: Tensor) -> Tensor:
        """The discriminator's logits of the next `frame`. It sees the change instead, if the U-Net makes changes."""
        shown = (frame - view["now"] if self._makes_change else frame) / self._unit
        return self._patches(ops.concatenate([given, shown], -1), training=True)


def _outside(solid: Tensor, velocity: Tensor) -> Tensor:
    """`velocity` (N, x, y, 2), zero in the obstacle."""
    return velocity * (1.0 - solid)[..., None]


def _given(view: Batch) -> Tensor:
    return conditions(view["now"], view["solid"], view["reynolds"])
