"""What TensorBoard shows: the numbers behind the figures, and the images in its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from matplotlib.figure import Figure
from showers import SMALL_GEOMETRY, make_showers

from calopipe.showers.cells import Showers
from training.models.figures import figures
from training.run.history import History
from validation.measure.observables import observe

_REFERENCE = make_showers(events=60)
_GENERATED = replace(_REFERENCE, cells=1.5 * make_showers(events=60, seed=1).cells)


@pytest.fixture(scope="module")
def drawn() -> dict[str, Figure]:
    return figures(_REFERENCE, _GENERATED, SMALL_GEOMETRY)


def _drawn_into(model: Path, step: int, shown: Mapping[str, Figure]) -> None:
    history = History(model, step)
    history.add({"step": step})
    history.draw(shown)


def _observed(showers: Showers) -> tuple[np.ndarray, np.ndarray]:
    """Response (N,), and energy in each layer (N, layer) in GeV, as validation measures them."""
    table = observe(showers.cells, showers.energy_gev, showers.theta_rad, SMALL_GEOMETRY)
    return table.column("response"), table.layers.astype(np.float64)


def test_the_response_of_every_shower_and_its_mean(drawn: dict[str, Figure]) -> None:
    (axis,) = drawn["response"].axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("E [GeV]", "E_vis / E")
    energy = _REFERENCE.energy_gev
    edges = np.linspace(energy.min(), energy.max(), 7)
    for dots, steps, showers in zip(axis.lines, axis.patches, (_REFERENCE, _GENERATED), strict=True):
        response = _observed(showers)[0]
        np.testing.assert_array_equal(dots.get_xdata(), energy)
        np.testing.assert_allclose(dots.get_ydata(), response, rtol=1e-6)
        np.testing.assert_allclose(steps.get_data().edges, edges)
        inside = [(energy >= low) & (energy <= high) for low, high in pairwise(edges)]
        np.testing.assert_allclose(steps.get_data().values, [response[mask].mean() for mask in inside], rtol=1e-6)


def test_the_longitudinal_profile_and_its_ratio(drawn: dict[str, Figure]) -> None:
    above, below = drawn["longitudinal"].axes
    assert above.get_ylabel() == "Mean energy in a layer [GeV]"
    assert (below.get_xlabel(), below.get_ylabel()) == ("Layer", "Ratio")
    means = [_observed(showers)[1].mean(axis=0) for showers in (_REFERENCE, _GENERATED)]
    for shown, ratio, mean in zip(above.patches, below.patches, means, strict=True):
        np.testing.assert_array_equal(shown.get_data().edges, np.arange(6))
        np.testing.assert_allclose(shown.get_data().values, mean, rtol=1e-6)
        np.testing.assert_allclose(ratio.get_data().values, mean / means[0], rtol=1e-6)


def test_single_showers_beside_each_other(drawn: dict[str, Figure]) -> None:
    panels = np.reshape(drawn["showers"].axes[:12], (3, 4))
    order = np.argsort(_REFERENCE.energy_gev)
    scales = {panel.images[0].norm for panel in panels.flat}
    assert len(scales) == 1
    for row, shower in zip(panels, (order[0], order[30], order[-1]), strict=True):
        for panel, showers, summed, name in zip(
            row, 2 * [_REFERENCE, _GENERATED], (0, 0, 2, 2), 2 * ("Monte Carlo", "Generated"), strict=True
        ):
            view = showers.cells[shower].sum(axis=summed) * SMALL_GEOMETRY.file_unit_gev
            expected = view if summed == 0 else view.T  # rows of an image are its vertical axis, y
            np.testing.assert_allclose(panel.images[0].get_array().filled(0), expected, rtol=1e-6)
            energy, angle = _REFERENCE.energy_gev[shower], np.degrees(_REFERENCE.theta_rad[shower])
            assert panel.get_title("left") == f"{name}: {energy:.0f} GeV, {angle:.0f}°"
    assert [panel.get_xlabel() for panel in panels[-1]] == ["z [mm]", "z [mm]", "x [mm]", "x [mm]"]
    assert {panel.get_ylabel() for panel in panels[:, 0]} == {"y [mm]"}
    assert panels[0, 0].images[0].get_extent() == pytest.approx([0, 100, -130.05, 130.05])
    assert panels[0, 2].images[0].get_extent() == pytest.approx([-130.05, 130.05, -130.05, 130.05])


def test_a_model_that_makes_nothing_yet(tmp_path: Path) -> None:
    one = _REFERENCE[:1]
    shown = figures(one, replace(one, cells=np.zeros_like(one.cells)), SMALL_GEOMETRY)
    assert shown["longitudinal"].axes[0].patches[1].get_data().values == pytest.approx(np.zeros(5))
    assert shown["response"].axes[0].lines[1].get_ydata() == pytest.approx([0])
    _drawn_into(tmp_path, 0, shown)


def test_other_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="theta_rad"):
        figures(_REFERENCE, replace(_GENERATED, theta_rad=_GENERATED.theta_rad[::-1]), SMALL_GEOMETRY)


def test_the_log_holds_the_images(drawn: dict[str, Figure], tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _drawn_into(tmp_path, 7, drawn)
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert set(board.Tags()["tensors"]) == {*drawn, "step"}
    for name, figure in drawn.items():
        (event,) = board.Tensors(name)
        assert event.step == 7
        width, height, png = tf.make_ndarray(event.tensor_proto)  # and no second image
        image = tf.io.decode_png(png).numpy()
        inches = figure.get_size_inches()
        assert image.shape == (round(100 * inches[1]), round(100 * inches[0]), 3)
        assert (int(width), int(height)) == image.shape[1::-1]
        assert len(np.unique(image)) > 10
