"""The likelihood model of a small calorimeter, with constants from test showers, and test showers as lists of hits."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from showers import SMALL_GEOMETRY, make_showers

from calopipe.labels import NO_LABELS
from calopipe.showers.cells import FloatArray, Geometry
from training.models.autoregressive import AutoregressiveConfig
from training.models.autoregressive.frame import Hits, Labels, reflect
from training.models.autoregressive.mesh import mesh_of
from training.models.autoregressive.model import Autoregressive
from training.models.autoregressive.sampling.layer import Given, LayerDrawing
from training.models.autoregressive.sampling.shower import drawn_showers
from training.models.base import Batch, build

CONFIG = AutoregressiveConfig(model="autoregressive", batch=16, epochs=1, learning_rate=3e-3, average=0.9, width=8)
LAYERS = SMALL_GEOMETRY.shape[2]


class Few(dict[str, Any]):
    """A few of the numbers that `constants` computes, of showers in `geometry`, for code that needs no others."""

    def __init__(self, geometry: Geometry, **numbers: Any) -> None:
        super().__init__({name: np.float32(value) for name, value in numbers.items()})  # tensors start the devices
        self.mesh = mesh_of(geometry)


CONSTANTS = Few(SMALL_GEOMETRY, depth=1.8, radius_half=0.9, radius_most=2.6, deposit=0.4, least=0.02)


def uneven_showers(*, events: int, seed: int = 0) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Cells, energies and angles of test showers with deposits of all sizes, also below the threshold of a hit."""
    made = make_showers(events=events, seed=seed)
    spread = np.random.default_rng(seed).lognormal(-0.5, 1.0, made.cells.shape)
    return (made.cells * spread).astype(np.float32), made.energy_gev, made.theta_rad


def as_batch(
    cells: FloatArray, energy_gev: FloatArray, theta_rad: FloatArray, *, longest: int = 0
) -> dict[str, tf.Tensor]:
    """The showers as lists of hits, as from `decode_hits`; lists are as long as the longest one, or `longest`."""
    flat = cells.reshape(len(cells), -1)
    length = max(int((flat > 0).sum(1).max()), longest)
    place = np.full((len(flat), length), -1, np.int32)
    value = np.zeros((len(flat), length), np.float32)
    for number, shower in enumerate(flat):
        hit = np.flatnonzero(shower)
        place[number, : len(hit)], value[number, : len(hit)] = hit, shower[hit]
    found = {"cell": place, "value": value, "energy_gev": energy_gev, "theta_rad": theta_rad}
    return {name: tf.constant(each) for name, each in found.items()}


def labels_of(batch: Batch) -> Labels:
    """The labels of showers that have only energy and angle."""
    return Labels.of(batch, NO_LABELS)


def reflected(cells: FloatArray, theta_rad: FloatArray, phi_rad: FloatArray | None = None) -> tuple[Hits, Any, Any]:
    """Hits, axes and offsets of showers of 100 GeV."""
    batch = as_batch(cells, np.full_like(theta_rad, 100), theta_rad)
    labels = replace(labels_of(batch), phi=None if phi_rad is None else tf.constant(phi_rad))
    return reflect(batch["cell"], batch["value"], labels, CONSTANTS)


def adapted(geometry: Geometry, *batches: Batch) -> Autoregressive:
    """A model with its initial weights and the constants of the showers of `batches`."""
    model = build(CONFIG, geometry)
    assert isinstance(model, Autoregressive)
    labels = {name: np.concatenate([batch[name] for batch in batches]) for name in ("energy_gev", "theta_rad")}
    ends = {name: (each.min(), each.max()) for name, each in labels.items()}
    model.adapt(batches, SimpleNamespace(valid_range=ends))  # type: ignore[arg-type]
    return model


def new_model() -> Autoregressive:
    """A model with its initial weights and the constants of 300 test showers."""
    model = build(CONFIG, SMALL_GEOMETRY)
    assert isinstance(model, Autoregressive)
    model.networks["constants"].set_weights(_constants())
    return model


def cells_of(model: Autoregressive) -> list[Any]:
    """The densities of the even and of the odd cells."""
    return [model.networks[name] for name in ("even", "odd")]


def uneven(weights: Iterable[Any], size: float, seed: int = 2) -> None:
    """Change weights by as much as a training might change them."""
    rng = np.random.default_rng(seed)
    for weight in weights:
        weight.assign(weight + size * rng.normal(size=weight.shape))


def of_every_cell(model: Autoregressive) -> Autoregressive:
    """The model with weights that give different values for every cell."""
    uneven((weight for density in cells_of(model) for weight in density.trainable_weights), 0.03, seed=4)
    return model


@functools.cache
def _constants() -> list[npt.NDArray[Any]]:
    cells, energy, theta = uneven_showers(events=300)
    parts = (slice(0, 150), slice(150, 300))
    batches = [as_batch(cells[part], energy[part], theta[part], longest=700) for part in parts]
    return adapted(SMALL_GEOMETRY, *batches).networks["constants"].get_weights()


def drawn(model: Autoregressive, energy_gev: Any, theta_rad: Any, noise: Any) -> FloatArray:
    """Showers of `noise`, in the graph."""
    return np.asarray(_graph(model)(tf.constant(energy_gev), tf.constant(theta_rad), tf.constant(noise)))


def in_graph(model: Autoregressive, capacity: int = 0, **options: Any) -> Any:
    """Showers of energies, angles and noise, as a function of the graph."""

    def showers(energy_gev: tf.Tensor, theta_rad: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        return drawn_showers(model.networks, Labels(energy_gev, theta_rad), noise, capacity)

    return tf.function(showers, autograph=False, **options)


@functools.cache
def _graph(model: Autoregressive) -> Any:
    numbers = [tf.TensorSpec(shape, tf.float32) for shape in ([None], [None], [None, model.noise_numbers])]
    return in_graph(model, input_signature=numbers)


def layer_drawing(model: Autoregressive, view: Batch, layer: int, images: tuple[Any, ...]) -> LayerDrawing:
    """The drawing of a layer of a view's two showers, after the scaled `images` of the two layers before it."""
    planned: Any = SimpleNamespace(axis=view["axis"], cells=tf.ones([2, model._store.mesh.layers]))
    planned.at = lambda _: SimpleNamespace(axis=view["axis"][:, layer], slope=view["slope"])
    of_layers = tf.pad(tf.reduce_sum(view["sums"], 2), [[0, 0], [2, 0], [0, 0]])
    sums = tf.stack([tf.reduce_sum(of_layers[:, : layer + 2], 1), of_layers[:, layer + 1], of_layers[:, layer]], 1)
    given = Given(model.networks, 0, planned, tf.zeros([2, 2], tf.int32), tf.zeros([2], tf.int32))
    return LayerDrawing(given, tf.constant(layer), images=tf.reshape(tf.stack(images), [-1]), sums=sums)


def independent(chance: Any, shower: Any, number: Any, uniform: Any, start: Any) -> Any:
    """Replaces `shared_energy.hit`; the number of hits does not count, cells are independent."""
    return uniform < chance


def noise_of(model: Autoregressive, showers: int, seed: int = 0) -> FloatArray:
    """Uniform numbers as in generation: multiples of 2^-24."""
    whole = np.random.default_rng(seed).integers(0, 2**24, (showers, model.noise_numbers))
    return (whole * 2.0**-24).astype(np.float32)
