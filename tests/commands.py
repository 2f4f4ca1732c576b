"""Commands in this process: preprocessing, with arguments of any kind; and how a command refuses bad input."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from calopipe.errors import BAD_INPUT_EXIT_CODE, run_command
from preprocessing import __main__ as preprocessing


def run(*arguments: object) -> None:
    """`python -m preprocessing` with these arguments."""
    preprocessing.main([str(argument) for argument in arguments])


def refusal(capsys: pytest.CaptureFixture[str], command: Callable[..., object], *arguments: object) -> str:
    """The one line that a command says as it ends with the exit code of bad input."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        run_command(partial(command, *arguments))
    assert ended.value.code == BAD_INPUT_EXIT_CODE
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    return line
