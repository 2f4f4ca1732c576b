"""Showers drawn: their totals first, then layer after layer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import tensorflow as tf

from training.models.autoregressive import cells, frame, totals
from training.models.autoregressive.context import Plan, plan
from training.models.autoregressive.frame import SUMS, Labels
from training.models.autoregressive.sampling.layer import LayerDrawing
from training.models.base import Tensor
from training.models.randomness import box_muller

_BESIDE = 3  # numbers of a shower beside those of its totals: two for its cells, one for its reflection


def noise_numbers(layers: int) -> int:
    """Uniform numbers in [0, 1) that a shower takes: three for each total and offset, one for each layer, and three."""
    return 3 * (totals.number_of_totals(layers) + totals.OFFSETS) + layers + _BESIDE


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
        of_totals, rest = tf.split(noise, [noise_numbers(mesh.layers) - _BESIDE, _BESIDE], 1)
        planned = self._plan(labels.reflected(mesh), of_totals)
        keys = tf.cast(rest[:, :2] * 2.0**24, tf.int32)
        turned = tf.stack([labels.left(rest[:, 2] < 0.5), labels.below()], 1)
        return self._all_layers(planned, keys, turned)

    def _plan(self, labels: Labels, noise: Tensor) -> Plan:
        """The plans of showers with reflected `labels`, whose totals are drawn with `noise` (N, ...)."""
        store, density, layers = self._store, self._networks["totals"], self._store.mesh.layers
        number = totals.number_of_totals(layers)
        choice, one, two, presence, offset = tf.split(noise, [number, number, number, layers, 3 * totals.OFFSETS], 1)
        terms = labels.terms(store)
        inputs = frame.label_inputs(terms)
        present = density.sample_presence(inputs, store["presence"], presence)
        normal = density.sample(
            present, totals.defined(present), inputs, choice, box_muller(one, two)[0],
            share_taken=partial(totals.share_taken, terms=terms, constants=store),
        )  # fmt: skip
        values = totals.from_normal(normal, terms, tf.zeros([1, totals.number_of_phases(layers)]), store)
        energy = totals.layers_of(values, present, labels.energy_gev)[0]
        drawn = totals.Drawn(values, energy, labels, terms)
        drawn = totals.sharp(drawn, [self._networks[part] for part in totals.PARTS], offset, store)
        # the budgets depend on where the axis is in its cells
        again = totals.from_normal(normal, terms, drawn.phases(store), store)
        values = tf.concat([drawn.values[:, : -len(totals.BUDGETS)], again[:, -len(totals.BUDGETS) :]], 1)
        return plan(values, present, labels, store)

    def _all_layers(self, planned: Plan, keys: Tensor, turned: Tensor) -> Tensor:
        """Showers; those `turned` (N, 2) are reflected in x and in y."""
        mesh, showers = self._store.mesh, tf.shape(keys)[0]
        empty = tf.zeros([showers, mesh.places + 1])
        none = tf.zeros([showers, len(SUMS)])
        deposits = tf.TensorArray(tf.float32, mesh.layers, element_shape=[None, mesh.places])

        def step(layer: Tensor, images: Any, sums: Any, deposits: Any) -> Any:
            drawing = LayerDrawing(
                self._networks, self._capacity, layer, planned.at(layer), images=images, sums=sums, keys=keys
            )
            cell, value, own = drawing.draw()
            image = tf.pad(drawing.image(cell, cells.scaled(value, self._store)), [[0, 0], [0, 1]])
            before, one, _ = sums
            written = deposits.write(layer, drawing.image(drawing.turned(cell, turned), value))
            return layer + 1, (image, images[0]), (before + own, own, one), written

        state = (tf.constant(0), (empty, empty), (none, none, none), deposits)
        *_, deposits = tf.while_loop(lambda layer, *_: layer < mesh.layers, step, state, maximum_iterations=mesh.layers)
        return tf.reshape(tf.transpose(deposits.stack(), [1, 2, 0]), [showers, *mesh.geometry.shape])
