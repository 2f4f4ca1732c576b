"""The lattice about the cell that an axis meets, from whose places cells are proposed; in rings it is the layer."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from training.models.autoregressive.mesh import Mesh
from training.models.base import Array, Tensor

NOWHERE = 2**30  # steps that lead to no cell


class Lattice:
    """The lattices in the layers of a `mesh`, of `Mesh.lattice_shape` places each."""

    def __init__(self, mesh: Mesh) -> None:
        (n, m), (rows, wide) = mesh.shape, mesh.lattice_shape
        self._mesh, self._stride = mesh, m + 2 * wide
        # Tables (kinds, reached) of the cells that lattices reach, `places` for no cell. A table begins one lattice
        # before the first cell, and ends one lattice after the last.
        first, second = np.arange(-rows, n + rows)[:, None], np.arange(-wide, m + wide)
        inside = (first >= 0) & (first < n) & (second >= 0) & (second < m)
        place = np.where(inside, first * m + second, mesh.places).reshape(-1)
        exists = np.pad(mesh.exists[np.unique(mesh.kind, return_index=True)[1]], ((0, 0), (0, 1)))
        self._reached = np.where(exists[:, place], place, mesh.places).astype(np.int32)

    def steps(self, place: Tensor) -> Tensor:
        """The argument `steps` of `cells` for places (...) of the lattice."""
        wide = self._mesh.lattice_shape[1]
        return place + place // wide * (self._stride - wide)

    def cells(self, met: Tensor, steps: Tensor, layer: Tensor) -> Tensor:
        """The places (N, K) of the cells of `layer` that are `steps` (N, K) from the corner of the lattice about the
        cells `met` (N, 2); `places` where there is no cell.
        """
        mesh = self._mesh
        ends = np.array([np.negative(mesh.lattice_shape), mesh.shape], np.int32)
        first, second = tf.unstack(tf.clip_by_value(met + mesh.start, *ends) + mesh.lattice_shape, axis=1)
        at = tf.minimum((first * self._stride + second)[:, None] + steps, self._reached.shape[1] - 1)
        return mesh.of_kind(self._reached, layer, at)

    def place(self, met: Tensor, shower: Tensor, place: Tensor) -> Tensor:
        """Places (R,) in the lattices about the cells `met` (N, 2) of the cells of `shower` (R,) at `place` (R,).

        Places before the lattice become its first place, and places after it its last.
        """
        rows, wide = self._mesh.lattice_shape
        first, second = self._mesh.indices(np.arange(self._mesh.places, dtype=np.int32))
        x, y = tf.unstack(met + self._mesh.start, axis=1)
        at = tf.gather(tf.constant(first * wide + second), place) - tf.gather(x * wide + y, shower)
        return tf.clip_by_value(at, 0, rows * wide - 1)


def least_distances(mesh: Mesh, met: Array) -> Array:
    """The least distance, as `Mesh.seen`, of each place of the lattice, (layers, lattice), from an axis.

    The axis may be anywhere in the cell that it meets; in rings it is the calorimeter's. The distance is infinite where
    no axis that meets one of the cells `met` (showers, layers, 2), or a cell beside them, has a cell.
    """
    if mesh.geometry.rings:
        return np.where(mesh.exists, np.sqrt(mesh.x**2 + mesh.y**2 + mesh.ring**2), np.inf).astype(np.float32)
    shifts = np.indices(mesh.lattice_shape).reshape(2, -1).T + mesh.start
    away = (np.maximum(np.abs(shifts) - 0.5, 0.0) / mesh.per_unit[:, None]).astype(np.float32)
    layer = np.repeat(np.arange(mesh.layers), len(shifts)).reshape(mesh.layers, -1)
    radius = np.asarray(mesh.seen(away[..., 0], away[..., 1], np.zeros_like(away[..., 0]), layer)[2])
    lowest, highest = met.min(0)[:, None] - 1, met.max(0)[:, None] + 1
    there = (highest + shifts >= 0) & (lowest + shifts <= mesh.most[:, None])
    return np.where(there.all(-1), radius, np.inf)
