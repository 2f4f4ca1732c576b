"""Trainings that are killed, in one process and in several: they end as if they had not been."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from servers import free_port, together
from trainings import command_line, fit_small, same_training, small_dataset, small_flow, small_options, wait_for

from calopipe.errors import InputError
from training import folder
from training.nodes.workers import LOST_WORKER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_training_killed_ten_times_on_a_disk_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """By SIGKILL; it goes on from what lies in its folder each time."""
    dataset, more = small_flow(tmp_path), ("--epochs", "6", "--checkpoint-steps", "1")
    arguments = command_line(dataset, tmp_path / "m", *more)[3:]
    program = [sys.executable, str(Path(__file__).with_name("killing.py")), str(tmp_path / "m"), *arguments]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("killed at step")) == (0, 10), done.stderr[-2000:]
    fit_small(dataset, tmp_path / "m", *more)
    fit_small(dataset, tmp_path / "whole", "--epochs", "6")
    same_training(tmp_path / "m", tmp_path / "whole")


# The command on two devices. A first argument N has it stop, as if killed, once a checkpoint of step N stands.
_MIRRORED = """
import os, sys, tensorflow as tf
from training.run import checkpoints
from training.__main__ import main
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
if last := sys.argv[1]:
    write = checkpoints.Checkpoints._write
    def dying(self, state, step, *more):
        write(self, state, step, *more)
        if step == int(last):
            os._exit(0)
    checkpoints.Checkpoints._write = dying
main([*sys.argv[2:], "--checkpoint-steps", "1"])
"""


def test_two_replicas_train_together_and_go_on_as_if_they_had_not_stopped(tmp_path: Path) -> None:
    """Two replicas of four: their statistics differ within a step, and a checkpoint holds the mean that all have."""
    dataset = small_dataset(tmp_path)
    for name, first in (("whole", ""), ("halves", "10")):
        arguments = small_options(dataset, tmp_path / name, "--batch", "4", "--strategy", "mirrored")
        given = [sys.executable, "-c", _MIRRORED, first, *arguments]
        for _ in range(2 if first else 1):
            done = subprocess.run(given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "8 showers each over 2 replica(s)" in done.stdout
    assert "steps 10 to 14" in done.stdout
    same_training(tmp_path / "halves", tmp_path / "whole")
    first_epoch = json.loads((tmp_path / "whole/history.jsonl").read_text().splitlines()[1])["train"]
    assert first_epoch["discriminator_real"]["ecal"] == pytest.approx(0, abs=1e-3)
    assert first_epoch["discriminator_real"]["auxiliary"] < 200  # a mean over the showers, not a sum over replicas
    (tmp_path / "whole/card.json").unlink()
    with pytest.raises(InputError, match="trained by 2 replicas until step 14, now there are 1"):
        fit_small(dataset, tmp_path / "whole", "--batch", "4", "--strategy", "mirrored")


def test_a_lost_worker_ends_the_other_and_both_go_on_when_started_again(tmp_path: Path) -> None:
    """The survivor ends by itself with a code of its own. In the end the weights are those of an uninterrupted run.

    The second worker is killed first; the first one is frozen, once they go on. Of showers: test_runs_on_a_bucket.py
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
    """Train with two workers for two steps, and end the one by a signal; the other one ends soon after."""
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(2))
    workers = [
        subprocess.Popen(
            command_line(dataset, output, *more, "--hosts", hosts, "--worker", index), stderr=subprocess.PIPE, text=True
        )
        for index in "01"
    ]
    begin = folder.last_checkpoint(output)
    wait_for(lambda: folder.last_checkpoint(output) >= begin + 2, workers[0])
    workers[lost].send_signal(by)
    _, errors = workers[1 - lost].communicate(timeout=60)
    workers[lost].kill()
    workers[lost].communicate()
    assert workers[1 - lost].returncode == LOST_WORKER, errors
    assert f"lost the worker at {hosts.split(',')[lost]}" in errors
