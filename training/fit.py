"""Training, from a dataset to a model folder."""

from __future__ import annotations

import errno
import logging
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import tensorflow as tf

from calopipe import mirror
from calopipe.errors import InputError
from calopipe.labels import LabelRange
from calopipe.lock import alone
from calopipe.progress import say
from calopipe.storage import Location
from preprocessing.dataset import MANIFEST, at_hand, read_manifest, require_unaltered
from preprocessing.manifest import Manifest
from preprocessing.reading import steps_per_epoch
from training import model_folder
from training.best_model import names_the_command, write_model
from training.configs import FitConfig, RunOptions
from training.engine.step import Engine
from training.engine.strategies import Team, make_strategy
from training.model_folder import Card
from training.models.source import file_of
from training.nodes.workers import Cluster, exit_lost, stop_signals
from training.run.checkpoints import Checkpoints
from training.run.evaluations import CHOSEN_BY, Evaluations
from training.run.evaluator import Evaluator
from training.run.history import History
from training.run.loop import Loop
from training.seen_events import seen_after, write_seen

logger = logging.getLogger(__name__)

# The errors of an operation if another worker is missing, and a word in TensorFlow's message if one was restarted.
_LOSSES = (
    tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError, tf.errors.CancelledError,
)  # fmt: skip
_RESTARTED = "incarnation"
_CHECKPOINTS_KEPT = 3  # how many of the newest are kept, beside the best


def fit(
    dataset: Location,
    output: Path,
    config: FitConfig,
    options: RunOptions | None = None,
    *,
    overwrite: bool = False,
    warm_start: Path | None = None,
    cluster: Cluster | None = None,
) -> Card:
    """Train the model of `config` on the train split of `dataset` and leave it in `output`.

    A model in `output` of the same dataset and config is left as it is. A training that stopped is resumed from its
    last checkpoint. A model of another dataset or config, or checkpoints of another number of replicas, are replaced
    only with `overwrite`. The weights begin as those of the model in the folder `warm_start`, if one is given. If there
    are several workers, all have the same `output`, on storage that they share; only the first worker writes.

    Raises InputError, also if memory is used up or a shard is altered during the training; OSError if the disk is full.
    After a checkpoint, it raises SystemExit(PREEMPTED) on SIGTERM, and SystemExit(130) on SIGINT.
    """
    options = options or RunOptions()
    manifest = _checked_manifest(dataset, output, config)
    earlier = _earlier(warm_start, output, config, manifest) if warm_start else None
    request = model_folder.request_fingerprint(manifest, config, earlier)
    if (card := model_folder.standing(output, request)) is not None:
        return card
    seen = seen_after(dataset, manifest, warm_start, earlier)
    with (
        names_the_command(dataset, output, request),
        _plain_errors(dataset, output, cluster),
        at_hand(dataset, manifest, ("train", CHOSEN_BY)) as local,
    ):
        team = Team(make_strategy(config.strategy, cluster), cluster)
        origin = earlier.fingerprint() if earlier else None
        about = model_folder.noted(manifest.fingerprint, config, origin)
        if team.chief:
            model_folder.require_free(output, request, about, overwrite=overwrite)
        engine = Engine(config, local, manifest, team.strategy, warm_start=warm_start)
        with alone(output, model_folder.LOCK) if team.chief else nullcontext():
            if team.chief:  # after all checks that could end the training
                model_folder.begin(output, request, about, overwrite=overwrite)
                if file := file_of(config):
                    file.write(output)
                write_seen(output, seen)
            place = output / model_folder.CHECKPOINTS
            checkpoints = Checkpoints(place, request=request, kept=_CHECKPOINTS_KEPT, writes=team.chief)
            evaluator = Evaluator(config, local, manifest, CHOSEN_BY, team.strategy)
            # Before its first step a training has nothing to save, and building its graph may take long.
            with stop_signals(interrupts=lambda: team.alone and not engine.has_run) as signals:
                _train(engine, checkpoints, evaluator, output, options, team=team, signals=signals, overwrite=overwrite)
                if team.chief:
                    write_model(output, checkpoints, evaluator, request, steps=engine.step, warm_start=origin)
                team.wait()  # all workers end together: one that ends earlier would count as lost
    if not team.chief:
        mirror.refresh(output)
    return model_folder.read_card(output)


def _checked_manifest(dataset: Location, output: Path, config: FitConfig) -> Manifest:
    """The dataset's manifest. InputError, before anything is written: config or output do not fit the dataset."""
    manifest = read_manifest(dataset)
    config.check(manifest.geometry)
    config.check_labels(LabelRange.from_json(manifest.valid_range))
    steps_per_epoch(manifest, "train", config.batch)
    for doubt in manifest.doubts():
        logger.warning(doubt)
    if (output / MANIFEST).exists():
        raise InputError(f"{output}: holds {MANIFEST}, as a dataset's folder does; give another --output")
    return manifest


def _train(
    engine: Engine, checkpoints: Checkpoints, evaluator: Evaluator, output: Path, options: RunOptions,
    *, team: Team, signals: Sequence[int], overwrite: bool,
) -> None:  # fmt: skip
    """Train from the newest checkpoint to the end."""
    seconds = _resume(engine, checkpoints, output, team, overwrite=overwrite)
    items = engine.config.domain.items
    say(
        f"training {engine.config.model} on {engine.showers} {items}: steps {engine.step} to {engine.last_step}, "
        f"{engine.steps_an_epoch} an epoch, {engine.global_batch} {items} each over {engine.replicas} replica(s) on "
        f"{'processors' if engine.on_processors else 'accelerators'}"
    )
    history = History(output, engine.step) if team.chief else None
    evaluations = Evaluations(engine, evaluator, history, checkpoints, team)
    say("building the graph, which takes up to a minute or two before the first step")
    evaluations.evaluate(engine.state())
    try:
        if options.profile:
            engine.trace(output / model_folder.TENSORBOARD if team.chief else None)
        Loop(engine, checkpoints, evaluations, options, team, signals=signals, seconds=seconds).run()
    finally:
        checkpoints.wait()  # the last checkpoint is whole, also if an error ends the training


@contextmanager
def _plain_errors(dataset: Location, output: Path, cluster: Cluster | None) -> Iterator[None]:
    """Turn TensorFlow's errors into InputError where input or model cause them, or exit if another worker is lost."""
    try:
        yield
    except (*_LOSSES, tf.errors.FailedPreconditionError) as error:
        lost = isinstance(error, _LOSSES) or _RESTARTED in str(error.message)
        if not lost or cluster is None or cluster.size == 1:
            raise
        exit_lost(cluster, str(error.message))
    except tf.errors.OperatorNotAllowedInGraphError as error:
        frames = reversed(traceback.extract_tb(error.__traceback__))
        place = next(frame for frame in frames if "site-packages" not in frame.filename)
        raise InputError(
            f"{place.filename}:{place.lineno}: an `if` or a loop over values of the graph; use keras.ops.cond, or "
            "keras.ops.while_loop with maximum_iterations"
        ) from None
    except (tf.errors.ResourceExhaustedError, tf.errors.DataLossError, tf.errors.NotFoundError) as error:
        reason = str(error.message).splitlines()[0]
        if "No space left on device" in reason:
            raise OSError(errno.ENOSPC, reason, str(output)) from None
        require_unaltered(dataset, read_manifest(dataset))  # names the altered shard; TensorFlow does not
        raise InputError(
            f"{output}: TensorFlow gave up: {reason}; give a smaller --batch, or delete the file it names"
        ) from None


def _earlier(place: Path, output: Path, config: FitConfig, manifest: Manifest) -> Card:
    """The card of the model in `place`, with whose weights the training begins. InputError: it does not fit."""
    if place.resolve() == output.resolve() or mirror.address(place) == mirror.address(output):
        raise InputError(f"--warm-start {place}: is also the --output, and would be lost; give another --output")
    card = model_folder.read_card(place)
    if card.config.model != config.model:
        raise InputError(
            f"--warm-start {place}: of the model {card.config.model}, not {config.model}; give --config for it"
        )
    if reason := _against(card, config, manifest):
        raise InputError(f"--warm-start {place}: {reason}; leave --warm-start out")
    return card


def _against(card: Card, config: FitConfig, manifest: Manifest) -> str:
    """Why a training on the dataset cannot begin with the weights of the model that `card` describes; "" if it can."""
    geometry = manifest.geometry
    if card.geometry.shape != geometry.shape:
        return f"was trained on {geometry.items} of {card.geometry.shape} cells, the dataset's have {geometry.shape}"
    if (differs := card.geometry.difference(geometry)) and differs[0] not in geometry.rescaled:
        name, earlier, value = differs
        return f"{name} is {earlier} in its training, and {value} in the dataset"
    if reason := config.begins_anew(card.valid_range, manifest.valid_range):
        return reason
    if labels := LabelRange.from_json(card.valid_range).difference(LabelRange.from_json(manifest.valid_range)):
        return f"was trained on showers with {labels[0]}, the dataset's have {labels[1]}"
    return ""


def _resume(engine: Engine, checkpoints: Checkpoints, output: Path, team: Team, *, overwrite: bool) -> float:
    """Continue from the newest checkpoint, if there is one. Returns the seconds that its epoch has taken so far.

    Checkpoints of another number of replicas are discarded with `overwrite`, and are an error without it.
    """
    checkpoint = checkpoints.newest()
    changed, seconds = "", 0.0
    if checkpoint is not None and checkpoint.facts["replicas"] != engine.replicas:
        changed = (
            f"{output}: trained by {checkpoint.facts['replicas']} replicas until step {checkpoint.step}, now there are "
            f"{engine.replicas}"
        )
        if not overwrite:
            raise InputError(f"{changed}; give as many devices, or another --output, or --overwrite")
    elif checkpoint is not None:
        engine.restore(checkpoint.state, str(checkpoint.path))
        seconds = checkpoint.facts["seconds"]
    if not team.alone and team.total(engine.step) != engine.step * engine.replicas:
        raise InputError(f"{output}: the workers find different checkpoints there; is it on shared storage?")
    if changed and team.chief:  # only now, because all workers have read the checkpoints
        logger.warning("%s: the training begins anew, and will end with other weights", changed)
        checkpoints.discard()
    return seconds
