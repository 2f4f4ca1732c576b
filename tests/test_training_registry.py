"""The registry: who is promoted, one after the other, with the history kept; in a folder and in an object store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import h5py
import pytest
from google.cloud import storage as google_storage
from servers import FAKE_GCS_SERVER, go_tool, store
from showers import SMALL_GEOMETRY

from preprocessing import gcs, storage
from preprocessing.errors import InputError
from preprocessing.storage import location
from training import __main__ as command
from training import folder
from training.configs import named_config
from training.folder import Card, read_card
from training.registry import Candidate, Registry


@pytest.fixture(params=["folder", "store"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Registry]:
    if request.param == "folder":
        yield Registry(tmp_path / "registry")
        return
    with store(go_tool(FAKE_GCS_SERVER)):
        google_storage.Client(project="test").create_bucket("models")
        gcs._client_of.cache_clear()
        yield Registry(location("gs://models/registry"))
    gcs._client_of.cache_clear()


def candidate(
    place: Path, seed: int, rival: Candidate | None = None, *, verdict: str = "accepted", outcome: str = "better"
) -> Candidate:
    """A model whose weights are a function of `seed`, with showers and a verdict; `rival` is whom it met."""
    run = place / f"run-{seed}"
    run.mkdir(parents=True)
    model = run / "model"
    model.mkdir()
    (model / "generator.weights.h5").write_bytes(bytes([seed] * 100))
    (model / folder.HISTORY).write_text("{}\n")
    card = Card(
        request=f"request-{seed}",
        config=named_config("small"),
        geometry=SMALL_GEOMETRY,
        dataset={"fingerprint": f"data-{seed}", "train_events": 1},
        energy_gev=(100.0, 200.0),
        theta_rad=(1.0, 2.0),
        trained={"steps": 1, "warm_start": None},
        losses={},
        weights={"generator.weights.h5": storage.sha256_of_file(model / "generator.weights.h5")},
        versions={"calopipe": "0.1.0"},
    )
    folder.write_card(model, card)
    with h5py.File(run / "generated.h5", "w") as file:
        file.attrs["model"] = card.fingerprint()
    if rival is not None:
        shutil.copyfile(rival.generated, run / "incumbent.h5")
    write_verdict(run, verdict=verdict, outcome=outcome)
    (run / "report.html").write_text(f"report {seed}")
    return Candidate(model, run / "generated.h5", run, run / "incumbent.h5")


def write_verdict(run: Path, *, verdict: str, outcome: str, **inputs: Any) -> None:
    answer = {"accepted": "pass", "rejected": "fail", "inconclusive": "inconclusive"}[verdict]
    hashed = {
        name: [{"sha256": storage.sha256_of_file(path)}] if path.exists() else None
        for name, path in (("candidate", run / "generated.h5"), ("incumbent", run / "incumbent.h5"))
    }
    document = {
        "kind": "calopipe.verdict", "schema_version": 2, "verdict": verdict, "grade": {"name": "wide"}, "paired": True,
        "events": {}, "criteria": [{"verdict": answer}], "hard_failures": [], "cautions": [],
        "incumbent": {"outcome": outcome} if hashed["incumbent"] else None,
        "inputs": {"split": "test"} | hashed | inputs, "request": run.name,
    }  # fmt: skip
    (run / "verdict.json").write_text(json.dumps(document))


def test_models_are_promoted_one_after_the_other(registry: Registry, tmp_path: Path) -> None:
    assert registry.current() is None
    assert registry.incumbent() is None
    first = candidate(tmp_path, 1)
    assert registry.promote(first).startswith("promoted to ")
    second = candidate(tmp_path, 2, first)
    assert registry.promote(second).startswith("promoted to ")
    one, two = registry.history()
    assert (one.number, one.replaced, two.number, two.replaced) == (1, None, 2, one.model)
    assert registry.current() == two
    assert registry.fetch(two, tmp_path / "copy") == read_card(second.model)
    assert read_card(tmp_path / "copy") == read_card(second.model)
    promoted = registry.place / "models" / two.model
    assert (promoted / "report.html").read_text() == "report 2"
    assert json.loads((promoted / "verdict.json").read_text())["request"] == "run-2"


def test_a_run_that_is_repeated_finds_its_opponent_and_its_promotion(registry: Registry, tmp_path: Path) -> None:
    first = candidate(tmp_path, 1)
    registry.promote(first)
    second = candidate(tmp_path, 2, first)
    registry.promote(second)
    one, two = registry.history()
    assert registry.incumbent() == two
    assert registry.incumbent(two.fingerprint) == one  # whom it beat
    assert registry.incumbent("another") == two
    assert registry.promote(second).startswith(f"promotion stands: {two.model}")
    write_verdict(second.judgement, verdict="rejected", outcome="better")  # under another grade, say
    assert registry.promote(second).endswith("; by now the verdict is rejected (grade wide)")
    assert len(registry.history()) == 2


@pytest.mark.parametrize("verdict", ["rejected", "inconclusive"])
def test_what_is_not_accepted_is_not_promoted(tmp_path: Path, verdict: str) -> None:
    registry = Registry(tmp_path / "registry")
    assert registry.promote(candidate(tmp_path, 1, verdict=verdict)) == (
        f"not promoted: the verdict is {verdict} (grade wide)"
    )
    assert not registry.place.exists()


def test_a_challenger_must_not_be_worse(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    first = candidate(tmp_path, 1)
    registry.promote(first)
    current = registry.current()
    assert current is not None
    worse = candidate(tmp_path, 2, first, outcome="worse")
    assert registry.promote(worse) == f"not promoted: it is worse than {current.model}, the current model"
    alike = candidate(tmp_path, 3, first, outcome="no significant difference")
    assert registry.promote(alike).startswith("promoted to ")


def test_a_verdict_against_another_than_the_current_model_does_not_count(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    first = candidate(tmp_path, 1)
    registry.promote(first)
    unopposed, late = candidate(tmp_path, 2), candidate(tmp_path, 3, first)
    assert "does not compare it with" in registry.promote(unopposed)
    registry.promote(candidate(tmp_path, 4, first))
    assert "does not compare it with" in registry.promote(late)
    assert len(registry.history()) == 2


def test_of_many_promoted_at_once_one_succeeds(registry: Registry, tmp_path: Path) -> None:
    """Each stands where the promotions are numbered, having found the same current model."""
    first = candidate(tmp_path, 1)
    registry.promote(first)
    rivals = [candidate(tmp_path, seed, first) for seed in range(2, 8)]
    together = Barrier(len(rivals))

    class Waiting(Registry):
        def _store(self, candidate: Candidate, name: str, card: Card) -> None:
            super()._store(candidate, name, card)
            together.wait()

    with ThreadPoolExecutor(len(rivals)) as threads:
        told = list(threads.map(Waiting(registry.place).promote, rivals))
    assert sum(message.startswith("promoted to ") for message in told) == 1
    assert sum("another run promoted a model at the same time" in message for message in told) == len(rivals) - 1
    _, second = registry.history()
    (winner,) = [rival for rival, message in zip(rivals, told, strict=True) if message.startswith("promoted")]
    assert second.fingerprint == read_card(winner.model).fingerprint()


def test_rollback(registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = candidate(tmp_path, 1)
    registry.promote(first)
    second = candidate(tmp_path, 2, first)
    registry.promote(second)
    third = candidate(tmp_path, 3, second)
    registry.promote(third)
    one, two, three = registry.history()

    command.main(["rollback", "--registry", str(registry.place)])
    assert capsys.readouterr().out == f"model in use: {two.model}, in place of {three.model}\n"
    current = registry.current()
    assert current is not None
    assert (current.number, current.model, current.replaced, current.why) == (4, two.model, three.model, "rolled back")
    assert registry.fetch(current, tmp_path / "copy") == read_card(second.model)

    # the run that made the third finds it judged against the second, as before, and must not bring it back
    told = registry.promote(third)
    assert told.startswith("not promoted: this model was rolled back on ")
    assert f"--to {three.model}" in told
    # another step back does not go forth again
    assert registry.rollback().model == one.model
    # a person may
    assert registry.rollback(three.model).model == three.model
    assert registry.promote(third).startswith("promotion stands")
    command.main(["promotions", "--registry", str(registry.place)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == [
        each.model for each in (one, two, three, two, one, three)
    ]  # the history is kept


def test_what_cannot_be_rolled_back(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    with pytest.raises(InputError, match="no model was promoted there yet"):
        registry.rollback()
    registry.promote(candidate(tmp_path, 1))
    with pytest.raises(InputError, match="no earlier model is left"):
        registry.rollback()
    with pytest.raises(InputError, match=r"no earlier model 'x' to roll back to; known besides the current .*: none"):
        registry.rollback("x")


def test_files_that_contradict_each_other(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    one = candidate(tmp_path, 1)
    other = candidate(tmp_path, 2)
    with pytest.raises(InputError, match=r"verdict\.json: not the verdict on .*generated\.h5"):
        registry.promote(replace(one, generated=other.generated))
    write_verdict(one.judgement, verdict="accepted", outcome="better", split="train")
    with pytest.raises(InputError, match="only the test split judges"):
        registry.promote(one)
    with pytest.raises(InputError, match="not made by the model that is to be promoted"):
        registry.promote(replace(other, model=one.model))
    assert not registry.place.exists()


def test_a_model_that_is_gone_or_damaged_is_told_of(registry: Registry, tmp_path: Path) -> None:
    registry.promote(candidate(tmp_path, 1))
    current = registry.current()
    assert current is not None
    place = registry.place / "models" / current.model
    (tmp_path / "damaged").write_bytes(b"other weights")
    storage.put(tmp_path / "damaged", place / "generator.weights.h5")
    with pytest.raises(InputError, match="not the weights that the card was written for"):
        registry.fetch(current, tmp_path / "copy")
    (place / "card.json").unlink()
    with pytest.raises(InputError, match="not there, or not whole"):
        registry.fetch(current, tmp_path / "copy")


def test_fetch_replaces_another_model(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry")
    first = candidate(tmp_path, 1)
    registry.promote(first)
    registry.promote(candidate(tmp_path, 2, first))
    one, two = registry.history()
    for promotion in (one, two, one):
        card = registry.fetch(promotion, tmp_path / "copy")
        assert card.fingerprint() == promotion.fingerprint
        assert read_card(tmp_path / "copy") == card
        assert folder.standing(tmp_path / "copy", card.request) == card
