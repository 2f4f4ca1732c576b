"""The labels of showers beside energy and polar angle, as the densities are given them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from calopipe.labels import PARTICLE, PHI, LabelRange
from calopipe.showers.cells import Geometry
from training.models.autoregressive.mesh import Tensor, mesh_of

_PHI_TERMS, _KIND_TERMS = 4, 6


@dataclass(frozen=True)
class More:
    """Of N showers: the azimuth `phi` (N,) in rad, and `kinds` (N, K - 1), 1 for the particle's kind and 0 for others;
    the first of K kinds has none. None where showers have no such label.
    """

    phi: Tensor | None = None
    kinds: Tensor | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any], labels: LabelRange) -> More:
        """Those of the tensors in `given`, where the model's showers have `labels`."""
        kinds = None
        if len(labels.particle) > 1:
            kinds = tf.cast(
                tf.convert_to_tensor(given[PARTICLE])[:, None] == tf.constant(labels.particle[1:]), tf.float32
            )
        return cls(tf.convert_to_tensor(given[PHI]) if labels.phi_rad else None, kinds)

    def __getitem__(self, showers: Any) -> More:
        return More(*(None if label is None else tf.gather(label, showers) for label in (self.phi, self.kinds)))

    def reflected(self, geometry: Geometry) -> More:
        """Those of the showers reflected in x to phi >= 0, if the calorimeter is the same then."""
        if self.phi is None or not mesh_of(geometry).folds:
            return self
        return replace(self, phi=tf.abs(self.phi))

    def left(self, otherwise: Tensor) -> Tensor:
        """Which showers (N,) are to be reflected in x: by `otherwise` (N,) where they have no azimuth, or one of 0."""
        if self.phi is None:
            return otherwise
        return (self.phi < 0) | ((self.phi == 0) & otherwise)

    def terms(self, energy: Tensor, angle: Tensor, constants: Any) -> list[Tensor]:
        """(N,) each, from the scaled labels `energy` and `angle` (N,): `number_of_terms` polynomials of all labels."""
        polynomials = []
        if self.phi is not None:
            middle, half = constants["sin_phi"][0], constants["sin_phi"][1]
            phi = (tf.sin(self.phi) - middle) / half
            polynomials += [phi, phi * phi, phi * energy, phi * angle]
        if self.kinds is not None:
            for kind in tf.unstack(self.kinds, axis=1):
                polynomials += [kind * term for term in (1.0, energy, angle, energy**2, energy * angle, angle**2)]
        return polynomials


def number_of_terms(labels: LabelRange) -> int:
    return _PHI_TERMS * (labels.phi_rad is not None) + _KIND_TERMS * max(len(labels.particle) - 1, 0)


def shapes_of(labels: LabelRange) -> dict[str, tuple[int, ...]]:
    """Name and shape of the constants that these labels need."""
    return {"sin_phi": (2,)} if labels.phi_rad else {}


def constants_of(labels: LabelRange, geometry: Geometry) -> dict[str, Any]:
    """Middle and half width of the sine of the reflected azimuth."""
    if not labels.phi_rad:
        return {}
    low, high = labels.phi_rad
    if mesh_of(geometry).folds:
        low, high = (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
    ends = np.sin([low, high])
    return {"sin_phi": [ends.mean(), max(float(np.ptp(ends)) / 2, 1e-3)]}


def particle_slopes(theta_rad: Tensor, more: More | None, geometry: Geometry) -> tuple[Tensor, Tensor | None]:
    """Cells a layer by which a particle of polar angle `theta_rad` (N,), at most pi/2, moves along y, and along x."""
    unit = geometry.layer_pitch_mm / geometry.cell_mm
    if more is None or more.phi is None:
        return unit / tf.tan(theta_rad), None
    return unit / (tf.tan(theta_rad) * tf.cos(more.phi)), unit * tf.tan(more.phi)
