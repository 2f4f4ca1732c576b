"""Generating through its command: labels, units, layout, repetition, refusal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from showers import SMALL_GEOMETRY, make_file, make_showers, write_file

from preprocessing.dataset import Settings
from preprocessing.errors import InputError
from preprocessing.inputs import discover
from preprocessing.layouts import open_showers
from preprocessing.pipeline import preprocess
from preprocessing.splits import SplitRule
from training import __main__ as command
from training.configs import named_config
from training.fit import fit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Monte Carlo `mc.h5` and a barely trained model `model`."""
    folder = tmp_path_factory.mktemp("generation")
    make_file(folder / "mc.h5", events=100)
    preprocess(discover([str(folder / "mc.h5")]), folder / "ds", Settings())
    fit(folder / "ds", folder / "model", named_config("small", steps=2))
    return folder


def _generate(folder: Path, output: Path, *more: object, like: Path | None = None) -> None:
    arguments = ["--model", folder / "model", "--like", like or folder / "mc.h5", "--output", output, *more]
    command.main(["generate", *map(str, arguments)])


def test_showers_have_the_labels_of_the_split_and_the_layout_of_the_input(folder: Path, tmp_path: Path) -> None:
    _generate(folder, tmp_path / "g.h5", "--split", "test")
    mc, generated = open_showers(folder / "mc.h5"), open_showers(tmp_path / "g.h5")
    mask = SplitRule().mask("test", "mc.h5", mc.sha256, range(100))
    np.testing.assert_array_equal(generated.energy_gev, mc.energy_gev[mask])
    np.testing.assert_array_equal(generated.theta_rad, mc.theta_rad[mask])
    assert generated.geometry == mc.geometry
    cells = generated.read().cells  # finite and not negative, or reading would refuse
    assert cells.shape == (mask.sum(), *SMALL_GEOMETRY.shape)
    assert (cells.sum(axis=(1, 2, 3)) > 0).all()


def test_each_event_several_times_and_every_time_another_shower(folder: Path, tmp_path: Path) -> None:
    _generate(folder, tmp_path / "g.h5", "--per-event", 3)
    mc, generated = open_showers(folder / "mc.h5"), open_showers(tmp_path / "g.h5")
    np.testing.assert_array_equal(generated.energy_gev, np.repeat(mc.energy_gev, 3))
    cells = generated.read().cells.reshape(300, -1)
    assert len(np.unique(cells, axis=0)) == 300


def test_the_same_seed_gives_the_same_showers(folder: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        _generate(folder, tmp_path / f"{name}.h5", "--seed", seed)
    a, b, c = (open_showers(tmp_path / f"{name}.h5").read().cells for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()


def test_showers_that_stand_are_left(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "g.h5"
    _generate(folder, output)
    before = output.stat().st_mtime_ns
    _generate(folder, output)
    assert "showers stand" in capsys.readouterr().out
    assert output.stat().st_mtime_ns == before
    _generate(folder, output, "--seed", 9)
    assert output.stat().st_mtime_ns != before


def test_cells_come_in_the_unit_of_the_input(folder: Path, tmp_path: Path) -> None:
    showers = make_showers(events=100)
    in_gev = SMALL_GEOMETRY.with_values("file_unit_gev=1")
    path = write_file(tmp_path / "gev.h5", showers, ECAL=showers.cells * 0.02, geometry=in_gev)
    _generate(folder, tmp_path / "a.h5")
    _generate(folder, tmp_path / "b.h5", like=path)
    a, b = open_showers(tmp_path / "a.h5").read(), open_showers(tmp_path / "b.h5").read()
    np.testing.assert_allclose(b.cells, a.cells * np.float32(0.02), rtol=1e-5)
    with h5py.File(tmp_path / "b.h5") as file:
        assert file.attrs["file_unit_gev"] == 1


def test_labels_outside_the_training_are_refused(folder: Path, tmp_path: Path) -> None:
    showers = make_showers(events=5)
    energy = np.where(np.arange(5) == 2, 500, showers.energy_gev).astype(np.float32)
    path = write_file(tmp_path / "high.h5", showers, energy=energy)
    with pytest.raises(InputError, match=r"shower 2 is asked for with energy 500 GeV, the model is valid from 10"):
        _generate(folder, tmp_path / "g.h5", like=path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["high.h5"]


def test_another_detector_is_refused(folder: Path, tmp_path: Path) -> None:
    path = make_file(tmp_path / "a.h5", events=5, geometry=SMALL_GEOMETRY.with_values("cell_mm=1"))
    with pytest.raises(InputError, match=r"cell_mm is 1\.0, the model was trained on 15\.3"):
        _generate(folder, tmp_path / "g.h5", like=path)


def test_events_below_the_cut_are_left_out(folder: Path, tmp_path: Path) -> None:
    """Also where their labels are such as no shower above the cut has: the dataset does not know them either."""
    showers = make_showers(events=30)
    energy, cells = showers.energy_gev.copy(), showers.cells.copy()
    energy[4], cells[4] = 3.0, cells[4] * 0.01
    path = write_file(tmp_path / "low.h5", showers, energy=energy, ECAL=cells)
    _generate(folder, tmp_path / "g.h5", like=path)
    np.testing.assert_array_equal(open_showers(tmp_path / "g.h5").energy_gev, np.delete(energy, 4))


def test_nothing_else_is_overwritten(folder: Path, tmp_path: Path) -> None:
    path = make_file(tmp_path / "mc.h5", events=5)
    before = path.read_bytes()
    with pytest.raises(InputError, match="showers that this program did not generate"):
        _generate(folder, path, like=path)
    assert path.read_bytes() == before
    (tmp_path / "folder.h5").mkdir()
    with pytest.raises(InputError, match="a folder"):
        _generate(folder, tmp_path / "folder.h5")


@pytest.mark.parametrize("kilobytes", [20, 100, 160])
def test_a_full_disk(folder: Path, small_disk: Callable[[int], Path], kilobytes: int) -> None:
    disk = small_disk(kilobytes)
    arguments = ["generate", "--model", folder / "model", "--like", folder / "mc.h5", "--output", disk / "g.h5"]
    done = subprocess.run([sys.executable, "-m", "training", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "the disk is full" in done.stderr.splitlines()[-1]
    assert not list(disk.iterdir())


def test_bad_arguments(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--per-event is 0"):
        _generate(folder, tmp_path / "g.h5", "--per-event", 0)
    with pytest.raises(InputError, match=r"ends in \.h5"):
        _generate(folder, tmp_path / "g.txt")
    with pytest.raises(InputError, match=r"card\.json: no such file"):
        _generate(tmp_path, tmp_path / "g.h5", like=folder / "mc.h5")
