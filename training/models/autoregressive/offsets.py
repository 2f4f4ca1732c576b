"""The offset of a shower's axis, blurred among the totals and made sharp again.

The energy of a narrow shower in coarse cells is found at the centres of cells: the place of its axis has a peak in each
cell that the beam enters, and so has its slope. A density of a few normals cannot follow the peaks of a wide beam. So
the totals hold the offset with known noise, which is smooth, and densities of the noise, given where in their cells the
blurred axis meets the layers, take it away: first that of the place, then that of the slope. A shower is the same in
the next cell, so one density serves all cells, and one both directions.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from calopipe.showers.cells import Geometry
from training.models.autoregressive import totals
from training.models.autoregressive.frame import Axis, Constants, axis_of
from training.models.autoregressive.labels import More
from training.models.autoregressive.mesh import Mesh, Tensor, mesh_of
from training.models.autoregressive.networks import NumberDensity, draw_mixture
from training.models.autoregressive.totals import OFFSETS
from training.models.randomness import Draws, box_muller

COPIES = 8  # of a shower in a training step, each with its own noise
_PARTS = 2  # place and slope, along x and along y
_OTHERS = 6  # inputs beside phases and labels


def number_of_inputs(layers: int, labels: int) -> int:
    return totals.number_of_phases(layers) // 2 + labels + _OTHERS


@dataclass(frozen=True)
class Drawn:
    """N showers as far as they are known before their offsets: totals (N, D), of which the budgets do not count;
    energies (N, layers) of the layers; reflected angles (N,); label terms (N, ...) and more labels.
    """

    values: Tensor
    energy: Tensor
    theta_rad: Tensor
    labels: Tensor
    more: More

    def copies(self) -> Drawn:
        """Each shower COPIES times."""
        showers = tf.range(tf.shape(self.theta_rad)[0] * COPIES) // COPIES
        values, energy, theta, labels = (
            tf.gather(tensor, showers) for tensor in (self.values, self.energy, self.theta_rad, self.labels)
        )
        return Drawn(values, energy, theta, labels, self.more[showers])

    def with_noise(self, noise: Tensor, constants: Constants) -> Drawn:
        """The showers with offsets that `noise` (N * 2, 2) is added to."""
        blurred = totals.blurred(self.values, self.labels, tf.reshape(noise, [-1, OFFSETS]), constants)
        return Drawn(blurred, self.energy, self.theta_rad, self.labels, self.more)

    def axis(self, constants: Constants, geometry: Geometry) -> Axis:
        layers = self.energy.shape[1]
        offset = self.values[:, layers : layers + OFFSETS]
        return axis_of(offset, self.theta_rad, constants, geometry, self.more)

    def phases(self, constants: Constants, geometry: Geometry) -> Tensor:
        """Of the axes as they are, (N, number_of_phases)."""
        return totals.phases(self.energy, self.axis(constants, geometry), mesh_of(geometry))


def training_rows(drawn: Drawn, draws: Draws, constants: Constants, geometry: Geometry) -> dict[str, Tensor]:
    """`noise` (M, 2), and what each of the densities is given, of M / 2 copies of showers."""
    copies = drawn.copies()
    noise = draws.normal("offsets", [tf.shape(copies.values)[0] * 2, _PARTS])
    rows = {"noise": noise}
    for part, name in enumerate(("place", "slope")):
        left = noise * tf.constant([1.0 - part, 1.0])
        inputs = _given(copies.with_noise(left, constants), constants, geometry)
        rows[f"{name}_given"] = tf.concat([inputs, noise[:, :part]], 1)
    return rows


def sharp(
    drawn: Drawn,
    densities: tuple[NumberDensity, NumberDensity],
    uniform: Tensor,
    constants: Constants,
    geometry: Geometry,
) -> Drawn:
    """The showers with sharp offsets, by `uniform` numbers (N, 3 * OFFSETS)."""
    choice, one, two = (tf.reshape(numbers, [-1, _PARTS]) for numbers in tf.split(uniform, 3, 1))
    normal, noise = box_muller(one, two)[0], tf.zeros_like(choice)
    for part, density in enumerate(densities):
        inputs = tf.concat([_given(drawn.with_noise(-noise, constants), constants, geometry), noise[:, :part]], 1)
        number = draw_mixture(*density.mixture(inputs), choice[:, part], normal[:, part])
        noise += number[:, None] * tf.one_hot(part, _PARTS)
    return drawn.with_noise(-noise, constants)


def _given(drawn: Drawn, constants: Constants, geometry: Geometry) -> Tensor:
    """What the densities are given, (N * 2, number_of_inputs): of each shower along x, then along y."""
    mesh: Mesh = mesh_of(geometry)
    layers, axis, labels = mesh.layers, drawn.axis(constants, geometry), drawn.labels
    offset = slice(layers, layers + OFFSETS)
    residual = (drawn.values - labels @ constants["mean"])[:, offset] / totals.scales(labels, constants)[:, offset]
    waves = tf.reshape(totals.phases(drawn.energy, axis, mesh), [-1, 2, 2, totals.number_of_phases(layers) // 4])
    span = max(float(mesh.depth[-1] - mesh.depth[0]), 1.0)
    slopes = tf.stack([place[:, -1] - place[:, 0] for place in (axis.x, axis.y)], 1) / span
    share = drawn.energy / tf.reduce_sum(drawn.energy, 1, keepdims=True)
    where = (mesh.depth - mesh.depth[0]) / span
    mean = tf.reduce_sum(share * where, 1)
    width = tf.sqrt(tf.reduce_sum(share * tf.square(where - mean[:, None]), 1))
    common = tf.concat([mean[:, None], width[:, None], totals.label_inputs(labels)], 1)
    parts = [
        tf.reshape(tf.transpose(waves, [0, 2, 1, 3]), [-1, 2, totals.number_of_phases(layers) // 2]),
        slopes[..., None],
        tf.clip_by_value(tf.reshape(residual, [-1, 2, _PARTS]) / 4, -2.0, 2.0),
        tf.zeros_like(slopes)[..., None] + tf.constant([[0.0], [1.0]]),  # which direction
        tf.repeat(common[:, None], 2, axis=1),
    ]
    inputs = tf.concat(parts, -1)
    return tf.reshape(inputs, [-1, inputs.shape[-1]])
