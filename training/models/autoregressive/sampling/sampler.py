"""Showers drawn: their totals first, then layer after layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from training.models.autoregressive.context import Plan
from training.models.autoregressive.frame import SUMS, Labels
from training.models.autoregressive.sampling import shower
from training.models.autoregressive.sampling.layer import Given, LayerDrawing
from training.models.base import Tensor

_BESIDE = 3  # numbers of a shower beside those of its totals: two for its cells, one for its reflection


def noise_numbers(layers: int) -> int:
    """Uniform numbers in [0, 1) that a shower takes: three for each total and offset, one for each layer, and three."""
    return shower.noise_numbers(layers) + _BESIDE


class Sampler:
    """Draws showers from the densities among `networks`, by name, with the `constants` of their calorimeter.

    With a `capacity` of so many cells a shower, layer and colour, on the mean over a batch, all shapes are static, as
    XLA wants them, and a shower for whose cells there is no room has NaN; without it there are as many as there are,
    which is faster on a processor.
    """

    def __init__(self, networks: Mapping[str, Any], capacity: int = 0) -> None:
        self._networks, self._store, self._capacity = networks, networks["constants"], capacity

    def showers(self, labels: Labels, noise: Tensor) -> Tensor:
        """Cells (N, x, y, layer) in units of 0.02 GeV, of labels and uniform numbers (N, noise_numbers)."""
        mesh = self._store.mesh
        of_totals, rest = tf.split(noise, [shower.noise_numbers(mesh.layers), _BESIDE], 1)
        planned = shower.drawn_plan(self._networks, labels.reflected(mesh), of_totals)
        keys = tf.cast(rest[:, :2] * 2.0**24, tf.int32)
        left, below = (tf.cast(which, tf.int32) for which in (labels.left(rest[:, 2] < 0.5), labels.below()))
        return self._all_layers(planned, keys, 2 * left + below)

    def _all_layers(self, planned: Plan, keys: Tensor, turned: Tensor) -> Tensor:
        """Showers, reflected as `turned` (N,) says (`Mesh.turned`)."""
        mesh, showers = self._store.mesh, keys.shape[0] or tf.shape(keys)[0]
        given = Given.of(self._networks, self._capacity, planned, keys, turned)
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
