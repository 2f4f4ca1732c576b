"""What is drawn of a shower as a whole, before its cells: which layers hold energy, its totals, and its axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from training.models.autoregressive.context import Plan, plan
from training.models.autoregressive.densities import NumberDensity, draw_mixture, mixture_of
from training.models.autoregressive.frame import Constants, Labels, label_inputs, scale_terms
from training.models.autoregressive.totals import (
    BUDGETS,
    ENERGIES,
    OFFSETS,
    PARTS,
    QUANTILE_REACH,
    QUANTILES,
    Drawn,
    defined,
    given_offset,
    interpolation,
    layers_of,
    means,
    number_of_budget_terms,
    number_of_totals,
    scales,
)
from training.models.autoregressive.totals_density import Layers, TotalsDensity, ahead
from training.models.base import Tensor
from training.models.randomness import box_muller


def noise_numbers(layers: int) -> int:
    """Uniform numbers in [0, 1) that the totals and the axis of a shower of so many `layers` take."""
    return 3 * (number_of_totals(layers) + OFFSETS) + layers


def drawn_plan(networks: Mapping[str, Any], labels: Labels, noise: Tensor) -> Plan:
    """The plans of N showers with reflected `labels`, by uniform numbers `noise` (N, noise_numbers)."""
    constants, density = networks["constants"], networks["totals"]
    layers = constants.mesh.layers
    number = number_of_totals(layers)
    choice, one, two, presence, offset = tf.split(noise, [number, number, number, layers, 3 * OFFSETS], 1)
    terms = labels.terms(constants)
    inputs = label_inputs(terms)
    present = drawn_presence(density, inputs, constants["presence"], presence)
    normal = drawn_totals(
        density, present, defined(present), inputs, choice=choice, noise=box_muller(one, two)[0],
        share_taken=partial(share_taken, terms=terms, constants=constants),
    )  # fmt: skip
    values = from_normal(normal, terms, tf.zeros([1, number_of_budget_terms(layers)]), constants)
    drawn = Drawn(values, layers_of(values, present, labels.energy_gev)[0], labels, terms)
    drawn = sharp(drawn, [networks[part] for part in PARTS], offset, constants)
    # the budgets depend on the layers, and on where the axis is in its cells
    again = from_normal(normal, terms, drawn.budget_terms(constants), constants)
    values = tf.concat([drawn.values[:, : -len(BUDGETS)], again[:, -len(BUDGETS) :]], 1)
    return plan(values, present, labels, constants)


def drawn_presence(density: TotalsDensity, labels: Tensor, prior: Tensor, choice: Tensor) -> Tensor:
    """Which layers are not empty, (N, layers), 1 or 0, by uniform numbers `choice`; the first if none is."""
    layers = density.layers_seen

    def step(k: Tensor, missed: Tensor) -> tuple[Tensor, Tensor]:
        odds = density.presence_odds(missed, labels, prior, k[None])[0]
        empty = tf.cast(tf.gather(choice, k, axis=1) >= tf.sigmoid(odds), tf.float32)
        return k + 1, missed - empty[:, None] * tf.one_hot(k, layers)

    start = (tf.constant(0), tf.zeros_like(choice))
    present = 1 + tf.while_loop(lambda k, _: k < layers, step, start, maximum_iterations=layers)[1]
    none = tf.cast(tf.reduce_sum(present, 1, keepdims=True) == 0, tf.float32)
    return present + none * tf.one_hot(0, layers)


def drawn_totals(
    density: TotalsDensity, present: Tensor, known: Tensor, labels: Tensor, *, choice: Tensor, noise: Tensor,
    share_taken: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """v (N, D) drawn with uniform numbers `choice` and normal ones `noise`, (N, D) each; 0 where not `known`.

    `share_taken(v, k)` is the share (N,) of what reaches it that layer k takes if it is not the last.
    """
    first, to_come = density.first, ahead(present)
    later = tf.cumsum(present, 1, reverse=True, exclusive=True)

    def draw(k: Tensor, drawn: Tensor, outputs: Tensor) -> Tensor:
        weights, means, widths = (part[0] for part in mixture_of(outputs))
        value = draw_mixture(weights, means, widths, choice[:, k], noise[:, k]) * tf.gather(known, k, axis=1)
        return drawn + value[:, None] * tf.one_hot(k, density.totals)

    def of_layer(k: Tensor, drawn: Tensor, share: Tensor, left: Tensor) -> tuple[Tensor, ...]:
        drawn = draw(k, drawn, density.of_layers(drawn, Layers(present, share, to_come), labels, k[None]))
        taken = tf.where(later[:, k] > 0, share_taken(drawn, k), 1.0) * present[:, k]
        held = left * taken
        return k + 1, drawn, share + held[:, None] * tf.one_hot(k, density.layers_seen), left - held

    start = (tf.constant(0), tf.zeros_like(noise), tf.zeros_like(present), tf.ones_like(present[:, 0]))
    k, drawn, share, left = tf.while_loop(lambda k, *_: k < first, of_layer, start, maximum_iterations=first)
    told = density.told(drawn, tf.concat([share[:, :-1], left[:, None]], 1), labels)
    return tf.while_loop(
        lambda k, _: k < density.totals,
        lambda k, drawn: (k + 1, draw(k, drawn, density.of_others(drawn, told, k[None]))),
        (k, drawn),
        maximum_iterations=density.totals - first,
    )[1]


def from_normal(normal: Tensor, terms: Tensor, budget_terms: Tensor, constants: Constants) -> Tensor:
    """The totals z, (N, D), of v: the inverse of `to_normal`."""
    residual = _residuals(normal @ tf.transpose(constants["colouring"]), terms, constants["quantiles"])
    return means(terms, budget_terms, constants) + scales(terms, constants) * residual


def share_taken(normal: Tensor, number: Tensor, terms: Tensor, constants: Constants) -> Tensor:
    """The share (N,) of what reaches it that a layer but the last takes, by its `number` () and v (N, D) up to it."""
    score = tf.reduce_sum(normal * tf.gather(constants["colouring"], number), 1, keepdims=True)
    of_total = (tf.gather(constants[name], number[None], axis=-1) for name in ("mean", "scale", "quantiles"))
    mean, scale, quantiles = of_total
    value = terms @ mean + tf.exp(scale_terms(terms) @ scale) * _residuals(score, terms, quantiles)
    return tf.sigmoid(value[:, 0])


def _residuals(normal: Tensor, terms: Tensor, quantiles: Tensor) -> Tensor:
    """The residuals (N, D) whose `scores` are g, `normal` (N, D), by `quantiles` (ENERGIES, QUANTILES, D)."""
    step = 2 * QUANTILE_REACH / (QUANTILES - 1)
    place = tf.clip_by_value((normal + QUANTILE_REACH) / step, 0.0, QUANTILES - 1.0)
    left = tf.minimum(tf.floor(place), QUANTILES - 2.0)
    flat = tf.reshape(tf.transpose(quantiles, [2, 1, 0]), [-1, ENERGIES])
    start = tf.range(normal.shape[1], dtype=tf.int32) * QUANTILES + tf.cast(left, tf.int32)
    energy = interpolation(terms[:, 1], ENERGIES)[:, None]
    low, high = (tf.reduce_sum(tf.gather(flat, start + k) * energy, -1) for k in (0, 1))
    return low + (place - left) * (high - low)


def sharp(drawn: Drawn, densities: Sequence[NumberDensity], uniform: Tensor, constants: Constants) -> Drawn:
    """The showers with sharp offsets, by `uniform` numbers (N, 3 * OFFSETS)."""
    choice, one, two = (tf.reshape(numbers, [-1, len(PARTS)]) for numbers in tf.split(uniform, 3, 1))
    normal, noise = box_muller(one, two)[0], tf.zeros_like(choice)
    for part, density in enumerate(densities):
        inputs = tf.concat([given_offset(drawn.with_noise(-noise, constants), constants), noise[:, :part]], 1)
        number = draw_mixture(*density.mixture(inputs), choice[:, part], normal[:, part])
        noise += number[:, None] * tf.one_hot(part, len(PARTS))
    return drawn.with_noise(-noise, constants)
