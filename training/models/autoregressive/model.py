"""The model as the engine knows it: its phases are the likelihoods of the totals and of the cells of each colour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from calopipe.labels import LabelRange
from calopipe.showers.cells import Geometry
from preprocessing.manifest import Manifest
from training.models.autoregressive import cells, context, densities, frame, totals
from training.models.autoregressive.constants import ConstantsStore
from training.models.autoregressive.frame import SUMS, Labels, number_of_terms
from training.models.autoregressive.mesh import Mesh
from training.models.autoregressive.sampling.shower import arrays, drawn_showers, noise_numbers
from training.models.autoregressive.totals_density import TotalsDensity
from training.models.base import Array, Batch, Losses, Phase, Tensor
from training.models.precision import on_processors
from training.models.randomness import Draws, NoiseDraws
from training.models.showers import NOISE, ShowerModel

_COLOURS, _COUNTS = ("even", "odd"), ("even_count", "odd_count")
# Noise in training of the energy's mean distance from the axis, in cells, and of this distance times the depth, in
# cells times layers. With it, the last layers of a shower need not make the moments exact.
_AXIS_NOISE, _SLOPE_NOISE = 0.01, 0.05
# Weight decay at a thousand showers, by network. A network that learns few numbers of each shower soon knows them by
# heart. From 500 showers on the decay falls with their number.
_DECAY = MappingProxyType(
    {"place": 0.0, "slope": 0.0, "even": 0.5, "odd": 0.5}
    | dict.fromkeys(("totals", "share", "even_count", "odd_count"), 1.5)
)
_DECAY_FALLS = 1.4
HITS_A_SHOWER, EMPTY_A_SHOWER = 256, 320  # cells of each colour that a step looks at
# On an accelerator, where shapes are static: how many cells of a colour are looked at in a layer of a shower, three
# times as many as the busiest layers of 150 GeV electrons need.
_CAPACITY = 192
_MIXTURE_OF_TOTALS, _MIXTURE_OF_DEPOSITS = 4, 6


def _densities(mesh: Mesh, more: int, width: int) -> dict[str, Any]:
    """The densities by name, in the order in which their weights are drawn; `more` is `frame.number_of_terms`."""
    layers, labels = mesh.layers, frame.LABEL_INPUTS + more
    offset = totals.number_of_inputs(layers, labels)
    even, odd = (context.context_numbers(layers, odd=odd, more=more) for odd in (False, True))
    of_share = even - context.SHARE_NUMBERS - context.COUNT_NUMBERS + cells.MET_INPUTS + mesh.index_numbers
    number = partial(densities.NumberDensity, components=_MIXTURE_OF_DEPOSITS)
    of_cell = partial(densities.CellDensity, width=width, depth=2, components=_MIXTURE_OF_DEPOSITS)
    made = (
        TotalsDensity(totals.number_of_totals(layers), layers, labels, width=24, components=_MIXTURE_OF_TOTALS),
        number("place", offset, width=32),
        number("slope", offset + 1, width=32),
        number("share", of_share, width=width, cases=densities.CASES),
        of_cell("even", neighbours=cells.EVEN_INPUTS + mesh.index_numbers, contexts=even),
        of_cell("odd", neighbours=cells.ODD_INPUTS + mesh.index_numbers, contexts=odd),
        number("even_count", even - context.COUNT_NUMBERS, width=width),
        number("odd_count", odd - context.COUNT_NUMBERS, width=width),
    )
    return {density.name: density for density in made}


def _columns(sums: Tensor, names: Sequence[str]) -> Tensor:
    return tf.gather(sums, [SUMS.index(name) for name in names], axis=1)


class Autoregressive(ShowerModel):
    """Showers from likelihoods: of their totals, of which cells are hit, and of the energies of the hits.

    The losses are -log p in nats a shower. The losses of the cells are estimated from some of the cells.
    """

    weights: Mapping[str, float] = MappingProxyType(
        {"totals": 1.0, "offsets": 1.0, "shares": 1.0, "counts": 1.0, "occupancy": 1.0, "deposits": 1.0}
    )
    evaluation_cost = 4.0
    generation_batch = 256
    averaged = ("totals", *totals.PARTS, "share", *_COUNTS, *_COLOURS)

    def __init__(self, geometry: Geometry, *, width: int, labels: LabelRange) -> None:
        self._geometry, self._with = geometry, labels
        self.noise_numbers = noise_numbers(geometry.shape[2])
        self._store = ConstantsStore(geometry, labels)
        made = _densities(self._store.mesh, number_of_terms(labels), width)
        self.networks = {name: made[name] for name in self.averaged} | {"constants": self._store}
        of_cells = {"occupancy": 1.0, "deposits": 1.0}
        self.phases = (
            Phase("totals", "totals", self._of_totals, {"totals": 1.0}),
            *(Phase(name, name, partial(self._of_offset, name), {"offsets": 1.0}) for name in totals.PARTS),
            Phase("share", "share", self._of_shares, {"shares": 1.0}),
            *(Phase(name, name, partial(self._of_counts, name), {"counts": 1.0}) for name in _COUNTS),
            *(Phase(name, name, partial(self._of_cells, name), of_cells) for name in _COLOURS),
        )
        most = max(_CAPACITY, self._store.mesh.places // 2) if geometry.rings else _CAPACITY
        self._drawn = partial(drawn_showers, self.networks, capacity=0 if on_processors() else most)

    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:
        decay = _DECAY[network] * min(1000 / showers, 2.0) ** _DECAY_FALLS
        return keras.optimizers.AdamW(learning_rate, weight_decay=decay, beta_2=0.99)

    def adapt(self, batches: Iterable[Mapping[str, Tensor]], manifest: Manifest) -> None:
        ends = manifest.valid_range
        self._store.adapt(batches, ends["energy_gev"], ends["theta_rad"])

    def view(self, batch: Batch, draws: Draws) -> Batch:
        """What the losses are computed from, of N reflected showers of L layers and at most K hits:

        - of the totals: the totals made `normal` (N, D); `there` (N, L), which layers hold energy; `layer_share` (N,
          L), their shares of it; the `labels` (N, ...) as inputs of the density; and the rows that
          `totals.training_rows` makes for the offsets;
        - of the layers: the `sums` (N, L, 2, 16); the energies `promised` to their colours (N, L, 2); the contexts
          (N * L, ...) of the `even` and of the `odd` cells; how many hits are `expected` (N * L,) of a colour, and how
          many cells it has at `most` (N * L, 2); where the `axis` (N, L, 2) meets the layers; its `slope` (N,) in y;
        - of the cells: the `planes` (`cells.planes`), and of the hits `place` (N, K, 3), `colour` and `value` (N, K).
        """
        store, recorded = self._store, Labels.of(batch, self._with)
        noise = partial(draws.normal, "promised")
        hits, axis, sums, promised, values, present = totals.described(batch, recorded, noise, store)
        labels = recorded.reflected(store.mesh)
        terms = labels.terms(store)
        drawn = totals.Drawn(values, tf.reduce_sum(promised, 2), labels, terms)
        blurred = drawn.with_noise(draws.normal("blur", [tf.shape(values)[0], totals.OFFSETS]), store).values
        planned = context.plan(self._off(values, sums, hits, draws), present, labels, store)
        spent = self._spent_off(sums, draws)
        contexts = {
            name: context.normalised(context.contexts_of(planned, sums, promised, spent, odd=odd), store, odd=odd)
            for name, odd in (("even", False), ("odd", True))
        }
        return {
            "normal": totals.to_normal(blurred, totals.defined(present), terms, drawn.budget_terms(store), store),
            **totals.training_rows(drawn, draws, store),
            "there": present,
            "layer_share": drawn.energy / tf.reduce_sum(drawn.energy, 1, keepdims=True),
            "sums": sums,
            "promised": promised,
            "labels": frame.label_inputs(terms),
            **contexts,
            "expected": tf.reshape(planned.cells, [-1]) / len(_COLOURS),
            "most": tf.reshape(planned.most, [-1, len(_COLOURS)]),
            "axis": axis,
            "slope": planned.slope[:, 0],
            "planes": cells.planes(hits, store),
            "place": tf.stack([hits.x, hits.y, hits.layer], -1),
            "colour": hits.colour,
            "value": hits.value,
        }

    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Tensor]:
        view = self.view(batch, draws)
        losses: dict[str, Tensor] = {}
        for phase in self.phases:
            for name, loss in phase.losses(view, draws.fold(phase.name)).items():
                losses[name] = losses[name] + loss if name in losses else loss
        return losses, self.generate(batch, draws)

    def generate(self, labels: Batch, draws: Draws | NoiseDraws) -> Tensor:
        noise = draws.uniform(NOISE, (tf.shape(labels["energy_gev"])[0], self.noise_numbers))
        return self._drawn(Labels.of(labels, self._with), noise)

    def arrays(self) -> Mapping[str, Array]:
        return arrays(self.networks)

    def _of_offset(self, part: str, view: Batch, draws: Draws) -> Losses:  # noqa: ARG002  every phase is given them
        """-log p of the noise of the places; or of the noise of the slopes, given that of the places."""
        mixture = self.networks[part].mixture(view[f"{part}_given"])
        log_p = densities.log_mixture(view["noise"][:, totals.PARTS.index(part)], *mixture)
        return {"offsets": -tf.reduce_sum(tf.reshape(log_p, [-1, 2 * totals.COPIES]), 1) / totals.COPIES}

    def _off(self, values: Tensor, sums: Tensor, hits: frame.Hits, draws: Draws) -> Tensor:
        """The totals `values` with noise in their budgets and moments, as large as what one hit adds to them.

        No hit that is drawn can be taken back. So a shower of few hits cannot keep a promise better.
        """
        kept = values.shape[1] - totals.LAST
        logs, shares = totals.BUDGETS, totals.MOMENTS  # noise in units of each budget itself, and of the energy
        one = _columns(frame.of_one_hit(hits, self._store), logs + shares)
        whole = _columns(tf.reduce_sum(sums, (1, 2)), logs + ("energy",) * len(shares))
        noise = draws.normal("budgets", tf.shape(one)) * tf.math.divide_no_nan(one, whole)
        return tf.concat([values[:, :kept], values[:, kept:] + noise], 1)

    def _spent_off(self, sums: Tensor, draws: Draws) -> Tensor:
        """Noise (N, 16) for the SUMS of the layers before: on moments near the axis, as if the axis were elsewhere."""
        energy = tf.reduce_sum(frame.column(sums, "energy"), 2) @ np.sqrt(self._store.mesh.precision)  # (N, 2)
        scale = tf.concat([energy * _AXIS_NOISE, energy * _SLOPE_NOISE], 1)  # in cells of each layer
        noise = draws.normal("axis", tf.shape(scale)) * scale
        return tf.pad(noise, [[0, 0], [SUMS.index("near_x"), 0]])

    def _of_totals(self, view: Batch, draws: Draws) -> Losses:  # noqa: ARG002  every phase is given them
        density, present, labels = self.networks["totals"], view["there"], view["labels"]
        values = density.log_density(view["normal"], present, view["layer_share"], labels) * totals.defined(present)
        presence = density.log_presence(present, labels, self._store["presence"])
        return {"totals": -tf.reduce_sum(values, 1) - presence}

    def _of_shares(self, view: Batch, draws: Draws) -> Losses:  # noqa: ARG002  every phase is given them
        """-log p of the shares of the layers' energies that their even cells hold."""
        energy = view["promised"]  # (N, layers, 2)
        layer_energy = tf.reduce_sum(energy, -1)
        logit = tf.reshape(densities.share_logit(energy[..., 0], layer_energy), [-1])
        known, _ = cells.known_in(view, cells.met(view, self._store.mesh), self._store, odd=False)
        contexts = view["even"][:, : -context.SHARE_NUMBERS - context.COUNT_NUMBERS]
        given = tf.concat([contexts, cells.of_met(known)], 1)
        log_p = densities.log_share(logit, *self.networks["share"].cases_and_mixture(given))
        return {"shares": -tf.reduce_sum(tf.where(layer_energy > 0, tf.reshape(log_p, tf.shape(layer_energy)), 0.0), 1)}

    def _of_counts(self, name: str, view: Batch, draws: Draws) -> Losses:  # noqa: ARG002  every phase is given them
        """-log p of how many cells of a colour are hit in each layer where it holds energy."""
        colour = _COUNTS.index(name)
        mixture = self.networks[name].mixture(view[_COLOURS[colour]][:, : -context.COUNT_NUMBERS])
        hits = frame.column(view["sums"], "cells")[..., colour]  # (N, layers)
        count, most = tf.reshape(tf.maximum(hits, 1.0), [-1]), tf.maximum(view["most"][:, colour], 1.0)
        log_p = densities.log_count(count, view["expected"], most, mixture)
        return {"counts": -tf.reduce_sum(tf.where(hits > 0, tf.reshape(log_p, tf.shape(hits)), 0.0), 1)}

    def _of_cells(self, name: str, view: Batch, draws: Draws) -> Losses:
        """-log p of the cells of a colour: of whether they are hit, and of the energies of those that are hit."""
        density, colour = self.networks[name], _COLOURS.index(name)
        showers = tf.shape(view["value"])[0]
        static = view["value"].shape[0] or showers
        sizes = hits, empties = static * HITS_A_SHOWER, static * EMPTY_A_SHOWER
        hit, value, weight = cells.some_hits(view, colour, hits, draws)
        empty, weights = cells.some_empty(view, colour, empties, draws, self._store)
        place = tf.concat([hit, empty], 0)
        known, radius = cells.known_in(view, place, self._store, odd=bool(colour))
        layers = self._geometry.shape[2]
        shared = density.of_layers(view[name])
        hidden = density.hidden(known, tf.gather(shared, place[:, 0] * layers + place[:, 3]))
        usual_odds, usual = cells.priors(cells.prior_tables(self._store), place[:, 3], radius)
        of_hit, of_empty = tf.split(density.log_odds(hidden, usual_odds), sizes)
        missed = tf.concat([tf.nn.softplus(-of_hit) * weight, tf.nn.softplus(of_empty) * weights], 0)
        of_layer = tf.where(weight > 0, hit[:, 0] * layers + hit[:, 3], showers * layers)
        mixture = density.score(tf.split(hidden, sizes)[0], usual[:hits])
        shared_by = tf.math.unsorted_segment_sum(tf.ones_like(of_layer), of_layer, showers * layers + 1)[:-1]
        score = densities.scores(value, hit[:, 3], self._store["spectra"])
        alone = densities.log_mixture(score, *mixture)
        alone = tf.math.unsorted_segment_sum(alone, of_layer, showers * layers + 1)[:-1]
        together = densities.log_shared(score, mixture, of_layer, showers * layers)
        deposits = -tf.where(shared_by > frame.ALONE, together, alone) * tf.reduce_max(weight)
        return {
            "occupancy": tf.math.unsorted_segment_sum(missed, place[:, 0], showers),
            "deposits": tf.reduce_sum(tf.reshape(deposits, [-1, layers]), 1),
        }
