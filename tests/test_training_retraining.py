"""What is trained, from which weights, and what is not trained again. Only the training itself is simulated."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest
from showers import SMALL_GEOMETRY, make_dataset, make_file
from verdicts import write_model, write_showers, write_verdict

from calopipe import mirror, storage
from calopipe.errors import InputError
from calopipe.events.splits import SplitRule
from calopipe.labels import PARTICLE
from calopipe.showers.selection import Selection
from calopipe.storage import Location
from preprocessing.dataset import read_manifest
from preprocessing.pipeline import preprocess
from preprocessing.showers.inputs import discover
from preprocessing.showers.manifest import Settings
from training import model_folder
from training.configs import ANEW, FROM_INCUMBENT, FitConfig, named_config
from training.model_folder import Card, read_card
from training.models import config as models
from training.models.source import ModelFile, file_of
from training.nodes import trainjob
from training.registry.registry import Registry
from training.registry.retraining import _require_one_detector, fit_on_nodes, retrain
from training.seen_events import seen_after, write_seen

CONFIG = named_config("small")
# A user's model, which loads no TensorFlow.
MODEL_FILE = """
from dataclasses import dataclass
from training.models.config import CONFIGS, FitConfig, register
@register("mine")
@dataclass(frozen=True, kw_only=True)
class MyConfig(FitConfig):
    def build(self, geometry): ...
CONFIGS["mine"] = MyConfig(model="mine", batch=8, epochs=1, learning_rate=0.1)
"""


class Site:
    """A dataset, the folder of a run, a registry, and simulated trainings, which write weights without learning."""

    def __init__(self, place: Path) -> None:
        self.place, self.registry = place, Registry(place / "registry")
        self.asked: list[Path | None] = []

    def dataset(self, files: int = 1, **settings: Any) -> None:
        paths = [make_file(self.place / f"{seed}.h5", events=40, seed=seed) for seed in range(files)]
        preprocess(discover(list(map(str, paths))), self.place / "ds", Settings(**settings))

    def fit(self, dataset: Location, model: Path, config: FitConfig, warm_start: Path | None) -> Card:
        self.asked.append(warm_start)
        if (model / model_folder.CARD).exists():
            read_card(model)  # a damaged one is in the way of a training
        manifest = read_manifest(dataset)
        earlier = read_card(warm_start) if warm_start else None
        request = model_folder.request_fingerprint(manifest, config, earlier)
        model_folder.begin(model, request, {}, overwrite=True)
        if file := file_of(config):
            file.write(model)
        write_seen(model, seen_after(dataset, manifest, warm_start, earlier))
        seen = storage.sha256_of_file(model / model_folder.SEEN)
        return write_model(
            model,
            f"{request} {len(self.asked)}",
            request=request,
            config=config,
            geometry=manifest.geometry,
            dataset={"fingerprint": manifest.fingerprint, "split_files": manifest.split_files, "seen": seen},
            valid_range=manifest.valid_range,
            trained={"steps": 1, "warm_start": earlier.fingerprint() if earlier else None},
            versions={"calopipe": metadata.version("calopipe")},
        )

    def retrain(self, config: FitConfig = CONFIG, origin: str = FROM_INCUMBENT) -> Card:
        run = self.place / "run"
        card, incumbent = retrain(
            self.place / "ds", run / "model", config, self.registry, origin=origin, copy=run / "incumbent", fit=self.fit
        )
        if incumbent is not None:
            assert read_card(run / "incumbent").fingerprint() == incumbent.fingerprint
        self.incumbent = incumbent
        return card

    def promote(self) -> None:
        """Promote the run's model, by a verdict that accepts it beside its incumbent."""
        run = self.place / "run"
        write_showers(run / "generated.h5", read_card(run / "model").fingerprint())
        (run / "incumbent.h5").unlink(missing_ok=True)
        if self.incumbent is not None:
            write_showers(run / "incumbent.h5", read_card(run / "incumbent").fingerprint())
        told = self.registry.promote(write_verdict(run))
        assert told.startswith("promoted to ")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with the dataset."""
    place = tmp_path_factory.mktemp("site")
    Site(place).dataset()
    return place


@pytest.fixture
def site(template: Path, tmp_path: Path) -> Site:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Site(tmp_path)


@pytest.fixture
def in_use(site: Site) -> Site:
    """The site with a model in use."""
    site.retrain()
    site.promote()
    return site


def test_a_registry_whose_model_another_file_states_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before any training. The registry keeps the file, whose code runs only if a user gives it."""
    before, now = (ModelFile("mine.py", MODEL_FILE + remark).run()["mine"] for remark in ("# before", "# now"))
    site.retrain(before)
    site.promote()
    (used,) = site.registry.history()
    kept = site.place / f"registry/models/{used.model}/model.py"
    assert storage.sha256_of_file(kept) == before.model_file
    assert site.retrain(before) == site.retrain(before)
    others = {key: kind for key, kind in models._KINDS.items() if key[1] != before.model_file}
    monkeypatch.setattr(models, "_KINDS", others)  # as in a process that was given the file of now
    with pytest.raises(InputError, match=r"its current model: the model mine is .*; give another --registry"):
        site.retrain(now)
    assert not (site.place / "run/incumbent").exists()  # from where `generate --model` would run it
    assert len(site.asked) == 1


def test_the_last_attempt_is_not_made_again_and_what_is_new_begins_with_the_weights_in_use(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    first = site.retrain()
    assert site.retrain() == first
    site.dataset(files=2)
    second = site.retrain()
    assert second != first
    assert site.asked == [None, None]  # what was not promoted is nothing to begin with
    assert "begun with" not in capsys.readouterr().out
    site.promote()
    site.dataset(files=3)
    third = site.retrain()
    (used,) = site.registry.history()
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"; begun with the weights of {used.model}")
    assert third.trained["warm_start"] == second.fingerprint()
    assert site.retrain() == third
    assert site.retrain(origin=ANEW).trained["warm_start"] is None  # which is another attempt
    assert len(site.asked) == 4


def test_the_current_model_is_taken_where_it_is_what_is_asked_for(in_use: Site) -> None:
    """Also in place of a later attempt in the run's folder, and in a new folder."""
    first = read_card(in_use.place / "run/model")
    in_use.retrain(replace(CONFIG, seed=2))
    assert in_use.retrain() == first
    assert in_use.incumbent is None  # it had none
    in_use.place.joinpath("run").rename(in_use.place / "moved")
    assert in_use.retrain() == first
    assert len(in_use.asked) == 2


def test_weights_of_other_networks_are_not_begun_with(in_use: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_use.retrain(named_config("fast")).trained["warm_start"] is None
    assert "new weights, not those of the current model: that is a 3dgan-small\n" in capsys.readouterr().out


def test_a_model_in_use_that_has_learnt_the_events_that_judge_is_refused(in_use: Site) -> None:
    """It would be judged by these events beside the new model, whatever weights the new model begins with."""
    in_use.dataset(2, selection=Selection(rule=SplitRule.parse(["test=0.h5"])))
    told = r"--registry \S+: its current model: was trained on \d+ of the 40 test events, which then cannot judge"
    with pytest.raises(InputError, match=told):
        in_use.retrain(origin=ANEW)
    assert len(in_use.asked) == 1


def test_another_division_into_splits_is_begun_with_where_no_event_that_judges_was_learnt(in_use: Site) -> None:
    first = read_card(in_use.place / "run/model")
    in_use.dataset(2, selection=Selection(rule=SplitRule.parse(["test=1.h5"])))
    assert in_use.retrain().trained["warm_start"] == first.fingerprint()


def test_another_detector_is_refused_before_anything_is_trained(in_use: Site) -> None:
    coarse = replace(SMALL_GEOMETRY, cell_mm=20.0)
    path = make_file(in_use.place / "coarse.h5", events=40, geometry=coarse)
    make_dataset(in_use.place / "ds", path)
    with pytest.raises(InputError, match=r"cell_mm is 15\.3 in its model and 20\.0 in the dataset; give each detector"):
        in_use.retrain()
    assert len(in_use.asked) == 1


def test_showers_with_other_labels_are_of_another_registry(site: Site) -> None:
    card = site.retrain()
    alike: Any = SimpleNamespace(geometry=SMALL_GEOMETRY, valid_range=card.valid_range)
    manifest: Any = SimpleNamespace(geometry=SMALL_GEOMETRY, valid_range=card.valid_range | {PARTICLE: (11, 22)})
    _require_one_detector(card, alike, site.registry)
    told = r"its model is of showers with neither phi nor pdg, the dataset's have pdg \(11, 22\); give each a registry"
    with pytest.raises(InputError, match=told):
        _require_one_detector(card, manifest, site.registry)


def test_a_model_answers_for_its_data_settings_and_version_alone_and_so_is_it_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="--warm-start 'best' is unknown; known: incumbent, none"):
        site.retrain(origin="best")
    card = site.retrain()
    manifest: Any = SimpleNamespace(fingerprint=card.dataset["fingerprint"])
    other: Any = SimpleNamespace(fingerprint="another")
    begun = replace(card, trained=card.trained | {"warm_start": "a model"})
    for origin in (ANEW, FROM_INCUMBENT):
        assert card.answers(manifest, CONFIG, origin)
        assert not card.answers(other, CONFIG, origin)
        assert not card.answers(manifest, replace(CONFIG, seed=2), origin)
        assert not replace(card, versions={"calopipe": "0.0.1"}).answers(manifest, CONFIG, origin)
        assert begun.answers(manifest, CONFIG, origin) == (origin == FROM_INCUMBENT)
    changed = replace(CONFIG, seed=2)
    asked: list[Any] = [(manifest, CONFIG), (other, CONFIG), (manifest, changed), (manifest, CONFIG, card)]
    names = {model_folder.request_fingerprint(*given) for given in asked}
    monkeypatch.setattr(metadata, "version", lambda _: "0.0.1")
    assert len(names | {model_folder.request_fingerprint(*asked[0])}) == 5


def test_a_current_model_of_another_version_is_told_of(in_use: Site) -> None:
    (current,) = in_use.registry.history()
    card = in_use.place / "registry/models" / current.model / "card.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"schema_version": 2}))
    in_use.dataset(files=2)
    with pytest.raises(InputError, match=r"a model of another version of calopipe, .*; give another --registry"):
        in_use.retrain()


def test_a_damaged_model_is_made_again(site: Site) -> None:
    site.retrain()
    (site.place / "run/model/generator.weights.h5").write_text("damaged")
    site.retrain()
    assert len(site.asked) == 2
    site.promote()
    site.dataset(files=2)
    site.retrain()
    (site.place / "run/incumbent/generator.weights.h5").write_text("damaged")
    site.retrain()
    assert len(site.asked) == 3


def test_nodes_are_given_what_this_process_would_do(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch is simulated: its workers train here, or see another file system. They are given addresses."""
    job: dict[str, Any] = {"nodes": 2.0, "image": "i:1", "resources": {"cpu": "1"}, "runtime": "r", "deadline_s": 60.0}
    dataset, model, rival = site.place / "ds", site.place / "model", site.place / "rival"
    site.fit(dataset, rival, CONFIG, None)
    config = replace(CONFIG, seed=3, strategy="multi-worker")
    played = Mock()
    played.launch.side_effect = lambda *_: site.fit(dataset, model, config, rival)
    monkeypatch.setattr(mirror, "address", lambda path: f"gs://runs/{path.name}")  # as of folders in mirrors
    for module, name in ((trainjob, "launch"), (mirror, "refresh")):
        monkeypatch.setattr(module, name, getattr(played, name))
    assert fit_on_nodes("small", **job)(dataset, model, config, rival).config == config
    wanted, _ = played.launch.call_args.args
    assert played.mock_calls == [call.launch(wanted, 60.0), call.refresh(model)]
    trainer = wanted["spec"]["trainer"]
    assert trainer["args"][:-2] == [
        "fit", "--dataset", str(dataset), "--output", "gs://runs/model", "--overwrite", "--config", "small",
        "--strategy", "multi-worker", "--seed", "3", "--warm-start", "gs://runs/rival",
    ]  # fmt: skip
    assert (trainer["image"], wanted["spec"]["runtimeRef"]["name"], str(trainer["numNodes"])) == ("i:1", "r", "2")
    played.launch.side_effect = None
    with pytest.raises(InputError, match="the nodes left no model there; do they mount what this step sees there"):
        fit_on_nodes("small", **job)(dataset, model, replace(config, seed=4), rival)
    with pytest.raises(InputError, match="the nodes left no model there"):
        fit_on_nodes("small", **job)(dataset, model, config, None)  # which is another attempt
    assert len({each.args[0]["metadata"]["name"] for each in played.launch.call_args_list}) == 3
