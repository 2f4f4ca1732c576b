"""Trainings that are killed, in one process and in several: they end as if they had not been killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from servers import free_port, said, together, wait_until
from trainings import command_line, fit_small, same_training, small_flow

from training.model_folder import last_checkpoint
from training.nodes.workers import LOST_WORKER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_training_killed_ten_times_on_a_disk_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """It is killed by SIGKILL, and goes on from the content of its folder each time."""
    dataset, more = small_flow(tmp_path), ("--epochs", "6", "--checkpoint-steps", "1")
    arguments = command_line(dataset, tmp_path / "m", *more)[3:]
    told = said(sys.executable, Path(__file__).with_name("killing.py"), tmp_path / "m", *arguments)
    assert told.count("killed at step") == 10
    fit_small(dataset, tmp_path / "m", *more)
    fit_small(dataset, tmp_path / "whole", "--epochs", "6")
    same_training(tmp_path / "m", tmp_path / "whole")


def test_a_lost_worker_ends_the_other_and_both_go_on_when_started_again(tmp_path: Path) -> None:
    """The survivor ends by itself with a special exit code. The final weights are those of an uninterrupted run.

    At first the second worker is killed. After the restart the first worker is frozen. A training on showers is tested
    in test_runs_on_a_bucket.py.
    """
    dataset = small_flow(tmp_path)
    more = ("--batch", "4", "--checkpoint-steps", "1", "--epochs", "6")
    together(command_line(dataset, tmp_path / "whole", *more))
    output = tmp_path / "m"
    _lose(1, signal.SIGKILL, dataset, output, *more)
    _lose(0, signal.SIGSTOP, dataset, output, *more)
    together(command_line(dataset, output, *more))
    same_training(output, tmp_path / "whole")


def _lose(lost: int, by: signal.Signals, dataset: Path, output: Path, *more: str) -> None:
    """Train with two workers for two steps, and end one worker by a signal; the other worker ends soon after."""
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(2))
    workers = [
        subprocess.Popen(
            command_line(dataset, output, *more, "--hosts", hosts, "--worker", index), stderr=subprocess.PIPE, text=True
        )
        for index in "01"
    ]
    aim, first = last_checkpoint(output) + 2, workers[0]
    wait_until(lambda: last_checkpoint(output) >= aim or first.poll() is not None, "two steps", every_s=0.01)
    assert first.poll() is None
    workers[lost].send_signal(by)
    _, errors = workers[1 - lost].communicate(timeout=60)
    workers[lost].kill()
    workers[lost].communicate()
    assert workers[1 - lost].returncode == LOST_WORKER, errors
    assert f"lost the worker at {hosts.split(',')[lost]}" in errors
