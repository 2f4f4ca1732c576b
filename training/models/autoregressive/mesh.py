"""The cells of a calorimeter as the densities see them: places, neighbours and mirror images.

Lengths are in units of `Geometry.cell_mm`, depths in units of `Geometry.layer_pitch_mm`. A cell of a layer is a pair of
indices (along x and y, or in angle and radius), or one number, its place in the flattened layer.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import tensorflow as tf

from calopipe.showers.cells import Geometry
from calopipe.showers.positions import nearest, positions, steps
from training.models.base import Array, Tensor

MARGIN = 2
# The cells around a cell, as steps of the two indices. A cell knows those in the two layers before; an odd cell also
# knows the even ones in its own layer.
AROUND = [(first, second) for first in range(-MARGIN, MARGIN + 1) for second in range(-MARGIN, MARGIN + 1)]
_BEFORE = 2  # how many layers before are known to a cell
_ROUNDING, _LEAST = 1e-3, 1e-12  # of a cell's side, and of its square
COLOURS = 2  # as on a chessboard: even cells have the colour of the cell that the axis meets, odd ones the other


class Mesh:
    """The cells of `geometry`, as tables:

    - (layers, places): `x`, `y`; `ring`, the mean radius of cells that go round the axis; `log_area`, of the area over
      its mean; `where`, these four; `exists`.
    - (kinds, places, ...), `places` for no cell: `around` (75), the cells around a cell in its own layer and the two
      before; `told`, two tables, the cells that even ones know and those that odd ones know.
    - `mirror` (2, layers, places): a cell's image under a reflection in x, and in y. `folds`: whether showers are
      reflected in x. In rings they are not: a beam .01 cells beside the axis hits one sector of the first layers, and
      not its image.
    - (layers, 2): an axis meets the cell whose indices are place * `per_unit` + `middle`, rounded; `most`, the highest
      indices; `spare`, half the excess of a side over `short_side`, in units of `short_side`; `precision`, 1 over the
      square of a side, 1 in rings; `of_parity`, the numbers of cells whose indices have an even and an odd sum.
    - (layers,): `depth`; `kind`, which of these tables the layer has; `short_side` of its cells.
    - `index_numbers` inputs say which sector and which ring a cell is of; 0 if cells are rectangular.

    An oblong cell is divided into squares, each a `_step` further, with `_weights`. Rings count as squares. Cells are
    looked at by their place in a lattice of `lattice_shape` places, whose corner is at `start` from the cell that the
    axis meets; in rings, the lattice is the layer. A row of the lattice has `pairs_a_row` pairs of neighbours along the
    second index.
    """

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        n, m, self.layers = geometry.shape
        self.shape, self.places, self.index_numbers = (n, m), n * m, n + m if geometry.rings else 0
        where, unit = positions(geometry), geometry.cell_mm
        self.exists = where.exists
        self.x, self.y, self.ring = (
            np.nan_to_num(length / unit).astype(np.float32) for length in (where.x_mm, where.y_mm, where.ring_mm)
        )
        area = np.where(where.exists, where.area_mm2, np.nan)
        self.log_area = np.nan_to_num(np.log(area / np.nanmean(area))).astype(np.float32)
        self.where = np.stack([self.x, self.y, self.ring, self.log_area], -1)
        self.depth = (where.z_mm / geometry.layer_pitch_mm - 0.5).astype(np.float32)
        self.reach = float(max(n, m) if not geometry.layers else np.nanmax(where.r_mm) / unit)
        self.parity = (np.indices(self.shape).sum(0) % COLOURS).astype(np.int32).reshape(-1)
        self.of_parity = np.stack([(self.exists & (self.parity == k)).sum(1) for k in range(COLOURS)], 1)
        self._neighbours()
        self.folds = not geometry.rings
        self.mirror = np.stack([_mirrored(geometry, axis) for axis in (0, 1)])
        counts = np.array([layer.cells for layer in geometry.every_layer])
        self.most = (counts - 1).astype(np.int32)
        if geometry.rings:
            self.start, self.lattice_shape = (0, 0), (n, m)
            self.per_unit = self.middle = np.zeros((self.layers, 2), np.float32)
        else:
            self.start, self.lattice_shape = (1 - n, 1 - m), (2 * n - 1, 2 * m - 1)
            sizes = np.array([layer.size_mm for layer in geometry.every_layer])
            self.per_unit = (unit / sizes).astype(np.float32)
            self.middle = ((counts - 1) / 2).astype(np.float32)
        self.pairs_a_row = (self.lattice_shape[1] + 1) // 2
        size = 1 / np.where(self.per_unit > 0, self.per_unit, 1.0)
        self.short_side = size.min(1)
        self.spare = (size / self.short_side[:, None] - 1) / 2
        self._alike = bool((size == 1).all())  # squares of one size, or rings
        squares = np.ceil(2 * self.spare.max(1) - _ROUNDING) + 1
        self._step = 2 * self.spare / np.maximum(squares - 1, 1)[:, None]
        weight = ((1 + 2 * self.spare.max(1)) / squares)[:, None]
        self._weights = np.where(np.arange(squares.max()) < squares[:, None], weight, 0.0)
        self.precision = np.square(1 / size).astype(np.float32)

    def seen(self, dx: Tensor, dy: Tensor, ring: Tensor, layer: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Distances (R,) from the axis, as inputs of the density of cells of `layer` (R,): in x, in y, and in all.

        The unit is the shorter side of the layer's cells. The distance in all is that of a square of this side that is
        hit as often as the cell, if chances fall with the cube of the distance. The nearest of the squares of an oblong
        cell counts most. So a strip that the axis meets has the same distance wherever the axis meets it. A strip whose
        end points to the axis is farther than a strip whose side does.
        """
        if self._alike:
            return dx, dy, tf.sqrt(dx * dx + dy * dy + ring * ring)
        tables = (self.short_side, self.spare, self._step, self._weights)
        short, spare, step, weights = (tf.gather(tf.constant(table, tf.float32), layer) for table in tables)
        dx, dy = dx / short, dy / short
        nearest = tf.nn.relu(tf.abs(tf.stack([dx, dy], -1)) - spare)
        further = tf.range(self._weights.shape[1], dtype=tf.float32)[:, None] * step[..., None, :]
        squared = tf.maximum(tf.reduce_sum(tf.square(nearest[..., None, :] + further), -1), _LEAST)
        return dx, dy, tf.pow(tf.reduce_sum(weights * squared**-1.5, -1), -1 / 3)

    def met(self, axis: Tensor, layer: Tensor) -> Tensor:
        """Indices (..., 2) of the cell that an axis at the place `axis` (..., 2) meets in `layer` (...); 0 in rings."""
        per_unit, middle = (tf.gather(tf.constant(table), layer) for table in (self.per_unit, self.middle))
        return tf.cast(tf.round(axis * per_unit + middle), tf.int32)

    def within(self, axis: Tensor) -> Tensor:
        """The place of the axis (..., layers, 2) within the cell that it meets; in rings, within the calorimeter."""
        if self.geometry.rings:
            return tf.clip_by_value(axis, -2.0, 2.0)
        scaled = axis * tf.constant(self.per_unit) + tf.constant(self.middle)
        return scaled - tf.round(scaled)

    def place(self, first: Tensor, second: Tensor) -> Tensor:
        return first * self.shape[1] + second

    def indices(self, place: Tensor) -> tuple[Tensor, Tensor]:
        return place // self.shape[1], place % self.shape[1]

    def of_colours(self, met: Tensor) -> Tensor:
        """How many cells (..., layers, 2) of each colour the layers have, if the axes meet the cells `met`."""
        odd = tf.math.floormod(tf.reduce_sum(met, -1), COLOURS)[..., None] == 1
        one = tf.constant(self.of_parity, tf.float32)
        return tf.where(odd, tf.reverse(one, [1]), one)

    def clipped(self, met: Tensor, layer: Tensor) -> Tensor:
        """The place of the cell of `layer` (...) that is nearest to indices `met` (..., 2)."""
        first, second = tf.unstack(tf.clip_by_value(met, 0, tf.gather(tf.constant(self.most), layer)), axis=-1)
        return self.place(first, second)

    def index_inputs(self, place: Tensor) -> list[Tensor]:
        """Which sector and ring cells (R,) are of, one-hot, (R, n) and (R, m); [] for rectangular cells."""
        if not self.geometry.rings:
            return []
        # a particle on the edge of two sectors always hits the same one, which the distance does not tell
        return [tf.one_hot(index, number) for index, number in zip(self.indices(place), self.shape, strict=True)]

    def of(self, table: Array, layer: Tensor, place: Tensor) -> Tensor:
        """The entry of a `table` (layers, places, ...) for each cell."""
        return tf.gather(tf.constant(table.reshape(-1, *table.shape[2:])), layer * self.places + place)

    def of_kind(self, table: Array, layer: Tensor, at: Tensor) -> Tensor:
        """The entries `at` (...) of a `table` (kinds, entries, ...), each of the kind of its `layer`."""
        if len(table) > 1:
            at = at + tf.gather(tf.constant(self.kind), layer) * table.shape[1]
        return tf.gather(tf.constant(table.reshape(-1, *table.shape[2:])), at)

    def _neighbours(self) -> None:
        """Make tables of neighbours. Layers share one if their cells, and those of the two layers before, are alike."""
        described = [(layer.cells, layer.size_mm, layer.r_edges_mm) for layer in self.geometry.every_layer]
        kinds: dict[object, int] = {}
        self.kind = np.empty(self.layers, np.int32)
        around, other_colour = [], []
        for layer in range(self.layers):
            before = [max(layer - back, 0) for back in range(_BEFORE + 1)]  # before the first layer there is none
            key = tuple(described[other] for other in before)
            if key not in kinds:
                kinds[key] = len(kinds)
                neighbours = [self._around(layer, other) for other in before]
                around.append(np.concatenate(neighbours, 1))
                known = np.append(self.parity, -1)[neighbours[0]]
                other_colour.append(np.where(known == 1 - self.parity[:, None], neighbours[0], self.places))
            self.kind[layer] = kinds[key]
        self.around = np.stack(around)
        earlier = self.around[..., len(AROUND) :]
        self.told = earlier, np.concatenate([earlier, np.stack(other_colour)], -1)

    def _around(self, layer: int, other: int) -> Array:
        """The cells (places, 25) of layer `other` around those of `layer`; `places` where there is none."""
        middle = nearest(self.geometry, layer, other)
        first, second = np.divmod(np.maximum(middle, 0), self.shape[1])
        steps_first, steps_second = np.array(AROUND).T
        place, inside = steps(self.geometry, other, first[:, None] + steps_first, second[:, None] + steps_second)
        return np.where(inside & (middle >= 0)[:, None], place, self.places).astype(np.int32)


@lru_cache(maxsize=8)
def mesh_of(geometry: Geometry) -> Mesh:
    return Mesh(geometry)


def colour(first: Tensor, second: Tensor, met: Tensor) -> Tensor:
    """0 for cells of the colour of the cell `met` (..., 2) by the axis, 1 for others; the indices are (...) each."""
    return tf.math.floormod(first + second + met[..., 0] + met[..., 1], COLOURS)


def _mirrored(geometry: Geometry, axis: int) -> Array:
    """Each cell's image (layers, places) under a reflection in x (`axis` 0) or y. In rings, x changes no cell."""
    n, m, layers = geometry.shape
    images = np.tile(np.arange(n * m, dtype=np.int32).reshape(n, m), (layers, 1, 1))
    for image, layer in zip(images, geometry.every_layer, strict=True):
        cells = image[: layer.cells[0], : layer.cells[1]]
        if layer.r_edges_mm is None:
            cells[:] = np.flip(cells, axis)
        elif axis == 1:
            cells[:] = np.flip(cells, 0)  # the angle runs along the first index
    return images.reshape(layers, -1)
