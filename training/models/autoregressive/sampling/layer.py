"""Draws one layer of showers: first the even cells, those of the colour of the cell that the axis meets, then the odd.

Of the thousands of cells of a layer some hundreds are looked at: those that `proposals` proposes, and odd ones beside
an even hit. The cell that the axis meets comes before them, one of each shower. It cannot be hit as such: it is there
so that a layer without other cells has rows, because ONNX cannot sum over none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from training.models.autoregressive import cells, frame
from training.models.autoregressive.context import Plan, context, normalised, with_count, with_share
from training.models.autoregressive.densities import REACH, Mixture, share_of
from training.models.autoregressive.mesh import AROUND, COLOURS, Mesh
from training.models.autoregressive.sampling import shared_energy
from training.models.autoregressive.sampling.proposals import Proposals
from training.models.base import Array, Tensor
from training.models.randomness import box_muller, hashed_uniform

# Counters of a shower's random numbers. There is one for each cell; from `_OF_CELL` times the cells on, `_OF_CELL` for
# each, of which `_OF_HIT` are taken; then `_OF_LAYER` for each layer.
_OF_CELL, _OF_HIT, _OF_LAYER = 4, 3, 12
_SIDES = [AROUND.index(step) for step in ((-1, 0), (1, 0), (0, -1), (0, 1))]  # of a cell
_MOST_OF_PROMISE = math.exp(5 * frame.PROMISE_BLUR)  # a hit alone holds at most so many times what was promised


class Given:
    """What the layers of N showers are drawn from: their plans, random `keys` (N, 2), and uniform `numbers` (N, layers,
    12) of each layer as a whole: four each for its share, for its even hits and for its odd hits.

    `shower` (N,) numbers the showers. `met` (N, layers, 2) are indices of the cells that the axes meet, `middle` (N,
    layers) the places of the cells of the layers nearest to these. `turned` (N,) says how showers are to be reflected:
    which of the `images` (4 * layers, places). `priors` are the tables `cells.prior_tables`.
    """

    def __init__(self, networks: Mapping[str, Any], capacity: int, planned: Plan, keys: Tensor, turned: Tensor) -> None:
        self.networks, self.capacity, self.planned = networks, capacity, planned
        store = networks["constants"]
        mesh = store.mesh
        self.keys, self.turned, self.images = keys, turned, _images(mesh)
        of_cells, of_layers = 2 * _OF_CELL * mesh.layers * mesh.places, _OF_LAYER * mesh.layers
        numbers = hashed_uniform(keys, of_cells + tf.range(of_layers))
        self.numbers = tf.reshape(numbers, [-1, mesh.layers, _OF_LAYER])
        self.met = mesh.met(planned.axis, range(mesh.layers))
        self.priors = cells.prior_tables(store)
        self.proposals = Proposals(store, planned.cells, keys, of_cells + of_layers, static=capacity > 0)
        self.middle = mesh.clipped(self.met, range(mesh.layers))
        self.shower = tf.range(keys.shape[0] or tf.shape(keys)[0])


def _images(mesh: Mesh) -> Array:
    """Each cell's image under no reflection, in y, in x, and in both, (4 * layers, places)."""
    along_x, along_y = mesh.mirror
    itself = np.broadcast_to(np.arange(mesh.places, dtype=np.int32), along_x.shape)
    return np.concatenate([itself, along_y, along_x, np.take_along_axis(along_y, along_x, 1)])


class Cells(NamedTuple):
    """R cells of a layer of the showers `shower` (R,), at `place` (R,)."""

    shower: Tensor
    place: Tensor

    def some(self, rows: Tensor) -> Cells:
        return Cells(tf.gather(self.shower, rows), tf.gather(self.place, rows))

    def and_then(self, others: Cells) -> Cells:
        return Cells(tf.concat([self.shower, others.shower], 0), tf.concat([self.place, others.place], 0))


class LayerDrawing:
    """One layer of N showers. `images` (2 * N * (places + 1),) are the two layers before it, scaled, an empty cell
    after each; `sums` (N, 3, 16) the SUMS of all layers before, of the layer before, and of the layer before that.
    """

    def __init__(self, given: Given, layer: Tensor, *, images: Tensor, sums: Tensor) -> None:
        self._given, self._networks, self._store = given, given.networks, given.networks["constants"]
        mesh = self._mesh = self._store.mesh
        self._layer, self._images, self._sums = layer, images, sums
        planned = self._planned = given.planned.at(layer)
        self._numbers = tf.split(tf.gather(given.numbers, layer, axis=1), 3, 1)
        showers = self._showers = given.shower.shape[0] or tf.size(given.shower)
        self._wide = mesh.places + 1
        second = tf.equal(layer, 1)  # for it, the first layer stands for both layers before
        begins = given.shower * self._wide
        self._begins = tf.stack([begins, begins + tf.where(second, 0, showers * self._wide)], 1)
        energy = frame.column(sums, "energy")
        energy = tf.where(second, energy[:, 1:2], energy[:, 1:])
        self._of_shower = tf.concat([energy, planned.axis, planned.slope[:, None]], 1)
        self._met, middle = (tf.gather(each, layer, axis=1) for each in (given.met, given.middle))
        self._middle = Cells(given.shower, middle)

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """The layer as in `images`, (N * (places + 1),); the `sums` for the next layer; and the layer's deposits,
        reflected, (N * places,).

        The deposits of a shower for whose cells there is no room are NaN.
        """
        planned, marked = self._planned, self._marked()
        even, odd = self._colours()
        cell, chosen, even_fits = self._chosen(marked & even)
        known, radius = self._known(cell)
        given = context(planned, self._sums, None)
        of_even, of_odd = tf.unstack(planned.most, axis=1)  # in a layer of one cell, one colour has no cell
        logit = tf.where(of_odd == 0, REACH, self._drawn_share(given, known[: self._showers]))
        logit = tf.where(of_even == 0, -REACH, logit)
        energy = share_of(logit) * planned.energy
        given = with_share(given, logit, planned.energy)
        proposed = tf.where(chosen, self._chance(cell), np.inf)
        cell, value, held = self._deposits("even", cell, known, radius, proposed, given=given, energy=energy)
        own, beside = self._image(cell, cells.scaled(value, self._store)), self._beside(cell, value)
        odd, chosen, odd_fit = self._chosen((marked | beside) & odd)
        known, radius = self._known(odd, own)
        given = context(planned, self._sums, (self._summed(cell, value), energy))
        beside = tf.gather(tf.reshape(beside, [-1]), odd.shower * self._wide + odd.place)
        proposed = tf.where(chosen, tf.where(beside, 1.0, self._chance(odd)), np.inf)
        energy = planned.energy - energy
        odd, more, held_more = self._deposits("odd", odd, known, radius, proposed, given=given, energy=energy)
        value, held = tf.concat([value, more], 0), held + held_more
        return self._drawn(cell.and_then(odd), value, held, even_fits & odd_fit)

    def _colours(self) -> tuple[Tensor, Tensor]:
        """Which cells (N, places + 1) of this layer are even, and which odd; the empty one is neither."""
        met, parity = tf.reduce_sum(self._met, 1, keepdims=True), np.append(self._mesh.parity, np.int32(COLOURS))
        return tf.equal(parity, tf.bitwise.bitwise_and(met, 1)), tf.equal(parity, tf.bitwise.bitwise_and(met + 1, 1))

    def _drawn_share(self, given: Tensor, about: Tensor) -> Tensor:
        """The logit (N,) of the share of the layer's energy that its even cells are to hold, drawn from the context
        `given` and from what is known `about` the cells that the axes meet.
        """
        contexts = tf.concat([normalised(given, self._store, odd=False), cells.of_met(about)], 1)
        cases, mixture = self._networks["share"].cases_and_mixture(contexts)
        return shared_energy.drawn_share(cases, mixture, self._numbers[0])

    def _marked(self) -> Tensor:
        """Which cells (N, places + 1) are proposed."""
        proposals = self._given.proposals
        place = proposals.lattice.cells(self._met, proposals.steps(self._layer), self._layer)
        return self._marks(self._begins[:, :1], place)

    def _beside(self, cell: Cells, value: Tensor) -> Tensor:
        """The cells (N, places + 1) that share a side with one of the cells whose `value` (R,) is not zero."""
        sides = self._mesh.of_kind(self._mesh.around[..., _SIDES], self._layer, cell.place)
        return self._marks(cell.shower[:, None] * self._wide, tf.where(value[:, None] > 0, sides, self._mesh.places))

    def _marks(self, begin: Tensor, place: Tensor) -> Tensor:
        """Which cells (N, places + 1) are among `place` (R, F); `begin` (R, 1) is where each shower's cells begin."""
        flat = tf.reshape(begin + place, [-1])
        marks = tf.math.unsorted_segment_sum(tf.ones_like(flat), flat, self._showers * self._wide)
        return tf.reshape(marks > 0, [-1, self._wide])

    def _chosen(self, mask: Tensor) -> tuple[Cells, Tensor, Tensor]:
        """R cells: those that the axes meet, and those in `mask` (N, places + 1).

        Also which of the R cells are from the mask, (R,), and which showers (N,) have all their cells among the R: with
        a capacity, the last showers may not.
        """
        showers = self._showers
        if self._given.capacity:
            flat, room = tf.reshape(mask, [-1]), showers * self._given.capacity
            counted = tf.cumsum(tf.cast(flat, tf.int32))
            # each cell goes to the row of its number; a search for the cell of each row would cost XLA rows x cells
            row = tf.where(flat, tf.minimum(counted - 1, room), room)
            cell = tf.scatter_nd(row[:, None], tf.range(tf.size(flat)), [room + 1])[:room]
            meant, fits = tf.range(room) < counted[-1], tf.reshape(counted, tf.shape(mask))[:, -1] <= room
        else:
            cell = tf.cast(tf.where(tf.reshape(mask, [-1]))[:, 0], tf.int32)
            meant, fits = tf.ones_like(cell, tf.bool), tf.ones_like(mask[:, 0])
        shower = cell // self._wide
        chosen = Cells(shower, cell - shower * self._wide)
        return self._middle.and_then(chosen), tf.concat([tf.zeros([showers], tf.bool), meant], 0), fits

    def _deposits(
        self, name: str, cell: Cells, known: Tensor, radius: Tensor, proposed: Tensor, *, given: Tensor, energy: Tensor
    ) -> tuple[Cells, Tensor, Tensor]:
        """Cells and deposits (R',), with all hits among the R cells; and the energy (N,) that the deposits sum to.

        `proposed` (R,) are the chances that the cells were looked at, infinite for cells that cannot be hit; contexts
        are `given`. This energy is the `energy` (N,) that was promised, except for a hit alone.
        """
        density, odd, least = self._networks[name], name == "odd", self._store["least"]
        numbers = self._numbers[2 if odd else 1]
        number = self._number(name, given, energy, numbers)
        contexts = normalised(with_count(given, number, energy), self._store, odd=odd)
        hidden = density.hidden(known, tf.gather(density.of_layers(contexts), cell.shower))
        usual_odds, usual = cells.priors(self._given.priors, self._layer, radius)
        # ONNX Runtime's sigmoid is not exact for small chances
        chance = tf.minimum(1 / (1 + tf.exp(-density.log_odds(hidden, usual_odds))) / proposed, 1.0)
        uniform = self._uniform(cell, self._counted(cell)[:, None])[:, 0]
        is_hit = shared_energy.hit(chance, cell.shower, number, uniform, numbers[:, 2])
        if not self._given.capacity:
            rows = tf.concat([self._given.shower, tf.cast(tf.where(is_hit)[:, 0], tf.int32)], 0)
            cell, (hidden, usual, is_hit) = cell.some(rows), (tf.gather(each, rows) for each in (hidden, usual, is_hit))
        first = (self._counted(cell) + self._mesh.layers * self._mesh.places) * _OF_CELL
        choice, one, two = tf.unstack(self._uniform(cell, first[:, None] + tf.range(_OF_HIT)), axis=1)
        mixture: Mixture = density.score(hidden, usual)
        drawn = shared_energy.draw_mixture(*mixture, choice, box_muller(one, two)[0])
        spectrum, alone = tf.gather(self._store["spectra"], self._layer), number <= frame.ALONE
        value = shared_energy.deposits(drawn, is_hit, cell.shower, energy, spectrum)
        value = tf.where(tf.gather(alone, cell.shower), shared_energy.energies(drawn, spectrum), value)
        value = tf.where(is_hit, tf.maximum(value, least), 0.0)
        own = tf.math.unsorted_segment_sum(value, cell.shower, self._showers)
        energy = tf.where(alone, tf.minimum(own, energy * _MOST_OF_PROMISE), energy)
        return cell, shared_energy.scaled(value, cell.shower, energy, least, self._showers), energy

    def _number(self, name: str, given: Tensor, energy: Tensor, numbers: Tensor) -> Tensor:
        """How many cells (N,) of a colour are hit, by the contexts `given` and the `energy` (N,) of the colour."""
        mixture = self._networks[f"{name}_count"].mixture(normalised(given, self._store, odd=name == "odd"))
        of_colour = self._planned.most[:, int(name == "odd")]
        number = shared_energy.drawn_count(self._planned.cells / COLOURS, of_colour, mixture, numbers)
        most = tf.maximum(tf.floor(energy / self._store["least"]), 1.0)
        return tf.where(energy > 0, tf.minimum(number, most), 0.0)

    def _counted(self, cell: Cells) -> Tensor:
        """Each cell's number (R,) among all cells of its shower."""
        return self._layer * self._mesh.places + cell.place

    def _uniform(self, cell: Cells, counters: Tensor) -> Tensor:
        """Uniform numbers (R, K) of each cell's shower, by `counters` (R, K)."""
        return hashed_uniform(tf.gather(self._given.keys, cell.shower), counters)

    def _chance(self, cell: Cells) -> Tensor:
        """The chance (R,) with which each cell was proposed."""
        proposals = self._given.proposals
        return proposals.chance(self._layer, proposals.lattice.place(self._met, cell.shower, cell.place), cell.shower)

    def _known(self, cell: Cells, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What is `cells.known` of the cells. They are odd if their `own` layer, as in `images`, is given."""
        energy, axis, slope = tf.split(tf.gather(self._of_shower, cell.shower), [2, 2, 1], 1)
        begins = tf.gather(self._begins, cell.shower)
        images = [(self._images, begins), *([] if own is None else [(own, begins[:, :1])])]
        return cells.known(
            images, self._layer, cell.place, self._store, energy=energy, axis=axis, slope=slope, odd=own is not None
        )

    def _summed(self, cell: Cells, value: Tensor) -> Tensor:
        """SUMS (N, 16) of deposits `value` (R,) in the cells."""
        axis = tf.pad(self._planned.axis, [[0, 0], [0, 1]])
        away = self._mesh.of(self._mesh.where[..., :3], self._layer, cell.place) - tf.gather(axis, cell.shower)
        added = frame.terms(value, away, self._layer, self._store)
        return tf.math.unsorted_segment_sum(added, cell.shower, self._showers)

    def _image(self, cell: Cells, value: Tensor) -> Tensor:
        """The layer (N * (places + 1),) of deposits `value` (R,) in the cells."""
        at = cell.shower * self._wide + cell.place
        return tf.math.unsorted_segment_sum(value, at, self._showers * self._wide)

    def _drawn(self, cell: Cells, value: Tensor, held: Tensor, fits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What `draw` returns, with deposits that sum to `held` (N,). If no cell is hit, the cell that the axis meets
        holds the layer's energy.
        """
        mesh, energy = self._mesh, self._planned.energy
        value = shared_energy.scaled(value, cell.shower, held, self._store["least"], self._showers)
        deposited = tf.math.unsorted_segment_sum(value, cell.shower, self._showers)
        cell = self._middle.and_then(cell)
        value = tf.concat([tf.where(deposited > 0, 0.0, energy), value], 0)
        own = self._summed(cell, value)[:, None]
        sums = tf.concat([self._sums[:, :1] + own, own, self._sums[:, 1:2]], 1)
        if self._given.capacity:
            value = tf.where(tf.gather(fits, cell.shower), value, np.nan)
        turned = tf.gather(self._given.turned, cell.shower) * mesh.layers + self._layer
        place = mesh.of(self._given.images, turned, cell.place)
        reflected = tf.math.unsorted_segment_sum(value, cell.shower * mesh.places + place, self._showers * mesh.places)
        return self._image(cell, cells.scaled(value, self._store)), sums, reflected
