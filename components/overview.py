"""What a run has made so far, read from its folder: lines for a terminal, and the page that a user opens first."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calopipe import storage
from calopipe.documents import Form, require_own
from calopipe.errors import InputError
from calopipe.verdict import OVERVIEW_FILE, REPORT_FILE, VERDICT_FILE, read_verdict, require_own_verdict, summary_line
from training import model_folder
from training.model_folder import Card

INDEX_FILE = "index.html"
DONE, BEGUN, MISSING, DAMAGED = "done", "begun", "not yet", "damaged"
_RUN, _FORM = "run.json", Form("calopipe.run", 1)
_PLACES = ("dataset", "registry")  # parameters that may name folders elsewhere
_EPOCHS = 8  # epochs of the history that the page shows


@dataclass(frozen=True)
class Part:
    """A thing that a run makes: its state, a line that describes it, and the files that show it, by their names."""

    name: str
    state: str
    line: str = ""
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name:<10} {self.state:<8} {self.line}".rstrip()


def note(output: storage.Location, parameters: Mapping[str, Any], log: Path) -> None:
    """Write in `output` what a run was asked for, and where its log is.

    InputError: another program's file has the name of this document, of `write_index`'s page, or of the verdict.
    """
    require_own(output / _RUN, _FORM.kind, page=output / INDEX_FILE)
    require_own_verdict(output)
    places = {name: str(storage.location(parameters[name]).absolute()) for name in _PLACES if parameters.get(name)}
    _FORM.write(output / _RUN, {"parameters": {**parameters, **places}, "log": log.name})


def noted(output: storage.Location) -> dict[str, Any]:
    """What `note` wrote. InputError: no run began in `output`."""
    return _FORM.read(output / _RUN)


def parts(output: storage.Location) -> list[Part]:
    """What the run in `output` has made, in the order in which it is made. InputError: no run began there."""
    parameters = noted(output)["parameters"]
    dataset = storage.location(parameters.get("dataset") or f"{output}/dataset")
    registry = storage.location(parameters.get("registry") or f"{output}/registry")
    return [
        _part("dataset", lambda: _dataset(dataset), [f"{dataset}/manifest.json"], output),
        _part("model", lambda: _model(output / "model"), ["model/card.json", "model/history.jsonl"], output),
        _part("showers", lambda: _showers(output), ["generated.h5", "incumbent.h5", "rollouts"], output),
        _part("verdict", lambda: _verdict(output), [REPORT_FILE, VERDICT_FILE, OVERVIEW_FILE], output),
        _part("registry", lambda: _registry(registry), [f"{registry}/promotions"], output),
    ]


def _part(name: str, look: Callable[[], tuple[str, str]], files: list[str], output: storage.Location) -> Part:
    try:
        state, line = look()
    except InputError as error:
        state, line = DAMAGED, str(error)
    inside = [file for file in (file.removeprefix(f"{output}/") for file in files) if "://" not in file]
    present = [file for file in inside if (output / file).is_file() or storage.listing(output / file)]
    return Part(name, state, line, tuple(present))


def _dataset(place: storage.Location) -> tuple[str, str]:
    from preprocessing.dataset import MANIFEST, SHARDS, read_manifest

    if (place / MANIFEST).is_file():
        return DONE, read_manifest(place).summary()
    shards = sum(name.endswith(".json") for name in storage.listing(place / SHARDS))
    return (BEGUN, f"{shards} pieces") if shards else (MISSING, "")


def _model(place: storage.Location) -> tuple[str, str]:
    if (place / model_folder.CARD).is_file():
        return DONE, model_folder.read_card(place).summary()
    if step := model_folder.last_checkpoint(place):
        return BEGUN, f"step {step} is saved; the same command goes on from there"
    return (BEGUN, "no checkpoint yet") if storage.listing(place) else (MISSING, "")


def _showers(output: storage.Location) -> tuple[str, str]:
    from calopipe.showers.files import open_showers

    made, rollouts = output / "generated.h5", _of_hdf5(output / "rollouts")
    if made.is_file():
        return DONE, f"{open_showers(made).events} showers"
    if rollouts:
        return DONE, f"{rollouts} roll-outs"
    pieces = _of_hdf5(output / f".{made.name}.parts")
    return (BEGUN, f"{pieces} parts") if pieces else (MISSING, "")


def _of_hdf5(folder: storage.Location) -> int:
    return sum(name.endswith(".h5") for name in storage.listing(folder))


def _verdict(output: storage.Location) -> tuple[str, str]:
    verdict = output / VERDICT_FILE
    return (DONE, summary_line(read_verdict(verdict))) if verdict.is_file() else (MISSING, "")


def _registry(place: storage.Location) -> tuple[str, str]:
    from training.registry.registry import Registry

    used = Registry(place).in_use()
    return (DONE, f"in use: {used}") if used else (MISSING, "no model was promoted")


def write_index(output: storage.Location, failed: str = "") -> storage.Location:
    """Write the page of the run in `output`: links to everything that the run has made, and its results. Returns the
    path of the page.

    If the step `failed` is named, the verdict in `output` may be of an earlier run, and is not shown.
    """
    from validation.report.page import html, render

    card = model_folder.model_in(output / "model")
    verdict, picture = "", b""
    if not failed:
        with suppress(InputError):
            verdict = read_verdict(output / VERDICT_FILE)["verdict"]
    if (output / OVERVIEW_FILE).is_file():
        with (output / OVERVIEW_FILE).open("rb") as stream:
            picture = stream.read()
    body = render(
        "run.html",
        name=output.name,
        parts=parts(output),
        log=f"logs/{noted(output)['log']}",
        failed=failed,
        verdict=verdict,
        picture=base64.b64encode(picture).decode(),
        facts=_facts(card) if card else {},
        epochs=_epochs(output / "model"),
    )
    path = output / INDEX_FILE
    with storage.replacing(path) as temporary:
        temporary.write_text(html(f"Run {output.name}", body), encoding="utf-8")
    return path


def _facts(card: Card) -> dict[str, str]:
    """What a user wants to know about a model."""
    trained, config = card.trained, card.config
    ranges = (f"{name} {' to '.join(f'{bound:.4g}' for bound in bounds)}" for name, bounds in card.valid_range.items())
    return {
        "Model": f"{config.model}, {card.fingerprint()[:16]}",
        "Training": f"{trained['steps']:,} steps of {config.batch * trained['replicas']}, {trained['epochs']} epochs, "
        f"{trained['seconds'] / 60:.3g} min; the weights of step {trained['chosen_step']:,}",
        "Trained on": f"{card.dataset['train_events']:,} {card.geometry.items} of the dataset "
        f"{card.dataset['fingerprint'][:16]}",
        "Labels": "; ".join(ranges),
        "Began with": f"the weights of {trained['warm_start'][:16]}" if trained["warm_start"] else "new weights",
        "Versions": ", ".join(f"{name} {version}" for name, version in card.versions.items()),
    }


def _epochs(model: storage.Location) -> list[dict[str, str]]:
    """Some epochs of the history with an evaluation, including the last one, and their validation losses."""
    path = model / model_folder.HISTORY
    lines = path.read_text().splitlines() if path.is_file() else []
    try:
        judged = [entry for entry in map(json.loads, lines) if entry.get("validation")]
    except (AttributeError, ValueError):  # damaged; a training reports that
        return []
    chosen = judged[:: max(len(judged) // _EPOCHS, 1)]
    chosen += [entry for entry in judged[-1:] if entry not in chosen]
    return [
        {"Epoch": str(entry["epoch"]), "Step": f"{entry['step']:,}"}
        | {name: f"{value:.4g}" for name, value in entry["validation"].items()}
        for entry in chosen
    ]
