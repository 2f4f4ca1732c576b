"""The reference's measured angle of a shower: its tilt, as seen in the cells."""

from __future__ import annotations

import numpy as np

from calopipe.showers.cells import EMPTY_SHOWER_ANGLE, Array, FloatArray, Geometry
from calopipe.showers.hits import Hits
from calopipe.showers.positions import positions

_SMALLEST_SQUARE = 1e-7  # keeps the square root away from zero, as the reference does


def angle_of_hits(hits: Hits, geometry: Geometry) -> FloatArray:
    """The measured angle (N,) of showers of this calorimeter, as it is recorded: a label that models are trained on.

    Where all layers are alike this is the reference's definition (`ecal_angle`, svalleco/3Dgan), in units of the index:
    the slope of the line from the shower's barycentre to each layer's, averaged over the layers that hold energy with
    the layer's depth as the weight. It is biased towards pi/2, which a shower along the layers' axis reads. A shower
    without energy reads 100.

    Where layers are listed, the same in space, from the places of the cells in mm. Layers whose cells all go round the
    axis tell nothing of the angle and are left out; a shower with energy in no others reads pi/2.
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
    """The angle of showers with so much energy in each layer (N, layer), and so large sums of energy times x and y;
    `depth` (layer,) is in the same unit of length.
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
