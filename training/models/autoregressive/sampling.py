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
from training.models.autoregressive.constants import FAR_MOST, FAR_TABLE, ConstantsStore, normalised
from training.models.autoregressive.context import Plan, context, plan
from training.models.autoregressive.frame import COLOURS, SUMS, Tensor, lattice, middle
from training.models.autoregressive.networks import CellDensity, TotalsDensity, draw_mixture
from training.models.randomness import box_muller, hashed_uniform


def noise_numbers(geometry: Geometry) -> int:
    """Uniform numbers in [0, 1) that a shower takes: for its totals, its far cells, its other cells, its reflection."""
    layers = geometry.shape[2]
    return 3 * totals.number_of_totals(layers) + layers * (FAR_MOST + 1) + 3


class Sampler:
    """Draws showers of `geometry` from the densities `of_totals` and `of_cells`, of even and of odd cells.

    With a `capacity` of so many cells a shower, layer and colour all shapes are static, as XLA wants them; without it
    there are as many as there are, which is faster on a processor.
    """

    def __init__(
        self, store: ConstantsStore, of_totals: TotalsDensity, of_cells: tuple[CellDensity, CellDensity],
        geometry: Geometry, capacity: int = 0,
    ) -> None:  # fmt: skip
        self._store, self._totals, self._cells = store, of_totals, of_cells
        self._geometry, self._capacity = geometry, capacity
        self._lattice = lattice(geometry.shape)

    def showers(self, energy_gev: Tensor, theta_rad: Tensor, noise: Tensor) -> Tensor:
        """Cells (N, x, y, layer) in units of 0.02 GeV, of labels (N,) and uniform numbers (N, noise_numbers)."""
        layers = self._geometry.shape[2]
        sizes = [3 * totals.number_of_totals(layers), layers * (FAR_MOST + 1), 3]
        of_totals, far, rest = tf.split(noise, sizes, 1)
        planned = self._plan(energy_gev, frame.reflected_angle(theta_rad), of_totals)
        keys = tf.cast(rest[:, :2] * 2.0**24, tf.int32)
        drawn = self._all_layers(planned, tf.reshape(far, [-1, layers, FAR_MOST + 1]), keys)
        drawn = tf.where((rest[:, 2] < 0.5)[:, None, None, None], tf.reverse(drawn, [1]), drawn)
        return tf.where((theta_rad > math.pi / 2)[:, None, None, None], tf.reverse(drawn, [2]), drawn)

    def _plan(self, energy_gev: Tensor, reflected: Tensor, noise: Tensor) -> Plan:
        """The plans of showers whose totals are drawn with `noise` (N, 3 D)."""
        choice, one, two = tf.split(noise, 3, 1)
        labels = totals.label_terms(energy_gev, reflected, self._store)
        normal = self._totals.sample(totals.label_inputs(labels), choice, box_muller(one, two)[0])
        values = totals.from_normal(normal, labels, self._store)
        return plan(values, energy_gev, reflected, self._store, self._geometry)

    def _all_layers(self, planned: Plan, far: Tensor, keys: Tensor) -> Tensor:
        nx, ny, layers = self._geometry.shape
        showers = tf.shape(keys)[0]
        empty = tf.zeros([showers, nx + 2 * cells.MARGIN, ny, 2 * cells.MARGIN + 1])
        none = tf.zeros([showers, len(SUMS)])
        deposits = tf.TensorArray(tf.float32, layers, element_shape=[None, nx, ny])

        def step(layer: Tensor, images: Any, sums: Any, deposits: Any) -> Any:
            found, own = _Layer(self, layer, planned.at(layer), images=images, sums=sums, keys=keys).draw(far[:, layer])
            seen = cells.windows(cells.scaled(found, self._store))
            before, one, _ = sums
            return layer + 1, (seen, images[0]), (before + own, own, one), deposits.write(layer, found)

        state = (tf.constant(0), (empty, empty), (none, none, none), deposits)
        *_, deposits = tf.while_loop(lambda layer, *_: layer < layers, step, state, maximum_iterations=layers)
        return tf.transpose(deposits.stack(), [1, 2, 3, 0])


class _Layer:
    """One layer of N showers: `images` are those before it, scaled and in windows, `sums` their SUMS."""

    def __init__(
        self, sampler: Sampler, layer: Tensor, planned: Plan, *, images: tuple[Tensor, Tensor],
        sums: tuple[Tensor, Tensor, Tensor], keys: Tensor,
    ) -> None:  # fmt: skip
        self._store, self._densities = sampler._store, sampler._cells
        self._shape, self._capacity, self._lattice = sampler._geometry.shape, sampler._capacity, sampler._lattice
        self._layer, self._planned, self._images, self._sums, self._keys = layer, planned, images, sums, keys
        self._middle = tf.cast(tf.round(planned.axis), tf.int32) + [int(middle(n)) for n in self._shape[:2]]

    def draw(self, far: Tensor) -> tuple[Tensor, Tensor]:
        """Deposits (N, x, y), which sum to the layer's energy, and their SUMS (N, 12)."""
        nx, ny, _ = self._shape
        number = tf.reduce_sum(tf.cast(tf.gather(self._store["far_counts"], self._layer) < far[:, :1], tf.int32), 1)
        entry = tf.cast(far[:, 1:] * FAR_TABLE, tf.int32)
        away = tf.gather(tf.gather(self._store["far_table"], self._layer), entry)
        away = tf.where(tf.range(FAR_MOST) < number[:, None], away, -1.0)
        core = tf.gather(self._store["core"], self._layer)
        proposed = self._marked(tf.concat([away, tf.repeat(core[None], tf.shape(away)[0], axis=0)], 1))
        parity = (tf.range(nx)[:, None] + tf.range(ny)) % COLOURS
        own, even, found = tf.zeros([tf.shape(far)[0], nx, ny]), None, []
        for colour in range(COLOURS):
            beside = _beside(own > 0) if colour else None
            marked = proposed | beside if colour else proposed
            place, chosen = self._places(marked & (parity == colour))
            place, value = self._deposits(colour, place, chosen, beside=beside, own=own, even=even)
            found.append((place, value))
            if not colour:
                even = self._summed(place, value)
                own = tf.tensor_scatter_nd_add(own, place, cells.scaled(value, self._store))
        place, value = (tf.concat(parts, 0) for parts in zip(*found, strict=True))
        return self._filled(place, value)

    def _marked(self, at: Tensor) -> Tensor:
        """Which cells (N, x, y) are at places `at` (N, F) of the lattice about the axis; -1 marks none."""
        nx, ny, _ = self._shape
        step = tf.gather(tf.constant(self._lattice, tf.int32), tf.cast(tf.maximum(at, 0), tf.int32))  # (N, F, 2)
        x, y = (self._middle[:, k, None] + step[..., k] for k in (0, 1))
        inside = (at >= 0) & (x >= 0) & (x < nx) & (y >= 0) & (y < ny)
        showers = tf.shape(x)[0]
        place = tf.where(inside, (tf.range(showers)[:, None] * nx + x) * ny + y, showers * nx * ny)
        place = tf.reshape(place, [-1, 1])
        marks = tf.scatter_nd(place, tf.ones_like(place[:, 0]), [showers * nx * ny + 1])
        return tf.reshape(marks[:-1] > 0, [showers, nx, ny])

    def _places(self, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Places (R, 3), shower, x and y, of the cells in `mask` (N, x, y), and which of them are meant, (R,)."""
        if not self._capacity:
            place = tf.cast(tf.where(mask), tf.int32)
            return place, tf.ones_like(place[:, 0], tf.bool)
        _, nx, ny = mask.shape
        counted = tf.cumsum(tf.cast(tf.reshape(mask, [-1]), tf.int32))
        wanted = tf.range(1, (mask.shape[0] or tf.shape(mask)[0]) * self._capacity + 1)
        flat = tf.minimum(tf.searchsorted(counted, wanted), tf.size(counted) - 1)
        return tf.stack([flat // (nx * ny), flat // ny % nx, flat % ny], 1), wanted <= counted[-1]

    def _deposits(
        self, colour: int, place: Tensor, chosen: Tensor, *, beside: Tensor | None, own: Tensor, even: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Places (R', 3) and energies (R',) of those of the cells `place` (R, 3) that are hit."""
        nx, ny, _ = self._shape
        shower, x, y = tf.unstack(place, axis=1)
        dx, dy = self._distance(place)
        radius = tf.sqrt(dx * dx + dy * dy)
        given = context(self._planned, *self._sums, even)
        density = self._densities[colour]
        shared = density.of_layers(normalised(given, self._store, odd=bool(colour)))
        hidden = density.hidden(self._known(place, own, dx, dy, odd=bool(colour)), tf.gather(shared, shower))
        layer = tf.zeros_like(x) + self._layer
        log_odds = density.log_odds(hidden, cells.prior(self._store["odds"], layer, radius))
        about = [place[:, 1 + k] - tf.gather(self._middle[:, k], shower) + self._shape[k] // 2 for k in (0, 1)]
        wide = 2 * (ny // 2) + 1
        at = tf.clip_by_value(about[0] * wide + about[1], 0, len(self._lattice) - 1)
        proposed = tf.gather(tf.gather(self._store["chance"], self._layer), at)
        if beside is not None:
            proposed = tf.where(tf.gather_nd(beside, place), 1.0, proposed)
        number = (self._layer * nx + x) * ny + y
        accepted = hashed_uniform(tf.gather(self._keys, shower), 4 * number, 1)[:, 0]
        hit = chosen & (accepted * proposed < tf.sigmoid(log_odds))
        if not self._capacity:
            place, hidden, radius, number = (tf.boolean_mask(each, hit) for each in (place, hidden, radius, number))
            hit = tf.ones_like(number, tf.bool)
        layer = tf.zeros_like(number) + self._layer
        numbers = [hashed_uniform(tf.gather(self._keys, place[:, 0]), 4 * number + k, 1)[:, 0] for k in (1, 2, 3)]
        mixture = density.log_energy(hidden, cells.prior(self._store["log_deposit"], layer, radius))
        value = tf.exp(draw_mixture(*mixture, numbers[0], box_muller(*numbers[1:])[0]))
        value = tf.where(hit, tf.maximum(value, self._store["least"]), 0.0)
        # a deposit of nothing in the first shower, so that there is one: sums of no rows at all are not for ONNX
        more = tf.minimum(tf.shape(self._keys)[0], 1)
        return tf.pad(place, [[0, more], [0, 0]]), tf.pad(value, [[0, more]])

    def _known(self, place: Tensor, own: Tensor, dx: Tensor, dy: Tensor, *, odd: bool) -> Tensor:
        """What is known of cells `place` (R, 3), as `rows.known` gives it in training."""
        nx, ny, _ = self._shape
        known = [_around(self._images[0], place, nx, ny), _around(self._images[1], place, nx, ny)]
        known += [_around(cells.windows(own), place, nx, ny)] if odd else []
        return tf.concat([*known, cells.place(dx, dy, tf.gather(self._planned.slope, place[:, 0]))], 1)

    def _distance(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """Distances (R,) from the axis in x and y, in cells."""
        axis = tf.gather(self._planned.axis, place[:, 0])
        dx, dy = (tf.cast(place[:, 1 + k], tf.float32) - middle(self._shape[k]) - axis[:, k] for k in (0, 1))
        return dx, dy

    def _summed(self, place: Tensor, value: Tensor) -> Tensor:
        """SUMS (N, 12) of deposits `value` (R,) at `place` (R, 3)."""
        added = frame.terms(value, *self._distance(place), self._layer, self._store)
        return tf.math.unsorted_segment_sum(added, place[:, 0], tf.shape(self._keys)[0])

    def _filled(self, place: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The layer's deposits (N, x, y) and SUMS, scaled to its energy; on the axis where no cell was hit."""
        nx, ny, _ = self._shape
        showers = tf.shape(self._keys)[0]
        energy = self._planned.energy
        got = tf.math.unsorted_segment_sum(value, place[:, 0], showers)
        value *= tf.gather(tf.math.divide_no_nan(energy, got), place[:, 0])
        axis = tf.clip_by_value(self._middle, 0, [nx - 1, ny - 1])
        place = tf.concat([place, tf.concat([tf.range(showers)[:, None], axis], 1)], 0)
        value = tf.concat([value, tf.where(got > 0, 0.0, energy)], 0)
        flat = (place[:, 0] * nx + place[:, 1]) * ny + place[:, 2]
        deposits = tf.math.unsorted_segment_sum(value, flat, showers * nx * ny)
        return tf.reshape(deposits, [showers, nx, ny]), self._summed(place, value)


def _around(windows: Tensor, place: Tensor, nx: int, ny: int) -> Tensor:
    """The cells around `place` (R, 3), (R, 25), of `windows` (N, x + 4, y, 5): five gathers of five cells in a row."""
    reach = 2 * cells.MARGIN + 1
    at = (place[:, 0] * (nx + 2 * cells.MARGIN) + place[:, 1]) * ny + place[:, 2]
    rows = tf.gather(tf.reshape(windows, [-1, reach]), at[:, None] + tf.range(reach) * ny)
    return tf.reshape(rows, [-1, reach * reach])


def _beside(image: Tensor) -> Tensor:
    """The cells (N, x, y) that share a side with one that is marked in `image` (N, x, y)."""
    wide = tf.pad(image, [[0, 0], [1, 1], [1, 1]])
    return wide[:, :-2, 1:-1] | wide[:, 2:, 1:-1] | wide[:, 1:-1, :-2] | wide[:, 1:-1, 2:]
