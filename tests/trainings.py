"""Trainings of the small 3DGAN through its command, and what two of them have in common."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from showers import make_file

from preprocessing.dataset import Settings
from preprocessing.inputs import discover
from preprocessing.pipeline import preprocess
from training import __main__ as command
from training.folder import read_card


def small_dataset(place: Path) -> Path:
    """The dataset of 80 showers, of which an epoch is seven steps of the small 3DGAN."""
    preprocess(discover([str(make_file(place / "a.h5", events=80))]), place / "ds", Settings())
    return place / "ds"


def fit_small(dataset: Path, output: Path, *more: str) -> None:
    command.main(["fit", "--config", "small", "--dataset", str(dataset), "--output", str(output), *more])


def same_training(found: Path, expected: Path) -> None:
    assert read_card(found).weights == read_card(expected).weights
    histories = [
        [json.loads(line) for line in (place / "history.jsonl").read_text().splitlines()] for place in (found, expected)
    ]
    for entry in (entry for history in histories for entry in history):
        for name in ("seconds", "images_per_s", "evaluation_seconds"):
            entry.pop(name, None)
    assert histories[0] == histories[1]


def command_line(dataset: Path, output: Path, *more: str) -> list[str]:
    arguments = ["fit", "--config", "small", "--dataset", str(dataset), "--output", str(output), *more]
    return [sys.executable, "-m", "training", *arguments]


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
