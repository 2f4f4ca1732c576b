"""Training, from a dataset to a model folder: the story top to bottom."""

from __future__ import annotations

import errno
import logging
import time
from contextlib import closing
from importlib import metadata
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from preprocessing.dataset import MANIFEST, Manifest, at_hand, read_manifest, require_unaltered
from preprocessing.errors import InputError
from preprocessing.reading import steps_per_epoch
from preprocessing.storage import Location
from training import folder
from training.configs import FitConfig
from training.engine import Engine
from training.folder import Card
from training.history import Epoch, History, ProgressBar

logger = logging.getLogger(__name__)

_CHECKPOINTS_KEPT = 3
_CHECKPOINT_SECONDS = 600.0  # what a run that dies loses at most, beside the step it is in
_CHOSEN_BY = "validation"  # the split that is watched; the test split is the verdict's alone


def fit(dataset: Location, output: Path, config: FitConfig, *, overwrite: bool = False, cache: bool = False) -> Card:
    """Train the model of `config` on the train split of `dataset` and leave it in `output`.

    A model that stands there for the same dataset and config is left as it is, and a training that stopped goes on
    from its last checkpoint. A model of another dataset or config is replaced only if `overwrite` says so. `cache`
    holds the train split's records in memory; the model is the same. Raises InputError, also where TensorFlow finds
    disk or memory used up, and where a shard is altered or removed meanwhile.
    """
    try:
        return _fit(dataset, output, config, overwrite=overwrite, cache=cache)
    except (tf.errors.ResourceExhaustedError, tf.errors.DataLossError, tf.errors.NotFoundError) as error:
        reason = str(error.message).splitlines()[0]
        if "No space left on device" in reason:
            raise OSError(errno.ENOSPC, reason, str(output)) from None
        require_unaltered(dataset, read_manifest(dataset))  # names the shard, which TensorFlow does not
        raise InputError(
            f"{output}: TensorFlow gave up: {reason}; give a smaller --batch, or delete the file it names"
        ) from None


def _fit(dataset: Location, output: Path, config: FitConfig, *, overwrite: bool, cache: bool) -> Card:
    manifest = read_manifest(dataset)
    config.check_shape(manifest.geometry)
    steps_per_epoch(manifest, "train", config.batch)  # too few showers are told of before anything is written
    if (output / MANIFEST).exists():
        raise InputError(f"{output}: holds a dataset; give the model an --output of its own")
    request = folder.request_fingerprint(manifest, config)
    if (card := folder.standing(output, request)) is not None:
        print(f"model stands: {output / folder.CARD}, {card.trained['steps']} steps; nothing to do")
        return card
    with at_hand(dataset, manifest, ("train", _CHOSEN_BY)) as local:
        folder.begin(output, request, overwrite=overwrite)
        return _train(local, manifest, output, config, request, cache=cache)


def _train(dataset: Path, manifest: Manifest, output: Path, config: FitConfig, request: str, *, cache: bool) -> Card:
    """The training itself, from the last checkpoint in `output` if there is one."""
    engine = Engine(config, dataset, manifest, cache=cache)
    per_epoch = steps_per_epoch(manifest, "train", engine.global_batch)
    last_step = min(config.epochs * per_epoch, config.steps or config.epochs * per_epoch)
    running = Epoch()
    checkpoint = engine.checkpoint(running)
    checkpoints = tf.train.CheckpointManager(checkpoint, str(output / folder.CHECKPOINTS), _CHECKPOINTS_KEPT)
    if checkpoints.latest_checkpoint:
        checkpoint.restore(checkpoints.latest_checkpoint).assert_consumed()
    step = int(engine.step)
    if manifest.count(_CHOSEN_BY) == 0:
        logger.warning("the %s split holds no showers: its losses are left out; give more input", _CHOSEN_BY)
    print(
        f"training {config.model} on {manifest.count('train')} showers: steps {step} to {last_step}, {per_epoch} an "
        f"epoch, {engine.global_batch} images each over {engine.strategy.num_replicas_in_sync} replica(s)",
        flush=True,
    )

    history = History(output, step)
    if not history.entries:
        history.add({"epoch": 0, "step": 0, _CHOSEN_BY: engine.evaluate(_CHOSEN_BY)})
    batches = iter(engine.batches())
    saved_at = time.monotonic()
    with closing(ProgressBar(engine, last_step)) as progress:
        while step < last_step:
            epoch = step // per_epoch
            end = min((epoch + 1) * per_epoch, last_step)
            began_at = time.monotonic()
            while step < end:
                losses = engine.train_step(next(batches)).numpy()
                step = int(engine.step)
                running.add(losses, time.monotonic() - began_at)
                began_at = time.monotonic()
                progress.update(losses)
                if not np.isfinite(losses).all():
                    raise InputError(f"{output}: a loss is not a finite number at step {step}; lower --learning-rate")
                if began_at - saved_at > _CHECKPOINT_SECONDS:
                    checkpoints.save(step)
                    saved_at = time.monotonic()
            images = running.steps * engine.global_batch
            history.add(
                {
                    "epoch": epoch + 1,
                    "step": step,
                    "seconds": running.seconds,
                    "images_per_s": images / running.seconds,
                    "train": engine.table(running.mean_losses),
                    _CHOSEN_BY: engine.evaluate(_CHOSEN_BY),
                }
            )
            running.clear()
            checkpoints.save(step)
            saved_at = time.monotonic()

    card = _card(request, config, manifest, history, folder.save_weights(output, engine.model.networks))
    folder.write_card(output, card)
    return card


def _card(
    request: str, config: FitConfig, manifest: Manifest, history: History, weights: dict[str, str]
) -> Card:  # fmt: skip
    last = history.entries[-1]
    return Card(
        request=request,
        config=config,
        geometry=manifest.geometry,
        dataset={"fingerprint": manifest.fingerprint, "train_events": manifest.count("train")},
        energy_gev=manifest.energy_gev,
        theta_rad=manifest.theta_rad,
        trained={
            "steps": last["step"],
            "epochs": last["epoch"],
            "seconds": sum(entry.get("seconds", 0.0) for entry in history.entries),
        },
        losses=last[_CHOSEN_BY],
        weights=weights,
        versions={"calopipe": metadata.version("calopipe"), "tensorflow": tf.__version__, "keras": keras.__version__},
    )
