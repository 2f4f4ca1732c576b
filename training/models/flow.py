"""What all models of a flow have in common: how they make the next frame, are judged and are exported."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import keras
import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from keras import ops
from matplotlib.figure import Figure

from calopipe.flow.grid import Grid
from calopipe.flow.mechanics import vorticity
from preprocessing.manifest import Manifest
from preprocessing.reading import decode_pairs
from training.models.base import Batch, Judge, Losses, Model, Rows, Tensor, ValidRange
from training.models.randomness import Draws

INFLOW = (1.0, 0.0)  # the velocity far upstream, in units of the inflow speed U
_SHOWN = 3  # frames that are drawn
_SHARE = 0.995  # the colours span the vorticity of this share of the cells


class FlowModel(Model):
    """A model of the velocity of a flow one interval later, in frames of `shape` (x, y)."""

    shape: tuple[int, int]
    weights = MappingProxyType({"l1": 1.0, "relative_l2": 0.0, "of_change": 0.0})
    exported = MappingProxyType({"velocity_unit": "U, the speed of the inflow"})

    @abstractmethod
    def advance(self, velocity: Tensor, solid: Tensor, reynolds: Tensor) -> Tensor:
        """The velocity (N, x, y, 2) one interval after `velocity`, both in U and float32, networks in inference mode.

        `solid` (N, x, y) is 1 in the obstacle and 0 elsewhere; `reynolds` is (N,). No frame depends on another frame.
        """

    def decode(self, records: Tensor, manifest: Manifest) -> Batch:
        return decode_pairs(records, manifest)

    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Any]:  # noqa: ARG002
        """One step. `l1` is in U; `relative_l2` is the L2 norm of the error over the norm of the frame, and `of_change`
        over the norm of the frame's change. An answer equal to the frame before has an `of_change` of 1.
        """
        made = self.advance(batch["now"], batch["solid"], batch["reynolds"])
        missed, axes = made - batch["next"], (1, 2, 3)
        error, frame, change = (
            ops.sqrt(ops.sum(ops.square(flow), axes)) for flow in (missed, batch["next"], batch["next"] - batch["now"])
        )
        losses = {
            "l1": ops.mean(ops.abs(missed), axes),
            "relative_l2": error / frame,
            "of_change": error / ops.maximum(change, keras.config.epsilon()),
        }
        return losses, made

    def judge(self, showers: int, geometry: Grid, workers: int = 1) -> FlowJudge:
        return FlowJudge(showers, geometry, workers)

    def serving(self, valid: ValidRange) -> Any:
        """The next velocity, for Reynolds numbers of the valid range; others raise InvalidArgumentError."""
        low, high = valid["reynolds"]

        @tf.function(input_signature=self._signature(), autograph=False)
        def advance(velocity: tf.Tensor, solid: tf.Tensor, reynolds: tf.Tensor) -> dict[str, tf.Tensor]:
            reason = f"the model is valid for reynolds from {low:g} to {high:g}; found:"
            inside = (reynolds >= low) & (reynolds <= high)
            check = tf.debugging.Assert(tf.reduce_all(inside), [reason, tf.boolean_mask(reynolds, ~inside)])
            with tf.control_dependencies([check]):  # without it the network would run beside the check
                reynolds = tf.identity(reynolds)
            return {"next_velocity": self.advance(velocity, solid, reynolds)}

        return advance

    def onnx(self, valid: ValidRange) -> Any:
        """The next velocity; a frame of a Reynolds number outside the valid range is NaN: ONNX has no errors."""
        low, high = (np.float32(bound) for bound in valid["reynolds"])

        @tf.function(input_signature=self._signature(), autograph=False)
        def advance(velocity: tf.Tensor, solid: tf.Tensor, reynolds: tf.Tensor) -> dict[str, tf.Tensor]:
            inside = (reynolds >= low) & (reynolds <= high)
            made = self.advance(velocity, solid, tf.where(inside, reynolds, low))
            return {"next_velocity": tf.where(inside[:, None, None, None], made, np.float32(np.nan))}

        return advance

    def _signature(self) -> list[tf.TensorSpec]:
        shape = [None, *self.shape]
        return [
            tf.TensorSpec([*shape, 2], name="velocity"),
            tf.TensorSpec(shape, name="solid"),
            tf.TensorSpec([None], name="reynolds"),
        ]


class FlowJudge(Judge):
    """Keeps a few of the frames of a worker, evenly, and draws their vorticity beside the solver's."""

    def __init__(self, frames: int, grid: Grid, workers: int) -> None:
        self._grid, self._seen = grid, 0
        self._every = -(-frames // (_SHOWN * workers))
        self._shown: list[tuple[npt.NDArray[Any], ...]] = []  # solver's frame and the model's, solid, Reynolds number

    def add(self, batch: Batch, made: Any) -> Rows:
        for row in range(-self._seen % self._every, len(made), self._every):
            arrays = (batch["next"], made, batch["solid"], batch["reynolds"])
            self._shown.append(tuple(np.array(array[row]) for array in arrays))
        self._seen += len(made)
        return super().add(batch, made)

    @mpl.rc_context({"font.size": 9.0})
    def figures(self) -> Mapping[str, Figure]:
        """The figure `vorticity`. Each row is a frame: the solver's, the model's, and their difference on one scale."""
        rows = len(self._shown)
        (x, y), cell = self._grid.shape, self._grid.cell_d
        figure = Figure(figsize=(13, max(rows * (13 / 3 * y / x + 0.5), 1.5)), dpi=100, layout="constrained")
        axes = figure.subplots(rows, 3, squeeze=False, sharex=True, sharey=True)
        for row, (solver, model, solid, reynolds) in zip(axes, self._shown, strict=True):
            true, predicted = (vorticity(frame[None].astype(np.float32), cell)[0] for frame in (solver, model))
            highest = float(np.quantile(np.abs(true), _SHARE)) or 1.0
            flows = {"solver": true, "model": predicted, "difference": predicted - true}
            for axis, (name, flow) in zip(row, flows.items(), strict=True):
                image = np.ma.masked_where(solid > 0, flow).T
                mesh = axis.imshow(
                    image, origin="lower", cmap="RdBu_r", vmin=-highest, vmax=highest, extent=(0, x * cell, 0, y * cell)
                )
                axis.set_title(f"{name}, Re = {reynolds:.0f}", loc="left")
                axis.set(xlabel="x [D]", ylabel="y [D]")
            figure.colorbar(mesh, ax=row[-1], label="vorticity [U/D]", extend="both")
        return {"vorticity": figure}


def mirrored(batch: Batch, chosen: Tensor) -> dict[str, Tensor]:
    """The batch with the `chosen` (N,) flows turned upside down: y is reversed, and the velocity along y negated.

    These flows obey the same equations, since nothing but the obstacle tells above from below.
    """
    turned = {name: ops.flip(batch[name], 2) * ops.convert_to_tensor([1.0, -1.0]) for name in ("now", "next")}
    turned["solid"] = ops.flip(batch["solid"], 2)
    chosen_ones = {
        name: ops.where(ops.reshape(chosen, (-1, *[1] * (len(values.shape) - 1))), values, batch[name])
        for name, values in turned.items()
    }
    return {**batch, **chosen_ones}


def conditions(velocity: Tensor, solid: Tensor, reynolds: Tensor) -> Tensor:
    """The inputs of a network for a frame, (N, x, y, 4): the velocity minus the inflow's, the obstacle, log(Re / 100).

    The last is the same in all cells. So a layer that pads with zeros at the border of the frame sees beyond the border
    the inflow, and no obstacle.
    """
    number = ops.ones_like(solid) * ops.log(reynolds / 100.0)[:, None, None]
    return ops.concatenate([velocity - ops.convert_to_tensor(INFLOW), ops.stack([solid, number], -1)], -1)
