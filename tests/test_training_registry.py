"""The registry: who is promoted, one after the other, with the history kept; in a folder and in an object store."""

from __future__ import annotations

import errno
import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from threading import Barrier
from typing import Any

import h5py
import pytest
from servers import store
from verdicts import WIDE, write_model, write_showers, write_verdict

from calopipe import storage
from calopipe.errors import InputError
from calopipe.grade import load_grade
from calopipe.storage import location
from training import __main__ as command
from training import folder
from training.folder import Card, read_card
from training.registry import registry as registry_module
from training.registry.candidate import Candidate
from training.registry.registry import Registry

LAX = {"name": "wide", "tolerance": {"response": 1e9}}  # a file of the same name


@pytest.fixture
def on_disk(tmp_path: Path) -> Registry:
    """For what does not depend on where a registry lies."""
    return Registry(tmp_path / "registry")


@pytest.fixture(params=["folder", "store"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Registry]:
    if request.param == "folder":
        yield Registry(tmp_path / "registry")
        return
    with store("models"):
        yield Registry(location("gs://models/registry"))


def candidate(place: Path, seed: int, rival: Candidate | None = None, **verdict: str) -> Candidate:
    """A model whose weights are a function of `seed`, with showers and a verdict; `rival` is whom it met."""
    run = place / f"run-{seed}"
    (run / "model").mkdir(parents=True)
    dataset = {"fingerprint": f"data-{seed}", "train_events": 1, "split_files": []}
    card = write_model(run / "model", bytes([seed] * 100), request=f"request-{seed}", dataset=dataset)
    write_showers(run / "generated.h5", card.fingerprint())
    if rival is not None:
        shutil.copyfile(rival.generated, run / "incumbent.h5")
    return write_verdict(run, **verdict)


def promoted(registry: Registry, place: Path, count: int) -> list[Candidate]:
    """Models 1, 2 and so on, each of which met the one before and was promoted."""
    found: list[Candidate] = []
    for seed in range(1, count + 1):
        found.append(candidate(place, seed, found[-1] if found else None))
        assert registry.promote(found[-1]).startswith("promoted to ")
    return found


def test_models_are_promoted_one_after_the_other(registry: Registry, tmp_path: Path) -> None:
    assert registry.current() is None
    assert registry.incumbent() is None
    first = candidate(tmp_path, 1)
    assert registry.promote(first).startswith("promoted to ")
    second = candidate(tmp_path, 2, first)
    assert registry.promote(second).startswith("promoted to ")
    one, two = registry.history()
    assert (one.number, one.replaced, two.number, two.replaced) == (1, None, 2, one.model)
    assert (one.at[-6:], one.id != two.id) == ("+00:00", True)
    assert registry.current() == two
    assert registry.fetch(two, tmp_path / "copy") == read_card(second.model)
    assert read_card(tmp_path / "copy") == read_card(second.model)
    promoted = registry.place / "models" / two.model
    assert (promoted / "report.html").read_text() == "report of run-2"
    assert json.loads((promoted / "verdict.json").read_text())["request"] == "run-2"


def test_a_run_that_is_repeated_finds_its_opponent_and_its_promotion(on_disk: Registry, tmp_path: Path) -> None:
    _, second = promoted(on_disk, tmp_path, 2)
    one, two = on_disk.history()
    assert on_disk.incumbent() == two
    assert on_disk.incumbent(two.fingerprint) == one  # whom it beat
    assert on_disk.incumbent("another") == two
    assert on_disk.promote(second).startswith(f"promotion stands: {two.model}")
    write_verdict(second.judgement, verdict="rejected", outcome="better")  # under another grade, say
    assert on_disk.promote(second).endswith("; by now the verdict is rejected (grade wide)")
    assert len(on_disk.history()) == 2


def test_a_challenger_must_be_accepted_and_no_worse_than_the_current_model(on_disk: Registry, tmp_path: Path) -> None:
    for seed, verdict in ((1, "rejected"), (2, "inconclusive")):
        told = on_disk.promote(candidate(tmp_path, seed, verdict=verdict))
        assert told == f"not promoted: the verdict is {verdict} (grade wide)"
    assert not on_disk.place.exists()
    first = candidate(tmp_path, 3)
    on_disk.promote(first)
    (one,) = on_disk.history()
    worse, unopposed = candidate(tmp_path, 4, first, outcome="worse"), candidate(tmp_path, 5)
    others = candidate(tmp_path, 6, first)
    with h5py.File(others.incumbent, "a") as file:
        file.attrs["seed"] = 2  # other showers of the same model than those of the verdict
    assert on_disk.promote(worse) == f"not promoted: it is worse than {one.model}, the current model"
    not_met = f"not promoted: the verdict does not compare it with {one.model}, the current model by now; run again"
    assert on_disk.promote(unopposed) == on_disk.promote(others) == not_met
    late, alike = candidate(tmp_path, 7, first), candidate(tmp_path, 8, first, outcome="no significant difference")
    assert on_disk.promote(alike).startswith("promoted to ")
    assert "does not compare it with" in on_disk.promote(late)
    assert len(on_disk.history()) == 2


def test_a_model_accepted_under_another_grade_is_refused(on_disk: Registry, tmp_path: Path) -> None:
    (first,) = promoted(on_disk, tmp_path, 1)
    second = candidate(tmp_path, 2, first)
    write_verdict(second.judgement, verdict="accepted", outcome="better", grade=LAX)
    told = on_disk.promote(second)
    refused = r"not promoted: it was accepted under the grade wide (\w{16}), and .* asks for wide (?!\1)\w{16};[^\n]*"
    assert re.fullmatch(refused, told)
    assert len(on_disk.history()) == 1
    write_verdict(second.judgement, verdict="accepted", outcome="better", grade=WIDE | {"name": "a copy of it"})
    assert on_disk.promote(second).startswith("promoted to ")
    one, two = on_disk.history()
    assert two.grade == one.grade
    on_disk.rollback()
    assert [each.grade for each in on_disk.history()] == 3 * [one.grade]
    used = on_disk.in_use()
    on_disk.regrade(WIDE | {"name": "a copy of it"})
    assert on_disk.in_use() == used  # under no other grade than is asked for


class Tomorrow(datetime):
    """The time in a day's time."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime.now(tz) + timedelta(days=1)


def test_the_grade_is_changed_by_a_command_and_the_history_keeps_it(
    on_disk: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    regrade = ["regrade", "--registry", str(on_disk.place), "--grade", "gan"]
    with pytest.raises(InputError, match="no model was promoted there yet"):
        command.main(regrade)
    (first,) = promoted(on_disk, tmp_path, 1)
    used = on_disk.in_use()
    monkeypatch.setattr(registry_module, "datetime", Tomorrow)
    command.main(regrade)
    monkeypatch.undo()
    one, two = on_disk.history()
    assert two.at > one.at
    told = f"grade: {two.grade}\nmodel in use: {used} (accepted under the grade {one.grade})\n"
    assert (used, capsys.readouterr().out) == (f"{one.model}, since {one.at}", told)
    assert (two.model, two.why, two.grade.split()[0]) == (one.model, "grade changed", "gan")
    second = candidate(tmp_path, 2, first)
    assert f"asks for {two.grade}" in on_disk.promote(second)
    gan = load_grade("gan").to_json()
    write_verdict(second.judgement, verdict="accepted", outcome="better", grade=gan)
    assert on_disk.promote(second).startswith("promoted to ")
    current = on_disk.current()
    assert on_disk.in_use() == f"{current.model}, since {current.at}"
    assert (current.grade, on_disk.incumbent(current.fingerprint)) == (two.grade, two)
    monkeypatch.setattr(registry_module, "datetime", Tomorrow)
    assert on_disk.rollback().model == one.model
    monkeypatch.undo()
    assert on_disk.in_use().endswith(f"since {on_disk.history()[-1].at} (accepted under the grade {one.grade})")


def test_a_registry_that_is_not_there_is_no_empty_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "registry").mkdir()
    command.main(["promotions", "--registry", str(tmp_path / "registry")])
    assert "no model was promoted there yet" in capsys.readouterr().out
    for task in ("promotions", "fetch"):
        more = ["--output", str(tmp_path / "m")] if task == "fetch" else []
        with pytest.raises(InputError, match=r"--registry .*/regisrty: no such folder; check the path"):
            command.main([task, "--registry", str(tmp_path / "regisrty"), *more])


def _promoted_at_once(registry: Registry, rivals: list[Candidate]) -> list[str]:
    """Each stands where the promotions are numbered, having found the same current model."""
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


def test_a_promotion_that_is_cut_off_leaves_the_current_model_and_is_done_the_next_time(
    on_disk: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each of its writes: two files of the model, two of the verdict, the card that says so, the promotion."""
    (first,) = promoted(on_disk, tmp_path, 1)
    before, second = on_disk.history(), candidate(tmp_path, 2, first)
    for stop in range(6):
        written: list[str] = []

        def counted(write: Callable[..., Any], written: list[str] = written, stop: int = stop) -> Callable[..., Any]:
            def one(*given: Any) -> Any:
                if len(written) == stop:
                    raise KeyboardInterrupt
                written.append(given[0].name)
                return write(*given)

            return one

        with monkeypatch.context() as patch:
            patch.setattr(storage, "put", counted(storage.put))
            patch.setattr(storage, "create_json", counted(storage.create_json))
            with pytest.raises(KeyboardInterrupt):
                on_disk.promote(second)
        assert on_disk.history() == before
    assert (written[-1], written.count(folder.CARD)) == (folder.CARD, 1)  # it comes last
    assert on_disk.promote(second).startswith("promoted to ")
    current = on_disk.current()
    assert on_disk.fetch(current, tmp_path / "copy") == read_card(second.model)


@pytest.mark.parametrize(
    ("models", "moves"),
    [
        (1, [(None, None, set()), ("x", None, set())]),
        (2, [(None, 1, {2}), (2, 2, {1}), (1, 1, {2})]),  # one that is brought back is withdrawn no more
        (3, [(None, 2, {3}), (None, 1, {2, 3}), (3, 3, {1, 2})]),  # a second step goes further back
        (3, [(1, 1, {3}), (None, None, {3}), (2, 2, {1, 3}), (3, 3, {1, 2})]),  # nor to what a person passed over
    ],
)
def test_rollback(on_disk: Registry, tmp_path: Path, models: int, moves: list[tuple[Any, Any, set[int]]]) -> None:
    """By a step (None) or to the model of a number; the model in use then (None: refused), and those withdrawn."""
    with pytest.raises(InputError, match="no model was promoted there yet"):
        on_disk.rollback()
    candidates = promoted(on_disk, tmp_path, models)
    names = [each.model for each in on_disk.history()]
    prints = [each.fingerprint for each in on_disk.history()]
    in_use = models
    for to, then, withdrawn in moves:
        asked, before = (names[to - 1] if isinstance(to, int) else to), len(on_disk.history())
        if then is not None:
            made = on_disk.rollback(asked)
            told = (made.number, made.model, made.replaced, made.why)
            assert told == (before + 1, names[then - 1], names[in_use - 1], "rolled back")
            in_use = then
        else:
            others = ", ".join(name for name in names if name != names[in_use - 1]) or "none"
            with pytest.raises(InputError, match=f"no earlier model .*{names[in_use - 1]}, for --to: {others}$"):
                on_disk.rollback(asked)
        assert set(on_disk.withdrawn()) == {prints[number - 1] for number in withdrawn}
        # the run that made a model finds it judged as before, and must not bring it back
        assert on_disk.promote(candidates[in_use - 1]).startswith(f"promotion stands: {names[in_use - 1]}")
        for number in withdrawn:
            told = on_disk.promote(candidates[number - 1])
            assert told.startswith("not promoted: this model was rolled back on ")
            assert told.endswith(f"--to {names[number - 1]}")


def test_a_step_back_counts_from_the_last_promotion_of_the_current_model(on_disk: Registry, tmp_path: Path) -> None:
    """The second model is promoted twice under one verdict, both times against the first; the third is in between."""
    _, second, third = promoted(on_disk, tmp_path, 3)
    again = candidate(tmp_path / "again", 1, third, request="another day")
    on_disk.promote(again)
    *_, before, four = on_disk.history()
    first = read_card(again.model).fingerprint()
    assert (four.fingerprint, on_disk.incumbent(first)) == (first, before)  # it met the one that it replaced last
    on_disk.promote(second)
    one, two, three, four, five = on_disk.history()
    assert (five.model, five.why, five.replaced) == (two.model, "promoted", four.model)
    on_disk.rollback(four.model)
    on_disk.rollback(two.model)
    assert set(on_disk.withdrawn()) == {one.fingerprint}
    assert on_disk.rollback().model == three.model
    with pytest.raises(InputError, match="no earlier model is left"):  # the first has the weights that were taken out
        on_disk.rollback()


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


def test_a_change_that_another_run_was_faster_than_is_not_made(
    on_disk: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    promoted(on_disk, tmp_path, 2)
    monkeypatch.setattr(storage, "create_json", lambda *_: False)
    for change in (on_disk.rollback, lambda: on_disk.regrade(LAX)):
        with pytest.raises(InputError, match="at the same time; look at the history, and try again"):
            change()


def test_the_commands_list_the_promotions_and_copy_the_current_model(
    on_disk: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--registry", str(on_disk.place)]
    on_disk.place.mkdir()
    fetch = ["fetch", *place, "--output", str(tmp_path / "copy")]
    with pytest.raises(InputError, match=r"no model was promoted there$"):
        command.main(fetch)
    first, second = promoted(on_disk, tmp_path, 2)
    on_disk.regrade(LAX)
    one, two, three = on_disk.history()
    command.main(["rollback", *place])
    assert capsys.readouterr().out == f"model in use: {one.model}, in place of {two.model}\n"
    command.main(["rollback", *place, "--to", two.model])
    *_, four, five = on_disk.history()
    capsys.readouterr()
    command.main(["promotions", *place])
    assert capsys.readouterr().out.splitlines() == [
        f"     1  {one.at}  {one.model}  promoted (grade {one.grade})",
        f"     2  {two.at}  {two.model}  promoted, in place of {one.model} (grade {two.grade})",
        f"     3  {three.at}  {two.model}  grade changed (grade {three.grade})",
        f"     4  {four.at}  {one.model}  rolled back, in place of {two.model} (grade {three.grade})",
        f"     5  {five.at}  {two.model}  rolled back, in place of {one.model} (grade {three.grade})",
    ]
    folder.take_over(first.model, tmp_path / "copy", overwrite=False)
    with pytest.raises(InputError, match="or --overwrite"):
        command.main(fetch)
    assert read_card(tmp_path / "copy") == read_card(first.model)
    command.main([*fetch, "--overwrite"])
    assert read_card(tmp_path / "copy") == read_card(second.model)
    assert (tmp_path / "copy" / folder.HISTORY).exists()
    assert capsys.readouterr().out.endswith(f"model: {tmp_path / 'copy'}, which is {two.model}\n")


def test_a_full_disk_is_the_registrys(tmp_path: Path, small_disk: Callable[[int], Path]) -> None:
    registry = Registry(small_disk(4) / "registry")
    with pytest.raises(OSError) as full:  # noqa: PT011  what the system says
        registry.promote(candidate(tmp_path, 1))
    assert full.value.errno == errno.ENOSPC
    assert str(registry.place) in str(full.value.filename)
    assert registry.current() is None


def test_files_that_contradict_each_other(on_disk: Registry, tmp_path: Path) -> None:
    one = candidate(tmp_path, 1)
    other = candidate(tmp_path, 2)
    with pytest.raises(InputError, match=r"verdict\.json: not the verdict on .*generated\.h5"):
        on_disk.promote(replace(one, generated=other.generated))
    with pytest.raises(InputError, match="another verdict than the one just given"):
        on_disk.promote(replace(one, verdict_id="another"))
    for split in ("train", "validation", "all"):
        write_verdict(one.judgement, verdict="accepted", outcome="better", split=split)
        with pytest.raises(InputError, match=f"of the {split} split; only the test split judges"):
            on_disk.promote(one)
    with pytest.raises(InputError, match="not made by the model that is to be promoted"):
        on_disk.promote(replace(other, model=one.model))
    assert not on_disk.place.exists()


def test_a_model_that_is_gone_or_damaged_is_told_of(registry: Registry, tmp_path: Path) -> None:
    registry.promote(candidate(tmp_path, 1))
    current = registry.current()
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


def test_a_model_of_a_kind_that_is_not_known_is_named_by_its_card(tmp_path: Path) -> None:
    """Not by an option, which `generate` has for its folder."""
    card = candidate(tmp_path, 1).model / folder.CARD
    card.write_text(card.read_text().replace('"3dgan-small"', '"mine"'))
    with pytest.raises(InputError, match=f"^{re.escape(str(card))}: the kind of model 'mine' is unknown; known: "):
        read_card(card.parent)


def test_a_card_whose_part_is_no_object_is_told_in_a_line(tmp_path: Path) -> None:
    """By every command that names the model too, which looks for a user's file first."""
    card = candidate(tmp_path, 1).model / folder.CARD
    whole, values = json.loads(card.read_text()), itertools.cycle((["generator.weights.h5"], "weights", None))
    for name in ("config", "geometry", "valid_range", "dataset", "trained", "losses", "weights"):
        card.write_text(json.dumps(whole | {name: next(values)}))
        why = rf"\('{name}' is missing, or no JSON object\); train again"
        told = f"^{re.escape(str(card))}: not a whole model card {why}$"
        with pytest.raises(InputError, match=told):
            read_card(card.parent)
        with pytest.raises(InputError, match=told), folder.model_folder(str(card.parent)):
            pytest.fail("the model was taken")


def test_a_step_of_a_run_takes_the_model_that_was_just_trained_alone_and_sums_it_up(tmp_path: Path) -> None:
    model = candidate(tmp_path, 1).model
    card = read_card(model)
    fingerprint = card.fingerprint()
    assert card.summary() == "1 steps; on the validation split: no showers"
    assert replace(card, losses={"a": 0.123456, "b": 2.0}).summary().endswith("split: a 0.1235, b 2")
    folder.require_model(model, fingerprint)
    for name, asked in ((model, "another"), (tmp_path, fingerprint)):
        with pytest.raises(InputError, match="holds another model than the one just trained"):
            folder.require_model(name, asked)


def test_the_newest_checkpoint_is_one_that_is_described(tmp_path: Path) -> None:
    assert folder.last_checkpoint(tmp_path) == 0
    (tmp_path / folder.CHECKPOINTS).mkdir()
    for name in ("step-000000005.json", "step-000000012.json", "step-000000020.npz", "step-30.json.part"):
        (tmp_path / folder.CHECKPOINTS / name).touch()
    assert folder.last_checkpoint(tmp_path) == 12


def test_fetch_replaces_another_model(on_disk: Registry, tmp_path: Path) -> None:
    first, _ = promoted(on_disk, tmp_path, 2)
    one, two = on_disk.history()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/showers.h5").touch()
    with pytest.raises(InputError, match="holds files that are no model"):
        on_disk.fetch(two, tmp_path / "mine", overwrite=False)
    other = tmp_path / "other"
    shutil.copytree(first.model, other)
    folder.begin(other, "a training of its own", overwrite=False)
    with pytest.raises(InputError, match="holds a model of another dataset"):
        on_disk.fetch(two, other, overwrite=False)
    assert read_card(other) == read_card(first.model)
    for promotion in (one, two, one):
        card = on_disk.fetch(promotion, tmp_path / "copy")
        assert card.fingerprint() == promotion.fingerprint
        assert read_card(tmp_path / "copy") == card
        assert folder.standing(tmp_path / "copy", card.request) == card
