"""Which cells are looked at: in training empty ones, in sampling those that may be hit.

Of the thousands of cells of a layer a few hundred are looked at. Each cell has a rate, the mean number of draws that
propose it: about four times the average chance of a hit at its radius. A layer that is to have twice the cells of the
average layer has twice the draws, so proposals hold over decades of energy. Cells that would nearly always be proposed
are the core; they are always looked at.

A layer of a single hit has many draws too. The chances of cells, over their chances to be proposed, sum to the number
of hits only on average. With two draws there is often no cell far from the axis, and the core is hit in its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from calopipe.errors import InputError
from training.models.autoregressive import cells
from training.models.autoregressive.mesh import Mesh
from training.models.autoregressive.sampling.lattice import NOWHERE, Lattice, least_distances
from training.models.base import Array, Tensor
from training.models.randomness import hashed_uniform

_DRAWS, _FEWEST_DRAWS = 256, 32  # draws of cells outside of the core in a layer: at most, and on average at least
_MOST_FAR = 2 * _DRAWS  # for each kind: mean number of proposed cells outside of the core; with more, hits are lost
_CORE_RATE = 1.2  # a cell of a higher rate is in the core: its chance to be proposed would be 70 %
_HEADROOM = 4.0  # how many times its average chance a cell may have that is far from the axis and from every hit
_ROOM = 1.1  # factor by which a cell of a full core is likelier than the core's last cell: a table rounds rates
# How busy a layer may be, in steps of a fifth; at least .05, since a layer may hold more than was expected.
LEVELS = np.geomspace(0.05, 51.2, 41, dtype=np.float32)
_CORE_MOST = 1024  # cells of a layer that are always looked at, at most
_ENTRIES = 4096  # of a layer's table, in which a place is as often as it is proposed; more where there are more places


def shapes(mesh: Mesh) -> dict[str, tuple[int, ...]]:
    """Name and shape of each constant that `tables` returns."""
    rows, wide = mesh.lattice_shape
    layers, places = mesh.layers, rows * wide
    return {
        "proposal": (layers * rows * mesh.pairs_a_row,),  # in training
        "far_table": (layers, max(_ENTRIES, 3 * places)), "far_total": (layers,),
        "rate": (layers, places), "core": (layers, min(places, _CORE_MOST)),
    }  # fmt: skip


def tables(share: Array, mesh: Mesh, met: Array, kinds: int) -> dict[str, Array]:
    """The constants, from the `share` (layers, knots) of the cells at a radius that are hit, and from the cells that
    axes have `met` (showers, layers, 2).

    Where there are several `kinds` of particles, all hits may come from one kind. InputError: more cells are likely to
    be hit than the core and the draws can propose, as in a layer of noise, or with a thousand hits.
    """
    radius, knots = least_distances(mesh, met), np.arange(share.shape[1])
    (layers, places), exists = radius.shape, np.isfinite(radius)
    at = cells.knot(np.where(exists, radius, 0.0))
    chance = np.stack([np.interp(each, knots, own) for each, own in zip(at, share, strict=True)])  # (layers, lattice)

    grid = np.where(exists, np.clip(chance, 0.01, 0.9), 1e-6).reshape(layers, *mesh.lattice_shape)
    padded = np.pad(grid, ((0, 0), (0, 0), (0, (-grid.shape[2]) % 2)))
    pairs = padded.reshape(*padded.shape[:2], -1, 2).sum(axis=-1)
    cumulative = np.cumsum(pairs.reshape(-1))

    bound = np.where(exists, np.clip(_HEADROOM * kinds * chance, 2e-4, 1 - 1e-6), 0.0)
    rate = -np.log1p(-bound)
    core = np.argsort(-rate, axis=1, kind="stable")[:, :_CORE_MOST]
    # the least rate in the core, where the core has no more room
    least = np.take_along_axis(rate, core[:, -1:], 1) if places > _CORE_MOST else 0.0
    far = np.where((rate > _CORE_RATE) & (rate > _ROOM**2 * least), 0.0, rate)
    table, total = np.zeros(shapes(mesh)["far_table"]), far.sum(axis=1)
    number = table.shape[1]
    if total[full := int(total.argmax())] > _MOST_FAR * kinds:
        raise InputError(
            f"layer {full}: so many of its cells are hit that sampling cannot look at all of them; preprocess with a "
            "higher --threshold-gev, or give --config 3dgan"
        )
    for layer in np.flatnonzero(total):
        wanted = far[layer] / total[layer] * (number - np.count_nonzero(far[layer]))
        counts = np.floor(wanted) + (far[layer] > 0)
        short = number - int(counts.sum())
        counts[np.argsort(np.floor(wanted) - wanted, kind="stable")[:short]] += 1
        table[layer] = np.repeat(np.arange(places), counts.astype(int))
        rate[layer] = np.where(far[layer] > 0, total[layer] * counts / number, rate[layer])  # as the table makes it
    return {
        "proposal": cumulative / cumulative[-1], "core": core, "far_table": table, "far_total": total, "rate": rate,
    }  # fmt: skip


class Proposals:
    """The cells of N showers that are proposed, by how many are `expected` (N, layers) to be hit, and by random numbers
    of the `keys` (N, 2), the first `taken` of which have other uses. `static` shapes do not depend on values.
    """

    def __init__(self, constants: Any, expected: Tensor, keys: Tensor, taken: int, *, static: bool = False) -> None:
        self._rate, self._keys = constants["rate"], keys
        self.lattice = Lattice(constants.mesh)
        total, core = constants["far_total"], tf.cast(constants["core"], tf.int32)
        self._busy = self._how_busy(constants, expected)
        table = self.lattice.steps(tf.cast(constants["far_table"], tf.int32))
        self._far = self._drawn(table, total, taken // _DRAWS + 1)
        self._core, self._core_rate = self.lattice.steps(core), tf.gather(self._rate, core, batch_dims=1)
        # if all places of the core are filled, it has no room for other cells that are as likely as its last
        filled = self._rate.shape[1] > core.shape[1]
        self._least = _ROOM * self._core_rate[:, -1] if filled else tf.zeros_like(total)
        self._core_most = None if static else self._of_the_busiest()

    @staticmethod
    def _how_busy(constants: Any, expected: Tensor) -> Tensor:
        """Expected hits over those of the average layer, (N, layers), cut where draws are the fewest and the most."""
        least, most = (draws / tf.maximum(constants["far_total"], 1.0) for draws in (_FEWEST_DRAWS, _DRAWS))
        busy = expected / constants["layer_cells"]
        # rounded up to a level: the last bit of `busy`, which differs between compilers, must not decide
        level = tf.reduce_sum(tf.cast(busy[..., None] > LEVELS, tf.int32), -1)
        return tf.clip_by_value(tf.gather(LEVELS, tf.minimum(level, len(LEVELS) - 1)), least, most)

    def _of_the_busiest(self) -> Tensor:
        """How many cells (layers,) the core has in the shower in which it has most."""
        busy = tf.reduce_max(self._busy, 0)[:, None]
        within = (self._core_rate * tf.maximum(busy, 1.0) > _CORE_RATE) & (self._core_rate > self._least[:, None])
        return tf.reduce_max(tf.where(within, tf.range(1, self._core.shape[1] + 1), 0), 1)

    def steps(self, layer: Tensor) -> Tensor:
        """The places (N, ...) of the lattice about the axis that are proposed in `layer`, as `Lattice.steps`."""
        most = None if self._core_most is None else tf.gather(self._core_most, layer)
        core, rate = (tf.gather(table, layer)[:most] for table in (self._core, self._core_rate))
        core = tf.where(self._in_core(rate, tf.gather(self._busy, layer, axis=1)[:, None], layer), core, NOWHERE)
        return tf.concat([tf.gather(self._far, layer, axis=1), core], 1)

    def chance(self, layer: Tensor, place: Tensor, shower: Tensor) -> Tensor:
        """The chance (R,) that `place` (R,) of the lattice in `layer` is proposed in `shower` (R,)."""
        rate, busy = tf.gather(self._rate, layer), tf.gather(self._busy, layer, axis=1)
        rate, busy = tf.gather(rate, place), tf.gather(busy, shower)
        # in doubles, since float32 has no number 1 - 1e-8, and ONNX has neither log1p nor expm1
        missed = _DRAWS * tf.math.log(1 - tf.cast(tf.minimum(busy * rate / _DRAWS, 0.5), tf.float64))
        return tf.where(self._in_core(rate, busy, layer), 1.0, tf.cast(1 - tf.exp(missed), tf.float32))

    def _in_core(self, rate: Tensor, busy: Tensor, layer: Tensor) -> Tensor:
        """Whether cells of this `rate` are in the core, and so always looked at; the core has room for some only."""
        return (rate * tf.maximum(busy, 1.0) > _CORE_RATE) & (rate > tf.gather(self._least, layer))

    def _drawn(self, table: Tensor, total: Tensor, first: int) -> Tensor:
        """The steps proposed beside the core, (N, layers, draws), by random numbers from block `first` on."""
        layers, entries = table.shape
        often = self._busy * total / _DRAWS  # the chance that a draw proposes a cell
        counters = (tf.range(layers)[:, None] + first) * _DRAWS + tf.range(_DRAWS)
        drawn = hashed_uniform(self._keys[:, None], counters)
        drawn /= tf.maximum(often, 1e-9)[..., None]
        entry = tf.cast(tf.minimum(drawn, 1.0) * entries, tf.int32)
        entry = tf.minimum(entry, entries - 1) + tf.range(layers)[:, None] * entries
        return tf.where(drawn < 1, tf.gather(tf.reshape(table, [-1]), entry), NOWHERE)
