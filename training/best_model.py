"""The model of a training's best checkpoint: at the end of the training, or after it has ended early."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import keras
import tensorflow as tf

from calopipe import mirror, storage
from calopipe.errors import InputError
from calopipe.lock import TakenError, alone
from calopipe.storage import Location
from preprocessing.dataset import at_hand, read_manifest
from training import model_folder
from training.configs import FitConfig
from training.model_folder import Card
from training.models.source import run_file
from training.models.weights import save_weights
from training.run.checkpoints import Checkpoints
from training.run.evaluations import CHOSEN_BY
from training.run.evaluator import Evaluator
from training.run.history import entries_until


def keep(dataset: Location, output: Path) -> Card:
    """Make a model of the best checkpoint in `output` of a training on `dataset` that has ended early.

    A model in `output` is left as it is. InputError: no training began there, it is on another dataset, or it left no
    whole checkpoint.
    """
    noted = model_folder.training_in(output)
    if (card := model_folder.standing(output, noted["request"])) is not None:
        return card
    if "config" not in noted:
        raise InputError(f"{output}: holds no config of its training; start the training once more, which writes it")
    manifest = read_manifest(dataset)
    if manifest.fingerprint != noted["dataset"]:
        raise InputError(f"--dataset {dataset}: not the one that the training in {output} is on; give that one")
    run_file(output, noted["config"].get("model_file"))
    config = FitConfig.from_json(noted["config"])
    config.require_read(str(output))
    checkpoints = Checkpoints(output / model_folder.CHECKPOINTS, request=noted["request"], kept=1, writes=False)
    newest = checkpoints.newest()
    with alone(output, model_folder.LOCK), at_hand(dataset, manifest, ("train",)) as local:
        evaluator = Evaluator(config, local, manifest, CHOSEN_BY)
        steps, origin = newest.step if newest else 0, noted["warm_start"]
        return write_model(output, checkpoints, evaluator, noted["request"], steps=steps, warm_start=origin)


def write_model(
    output: Path, checkpoints: Checkpoints, evaluator: Evaluator, request: str, *, steps: int, warm_start: str | None
) -> Card:
    """Write the model of the best of `checkpoints` into `output`, its card last; `steps` is how far training went.

    `warm_start` is the fingerprint of the model that the training began with. InputError: no whole checkpoint is left.
    """
    manifest, best = evaluator.manifest, checkpoints.best()
    if best is None:
        raise InputError(f"{output / model_folder.CHECKPOINTS}: no whole checkpoint is left; train again")
    history = entries_until(output, steps)
    entry = next((entry for entry in history if entry["step"] == best.step), {})  # {} for a step within an epoch
    evaluator.take_over(best.state)
    card = Card(
        request=request,
        config=evaluator.config,
        geometry=manifest.geometry,
        dataset={
            "fingerprint": manifest.fingerprint,
            "train_events": manifest.count("train"),
            "split_files": manifest.split_files,
            "cut_gev": manifest.settings.get("cut_gev"),
            "seen": storage.sha256_of_file(output / model_folder.SEEN),
        },
        valid_range=manifest.whole_range,
        trained={
            "steps": steps,
            "epochs": max((entry["epoch"] for entry in history), default=0),
            "seconds": sum(entry.get("seconds", 0.0) for entry in history),
            "replicas": best.facts["replicas"],
            "chosen_step": best.step,
            "warm_start": warm_start,
            **evaluator.model.card(entry),
        },
        losses=entry.get(CHOSEN_BY, {}),
        weights=save_weights(output, evaluator.model.networks),
        versions={
            "calopipe": metadata.version("calopipe"),
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
        },
    )
    model_folder.write_card(output, card)
    return card


@contextmanager
def names_the_command(dataset: Location, output: Path, request: str) -> Iterator[None]:
    """If the training that `request` names ends early and has left a checkpoint, say how to make a model of it."""
    try:
        yield
    except TakenError:
        raise
    except (Exception, SystemExit) as error:
        if not model_folder.is_of(output, request) or not model_folder.last_checkpoint(output):
            raise
        command = shlex.join(
            ["python", "-m", "training", "keep", "--dataset", str(dataset), "--output", mirror.address(output)]
        )
        hint = f"`{command}` makes a model of the best epoch so far"
        if isinstance(error, InputError):
            raise InputError(f"{error}; {hint}") from None
        if isinstance(error, SystemExit):
            print(hint, flush=True)
        error.add_note(hint)
        raise
