"""A shower about its axis: the place of the axis, invariance under reflections, and the sums over the layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from likelihoods import CONSTANTS, LAYERS, Few, as_batch, labels_of, reflected, uneven_showers
from showers import SMALL_GEOMETRY, make_labelled_showers

from calopipe.labels import PHI
from calopipe.showers.cells import Geometry, Layer
from calopipe.showers.positions import positions
from training.models.autoregressive import frame
from training.models.autoregressive.frame import SUMS, Hits, Labels


def test_cells_count_for_the_axis_by_how_narrow_and_how_near_they_are() -> None:
    """Against NumPy's weighted fit with inverse errors as weights, for strips that lie across and along x by turns.

    The fit is repeated: a deposit that is one of its cells away from the axis counts half as much in the next fit. The
    slope in y is that beside the slope of the particle.
    """
    strips = [Layer(5.0, 1.0, cells, size_mm=size) for cells, size in (((12, 3), (5.0, 20.0)), ((4, 9), (15.0, 6.0)))]
    geometry = Geometry.of_layers(strips * 3, 0.02)
    where, constants = positions(geometry), Few(geometry, depth=1.8, radius_half=0.9, radius_most=2.6)
    inside = where.exists.T.reshape(*geometry.shape)
    cells = np.where(inside, np.random.default_rng(3).lognormal(0, 2, (20, *geometry.shape)), 0).astype(np.float32)
    theta = np.linspace(1.1, math.pi / 2, 20, dtype=np.float32)
    batch = as_batch(cells, np.full(20, 100, np.float32), theta)
    hits, axes, offsets = frame.reflect(batch["cell"], batch["value"], labels_of(batch), constants)
    depth = np.repeat(where.z_mm / geometry.layer_pitch_mm - 0.5 - 1.8, where.exists.sum(1))
    sizes = np.repeat([layer.size_mm for layer in strips * 3], where.exists.sum(1), axis=0)
    at = np.stack([place[where.exists] for place in (where.x_mm, where.y_mm)], 1)
    for shower, angle, axis, offset in zip(cells, theta, axes.numpy(), offsets.numpy(), strict=True):
        energy, distance = shower.reshape(-1, geometry.shape[2]).T[where.exists], 0.0
        for _ in range(5):
            weights = np.sqrt(energy / (1 + distance))[:, None] / sizes
            lines = [np.polyfit(depth, at[:, k], 1, w=weights[:, k]) for k in (0, 1)]
            away = at - np.stack([np.polyval(line, depth) for line in lines], 1)
            distance = np.square(away / sizes).sum(1)
        (slope_x, at_x), (slope_y, at_y) = np.array(lines) / geometry.cell_mm
        sign = np.sign(at_x)  # reflected to x >= 0
        off = slope_y - geometry.layer_pitch_mm / geometry.cell_mm / math.tan(angle)
        np.testing.assert_allclose(offset, [sign * at_x, sign * slope_x, at_y, off], atol=2e-3)
        at_layers = np.stack([np.polyval(line, np.unique(depth)) for line in lines], 1) * [sign, 1]
        np.testing.assert_allclose(axis * geometry.cell_mm, at_layers, atol=0.02)
    # near the axis nothing is left then, but for what a sixth fit would change
    sums = tf.reduce_sum(frame.layer_sums(hits, constants), [1, 2]).numpy()
    near, all_energy = (np.abs(sums[:, SUMS.index(name)] / sums[:, 0]) for name in ("near_x", "x"))
    assert np.median(near) < 0.1 * np.median(all_energy)
    away = hits.away.numpy()[..., :2] * geometry.cell_mm  # in mm, and in cells of the layer
    in_cells = away / np.array([layer.size_mm for layer in strips * 3])[hits.layer.numpy()]
    counted = hits.value.numpy() / (1 + np.square(in_cells).sum(-1))
    for k, name in enumerate(("near_x", "near_y")):
        expected = (
            counted * np.square(in_cells[..., k]) * geometry.cell_mm / np.where(away[..., k], away[..., k], np.inf)
        )
        np.testing.assert_allclose(sums[:, SUMS.index(name)], expected.sum(1), rtol=1e-3, atol=0.02)


def test_a_shower_in_one_layer_has_no_slope() -> None:
    cells = np.zeros((1, *SMALL_GEOMETRY.shape), np.float32)
    cells[0, 10, 7, 3], cells[0, 11, 7, 3] = 1.0, 3.0
    *_, offset = reflected(cells, np.array([math.pi / 2], np.float32))
    at = 2.75
    for _ in range(4):  # after the plain fit
        one, three = 1 / (1 + (at - 2) ** 2), 3 / (1 + (3 - at) ** 2)
        at = (2 * one + 3 * three) / (one + three)
    np.testing.assert_allclose(offset[0], [at, 0, -1, 0], atol=1e-5)
    rng = np.random.default_rng(2)
    for layer in range(LAYERS):  # whatever the energies, which round differently
        many = np.zeros((200, *SMALL_GEOMETRY.shape), np.float32)
        many[..., layer] = rng.lognormal(0, 2, (200, *SMALL_GEOMETRY.shape[:2]))
        *_, offset = reflected(many, np.full(200, math.pi / 2, np.float32))
        np.testing.assert_allclose(offset.numpy()[:, [1, 3]], 0, atol=1e-5)


@pytest.mark.parametrize("azimuth", [False, True])
def test_mirrored_showers_are_the_same_shower(*, azimuth: bool) -> None:
    """In x, with the opposite azimuth; in y, with the angle that goes with it; and in both."""
    cells, _, theta = uneven_showers(events=20)
    phi = other = None
    if azimuth:
        made = make_labelled_showers(events=20)
        cells, theta, phi, other = made.cells, made.theta_rad, made.more[PHI], -made.more[PHI]
    hits, _, offset = reflected(cells, theta, phi)
    sums = frame.layer_sums(hits, CONSTANTS).numpy()
    scale = np.abs(sums).max(axis=(0, 1, 2)) + 1e-6
    for flipped, angle, turned in (
        (cells[:, ::-1], theta, other),
        (cells[:, :, ::-1], np.float32(math.pi) - theta, phi),
        (cells[:, ::-1, ::-1], np.float32(math.pi) - theta, other),
    ):
        mirror, _, same = reflected(flipped, angle, turned)
        np.testing.assert_allclose(same, offset, atol=2e-5)
        np.testing.assert_allclose(frame.layer_sums(mirror, CONSTANTS) / scale, sums / scale, atol=2e-5)
    assert azimuth or (offset[:, 0].numpy() >= 0).all()
    angle = Labels(tf.ones(20), tf.constant(theta)).reflected(CONSTANTS.mesh).theta_rad
    np.testing.assert_allclose(angle, np.minimum(theta, np.pi - theta), rtol=1e-6)


def _by_hand(hits: Hits, axis: Any) -> Any:
    """SUMS (N, layers, 2, 16), hit after hit, in float64. Even cells have the colour of the cell on the axis."""
    found = np.zeros((*hits.value.shape[:1], LAYERS, 2, len(SUMS)))
    for place in np.ndindex(*hits.value.shape):
        value = float(hits.value[place])
        layer, x, y = (int(each[place]) for each in (hits.layer, hits.x, hits.y))
        if value == 0:
            continue
        at = [8 + float(each) for each in axis[place[0], layer]]
        dx, dy = x - at[0], y - at[1]
        depth, near = layer - 1.8, value / (1 + dx**2 + dy**2)
        found[place[0], layer, (x - round(at[0]) + y - round(at[1])) % 2] += [
            value, 1, value * 0.02 > 3e-4, value**2, value * (math.hypot(dx, dy) > 0.9),
            value * (math.hypot(dx, dy) > 2.6), value * dx, value * dy, value * dx**2, value * dy**2,
            value * dx * depth, value * dy * depth, near * dx, near * dy, near * dx * depth, near * dy * depth,
        ]  # fmt: skip
    return found


def _terms(hits: Hits) -> Any:
    return frame.terms(hits.value, hits.away, hits.layer, CONSTANTS).numpy()


def test_the_sums_of_each_layer_and_colour() -> None:
    cells, _, theta = uneven_showers(events=3)
    hits, axis, _ = reflected(cells, theta)
    expected = _by_hand(hits, axis)
    assert (expected[..., 1] > expected[..., 2]).any()  # some deposits are less than a hit
    np.testing.assert_allclose(frame.layer_sums(hits, CONSTANTS), expected, rtol=1e-4, atol=1e-3)
    added = _terms(hits)
    assert added.shape == (*hits.value.shape, len(SUMS))
    np.testing.assert_allclose(added.sum(1), expected.sum((1, 2)), rtol=1e-4, atol=2e-3)
    for number, name in enumerate(SUMS):
        np.testing.assert_array_equal(frame.column(tf.constant(added), name), added[..., number])


def test_one_hit_adds_what_the_mean_of_equal_hits_would() -> None:
    """For n equal hits it is an n-th of the sum; for other hits by hand, up to signs; 0 where there is no hit."""
    cells, _, theta = uneven_showers(events=3)
    hits, *_ = reflected(cells, theta)
    added = np.abs(_terms(hits).astype(np.float64))
    for shower, found in enumerate(frame.of_one_hit(hits, CONSTANTS).numpy()):
        for number, name in enumerate(SUMS):
            own = [value for value in added[shower, :, number].tolist() if value > 0]
            expected = sum(value * value for value in own) / sum(own) if own else 0.0
            assert found[number] == pytest.approx(expected, rel=1e-4)
            assert name != "cells" or found[number] == 1.0
