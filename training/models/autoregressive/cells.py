"""Place and neighbours of a cell, as its density is given them in training and in sampling."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from training.models.autoregressive.frame import Constants
from training.models.autoregressive.mesh import AROUND, COLOURS, Tensor

PLACE, SHARES_BEFORE = 16, 2
EVEN_INPUTS = 2 * len(AROUND) + SHARES_BEFORE + PLACE
ODD_INPUTS = EVEN_INPUTS + len(AROUND)
_OF_COLOURS = 4
MET_INPUTS = _OF_COLOURS + SHARES_BEFORE + PLACE
_EVEN = np.array([(first + second) % COLOURS == 0 for first, second in AROUND], np.float32)
_MIDDLE = AROUND.index((0, 0))
_SURE, _NONE = 3e-3, 1e-3  # of the energy, and of a usual deposit: what is added to both sides of a ratio

# Radii, in cells, between which the priors are interpolated: equal steps of log(1 + r / 0.5), fine near the axis, where
# coarse steps would stay in the showers as rings.
FINEST = 0.5
STEP = 0.15


def radius_knots(reach: float) -> int:
    """How many radii cover `reach` cells."""
    return int(np.ceil(np.log1p(reach / FINEST) / STEP)) + 2


def radius_place(radius: Tensor) -> Tensor:
    """Where `radius`, in cells, is between the knots; as a number of knots."""
    return tf.math.log(1.0 + radius / FINEST) / STEP


def prior(table: Tensor, layer: Tensor, radius: Tensor) -> Tensor:
    """A table (layers, knots) read at `layer` and `radius`, (R,) each, by linear interpolation in the radius' place."""
    knots = table.shape[1]
    place = tf.minimum(radius_place(radius), knots - 1.001)
    left = tf.floor(place)
    start = layer * knots + tf.cast(left, tf.int32)
    flat = tf.reshape(table, [-1])
    low, high = tf.gather(flat, start), tf.gather(flat, start + 1)
    return low + (place - left) * (high - low)


def scaled(energy: Tensor, constants: Constants) -> Tensor:
    """Energies as the networks see them: 0 for none, 0.7 for a usual deposit, 4 to 6 for the largest."""
    return tf.math.log(1.0 + energy / constants["deposit"])


def shares_before(around: Tensor, energy: Tensor, constants: Constants) -> Tensor:
    """The shares (R, 2) of the `energy` of either layer before that the cell at the same place holds there.

    `around` (R, 50 or more) are the cells around it in these layers, scaled; `energy` (R, 2) in units of 0.02 GeV.
    A core that stays in its cell is told by them at any energy, in the first layers too, where deposits are small.
    """
    middle = tf.gather(around, [_MIDDLE, len(AROUND) + _MIDDLE], axis=1)
    return tf.math.divide_no_nan((tf.exp(middle) - 1.0) * constants["deposit"], energy)


def of_met(known: Tensor) -> Tensor:
    """What the share of the even cells is given (M, MET_INPUTS) of what is `known` (M, EVEN_INPUTS) of the cell met.

    Of either layer before: the logits of the shares that the cells of its colour around it hold, and it alone.
    """
    shares = []
    for layer in range(2):
        energy = tf.exp(known[:, layer * len(AROUND) : (layer + 1) * len(AROUND)]) - 1.0
        total = tf.reduce_sum(energy, 1)
        for part in (tf.reduce_sum(energy * _EVEN, 1), energy[:, _MIDDLE]):
            least = _SURE * total + _NONE
            shares.append(tf.math.log(part + least) - tf.math.log(total - part + least))
    return tf.concat([tf.stack(shares, 1), known[:, 2 * len(AROUND) : EVEN_INPUTS]], 1)


def place(dx: Tensor, dy: Tensor, r: Tensor, slope: Tensor, log_area: Tensor) -> Tensor:
    """A cell's place as its density is given it, (R, PLACE), from its distances (R,) to the axis in cells.

    `slope` (R,) is the axis's along y, in cells a layer: ahead of a tilted axis there is not what there is behind it.
    `log_area` (R,) is that of the cell over the mean.
    """
    far = [tf.minimum(distance / 8.0, 8.0) for distance in (r, tf.abs(dx), tf.abs(dy))]
    return tf.stack(
        [
            tf.clip_by_value(dx, -2.0, 2.0), tf.clip_by_value(dy, -2.0, 2.0),
            tf.clip_by_value(dx, -0.8, 0.8), tf.clip_by_value(dy, -0.8, 0.8),
            tf.exp(-1.5 * r), tf.exp(-r / 1.5), tf.exp(-r / 5.0), tf.math.log(r + 0.3), far[0],
            tf.minimum(r, 3.0) - 1.5, (dx * dx - dy * dy) / (r * r + 1.0), far[1], far[2],
            slope * tf.clip_by_value(dy, -1.0, 1.0), slope * tf.clip_by_value(dy, -6.0, 6.0),
            log_area,
        ], 1,
    )  # fmt: skip
