"""All numbers that showers are drawn from, by name, for a program that draws them without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calopipe.labels import LabelRange
from calopipe.showers.cells import Geometry
from training.models.autoregressive import constants
from training.models.autoregressive.mesh import mesh_of
from training.models.autoregressive.sampling import proposals
from training.models.base import Array

_ONLY_IN_TRAINING = ("proposal",)
_WHOLE = ("far_table", "core")  # constants that are whole numbers


def arrays(networks: Mapping[str, Any], geometry: Geometry, labels: LabelRange) -> dict[str, Array]:
    """Weights as NETWORK.LAYER.WEIGHT, `constants` and tables of the `mesh`: float32, or int32 of whole numbers."""
    numbers: dict[str, Any] = {}
    for name, network in networks.items():
        if name != "constants":
            numbers |= {f"{name}.{weight.path.replace('/', '.')}": weight.numpy() for weight in network.weights}
    for name in constants.shapes(geometry, labels):
        if name not in _ONLY_IN_TRAINING:
            numbers[f"constants.{name}"] = networks["constants"][name].numpy()
    numbers |= {f"mesh.{name}": table for name, table in _mesh(geometry).items()}
    whole = {f"constants.{name}" for name in _WHOLE}
    return {
        name: np.asarray(array, np.float32 if array.dtype.kind == "f" and name not in whole else np.int32, order="C")
        for name, array in numbers.items()
    }


def _mesh(geometry: Geometry) -> dict[str, Array]:
    mesh = mesh_of(geometry)
    named = "x y ring log_area exists around mirror depth kind short_side per_unit middle most spare"
    return {name: getattr(mesh, name) for name in named.split()} | {
        "start": np.array(mesh.start),
        "lattice": np.array(mesh.lattice_shape),
        "levels": proposals.LEVELS,
    }
