"""Roll-outs, against a model whose flow is known at all times; and frames in tiles on Beam, against whole frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flow_models import GRID, carried, street, write_model
from flows import write_flow
from PIL import Image, ImageSequence
from servers import PRISM, go_tool

from calopipe.errors import InputError
from calopipe.flow.files import open_flow
from training import __main__ as command
from training.configs import named_config
from training.models.flow import INFLOW
from training.rollout import mapreduce
from training.rollout.mapreduce import tiles


def _run(task: str, model: Path, output: Path, *more: str) -> None:
    command.main([task, "--model", str(model), "--output", str(output), *more])


@pytest.mark.parametrize("reach", [0, 4, 5, 9])
def test_a_window_holds_what_the_core_sees(reach: int) -> None:
    """Up to `reach` cells around it, as far as there is a frame; a reach need not be a multiple of the stride."""
    for tile in tiles((32, 16), (8, 8), reach=reach, stride=4):
        for window, core, cells in zip(tile.window, tile.core, (32, 16), strict=True):
            assert window.start <= max(core.start - reach, 0)
            assert window.stop >= min(core.stop + reach, cells)


@pytest.mark.parametrize("first", [3, -9])  # of twelve
def test_a_roll_out_is_the_flow_at_all_times(tmp_path: Path, capsys: pytest.CaptureFixture[str], first: int) -> None:
    """Behind the front of the undisturbed inflow, which no vortices follow, every frame is the closed form's."""
    solver = street(12)
    start, model = write_flow(tmp_path / "s.h5", velocity=solver, grid=GRID), carried(tmp_path / "m")
    movie = tmp_path / "made.gif"
    _run("rollout", model, tmp_path / "r.h5", "--start", f"{start}:{first}", "--steps", "6", "--movie", str(movie))
    assert "6 steps in " in capsys.readouterr().out
    made = open_flow(tmp_path / "r.h5")
    frames = made.velocity(0, 7)
    assert frames.shape == (7, *GRID.shape, 2)
    for step, frame in enumerate(frames):
        np.testing.assert_allclose(frame[step:], solver[3 + step][step:], atol=1e-5)
        np.testing.assert_allclose(frame[:step], np.broadcast_to(INFLOW, frame[:step].shape), atol=1e-5)
    np.testing.assert_allclose(made.time, open_flow(start).time[3:10])
    assert made.reynolds == open_flow(start).reynolds
    with Image.open(movie) as picture:
        pictures = [np.array(each.convert("RGB")).astype(int) for each in ImageSequence.Iterator(picture)]
    assert len(pictures) == 7
    above, below = np.split(pictures[0], 2)
    np.testing.assert_array_equal(above[20:], below[20:])  # both begin with the same frame
    assert (pictures[0] != pictures[6]).any()
    red_minus_blue = (above[..., 0] - above[..., 2])[14:].mean()  # the shear layer turns one way: u rises with y
    assert red_minus_blue < -5


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--start", "{start}:12", "--steps", "1"], r"s.h5:12: the file holds frames 0 to 11"),
        (["--start", "{start}", "--steps", "0"], "--steps is 0, expected at least 1"),
        (["--start", "{start}", "--steps", "1", "--movie", "m.mp4"], "--movie m.mp4: expected .* in .gif"),
        (["--start", "{coarse}", "--steps", "1"], r"coarse.h5: cell_d is 0.5, the model was trained on 0.25"),
        (["--start", "{fast}", "--steps", "1"], "fast.h5: Reynolds number 160.3, the model is valid from 60 to 160"),
        (["--start", "{start}", "--steps", "9"], r"step [5-8]: the velocity reaches .* U, .* give --steps [4-7]"),
    ],
)
def test_what_cannot_be_rolled_out_is_told(tmp_path: Path, arguments: list[str], told: str) -> None:
    files = {
        "start": write_flow(tmp_path / "s.h5", velocity=street(12), grid=GRID),
        "coarse": write_flow(tmp_path / "coarse.h5", velocity=street(2), grid=replace(GRID, cell_d=0.5)),
        "fast": write_flow(tmp_path / "fast.h5", velocity=street(2), grid=GRID, reynolds=160.3),
    }
    model = carried(tmp_path / "m", gain=2.0)
    with pytest.raises(InputError, match=told):
        _run("rollout", model, tmp_path / "r.h5", *(each.format(**files) for each in arguments))
    assert not (tmp_path / "r.h5").exists()


def test_a_reynolds_number_may_lie_a_thousandth_outside_the_trainings(tmp_path: Path) -> None:
    stepper = mapreduce.Stepper(carried(tmp_path / "m"))
    for reynolds in (59.95, 160.1):
        path = write_flow(tmp_path / f"{reynolds}.h5", velocity=street(2), grid=GRID, reynolds=reynolds)
        stepper.require_fitting(open_flow(path))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    """A start file, a small U-Net of large weights, and the frames that it makes of whole frames."""
    place = tmp_path_factory.mktemp("small")
    write_model(place / "m", named_config("pix2pix-small"), WIDE, spread=0.05)
    start = write_flow(place / "s.h5", velocity=street(3, WIDE), grid=WIDE)
    flow, stepper = open_flow(start), mapreduce.Stepper(place / "m")
    whole = stepper.step(flow.velocity(0, 3), np.stack([flow.solid] * 3), np.full(3, flow.reynolds, np.float32))
    return start, place / "m", whole


WIDE = replace(GRID, shape=(96, 16))


def _require_equal(output: Path, whole: Any) -> None:
    assert np.abs(np.diff(whole, axis=0)).max() > 0.02
    np.testing.assert_allclose(open_flow(output).velocity(0, 3), whole, atol=1e-5 * np.abs(whole).max())


def test_tiles_on_beam_in_this_process(small: tuple[Path, Path, Any], tmp_path: Path) -> None:
    start, model, whole = small
    tiles = list(mapreduce.advance_tiles(model, start, range(3), (16, 16), place=str(tmp_path)))
    np.testing.assert_allclose(tiles, whole, atol=1e-5 * np.abs(whole).max())
    (stepper,) = mapreduce._loaded.values()
    assert stepper.compiled == 1  # of 18 tiles, in groups, the last not full
    with pytest.raises(InputError, match=r"--tile is 20x16 for frames of \(96, 16\) cells, expected multiples of 8"):
        _run("advance", model, tmp_path / "a.h5", "--start", str(start), "--tile", "20x16")


def test_tiles_on_beam_in_two_processes(small: tuple[Path, Path, Any], tmp_path: Path) -> None:
    start, model, whole = small
    _run("advance", model, tmp_path / "a.h5", "--start", str(start), "--tile", "32x16", "--workers", "2")
    _require_equal(tmp_path / "a.h5", whole)
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]
    made = open_flow(tmp_path / "a.h5")
    np.testing.assert_allclose(made.time, open_flow(start).time + WIDE.interval_d)


def test_a_frame_that_is_nan_is_told_before_workers_start(small: tuple[Path, Path, Any], tmp_path: Path) -> None:
    velocity = street(20, WIDE)
    velocity[17, 3, 3, 0] = np.nan
    bad = write_flow(tmp_path / "bad.h5", velocity=velocity, grid=WIDE)
    with pytest.raises(InputError, match=r"bad.h5: the velocity in frame 17 is not a finite number; make .* again$"):
        _run("advance", small[1], tmp_path / "a.h5", "--start", str(bad), "--tile", "32x16", "--workers", "2")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.h5"]


@pytest.mark.timeout(900)  # a first build is slow
def test_tiles_on_prism(small: tuple[Path, Path, Any], tmp_path: Path) -> None:
    start, model, whole = small
    options = ("runner=PrismRunner", f"prism_location={go_tool(PRISM)}")
    beam = [word for option in options for word in ("--beam-option", option)]
    _run("advance", model, tmp_path / "a.h5", "--start", str(start), "--tile", "32x8", *beam)
    _require_equal(tmp_path / "a.h5", whole)
