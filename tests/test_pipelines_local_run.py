"""What a run on this machine shows while it runs, and the status of a run that is not finished."""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import Path

import pytest

from calopipe.errors import InputError
from calopipe.lock import alone
from calopipe.progress import BAR, MESSAGE
from components import overview
from pipelines import local_run
from pipelines.local_run import View


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _kfp(text: str) -> str:
    return f"12:00:00.000 - INFO - \x1b[95m{text}\x1b[0m\n"


BEGIN = _kfp("Executing task 'train'")
WELL, BADLY = (_kfp(f"Task 'train' finished with status {status}") for status in ("SUCCESS", "FAILURE"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("pipelines.local_run.time.monotonic", lambda: now[0])
    monkeypatch.setenv("COLUMNS", "60")
    return now


def test_a_step_that_ended_is_a_line_of_its_name_its_time_and_its_last_message(clock: list[float]) -> None:
    log, terminal = io.StringIO(), io.StringIO()
    view = View(log, terminal, verbose=False)
    for part in BEGIN, f"{MESSAGE}first\nof a library\n{MESSAGE}model: {Path.cwd()}/m", f"odel\n{BAR}train: 50% 1/2\n":
        assert view.write(part) == len(part)
    clock[0] += 12.34
    view.write(WELL)
    view.end()
    assert terminal.getvalue() == "train          12.3 s  model: model\n"
    assert view.stopped == ""
    assert "\x1b" not in log.getvalue()
    assert log.getvalue().splitlines()[1:5] == [
        "first", "of a library", f"model: {Path.cwd()}/model", "train: 50% 1/2"
    ]  # fmt: skip


def test_a_run_is_refused_before_its_first_step_while_a_step_of_a_killed_run_goes_on(tmp_path: Path) -> None:
    told = f"{tmp_path}: another run writes there, process {os.getpid()} of"
    before = signal.getsignal(signal.SIGTERM), dict(os.environ)
    with alone(tmp_path, "logs/.train.lock"), pytest.raises(InputError, match=told):
        local_run.run({}, tmp_path, verbose=False)
    assert [*tmp_path.rglob("*")] == [tmp_path / "logs"]
    assert (signal.getsignal(signal.SIGTERM), dict(os.environ)) == before


def test_a_step_that_failed_is_named_with_its_last_lines(clock: list[float]) -> None:
    terminal = io.StringIO()
    view = View(io.StringIO(), terminal, verbose=False)
    view.write(_kfp("Executing task 'preprocess'") + "of another step\n" + WELL.replace("train", "preprocess"))
    view.write(BEGIN + "".join(f"  line {number}\n" for number in range(20)) + "\n" + BADLY)
    view.end()
    assert view.stopped == "train"
    kept = local_run._LINES_OF_A_FAILURE - 1  # beside the empty one
    assert view.tail == "".join(f"    line {number}\n" for number in range(20 - kept, 20))
    assert terminal.getvalue().splitlines()[1:] == ["train           0.0 s  not finished"]


def test_a_terminal_has_a_bar_as_long_as_what_is_done(clock: list[float]) -> None:
    terminal = _Terminal()
    view = View(io.StringIO(), terminal, verbose=False)
    view.write(BEGIN + "".join(f"{BAR}train: {part}\n" for part in ("  0% 0/8", " 50% 4/8", "100% 8/8 " + "x" * 60)))
    begun, *bars = terminal.getvalue().split("\r\x1b[K")[1:]
    assert begun.rstrip() == "train"
    assert [bar.count("\u2588") for bar in bars] == [0, 10, 20]
    assert [bar.index("%") for bar in bars] == [12 + 20 + 1 + 3] * 3
    assert len(bars[-1]) == 59  # a full line would begin another
    verbose = _Terminal()
    view = View(io.StringIO(), verbose, verbose=True)
    view.write(f"{BEGIN}{BAR}train: 50%\nof a library\n")
    assert verbose.getvalue().splitlines()[1:] == ["train: 50%", "of a library"]


# --- what a run has made


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def _states(run: Path) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    return {part.name: (part.state, part.line, part.files) for part in overview.parts(run)}


def test_parts_of_a_run_that_is_not_done_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    overview.note(run, {"dataset": "shared", "registry": "", "epochs": 3}, Path("logs/a.log"))
    asked = overview.noted(run)
    assert asked["parameters"] == {"dataset": str(tmp_path / "shared"), "registry": "", "epochs": 3}
    assert asked["log"] == "a.log"
    nothing = ("not yet", "", ())
    assert _states(run) == {
        "dataset": nothing, "model": nothing, "showers": nothing, "verdict": nothing,
        "registry": ("not yet", "no model was promoted", ()),
    }  # fmt: skip
    _touch(tmp_path / "shared/shards", "1.json", "2.json", "1.tfrecord")
    _touch(run, "model/training.json", ".generated.h5.parts/1.h5", ".generated.h5.parts/.2.h5.partial")
    states = _states(run)
    assert [states[name][:2] for name in ("dataset", "model", "showers")] == [
        ("begun", "2 pieces"), ("begun", "no checkpoint yet"), ("begun", "1 parts")
    ]  # fmt: skip
    _touch(
        run / "model/checkpoints", "step-000000009.json", "step-000000010.json", "step-000000020.npz", "step-30.json.x"
    )
    _touch(run, "rollouts/a.h5")
    _touch(tmp_path / "shared", "manifest.json")
    states = _states(run)
    assert states["dataset"][0] == "damaged"
    assert "manifest.json: " in states["dataset"][1]
    assert states["showers"] == ("done", "1 roll-outs", ("rollouts",))
    assert states["model"][1].startswith("step 10 is saved")


@pytest.mark.parametrize(
    ("judged", "epochs"),
    [(0, []), (3, [0, 1, 2]), (8, [*range(8)]), (16, [0, 2, 4, 6, 8, 10, 12, 14, 15]), (17, [*range(0, 17, 2)])],
)
def test_of_many_epochs_some_are_shown_and_the_last(tmp_path: Path, judged: int, epochs: list[int]) -> None:
    """Only evaluated epochs are shown; between two of them there is another epoch."""
    entries = [{"epoch": number, "step": 1000 * number, "validation": {"ecal": 0.123456}} for number in range(judged)]
    unjudged = {"epoch": 99, "step": 1, "validation": None}
    lines = [json.dumps(line) for entry in entries for line in (entry, unjudged)]
    (tmp_path / "history.jsonl").write_text("\n".join(lines))
    rows = overview._epochs(tmp_path)
    assert [int(row["Epoch"]) for row in rows] == epochs
    assert [row["Step"] for row in rows] == [f"{1000 * number:,}" for number in epochs]
    assert {row["ecal"] for row in rows} <= {"0.1235"}
    assert overview._epochs(tmp_path / "nowhere") == []
    (tmp_path / "history.jsonl").write_text("\n".join([*lines, '{"epoch": 9']))
    assert overview._epochs(tmp_path) == []
