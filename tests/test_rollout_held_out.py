"""The simulations from which a model is rolled out, and how far: each simulation of the dataset's test split, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from flow_models import carried
from flows import GRID, street, write_flow

from calopipe import storage
from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.flow.files import open_flow
from calopipe.flow.mechanics import vorticity
from preprocessing.__main__ import main as preprocess
from preprocessing.dataset import read_manifest
from preprocessing.events import digests_in
from training import model_folder
from training.rollout import rollout as one_roll_out
from training.rollout.held_out import roll_out_held_out, rollouts
from training.rollout.rollout import roll_out
from training.seen_events import write_seen

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
    model, output = carried(tmp_path / "m1", grid=GRID), tmp_path / "out"
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
    roll_out_held_out(carried(tmp_path / "m2", gain=0.5, grid=GRID), files, output, SplitRule(), 0)
    assert _frames(output) == dict.fromkeys(held_out, 24)  # another model, and as long as the simulation


def test_a_simulation_that_was_made_again_is_rolled_out_again(tmp_path: Path) -> None:
    model, output, file = carried(tmp_path / "m", grid=GRID), tmp_path / "out", tmp_path / "a.h5"
    for amplitude in (0.3, 0.2):
        velocity = street(amplitude=amplitude)
        roll_out_held_out(model, [str(write_flow(file, velocity=velocity))], output, ALL_TEST, 3)
        assert (open_flow(output / "a.h5").velocity(0, 1) == velocity[:1]).all()


def test_what_a_killed_run_left_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer roll-out beside the movie of a shorter one; and a file that is not whole."""
    model, output, file = carried(tmp_path / "m", grid=GRID), tmp_path / "out", str(write_flow(tmp_path / "a.h5"))
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
    fingerprint = roll_out_held_out(carried(tmp_path / "m", grid=GRID), files, output, ALL_TEST, 3)
    assert sorted(open_flow(path).reynolds for path in rollouts(output)[0]) == [80.0, 100.0, 120.0]
    assert roll_out_held_out(tmp_path / "m", files[::-1], output, ALL_TEST, 3) == fingerprint


def test_steps_of_several_intervals_end_with_the_simulation(tmp_path: Path) -> None:
    """23 intervals of a simulation are 11 steps of two."""
    file = str(write_flow(tmp_path / "a.h5"))
    model = carried(tmp_path / "m", grid=replace(GRID, interval_d=2 * GRID.interval_d))
    for steps in (0, 20):
        roll_out_held_out(model, [file], tmp_path / "out", ALL_TEST, steps)
        assert open_flow(tmp_path / "out" / "a.h5").time == pytest.approx(open_flow(Path(file)).time[:23:2])


def test_the_movie_has_the_solvers_frames_of_the_models_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {}
    monkeypatch.setattr(one_roll_out, "write_movie", lambda _, flows, __: shown.update(flows))
    velocity = street()
    file = write_flow(tmp_path / "a.h5", velocity=velocity)
    model = carried(tmp_path / "m", grid=replace(GRID, interval_d=2 * GRID.interval_d))
    for steps, frames in ((3, 4), (12, 10)):  # the second goes on for longer than the simulation
        roll_out(model, file, tmp_path / "made.h5", frame=4, steps=steps, movie=tmp_path / "made.gif")
        assert len(shown["model"]) == frames
        np.testing.assert_array_equal(shown["solver"], vorticity(velocity[4::2][:frames], GRID.cell_d))
    made = open_flow(tmp_path / "made.h5")
    solver = open_flow(file)
    half = replace(solver, grid=replace(solver.grid, interval_d=0.3))  # of which the model's interval is no multiple
    for flow, first, names in ((solver, 21, {"solver", "model"}), (solver, 22, {"model"}), (half, 4, {"model"})):
        shown.clear()
        one_roll_out._draw(tmp_path / "made.gif", made, flow, first)
        assert set(shown) == names


def test_roll_outs_of_another_split_go_and_an_empty_split_is_one_line(tmp_path: Path) -> None:
    files = [str(write_flow(tmp_path / f"{name}.h5")) for name in "ab"]
    model, output = carried(tmp_path / "m", grid=GRID), tmp_path / "out"
    roll_out_held_out(model, files, output, SplitRule.parse(["test=a.h5", "train=b.h5"]), 3)
    roll_out_held_out(model, files, output, SplitRule.parse(["test=b.h5", "train=a.h5"]), 3)
    assert sorted(path.name for path in output.iterdir()) == ["b.gif", "b.h5"]
    with pytest.raises(InputError, match=r"a.h5: none of the 2 simulations is in the test split"):
        roll_out_held_out(model, files, output, SplitRule.parse(["train=*"]), 3)


def test_a_roll_out_says_whether_its_model_was_trained_on_the_simulation(tmp_path: Path) -> None:
    files = [write_flow(tmp_path / f"{name}.h5", reynolds=number) for name, number in (("a", 80.0), ("b", 120.0))]
    given = ["--split-file", "train=a.h5", "--split-file", "test=b.h5", "--pair-step", "2"]
    preprocess(["--input", *map(str, files), "--output", str(tmp_path / "ds"), *given])
    model = carried(tmp_path / "m", grid=replace(GRID, interval_d=2 * GRID.interval_d))
    write_seen(model, digests_in(tmp_path / "ds", read_manifest(tmp_path / "ds"), ["train"]))
    seen = storage.sha256_of_file(model / model_folder.SEEN)
    model_folder.write_card(model, replace(model_folder.read_card(model), dataset={"seen": seen}))
    for file, expected in zip(files, (True, False), strict=True):
        roll_out(model, file, tmp_path / "made.h5", steps=3)
        assert open_flow(tmp_path / "made.h5").start_seen is expected
