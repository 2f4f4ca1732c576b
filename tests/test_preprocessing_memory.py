"""Input files: no stage hashes again the files that a dataset remembers; cells of only one file are in memory."""

from __future__ import annotations

import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from commands import settled
from showers import make_file, make_showers, write_file
from trainings import LAYERS, layers_model

from calopipe import storage
from calopipe.showers.files import ShowerFile, open_all
from calopipe.showers.selection import Selection
from pipelines.checks import check
from preprocessing.showers.inputs import discover
from training import __main__ as training
from validation import __main__ as validation


def test_the_check_before_a_run_hashes_what_is_new(tmp_path: Path, hashed: list[str]) -> None:
    path = settled(make_file(tmp_path / "a.h5", events=300))
    discover([str(path)], memory=tmp_path / "run/dataset")
    assert hashed == ["a.h5"]
    parameters = {"input": [str(path)], "output": str(tmp_path / "run"), "config": "small"}
    check(parameters)
    assert hashed == ["a.h5"]
    check(parameters | {"dataset": str(tmp_path / "shared")})  # which remembers nothing
    assert hashed == ["a.h5", "a.h5"]
    assert not (tmp_path / "shared").exists()


@pytest.mark.usefixtures("undrawn")
def test_generation_and_validation_hash_no_input_that_is_remembered(tmp_path: Path, hashed: list[str]) -> None:
    path, made = settled(layers_model(tmp_path) / "mc.h5"), str(tmp_path / "g.h5")
    hashed.clear()
    discover([str(path)], memory=tmp_path / "memory")
    common = ["--split", "test", "--dataset", str(tmp_path / "memory")]
    model = [*LAYERS[:2], "--model", str(tmp_path / "model")]
    training.main(["generate", *model, "--like", str(path), "--output", made, *common])
    files = ["--reference", str(path), "--training", str(path), "--candidate", made]
    validation.main([*files, "--output", str(tmp_path / "verdict"), "--grade", "gan", *common])
    assert hashed.count("mc.h5") == 1


def test_what_is_remembered_is_of_one_geometry(tmp_path: Path) -> None:
    path = settled(write_file(tmp_path / "a.h5", make_showers(events=10), geometry=None))
    for cell_mm in (7.0, 8.0, 7.0):
        (file,) = discover([str(path)], f"cell_mm={cell_mm}", memory=tmp_path / "ds").files
        assert file.geometry.cell_mm == cell_mm


def test_a_file_that_changed_is_hashed(tmp_path: Path, hashed: list[str]) -> None:
    path = settled(make_file(tmp_path / "a.h5", events=10))
    discover([str(path)], memory=tmp_path / "ds")
    (before,) = open_all([path], Selection(memory=tmp_path / "ds"))
    make_file(path, events=11)
    (after,) = open_all([path], Selection(memory=tmp_path / "ds"))
    assert hashed == ["a.h5", "a.h5"]
    assert after.sha256 == storage.sha256_of_file(path) != before.sha256


def test_many_files_are_looked_at_without_the_cells_of_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dense cells of at most one of eight files are in memory, although threads open the files at once."""
    for seed in range(8):
        make_file(tmp_path / f"{seed}.h5", events=10, seed=seed)
    read, alive, most = ShowerFile.cells, [], []

    def slowly(file: ShowerFile, start: int, stop: int) -> np.ndarray:
        cells = read(file, start, stop).view()
        alive.append(weakref.ref(cells))
        time.sleep(0.05)  # in which another thread may read
        most.append(sum(each() is not None for each in alive))
        return cells

    monkeypatch.setattr(ShowerFile, "cells", slowly)
    assert len(discover([str(tmp_path / "*.h5")]).files) == len(most) == 8
    assert max(most) == 1
