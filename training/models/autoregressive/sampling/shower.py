"""Draws showers: which layers hold energy, the totals and the axis first, then layer after layer.

Also all numbers that showers are drawn from, by name, for a program that draws them without TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from training.models.autoregressive import totals
from training.models.autoregressive.context import Plan, plan
from training.models.autoregressive.densities import SCORE_REACH, SCORES, NumberDensity, mixture_of
from training.models.autoregressive.frame import SUMS, Constants, Labels, label_inputs
from training.models.autoregressive.sampling.layer import Given, LayerDrawing
from training.models.autoregressive.sampling.proposals import LEVELS
from training.models.autoregressive.sampling.shared_energy import draw_mixture
from training.models.autoregressive.totals_density import TotalsDensity, ahead
from training.models.base import Array, Tensor
from training.models.randomness import box_muller

_BESIDE = 3  # numbers of a shower in addition to those of its totals: two for its cells, one for its reflection
_ONLY_IN_TRAINING = "proposal"
_WHOLE = ("constants.far_table", "constants.core")  # whole numbers among the constants


def noise_numbers(layers: int) -> int:
    """How many uniform numbers in [0, 1) a shower takes: 3 for each total and offset, 1 for each layer, and 3 more."""
    return 3 * (totals.number_of_totals(layers) + totals.OFFSETS) + layers + _BESIDE


def drawn_showers(networks: Mapping[str, Any], labels: Labels, noise: Tensor, capacity: int = 0) -> Tensor:
    """Cells (N, x, y, layer) in units of 0.02 GeV, of `labels` and uniform numbers `noise` (N, noise_numbers).

    `networks` holds the densities, by name, and the `constants` of their calorimeter.
    With a `capacity`, all shapes are static, as XLA needs them: there is room for so many cells a shower, layer and
    colour, on the mean over a batch. A shower for whose cells there is no room is NaN. Without a capacity, there are as
    many cells as needed, which is faster on a processor.
    """
    mesh, showers = networks["constants"].mesh, noise.shape[0] or tf.shape(noise)[0]
    of_totals, rest = tf.split(noise, [noise_numbers(mesh.layers) - _BESIDE, _BESIDE], 1)
    planned = drawn_plan(networks, labels.reflected(mesh), of_totals)
    keys = tf.cast(rest[:, :2] * 2.0**24, tf.int32)
    left, below = (tf.cast(which, tf.int32) for which in (labels.left(rest[:, 2] < 0.5), labels.below()))
    given = Given(networks, capacity, planned, keys, 2 * left + below)
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


def arrays(networks: Mapping[str, Any]) -> dict[str, Array]:
    """Weights as NETWORK.LAYER.WEIGHT, `constants` and tables of the `mesh`: float32, or int32 of whole numbers."""
    numbers: dict[str, Any] = {}
    for name, network in networks.items():
        for weight in network.weights:
            path = weight.path.replace("/", ".")
            if weight.name != _ONLY_IN_TRAINING:
                numbers[path if name == "constants" else f"{name}.{path}"] = weight.numpy()
    mesh = networks["constants"].mesh
    named = "x y ring log_area exists around mirror depth kind short_side per_unit middle most spare"
    numbers |= {f"mesh.{name}": getattr(mesh, name) for name in named.split()}
    numbers |= {"mesh.start": np.array(mesh.start), "mesh.lattice": np.array(mesh.lattice_shape), "mesh.levels": LEVELS}
    return {
        name: np.asarray(array, np.float32 if array.dtype.kind == "f" and name not in _WHOLE else np.int32, order="C")
        for name, array in numbers.items()
    }


def drawn_plan(networks: Mapping[str, Any], labels: Labels, noise: Tensor) -> Plan:
    """The plans of N showers with reflected `labels`, by uniform numbers `noise` (N, noise_numbers - 3)."""
    constants, density = networks["constants"], networks["totals"]
    layers = constants.mesh.layers
    number = totals.number_of_totals(layers)
    choice, one, two, presence, offset = tf.split(noise, [number, number, number, layers, 3 * totals.OFFSETS], 1)
    terms = labels.terms(constants)
    inputs, margins = label_inputs(terms), Margins.of(terms, constants)
    present = drawn_presence(density, inputs, constants["presence"], presence)
    normal = drawn_totals(
        density, present, totals.defined(present), inputs, choice=choice, noise=box_muller(one, two)[0],
        share_taken=partial(share_taken, margins=margins, constants=constants),
    )  # fmt: skip
    values = from_normal(normal, margins, constants)
    drawn = totals.Drawn(values, totals.layers_of(values, present, labels.energy_gev)[0], labels, terms)
    drawn = sharp(drawn, [networks[part] for part in totals.PARTS], offset, constants)
    # budgets and moments depend on the layers, and on where the axis is in its cells
    mean = totals.means(terms, drawn.budget_terms(constants), constants)
    again = from_normal(normal, margins._replace(mean=mean), constants)
    values = tf.concat([drawn.values[:, : -totals.LAST], again[:, -totals.LAST :]], 1)
    return plan(values, present, labels, constants)


def drawn_presence(density: TotalsDensity, labels: Tensor, prior: Tensor, choice: Tensor) -> Tensor:
    """Which layers hold energy, (N, layers), 1 or 0, by uniform numbers `choice`; where none would, the first does."""
    layers = density.layers_seen

    def step(k: Tensor, missed: Tensor) -> tuple[Tensor, Tensor]:
        odds = density.presence_odds(missed, labels, prior, k[None])[0]
        empty = tf.cast(tf.gather(choice, k, axis=1) >= tf.sigmoid(odds), tf.float32)
        return k + 1, missed - empty[:, None] * tf.gather(tf.eye(layers), k)

    start = (tf.constant(0), tf.zeros_like(choice))
    present = 1 + tf.while_loop(lambda k, _: k < layers, step, start)[1]
    none = tf.cast(tf.reduce_sum(present, 1, keepdims=True) == 0, tf.float32)
    return present + none * tf.one_hot(0, layers)


def drawn_totals(
    density: TotalsDensity, present: Tensor, known: Tensor, labels: Tensor, *, choice: Tensor, noise: Tensor,
    share_taken: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """v (N, D) drawn by uniform numbers `choice` and normal numbers `noise`, (N, D) each; 0 where not `known`.

    `share_taken(v, k)` returns the share (N,) that layer k, if it is not the last, takes of what reaches it.
    """
    first, to_come = density.first, ahead(present)
    later = tf.cumsum(present, 1, reverse=True, exclusive=True)

    def draw(k: Tensor, drawn: Tensor, outputs: Tensor) -> Tensor:
        uniform, normal, there = (tf.gather(numbers, k, axis=1) for numbers in (choice, noise, known))
        value = draw_mixture(*mixture_of(outputs[0]), uniform, normal) * there
        return drawn + value[:, None] * tf.gather(tf.eye(density.totals), k)

    def of_layer(k: Tensor, drawn: Tensor, share: Tensor, left: Tensor) -> tuple[Tensor, ...]:
        outputs = density.of_layers(drawn, labels, present=present, share=share, to_come=to_come, chosen=k[None])
        drawn = draw(k, drawn, outputs)
        taken = tf.where(tf.gather(later, k, axis=1) > 0, share_taken(drawn, k), 1.0)
        held = left * taken * tf.gather(present, k, axis=1)
        return k + 1, drawn, share + held[:, None] * tf.gather(tf.eye(density.layers_seen), k), left - held

    start = (tf.constant(0), tf.zeros_like(noise), tf.zeros_like(present), tf.ones_like(present[:, 0]))
    k, drawn, share, left = tf.while_loop(lambda k, *_: k < first, of_layer, start)
    told = density.told(drawn, tf.concat([share[:, :-1], left[:, None]], 1), labels)
    return tf.while_loop(
        lambda k, _: k < density.totals,
        lambda k, drawn: (k + 1, draw(k, drawn, density.of_others(drawn, told, k[None]))),
        (k, drawn),
    )[1]


class Margins(NamedTuple):
    """How the totals of N showers are distributed at their labels: means and scales (N, D), and quantiles of residuals
    (N, D, SCORES). The means of the last totals depend on more than labels: `totals.means` returns them.
    """

    mean: Tensor
    scale: Tensor
    quantiles: Tensor

    @classmethod
    def of(cls, terms: Tensor, constants: Constants) -> Margins:
        quantiles = totals.own_quantiles(terms, constants["quantiles"])
        return cls(terms @ constants["mean"], totals.scales(terms, constants), quantiles)

    def values(self, normal: Tensor) -> Tensor:
        """The totals (N, D) from the scores g of their residuals, `normal` (N, D): the inverse of `totals.scores`."""
        residual = tf.reduce_sum(totals.interpolation(normal / SCORE_REACH, SCORES) * self.quantiles, -1)
        return self.mean + self.scale * residual


def from_normal(normal: Tensor, margins: Margins, constants: Constants) -> Tensor:
    """The totals z, (N, D), of v, `normal` (N, D): the inverse of `to_normal`, if the margins have `totals.means`."""
    return margins.values(normal @ tf.transpose(constants["colouring"]))


def share_taken(normal: Tensor, number: Tensor, margins: Margins, constants: Constants) -> Tensor:
    """The share (N,) that the layer `number` (), not the last, takes of what reaches it, by v (N, D) up to it."""
    score = tf.linalg.matvec(normal, tf.gather(constants["colouring"], number))
    return tf.sigmoid(Margins(*(tf.gather(part, number, axis=1) for part in margins)).values(score))


def sharp(
    drawn: totals.Drawn, densities: Sequence[NumberDensity], uniform: Tensor, constants: Constants
) -> totals.Drawn:
    """The showers without the blur of their offsets, which is drawn by `uniform` numbers (N, 3 * OFFSETS)."""
    choice, one, two = (tf.reshape(numbers, [-1, len(totals.PARTS)]) for numbers in tf.split(uniform, 3, 1))
    normal, noise = box_muller(one, two)[0], tf.zeros_like(choice)
    for part, density in enumerate(densities):
        inputs = tf.concat([totals.given_offset(drawn.with_noise(-noise, constants), constants), noise[:, :part]], 1)
        number = draw_mixture(*density.mixture(inputs), choice[:, part], normal[:, part])
        noise += number[:, None] * tf.one_hot(part, len(totals.PARTS))
    return drawn.with_noise(-noise, constants)
