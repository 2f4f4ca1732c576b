"""Showers drawn: their totals first, then layer after layer."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from calopipe.showers.cells import REFERENCE_UNIT_GEV, Geometry
from training.models.autoregressive import cells, frame, totals
from training.models.autoregressive.context import Plan, plan
from training.models.autoregressive.frame import SUMS, More
from training.models.autoregressive.mesh import Tensor, mesh_of
from training.models.autoregressive.sampling.layer import Densities, LayerDrawing
from training.models.randomness import box_muller


def noise_numbers(geometry: Geometry) -> int:
    """Uniform numbers in [0, 1) that a shower takes: for its totals, its cells, its reflection."""
    layers = geometry.shape[2]
    return totals.noise_numbers(layers) + 3


class Sampler:
    """Draws showers of `geometry` from `densities`.

    With a `capacity` of so many cells a shower, layer and colour, on the mean over a batch, all shapes are static, as
    XLA wants them, and a shower for whose cells there is no room has NaN; without it there are as many as there are,
    which is faster on a processor.
    """

    def __init__(self, densities: Densities, geometry: Geometry, capacity: int = 0) -> None:
        self._densities, self._store, self._geometry = densities, densities.constants, geometry
        self._mesh, self._capacity = mesh_of(geometry), capacity

    def showers(self, energy_gev: Tensor, theta_rad: Tensor, noise: Tensor, more: More | None = None) -> Tensor:
        """Cells (N, x, y, layer) in units of 0.02 GeV, of labels (N,) and uniform numbers (N, noise_numbers)."""
        more = more or More()
        layers = self._geometry.shape[2]
        of_totals, rest = tf.split(noise, [totals.noise_numbers(layers), 3], 1)
        planned = self._plan(energy_gev, frame.reflected_angle(theta_rad), of_totals, more.reflected(self._geometry))
        keys = tf.cast(rest[:, :2] * 2.0**24, tf.int32)
        turned = tf.stack([more.left(rest[:, 2] < 0.5), theta_rad > math.pi / 2], 1)
        return self._all_layers(planned, keys, turned)

    def _plan(self, energy_gev: Tensor, reflected: Tensor, noise: Tensor, more: More) -> Plan:
        """The plans of showers whose totals are drawn with `noise` (N, 3 D + layers)."""
        layers, number = self._geometry.shape[2], totals.number_of_totals(self._geometry.shape[2])
        choice, one, two, presence, offset = tf.split(noise, [number, number, number, layers, 3 * totals.OFFSETS], 1)
        labels = frame.label_terms(energy_gev, reflected, self._store, more)
        terms = frame.label_inputs(labels)
        present = self._densities.totals.sample_presence(terms, self._store["presence"], presence)
        normal = self._densities.totals.sample(present, totals.defined(present), terms, choice, box_muller(one, two)[0])
        none = tf.zeros([1, totals.number_of_phases(layers)])
        values = totals.from_normal(normal, labels, none, self._store)
        energy = totals.layers_of(values, present, energy_gev, REFERENCE_UNIT_GEV, layers)[0]
        given = self._store, self._geometry
        drawn = totals.Drawn(values, energy, reflected, labels, more)
        drawn = totals.sharp(drawn, (self._densities.place, self._densities.slope), offset, *given)
        # the budgets depend on where the axis is in its cells
        again = totals.from_normal(normal, labels, drawn.phases(*given), self._store)
        values = tf.concat([drawn.values[:, : -len(totals.BUDGETS)], again[:, -len(totals.BUDGETS) :]], 1)
        return plan((values, present), energy_gev, reflected, self._store, self._geometry, more=more)

    def _all_layers(self, planned: Plan, keys: Tensor, turned: Tensor) -> Tensor:
        """Showers; those `turned` (N, 2) are reflected in x and in y."""
        mesh, showers = self._mesh, tf.shape(keys)[0]
        empty = tf.zeros([showers, mesh.places + 1])
        none = tf.zeros([showers, len(SUMS)])
        deposits = tf.TensorArray(tf.float32, mesh.layers, element_shape=[None, mesh.places])

        def step(layer: Tensor, images: Any, sums: Any, deposits: Any) -> Any:
            drawing = LayerDrawing(
                self._densities, mesh, self._capacity, layer, planned.at(layer), images=images, sums=sums, keys=keys
            )
            cell, value, own = drawing.draw()
            image = tf.pad(drawing.image(cell, cells.scaled(value, self._store)), [[0, 0], [0, 1]])
            before, one, _ = sums
            written = deposits.write(layer, drawing.image(drawing.turned(cell, turned), value))
            return layer + 1, (image, images[0]), (before + own, own, one), written

        state = (tf.constant(0), (empty, empty), (none, none, none), deposits)
        *_, deposits = tf.while_loop(lambda layer, *_: layer < mesh.layers, step, state, maximum_iterations=mesh.layers)
        return tf.reshape(tf.transpose(deposits.stack(), [1, 2, 0]), [showers, *self._geometry.shape])
