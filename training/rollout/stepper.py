"""A trained model of a flow, ready to make the next frame: one compiled step for all frames of a shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from calopipe.errors import InputError
from training.loading import load
from training.models.flow import FlowModel

FloatArray = npt.NDArray[np.float32]


class Stepper:
    """The model in the folder `place`. InputError where it is of another field."""

    def __init__(self, place: Path) -> None:
        self.card, found = load(place)
        if not isinstance(found, FlowModel):
            raise InputError(f"{place}: a model {self.card.config.model}, which makes no flow; give another")
        self.model = found
        self._step = tf.function(found.advance, reduce_retracing=False)

    @property
    def compiled(self) -> int:
        """How many forms of the step have been compiled: one for each shape of frames."""
        count: int = self._step.experimental_get_tracing_count()
        return count

    def step(self, velocity: FloatArray, solid: npt.NDArray[np.bool_], reynolds: FloatArray) -> FloatArray:
        """The velocity (N, x, y, 2) one interval later, of `solid` (N, x, y) and `reynolds` (N,)."""
        given = (tf.constant(values, tf.float32) for values in (velocity, solid, reynolds))
        made: FloatArray = self._step(*given).numpy()
        return made
