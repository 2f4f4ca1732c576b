"""The same bytes from every runner, from killed runs, and from runs that write one dataset at the same time."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from commands import beam, command_of, files_of
from servers import PRISM, go_tool, said
from showers import make_file

from calopipe.errors import InputError
from preprocessing.__main__ import main
from preprocessing.dataset import read_manifest, require_unaltered

_KILLS = 10


def _command(source: Path, output: Path, *options: str) -> list[str]:
    return command_of(source, output, "--shard-events", "20", *options)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two files, and beside it `dataset`, which was made from them in this process."""
    folder = tmp_path_factory.mktemp("source")
    for seed in range(2):
        make_file(folder / f"{seed}.h5", events=70, seed=seed)
    said(*_command(folder, folder / "dataset"))
    return folder


def test_two_processes(source: Path, tmp_path: Path) -> None:
    said(*_command(source, tmp_path, "--workers", "2"))
    assert files_of(tmp_path) == files_of(source / "dataset")


def test_prism(source: Path, tmp_path: Path) -> None:
    prism = beam("runner=PrismRunner", f"prism_location={go_tool(PRISM)}")
    said(*_command(source, tmp_path, *prism), timeout=600)
    assert files_of(tmp_path) == files_of(source / "dataset")


def test_runs_that_are_killed_end_in_the_same_bytes(source: Path, tmp_path: Path) -> None:
    """Each run is killed after a random number of written files. A reader never takes half a dataset for a whole one.

    Each run is a fork of a process that has loaded Beam.
    """
    rng = random.Random(1)
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["preprocessing.__main__", "preprocessing.pipeline", "apache_beam"])
    arguments = _command(source, output := tmp_path / "ds")[3:]
    whole = files_of(source / "dataset")

    def files() -> int:
        return sum(path.is_file() and path.suffix != ".partial" for path in output.rglob("*"))

    for _ in range(_KILLS):
        run = forks.Process(target=main, args=(arguments,))
        run.start()
        begun = files()
        more = rng.randrange(max(2, len(whole) + 2 - begun))  # the manifest and what is remembered of inputs included
        while run.is_alive() and files() < begun + more:
            time.sleep(0.002)
        run.kill()
        run.join()
        assert run.exitcode in {0, -signal.SIGKILL}
        try:
            manifest = read_manifest(output)
        except InputError:
            continue
        require_unaltered(output, manifest)
        assert manifest.events["written"] == 140
        shutil.rmtree(output)  # the next begins anew
    said(*_command(source, output))
    assert files_of(output) == whole


def test_two_runs_at_once_end_in_one_dataset(source: Path, tmp_path: Path) -> None:
    runs = [subprocess.Popen(_command(source, tmp_path), stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for run in runs:
        _, told = run.communicate(timeout=600)
        assert run.returncode == 0, told
    assert files_of(tmp_path) == files_of(source / "dataset")
