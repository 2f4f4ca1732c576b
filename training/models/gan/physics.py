"""The physics in the loss: what the discriminator's fixed heads measure, and the losses, one value a shower.

It uses `keras.ops` only, so it runs on any backend. Sources: svalleco/3Dgan, branch Anglegan, and
"Accelerating GAN training using highly parallel hardware on public cloud", arXiv 2111.04628.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import ops

from calopipe.showers.cells import EMPTY_SHOWER_ANGLE

Tensor = Any  # of Keras's backend

CELL_POWER = 0.85  # images are deposits to this power, which narrows their range of six decades
_EPSILON = 1e-7
# The gradient of a centre of energy divides by at least this energy, in units of 0.02 GeV: 0.2 MeV. In showers of 100
# to 200 GeV all but three in ten thousand slices have more.
LEAST_SLICE = 0.01


def image_of(cells: Tensor) -> Tensor:
    """Images (N, x, y, layer, 1) of deposits `cells` (N, x, y, layer)."""
    return ops.expand_dims(ops.power(cells, CELL_POWER), -1)


def cells_of(image: Tensor) -> Tensor:
    """Deposits (N, x, y, layer) of an `image` (N, x, y, layer, 1): the exact inverse of `image_of`."""
    return ops.power(ops.squeeze(image, -1), 1.0 / CELL_POWER)


def ecal_sum(cells: Tensor) -> Tensor:
    """Sum of the deposits of each shower, (N,), in the unit of `cells`."""
    return ops.sum(cells, axis=(1, 2, 3))


def ecal_angle(cells: Tensor) -> Tensor:
    """The reference's measured angle in rad, (N,), in index units; as `calopipe.showers.angle.angle_of_hits`.

    Its gradient is bounded, unlike the gradient of the definition: see `_centre`.
    """
    x, y, depth = (ops.arange(n, dtype=cells.dtype) + 0.5 for n in cells.shape[1:])
    in_x, in_y = ops.sum(cells, axis=2), ops.sum(cells, axis=1)  # (N, x, layer), (N, y, layer)
    layer_energy = ops.sum(in_x, axis=1)  # (N, layer)
    total = ops.sum(layer_energy, axis=1)  # (N,)
    filled = layer_energy > 0
    whole = ops.expand_dims(total, 1)

    x_moment = ops.einsum("nxl,x->nl", in_x, x)
    y_moment = ops.einsum("nyl,y->nl", in_y, y)
    x_offset = _centre(x_moment, layer_energy) - _centre(ops.sum(x_moment, axis=1, keepdims=True), whole)
    y_offset = _centre(y_moment, layer_energy) - _centre(ops.sum(y_moment, axis=1, keepdims=True), whole)
    z_offset = depth - _centre(ops.sum(layer_energy * depth, axis=1, keepdims=True), whole)

    distance = ops.sqrt(ops.maximum(ops.square(x_offset) + ops.square(z_offset), _EPSILON))
    slope = ops.where(z_offset < 0, -y_offset, y_offset) / distance
    weight = ops.where(filled, depth, 0.0)
    weight_sum = ops.where(total > 0, ops.sum(weight, axis=1), 1.0)
    angle = ops.sum((np.pi / 2 - ops.arctan(slope)) * weight, axis=1) / weight_sum
    return ops.where(total > 0, angle, EMPTY_SHOWER_ANGLE)


def _centre(moment: Tensor, energy: Tensor) -> Tensor:
    """moment / energy, 0 where there is no energy; its gradient divides by no less than `LEAST_SLICE`.

    The derivative of a centre c is (d moment - c d energy) / energy, which has no bound where the energy is almost 0.
    `beyond` is 0, and has this derivative with energy >= `LEAST_SLICE`.
    """
    centre = ops.stop_gradient(moment / ops.where(energy > 0, energy, 1.0))
    beyond = (moment - centre * energy) / ops.stop_gradient(ops.maximum(energy, LEAST_SLICE))
    return centre + beyond


def percentage_error(true: Tensor, predicted: Tensor) -> Tensor:
    """100 |predicted - true| / |true| of each shower, (N,), in percent. An empty answer scores 100."""
    return 100.0 * ops.abs(predicted - true) / ops.maximum(ops.abs(true), _EPSILON)
