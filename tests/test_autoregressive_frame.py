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
from calopipe.showers.cells import FloatArray, Geometry, Layer
from calopipe.showers.positions import positions
from training.models.autoregressive import frame
from training.models.autoregressive.frame import SUMS, Hits, Labels

_DEPTH = np.arange(LAYERS) - 1.8


def _planted(x: FloatArray, y: FloatArray) -> FloatArray:
    """A shower (1, x, y, layers) with its energy in each layer shared by four cells, of centre `x`, `y` (layers,)."""
    cells = np.zeros((1, *SMALL_GEOMETRY.shape))
    for layer, energy in enumerate((1.0, 5.0, 7.0, 3.0, 0.5)):
        left, low = math.floor(x[layer]), math.floor(y[layer])
        for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
            share = abs(1 - i - (x[layer] - left)) * abs(1 - j - (y[layer] - low))
            cells[0, 8 + left + i, 8 + low + j, layer] = energy * share
    return cells.astype(np.float32)


@pytest.mark.parametrize("at_x", [0.7, -1.3])
@pytest.mark.parametrize("theta_deg", [70.0, 90.0, 115.0])
def test_the_axis_is_the_line_that_a_shower_is_planted_on(at_x: float, theta_deg: float) -> None:
    slope_x, at_y, off = 0.21, -0.4, 0.15
    theta = math.radians(theta_deg)
    acute = min(theta, math.pi - theta)
    along = off + 20.0 / 15.3 / math.tan(acute)
    y = at_y + along * _DEPTH  # in the frame of theta <= 90 degrees
    mirrored = -1 if theta > math.pi / 2 else 1
    cells = _planted(at_x + slope_x * _DEPTH, mirrored * y)
    cells[0, 14, 2, 3] = 0.1 * cells.sum()  # six cells away, where a plain fit would be off by half a cell
    _, axis, offset = reflected(cells, np.array([theta], np.float32))
    sign = 1 if at_x >= 0 else -1  # to x >= 0
    # the nearer cells of a layer count more
    np.testing.assert_allclose(offset[0], [sign * at_x, sign * slope_x, at_y, off], atol=0.07)
    np.testing.assert_allclose(axis[0, :, 0], sign * (at_x + slope_x * _DEPTH), atol=0.15)
    np.testing.assert_allclose(axis[0, :, 1], y, atol=0.15)


def test_cells_count_for_the_axis_by_how_narrow_and_how_near_they_are() -> None:
    """Against NumPy's weighted fit with inverse errors as weights, for strips that lie across and along x by turns.

    The fit is repeated: a deposit that is one of its cells away from the axis counts half as much in the next fit.
    """
    strips = [Layer(5.0, 1.0, cells, size_mm=size) for cells, size in (((12, 3), (5.0, 20.0)), ((4, 9), (15.0, 6.0)))]
    geometry = Geometry.of_layers(strips * 3, 0.02)
    where, constants = positions(geometry), Few(geometry, depth=1.8, radius_half=0.9, radius_most=2.6)
    inside = where.exists.T.reshape(*geometry.shape)
    cells = np.where(inside, np.random.default_rng(3).lognormal(0, 2, (20, *geometry.shape)), 0).astype(np.float32)
    batch = as_batch(cells, np.full(20, 100, np.float32), np.full(20, math.pi / 2, np.float32))
    hits, _, offsets = frame.reflect(batch["cell"], batch["value"], labels_of(batch), constants)
    depth = np.repeat(where.z_mm / geometry.layer_pitch_mm - 0.5 - 1.8, where.exists.sum(1))
    sizes = np.repeat([layer.size_mm for layer in strips * 3], where.exists.sum(1), axis=0)
    at = np.stack([place[where.exists] for place in (where.x_mm, where.y_mm)], 1)
    for shower, offset in zip(cells, offsets.numpy(), strict=True):
        energy, distance = shower.reshape(-1, geometry.shape[2]).T[where.exists], 0.0
        for _ in range(5):
            weights = np.sqrt(energy / (1 + distance))[:, None] / sizes
            lines = [np.polyfit(depth, at[:, k], 1, w=weights[:, k]) for k in (0, 1)]
            away = at - np.stack([np.polyval(line, depth) for line in lines], 1)
            distance = np.square(away / sizes).sum(1)
        (slope_x, at_x), (slope_y, at_y) = np.array(lines) / geometry.cell_mm
        sign = np.sign(at_x)  # reflected to x >= 0
        np.testing.assert_allclose(offset, [sign * at_x, sign * slope_x, at_y, slope_y], atol=1e-3)
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
        value, dx, dy = (
            float(each[place]) for each in (hits.value.numpy(), *np.moveaxis(hits.away.numpy()[..., :2], -1, 0))
        )
        layer, x, y = (int(each[place]) for each in (hits.layer.numpy(), hits.x.numpy(), hits.y.numpy()))
        if value == 0:
            continue
        depth, near = layer - 1.8, value / (1 + dx**2 + dy**2)
        met = [8 + round(float(each[place[0], layer])) for each in np.moveaxis(axis.numpy(), -1, 0)]
        found[place[0], layer, (x - met[0] + y - met[1]) % 2] += [
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


def test_a_shower_in_the_next_cells_has_the_same_colours_and_sums() -> None:
    """The shares of even cells are the same too: colours are counted from the axis, which moves along."""
    cells, _, theta = uneven_showers(events=20)
    cells[:, :, -1] = 0
    (hits, _, offset), (moved, _, same) = reflected(cells, theta), reflected(np.roll(cells, 1, axis=2), theta)
    further = np.where(theta > math.pi / 2, -1, 1)  # reflected to acute angles
    np.testing.assert_allclose(same[:, 2], offset[:, 2] + further, atol=1e-4)
    sums, others = (frame.layer_sums(each, CONSTANTS).numpy() for each in (hits, moved))
    np.testing.assert_allclose(others, sums, rtol=1e-3, atol=5e-3)
    there = hits.value.numpy() > 0
    np.testing.assert_array_equal(moved.colour.numpy()[there], hits.colour.numpy()[there])
    assert ((moved.x + moved.y).numpy() % 2 != (hits.x + hits.y).numpy() % 2)[there].all()
    shares, other = (frame.column(each, "energy") for each in (sums, others))
    np.testing.assert_allclose(other[..., 0] / other.sum(-1), shares[..., 0] / shares.sum(-1), rtol=1e-4)
