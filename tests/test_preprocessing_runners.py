"""The same bytes from every runner, a real Dask cluster among them, whatever is killed; and every run ends."""

from __future__ import annotations

import multiprocessing
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import distributed
import pytest
from commands import beam, command_of, files_of
from servers import PRISM, DaskCluster, dask_cluster, free_port, go_tool, said, wait_until
from showers import make_file

from calopipe.errors import InputError
from preprocessing.__main__ import main
from preprocessing.dataset import SHARDS, read_manifest, require_unaltered

_SECONDS = 300  # which no run may take, on a slow machine either
_EVENTS, _PIECE = 1000, 10
_KILLS = 10


def _command(source: Path, output: Path, address: str = "", *options: str) -> list[str]:
    on_dask = beam("runner=DaskRunner", f"dask_client_address={address}") if address else []
    return command_of(source, output, "--shard-events", str(_PIECE), *on_dask, *beam(*options))


def _start(*arguments: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(_command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _ended(run: subprocess.Popen[str], code: int = 0) -> str:
    """What a run printed as errors and progress. It must end with this exit code."""
    _, told = run.communicate(timeout=_SECONDS)
    assert run.returncode == code, told
    return told


def _told(run: subprocess.Popen[str]) -> str:
    """The error line of a run that ended with bad input and printed nothing else except progress."""
    *progress, line = (told := _ended(run, 2)).splitlines()
    assert all(each.startswith("preprocess: ") for each in progress), told
    assert line.startswith("error: ")
    return line


def _done(output: Path) -> int:
    return len(list((output / SHARDS).glob("*.json")))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one file of 100 pieces, and beside it `dataset`, which was made from it in this process."""
    folder = tmp_path_factory.mktemp("source")
    make_file(folder / "0.h5", events=_EVENTS)
    said(*_command(folder, folder / "dataset"))
    return folder


def test_two_processes(source: Path, tmp_path: Path) -> None:
    said(*_command(source, tmp_path), "--workers", "2")
    assert files_of(tmp_path) == files_of(source / "dataset")


def test_prism(source: Path, tmp_path: Path) -> None:
    prism = "runner=PrismRunner", f"prism_location={go_tool(PRISM)}"
    said(*_command(source, tmp_path, "", *prism), timeout=600)
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
        assert manifest.events["written"] == _EVENTS
        shutil.rmtree(output)  # the next begins anew
    said(*_command(source, output))
    assert files_of(output) == whole


def test_two_runs_at_once_end_in_one_dataset(source: Path, tmp_path: Path) -> None:
    for run in [_start(source, tmp_path), _start(source, tmp_path)]:
        _ended(run)
    assert files_of(tmp_path) == files_of(source / "dataset")


# --- on Dask


def test_every_worker_makes_pieces_of_the_same_dataset(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "ds"
    with (
        dask_cluster(tmp_path, workers=2) as cluster,
        distributed.Client(cluster.address, set_as_default=False) as client,
    ):
        client.get_task_stream()  # from now on the scheduler keeps who did what
        told = _ended(_start(source, output, cluster.address))
        by_worker = Counter(task["worker"] for task in client.get_task_stream())
    assert files_of(output) == files_of(source / "dataset")
    assert len(by_worker) == 2
    assert by_worker.total() >= _EVENTS // _PIECE  # each piece is a task
    assert f"preprocess: 100% {_EVENTS}/{_EVENTS}" in told


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("dask_client_address=gateway://127.0.0.1:1/x",), "unknown address scheme 'gateway'"),
        (("dask_scheduler_file=/no/such/file",), "/no/such/file: no such file of a Dask scheduler"),
        ((), "the DaskRunner needs --beam-option dask_client_address"),
    ],
)
def test_without_a_scheduler(source: Path, tmp_path: Path, options: tuple[str, ...], reason: str) -> None:
    with pytest.raises(InputError, match=re.escape(reason)):
        main(_command(source, tmp_path, "", "runner=DaskRunner", *options)[3:])


def test_without_a_scheduler_a_command_ends_in_one_line(source: Path, tmp_path: Path) -> None:
    run = _start(source, tmp_path, f"tcp://127.0.0.1:{free_port()}", "dask_connection_timeout=1")
    assert "no Dask scheduler" in _told(run)


def _begun(source: Path, output: Path, cluster: DaskCluster) -> subprocess.Popen[str]:
    """A run with some pieces done, and most not done: the last worker is stopped while it holds some."""
    run = _start(source, output, cluster.address)
    wait_until(lambda: _done(output) > 2 or run.poll() is not None, "pieces", every_s=0.005)
    cluster.workers[-1].send_signal(signal.SIGSTOP)
    assert 2 < _done(output) < _EVENTS // _PIECE
    return run


@pytest.mark.slow
def test_the_work_of_a_killed_worker_is_done_again(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "ds"
    with dask_cluster(tmp_path, workers=2) as cluster:
        run = _begun(source, output, cluster)
        cluster.workers[-1].kill()
        _ended(run)
    assert files_of(output) == files_of(source / "dataset")


def test_all_workers_lost(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "ds"
    with dask_cluster(tmp_path, workers=1) as cluster:
        # The scheduler itself has no limit. In so long it answers, however busy the machine is.
        monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT", "20s")
        run = _begun(source, output, cluster)
        cluster.workers[-1].kill()
        assert "no Dask worker for 20 s" in _told(run)
    assert not (output / "manifest.json").exists()


@pytest.mark.slow
def test_a_piece_that_kills_workers(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    with dask_cluster(tmp_path, workers=2) as cluster:
        run = _begun(source, tmp_path / "ds", cluster)
        cluster.workers[-1].kill()
        assert "died at one piece of the work, the last at tcp://127.0.0.1:" in _told(run)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])  # gone, or no longer answering
def test_scheduler_lost(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    output = tmp_path / "ds"
    with dask_cluster(tmp_path, workers=1) as cluster:
        monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT", "10s")
        run = _begun(source, output, cluster)
        cluster.scheduler.send_signal(number)
        assert "the Dask scheduler is lost" in _told(run)
    _ended(_start(source, output))
    assert files_of(output) == files_of(source / "dataset")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_run_and_the_work(source: Path, tmp_path: Path, number: signal.Signals) -> None:
    output = tmp_path / "ds"
    with dask_cluster(tmp_path, workers=1) as cluster:
        run = _begun(source, output, cluster)
        run.send_signal(number)
        told = _ended(run, {signal.SIGINT: 130, signal.SIGTERM: -signal.SIGTERM}[number])
        assert "Traceback" not in told
        cluster.workers[-1].send_signal(signal.SIGCONT)
        with distributed.Client(cluster.address, set_as_default=False) as client:
            wait_until(lambda: not any(client.processing().values()), "the end of the work", every_s=0.005)
        assert _done(output) < _EVENTS // _PIECE  # the scheduler dropped what the client had asked for
        _ended(_start(source, output, cluster.address))
    assert files_of(output) == files_of(source / "dataset")
