"""What commands print: progress without a terminal, and nothing of what TensorFlow prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from trainings import LAYERS

ROOT = Path(__file__).parent.parent
_CHATTER = re.compile(r"^I0000 ", re.MULTILINE)  # of the part of TensorFlow that follows no variable


def _run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, check=False, cwd=ROOT, env=environment | variables
    )
    assert done.returncode == 0, done.stderr
    return done


def test_progress_without_a_terminal_is_lines() -> None:
    program = """
from calopipe.progress import progress_bar
with progress_bar("count", 4, "showers") as bar:
    for _ in range(4): bar.update(1)
"""
    written = _run("-c", program, CALOPIPE_VIEWED="0").stderr
    assert b"\r" not in written
    lines = written.decode().splitlines()
    assert [line[:16] for line in lines[:3]] == ["\x05count:   0% 0/4", "\x05count:  25% 1/4", "\x05count:  50% 2/4"]
    written = _run("-c", program).stderr
    assert re.fullmatch(rb"count:   0% 0/4 .*\ncount: 100% 4/4 .*\n", written)


def test_a_training_prints_nothing_of_tensorflows(dataset: Path, tmp_path: Path) -> None:
    fit = ("-m", "training", "fit", "--dataset", dataset, *LAYERS, "--batch", 8, "--steps", 1)
    done = _run(*fit, "--output", tmp_path / "model")
    first, building, last, model = done.stdout.decode().splitlines()
    assert first.startswith("training layers on ")
    assert building.startswith("building the graph")
    assert last.startswith("1 steps; on the validation split: ")
    assert model == f"model: {tmp_path / 'model'}"
    progress = done.stderr.decode().splitlines()
    assert progress[-1].startswith("train: 100% 8/8 ")
    assert progress[0].endswith(" ? showers/s, building the graph]")
    assert "building" not in progress[-1]
    assert all(line.startswith("train: ") for line in progress), progress


@pytest.mark.slow
def test_tensorflows_messages_can_be_asked_for() -> None:
    """This also shows that there are messages to leave out."""
    program = """
from training.quiet_tensorflow import quiet_tensorflow
quiet_tensorflow()
import tensorflow as tf
assert tf.function(lambda x: x + 1, jit_compile=True, autograph=False)(1.0) == 2.0
"""
    told = _run("-c", program, TF_CPP_MIN_LOG_LEVEL="0").stderr.decode()
    assert _CHATTER.search(told), told


# Its output is a pipe that nobody reads any more.
UNREAD = """
import os, sys
from calopipe.progress import say
reader, writer = os.pipe()
os.dup2(writer, 1)
os.close(reader)
os.close(writer)
say("one")
say("another")
os.write(2, b"went on")
os._exit(0)
"""


@pytest.mark.parametrize("viewed", [True, False])
def test_a_step_goes_on_when_its_run_does_not_read_any_more(viewed: bool) -> None:
    """For example after Ctrl-C, when a training has to save. Other commands end, like programs before `head`."""
    others = {name: value for name, value in os.environ.items() if name != "CALOPIPE_VIEWED"}
    environment = others | ({"CALOPIPE_VIEWED": "1"} if viewed else {})
    done = subprocess.run([sys.executable, "-c", UNREAD], capture_output=True, check=False, env=environment)
    assert (done.stderr == b"went on", b"BrokenPipeError" in done.stderr) == (viewed, not viewed)
