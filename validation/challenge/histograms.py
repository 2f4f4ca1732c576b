"""Separation powers of CaloChallenge: its observables, its histograms and their edges.

As in evaluate_plotting_helper.py of the public repository CaloChallenge/homepage: S = 1/2 sum (h1 - h2)^2 / (h1 + h2)
of two histograms that are each normalised to one within the edges. What lies beyond the edges counts nowhere. Unlike
the criteria of the verdict, nothing is subtracted for chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from calopipe.showers.cells import Geometry
from calopipe.showers.challenge.highlevel import Array, HighLevel, layers_with_angles
from validation.statistics.estimates import separation

# Of a cell in MeV: the readout threshold of datasets 2 and 3, 0.5 keV in silicon over its sampling fraction 0.033.
_LEAST_OF_ELECTRONS, _LEAST_OF_ATLAS = 0.5e-3 / 0.033, 10.0
_LAYER_EDGES, VOXEL_EDGES, _SPARSITY_EDGES = 40, 50, 20
# Outermost radius of a layer in mm, and the ends of its histograms of centres (both signs) and of widths: datasets 2
# and 3; the layers EM1 and EM2 of dataset 1; its tile layers.
_LENGTHS = ((100.0, 30.0, 30.0), (1000.0, 100.0, 100.0), (np.inf, 500.0, 400.0))


def least_mev(geometry: Geometry) -> float:
    """Where histograms of energies begin."""
    fine = max(layer.r_edges_mm[-1] for layer in geometry.layers if layer.r_edges_mm) < _LENGTHS[0][0]
    return _LEAST_OF_ELECTRONS if fine else _LEAST_OF_ATLAS


def energy_edges(geometry: Geometry, largest_mev: float, count: int) -> Array:
    """`count` edges, equal steps in the logarithm from the least energy to the largest of Monte Carlo's.

    The largest is within the last edge. As published, the last bit of a logarithm decides that.
    """
    low, high = least_mev(geometry), max(largest_mev, 2 * least_mev(geometry))
    edges = np.logspace(np.log10(low), np.log10(high), count)
    edges[-1] = high
    return edges


class Histograms:
    """The histograms of one set of showers, filled piece by piece; their edges are Monte Carlo's."""

    def __init__(self, geometry: Geometry, largest_layer_mev: Array) -> None:
        self._edges = {name: list(edges) for name, edges in _edges(geometry, largest_layer_mev).items()}
        self.counts = {name: [np.zeros(len(ends) - 1) for ends in edges] for name, edges in self._edges.items()}

    def add(self, features: HighLevel) -> None:
        values = {
            "total": (features.total_mev / features.incident_mev)[:, None], "layer": features.layer_mev,
            "x": features.x_mm, "y": features.y_mm, "x_width": features.x_width_mm, "y_width": features.y_width_mm,
            "sparsity": 1 - features.sparsity,
        }  # fmt: skip
        for name, edges in self._edges.items():
            for number, ends in enumerate(edges):
                self.counts[name][number] += np.histogram(values[name][:, number], ends)[0]


def _edges(geometry: Geometry, largest_layer_mev: Array) -> dict[str, Iterator[Array]]:
    angles = layers_with_angles(geometry)

    def lengths(place: int) -> Iterable[Array]:
        for number in angles:
            outermost = geometry.layers[number].r_edges_mm[-1]
            end = next(ends for ends in _LENGTHS if outermost < ends[0])[place]
            yield np.linspace(-end if place == 1 else 0.0, end, 101)

    return {
        "total": iter([np.linspace(0.5, 1.5, 101)]),
        "layer": (energy_edges(geometry, largest, _LAYER_EDGES) for largest in largest_layer_mev),
        "x": iter(lengths(1)),
        "y": iter(lengths(1)),
        "x_width": iter(lengths(2)),
        "y_width": iter(lengths(2)),
        "sparsity": (np.linspace(0, 1, _SPARSITY_EDGES) for _ in geometry.layers),
    }


def separations(reference: Histograms, candidate: Histograms) -> dict[str, list[float]]:
    """The separation power of each layer, by observable; one number for the total energy."""
    return {
        name: [float(separation(*pair)) for pair in zip(counts, candidate.counts[name], strict=True)]
        for name, counts in reference.counts.items()
    }
