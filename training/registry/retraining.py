"""Training that keeps a model current: it starts from the model in use, and trains only if there is something new.

No TensorFlow in here: a run that finds nothing new does not have to load it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from calopipe import mirror, storage
from calopipe.documents import stands
from calopipe.errors import InputError
from calopipe.labels import LabelRange
from calopipe.progress import say
from calopipe.storage import Location
from preprocessing.dataset import read_manifest
from preprocessing.events import digests_in
from preprocessing.manifest import Manifest
from training import model_folder
from training.configs import FROM_INCUMBENT, FitConfig, as_options, require_origin
from training.model_folder import Card
from training.nodes.workers import Cluster
from training.registry.registry import Promotion, Registry
from training.seen_events import JUDGES, require_unseen

# Trains a config on a dataset, into a folder. A fourth argument is the folder of the model to start from, or None.
Fit: TypeAlias = "Callable[[Location, Path, FitConfig, Path | None], Card]"


def fit_here(dataset: Location, model: Path, config: FitConfig, warm_start: Path | None) -> Card:
    """Train in this process; a model of other data or settings is replaced."""
    from training.fit import fit  # noqa: PLC0415  TensorFlow

    return fit(dataset, model, config, overwrite=True, warm_start=warm_start, cluster=Cluster.of_process((), None))


def fit_on_nodes(name: str, *, nodes: float, deadline_s: float, **job: Any) -> Fit:
    """As `fit_here`, by a TrainJob of several nodes. The nodes must see dataset and model at the same paths.

    `name` is the config's name; `job` has the other arguments of `training.nodes.trainjob.manifest`. The number of
    nodes may be a float, as kfp may hand it on: JSON has one kind of number.
    """

    def fit(dataset: Location, model: Path, config: FitConfig, warm_start: Path | None) -> Card:
        from training.nodes.trainjob import job_name, launch, manifest  # noqa: PLC0415  the client of Kubernetes' API

        earlier = model_folder.read_card(warm_start) if warm_start else None
        training = model_folder.request_fingerprint(read_manifest(dataset), config, earlier)
        place = mirror.address(model)
        arguments = ["fit", "--dataset", str(dataset), "--output", place, "--overwrite", *as_options(config, name)]
        if warm_start is not None:
            arguments += ["--warm-start", mirror.address(warm_start)]
        launch(manifest(job_name(f"{training} {place}"), nodes=int(nodes), arguments=arguments, **job), deadline_s)
        mirror.refresh(model)
        card = model_folder.model_in(model)
        if card is None or card.request != training:
            raise InputError(f"{model}: the nodes left no model there; do they mount what this step sees there?")
        return card

    return fit


def retrain(
    dataset: Location, model: Path, config: FitConfig, registry: Registry, *, origin: str, copy: Path, fit: Fit
) -> tuple[Card, Promotion | None]:
    """A model of `config` for `dataset` in the folder `model`, and the incumbent of `registry` that it has to beat.

    The folder `model` may hold the model of the last run; what has changed since then is printed. Nothing is trained if
    this model, or the registry's current model, is of the same data and settings. Otherwise `fit` is called. If
    `origin` is "incumbent", the training starts from the weights of the incumbent, unless these do not fit the new
    model. The folder `copy` gets a copy of the incumbent's model. InputError if the incumbent is of another detector,
    or was trained on events that are to judge both models; and, before the incumbent is copied, if a user's file states
    the incumbent and this process was not given that file.
    """
    require_origin(origin)
    manifest = read_manifest(dataset)
    card = model_folder.model_in(model)
    if card is None:
        storage.remove(model / model_folder.CARD)  # a damaged model is made again, from its checkpoints
    else:
        changes = card.changes(manifest.fingerprint, config)
        say(f"since the last model: {', '.join(changes) or 'the same data and settings'}")
    if card and card.answers(manifest, config, origin):
        stands("model stands", model, "of these data and settings")
    else:
        card = _current_of(manifest, config, registry, origin=origin, copy=copy, model=model)
    incumbent = registry.incumbent(card.fingerprint() if card else None)
    incumbent_card = registry.fetch(incumbent, copy, unread=False) if incumbent else None
    if incumbent_card is not None:
        _require_one_detector(incumbent_card, manifest, registry)
    if card is None:
        begin = None
        if incumbent_card is not None:
            judges = digests_in(dataset, manifest, [JUDGES])
            require_unseen(copy, incumbent_card, judges, f"--registry {registry.place}: its current model")
            if origin == FROM_INCUMBENT and _may_begin(incumbent_card, config, manifest):
                begin = copy
        card = fit(dataset, model, config, begin)
        say(card.summary() + (f"; begun with the weights of {incumbent.model}" if incumbent and begin else ""))
    return card, incumbent


def _current_of(
    manifest: Manifest, config: FitConfig, registry: Registry, *, origin: str, copy: Path, model: Path
) -> Card | None:
    """The card of the registry's current model, copied to `model`, if it is of these data and settings; else None."""
    current = registry.current()
    if current is None or not registry.fetch(current, copy, unread=False).answers(manifest, config, origin):
        return None
    say(f"model stands: {current.model}, the current one of the registry, is of these data and settings")
    return model_folder.take_over(copy, model, overwrite=True)


def _require_one_detector(card: Card, manifest: Manifest, registry: Registry) -> None:
    if differs := card.geometry.difference(manifest.geometry):
        name, value, stored = differs
        raise InputError(
            f"--registry {registry.place}: {name} is {value} in its model and {stored} in the dataset; give each "
            "detector a registry of its own"
        )
    if labels := LabelRange.from_json(card.valid_range).difference(LabelRange.from_json(manifest.valid_range)):
        raise InputError(
            f"--registry {registry.place}: its model is of showers with {labels[0]}, the dataset's have {labels[1]}; "
            "give each a registry of its own"
        )


def _may_begin(card: Card, config: FitConfig, manifest: Manifest) -> bool:
    """Whether training may start from the weights of the current model, which has this `card`; also prints it."""
    same = card.config.model == config.model
    reason = config.begins_anew(card.valid_range, manifest.valid_range) if same else f"that is a {card.config.model}"
    new = f"new weights, not those of the current model: {reason}"
    say(f"training begins with {new if reason else 'the weights of the current model'}")
    return not reason
