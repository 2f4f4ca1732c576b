"""The reference's measured angle of a shower: its tilt, as seen in the cells."""

from __future__ import annotations

import numpy as np

from calopipe.showers.cells import EMPTY_SHOWER_ANGLE, Array, FloatArray, Geometry
from calopipe.showers.hits import Hits
from calopipe.showers.positions import positions

_SMALLEST_SQUARE = 1e-7  # keeps the square root away from zero, as the reference does


def angle_of_hits(hits: Hits, geometry: Geometry) -> FloatArray:
    """The measured angle (N,) of showers of this calorimeter, which models are trained on as a label.

    If all layers are alike, this is the reference's definition (`ecal_angle`, svalleco/3Dgan), in units of the index.
    A line goes from the barycentre of the shower to the barycentre of each layer that holds energy. The angle is the
    mean of the angles of these lines, weighted by the layers' depth. It is biased towards pi/2, the angle of a shower
    along the axis. A shower without energy has 100.

    If layers are listed, the angle is computed in the same way from the places of the cells in mm. Layers whose cells
    all go round the axis hold no information on the angle and are left out. A shower with energy only there has pi/2.
    """
    where = positions(geometry)
    place, layer = np.divmod(hits.cell, geometry.shape[2])
    across, deep = (1.0, 1.0) if geometry.layers else (geometry.cell_mm, geometry.layer_pitch_mm)
    value = np.where(where.ring_mm[layer, place] > 0, 0.0, hits.value.astype(np.float64))
    lengths = (1.0, where.x_mm[layer, place] / across, where.y_mm[layer, place] / across)
    energy, x_moment, y_moment = (hits.in_layers(value * length) for length in lengths)
    angle = angle_of_moments(energy, x_moment, y_moment, where.z_mm / deep)
    untold = (energy.sum(axis=1) == 0) & (hits.sums() > 0)
    return np.where(untold, np.float32(np.pi / 2), angle)


def angle_of_cells(cells: FloatArray, geometry: Geometry) -> FloatArray:
    """`angle_of_hits` of dense showers `cells` (N, x, y, layer)."""
    return angle_of_hits(Hits.of(cells), geometry)


def angle_of_moments(layer_energy: Array, x_moment: Array, y_moment: Array, depth: Array) -> FloatArray:
    """The angle (N,) of showers from the energy in each layer (N, layer), and the sums of energy times x and times y,
    (N, layer) each. `depth` (layer,) is in the same unit of length as x and y.
    """
    total = layer_energy.sum(axis=1)  # (N,)
    filled = layer_energy > 0
    layer_divisor = np.where(filled, layer_energy, 1.0)
    divisor = np.where(total > 0, total, 1.0)[:, None]

    x_offset = x_moment / layer_divisor - x_moment.sum(axis=1, keepdims=True) / divisor
    y_offset = y_moment / layer_divisor - y_moment.sum(axis=1, keepdims=True) / divisor
    z_offset = depth - (layer_energy @ depth)[:, None] / divisor

    distance = np.sqrt(np.maximum(x_offset**2 + z_offset**2, _SMALLEST_SQUARE))
    slope = np.where(z_offset < 0, -1.0, 1.0) * y_offset / distance
    weight = np.where(filled, depth, 0.0)
    weight_sum = np.where(total > 0, weight.sum(axis=1), 1.0)
    angle = ((np.pi / 2 - np.arctan(slope)) * weight).sum(axis=1) / weight_sum
    return np.where(total > 0, angle, EMPTY_SHOWER_ANGLE).astype(np.float32)
