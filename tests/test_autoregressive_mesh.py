"""Where cells are proposed, against the places of the cells themselves."""

from __future__ import annotations

import numpy as np

from calopipe.showers.cells import Geometry, Layer
from calopipe.showers.positions import positions
from training.models.autoregressive.mesh import Mesh


def test_the_lattice_has_the_radii_of_the_cells_also_where_their_sizes_differ() -> None:
    """Odd numbers of cells have one in the middle, on the axis: the lattice about it is the layer itself."""
    geometry = Geometry.of_layers(
        [Layer(5.0, 1.0, (9, 7), size_mm=(4.0, 6.0)), Layer(5.0, 1.0, (9, 7), size_mm=(12.0, 3.0))], 0.001
    )
    mesh = Mesh(geometry)
    assert mesh.lattice_shape == (9, 7)
    np.testing.assert_allclose(mesh.lattice_radius() * geometry.cell_mm, positions(geometry).r_mm, rtol=1e-5, atol=1e-5)
