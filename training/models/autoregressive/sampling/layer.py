"""One layer of showers drawn: first the cells of the colour that the axis meets, called even, then the others.

Of the thousands of cells of a layer some hundreds are looked at: those that `proposals` proposes, and odd ones beside
an even hit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from training.models.autoregressive import cells, frame
from training.models.autoregressive.context import Plan, context, normalised, with_count, with_share
from training.models.autoregressive.densities import Mixture, draw_mixture, share_of
from training.models.autoregressive.mesh import COLOURS
from training.models.autoregressive.sampling.proposals import LayerProposals
from training.models.autoregressive.sampling.shared_energy import (
    drawn_count,
    drawn_share,
    hit,
    logistic,
    scaled,
    shares,
)
from training.models.base import Tensor
from training.models.randomness import box_muller, hashed_uniform

# Random numbers of a shower: first one for each cell, then blocks for each cell and three for each layer.
_BLOCK, _OF_LAYER = 4, 3


def _rows(mask: Tensor, more: Tensor, *columns: Tensor) -> list[Tensor]:
    """The rows of each of `columns` that `mask` (R,) selects, and so many `more` of zeros."""
    selected = (tf.boolean_mask(column, mask) for column in columns)
    return [tf.pad(column, [[0, more], *[[0, 0]] * (column.shape.rank - 1)]) for column in selected]


class LayerDrawing:
    """One layer of N showers: `images` are those before it, scaled, with an empty cell, `sums` their SUMS."""

    def __init__(
        self, networks: Mapping[str, Any], capacity: int, layer: Tensor, planned: Plan, *,
        images: tuple[Tensor, Tensor], sums: tuple[Tensor, Tensor, Tensor], keys: Tensor,
    ) -> None:  # fmt: skip
        self._networks, self._store, self._capacity = networks, networks["constants"], capacity
        mesh = self._mesh = self._store.mesh
        self._layer, self._planned, self._sums, self._keys = layer, planned, sums, keys
        second = tf.equal(layer, 1)  # to which the first layer is both layers before it
        (one, two), energies = images, [frame.column(layer_sums, "energy") for layer_sums in sums[1:]]
        self._images = one, tf.where(second, one, two)
        self._energies = tf.stack([energies[0], tf.where(second, *energies)], 1)
        self._met = mesh.met(planned.axis, layer)
        # where the lattice begins
        self._corner = self._met + mesh.start
        self._proposals = LayerProposals(
            self._store, layer, planned.cells, keys, mesh.layers * (2 * mesh.places + _OF_LAYER) * _BLOCK
        )

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """Cells (R, 2), shower and place; their deposits (R,), which sum to about the layer's energy; SUMS (N, 12).

        The deposits of a shower for whose cells there is no room are NaN.
        """
        mesh = self._mesh
        proposed = self._marked(self._proposals.places())
        colour = self._colour()
        given = context(self._planned, *self._sums, None)
        logit = self._drawn_share(given)
        energy = share_of(logit) * self._planned.energy
        even_cells, is_even, even_fits = self._chosen(proposed & (colour == 0))
        cell, value = self._deposits(
            "even", even_cells, is_even, beside=tf.zeros_like(proposed), own=None,
            given=with_share(given, logit, self._planned.energy), energy=energy,
        )  # fmt: skip
        even = self._summed(cell, value)
        own = tf.zeros([tf.shape(self._keys)[0], mesh.places + 1])
        own = tf.tensor_scatter_nd_add(own, cell, cells.scaled(value, self._store))
        beside = self._beside(cell, value)
        odd_cells, is_odd, odd_fit = self._chosen((proposed | beside) & (colour == 1))
        odd = self._deposits(
            "odd", odd_cells, is_odd, beside=beside, own=own, given=context(self._planned, *self._sums, even),
            energy=self._planned.energy - energy,
        )  # fmt: skip
        cell, value, sums = self._filled(tf.concat([cell, odd[0]], 0), tf.concat([value, odd[1]], 0))
        return cell, tf.where(tf.gather(even_fits & odd_fit, cell[:, 0]), value, np.nan), sums

    def _colour(self) -> Tensor:
        """The colours (N, places) of the cells of this layer."""
        met = tf.reduce_sum(self._met, 1, keepdims=True)
        return tf.math.floormod(tf.constant(self._mesh.parity) + met, COLOURS)

    def _drawn_share(self, given: Tensor) -> Tensor:
        """The logit (N,) of the share of the layer's energy that its even cells are to hold."""
        met = tf.stack([tf.range(tf.shape(given)[0]), self._mesh.clipped(self._met, self._layer)], 1)
        about, _ = self._known(met)
        contexts = tf.concat([normalised(given, self._store, odd=False), cells.of_met(about)], 1)
        cases, mixture = self._networks["share"].cases_and_mixture(contexts)
        return drawn_share(cases, mixture, self._of_layer(0))

    def _marked(self, at: Tensor) -> Tensor:
        """Which cells (N, places) are at places `at` (N, F) of the lattice about the axis; -1 marks none."""
        mesh, wide = self._mesh, self._mesh.lattice_shape[1]
        step = tf.cast(tf.maximum(at, 0), tf.int32)
        x, y = self._corner[:, :1] + step // wide, self._corner[:, 1:] + step % wide
        inside = (at >= 0) & mesh.inside(x, y, self._layer)
        showers = tf.range(tf.shape(self._keys)[0])[:, None]
        return self._marks(showers, tf.where(inside, mesh.place(x, y), mesh.places))

    def _marks(self, shower: Tensor, place: Tensor) -> Tensor:
        """Which cells (N, places) are among `place` (R, F) of `shower` (R, 1); `places` marks none."""
        showers, wide = tf.shape(self._keys)[0], self._mesh.places + 1
        flat = tf.reshape(shower * wide + place, [-1, 1])
        marks = tf.scatter_nd(flat, tf.ones_like(flat[:, 0]), [showers * wide])
        return tf.reshape(marks > 0, [showers, wide])[:, :-1]

    def _beside(self, cell: Tensor, value: Tensor) -> Tensor:
        """The cells (N, places) that share a side with one of `cell` (R, 2) whose `value` (R,) is not zero."""
        mesh = self._mesh
        sides = mesh.neighbours(mesh.beside, tf.zeros_like(cell[:, 1]) + self._layer, cell[:, 1])
        return self._marks(cell[:, :1], tf.where(value[:, None] > 0, sides, mesh.places))

    def _chosen(self, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Cells (R, 2), shower and place, of the cells in `mask` (N, places), and which of them are meant, (R,).

        Also which showers (N,) have all of theirs among these: with a capacity the last ones may not.
        """
        if not self._capacity:
            cell = tf.cast(tf.where(mask), tf.int32)
            return cell, tf.ones_like(cell[:, 0], tf.bool), tf.ones_like(mask[:, 0])
        places, showers = self._mesh.places, mask.shape[0] or tf.shape(mask)[0]
        flat, room = tf.reshape(mask, [-1]), showers * self._capacity
        counted = tf.cumsum(tf.cast(flat, tf.int32))
        # each cell goes to the row of its number; to search for the cell of each row costs XLA rows times cells
        row = tf.where(flat, tf.minimum(counted - 1, room), room)
        cell = tf.scatter_nd(row[:, None], tf.range(tf.size(flat)), [room + 1])[:room]
        fits = tf.reshape(counted, tf.shape(mask))[:, -1] <= room
        return tf.stack([cell // places, cell % places], 1), tf.range(room) < counted[-1], fits

    def _deposits(
        self, name: str, cell: Tensor, chosen: Tensor, *, beside: Tensor, own: Tensor | None, given: Tensor,
        energy: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Cells (R', 2) and deposits (R',) of those of the cells `cell` (R, 2) that are hit; contexts are `given`.

        The deposits of a shower sum to the `energy` (N,) that the cells are to hold together, unless none is hit.
        """
        (shower, place), least = (cell[:, 0], cell[:, 1]), self._store["least"]
        density, odd = self._networks[name], name == "odd"
        numbers = self._of_layer(2 if odd else 1)
        number = self._number(name, given, energy, numbers)
        contexts = normalised(with_count(given, number, energy), self._store, odd=odd)
        known, radius = self._known(cell, own)
        hidden = density.hidden(known, tf.gather(density.of_layers(contexts), shower))
        layer = tf.zeros_like(place) + self._layer
        log_odds = density.log_odds(hidden, cells.prior(self._store["odds"], layer, radius))
        proposed = tf.where(tf.gather_nd(beside, cell), 1.0, self._chance(cell))
        chance = tf.where(chosen, tf.minimum(logistic(log_odds) / proposed, 1.0), 0.0)
        is_hit = hit(chance, shower, number, self._of_cell(cell, 0, 1)[:, 0], numbers[:, 2])
        # a row of nothing in the first shower, so that there is one: sums of no rows at all are not for ONNX
        more = tf.minimum(tf.shape(self._keys)[0], 1)
        if not self._capacity:
            cell, hidden, radius, is_hit = _rows(is_hit, more, cell, hidden, radius, is_hit)
        layer = tf.zeros_like(cell[:, 1]) + self._layer
        mixture: Mixture = density.log_deposit(hidden, cells.prior(self._store["log_deposit"], layer, radius))
        choice, one, two, _ = tf.unstack(self._of_cell(cell, self._mesh.layers * self._mesh.places, _BLOCK), axis=1)
        drawn = draw_mixture(*mixture, choice, box_muller(one, two)[0])
        value = tf.gather(energy, cell[:, 0]) * shares(drawn, is_hit, cell[:, 0], energy)
        value = tf.where(is_hit, tf.maximum(value, least), 0.0)
        return cell, scaled(value, cell[:, 0], energy, least)

    def _number(self, name: str, given: Tensor, energy: Tensor, numbers: Tensor) -> Tensor:
        """How many cells (N,) of a colour with these contexts `given` and this `energy` (N,) are hit."""
        mixture = self._networks[f"{name}_count"].mixture(normalised(given, self._store, odd=name == "odd"))
        number = drawn_count(self._planned.cells / COLOURS, mixture, numbers)
        most = tf.maximum(tf.floor(energy / self._store["least"]), 1.0)
        return tf.where(energy > 0, tf.minimum(number, most), 0.0)

    def _of_cell(self, cell: Tensor, first: Any, numbers: int) -> Tensor:
        """Uniform numbers (R, numbers) of `cell` (R, 2), of blocks of so many that begin at block `first`."""
        return hashed_uniform(
            tf.gather(self._keys, cell[:, 0]), first + self._layer * self._mesh.places + cell[:, 1], numbers
        )

    def _of_layer(self, which: int) -> Tensor:
        """Uniform numbers (N, 4) of the layer as a whole: of its share, its even cells' number, its odd ones'."""
        block = 2 * self._mesh.layers * self._mesh.places + _OF_LAYER * self._layer + which
        return hashed_uniform(self._keys, tf.zeros_like(self._keys[:, 0]) + block, _BLOCK)

    def _chance(self, cell: Tensor) -> Tensor:
        """With which chance (R,) each cell was proposed."""
        mesh = self._mesh
        x, y = (index - tf.gather(self._corner[:, k], cell[:, 0]) for k, index in enumerate(mesh.indices(cell[:, 1])))
        at = tf.clip_by_value(x * mesh.lattice_shape[1] + y, 0, mesh.lattice_shape[0] * mesh.lattice_shape[1] - 1)
        return self._proposals.chance(at, cell[:, 0])

    def _known(self, cell: Tensor, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What is `cells.known` of cells `cell` (R, 2): of odd ones if their `own` layer (N, places + 1) is given."""
        shower, place = cell[:, 0], cell[:, 1]
        first, layer = shower * (self._mesh.places + 1), tf.zeros_like(place) + self._layer
        images = self._images if own is None else (*self._images, own * 1.0)
        flat = [(tf.reshape(image, [-1]), first) for image in images]
        energy, axis, slope = (
            tf.gather(each, shower) for each in (self._energies, self._planned.axis, self._planned.slope)
        )
        return cells.known(flat, layer, place, self._store, energy=energy, axis=axis, slope=slope, odd=own is not None)

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
        image = tf.math.unsorted_segment_sum(value, cell[:, 0] * places + cell[:, 1], showers * places)
        return tf.reshape(image, [showers, places])

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
        deposited = tf.math.unsorted_segment_sum(value, cell[:, 0], showers)
        axis = mesh.clipped(self._met, self._layer)
        cell = tf.concat([cell, tf.stack([tf.range(showers), axis], 1)], 0)
        value = tf.concat([value, tf.where(deposited > 0, 0.0, energy)], 0)
        return cell, value, self._summed(cell, value)
