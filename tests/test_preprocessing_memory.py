"""What a dataset remembers of its input files is hashed by no stage again."""

from __future__ import annotations

from pathlib import Path

from commands import settled
from showers import make_file, make_showers, write_file

from calopipe import storage
from calopipe.showers.files import open_all
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


def test_generation_and_validation_hash_no_input_that_is_remembered(
    trained: Path, tmp_path: Path, hashed: list[str]
) -> None:
    path = settled(make_file(tmp_path / "a.h5", events=100))
    discover([str(path)], memory=tmp_path / "ds")
    assert hashed == ["a.h5"]
    common = ["--split", "test", "--dataset", str(tmp_path / "ds")]
    made = tmp_path / "g.h5"
    training.main(["generate", "--model", str(trained / "model"), "--like", str(path), "--output", str(made), *common])
    files = ["--reference", str(path), "--training", str(path), "--candidate", str(made)]
    validation.main([*files, "--output", str(tmp_path / "verdict"), "--grade", "gan", *common])
    assert hashed.count("a.h5") == 1


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
