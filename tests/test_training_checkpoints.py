"""Checkpoints: what is kept, what is refused by name, and that a checkpoint is written whole or not at all."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from calopipe import storage
from training.run.checkpoints import Checkpoints


def _save(checkpoints: Checkpoints, step: int, metric: float | None = None) -> None:
    state = {"step": np.int64(step), "network/a/0": np.full((3, 4), step, np.float32)}
    checkpoints.save(state, step=step, facts={"replicas": 1})
    checkpoints.mark(step, metric)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "c", request="r", kept=2)


def test_the_newest_comes_back_whole(checkpoints: Checkpoints) -> None:
    assert checkpoints.newest() is None
    for step in (3, 12, 5):
        _save(checkpoints, step)
    found = checkpoints.newest()
    assert (found.step, found.facts) == (12, {"replicas": 1})
    assert found.state["step"] == 12
    np.testing.assert_array_equal(found.state["network/a/0"], np.full((3, 4), 12, np.float32))


def test_the_newest_and_the_best_are_kept(checkpoints: Checkpoints, tmp_path: Path) -> None:
    ranked = []
    for step, metric in ((1, 0.5), (2, 0.2), (3, None), (4, 0.2), (5, float("nan")), (6, 0.9)):
        _save(checkpoints, step, metric)
        ranked.append(checkpoints.best().step)
    assert ranked == [1, 2, 2, 2, 2, 2]  # the first of equals, also while the other is there
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [
        f"step-00000000{step}.{kind}" for step in (2, 5, 6) for kind in ("json", "npz")
    ]
    assert checkpoints.best_metric() == (2, 0.2)
    assert checkpoints.last_named() == str(tmp_path / "c/step-000000006.npz")


def test_what_is_described_is_whole_while_checkpoints_are_removed(
    checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds after each file, where the process may be killed."""
    remove = storage.remove

    def looked(path: Path) -> None:
        remove(path)
        described, whole = ({each.stem for each in path.parent.glob(f"*.{kind}")} for kind in ("json", "npz"))
        assert described <= whole

    for step in (1, 2):
        _save(checkpoints, step)
    monkeypatch.setattr(storage, "remove", looked)
    checkpoints.discard()
    assert not list((tmp_path / "c").iterdir())


def test_without_a_metric_the_newest_is_the_best(checkpoints: Checkpoints) -> None:
    assert (checkpoints.best(), checkpoints.best_metric(), checkpoints.last_named()) == (None, (0, math.inf), "none")
    _save(checkpoints, 7)
    _save(checkpoints, 8)
    assert (checkpoints.best().step, checkpoints.best_metric()) == (8, (0, math.inf))
    checkpoints.mark(9, 0.1)  # of which there is no checkpoint
    assert checkpoints.best_metric() == (0, math.inf)


def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_used(
    checkpoints: Checkpoints, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _save(checkpoints, 1)
    _save(checkpoints, 2)
    newest = tmp_path / "c/step-000000002.npz"
    data = newest.read_bytes()
    newest.write_bytes(data[:-60] + bytes([data[-60] ^ 1]) + data[-59:])
    with caplog.at_level(logging.WARNING):
        assert checkpoints.newest().step == 1
    assert str(newest) in caplog.text
    assert "using the one before" in caplog.text
    _save(Checkpoints(tmp_path / "c", request="r", kept=1), 1)  # the damaged one does not count as kept
    assert [path.name for path in (tmp_path / "c").glob("*.json")] == ["step-000000001.json"]


def test_a_checkpoint_without_its_document_is_none(checkpoints: Checkpoints, tmp_path: Path) -> None:
    """A kill between the two files leaves such a checkpoint."""
    _save(checkpoints, 1)
    _save(checkpoints, 2)
    (tmp_path / "c/step-000000002.json").unlink()
    assert checkpoints.newest().step == 1
    document = tmp_path / "c/step-000000001.json"
    whole = document.read_text()
    for text in (whole[:30], whole.replace('"replicas": 1', '"replicas": 2')):
        document.write_text(text)
        assert checkpoints.newest() is None


def test_a_worker_that_does_not_write_reads_and_what_a_kill_left_is_removed_by_whoever_does(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    _save(checkpoints, 1)
    _save(checkpoints, 2)
    (tmp_path / "c/step-000000002.npz").write_bytes(b"")
    (tmp_path / "c/step-000000003.npz").write_bytes(b"half")
    before = sorted((tmp_path / "c").iterdir())
    reader = Checkpoints(tmp_path / "c", request="r", kept=1, writes=False)
    assert reader.newest().step == 1
    reader.save({"a": np.zeros(3)}, step=4, facts={})
    reader.wait()
    assert sorted((tmp_path / "c").iterdir()) == before
    Checkpoints(tmp_path / "c", request="r", kept=2)
    assert [path.name for path in before if not path.exists()] == ["step-000000003.npz"]


def test_a_checkpoint_says_whose_it_is_and_is_taken_by_no_other(checkpoints: Checkpoints, tmp_path: Path) -> None:
    _save(checkpoints, 1, 0.25)
    assert Checkpoints(tmp_path / "c", request="other", kept=2).newest() is None
    document = json.loads((tmp_path / "c/step-000000001.json").read_text())
    assert document["kind"] == "calopipe.checkpoint"
    assert (document["request"], document["step"], document["metric"]) == ("r", 1, 0.25)


def test_a_write_that_fails_is_told_of_and_leaves_no_checkpoint(small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(100)
    checkpoints = Checkpoints(disk / "c", request="r", kept=2)
    checkpoints.save({"a": np.zeros(10_000)}, step=1, facts={})  # 80 kB, and no room for a second
    checkpoints.wait()
    checkpoints.save({"a": np.zeros(10_000)}, step=2, facts={})
    with pytest.raises(OSError, match="No space left"):
        checkpoints.wait()
    assert checkpoints.newest().step == 1
    assert sorted(path.name for path in (disk / "c").iterdir()) == ["step-000000001.json", "step-000000001.npz"]
