"""Where cells are proposed, against the places of the cells themselves."""

from __future__ import annotations

import numpy as np

from calopipe.showers.cells import FloatArray, Geometry, Layer
from calopipe.showers.positions import positions
from training.models.autoregressive.mesh import Mesh

_SIZES = ((4.0, 6.0), (12.0, 3.0))


def _mesh() -> Mesh:
    return Mesh(Geometry.of_layers([Layer(5.0, 1.0, (9, 7), size_mm=size) for size in _SIZES], 0.001))


def _squares(size: tuple[float, float]) -> FloatArray:
    """Middles (K, 2), in mm from a cell's middle, of some of the squares of its shorter side that it consists of."""
    ends = (np.array(size) - min(size)) / 2
    return np.stack(np.meshgrid(*(np.linspace(-end, end, 241 if end else 1) for end in ends)), -1).reshape(-1, 2)


def test_a_cell_is_as_far_as_the_nearest_of_its_squares() -> None:
    """In units of their side; and the lattice as near as cells can be to an axis in its middle cell.

    Odd numbers of cells have one in the middle: the lattice about it is the layer itself.
    """
    mesh = _mesh()
    assert mesh.lattice_shape == (9, 7)
    there, axis = positions(mesh.geometry), np.array([1.3, -0.4])
    for layer, size in enumerate(_SIZES):
        squares = np.stack([there.x_mm[layer], there.y_mm[layer]], -1)[:, None] + _squares(size)
        nearest = np.hypot(*(squares - axis).T).min(0) / min(size)
        away = (np.stack([mesh.x[layer], mesh.y[layer]]) - axis[:, None] / mesh.geometry.cell_mm).astype(np.float32)
        *along, seen = mesh.seen(*away, np.zeros(63, np.float32), np.full(63, layer))
        np.testing.assert_allclose(along, away * mesh.geometry.cell_mm / min(size), rtol=1e-5)
        np.testing.assert_allclose(seen, nearest, atol=0.02)  # squares lie up to .05 mm apart
        axes = np.stack(np.meshgrid(*(np.linspace(-each / 2, each / 2, 25) for each in size)), -1).reshape(-1, 2)
        away = np.hypot(*(squares[:, :, None] - axes).T).min((0, 1)) / min(size)
        np.testing.assert_allclose(mesh.lattice_radius()[layer], away, atol=0.02)


def test_squares_of_one_size_are_as_far_as_they_are() -> None:
    """To the bit: in units of the calorimeter's cells."""
    mesh = Mesh(Geometry.of_layers([Layer(5.0, 1.0, (9, 7), size_mm=(5.1, 5.1))] * 2, 0.001))
    away = np.random.default_rng(1).normal(size=(2, 50)).astype(np.float32)
    *along, seen = mesh.seen(*away, np.zeros(50, np.float32), np.zeros(50, int))
    np.testing.assert_array_equal(along, away)
    np.testing.assert_allclose(seen, np.hypot(*away), rtol=1e-6)
