"""Where cells are proposed, against the places of the cells themselves."""

from __future__ import annotations

import numpy as np

from calopipe.showers.cells import Geometry, Layer
from calopipe.showers.positions import positions
from training.models.autoregressive.mesh import Mesh


def test_the_lattice_is_as_far_as_cells_can_be_from_an_axis_in_its_middle_cell() -> None:
    """Odd numbers of cells have one in the middle: the lattice about it is the layer itself."""
    geometry = Geometry.of_layers(
        [Layer(5.0, 1.0, (9, 7), size_mm=(4.0, 6.0)), Layer(5.0, 1.0, (9, 7), size_mm=(12.0, 3.0))], 0.001
    )
    mesh = Mesh(geometry)
    assert mesh.lattice_shape == (9, 7)
    there = positions(geometry)
    for layer, size in enumerate(((4.0, 6.0), (12.0, 3.0))):
        axes = np.stack(np.meshgrid(*(np.linspace(-each / 2, each / 2, 101) for each in size)), -1).reshape(-1, 2)
        away = np.stack([there.x_mm[layer], there.y_mm[layer]], -1)[:, None] - axes
        np.testing.assert_allclose(
            mesh.lattice_radius()[layer] * geometry.cell_mm, np.hypot(*away.T).min(0), rtol=1e-5, atol=1e-5
        )
