"""The registry: models are promoted one after the other, and the history is kept; in a folder or in an object store.

Then what a user changes in it: the model in use, and the grade by which the next model is judged.
"""

from __future__ import annotations

import errno
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import h5py
import pytest
from servers import store
from verdicts import LAX, WIDE, candidate, promoted, write_model, write_verdict

from calopipe import storage
from calopipe.errors import InputError
from calopipe.grade import load_grade
from calopipe.lock import alone
from calopipe.storage import location
from training import __main__ as command
from training import model_folder
from training.model_folder import Card, read_card
from training.registry import registry as registry_module
from training.registry.candidate import Candidate
from training.registry.registry import Registry


@pytest.fixture
def on_disk(tmp_path: Path) -> Registry:
    """A registry on a disk, for tests that do not depend on the place of a registry."""
    return Registry(tmp_path / "registry")


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with store("models"):
        yield "gs://models"


@pytest.fixture(params=["folder", "store"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Registry:
    if request.param == "folder":
        return Registry(tmp_path / "registry")
    return Registry(location(f"{request.getfixturevalue('bucket')}/{tmp_path.name}/registry"))


def test_models_are_promoted_one_after_the_other(registry: Registry, tmp_path: Path) -> None:
    assert registry.current() is None
    assert registry.incumbent() is None
    _, second = promoted(registry, tmp_path, 2)
    one, two = registry.history()
    assert (one.number, one.replaced, two.number, two.replaced) == (1, None, 2, one.model)
    assert (one.at[-6:], one.id != two.id) == ("+00:00", True)
    assert registry.current() == two
    assert registry.fetch(two, tmp_path / "copy") == read_card(second.model) == read_card(tmp_path / "copy")
    kept = registry.place / "models" / two.model
    assert (kept / "report.html").read_text() == "report of run-2"
    assert json.loads((kept / "verdict.json").read_text())["request"] == "run-2"

    # a run that is repeated finds its opponent and its promotion
    assert registry.incumbent() == two
    assert registry.incumbent(two.fingerprint) == one  # whom it beat
    assert registry.incumbent("another") == two
    assert registry.promote(second).startswith(f"promotion stands: {two.model}")
    write_verdict(second.judgement, verdict="rejected", outcome="better")  # under another grade, say
    assert registry.promote(second).endswith("; by now the verdict is rejected (grade wide)")
    assert len(registry.history()) == 2


def test_a_challenger_must_be_accepted_and_not_worse(on_disk: Registry, tmp_path: Path) -> None:
    told = on_disk.promote(candidate(tmp_path, 4, verdict="inconclusive"))
    assert told == "not promoted: the verdict is inconclusive (grade wide)"
    assert not on_disk.place.exists()
    (first,) = promoted(on_disk, tmp_path, 1)
    *_, current = on_disk.history()
    worse = candidate(tmp_path, 2, first, outcome="worse")
    assert on_disk.promote(worse) == f"not promoted: it is worse than {current.model}, the current model"
    alike = candidate(tmp_path, 3, first, outcome="no significant difference")
    assert on_disk.promote(alike).startswith("promoted to ")


def test_a_registry_that_is_not_there_is_no_empty_one(
    on_disk: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_disk.place.mkdir()
    fetch = ["fetch", "--output", str(tmp_path / "m")]
    command.main(["promotions", "--registry", str(on_disk.place)])
    assert "no model was promoted there yet" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"no model was promoted there$"):
        command.main([*fetch, "--registry", str(on_disk.place)])
    for task in (["promotions"], fetch):
        with pytest.raises(InputError, match=r"--registry .*/regisrty: no such folder; check the path"):
            command.main([*task, "--registry", str(tmp_path / "regisrty")])


def test_a_verdict_beside_other_showers_than_those_of_the_current_model_does_not_count(
    on_disk: Registry, tmp_path: Path
) -> None:
    (first,) = promoted(on_disk, tmp_path, 1)
    unopposed, late, other = candidate(tmp_path, 2), candidate(tmp_path, 3, first), candidate(tmp_path, 5, first)
    with h5py.File(other.incumbent, "a") as file:
        file.attrs["seed"] = 2  # of the same model, and not those of the verdict
    (one,) = on_disk.history()
    refused = "not promoted: the verdict does not compare it with {}, the current model by now; run again"
    assert on_disk.promote(unopposed) == on_disk.promote(other) == refused.format(one.model)
    on_disk.promote(candidate(tmp_path, 4, first))
    _, two = on_disk.history()
    assert on_disk.promote(late) == refused.format(two.model)
    assert len(on_disk.history()) == 2


def _promoted_at_once(registry: Registry, rivals: list[Candidate]) -> list[str]:
    """Each promotion is about to take its number, and has found the same current model."""
    together = Barrier(len(rivals))

    class Waiting(Registry):
        def _store(self, candidate: Candidate, name: str, card: Card) -> None:
            super()._store(candidate, name, card)
            together.wait()

    with ThreadPoolExecutor(len(rivals)) as threads:
        return list(threads.map(Waiting(registry.place).promote, rivals))


def test_of_many_promoted_at_once_one_succeeds_and_a_step_that_is_started_twice_once(
    registry: Registry, tmp_path: Path
) -> None:
    (first,) = promoted(registry, tmp_path, 1)
    rivals = [candidate(tmp_path, seed, first) for seed in range(2, 8)]
    told = _promoted_at_once(registry, rivals)
    assert sum(message.startswith("promoted to ") for message in told) == 1
    assert sum("another run promoted a model at the same time" in message for message in told) == len(rivals) - 1
    _, second = registry.history()
    (winner,) = [rival for rival, message in zip(rivals, told, strict=True) if message.startswith("promoted")]
    assert second.fingerprint == read_card(winner.model).fingerprint()
    one, two = sorted(_promoted_at_once(registry, [candidate(tmp_path, 9, winner)] * 2))
    assert (one.partition(" to ")[0], two.partition(":")[0]) == ("promoted", "promotion stands")
    assert len(registry.history()) == 3


@pytest.mark.parametrize("stop", range(6))
def test_a_promotion_that_is_cut_off_leaves_the_current_model_and_is_done_the_next_time(
    on_disk: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """It is cut off before each of its writes: three files of the model, two of the verdict, the promotion."""
    (first,) = promoted(on_disk, tmp_path, 1)
    before = on_disk.history()
    second = candidate(tmp_path, 2, first)
    writes = iter(range(10))

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def one(*given: Any) -> Any:
            if next(writes) == stop:
                raise KeyboardInterrupt
            return write(*given)

        return one

    with monkeypatch.context() as patch:
        patch.setattr(storage, "put", counted(storage.put))
        patch.setattr(storage, "create_json", counted(storage.create_json))
        with pytest.raises(KeyboardInterrupt):
            on_disk.promote(second)
    assert on_disk.history() == before
    cards = [*on_disk.place.glob(f"models/*/{model_folder.CARD}")]  # which say that a model is whole
    assert len(cards) == 1 + (stop == 5)
    assert on_disk.promote(second).startswith("promoted to ")
    *_, current = on_disk.history()
    assert on_disk.fetch(current, tmp_path / "copy") == read_card(second.model)


def test_a_registry_that_cannot_be_used_is_told_of_before_anything_is_done(
    tmp_path: Path, small_disk: Callable[[int], Path]
) -> None:
    Registry(tmp_path / "new" / "registry").require_usable()
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file: a file, not a folder"):
        Registry(tmp_path / "file").require_usable()
    disk = small_disk(100)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(InputError, match="cannot be written; give another"):
        Registry(disk / "registry").require_usable()


def test_a_damaged_promotion_is_told_of_and_other_files_beside_are_none(on_disk: Registry, tmp_path: Path) -> None:
    promoted(on_disk, tmp_path, 1)
    for name in ("000002.json.partial", "a000003.json", "00004.json", "notes.txt"):
        (on_disk.place / "promotions" / name).write_text("{}")
    assert [entry.number for entry in on_disk.history()] == [1]
    path = on_disk.place / "promotions/000001.json"
    document = json.loads(path.read_text())
    del document["model"]
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"000001\.json: not a whole calopipe\.promotion \(.*model"):
        on_disk.require_usable()


def test_the_commands_list_the_promotions_and_copy_the_current_model(
    on_disk: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--registry", str(on_disk.place)]
    fetch = ["fetch", *place, "--output", str(tmp_path / "copy")]
    first, second = promoted(on_disk, tmp_path, 2)
    on_disk.regrade(LAX)
    one, two, three = on_disk.history()
    command.main(["promotions", *place])
    assert capsys.readouterr().out.splitlines() == [
        f"     1  {one.at}  {one.model}  promoted (grade {one.grade})",
        f"     2  {two.at}  {two.model}  promoted, in place of {one.model} (grade {two.grade})",
        f"     3  {three.at}  {two.model}  grade changed (grade {three.grade})",
    ]
    model_folder.take_over(first.model, tmp_path / "copy", overwrite=False)
    with pytest.raises(InputError, match="or --overwrite"):
        command.main(fetch)
    assert read_card(tmp_path / "copy") == read_card(first.model)
    command.main([*fetch, "--overwrite"])
    assert read_card(tmp_path / "copy") == read_card(second.model)
    assert (tmp_path / "copy" / model_folder.HISTORY).exists()
    assert capsys.readouterr().out.endswith(f"model: {tmp_path / 'copy'}, which is {two.model}\n")
    card = on_disk.fetch(one, tmp_path / "copy")
    assert card == read_card(first.model) == model_folder.standing(tmp_path / "copy", card.request)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/showers.h5").touch()
    with pytest.raises(InputError, match="holds files that are no model"):
        on_disk.fetch(two, tmp_path / "mine", overwrite=False)


def test_a_model_of_the_same_training_is_replaced_only_when_told(on_disk: Registry, tmp_path: Path) -> None:
    """A training that is repeated, for example on another processor, gives other weights."""
    (first,) = promoted(on_disk, tmp_path, 1)
    (one,) = on_disk.history()
    on_disk.fetch(one, tmp_path / "copy")
    again = write_model(tmp_path / "copy", "other weights", request=read_card(first.model).request)
    with pytest.raises(InputError, match=r"holds another model of this training; .* or --overwrite"):
        on_disk.fetch(one, tmp_path / "copy", overwrite=False)
    assert read_card(tmp_path / "copy") == again
    with alone(tmp_path / "copy", model_folder.LOCK), pytest.raises(InputError, match="another run writes there"):
        on_disk.fetch(one, tmp_path / "copy", overwrite=True)
    on_disk.fetch(one, tmp_path / "copy", overwrite=True)
    assert read_card(tmp_path / "copy") == read_card(first.model)


def test_a_full_disk_is_the_registrys(tmp_path: Path, small_disk: Callable[[int], Path]) -> None:
    registry = Registry(small_disk(4) / "registry")
    with pytest.raises(OSError) as full:  # noqa: PT011  what the system says
        registry.promote(candidate(tmp_path, 1))
    assert full.value.errno == errno.ENOSPC
    assert str(registry.place) in str(full.value.filename)
    assert registry.current() is None


def test_files_that_contradict_each_other(on_disk: Registry, tmp_path: Path) -> None:
    one, other = candidate(tmp_path, 1), candidate(tmp_path, 2)
    for files, told in (
        (replace(one, generated=other.generated), r"verdict\.json: not the verdict on .*generated\.h5"),
        (replace(one, verdict_id="another"), "another verdict than the one just given"),
        (replace(other, model=one.model), "not made by the model that is to be promoted"),
    ):
        with pytest.raises(InputError, match=told):
            on_disk.promote(files)
    for split in ("train", "validation", "all"):
        write_verdict(one.judgement, split=split)
        with pytest.raises(InputError, match=f"of the {split} split; only the test split judges"):
            on_disk.promote(one)
    assert not on_disk.place.exists()


def test_a_model_that_is_gone_or_damaged_is_told_of(registry: Registry, tmp_path: Path) -> None:
    registry.promote(candidate(tmp_path, 1))
    *_, current = registry.history()
    place = registry.place / "models" / current.model
    (tmp_path / "damaged").write_bytes(b"other weights")
    storage.put(tmp_path / "damaged", place / "generator.weights.h5")
    with pytest.raises(InputError, match="not the file that the card was written for"):
        registry.fetch(current, tmp_path / "copy")
    assert registry._append(current, "other", "other", "promoted", "")
    with pytest.raises(InputError, match="not the file that the card was written for"):
        registry.rollback()
    assert len(registry.history()) == 2
    (place / "card.json").unlink()
    with pytest.raises(InputError, match="not there, or not whole"):
        registry.fetch(current, tmp_path / "copy")


# What a user changes


def test_rollback(on_disk: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, second, third = promoted(on_disk, tmp_path, 3)
    one, two, three = on_disk.history()

    command.main(["rollback", "--registry", str(on_disk.place)])
    assert capsys.readouterr().out == f"model in use: {two.model}, in place of {three.model}\n"
    *_, current = on_disk.history()
    assert (current.number, current.model, current.replaced, current.why) == (4, two.model, three.model, "rolled back")
    assert on_disk.fetch(current, tmp_path / "copy") == read_card(second.model)

    # the run that made the third finds it judged against the second, as before, and must not bring it back
    told = on_disk.promote(third)
    assert told.startswith("not promoted: this model was rolled back on ")
    assert f"--to {three.model}" in told
    assert set(on_disk.withdrawn()) == {three.fingerprint}
    # another step back does not go forth again
    assert on_disk.rollback().model == one.model
    # a person may, and what is brought back is withdrawn no more
    assert on_disk.rollback(three.model).model == three.model
    assert set(on_disk.withdrawn()) == {one.fingerprint, two.fingerprint}
    assert on_disk.promote(third).startswith("promotion stands")
    assert [entry.model for entry in on_disk.history()] == [each.model for each in (one, two, three, two, one, three)]


def test_a_step_back_does_not_go_to_models_that_a_person_passed_over(on_disk: Registry, tmp_path: Path) -> None:
    promoted(on_disk, tmp_path, 3)
    one, two, three = on_disk.history()
    on_disk.rollback(one.model)
    with pytest.raises(InputError, match="no earlier model is left") as refused:
        on_disk.rollback()
    assert str(refused.value).endswith(f"known besides the current {one.model}, for --to: {two.model}, {three.model}")
    assert on_disk.rollback(two.model).model == two.model
    on_disk.rollback(three.model)
    assert {each.model for each in on_disk.withdrawn().values()} == {three.model, two.model}


def test_a_step_back_counts_from_the_last_promotion_of_the_current_model(on_disk: Registry, tmp_path: Path) -> None:
    """The second model is promoted twice under one verdict, both times against the first; a third one in between."""
    _, second, third = promoted(on_disk, tmp_path, 3)
    on_disk.promote(write_verdict(candidate(tmp_path / "again", 1, third).judgement, request="another day"))
    on_disk.promote(second)
    one, two, three, four, five = on_disk.history()
    assert (five.model, five.why, five.replaced) == (two.model, "promoted", four.model)
    on_disk.rollback(four.model)
    on_disk.rollback(two.model)
    assert set(on_disk.withdrawn()) == {one.fingerprint}
    assert on_disk.rollback().model == three.model


def test_what_cannot_be_rolled_back(on_disk: Registry, tmp_path: Path) -> None:
    for change in (on_disk.rollback, lambda: on_disk.regrade(WIDE)):
        with pytest.raises(InputError, match="no model was promoted there yet"):
            change()
    on_disk.promote(candidate(tmp_path, 1))
    with pytest.raises(InputError, match=r"no earlier model 'x' to roll back to; known besides the .*, for --to: none"):
        on_disk.rollback("x")


def test_a_model_that_is_promoted_again_met_the_one_it_replaced_last(on_disk: Registry, tmp_path: Path) -> None:
    _, second = promoted(on_disk, tmp_path, 2)
    again = write_verdict(candidate(tmp_path / "again", 1, second).judgement, request="another day")
    on_disk.promote(again)
    one, two, three = on_disk.history()
    assert (three.fingerprint, three.model != one.model) == (one.fingerprint, True)
    assert on_disk.incumbent(one.fingerprint) == two
    on_disk.rollback()
    with pytest.raises(InputError, match="no earlier model is left"):  # the first has the weights that were taken out
        on_disk.rollback()
    assert on_disk.rollback(one.model).fingerprint == one.fingerprint
    assert on_disk.promote(again).startswith("promotion stands")


def test_a_model_accepted_under_another_grade_is_refused(on_disk: Registry, tmp_path: Path) -> None:
    (first,) = promoted(on_disk, tmp_path, 1)
    second = candidate(tmp_path, 2, first)
    write_verdict(second.judgement, grade=LAX)
    refused = r"not promoted: it was accepted under the grade wide (\w{16}), and .* asks for wide (?!\1)\w{16};[^\n]*"
    assert re.fullmatch(refused, on_disk.promote(second))
    write_verdict(second.judgement, grade=WIDE | {"name": "a copy of it"})
    assert on_disk.promote(second).startswith("promoted to ")
    on_disk.rollback()
    assert [each.grade for each in on_disk.history()] == 3 * [on_disk.history()[0].grade]
    used = on_disk.in_use()
    on_disk.regrade(WIDE | {"name": "a copy of it"})
    assert on_disk.in_use() == used  # under no other grade than is asked for


def test_the_grade_is_changed_by_a_command_and_the_history_keeps_it(
    on_disk: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    days = count()  # each look at the clock finds it a day further
    later = SimpleNamespace(now=lambda zone: datetime.now(zone) + timedelta(days=next(days)))
    monkeypatch.setattr(registry_module, "datetime", later)
    (first,) = promoted(on_disk, tmp_path, 1)
    used = on_disk.in_use()
    command.main(["regrade", "--registry", str(on_disk.place), "--grade", "gan"])
    one, two = on_disk.history()
    assert two.at > one.at
    told = f"grade: {two.grade}\nmodel in use: {used} (accepted under the grade {one.grade})\n"
    assert (used, capsys.readouterr().out) == (f"{one.model}, since {one.at}", told)
    assert (two.model, two.why, two.grade.split()[0]) == (one.model, "grade changed", "gan")
    second = candidate(tmp_path, 2, first)
    assert f"asks for {two.grade}" in on_disk.promote(second)
    write_verdict(second.judgement, grade=load_grade("gan").to_json())
    assert on_disk.promote(second).startswith("promoted to ")
    *_, current = on_disk.history()
    assert on_disk.in_use() == f"{current.model}, since {current.at}"
    assert (current.grade, on_disk.incumbent(current.fingerprint)) == (two.grade, two)
    assert on_disk.rollback().model == one.model
    assert on_disk.in_use().endswith(f"since {on_disk.history()[-1].at} (accepted under the grade {one.grade})")


def test_a_change_that_another_run_was_faster_than_is_not_made(
    on_disk: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promoted(on_disk, tmp_path, 2)
    monkeypatch.setattr(storage, "create_json", lambda *_: False)
    for change in (on_disk.rollback, lambda: on_disk.regrade(LAX)):
        with pytest.raises(InputError, match="at the same time; look at the history, and try again"):
            change()
