"""What a user changes in a registry: the model in use, and the grade by which the next model is judged."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from verdicts import LAX, WIDE, candidate, promoted, write_verdict

from calopipe import storage
from calopipe.errors import InputError
from calopipe.grade import load_grade
from training import __main__ as command
from training.model_folder import read_card
from training.registry import registry as registry_module
from training.registry.registry import Registry


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def test_rollback(registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, second, third = promoted(registry, tmp_path, 3)
    one, two, three = registry.history()

    command.main(["rollback", "--registry", str(registry.place)])
    assert capsys.readouterr().out == f"model in use: {two.model}, in place of {three.model}\n"
    *_, current = registry.history()
    assert (current.number, current.model, current.replaced, current.why) == (4, two.model, three.model, "rolled back")
    assert registry.fetch(current, tmp_path / "copy") == read_card(second.model)

    # the run that made the third finds it judged against the second, as before, and must not bring it back
    told = registry.promote(third)
    assert told.startswith("not promoted: this model was rolled back on ")
    assert f"--to {three.model}" in told
    assert set(registry.withdrawn()) == {three.fingerprint}
    # another step back does not go forth again
    assert registry.rollback().model == one.model
    # a person may, and what is brought back is withdrawn no more
    assert registry.rollback(three.model).model == three.model
    assert set(registry.withdrawn()) == {one.fingerprint, two.fingerprint}
    assert registry.promote(third).startswith("promotion stands")
    assert [entry.model for entry in registry.history()] == [each.model for each in (one, two, three, two, one, three)]


def test_a_step_back_does_not_go_to_models_that_a_person_passed_over(registry: Registry, tmp_path: Path) -> None:
    promoted(registry, tmp_path, 3)
    one, two, three = registry.history()
    registry.rollback(one.model)
    with pytest.raises(InputError, match="no earlier model is left") as refused:
        registry.rollback()
    assert str(refused.value).endswith(f"known besides the current {one.model}, for --to: {two.model}, {three.model}")
    assert registry.rollback(two.model).model == two.model
    registry.rollback(three.model)
    assert {each.model for each in registry.withdrawn().values()} == {three.model, two.model}


def test_a_step_back_counts_from_the_last_promotion_of_the_current_model(registry: Registry, tmp_path: Path) -> None:
    """The second model is promoted twice under one verdict, both times against the first; a third one in between."""
    _, second, third = promoted(registry, tmp_path, 3)
    registry.promote(write_verdict(candidate(tmp_path / "again", 1, third).judgement, request="another day"))
    registry.promote(second)
    one, two, three, four, five = registry.history()
    assert (five.model, five.why, five.replaced) == (two.model, "promoted", four.model)
    registry.rollback(four.model)
    registry.rollback(two.model)
    assert set(registry.withdrawn()) == {one.fingerprint}
    assert registry.rollback().model == three.model


def test_what_cannot_be_rolled_back(registry: Registry, tmp_path: Path) -> None:
    for change in (registry.rollback, lambda: registry.regrade(WIDE)):
        with pytest.raises(InputError, match="no model was promoted there yet"):
            change()
    registry.promote(candidate(tmp_path, 1))
    with pytest.raises(InputError, match=r"no earlier model 'x' to roll back to; known besides the .*, for --to: none"):
        registry.rollback("x")


def test_a_model_that_is_promoted_again_met_the_one_it_replaced_last(registry: Registry, tmp_path: Path) -> None:
    _, second = promoted(registry, tmp_path, 2)
    again = write_verdict(candidate(tmp_path / "again", 1, second).judgement, request="another day")
    registry.promote(again)
    one, two, three = registry.history()
    assert (three.fingerprint, three.model != one.model) == (one.fingerprint, True)
    assert registry.incumbent(one.fingerprint) == two
    registry.rollback()
    with pytest.raises(InputError, match="no earlier model is left"):  # the first has the weights that were taken out
        registry.rollback()
    assert registry.rollback(one.model).fingerprint == one.fingerprint
    assert registry.promote(again).startswith("promotion stands")


def test_a_model_accepted_under_another_grade_is_refused(registry: Registry, tmp_path: Path) -> None:
    (first,) = promoted(registry, tmp_path, 1)
    second = candidate(tmp_path, 2, first)
    write_verdict(second.judgement, grade=LAX)
    refused = r"not promoted: it was accepted under the grade wide (\w{16}), and .* asks for wide (?!\1)\w{16};[^\n]*"
    assert re.fullmatch(refused, registry.promote(second))
    write_verdict(second.judgement, grade=WIDE | {"name": "a copy of it"})
    assert registry.promote(second).startswith("promoted to ")
    registry.rollback()
    assert [each.grade for each in registry.history()] == 3 * [registry.history()[0].grade]
    used = registry.in_use()
    registry.regrade(WIDE | {"name": "a copy of it"})
    assert registry.in_use() == used  # under no other grade than is asked for


def test_the_grade_is_changed_by_a_command_and_the_history_keeps_it(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    days = count()  # each look at the clock finds it a day further
    later = SimpleNamespace(now=lambda zone: datetime.now(zone) + timedelta(days=next(days)))
    monkeypatch.setattr(registry_module, "datetime", later)
    (first,) = promoted(registry, tmp_path, 1)
    used = registry.in_use()
    command.main(["regrade", "--registry", str(registry.place), "--grade", "gan"])
    one, two = registry.history()
    assert two.at > one.at
    told = f"grade: {two.grade}\nmodel in use: {used} (accepted under the grade {one.grade})\n"
    assert (used, capsys.readouterr().out) == (f"{one.model}, since {one.at}", told)
    assert (two.model, two.why, two.grade.split()[0]) == (one.model, "grade changed", "gan")
    second = candidate(tmp_path, 2, first)
    assert f"asks for {two.grade}" in registry.promote(second)
    write_verdict(second.judgement, grade=load_grade("gan").to_json())
    assert registry.promote(second).startswith("promoted to ")
    *_, current = registry.history()
    assert registry.in_use() == f"{current.model}, since {current.at}"
    assert (current.grade, registry.incumbent(current.fingerprint)) == (two.grade, two)
    assert registry.rollback().model == one.model
    assert registry.in_use().endswith(f"since {registry.history()[-1].at} (accepted under the grade {one.grade})")


def test_a_change_that_another_run_was_faster_than_is_not_made(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promoted(registry, tmp_path, 2)
    monkeypatch.setattr(storage, "create_json", lambda *_: False)
    for change in (registry.rollback, lambda: registry.regrade(LAX)):
        with pytest.raises(InputError, match="at the same time; look at the history, and try again"):
            change()
