"""The model as the engine knows it: its phases are the likelihoods of the totals and of the cells of either colour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import keras
import tensorflow as tf

from calopipe.labels import LabelRange
from calopipe.showers.cells import REFERENCE_UNIT_GEV, Geometry
from preprocessing.manifest import Manifest
from preprocessing.reading import decode_hits
from training.models.autoregressive import cells, frame, totals
from training.models.autoregressive.constants import Adaptation, ConstantsStore
from training.models.autoregressive.context import (
    COUNT_NUMBERS,
    SHARE_NUMBERS,
    context_numbers,
    contexts_of,
    normalised,
    plan,
)
from training.models.autoregressive.densities import (
    CASES,
    CellDensity,
    NumberDensity,
    log_count,
    log_mixture,
    log_share,
    log_shares,
    share_logit,
)
from training.models.autoregressive.frame import SUMS, More, number_of_terms, particle_slopes
from training.models.autoregressive.mesh import Tensor, mesh_of
from training.models.autoregressive.sampling.arrays import arrays
from training.models.autoregressive.sampling.layer import Densities
from training.models.autoregressive.sampling.sampler import Sampler, noise_numbers
from training.models.autoregressive.totals_density import TotalsDensity
from training.models.base import Array, Batch, Losses, Phase
from training.models.randomness import Draws, NoiseDraws
from training.models.showers import NOISE, ShowerModel

_COLOURS = ("even", "odd")
# How far off the promises are in training, so that the last layers of a shower need not balance its books to the last
# cell: of a budget in units of its scale; of the energy's mean distance from the axis, in cells, and of that times the
# depth, in cells times layers.
_BUDGET_NOISE, _AXIS_NOISE, _SLOPE_NOISE = 0.3, 0.01, 0.05
# Weight decay at a thousand showers, by network: where a shower has few numbers, they are soon known by heart. It falls
# with the number of showers, which from 500 on decides.
_DECAY = MappingProxyType(
    {
        "totals": 1.5,
        "share": 1.5,
        "even_count": 1.5,
        "odd_count": 1.5,
        "place": 0.0,
        "slope": 0.0,
        "even": 0.5,
        "odd": 0.5,
    }
)
_DECAY_FALLS = 1.4
HITS_A_SHOWER, EMPTY_A_SHOWER = 256, 320  # cells of each colour that a step looks at
# Cells of a colour that are looked at in a layer of a shower on an accelerator, whose shapes are static: three times as
# many as the busiest layers of 150 GeV electrons ask for.
_CAPACITY = 192
_MIXTURE_OF_TOTALS, _MIXTURE_OF_DEPOSITS = 4, 6


class Autoregressive(ShowerModel):
    """Showers by likelihood: of their totals, and of which cells are hit, with which energy.

    The losses are -log p in nats a shower; those of the cells are estimated from some of them.
    """

    weights: Mapping[str, float] = MappingProxyType(
        {"totals": 1.0, "offsets": 1.0, "shares": 1.0, "counts": 1.0, "occupancy": 1.0, "deposits": 1.0}
    )
    evaluation_cost = 4.0
    generation_batch = 256
    averaged = ("totals", "place", "slope", "share", "even_count", "odd_count", *_COLOURS)

    def __init__(self, geometry: Geometry, *, width: int, labels: LabelRange) -> None:
        self._geometry, self._with = geometry, labels
        self.noise_numbers = noise_numbers(geometry)
        layers = geometry.shape[2]
        self._store = ConstantsStore(geometry, labels)
        more = number_of_terms(labels)
        self._totals = TotalsDensity(
            totals.number_of_totals(layers), layers, frame.LABEL_INPUTS + more, width=24, components=_MIXTURE_OF_TOTALS
        )
        inputs = totals.number_of_inputs(layers, frame.LABEL_INPUTS + more)
        self._place, self._slope = (
            NumberDensity(name, inputs + extra, width=32, components=_MIXTURE_OF_DEPOSITS)
            for name, extra in (("place", 0), ("slope", 1))
        )
        contexts = context_numbers(layers, odd=False, more=more) - SHARE_NUMBERS - COUNT_NUMBERS + cells.MET_INPUTS
        self._share = NumberDensity("share", contexts, width=width, components=_MIXTURE_OF_DEPOSITS, cases=CASES)
        even, odd = (
            CellDensity(
                name, neighbours=inputs, contexts=context_numbers(layers, odd=name == "odd", more=more),
                width=width, depth=2, components=_MIXTURE_OF_DEPOSITS,
            )
            for name, inputs in zip(_COLOURS, (cells.EVEN_INPUTS, cells.ODD_INPUTS), strict=True)
        )  # fmt: skip
        self._cells = (even, odd)
        even_count, odd_count = (
            NumberDensity(
                f"{name}_count",
                context_numbers(layers, odd=name == "odd", more=more) - COUNT_NUMBERS,
                width=width,
                components=_MIXTURE_OF_DEPOSITS,
            )
            for name in _COLOURS
        )
        self._counts = (even_count, odd_count)
        self.networks = {
            "totals": self._totals, "place": self._place, "slope": self._slope, "share": self._share,
            "even_count": even_count, "odd_count": odd_count, "even": even, "odd": odd, "constants": self._store,
        }  # fmt: skip
        of_cells = {"occupancy": 1.0, "deposits": 1.0}
        self.phases = (
            Phase("totals", "totals", self._of_totals, {"totals": 1.0}),
            Phase("place", "place", lambda view, draws: self._of_offset(0, view, draws), {"offsets": 1.0}),
            Phase("slope", "slope", lambda view, draws: self._of_offset(1, view, draws), {"offsets": 1.0}),
            Phase("share", "share", self._of_shares, {"shares": 1.0}),
            Phase("even_count", "even_count", lambda view, draws: self._of_counts(0, view, draws), {"counts": 1.0}),
            Phase("odd_count", "odd_count", lambda view, draws: self._of_counts(1, view, draws), {"counts": 1.0}),
            Phase("even", "even", lambda view, draws: self._of_cells(0, view, draws), of_cells),
            Phase("odd", "odd", lambda view, draws: self._of_cells(1, view, draws), of_cells),
        )
        accelerated = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU")
        most = max(_CAPACITY, mesh_of(geometry).places // 2) if geometry.rings else _CAPACITY
        capacity = most if accelerated else 0
        self.densities = Densities(
            self._store, self._totals, self._place, self._slope, self._share, self._counts, self._cells
        )
        self._sampler = Sampler(self.densities, geometry, capacity=capacity)

    def optimizer(self, network: str, learning_rate: Any, showers: int) -> keras.optimizers.Optimizer:
        decay = _DECAY[network] * min(1000 / showers, 2.0) ** _DECAY_FALLS
        return keras.optimizers.AdamW(learning_rate, weight_decay=decay, beta_2=0.99)

    @staticmethod
    def decode(records: Tensor, manifest: Manifest) -> Batch:
        return decode_hits(records, manifest)

    def adapt(self, batches: Iterable[Mapping[str, Tensor]], manifest: Manifest) -> None:
        ends = manifest.valid_range
        Adaptation(self._store, self._geometry, self._with).run(batches, ends["energy_gev"], ends["theta_rad"])

    def view(self, batch: Batch, draws: Draws) -> Batch:
        """The totals made normal, and the showers as the densities of the cells are given them."""
        energy, theta = batch["energy_gev"], frame.reflected_angle(batch["theta_rad"])
        more = More.of(batch, self._with)
        hits, axis = frame.reflect(
            batch["cell"], batch["value"], batch["theta_rad"], self._store, self._geometry, more=more
        )
        more = more.reflected(self._geometry)
        sums = frame.layer_sums(hits, self._store, self._geometry)
        values, present = totals.totals_of(tf.reduce_sum(sums, 2), axis, energy, REFERENCE_UNIT_GEV)
        labels = frame.label_terms(energy, theta, self._store, more)
        noise = draws.normal("blur", [tf.shape(values)[0], totals.OFFSETS])
        blurred = totals.blurred(values, labels, noise, self._store)
        layers = tf.reduce_sum(frame.column(sums, "energy"), 2)
        drawn = totals.Drawn(values, layers, theta, labels, more)
        rows_of_offsets = totals.training_rows(drawn, draws, self._store, self._geometry)
        noisy = self._off(values, labels, draws), present
        planned = plan(noisy, energy, theta, self._store, self._geometry, more=more)
        spent = self._spent_off(sums, draws)
        return {
            "normal": totals.to_normal(
                blurred, totals.defined(present), labels, drawn.phases(self._store, self._geometry), self._store
            ),
            **rows_of_offsets,
            "there": present,
            "sums": sums,
            "labels": frame.label_inputs(labels),
            "even": normalised(contexts_of(planned.flat(), sums, spent, odd=False), self._store, odd=False),
            "odd": normalised(contexts_of(planned.flat(), sums, spent, odd=True), self._store, odd=True),
            "expected": tf.reshape(planned.cells, [-1]) / len(_COLOURS),
            "axis": tf.stack([axis.x, axis.y], -1),
            "slope": axis.offset[:, 3] + particle_slopes(theta, more, self._geometry)[0],
            "planes": cells.planes(hits, self._store, self._geometry),
            "place": tf.stack([hits.x, hits.y, hits.layer], -1),
            "colour": hits.colour,
            "value": hits.value,
        }

    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Tensor]:
        view = self.view(batch, draws)
        of_cells = [self._of_cells(colour, view, draws.fold(name)) for colour, name in enumerate(_COLOURS)]
        losses = {
            **self._of_totals(view, draws),
            "offsets": sum(self._of_offset(part, view, draws)["offsets"] for part in (0, 1)),
            **self._of_shares(view, draws),
            "counts": sum(self._of_counts(colour, view, draws)["counts"] for colour in (0, 1)),
            **{name: of_cells[0][name] + of_cells[1][name] for name in ("occupancy", "deposits")},
        }
        showers = tf.shape(batch["energy_gev"])[0]
        noise = draws.uniform(NOISE, [showers, self.noise_numbers])
        return losses, self._sampler.showers(batch["energy_gev"], batch["theta_rad"], noise, More.of(batch, self._with))

    def generate(
        self,
        energy_gev: Tensor,
        theta_rad: Tensor,
        draws: Draws | NoiseDraws,
        more: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> Tensor:
        noise = draws.uniform(NOISE, (tf.shape(energy_gev)[0], self.noise_numbers))
        return self._sampler.showers(energy_gev, theta_rad, noise, More.of(more, self._with))

    def arrays(self) -> Mapping[str, Array]:
        return arrays(self.densities, self._geometry, self._with)

    def _of_offset(self, part: int, view: Batch, draws: Draws) -> Losses:  # noqa: ARG002  every phase is given them
        """-log p of the noise of the places, or of the slopes given those of the places."""
        density = (self._place, self._slope)[part]
        log_p = log_mixture(view["noise"][:, part], *density.mixture(view[f"{density.name}_given"]))
        return {"offsets": -tf.reduce_sum(tf.reshape(log_p, [-1, 2 * totals.COPIES]), 1) / totals.COPIES}

    def _off(self, values: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        """The totals with budgets that are a little off."""
        kept = values.shape[1] - len(totals.BUDGETS)
        scale = totals.scales(labels, self._store)[:, -len(totals.BUDGETS) :]
        noise = draws.normal("budgets", tf.shape(scale)) * scale * _BUDGET_NOISE
        return tf.concat([values[:, :kept], values[:, kept:] + noise], 1)

    @staticmethod
    def _spent_off(sums: Tensor, draws: Draws) -> Tensor:
        """What is added to the moments about the axis of the layers before, (N, 12), as if the axis were off."""
        energy = tf.reduce_sum(frame.column(sums, "energy"), [1, 2])
        scale = tf.constant(
            [_SLOPE_NOISE if name.endswith("_depth") else _AXIS_NOISE * (name in {"x", "y"}) for name in SUMS]
        )
        return draws.normal("axis", [tf.shape(sums)[0], len(SUMS)]) * scale * energy[:, None]

    def _of_totals(self, view: Batch, draws: Draws) -> Losses:  # noqa: ARG002  every phase is given them
        present, labels = view["there"], view["labels"]
        values = self._totals.log_density(view["normal"], present, labels) * totals.defined(present)
        presence = self._totals.log_presence(present, labels, self._store["presence"])
        return {"totals": -tf.reduce_sum(values, 1) - presence}

    def _of_shares(self, view: Batch, draws: Draws) -> Losses:  # noqa: ARG002  every phase is given them
        """-log p of the shares of the layers' energies that their even cells hold."""
        energy = frame.column(view["sums"], "energy")  # (N, layers, 2)
        layer_energy = tf.reduce_sum(energy, -1)
        logit = tf.reshape(share_logit(energy[..., 0], layer_energy), [-1])
        known, _ = cells.known(view, cells.met(view, self._geometry), self._store, self._geometry, odd=False)
        contexts = view["even"][:, : -SHARE_NUMBERS - COUNT_NUMBERS]
        log_p = log_share(logit, *self._share.cases_and_mixture(tf.concat([contexts, cells.of_met(known)], 1)))
        return {"shares": -tf.reduce_sum(tf.where(layer_energy > 0, tf.reshape(log_p, tf.shape(layer_energy)), 0.0), 1)}

    def _of_counts(self, colour: int, view: Batch, draws: Draws) -> Losses:  # noqa: ARG002  every phase is given them
        """-log p of how many cells of a colour are hit in each layer where it holds energy."""
        mixture = self._counts[colour].mixture(view[_COLOURS[colour]][:, :-COUNT_NUMBERS])
        hits = frame.column(view["sums"], "cells")[..., colour]  # (N, layers)
        log_p = log_count(tf.reshape(tf.maximum(hits, 1.0), [-1]), view["expected"], mixture)
        return {"counts": -tf.reduce_sum(tf.where(hits > 0, tf.reshape(log_p, tf.shape(hits)), 0.0), 1)}

    def _of_cells(self, colour: int, view: Batch, draws: Draws) -> Losses:
        """-log p of the cells of a colour: of whether they are hit, and of the energies of those that are."""
        density, odd = self._cells[colour], bool(colour)
        showers = tf.shape(view["value"])[0]
        static = view["value"].shape[0] or showers
        hit, value, weight = cells.some_hits(view, colour, static * HITS_A_SHOWER, draws)
        empty, weights = cells.some_empty(
            view, colour, static * EMPTY_A_SHOWER, draws, constants=self._store, geometry=self._geometry
        )
        place = tf.concat([hit, empty], 0)
        known, radius = cells.known(view, place, self._store, self._geometry, odd=odd)
        layers = self._geometry.shape[2]
        shared = density.of_layers(view[_COLOURS[colour]])
        hidden = density.hidden(known, tf.gather(shared, place[:, 0] * layers + place[:, 3]))
        odds = density.log_odds(hidden, cells.prior(self._store["odds"], place[:, 3], radius))
        hits = static * HITS_A_SHOWER
        missed = tf.concat([tf.nn.softplus(-odds[:hits]) * weight, tf.nn.softplus(odds[hits:]) * weights], 0)
        of_layer = tf.where(weight > 0, hit[:, 0] * layers + hit[:, 3], showers * layers)
        mixture = density.log_deposit(hidden[:hits], cells.prior(self._store["log_deposit"], hit[:, 3], radius[:hits]))
        shared_by = tf.math.unsorted_segment_sum(tf.ones_like(of_layer), of_layer, showers * layers + 1)[:-1]
        deposits = -log_shares(tf.math.log(value), mixture, of_layer, showers * layers)
        deposits = tf.where(shared_by > 1, deposits, 0.0) * tf.reduce_max(weight)  # one alone has all
        return {
            "occupancy": tf.math.unsorted_segment_sum(missed, place[:, 0], showers),
            "deposits": tf.reduce_sum(tf.reshape(deposits, [-1, layers]), 1),
        }
