"""The auto-encoder's network, and how far the showers that it gives back are from those that it was given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from calopipe.documents import finite
from calopipe.showers.cells import REFERENCE_UNIT_GEV, Geometry
from calopipe.showers.metric import Profiles
from calopipe.showers.positions import voxel_order
from preprocessing.manifest import Manifest
from preprocessing.reading import decode, decode_hits, dense
from training.models.base import Batch, Losses, Model, Phase, Rows, Tensor, ValidRange
from training.models.randomness import Draws
from training.models.showers import ShowerJudge

_BLOCKS = (17, 17, 5)  # at most, along x, y and depth: the cells of a block go through the convolutions together
_FILTERS = 16
_FAINT = 0.05  # 1 MeV, in units of 0.02 GeV: about where the inputs' logarithm begins
_SELDOM = 1e-8  # of the energy: the least share of a cell before training
_NO_CELL = -1e4  # a logit of which the softmax is 0
_ALONG = ("x", "y", "depth")


class AutoEncoder(Model):
    """Encoder and decoder in one network: the share of each cell in a shower's visible energy, of few numbers.

    The visible energy goes beside the code, unchanged, so that a shower keeps it. The loss is the divergence of the
    shares (Kullback and Leibler), in nats: 0 is perfect, and what cannot be known of few numbers is where single cells
    fluctuate. So a shower comes back smoother than it was, and no cell is empty.
    """

    weights = {"divergence": 1.0}  # noqa: RUF012  never changed

    def __init__(self, geometry: Geometry, *, code: int) -> None:
        self._shape = geometry.shape
        self._exists = np.zeros(geometry.cells, dtype=np.bool_)
        self._exists[voxel_order(geometry)] = True
        self._offset = Offset(geometry.cells)
        self.networks = {"autoencoder": _network(geometry.shape, code, self._offset)}
        self.phases = (Phase("fit", "autoencoder", self._losses, self.weights),)

    def decode(self, records: Tensor, manifest: Manifest) -> Batch:
        return decode_hits(records, manifest)

    def adapt(self, batches: Iterable[Batch], manifest: Manifest) -> None:  # noqa: ARG002
        """The training begins at the mean shower: the network learns what differs from it."""
        shares, showers = np.zeros(len(self._exists)), 0
        for batch in batches:
            shares += tf.reduce_sum(_shares(dense(batch, self._shape)), axis=0).numpy()
            showers += len(batch["energy_gev"])
        self._offset.value.assign(np.where(self._exists, np.log(shares / max(showers, 1) + _SELDOM), _NO_CELL))

    def view(self, batch: Batch, draws: Draws) -> Batch:  # noqa: ARG002
        return {"cells": dense(batch, self._shape)}

    def decode_judged(self, records: Tensor, manifest: Manifest) -> Batch:
        return decode(records, manifest)

    def evaluate(self, batch: Batch, draws: Draws) -> tuple[Losses, Tensor]:
        return self._losses(batch, draws), self.reconstruct(batch["cells"])

    def reconstruct(self, cells: Tensor) -> Tensor:
        """Showers (N, x, y, layer) of showers, each with the energy that it had."""
        energy = ops.sum(cells, axis=(1, 2, 3), keepdims=True)
        return energy * ops.reshape(ops.softmax(self._logits(cells)), ops.shape(cells))

    def judge(self, showers: int, geometry: Geometry, workers: int = 1) -> ReconstructionJudge:  # noqa: ARG002
        return ReconstructionJudge(showers, geometry)

    def card(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {name: found.get(name) for name in ("metric", "unexplained")}

    def serving(self, valid: ValidRange) -> Any:  # noqa: ARG002  it takes showers, not labels
        @tf.function(input_signature=[tf.TensorSpec([None, *self._shape], tf.float32)], autograph=False)
        def reconstruct(cells_gev: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"cells_gev": self.reconstruct(cells_gev / REFERENCE_UNIT_GEV) * REFERENCE_UNIT_GEV}

        return reconstruct

    def _logits(self, cells: Tensor) -> Tensor:
        return self.networks["autoencoder"](ops.log(1 + cells / _FAINT))

    def _losses(self, view: Batch, draws: Draws) -> Losses:  # noqa: ARG002
        shares = _shares(view["cells"])
        information = ops.sum(shares * ops.log(ops.maximum(shares, 1e-30)), axis=1)
        return {"divergence": information - ops.sum(shares * ops.log_softmax(self._logits(view["cells"])), axis=1)}


class ReconstructionJudge(ShowerJudge):
    """Judges as generated showers are judged, and also shower by shower, since each has its own beside it."""

    def found(self, rows: Rows) -> dict[str, Any]:
        """Also `unexplained`: the mean square error of an observable over its variance among showers.

        0 is perfect, and 1 as bad as the same shower for all.
        """
        given, made = (_observed(Profiles.of_rows(half, self._geometry.shape)) for half in np.hsplit(rows, 2))
        errors = {
            name: np.nanmean((made[name] - values) ** 2) / max(np.nanvar(values), 1e-30)
            for name, values in given.items()
            if np.isfinite(values).any()
        }
        return super().found(rows) | {"unexplained": {name: finite(value) for name, value in errors.items()}}


def _observed(showers: Profiles) -> dict[str, Any]:
    """The measured angle, and centre and width along x, y and depth, (N,) each, in units of the index.

    NaN in an empty shower.
    """
    observables = {"angle": showers.angle_rad}
    for name, profile in zip(_ALONG, showers.along, strict=True):
        energy = profile.sum(axis=1)
        place = np.arange(profile.shape[1])
        mean, square = (profile @ place**power / np.where(energy > 0, energy, np.nan) for power in (1, 2))
        observables |= {f"centre_{name}": mean, f"width_{name}": np.sqrt(np.maximum(square - mean**2, 0))}
    return observables


class Offset(keras.layers.Layer):
    """Adds numbers that are not trained, (cells,), in float32."""

    def __init__(self, cells: int) -> None:
        super().__init__(dtype="float32")
        self.value = self.add_weight((cells,), "zeros", trainable=False, name="value")

    def call(self, logits: Tensor) -> Tensor:
        return logits + self.value


def _shares(cells: Tensor) -> Tensor:
    """The share of each cell in its shower, (N, cells) of (N, x, y, layer); 0 in an empty shower."""
    flat = ops.reshape(cells, (ops.shape(cells)[0], -1))
    return flat / ops.maximum(ops.sum(flat, axis=1, keepdims=True), 1e-30)


def _network(shape: tuple[int, int, int], code: int, offset: Offset) -> keras.Model:
    """Logarithms of cells (N, x, y, layer) to logits (N, cells)."""
    sides = [-(-n // most) for n, most in zip(shape, _BLOCKS, strict=True)]
    blocks = [-(-n // side) for n, side in zip(shape, sides, strict=True)]
    whole = [n * side for n, side in zip(blocks, sides, strict=True)]

    def features(units: int, flow: Any) -> Any:
        return keras.layers.Dense(units, activation="gelu")(flow)

    def around(flow: Any) -> Any:
        return keras.layers.Conv3D(_FILTERS, 3, padding="same", activation="gelu")(flow)

    given = keras.Input(shape)
    padded = keras.layers.ZeroPadding3D([(0, end - n) for end, n in zip(whole, shape, strict=True)])(given[..., None])
    split = keras.layers.Reshape([number for pair in zip(blocks, sides, strict=True) for number in pair])(padded)
    flow = keras.layers.Reshape((*blocks, int(np.prod(sides))))(keras.layers.Permute((1, 3, 5, 2, 4, 6))(split))
    flow = around(features(_FILTERS, flow))
    flow = keras.layers.Dense(code, name="code")(keras.layers.Flatten()(flow))
    flow = features(int(np.prod(blocks)) * _FILTERS, flow)
    flow = around(keras.layers.Reshape((*blocks, _FILTERS))(flow))
    flow = keras.layers.Dense(int(np.prod(sides)), kernel_initializer="zeros")(flow)
    flow = keras.layers.Permute((1, 4, 2, 5, 3, 6))(keras.layers.Reshape((*blocks, *sides))(flow))
    flow = keras.layers.Reshape(whole)(flow)[:, : shape[0], : shape[1], : shape[2]]
    return keras.Model(given, offset(keras.layers.Flatten()(flow)))
