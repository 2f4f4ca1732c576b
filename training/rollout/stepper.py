"""A trained model of a flow, ready to make the next frame: one compiled step for all frames of a shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from calopipe import storage
from calopipe.errors import InputError
from calopipe.flow.files import START, FloatArray, FlowFile
from training.load_model import load_model
from training.models.flow import FlowModel

_SAME = 1e-3  # relative: a Reynolds number may be so far outside of the training's range


class Stepper:
    """The model in the folder `place`. InputError: it is not a model of flows."""

    def __init__(self, place: Path) -> None:
        self.card, network = load_model(place)
        if not isinstance(network, FlowModel):
            raise InputError(f"{place}: a model {self.card.config.model}, which makes no flow; give another")
        self.model = network
        self._step = tf.function(network.advance, autograph=False)

    def attributes(self, start: Path) -> dict[str, Any]:
        """Attributes for a file that this model makes from the file `start`."""
        card = self.card
        return {
            "solver": f"the model {card.config.model}",
            "model": card.fingerprint(),
            "seed": card.config.seed,
            "start_file": start.name,
            START: storage.sha256_of_file(start),
        }

    def step(self, velocity: FloatArray, solid: npt.NDArray[np.bool_], reynolds: FloatArray) -> FloatArray:
        """The `velocity` (N, x, y, 2) one interval later, with obstacles `solid` (N, x, y) and `reynolds` (N,)."""
        tensors = (tf.constant(values, tf.float32) for values in (velocity, solid, reynolds))
        return self._step(*tensors).numpy()

    def require_fitting(self, flow: FlowFile) -> None:
        """Raise InputError unless `flow` has the model's cells, and a Reynolds number that the model was trained for.

        The time between its frames may differ from the model's interval: the model needs only one frame.
        """
        grid = self.card.geometry
        if differs := grid.difference(replace(flow.grid, interval_d=grid.interval_d)):
            name, own, stored = differs
            raise InputError(f"{flow.path}: {name} is {stored}, the model was trained on {own}; give frames like those")
        low, high = self.card.valid_range["reynolds"]
        if not low * (1 - _SAME) <= flow.reynolds <= high * (1 + _SAME):
            raise InputError(
                f"{flow.path}: Reynolds number {flow.reynolds:g}, the model is valid from {low:g} to {high:g}; give "
                "another simulation, or train on more"
            )
