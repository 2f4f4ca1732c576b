"""Places, areas and neighbours of cells, against points in the plane."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calopipe.errors import InputError
from calopipe.showers.cells import RADIATION_LENGTHS_MM, Geometry, Layer
from calopipe.showers.detectors import detectors
from calopipe.showers.positions import nearest, place_at, positions, steps, voxel_order

RINGS = Geometry.of_layers(
    [
        Layer(2.0, 0.5, (8, 3), r_edges_mm=(0.0, 2.0, 5.0, 9.0)),
        Layer(4.0, 1.0, (4, 2), r_edges_mm=(0.0, 6.0, 9.0)),
        Layer(1.0, 0.2, (1, 2), r_edges_mm=(1.0, 3.0, 9.0)),
    ],
    1.0,
)
BLOCKS = Geometry.of_layers(
    [Layer(2.0, 0.5, (6, 4), size_mm=(1.0, 3.0)), Layer(4.0, 1.0, (3, 5), size_mm=(2.0, 2.0))], 1.0
)
UNIFORM = Geometry((5, 4, 3), cell_mm=2.0, layer_pitch_mm=3.0, x0_per_layer=1.5, file_unit_gev=1.0)


def _cell_at(geometry: Geometry, layer: int, x: float, y: float) -> int:
    """The place of the cell that holds a point, -1 for no cell, by the definition of the cells alone."""
    found = geometry.every_layer[layer]
    n, m = found.cells
    if found.r_edges_mm is None:
        size = found.size_mm or (0.0, 0.0)
        first, second = np.floor(x / size[0] + n / 2), np.floor(y / size[1] + m / 2)
    else:
        angle = (np.degrees(np.arctan2(y, x)) + 180) % 360
        first = angle // (360 / n)
        second = float(sum(np.hypot(x, y) >= edge for edge in found.r_edges_mm)) - 1
    inside = 0 <= first < n and 0 <= second < m
    return int(first * geometry.shape[1] + second) if inside else -1


def _cells(geometry: Geometry, layer: int) -> list[tuple[int, int, int]]:
    n, m = geometry.every_layer[layer].cells
    return [(a, b, a * geometry.shape[1] + b) for a in range(n) for b in range(m)]


@pytest.mark.parametrize("geometry", [RINGS, BLOCKS, UNIFORM, detectors()["calochallenge-1-photons"]])
def test_the_middle_of_a_cell_is_in_it_and_areas_are_those_of_rings_and_rectangles(geometry: Geometry) -> None:
    found = positions(geometry)
    assert found.exists.sum() == geometry.voxels
    for layer, each in enumerate(geometry.every_layer):
        exists = [place for _, _, place in _cells(geometry, layer)]
        assert np.flatnonzero(found.exists[layer]).tolist() == exists
        for place in exists if each.cells[0] > 1 else ():
            assert _cell_at(geometry, layer, found.x_mm[layer, place], found.y_mm[layer, place]) == place
        if each.r_edges_mm is None:
            area = np.full(each.cells, np.prod(each.size_mm or ()))
        else:
            area = np.broadcast_to(np.pi * np.diff(np.square(each.r_edges_mm)) / each.cells[0], each.cells)
        np.testing.assert_allclose(found.area_mm2[layer, exists], area.ravel())


def test_radiation_lengths_are_those_of_the_particle_data_group() -> None:
    """X0 in g/cm2 over the density in g/cm3: Review of Particle Physics, atomic and nuclear properties."""
    published = {
        "Al": (24.01, 2.699), "Ar": (19.55, 1.662e-3), "BGO": (7.97, 7.130), "CsI": (8.39, 4.51), "Cu": (12.86, 8.960),
        "Fe": (13.84, 7.874), "LAr": (19.55, 1.396), "LKr": (11.37, 2.418), "LXe": (8.48, 2.953), "NaI": (9.49, 3.667),
        "Pb": (6.37, 11.35), "PbWO4": (7.39, 8.30), "Si": (21.82, 2.329), "Sn": (8.82, 7.31), "U": (6.00, 18.95),
        "W": (6.76, 19.30), "polystyrene": (43.79, 1.060),
    }  # fmt: skip
    assert {name: 10 * depth / density for name, (depth, density) in published.items()} == pytest.approx(
        RADIATION_LENGTHS_MM, rel=2e-3
    )


_SQUARE = {"pitch_mm": 1.0, "x0": 1.0, "cells": (2, 2), "size_mm": (1.0, 1.0)}
_UNIFORM = {"shape": (2, 2, 2), "cell_mm": 1.0, "layer_pitch_mm": 1.0, "x0_per_layer": 1.0, "file_unit_gev": 1.0}


@pytest.mark.parametrize(
    "changed",
    [
        {"pitch_mm": 0.0}, {"pitch_mm": np.inf}, {"x0": 0.0}, {"x0": np.inf}, {"x0": np.nan}, {"cells": (2, 0)},
        {"cells": (2, 2, 2)}, {"size_mm": (1.0, 0.0)}, {"size_mm": (1.0,) * 3}, {"size_mm": (np.inf, 1.0)},
        {"size_mm": None}, {"r_edges_mm": (0.0, 1.0, 2.0)}, {"shape": (2, 2)}, {"shape": (2, 0, 2)},
        *(
            {"size_mm": None, "r_edges_mm": edges}
            for edges in ((-1.0, 2.0, 3.0), (0.0, 2.0, 2.0), (0.0, 3.0, 2.0), (0.0, 1.0), (0.0, 1.0, np.inf))
        ),
        *({name: value} for name in list(_UNIFORM)[1:] for value in (0.0, -1.0, np.inf, np.nan)),
    ],
)  # fmt: skip
def test_what_is_no_calorimeter_is_refused(changed: dict[str, Any]) -> None:
    of, sound = (Layer, _SQUARE) if set(changed) <= {*_SQUARE, "r_edges_mm"} else (Geometry, _UNIFORM)
    of(**sound)
    with pytest.raises(InputError, match=r"^geometry: "):
        of(**{**sound, **changed})


_LISTED = replace(BLOCKS, layers=(BLOCKS.layers[0], replace(BLOCKS.layers[1], x0=2.0)))


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (UNIFORM, UNIFORM, None),
        (UNIFORM, replace(UNIFORM, cell_mm=2.5), ("cell_mm", "2.0", "2.5")),
        (UNIFORM, replace(UNIFORM, layer_pitch_mm=4.0), ("layer_pitch_mm", "3.0", "4.0")),
        (UNIFORM, replace(UNIFORM, x0_per_layer=1.0), ("x0_per_layer", "1.5", "1.0")),
        (UNIFORM, BLOCKS, ("shape", "(5, 4, 3)", "(6, 5, 2)")),
        (BLOCKS, _LISTED, ("layer 1", str(BLOCKS.layers[1]), str(_LISTED.layers[1]))),
    ],
)
def test_the_first_difference_is_told_and_the_unit_where_it_counts(
    one: Geometry, other: Geometry, told: tuple[str, str, str] | None
) -> None:
    assert one.difference(other) == told
    changed = replace(one, file_unit_gev=2.0)
    assert one.difference(changed) is None
    assert one.difference(changed, unit=True) == ("file_unit_gev", "1.0", "2.0")


def test_layers_are_described_in_words() -> None:
    assert str(BLOCKS.layers[0]) == "6 x 4 cells of 1, 3 mm, 2 mm and 0.5 X0 thick"
    assert str(RINGS.layers[1]) == "4 angles x 2 rings between 0, 6, 9 mm, 4 mm and 1 X0 thick"


def test_a_point_on_an_edge_is_in_the_cell_of_higher_coordinates_and_one_outside_in_none() -> None:
    """Up to the rounding of a sum: a point a ten-thousandth of a cell below the edge is in the lower cell."""
    x = np.array([-1.0, 1.0, -1.0001, 0.9998, 4.9999, 5.0, -5.0, -5.0001, np.nan])  # of 5 by 4 cells of 2 mm
    places = place_at(UNIFORM, 0, x, np.zeros(9))
    assert [place // 4 if place >= 0 else None for place in places] == [2, 3, 1, 2, 4, None, 0, None, None]
    assert {place % 4 for place in places if place >= 0} == {2}
    radius = np.array([0.0, 1.999, 2.0, 4.9999, 5.0, 8.9999, 9.0])
    inner = place_at(RINGS, 0, radius * np.cos(0.1), radius * np.sin(0.1))
    assert [place % 3 if place >= 0 else None for place in inner] == [0, 0, 1, 1, 2, 2, None]
    outer = place_at(RINGS, 2, np.array([0.5, 1.0, 2.9999, 3.0]), np.zeros(4))
    assert outer.tolist() == [-1, 0, 0, 1]


def test_depths_and_rings_about_the_axis_which_have_a_radius_and_no_direction() -> None:
    found = positions(RINGS)
    assert found.z_mm.tolist() == [1, 4, 6.5]
    assert found.z_x0.tolist() == pytest.approx([0.25, 1.0, 1.6])
    np.testing.assert_allclose(positions(UNIFORM).z_x0, [0.75, 2.25, 3.75])
    assert found.x_mm[2, :2].tolist() == found.y_mm[2, :2].tolist() == [0, 0]
    assert found.ring_mm[2, :2].tolist() == found.r_mm[2, :2].tolist() == [2, 6]
    assert (found.ring_mm[0] == 0).all()
    np.testing.assert_allclose(found.r_mm[0].reshape(8, 3), [[1, 3.5, 7]] * 8)


def _beyond(layer: Layer, a: int, b: int) -> dict[tuple[int, int], tuple[float, float]]:
    """A point (x, y) just beyond the middle of each edge of the cell (a, b), by the index that a step across it has."""
    near, n = 1e-3, layer.cells[0]
    if layer.size_mm is not None:
        x, y = ((k + 0.5 - count / 2) * mm for k, count, mm in zip((a, b), layer.cells, layer.size_mm, strict=True))
        dx, dy = (mm / 2 + near for mm in layer.size_mm)
        return {(a + 1, b): (x + dx, y), (a - 1, b): (x - dx, y), (a, b + 1): (x, y + dy), (a, b - 1): (x, y - dy)}
    edges, angle, half = layer.r_edges_mm, -np.pi + (a + 0.5) * 2 * np.pi / n, np.pi / n + near
    radius = (edges[b] + edges[b + 1]) / 2
    polar = {
        (a + 1, b): (radius, angle + half),
        (a - 1, b): (radius, angle - half),
        (a, b + 1): (edges[b + 1] + near, angle),
        (a, b - 1): (edges[b] - near, angle),
    }
    return {index: (r * np.cos(phi), r * np.sin(phi)) for index, (r, phi) in polar.items()}


@pytest.mark.parametrize(
    ("geometry", "layer"), [(RINGS, 0), (RINGS, 1), (RINGS, 2), (BLOCKS, 0), (BLOCKS, 1), (UNIFORM, 2)]
)
def test_a_step_leads_to_the_cell_beyond_the_edge(geometry: Geometry, layer: int) -> None:
    """Beyond the axis this is the opposite cell. Into a hole there is no cell; a step round the axis leads back."""
    for a, b, _ in _cells(geometry, layer):
        for (first, second), point in _beyond(geometry.every_layer[layer], a, b).items():
            place, exists = steps(geometry, layer, np.array(first), np.array(second))
            expected = _cell_at(geometry, layer, *point)
            assert (int(place), bool(exists)) == (expected, expected >= 0), (a, b, first, second)


@pytest.mark.parametrize("geometry", [RINGS, BLOCKS, UNIFORM, detectors()["calochallenge-1-pions"]])
def test_the_cell_at_the_same_place_of_another_layer(geometry: Geometry) -> None:
    """By the point in the middle, which is moved a little to higher coordinates, as points on an edge count there."""
    found, hair = positions(geometry), 1e-6
    for layer, each in enumerate(geometry.every_layer):
        for other, to in enumerate(geometry.every_layer):
            result = nearest(geometry, layer, other)
            assert (result[~found.exists[layer]] == -1).all()
            for _, _, place in _cells(geometry, layer):
                x, y = found.x_mm[layer, place] + hair, found.y_mm[layer, place] + hair
                if geometry.rings:
                    angle = (np.arctan2(y, x) if each.cells[0] > 1 else 0.0) + hair
                    x, y = ((found.r_mm[layer, place] + hair) * along(angle) for along in (np.cos, np.sin))
                assert result[place] == _cell_at(geometry, other, x, y), (layer, other, place, to)


def test_what_is_remembered_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        positions(RINGS).x_mm[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        voxel_order(RINGS)[0] = 0
