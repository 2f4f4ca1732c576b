"""Options of a command line, what they may hold, and how a command ends when a user's input cannot be used."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from calopipe import options
from calopipe.errors import InputError, describe, one_line_errors, require_seed
from calopipe.options import CommandParser, add_settings, check_settings, default_of, given_values, setting, settings_of


@dataclass(frozen=True, kw_only=True)
class _Oven:
    heat: int = setting(3, least=1, below=10, help="How hot.")
    share: float = setting(0.5, least=0, help="Of it.")
    mode: str = setting("air", known=("air", "grill"), help="Which...")
    fan: bool = setting(False, help="Blow by 5%.")
    names: tuple[str, ...] = setting((), flag="--name", each="<{}>".format, help="Names, one each.")
    extra: Mapping[str, Any] = setting({"a": 1}, flag="--set", help="Others.")
    place: str = setting(help="Where it is.")
    inner: int = 7

    def __post_init__(self) -> None:
        check_settings(self)


def _parsed(*arguments: str) -> dict[str, Any]:
    parser = CommandParser(prog="oven")
    add_settings(parser, settings_of(_Oven), options.option_help)
    return given_values(_Oven, parser.parse_args(arguments))


def test_only_what_is_given_has_a_value() -> None:
    assert _parsed() == {}
    assert _parsed("--heat", "0", "--share", "0", "--fan", "--name", "x", "--name", "y") == {
        "heat": 0, "share": 0.0, "fan": True, "names": ["<x>", "<y>"]
    }  # fmt: skip
    assert [field.name for field in settings_of(_Oven)][-1] == "place"
    assert {field.name: default_of(field) for field in settings_of(_Oven)} == {
        "heat": 3, "share": 0.5, "mode": "air", "fan": False, "names": [], "extra": {"a": 1}, "place": None
    }  # fmt: skip
    default_of(settings_of(_Oven)[5])["a"] = 2
    assert _Oven(place="here").extra == {"a": 1}
    assert [options.option_help(field) for field in settings_of(_Oven)[:4:3]] == ["how hot (default: 3)", "blow by 5%%"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"heat": 0}, "--heat is 0, expected at least 1 and under 10"),
        ({"heat": 10}, "--heat is 10, expected at least 1 and under 10"),
        ({"share": float("nan")}, "--share is nan, expected at least 0$"),
        ({"mode": "steam"}, "--mode 'steam' is unknown; known: air, grill"),
    ],
)
def test_a_setting_holds_its_lower_edge_and_not_its_upper(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        _Oven(place="here", **wrong)
    for right in ({"heat": 1}, {"heat": 9}, {"share": 0}, {"share": 1e9}, {"mode": "grill"}):
        _Oven(place="here", **right)


def test_an_option_that_comes_again_adds_only_where_it_takes_several() -> None:
    parser = CommandParser(prog="p")
    parser.add_argument("--input", nargs="+", default=["d"])
    parser.add_argument("--output")
    parser.add_argument("--in-use", dest="used", default="")
    options = parser.parse_args(["--input", "a", "b", "--input", "c", "--output", "x", "--output", "y"])
    assert (options.input, options.output) == (["a", "b", "c"], "y")
    assert parser.parse_args([]).input == ["d"]
    parser.refuse(options, ["used"], "is for others")
    options.used = "x"
    with pytest.raises(InputError, match=r"^--in-use is for others; leave it out"):
        parser.refuse(options, ["used"], "is for others")


@pytest.mark.parametrize("arguments", [["--outp", "x"], ["--none"], ["--output"]])
def test_a_bad_argument_is_one_line_and_no_option_is_abbreviated(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = CommandParser(prog="p")
    parser.add_argument("--output")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(arguments)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith("error: ")
    assert said.endswith("; see p --help\n")
    assert said.count("\n") == 1


def test_a_seed_is_one_for_numpy_and_for_tensorflow() -> None:
    for seed in (0, 2**31 - 1):
        require_seed(seed)
    for seed in (-1, 2**31):
        with pytest.raises(InputError, match=f"--seed is {seed}, expected 0 to 2147483647"):
            require_seed(seed)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("a\n  b"), "a b"),
        (OSError(errno.ENOSPC, "x", "a.h5"), "a.h5: the disk is full"),
        (OSError(errno.EDQUOT, "x"), "the disk quota is used up"),
        (PermissionError(errno.EACCES, "x", "a.h5"), "a.h5: permission denied"),
        (FileNotFoundError(errno.ENOENT, "x", "a.h5"), "a.h5: no such file or folder"),
        (OSError(errno.EROFS, "x", "a.h5"), "a.h5: the file system is read-only"),
        (OSError(errno.ENOTSUP, "x", "a.h5"), "a.h5: this file system cannot do that"),
        (MemoryError("Unable to allocate 36 TiB"), "memory is used up (Unable to allocate 36 TiB); ask for less"),
        (OSError(errno.EBADF, "x", "a.h5"), None),
        (ValueError("a defect"), None),
    ],
)
def test_an_error_that_a_user_can_correct_is_told_in_a_line(error: Exception, line: str | None) -> None:
    told = describe(error)
    assert told is None if line is None else (told or "").startswith(line)


def test_the_line_goes_to_the_termination_log_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("TERMINATION_LOG", str(log))
    for is_there in (False, True):
        if is_there:
            log.touch()
        with pytest.raises(SystemExit) as ended, one_line_errors():
            raise InputError("no\nshowers")
        assert (ended.value.code, capsys.readouterr().err) == (2, "error: no showers\n")
        assert (log.read_text() if is_there else log.exists()) == ("no showers" if is_there else False)
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise MemoryError
    assert (ended.value.code, log.read_text()) == (
        2,
        "memory is used up; ask for less at once, or use a larger machine",
    )
    log.write_text("no showers")
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise KeyboardInterrupt
    assert ended.value.code == 130
    for defect in (ValueError("a defect"), OSError(errno.EBADF, "a defect")):
        with pytest.raises(type(defect), match="a defect"), one_line_errors():
            raise defect
    assert log.read_text() == "no showers"


def test_a_command_whose_reader_has_ended_says_nothing() -> None:
    """As in `status RUN | head -1`. Little is written at the end of the command, much at once."""
    for letters in (10, 10**6):
        program = f"from calopipe.errors import run_command; run_command(lambda: print('x' * {letters}))"
        with subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as command:
            assert command.stdout is not None
            assert command.stderr is not None
            command.stdout.close()
            assert command.stderr.read() == b""
        assert command.returncode == 141
