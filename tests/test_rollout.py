"""Roll-outs, against a model whose flow is known at all times.

Then the simulations from which a model is rolled out, and how far: each simulation of the dataset's test split, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import flows
import h5py
import numpy as np
import pytest
import tensorflow as tf
from flow_models import GRID, carried, street
from flows import write_flow
from PIL import Image, ImageSequence

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.flow.files import open_flow
from calopipe.flow.mechanics import vorticity
from preprocessing.__main__ import main as preprocess
from preprocessing.dataset import read_manifest
from preprocessing.events import digests_in
from training import __main__ as command
from training import model_folder
from training.model_folder import read_card
from training.models.flow import INFLOW
from training.rollout import rollout as one_roll_out
from training.rollout.held_out import roll_out_held_out, rollouts
from training.rollout.rollout import Stepper, roll_out, write_movie
from training.seen_events import write_seen


def _run(model: Path, output: Path, *more: str) -> None:
    command.main(["rollout", "--model", str(model), "--output", str(output), *more])


def test_a_roll_out_is_the_flow_at_all_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Behind the front of the undisturbed inflow, where no vortices are, every frame is that of the closed form."""
    solver = street(12)
    start, model = write_flow(tmp_path / "s.h5", velocity=solver, grid=GRID), carried(tmp_path / "m")
    movie = tmp_path / "made.gif"
    _run(model, tmp_path / "r.h5", "--start", f"{start}:3", "--steps", "6", "--movie", str(movie))
    assert "6 steps in " in capsys.readouterr().out
    made = open_flow(tmp_path / "r.h5")
    frames = made.velocity(0, 7)
    assert frames.shape == (7, *GRID.shape, 2)
    for step, frame in enumerate(frames):
        np.testing.assert_allclose(frame[step:], solver[3 + step][step:], atol=1e-5)
        np.testing.assert_allclose(frame[:step], np.broadcast_to(INFLOW, frame[:step].shape), atol=1e-5)
    np.testing.assert_allclose(made.time, open_flow(start).time[3:10])
    assert made.reynolds == open_flow(start).reynolds
    with h5py.File(tmp_path / "r.h5") as file:
        told = {name: file.attrs[name] for name in ("model", "start_file", "start_sha256", "start_frame", "seed")}
    assert told == {
        "model": read_card(model).fingerprint(),
        "start_file": "s.h5",
        "start_sha256": storage.sha256_of_file(start),
        "start_frame": 3,
        "seed": read_card(model).config.seed,
    }
    with Image.open(movie) as picture:
        assert picture.n_frames == 7
    again = "--start", f"{start}:3", "--steps", "2", "--movie", str(movie)
    _run(model, tmp_path / "r.h5", *again)
    movie.write_text("mine")
    with pytest.raises(InputError, match=r"made\.gif: exists, and is not a movie of a roll-out"):
        _run(model, tmp_path / "r.h5", *again)
    assert movie.read_text() == "mine"


def test_only_frames_that_a_model_made_are_replaced(tmp_path: Path) -> None:
    start, model = write_flow(tmp_path / "s.h5", velocity=street(12), grid=GRID), carried(tmp_path / "m")
    mine = write_flow(tmp_path / "mine.h5", velocity=street(4), grid=GRID)
    (tmp_path / "notes.h5").write_text("of somebody")
    before = {path: path.read_bytes() for path in (start, mine, tmp_path / "notes.h5")}
    other = "exists, and is not a flow that a model"
    for path, told in zip(before, ("is also the --start", other, other), strict=True):
        with pytest.raises(InputError, match=rf"{path.name}: {told} made|{path.name}: {told}, and would be lost"):
            _run(model, path, "--start", str(start), "--steps", "2")
    assert {path: path.read_bytes() for path in before} == before
    for steps in ("2", "3"):
        _run(model, tmp_path / "r.h5", "--start", str(start), "--steps", steps)
    assert len(open_flow(tmp_path / "r.h5").time) == 4


def test_a_full_disk_ends_a_roll_out_in_an_error(tmp_path: Path, small_disk: Callable[[int], Path]) -> None:
    """HDF5 does not crash."""
    start, model = write_flow(tmp_path / "s.h5", velocity=street(12), grid=GRID), carried(tmp_path / "m")
    disk = small_disk(8)
    with pytest.raises(OSError, match="No space left"):
        _run(model, disk / "r.h5", "--start", str(start), "--steps", "6")
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--start", "{start}:12", "--steps", "1"], r"s.h5:12: the file holds frames 0 to 11"),
        (["--start", "{start}:-13", "--steps", "1"], r"s.h5:-13: the file holds frames 0 to 11"),
        (["--start", "{start}", "--steps", "0"], "--steps is 0, expected at least 1"),
        (["--start", "{start}", "--steps", "1", "--movie", "m.mp4"], "--movie m.mp4: expected .* in .gif"),
        (["--start", "{coarse}", "--steps", "1"], r"coarse.h5: cell_d is 0.5, the model was trained on 0.25"),
        (["--start", "{start}", "--steps", "9"], r"step [5-8]: the velocity reaches .* U, .* give --steps [4-7]"),
    ],
)
def test_what_cannot_be_rolled_out_is_told(tmp_path: Path, arguments: list[str], told: str) -> None:
    files = {
        "start": write_flow(tmp_path / "s.h5", velocity=street(12), grid=GRID),
        "coarse": write_flow(tmp_path / "coarse.h5", velocity=street(2), grid=replace(GRID, cell_d=0.5)),
    }
    model = carried(tmp_path / "m", gain=2.0)
    with pytest.raises(InputError, match=told):
        _run(model, tmp_path / "r.h5", *(each.format(**files) for each in arguments))
    assert not (tmp_path / "r.h5").exists()


def test_a_reynolds_number_may_lie_a_thousandth_outside_the_trainings(tmp_path: Path) -> None:
    made = Stepper(carried(tmp_path / "m"))
    flow = open_flow(write_flow(tmp_path / "s.h5", velocity=street(2), grid=GRID))
    for reynolds in (59.95, 160.1):
        made.require_fitting(replace(flow, reynolds=reynolds))
    for reynolds in (59.9, 160.3):
        with pytest.raises(InputError, match=f"Reynolds number {reynolds}, the model is valid from 60 to 160"):
            made.require_fitting(replace(flow, reynolds=reynolds))


@pytest.mark.parametrize("reached", [9.9, -10.1, np.nan])
def test_a_velocity_of_ten_or_none_at_all_ends_a_roll_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reached: float
) -> None:
    model, start = carried(tmp_path / "m"), write_flow(tmp_path / "s.h5", velocity=street(2), grid=GRID)
    monkeypatch.setattr(Stepper, "step", lambda _, velocity, *__: np.full_like(velocity, reached))
    if abs(reached) < 10:
        roll_out(model, start, tmp_path / "r.h5", steps=1)
        assert (open_flow(tmp_path / "r.h5").velocity(0, 1) == street(1)).all()  # from the first frame
        return
    with pytest.raises(InputError, match=r"step 1: the velocity reaches .* give --steps 0"):
        roll_out(model, start, tmp_path / "r.h5", steps=1)
    assert not (tmp_path / "r.h5").exists()


def test_the_frame_that_a_command_begins_with_is_the_first_unless_it_says_so(tmp_path: Path) -> None:
    model = carried(tmp_path / "m")
    start = write_flow(tmp_path / "of:7 frames.h5", velocity=street(7), grid=GRID)
    for place, first in ((str(start), 0), (f"{start}:2", 2), (f"{start}:-1", 6)):
        _run(model, tmp_path / "r.hdf5", "--start", place, "--steps", "1")
        np.testing.assert_array_equal(open_flow(tmp_path / "r.hdf5").velocity(0, 1)[0], street(7)[first])
    with pytest.raises(InputError, match=r"r.nc: expected a name that ends in .h5"):
        _run(model, tmp_path / "r.nc", "--start", str(start), "--steps", "1")


def test_a_movie_is_red_where_vorticity_is_positive_and_grey_in_the_obstacle(tmp_path: Path) -> None:
    """Positive above the middle and negative below. In the second picture it is reversed, and beyond the scale."""
    above = np.broadcast_to(np.where(np.arange(20) < 10, -1.0, 1.0), (100, 20))
    solid = np.zeros((100, 20), dtype=bool)
    solid[:10, :5] = True  # at the bottom on the left
    vorticity = np.stack([above, -3 * above]).astype(np.float32)
    write_movie(tmp_path / "m.gif", {"solver": vorticity[[0, 0]], "model": vorticity}, solid)
    with Image.open(tmp_path / "m.gif") as picture:
        assert (picture.n_frames, picture.info["duration"], picture.info["loop"]) == (2, 80, 0)
        pictures = [np.array(frame.convert("RGB")).astype(int) for frame in ImageSequence.Iterator(picture)]
    assert pictures[0].shape == (2 * (14 + 80), 400, 3)  # four pixels a cell, the least that fill 384
    for frame, signs in zip(pictures, ([1, -1, 1, -1], [1, -1, -1, 1]), strict=True):
        flows = [half[14:] for half in np.split(frame, 2)]
        parts = [part for flow in flows for part in (flow[:40, 100:], flow[40:, 100:])]
        red = [(part[..., 0] - part[..., 2]) for part in parts]
        assert [np.unique(np.sign(part)).tolist() for part in red] == [[sign] for sign in signs]
        for flow in flows:
            obstacle = flow[60:, :40]
            assert (obstacle == obstacle[0, 0, 0]).all()
            assert (flow[:20, :40] != obstacle[0, 0]).any(axis=-1).all()


def test_a_model_of_another_field_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    card = SimpleNamespace(config=SimpleNamespace(model="of showers"))
    monkeypatch.setattr(one_roll_out, "load_model", lambda _: (card, object()))
    with pytest.raises(InputError, match="m: a model of showers, which makes no flow"):
        Stepper(Path("m"))


# Of the test split

ALL_TEST = SplitRule.parse(["test=*"])


def _made(output: Path) -> dict[str, tuple[int, int]]:
    """The number of frames and the time of writing of each roll-out, by its name."""
    return {path.name: (len(open_flow(path).time), path.stat().st_mtime_ns) for path in rollouts(output)[0]}


def _frames(output: Path) -> dict[str, int]:
    return {name: frames for name, (frames, _) in _made(output).items()}


def test_the_test_split_is_rolled_out_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(write_flow(tmp_path / f"s{n}.h5", reynolds=60.0 + 7 * n, strouhal=0.19)) for n in range(12)]
    preprocess(["--input", *files, "--output", str(tmp_path / "ds")])
    shards = [
        str(tmp_path / "ds" / each.name) for each in read_manifest(tmp_path / "ds").shards if each.split == "test"
    ]
    examples = [tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(shards)]
    numbers = {each.features.feature["reynolds"].float_list.value[0] for each in examples}
    held_out = [f"s{n}.h5" for n in range(12) if 60.0 + 7 * n in numbers]
    assert 0 < len(held_out) < 12
    model, output = carried(tmp_path / "m1", grid=flows.GRID), tmp_path / "out"
    fingerprint = roll_out_held_out(model, files, output, SplitRule(), 5)
    first = _made(output)
    assert _frames(output) == dict.fromkeys(held_out, 6)
    assert fingerprint == rollouts(output)[1]
    assert f"{len(held_out)} roll-outs of the test split, {len(held_out)} of them new" in capsys.readouterr().out
    assert roll_out_held_out(model, files, output, SplitRule(), 5) == fingerprint
    assert _made(output) == first  # they stand
    assert f"{len(held_out)} roll-outs of the test split, 0 of them new" in capsys.readouterr().out
    (output / min(held_out)).with_suffix(".gif").unlink()  # as of a run that was killed before it drew
    roll_out_held_out(model, files, output, SplitRule(), 5)
    assert (output / min(held_out)).with_suffix(".gif").is_file()
    (output / max(held_out)).rename(output / "t.h5")  # as before the last
    assert rollouts(output)[1] != fingerprint  # which the names are part of
    roll_out_held_out(carried(tmp_path / "m2", gain=0.5, grid=flows.GRID), files, output, SplitRule(), 0)
    assert _frames(output) == dict.fromkeys(held_out, 24)  # another model, and as long as the simulation


def test_a_simulation_that_was_made_again_is_rolled_out_again(tmp_path: Path) -> None:
    model, output, file = carried(tmp_path / "m", grid=flows.GRID), tmp_path / "out", tmp_path / "a.h5"
    for amplitude in (0.3, 0.2):
        velocity = flows.street(amplitude=amplitude)
        roll_out_held_out(model, [str(write_flow(file, velocity=velocity))], output, ALL_TEST, 3)
        assert (open_flow(output / "a.h5").velocity(0, 1) == velocity[:1]).all()


def test_what_a_killed_run_left_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer roll-out beside the movie of a shorter one; and a file that is not whole."""
    model, output, file = carried(tmp_path / "m", grid=flows.GRID), tmp_path / "out", str(write_flow(tmp_path / "a.h5"))
    roll_out_held_out(model, [file], output, ALL_TEST, 2)
    with monkeypatch.context() as killed:
        killed.setattr(one_roll_out, "_draw", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            roll_out_held_out(model, [file], output, ALL_TEST, 5)
    assert not (output / "a.gif").exists()
    roll_out_held_out(model, [file], output, ALL_TEST, 5)
    whole = (output / "a.h5").read_bytes()
    (output / "a.h5").write_bytes(whole[:-1000])
    for steps in (5, 3):  # a longer one does not stand for a shorter one
        roll_out_held_out(model, [file], output, ALL_TEST, steps)
        assert _frames(output) == {"a.h5": steps + 1}


def test_simulations_of_one_name_are_all_rolled_out(tmp_path: Path) -> None:
    files = []
    for place, reynolds in (("x", 80.0), ("y", 120.0)):
        (tmp_path / place).mkdir()
        files.append(str(write_flow(tmp_path / place / "a.h5", reynolds=reynolds)))
    files.append(str(write_flow(tmp_path / "b.hdf5", reynolds=100.0)))
    output = tmp_path / "out"
    fingerprint = roll_out_held_out(carried(tmp_path / "m", grid=flows.GRID), files, output, ALL_TEST, 3)
    assert sorted(open_flow(path).reynolds for path in rollouts(output)[0]) == [80.0, 100.0, 120.0]
    assert roll_out_held_out(tmp_path / "m", files[::-1], output, ALL_TEST, 3) == fingerprint


def test_steps_of_several_intervals_end_with_the_simulation(tmp_path: Path) -> None:
    """23 intervals of a simulation are 11 steps of two."""
    file = str(write_flow(tmp_path / "a.h5"))
    model = carried(tmp_path / "m", grid=replace(flows.GRID, interval_d=2 * flows.GRID.interval_d))
    for steps in (0, 20):
        roll_out_held_out(model, [file], tmp_path / "out", ALL_TEST, steps)
        assert open_flow(tmp_path / "out" / "a.h5").time == pytest.approx(open_flow(Path(file)).time[:23:2])


def test_the_movie_has_the_solvers_frames_of_the_models_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {}
    monkeypatch.setattr(one_roll_out, "write_movie", lambda _, flows, __: shown.update(flows))
    velocity = flows.street()
    file = write_flow(tmp_path / "a.h5", velocity=velocity)
    model = carried(tmp_path / "m", grid=replace(flows.GRID, interval_d=2 * flows.GRID.interval_d))
    for steps, frames in ((3, 4), (12, 10)):  # the second goes on for longer than the simulation
        roll_out(model, file, tmp_path / "made.h5", frame=4, steps=steps, movie=tmp_path / "made.gif")
        assert len(shown["model"]) == frames
        np.testing.assert_array_equal(shown["solver"], vorticity(velocity[4::2][:frames], flows.GRID.cell_d))
    made = open_flow(tmp_path / "made.h5")
    solver = open_flow(file)
    half = replace(solver, grid=replace(solver.grid, interval_d=0.3))  # of which the model's interval is no multiple
    for flow, first, names in ((solver, 21, {"solver", "model"}), (solver, 22, {"model"}), (half, 4, {"model"})):
        shown.clear()
        one_roll_out._draw(tmp_path / "made.gif", made, flow, first)
        assert set(shown) == names


def test_roll_outs_of_another_split_go_and_an_empty_split_is_one_line(tmp_path: Path) -> None:
    files = [str(write_flow(tmp_path / f"{name}.h5")) for name in "ab"]
    model, output = carried(tmp_path / "m", grid=flows.GRID), tmp_path / "out"
    roll_out_held_out(model, files, output, SplitRule.parse(["test=a.h5", "train=b.h5"]), 3)
    roll_out_held_out(model, files, output, SplitRule.parse(["test=b.h5", "train=a.h5"]), 3)
    assert sorted(path.name for path in output.iterdir()) == ["b.gif", "b.h5"]
    with pytest.raises(InputError, match=r"a.h5: none of the 2 simulations is in the test split"):
        roll_out_held_out(model, files, output, SplitRule.parse(["train=*"]), 3)


def test_a_roll_out_says_whether_its_model_was_trained_on_the_simulation(tmp_path: Path) -> None:
    files = [write_flow(tmp_path / f"{name}.h5", reynolds=number) for name, number in (("a", 80.0), ("b", 120.0))]
    given = ["--split-file", "train=a.h5", "--split-file", "test=b.h5", "--pair-step", "2"]
    preprocess(["--input", *map(str, files), "--output", str(tmp_path / "ds"), *given])
    model = carried(tmp_path / "m", grid=replace(flows.GRID, interval_d=2 * flows.GRID.interval_d))
    write_seen(model, digests_in(tmp_path / "ds", read_manifest(tmp_path / "ds"), ["train"]))
    seen = storage.sha256_of_file(model / model_folder.SEEN)
    model_folder.write_card(model, replace(model_folder.read_card(model), dataset={"seen": seen}))
    for file, expected in zip(files, (True, False), strict=True):
        roll_out(model, file, tmp_path / "made.h5", steps=3)
        assert open_flow(tmp_path / "made.h5").start_seen is expected
