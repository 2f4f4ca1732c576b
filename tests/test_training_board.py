"""What TensorBoard shows: the numbers behind the figure, and the image in its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from matplotlib.figure import Figure
from showers import SMALL_GEOMETRY, make_showers

from training.models.judging import single_showers
from training.run.history import History

_REFERENCE = make_showers(events=60)
_GENERATED = replace(_REFERENCE, cells=1.5 * make_showers(events=60, seed=1).cells)


@pytest.fixture(scope="module")
def drawn() -> Figure:
    return single_showers(_REFERENCE, _GENERATED, SMALL_GEOMETRY)


def _drawn_into(model: Path, step: int, shown: Mapping[str, Figure]) -> None:
    history = History(model, step)
    history.add({"step": step})
    history.draw(shown)


def test_single_showers_beside_each_other(drawn: Figure) -> None:
    panels = np.reshape(drawn.axes[:12], (3, 4))
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
    nothing = replace(one, cells=np.zeros_like(one.cells))
    _drawn_into(tmp_path, 0, {"showers": single_showers(one, nothing, SMALL_GEOMETRY)})


def test_a_loss_has_one_name_in_training_and_validation(tmp_path: Path) -> None:
    """So that TensorBoard lays the two curves over each other; in training several phases may have it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    history = History(tmp_path, 0)
    history.add({"step": 3, "train": {"a": {"total": 1.0, "hits": 2.0}, "b": {"total": 3.0}}, "seconds": 9.0})
    history.amend({"validation": {"total": 4.0, "hits": 5.0}, "found": {"value": 6.0}, "evaluations_begun": None})
    found = {}
    for run in (".", "validation"):
        board = EventAccumulator(str(tmp_path / "tensorboard" / run))
        board.Reload()
        for tag in board.Tags()["tensors"]:
            (event,) = board.Tensors(tag)
            found[run, tag] = float(tf.make_ndarray(event.tensor_proto))
    assert {key: value for key, value in found.items() if key != (".", "step")} == {
        (".", "loss/total/a"): 1, (".", "loss/hits"): 2, (".", "loss/total/b"): 3, (".", "seconds"): 9,
        ("validation", "loss/total"): 4, ("validation", "loss/hits"): 5, (".", "found/value"): 6,
    }  # fmt: skip


def test_the_log_holds_the_image(drawn: Figure, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _drawn_into(tmp_path, 7, {"showers": drawn})
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert set(board.Tags()["tensors"]) == {"showers", "step"}
    (event,) = board.Tensors("showers")
    assert event.step == 7
    width, height, png = tf.make_ndarray(event.tensor_proto)  # and no second image
    image = tf.io.decode_png(png).numpy()
    inches = drawn.get_size_inches()
    assert image.shape == (round(100 * inches[1]), round(100 * inches[0]), 3)
    assert (int(width), int(height)) == image.shape[1::-1]
    assert len(np.unique(image)) > 10
