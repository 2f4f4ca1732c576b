"""What is computed from the train split, once, before training: scales, the copula, expectations and priors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from calopipe.labels import NO_LABELS, LabelRange
from calopipe.showers.cells import Geometry
from training.models.autoregressive import cells, context, frame, totals
from training.models.autoregressive.copula import copula, least_squares, mean_and_scale, spectra
from training.models.autoregressive.densities import SCORES, scores
from training.models.autoregressive.frame import MEAN_TERMS, SCALE_TERMS, SUMS, Labels, number_of_terms
from training.models.autoregressive.mesh import mesh_of
from training.models.autoregressive.sampling import proposals
from training.models.base import Array, Tensor

# Added to what a layer takes of a budget before the logarithm, which the regressions predict.
_FLOOR = {"cells": 0.5, "hits": 0.5, "beyond_half": 0.01, "beyond_most": 3e-3, "xx": 0.03, "yy": 0.03}
SCOUTS = 1000  # showers that the scales are taken from
_SELDOM = 1e-7
_LABELS = ("energy_gev", "theta_rad")
_DENSITY_SHOWERS = 300  # showers in which all cells are counted, by radius
_BESIDE, _WORST = 0.25, 0.55  # see `radius_of`: how far aside an axis may be, in cells; the largest sum of two ratios


def shapes(geometry: Geometry, labels: LabelRange = NO_LABELS) -> dict[str, tuple[int, ...]]:
    """Name and shape of every constant, for showers of `geometry` with these `labels`."""
    mesh = mesh_of(geometry)
    layers, knots = mesh.layers, cells.radius_knots(mesh.reach)
    all_totals, more = totals.number_of_totals(layers), number_of_terms(labels)
    even, odd = (context.context_numbers(layers, odd=colour, more=more) for colour in (False, True))
    return {
        "depth": (),  # the depth of reference: the mean layer of the energy
        "radius_half": (), "radius_most": (),  # in cells; about half and about nine tenths of the energy lie within
        "deposit": (), "least": (),  # the median and the smallest deposit of a cell
        "log_energy": (2,), "cos_theta": (2,),  # middle and half width of the labels
        "mean": (MEAN_TERMS + more, all_totals), "scale": (SCALE_TERMS + more, all_totals),
        "quantiles": (totals.ENERGIES, SCORES, all_totals),
        "mean_of_budgets": (totals.number_of_budget_terms(layers), totals.LAST),
        "colouring": (all_totals, all_totals), "presence": (layers,),
        "blur_scale": (SCALE_TERMS + more, totals.OFFSETS), "blur_most": (totals.OFFSETS,),
        "expected": (len(totals.BUDGETS), layers, context.LAYER_TERMS + more),
        "odds": (layers, knots), "score": (layers, knots),
        "spectra": (layers, SCORES),  # logarithms of the energies of hits, at each score
        "layer_cells": (layers,),  # mean number of cells that are hit
        "even_mean": (even,), "even_scale": (even,), "odd_mean": (odd,), "odd_scale": (odd,),
        **proposals.shapes(mesh),
        **({"sin_phi": (2,)} if labels.phi_rad else {}),
    }  # fmt: skip


class ConstantsStore(keras.Model):
    """The constants, as weights that are not trained, so that they are kept with the trained ones; and the `mesh`.

    They are computed from batches of the train split, each with `cell`, `value` and labels.
    """

    def __init__(self, geometry: Geometry, labels: LabelRange) -> None:
        super().__init__(name="constants")
        self.mesh, self._with = mesh_of(geometry), labels
        self._of = {
            name: self.add_weight(
                shape, "zeros", "float64" if name == "proposal" else "float32", trainable=False, name=name
            )
            for name, shape in shapes(geometry, labels).items()
        }
        self.built = True

    def __getitem__(self, name: str) -> Tensor:
        return self._of[name].value

    def set(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self._of[name].assign(value)

    def adapt(self, batches: Iterable[Mapping[str, Tensor]], energy_gev: Any, theta_rad: Any) -> None:
        """Set all constants. `energy_gev` and `theta_rad` are the least and the largest label of the split."""
        kept = [{name: tensor.numpy() for name, tensor in batch.items()} for batch in batches]
        self.set(self._labels(energy_gev, theta_rad))
        self.set(self._scales(_some(kept, SCOUTS)))
        describe = tf.function(self._described, reduce_retracing=True, autograph=False)
        parts = [describe(batch, tf.constant(number)) for number, batch in enumerate(kept)]
        axis, sums, promised, values, present = (np.concatenate([part[k].numpy() for part in parts]) for k in range(5))
        given = {name: np.concatenate([batch[name] for batch in kept]) for name in _LABELS + self._with.names}
        labels = Labels.of(given, self._with).reflected(self.mesh)
        terms = labels.terms(self).numpy()
        known = totals.defined(tf.constant(present)).numpy() > 0
        drawn = totals.Drawn(tf.constant(values), tf.constant(promised.sum(2)), labels, tf.constant(terms))
        budget_terms = totals.budget_terms(drawn.values, drawn.energy, tf.constant(axis), self.mesh).numpy()
        self.set(copula(self._blurred(drawn), terms, known, float(np.ptp(np.log(energy_gev))), budget_terms))
        rate = np.clip(present.mean(axis=0, dtype=np.float64), _SELDOM, 1 - _SELDOM)  # never 0 or 1
        self.set({"presence": np.log(rate / (1 - rate))})
        self.set({"expected": _expectations(sums, promised.sum(2), terms)})
        self.set({"layer_cells": np.maximum(sums[..., SUMS.index("cells")].sum(2).mean(0), 1e-3)})
        hits = [tuple(tensor.numpy() for tensor in part[5:]) for part in parts]
        self.set({"spectra": spectra([(layer, logs) for layer, _, logs in hits], self.mesh.layers)})
        self.set(self._priors(hits, axis))
        self.set(self._contexts(sums, promised, values, present, labels))

    def _labels(self, energy_gev: Any, theta_rad: Any) -> dict[str, Any]:
        """Middle and half width of log E, and of the cosine and the sine of the reflected angles."""
        cosines = np.abs(np.cos(theta_rad))
        if theta_rad[0] <= np.pi / 2 <= theta_rad[1]:
            cosines = np.array([0.0, cosines.max()])
        ends_of = {"log_energy": np.log(energy_gev), "cos_theta": cosines}
        if self._with.phi_rad:
            low, high = self._with.phi_rad
            if self.mesh.folds:
                low, high = (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
            ends_of["sin_phi"] = np.sin([low, high])
        return {name: [ends.mean(), max(float(np.ptp(ends)) / 2, 1e-3)] for name, ends in ends_of.items()}

    def _blurred(self, drawn: totals.Drawn) -> Array:
        """The totals (showers, D) with blurred offsets. Sets the constant by which they are blurred."""
        values, terms = (tensor.numpy().astype(np.float64) for tensor in (drawn.values, drawn.terms))
        offsets = values[:, self.mesh.layers :][:, : totals.OFFSETS]
        self.set({"blur_scale": np.stack([mean_and_scale(offset, terms)[1] for offset in offsets.T], 1)})
        noise = tf.constant(np.random.default_rng(0).normal(size=offsets.shape), tf.float32)
        return drawn.with_noise(noise, self).values.numpy()

    def _scales(self, scouts: dict[str, Array]) -> dict[str, Any]:
        """The radii and the median deposit. Sets the depth of reference, by which the axis is fixed, and two others."""
        mesh = self.mesh
        value = scouts["value"].reshape(-1)
        depth = mesh.depth[scouts["cell"].reshape(-1) % mesh.layers]
        seen = value > 0
        middle = np.average(depth[seen], weights=value[seen])
        self.set({"depth": middle, "least": value[seen].min()})
        cell, energy = (tf.constant(scouts[name]) for name in ("cell", "value"))
        hits, *_ = frame.reflect(cell, energy, Labels.of(scouts, self._with), self)
        dx, dy, ring = tf.unstack(hits.away, axis=-1)
        radius = tf.sqrt(dx**2 + dy**2 + ring**2).numpy().reshape(-1)
        away = np.sqrt(np.average(np.square(depth[seen] - middle), weights=value[seen]))
        across = np.full(2, mesh.reach, np.float32)  # in rings; else the size of the cells at this depth
        if mesh.folds:
            across = 1 / mesh.per_unit[np.abs(mesh.depth - float(middle)).argmin()]
        most = totals.BLUR * np.stack([across, across / max(float(away), 1.0)], 1).reshape(-1)
        self.set({"blur_most": most})
        return {
            "radius_half": radius_of(0.5, radius, value),
            "radius_most": radius_of(0.9, radius, value),
            "deposit": np.median(value[seen]),
        }

    def _described(self, batch: Mapping[str, Tensor], number: Tensor) -> tuple[Tensor, ...]:
        noise = partial(tf.random.stateless_normal, seed=[number, 0])
        hits, *found = totals.described(batch, Labels.of(batch, self._with), noise, self)
        seen = hits.value > 0
        dx, dy, ring = tf.unstack(hits.away, axis=-1)
        *_, radius = self.mesh.seen(dx, dy, ring, hits.layer)
        return *found, *(tf.boolean_mask(each, seen) for each in (hits.layer, radius, tf.math.log(hits.value)))

    def _priors(self, hits: list[tuple[Array, ...]], axis: Array) -> dict[str, Any]:
        """By layer and radius, the log odds of a hit and the mean score; and the constants of proposals."""
        mesh = self.mesh
        layers, knots = mesh.layers, cells.radius_knots(mesh.reach)
        hit, score = np.zeros((2, layers * knots))
        for layers_of, radius, log_energy in hits:
            _spread(hit, layers_of, radius, knots, np.ones_like(radius))
            own = scores(np.exp(log_energy), layers_of, self["spectra"]).numpy()
            _spread(score, layers_of, radius, knots, own)
        every = np.zeros(layers * knots)
        showers = np.linspace(0, len(axis) - 1, min(len(axis), _DENSITY_SHOWERS)).astype(int)
        for layer in range(layers):
            x, y, ring = (table[layer][mesh.exists[layer]] for table in (mesh.x, mesh.y, mesh.ring))
            dx, dy = x - axis[showers, layer, :1], y - axis[showers, layer, 1:]
            which = np.full(dx.shape, layer)
            radius = np.asarray(mesh.seen(dx, dy, np.broadcast_to(ring, dx.shape), which)[2])
            _spread(every, which.reshape(-1), radius.reshape(-1), knots, np.ones(radius.size))
        every *= len(axis) / len(showers)
        share = np.clip((hit + 0.1) / np.maximum(every, 1.0), 1e-6, 0.995)
        mean = np.average(score[hit > 0] / hit[hit > 0], weights=hit[hit > 0])
        usual = (score + 5 * mean) / (hit + 5)
        share = share.reshape(layers, knots)
        met = mesh.met(tf.constant(axis), tf.range(layers)).numpy()
        return {
            "odds": np.log(share / (1 - share)),
            "score": usual.reshape(layers, knots),
            **proposals.tables(share, mesh, met, max(len(self._with.particle), 1)),
        }

    def _contexts(self, sums: Array, promised: Array, values: Array, present: Array, labels: Labels) -> dict[str, Any]:
        """Mean and width of the contexts over all layers of some showers."""
        showers = np.linspace(0, len(values) - 1, min(len(values), 2 * SCOUTS)).astype(int)
        some = (tf.constant(values[showers]), tf.constant(present[showers]), labels[showers])
        planned = context.plan(*some, self)
        none = tf.zeros([1, len(SUMS)])
        scales: dict[str, Any] = {}
        for name in ("even", "odd"):
            of_colours = tf.constant(sums[showers]), tf.constant(promised[showers])
            contexts = context.contexts_of(planned, *of_colours, none, odd=name == "odd").numpy()
            scales |= {f"{name}_mean": contexts.mean(0), f"{name}_scale": contexts.std(0) + 1e-3}
        return scales


def radius_of(share: float, radius: Array, energy: Array) -> float:
    """The radius, in cells, of a circle about the axis that holds this `share` of the `energy` (hits,), or one near it.

    Where cells are in rings, or a beam stays in one cell, most of the energy is at a few distances. With a radius at
    such a distance the place of the axis would decide how much lies beyond, and not the shower. So another radius is
    taken, at most a cell away, if the sum of two ratios is less than `_WORST`: of the energy beside it to that beside
    the first radius, and of the error of the share beyond it to that share.
    """
    order = np.argsort(radius, kind="stable")
    radii, inside = radius[order], np.cumsum(energy[order]) / energy.sum()

    def within(ends: Array) -> Array:
        return np.interp(ends, radii, inside, left=0.0)

    def beside(middle: Array) -> Array:
        return within(middle + _BESIDE) - within(middle - _BESIDE)

    found = radii[np.searchsorted(inside, share)]
    others = found + np.linspace(-1, 1, 41)
    faults = beside(others) / beside(found) + np.abs(within(others) - share) / (1 - share)
    return float(others[faults.argmin()] if faults.min() < _WORST else found)


def _some(batches: list[dict[str, Array]], number: int) -> dict[str, Array]:
    """About `number` showers, evenly from all batches; their lists of hits are padded to one length."""
    step = max(1, sum(len(batch["energy_gev"]) for batch in batches) // number)
    longest = max(batch["cell"].shape[1] for batch in batches)
    first, parts = 0, []
    for batch in batches:
        chosen = {name: array[first::step] for name, array in batch.items()}
        first = (first - len(batch["energy_gev"])) % step
        for name, filler in (("cell", -1), ("value", 0)):
            missing = longest - batch[name].shape[1]
            chosen[name] = np.pad(chosen[name], ((0, 0), (0, missing)), constant_values=filler)
        parts.append(chosen)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _expectations(sums: Array, energy: Array, labels: Array) -> Array:
    """Coefficients (6, layers, 8) for the log of what each layer takes of each budget; `energy` is what is promised."""
    layer_sums = sums.sum(axis=2, dtype=np.float64)
    terms = context.layer_terms(tf.constant(energy), tf.constant(labels)).numpy().astype(np.float64)
    layers = energy.shape[1]
    coefficients = np.empty((len(totals.BUDGETS), layers, terms.shape[-1]))
    for number, name in enumerate(totals.BUDGETS):
        amount = layer_sums[..., SUMS.index(name)]
        unit = np.ones_like(energy) if name in totals.COUNTED else np.maximum(energy, 1e-3)
        logs = np.log(amount / unit + _FLOOR[name])
        for layer in range(layers):
            coefficients[number, layer] = least_squares(terms[:, layer], logs[:, layer])
            predicted = np.exp(terms[:, layer] @ coefficients[number, layer]) * unit[:, layer]
            coefficients[number, layer, 0] += np.log(max(amount[:, layer].sum(), 1e-6) / predicted.sum())
    return coefficients


def _spread(into: Array, layer: Array, radius: Array, knots: int, weight: Array) -> None:
    """Add `weight` to the two knots beside each radius, divided as the weights of linear interpolation."""
    place = np.minimum(cells.knot(radius), knots - 1.001)
    left = place.astype(int)
    for knot, share in ((left, 1 - (place - left)), (left + 1, place - left)):
        into += np.bincount(layer * knots + knot, weight * share, len(into))
