"""What a model of a flow has beside what every model has: it makes the next frame, and can make it in tiles."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from training.models.base import Batch, Losses, Model, Tensor
from training.models.randomness import Draws

INFLOW = (1.0, 0.0)  # the velocity far upstream, in units of the inflow speed


class FlowModel(Model):
    """A model of the velocity one interval later.

    The next velocity of a cell depends on cells up to `reach` away along an axis, and the network sees a tile as it
    sees the image if the tile begins at a multiple of `stride` and its sides are multiples of it.
    """

    stride: int
    reach: int

    @abstractmethod
    def advance(self, velocity: Tensor, solid: Tensor, reynolds: Tensor) -> Tensor:
        """The velocity (N, x, y, 2) one interval after `velocity`, both in U and float32, networks in inference mode.

        `solid` (N, x, y) is 1 in the obstacle and 0 elsewhere; `reynolds` (N,). No frame depends on another one.
        """

    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Any]:  # noqa: ARG002  what others draw from
        """One step: `l1` in U; the L2 norm of the error over that of the frame, and over that of its change.

        An answer that nothing changes has an `of_change` of 1.
        """
        made = self.advance(batch["now"], batch["solid"], batch["reynolds"])
        missed = made - batch["next"]
        axes = (1, 2, 3)
        error, frame, change = (
            ops.sqrt(ops.sum(ops.square(each), axes)) for each in (missed, batch["next"], batch["next"] - batch["now"])
        )
        losses = {
            "l1": ops.mean(ops.abs(missed), axes),
            "relative_l2": error / frame,
            "of_change": error / ops.maximum(change, keras.config.epsilon()),
        }
        return losses, made


def mirrored(batch: Batch, chosen: Tensor) -> dict[str, Tensor]:
    """The batch with the flows that are `chosen` (N,) turned upside down: y reversed, and the velocity along y negated.

    It obeys the same equations, since nothing but the obstacle tells above from below.
    """
    turned = {name: ops.flip(batch[name], 2) * ops.convert_to_tensor([1.0, -1.0]) for name in ("now", "next")}
    turned["solid"] = ops.flip(batch["solid"], 2)
    return {
        **batch,
        **{
            name: ops.where(ops.reshape(chosen, (-1, *[1] * (len(values.shape) - 1))), values, batch[name])
            for name, values in turned.items()
        },
    }


def conditions(velocity: Tensor, solid: Tensor, reynolds: Tensor) -> Tensor:
    """What a network is given of a frame, (N, x, y, 4): the velocity less the inflow's, the obstacle, Reynolds number.

    A layer that fills up with zeros at the border of the image then sees the inflow beyond it, and no obstacle.
    """
    number = ops.ones_like(solid) * ops.log(reynolds / 100.0)[:, None, None]
    return ops.concatenate([velocity - ops.convert_to_tensor(INFLOW), ops.stack([solid, number], -1)], -1)


def serving(model: FlowModel) -> Any:
    """One step of `model` as a tf.function with an input signature, for an export."""
    frames = tf.TensorSpec([None, None, None, 2], tf.float32)

    @tf.function(input_signature=[frames, tf.TensorSpec([None, None, None]), tf.TensorSpec([None])])
    def advance(velocity: tf.Tensor, solid: tf.Tensor, reynolds: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"velocity": model.advance(velocity, solid, reynolds)}

    return advance
