"""Draws showers: their totals first, then layer after layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from training.models.autoregressive.frame import SUMS, Labels
from training.models.autoregressive.sampling import shower
from training.models.autoregressive.sampling.layer import Given, LayerDrawing
from training.models.base import Tensor

_BESIDE = 3  # numbers of a shower in addition to those of its totals: two for its cells, one for its reflection


def noise_numbers(layers: int) -> int:
    """How many uniform numbers in [0, 1) a shower takes: 3 for each total and offset, 1 for each layer, and 3 more."""
    return shower.noise_numbers(layers) + _BESIDE


def drawn_showers(networks: Mapping[str, Any], labels: Labels, noise: Tensor, capacity: int = 0) -> Tensor:
    """Cells (N, x, y, layer) in units of 0.02 GeV, of `labels` and uniform numbers `noise` (N, noise_numbers).

    `networks` holds the densities, by name, and the `constants` of their calorimeter.
    With a `capacity`, all shapes are static, as XLA needs them: there is room for so many cells a shower, layer and
    colour, on the mean over a batch. A shower for whose cells there is no room is NaN. Without a capacity, there are as
    many cells as needed, which is faster on a processor.
    """
    mesh, showers = networks["constants"].mesh, noise.shape[0] or tf.shape(noise)[0]
    of_totals, rest = tf.split(noise, [shower.noise_numbers(mesh.layers), _BESIDE], 1)
    planned = shower.drawn_plan(networks, labels.reflected(mesh), of_totals)
    keys = tf.cast(rest[:, :2] * 2.0**24, tf.int32)
    left, below = (tf.cast(which, tf.int32) for which in (labels.left(rest[:, 2] < 0.5), labels.below()))
    given = Given.of(networks, capacity, planned, keys, 2 * left + below)
    empty = tf.zeros([2 * showers * (mesh.places + 1)])
    none = tf.zeros([showers, 3, len(SUMS)])
    deposits = tf.TensorArray(tf.float32, mesh.layers, element_shape=[None])

    def step(layer: Tensor, images: Tensor, sums: Tensor, deposits: Any) -> Any:
        image, sums, turned = LayerDrawing(given, layer, images=images, sums=sums).draw()
        before = images[: showers * (mesh.places + 1)]
        return layer + 1, tf.concat([image, before], 0), sums, deposits.write(layer, turned)

    state = (tf.constant(0), empty, none, deposits)
    *_, deposits = tf.while_loop(lambda layer, *_: layer < mesh.layers, step, state)
    cells = tf.reshape(deposits.stack(), [mesh.layers, showers, mesh.places])
    return tf.reshape(tf.transpose(cells, [1, 2, 0]), [showers, *mesh.geometry.shape])
