"""Commands in this process: preprocessing, its files, records and input, and how a command refuses bad input."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from calopipe.errors import BAD_INPUT_EXIT_CODE, run_command
from calopipe.events.contents import MEMORY
from calopipe.storage import location
from preprocessing import __main__ as preprocessing
from preprocessing.dataset import read_manifest


def command_of(source: Path | str, output: Path, *options: str) -> list[str]:
    """The command line that makes the dataset `output` of the files in `source`."""
    command = [sys.executable, "-m", "preprocessing", "--input", f"{source}/*.h5", "--output", str(output)]
    return [*command, *options]


def beam(*options: str) -> list[str]:
    """The command's form of these options of Beam."""
    return [word for option in options for word in ("--beam-option", option)]


def run(*arguments: object) -> str:
    """What `python -m preprocessing` prints, with these arguments."""
    with redirect_stdout(StringIO()) as said:
        preprocessing.main([str(argument) for argument in arguments])
    return said.getvalue()


def made(*arguments: object) -> Any:
    """The manifest of the dataset that `python -m preprocessing` makes with these arguments."""
    run(*arguments)
    return read_manifest(location(str(arguments[arguments.index("--output") + 1])))


def refused(*arguments: object, command: Callable[..., object] = run) -> str:
    """The one line that `command` prints about these arguments. It must end with the exit code of bad input."""
    with redirect_stderr(StringIO()) as said, pytest.raises(SystemExit) as ended:
        run_command(partial(command, *arguments))
    assert ended.value.code == BAD_INPUT_EXIT_CODE
    (line,) = [line for line in said.getvalue().splitlines() if line.startswith("error: ")]
    return line


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a dataset, without the document about its inputs, and without files that are being written."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != MEMORY)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.suffix != ".partial"}


def records_of(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """(split, features) of every record of a dataset, by TensorFlow's own parser."""
    import tensorflow as tf  # which few commands need

    return [
        (shard.split, dict(tf.train.Example.FromString(record.numpy()).features.feature))
        for shard in read_manifest(folder).shards
        for record in tf.data.TFRecordDataset(str(folder / shard.name))
    ]


def settled(path: Path) -> Path:
    """The file `path`, whose time of change is set back far enough that the file can be remembered by it."""
    hour_ago = path.stat().st_mtime_ns - 3600 * 10**9
    os.utime(path, ns=(hour_ago, hour_ago))
    return path
