"""Separation powers of CaloChallenge: its observables, its histograms and their edges.

As in evaluate_plotting_helper.py of the public repository CaloChallenge/homepage: S = 1/2 sum (h1 - h2)^2 / (h1 + h2)
of two histograms that are each normalised to one within the edges. Values beyond the edges do not count. Unlike in the
criteria of the verdict, the S that chance alone gives is not subtracted.
"""

from __future__ import annotations

import numpy as np

from calopipe.showers.calochallenge.highlevel import HighLevel, layers_with_angles
from calopipe.showers.cells import Array, Geometry
from validation.statistics.resampling import separation

# The least energy of a cell in MeV. Datasets 2 and 3: the readout threshold, 0.5 keV in silicon, over the sampling
# fraction of silicon, 0.033. Then that of ATLAS's dataset 1.
_LEAST_OF_ELECTRONS, _LEAST_OF_ATLAS = 0.5e-3 / 0.033, 10.0
_LAYER_EDGES, _CELL_EDGES, _SPARSITY_EDGES = 40, 50, 20
# Limit of a layer's outermost radius in mm, and the ends of its histograms of centres (both signs) and of widths. Rows:
# datasets 2 and 3; the layers EM1 and EM2 of dataset 1; the tile layers of dataset 1.
_LENGTHS = ((100.0, 30.0, 30.0), (1000.0, 100.0, 100.0), (np.inf, 500.0, 400.0))


def least_mev(geometry: Geometry) -> float:
    """The energy in MeV at which histograms of energies begin."""
    fine = max(layer.r_edges_mm[-1] for layer in geometry.layers if layer.r_edges_mm) < _LENGTHS[0][0]
    return _LEAST_OF_ELECTRONS if fine else _LEAST_OF_ATLAS


def energy_edges(geometry: Geometry, largest_mev: float, count: int) -> Array:
    """`count` edges, in equal steps of the logarithm, from the least energy to Monte Carlo's largest energy.

    The largest energy is within the last edge. In the published code the last bit of a logarithm decides that.
    """
    low, high = least_mev(geometry), max(largest_mev, 2 * least_mev(geometry))
    edges = np.logspace(np.log10(low), np.log10(high), count)
    edges[-1] = high
    return edges


class Histograms:
    """The histograms of one set of showers, filled piece by piece. Monte Carlo's largest energies set their edges."""

    def __init__(self, geometry: Geometry, largest_layer_mev: Array, largest_cell_mev: float) -> None:
        self._edges = _edges(geometry, largest_layer_mev, largest_cell_mev)
        self.counts = {name: [np.zeros(len(ends) - 1) for ends in edges] for name, edges in self._edges.items()}

    def add(self, features: HighLevel, cells: Array) -> None:
        """Add n showers. `cells` (n, cells) are the energies of their existing cells, in MeV."""
        values = {
            "total": (features.total_mev / features.incident_mev)[:, None], "layer": features.layer_mev,
            "x": features.x_mm, "y": features.y_mm, "x_width": features.x_width_mm, "y_width": features.y_width_mm,
            "sparsity": 1 - features.sparsity, "cells": cells.reshape(-1, 1),
        }  # fmt: skip
        for name, edges in self._edges.items():
            for number, ends in enumerate(edges):
                self.counts[name][number] += np.histogram(values[name][:, number], ends)[0]


def _edges(geometry: Geometry, largest_layer_mev: Array, largest_cell_mev: float) -> dict[str, list[Array]]:
    outermost = [geometry.layers[number].r_edges_mm[-1] for number in layers_with_angles(geometry)]
    ends = [next(length for length in _LENGTHS if radius < length[0]) for radius in outermost]
    centres = [np.linspace(-centre, centre, 101) for _, centre, _ in ends]
    widths = [np.linspace(0.0, width, 101) for _, _, width in ends]
    return {
        "total": [np.linspace(0.5, 1.5, 101)],
        "layer": [energy_edges(geometry, largest, _LAYER_EDGES) for largest in largest_layer_mev],
        "x": centres,
        "y": centres,
        "x_width": widths,
        "y_width": widths,
        "sparsity": [np.linspace(0, 1, _SPARSITY_EDGES)] * len(geometry.layers),
        "cells": [energy_edges(geometry, largest_cell_mev, _CELL_EDGES)],
    }


def separations(reference: Histograms, candidate: Histograms) -> dict[str, list[float]]:
    """The separation powers by observable, a list over layers; for total energy and for cells it has one number."""
    return {
        name: [float(separation(*pair)) for pair in zip(counts, candidate.counts[name], strict=True)]
        for name, counts in reference.counts.items()
    }
