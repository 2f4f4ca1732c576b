"""Showers drawn cell by cell: layer after layer, in each the even cells and then the odd ones.

Of the thousands of cells of a layer about a hundred are looked at: those about the axis, odd ones beside an even hit,
and a few anywhere, each of the last proposed with a known chance that its own is divided by. That biases nothing as
long as the chance of the proposal is the larger.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from calopipe.showers.cells import Geometry
from training.models.autoregressive import cells, frame, totals
from training.models.autoregressive.constants import FAR_MOST, ConstantsStore, normalised
from training.models.autoregressive.context import SHARE_REACH, Plan, context, plan, with_share
from training.models.autoregressive.frame import SUMS
from training.models.autoregressive.labels import More
from training.models.autoregressive.mesh import AROUND, Tensor, mesh_of
from training.models.autoregressive.networks import CellDensity, ShareDensity, TotalsDensity, draw_mixture
from training.models.autoregressive.shared_energy import fitting, scaled, stretched
from training.models.randomness import box_muller, hashed_uniform


def noise_numbers(geometry: Geometry) -> int:
    """Uniform numbers in [0, 1) that a shower takes: for its totals, its far cells, its other cells, its reflection."""
    layers = geometry.shape[2]
    return totals.noise_numbers(layers) + layers * (FAR_MOST + 1) + 3


class Sampler:
    """Draws showers of `geometry` from the `densities` of totals, of shares, of even and of odd cells.

    With a `capacity` of so many cells a shower, layer and colour all shapes are static, as XLA wants them; without it
    there are as many as there are, which is faster on a processor.
    """

    def __init__(
        self, store: ConstantsStore, densities: tuple[TotalsDensity, ShareDensity, CellDensity, CellDensity],
        geometry: Geometry, capacity: int = 0,
    ) -> None:  # fmt: skip
        self._store, (self._totals, self._share, *self._cells) = store, densities
        self._geometry, self._capacity = geometry, capacity
        self._mesh = mesh_of(geometry)

    def showers(self, energy_gev: Tensor, theta_rad: Tensor, noise: Tensor, more: More | None = None) -> Tensor:
        """Cells (N, x, y, layer) in units of 0.02 GeV, of labels (N,) and uniform numbers (N, noise_numbers)."""
        more = more or More()
        layers = self._geometry.shape[2]
        sizes = [totals.noise_numbers(layers), layers * (FAR_MOST + 1), 3]
        of_totals, far, rest = tf.split(noise, sizes, 1)
        planned = self._plan(energy_gev, frame.reflected_angle(theta_rad), of_totals, more.reflected(self._geometry))
        keys = tf.cast(rest[:, :2] * 2.0**24, tf.int32)
        turned = tf.stack([more.left(rest[:, 2] < 0.5), theta_rad > math.pi / 2], 1)
        return self._all_layers(planned, tf.reshape(far, [-1, layers, FAR_MOST + 1]), keys, turned)

    def _plan(self, energy_gev: Tensor, reflected: Tensor, noise: Tensor, more: More) -> Plan:
        """The plans of showers whose totals are drawn with `noise` (N, 3 D + layers)."""
        layers, number = self._geometry.shape[2], totals.number_of_totals(self._geometry.shape[2])
        choice, one, two, presence = tf.split(noise, [number, number, number, layers], 1)
        labels = totals.label_terms(energy_gev, reflected, self._store, more)
        inputs = totals.label_inputs(labels)
        there = self._totals.sample_presence(inputs, self._store["presence"], presence)
        normal = self._totals.sample(there, totals.defined(there), inputs, choice, box_muller(one, two)[0])
        values = totals.from_normal(normal, labels, self._store)
        return plan((values, there), energy_gev, reflected, self._store, self._geometry, more=more)

    def _all_layers(self, planned: Plan, far: Tensor, keys: Tensor, turned: Tensor) -> Tensor:
        """Showers; those `turned` (N, 2) are reflected in x and in y."""
        mesh, showers = self._mesh, tf.shape(keys)[0]
        empty = tf.zeros([showers, mesh.places + 1])
        none = tf.zeros([showers, len(SUMS)])
        deposits = tf.TensorArray(tf.float32, mesh.layers, element_shape=[None, mesh.places])

        def step(layer: Tensor, seen: Any, sums: Any, deposits: Any) -> Any:
            drawing = _Layer(self, layer, planned.at(layer), images=seen, sums=sums, keys=keys)
            cell, value, own = drawing.draw(far[:, layer])
            image = tf.pad(drawing.image(cell, cells.scaled(value, self._store)), [[0, 0], [0, 1]])
            before, one, _ = sums
            written = deposits.write(layer, drawing.image(drawing.turned(cell, turned), value))
            return layer + 1, (image, seen[0]), (before + own, own, one), written

        state = (tf.constant(0), (empty, empty), (none, none, none), deposits)
        *_, deposits = tf.while_loop(lambda layer, *_: layer < mesh.layers, step, state, maximum_iterations=mesh.layers)
        return tf.reshape(tf.transpose(deposits.stack(), [1, 2, 0]), [showers, *self._geometry.shape])


# How near to its end the logit of a share counts as nothing, or all.
_ALL = 0.1
_DRAWS = 8  # of the hits of a colour in a layer, one of which is kept


def _rows(mask: Tensor, more: Tensor, *columns: Tensor) -> list[Tensor]:
    """The rows of each of `columns` that `mask` (R,) selects, and so many `more` of zeros."""
    found = (tf.boolean_mask(each, mask) for each in columns)
    return [tf.pad(each, [[0, more], *[[0, 0]] * (each.shape.rank - 1)]) for each in found]


class _Layer:
    """One layer of N showers: `images` are those before it, scaled, with an empty cell, `sums` their SUMS."""

    def __init__(
        self, sampler: Sampler, layer: Tensor, planned: Plan, *, images: tuple[Tensor, Tensor],
        sums: tuple[Tensor, Tensor, Tensor], keys: Tensor,
    ) -> None:  # fmt: skip
        self._store, self._share, self._densities = sampler._store, sampler._share, sampler._cells
        self._mesh, self._capacity = sampler._mesh, sampler._capacity
        self._layer, self._planned, self._images, self._sums, self._keys = layer, planned, images, sums, keys
        self._met = self._mesh.met(planned.axis, layer)
        # where the lattice begins
        self._corner = self._met + self._mesh.start

    def draw(self, far: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Cells (R, 2), shower and place; their deposits (R,), which sum to about the layer's energy; SUMS (N, 12)."""
        mesh = self._mesh
        number = tf.reduce_sum(tf.cast(tf.gather(self._store["far_counts"], self._layer) < far[:, :1], tf.int32), 1)
        entry = tf.cast(far[:, 1:] * self._store["far_table"].shape[1], tf.int32)
        away = tf.gather(tf.gather(self._store["far_table"], self._layer), entry)
        away = tf.where(tf.range(FAR_MOST) < number[:, None], away, -1.0)
        core = tf.gather(self._store["core"], self._layer)
        proposed = self._marked(tf.concat([away, tf.repeat(core[None], tf.shape(away)[0], axis=0)], 1))
        parity = tf.constant(mesh.parity)
        given = context(self._planned, *self._sums, None)
        logit = self._drawn_share(given)
        own = tf.zeros([tf.shape(far)[0], mesh.places + 1])
        share = tf.where(tf.abs(logit) < SHARE_REACH - _ALL, tf.sigmoid(logit), tf.cast(logit > 0, tf.float32))
        cell, value = self._deposits(
            0, *self._chosen(proposed & (parity == 0)), beside=tf.zeros_like(proposed), own=own,
            given=with_share(given, logit, self._planned.energy), energy=share * self._planned.energy,
        )  # fmt: skip
        even = self._summed(cell, value)
        own = tf.tensor_scatter_nd_add(own, cell, cells.scaled(value, self._store))
        beside = self._beside(cell, value)
        left = tf.maximum(self._planned.energy - frame.column(even, "energy"), 0.0)
        odd = self._deposits(
            1, *self._chosen((proposed | beside) & (parity == 1)), beside=beside, own=own,
            given=context(self._planned, *self._sums, even), energy=left,
        )  # fmt: skip
        return self._filled(tf.concat([cell, odd[0]], 0), tf.concat([value, odd[1]], 0))

    def _drawn_share(self, given: Tensor) -> Tensor:
        """The logit (N,) of the share of the layer's energy that its even cells are to hold."""
        numbers = [self._random(self._keys, self._counter(0, k))[:, 0] for k in range(3)]
        mixture = self._share.mixture(normalised(given, self._store, odd=False))
        return draw_mixture(*mixture, numbers[0], box_muller(*numbers[1:])[0])

    def _marked(self, at: Tensor) -> Tensor:
        """Which cells (N, places) are at places `at` (N, F) of the lattice about the axis; -1 marks none."""
        mesh, wide = self._mesh, self._mesh.lattice_shape[1]
        step = tf.cast(tf.maximum(at, 0), tf.int32)
        x, y = self._corner[:, :1] + step // wide, self._corner[:, 1:] + step % wide
        inside = (at >= 0) & mesh.inside(x, y, self._layer)
        return self._marks(tf.where(inside, mesh.place(x, y), mesh.places))

    def _marks(self, place: Tensor) -> Tensor:
        """Which cells (N, places) are among `place` (N, F), which is `places` for none."""
        showers, wide = tf.shape(self._keys)[0], self._mesh.places + 1
        flat = tf.reshape(tf.range(showers)[:, None] * wide + place, [-1, 1])
        marks = tf.scatter_nd(flat, tf.ones_like(flat[:, 0]), [showers * wide])
        return tf.reshape(marks > 0, [showers, wide])[:, :-1]

    def _beside(self, cell: Tensor, value: Tensor) -> Tensor:
        """The cells (N, places) that share a side with one of `cell` (R, 2) whose `value` (R,) is not zero."""
        mesh, showers = self._mesh, tf.shape(self._keys)[0]
        sides = mesh.neighbours(mesh.beside, tf.zeros_like(cell[:, 1]) + self._layer, cell[:, 1])
        sides = tf.where(value[:, None] > 0, sides, mesh.places)
        flat = tf.reshape(cell[:, :1] * (mesh.places + 1) + sides, [-1, 1])
        marks = tf.scatter_nd(flat, tf.ones_like(flat[:, 0]), [showers * (mesh.places + 1)])
        return tf.reshape(marks > 0, [showers, mesh.places + 1])[:, :-1]

    def _chosen(self, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Cells (R, 2), shower and place, of the cells in `mask` (N, places), and which of them are meant, (R,)."""
        if not self._capacity:
            cell = tf.cast(tf.where(mask), tf.int32)
            return cell, tf.ones_like(cell[:, 0], tf.bool)
        places = self._mesh.places
        counted = tf.cumsum(tf.cast(tf.reshape(mask, [-1]), tf.int32))
        wanted = tf.range(1, (mask.shape[0] or tf.shape(mask)[0]) * self._capacity + 1)
        flat = tf.minimum(tf.searchsorted(counted, wanted), tf.size(counted) - 1)
        return tf.stack([flat // places, flat % places], 1), wanted <= counted[-1]

    def _deposits(
        self, colour: int, cell: Tensor, chosen: Tensor, *, beside: Tensor, own: Tensor, given: Tensor, energy: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Cells (R', 2) and deposits (R',) of those of the cells `cell` (R, 2) that are hit; contexts are `given`.

        The deposits of a shower sum to the `energy` (N,) that the cells are to hold together, unless none is hit.
        """
        (shower, place), least = (cell[:, 0], cell[:, 1]), self._store["least"]
        dx, dy, ring = self._distance(cell)
        radius = tf.sqrt(dx * dx + dy * dy + ring * ring)
        density = self._densities[colour]
        shared = density.of_layers(normalised(given, self._store, odd=bool(colour)))
        known = self._known(cell, own, (dx, dy, radius), odd=bool(colour))
        hidden = density.hidden(known, tf.gather(shared, shower))
        layer = tf.zeros_like(place) + self._layer
        log_odds = density.log_odds(hidden, cells.prior(self._store["odds"], layer, radius))
        proposed = tf.where(tf.gather_nd(beside, cell), 1.0, self._chance(cell))
        number = self._layer * self._mesh.places + place
        accepted = self._random(tf.gather(self._keys, shower), 4 * number)
        hit = chosen[:, None] & (accepted * proposed[:, None] < tf.sigmoid(log_odds)[:, None])  # (R, _DRAWS)
        # a row of nothing in the first shower, so that there is one: sums of no rows at all are not for ONNX
        more = tf.minimum(tf.shape(self._keys)[0], 1)
        if not self._capacity:
            several = tf.reduce_any(hit, 1)
            cell, hidden, radius, number, hit = _rows(several, more, cell, hidden, radius, number, hit)
        layer = tf.zeros_like(number) + self._layer
        weights, means, widths = density.log_energy(hidden, cells.prior(self._store["log_deposit"], layer, radius))
        mean = tf.reduce_sum(tf.exp(weights + means + 0.5 * tf.exp(2 * widths)), 1)
        expected, hits = (
            tf.math.unsorted_segment_sum(tf.where(hit, each, 0.0), cell[:, 0], tf.size(energy))
            for each in (mean[:, None], 1.0)
        )
        kept = fitting(expected, hits, energy, least, self._random(self._keys, self._counter(1 + colour, 3)))
        hit = tf.gather(hit, tf.gather(kept, cell[:, 0]), batch_dims=1)
        if not self._capacity:
            columns = (cell, mean, number, hit, weights, means, widths)
            cell, mean, number, hit, weights, means, widths = _rows(hit, more, *columns)
        numbers = [self._random(tf.gather(self._keys, cell[:, 0]), 4 * number + k)[:, 0] for k in (1, 2, 3)]
        value = tf.exp(draw_mixture(weights, means, widths, numbers[0], box_muller(*numbers[1:])[0]))
        value = tf.where(hit, tf.maximum(value, least), 0.0)
        return cell, scaled(stretched(value, mean, cell[:, 0], energy, least), cell[:, 0], energy, least)

    def _counter(self, kind: int, number: int) -> Tensor:
        """The counter (N,) of random numbers of this `kind` for the layer as a whole; those of cells are below."""
        counter = 4 * (self._mesh.layers * (self._mesh.places + kind) + self._layer) + number
        return tf.zeros_like(self._keys[:, 0]) + counter

    @staticmethod
    def _random(keys: Tensor, counters: Tensor) -> Tensor:
        """Uniform numbers (R, _DRAWS), a function of `keys` (R, 2) and `counters` (R,)."""
        return hashed_uniform(keys, counters, _DRAWS)

    def _chance(self, cell: Tensor) -> Tensor:
        """With which chance (R,) each cell was proposed."""
        mesh = self._mesh
        x, y = (each - tf.gather(self._corner[:, k], cell[:, 0]) for k, each in enumerate(mesh.indices(cell[:, 1])))
        at = tf.clip_by_value(x * mesh.lattice_shape[1] + y, 0, mesh.lattice_shape[0] * mesh.lattice_shape[1] - 1)
        return tf.gather(tf.gather(self._store["chance"], self._layer), at)

    def _known(self, cell: Tensor, own: Tensor, distance: tuple[Tensor, Tensor, Tensor], *, odd: bool) -> Tensor:
        """What is known of cells `cell` (R, 2), as `rows.known` gives it in training."""
        mesh, (shower, place) = self._mesh, (cell[:, 0], cell[:, 1])
        layer, number = tf.zeros_like(place) + self._layer, len(AROUND)
        at = mesh.neighbours(mesh.around, layer, place) + shower[:, None] * (mesh.places + 1)
        images = (*self._images, own * 1.0) if odd else self._images
        parts = (at[:, number : 2 * number], at[:, 2 * number :], at[:, :number])
        known = [tf.gather(tf.reshape(image, [-1]), part) for image, part in zip(images, parts, strict=False)]
        if odd:
            known[2] *= mesh.neighbours(mesh.other_colour, layer, place)
        slope = tf.gather(self._planned.slope, shower)
        return tf.concat([*known, cells.place(*distance, slope, mesh.of(mesh.log_area, layer, place))], 1)

    def _distance(self, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Distances (R,) from the axis in x and y, and the ring's radius, in cells."""
        mesh, axis = self._mesh, tf.gather(self._planned.axis, cell[:, 0])
        x, y, ring = (mesh.of(table, self._layer, cell[:, 1]) for table in (mesh.x, mesh.y, mesh.ring))
        return x - axis[:, 0], y - axis[:, 1], ring

    def _summed(self, cell: Tensor, value: Tensor) -> Tensor:
        """SUMS (N, 12) of deposits `value` (R,) in `cell` (R, 2)."""
        depth = tf.gather(tf.constant(self._mesh.depth), self._layer)
        added = frame.terms(value, self._distance(cell), depth, self._store)
        return tf.math.unsorted_segment_sum(added, cell[:, 0], tf.shape(self._keys)[0])

    def image(self, cell: Tensor, value: Tensor) -> Tensor:
        """The layer (N, places) of deposits `value` (R,) in `cell` (R, 2), each of which comes once."""
        places, showers = self._mesh.places, tf.shape(self._keys)[0]
        found = tf.math.unsorted_segment_sum(value, cell[:, 0] * places + cell[:, 1], showers * places)
        return tf.reshape(found, [showers, places])

    def turned(self, cell: Tensor, turned: Tensor) -> Tensor:
        """The cells (R, 2) of showers of which those `turned` (N, 2) are reflected in x, in y."""
        shower, place = cell[:, 0], cell[:, 1]
        for axis in (0, 1):
            mirrored = self._mesh.of(self._mesh.mirror[axis], self._layer, place)
            place = tf.where(tf.gather(turned[:, axis], shower), mirrored, place)
        return tf.stack([shower, place], 1)

    def _filled(self, cell: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The deposits scaled to the layer's energy, on the axis where no cell was hit, and their SUMS."""
        mesh, showers = self._mesh, tf.shape(self._keys)[0]
        energy = self._planned.energy
        value = scaled(value, cell[:, 0], energy, self._store["least"])
        got = tf.math.unsorted_segment_sum(value, cell[:, 0], showers)
        axis = mesh.clipped(self._met, self._layer)
        cell = tf.concat([cell, tf.stack([tf.range(showers), axis], 1)], 0)
        value = tf.concat([value, tf.where(got > 0, 0.0, energy)], 0)
        return cell, value, self._summed(cell, value)
