"""Training, from a dataset to a model folder: the story top to bottom."""

from __future__ import annotations

import errno
import logging
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from calopipe.errors import InputError
from calopipe.progress import say
from calopipe.showers.cells import Geometry
from calopipe.storage import Location
from preprocessing.dataset import MANIFEST, Manifest, at_hand, read_manifest, require_unaltered
from preprocessing.reading import steps_per_epoch
from training import folder
from training.configs import FitConfig, RunOptions
from training.engine import approaches
from training.engine.step import Engine, State
from training.engine.strategies import make_strategy, tpu_padding
from training.folder import Card
from training.keeping import CHOSEN_BY, names_the_command, write_model
from training.nodes.workers import PREEMPTED, Cluster, exit_lost, watch_peers
from training.run.checkpoints import Checkpoints
from training.run.evaluation import Evaluator
from training.run.guards import Guards
from training.run.history import History, ProgressBar
from training.seen import seen_after, write_seen

logger = logging.getLogger(__name__)

_DRAWN_SECONDS = 60.0  # between two drawings for TensorBoard, each of which takes a second
_STEPS_A_CALL_ON_ACCELERATORS = 10
_LOOKS_AT_MOST = 3  # at the model of one epoch, where each fails or is killed


def fit(
    dataset: Location,
    output: Path,
    config: FitConfig,
    options: RunOptions | None = None,
    *,
    overwrite: bool = False,
    warm_start: Path | None = None,
    cluster: Cluster | None = None,
    tpu: str = "local",
) -> Card:
    """Train the model of `config` on the train split of `dataset` and leave it in `output`.

    A model that stands there for the same dataset and config is left as it is, and a training that stopped goes on
    from its last checkpoint. A model of another dataset or config, or checkpoints of another number of replicas, which
    would have come to other weights, are replaced only if `overwrite` says so. The weights begin as those of the model
    in the folder `warm_start`, if one is given, which may be of another dataset. Of several workers all are given the
    same `output`, on storage that they share; the first writes.

    Raises InputError, also where TensorFlow finds disk or memory used up, and where a shard is altered or removed
    meanwhile; SystemExit(PREEMPTED) where SIGTERM told it to stop, and SystemExit(130) where SIGINT did, each after
    a checkpoint.
    """
    options = options or RunOptions()
    manifest = read_manifest(dataset)
    config.check_shape(manifest.geometry)
    options.check_strategy(config.strategy)
    steps_per_epoch(manifest, "train", config.batch)  # too few showers are told of before anything is written
    if (output / MANIFEST).exists():
        raise InputError(f"{output}: holds a dataset; give the model an --output of its own")
    earlier = folder.read_card(warm_start) if warm_start else None
    if warm_start is not None and warm_start.resolve() == output.resolve():
        raise InputError(f"--warm-start {warm_start}: is also the --output, and would be lost; give another --output")
    if earlier is not None:
        _check_warm_start(earlier, config, manifest.geometry, str(warm_start))
    request = folder.request_fingerprint(manifest, config, earlier)
    if (card := folder.standing(output, request)) is not None:
        print(f"model stands: {output / folder.CARD}, {card.trained['steps']} steps; nothing to do")
        return card
    seen = seen_after(dataset, manifest, warm_start, earlier)
    with (
        names_the_command(dataset, output, request),
        _told_errors(dataset, output, cluster),
        at_hand(dataset, manifest, ("train", CHOSEN_BY)) as local,
    ):
        with nullcontext() if cluster is None or cluster.size == 1 else watch_peers(cluster):
            strategy = make_strategy(config.strategy, cluster, tpu)
            if cluster is None or cluster.chief:
                told = {
                    "config": config.to_json(),
                    "dataset": manifest.fingerprint,
                    "warm_start": earlier.fingerprint() if earlier else None,
                }
                folder.begin(output, request, overwrite=overwrite, told=told)
                write_seen(output, seen)
            engine = Engine(config, local, manifest, strategy, cache=options.cache, warm_start=warm_start)
            training = _Training(
                engine,
                dataset=local,
                manifest=manifest,
                output=output,
                options=options,
                request=request,
                cluster=cluster,
            )
            with training.told_by_signals():
                training.go_on(overwrite=overwrite)
                try:
                    training.run()
                finally:
                    training.wait()
                training.finish(earlier)
        return folder.read_card(output)


@contextmanager
def _told_errors(dataset: Location, output: Path, cluster: Cluster | None) -> Iterator[None]:
    """Turn what TensorFlow raises into what a user can mend, or into the exit of a worker that lost another."""
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError):
        if cluster is None:
            raise
        exit_lost("an address that answers again: it was late")  # or the watch would have named it
    except (tf.errors.ResourceExhaustedError, tf.errors.DataLossError, tf.errors.NotFoundError) as error:
        reason = str(error.message).splitlines()[0]
        if "No space left on device" in reason:
            raise OSError(errno.ENOSPC, reason, str(output)) from None
        require_unaltered(dataset, read_manifest(dataset))  # names the shard, which TensorFlow does not
        raise InputError(
            f"{output}: TensorFlow gave up: {reason}; give a smaller --batch, or delete the file it names"
        ) from None


def _check_warm_start(earlier: Card, config: FitConfig, geometry: Geometry, place: str) -> None:
    if earlier.config.model != config.model:
        raise InputError(
            f"--warm-start {place}: of the model {earlier.config.model}, not {config.model}; give --config for it"
        )
    if earlier.geometry.shape != geometry.shape:
        raise InputError(
            f"--warm-start {place}: of showers with {earlier.geometry.shape} cells, the dataset's have {geometry.shape}"
        )


class _Training:
    """What happens between the steps: progress, guards, ends of epochs, checkpoints, and the reasons to stop."""

    def __init__(
        self,
        engine: Engine,
        *,
        dataset: Path,
        manifest: Manifest,
        output: Path,
        options: RunOptions,
        request: str,
        cluster: Cluster | None,
    ) -> None:
        self._engine, self._manifest, self._output = engine, manifest, output
        self._options, self._request = options, request
        self._alone = cluster is None or cluster.size == 1
        self._processors = "CPU" in engine.strategy.extended.worker_devices[0]
        chief = cluster is None or cluster.chief
        self._checkpoints = Checkpoints(
            output / folder.CHECKPOINTS, request=request, kept=options.checkpoints_kept, writes=chief
        )
        self._guards = Guards(engine.model.guards)
        self._seconds = 0.0  # of the running epoch
        self._drawn_at = time.monotonic()
        self._signal: int | None = None
        # what the first worker has alone: the others compute, and wait for it at the end of an epoch
        self._evaluator: Evaluator | None = None
        self._history: History | None = None
        if chief:
            self._evaluator = Evaluator(engine.config, dataset, manifest, CHOSEN_BY)
        if manifest.count(CHOSEN_BY) == 0:
            logger.warning("the %s split holds no showers: the last epoch's model is kept; give more input", CHOSEN_BY)

    def go_on(self, *, overwrite: bool) -> None:
        """Take up the newest checkpoint, if there is one; `overwrite` discards those of another number of replicas."""
        engine = self._engine
        found = self._checkpoints.newest()
        others = ""
        if found is not None and found.facts["replicas"] != engine.replicas:
            others = (
                f"{self._output}: trained by {found.facts['replicas']} replicas until step {found.step}, now there are "
                f"{engine.replicas}"
            )
            if not overwrite:
                raise InputError(f"{others}; give as many devices, or another --output, or --overwrite")
        elif found is not None:
            engine.restore(found.state, str(found.path))
            self._seconds = found.facts["seconds"]
        if not self._alone and engine.total(engine.step) != engine.step * engine.replicas:
            raise InputError(f"{self._output}: the workers find different checkpoints there; is it on shared storage?")
        if self._evaluator is not None:
            if others:  # only now: all workers have read them
                logger.warning("%s: beginning anew, to other weights than those would have come to", others)
                self._checkpoints.discard()
            self._history = History(self._output, engine.step)
        say(
            f"training {engine.config.model} on {self._manifest.count('train')} showers: steps {engine.step} to "
            f"{engine.last_step}, {engine.steps_an_epoch} an epoch, {engine.global_batch} images each over "
            f"{engine.replicas} replica(s) on {'processors' if self._processors else 'accelerators'}"
        )
        if engine.config.strategy == "tpu":
            for network in engine.model.networks.values():
                print("\n".join(tpu_padding(network, engine.config.batch)), flush=True)

    def run(self) -> None:
        """Train to the last step, or until there is a reason to stop."""
        engine = self._engine
        if self._history is not None and not self._history.entries:
            self._history.add({"epoch": 0, "step": 0})
        self._judge_if_due(engine.state())
        if self._options.profile:
            trace = self._output / folder.TENSORBOARD if self._history is not None else None
            print(approaches.profile(engine, self._options.approach, trace).table(), flush=True)
        steps_a_call = self._options.steps_a_call or (1 if self._processors else _STEPS_A_CALL_ON_ACCELERATORS)
        self._saved_step, self._saved_at = engine.step, time.monotonic()
        if self._signal is not None and self._alone:
            self._stop(engine.step)
        with closing(ProgressBar(engine)) as self._progress:
            self._began_at = time.monotonic()
            if engine.step % engine.steps_an_epoch or not self._patience_is_over():
                if self._options.approach == "builtin":
                    approaches.builtin(engine, self._after)
                else:
                    approaches.custom(engine, steps_a_call, self._after, lambda: self._signal is not None)

    def wait(self) -> None:
        """Return when all checkpoints are written, so that what ends a training early leaves them whole."""
        self._checkpoints.wait()

    def finish(self, earlier: Card | None) -> None:
        """Write the best model and its card; of several workers the first does, and the others wait for it."""
        if self._evaluator is not None and self._history is not None:
            write_model(
                self._output, self._checkpoints, self._evaluator, self._request, manifest=self._manifest,
                config=self._engine.config, steps=self._engine.step,
                warm_start=earlier.fingerprint() if earlier else None,
            )  # fmt: skip
        if not self._alone:
            self._engine.total(0.0)  # all leave together: one that is gone earlier would count as lost

    def _after(self, losses: npt.NDArray[np.float32], stop: bool) -> bool:
        """After each call of steps: whether this was the last."""
        engine, step = self._engine, self._engine.step
        self._seconds += time.monotonic() - self._began_at
        self._guards.check(losses, engine.table(losses), step=step, last_good=self._checkpoints.last_named)
        self._progress.update(losses)
        over = False
        if step % engine.steps_an_epoch == 0 or step == engine.last_step:
            self._end_epoch(step)
            over = self._patience_is_over()
        elif self._due(step):
            self._save(step)
        if stop or (self._alone and self._signal is not None):
            self._stop(step)
        self._began_at = time.monotonic()
        return over

    def _end_epoch(self, step: int) -> None:
        """Note the epoch; judge the model and keep it, if that is due."""
        engine = self._engine
        steps = (step - 1) % engine.steps_an_epoch + 1
        means = engine.take_sums() / steps
        seconds, self._seconds = self._seconds, 0.0
        if self._history is None:
            return
        self._history.add(
            {
                "epoch": -(-step // engine.steps_an_epoch),
                "step": step,
                "seconds": seconds,
                "images_per_s": steps * engine.global_batch / seconds,
                "learning_rate": engine.learning_rate(),
                "train": engine.table(means),
            }
        )
        if self._evaluation_is_due(step) or self._due(step):
            self._judge_if_due(self._save(step))  # saved first: a look takes long, and may end the training

    def _judge_if_due(self, state: State) -> None:
        """Judge the model in `state`, of the last epoch in the history, if that is due and not done."""
        if self._history is None or not self._history.entries:
            return
        entry, step = self._history.entries[-1], self._engine.step
        if entry["step"] != step or CHOSEN_BY in entry or not self._evaluation_is_due(step):
            return
        begun = entry.get("looks_begun", [])
        if len(begun) == _LOOKS_AT_MOST:
            logger.warning("step %d: the model is not judged; %d looks at it began, and none ended", step, len(begun))
            return
        self._history.amend({"looks_begun": [*begun, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())]})
        judged, score = self._judged(state)
        self._checkpoints.mark(step, score)
        self._history.amend({**judged, "looks_begun": None})

    def _evaluation_is_due(self, step: int) -> bool:
        """Whether the model is judged at the end of the epoch that `step` ends."""
        every = self._engine.config.evaluation_steps
        before = step - self._engine.steps_an_epoch
        return every == 0 or step // every > before // every or step == self._engine.last_step

    def _judged(self, state: State) -> tuple[dict[str, Any], float | None]:
        """What the history says of the model in `state`, and the score that chooses among epochs."""
        assert self._evaluator is not None
        if self._manifest.count(CHOSEN_BY) == 0:
            return {CHOSEN_BY: {}}, None
        assert self._history is not None
        self._evaluator.take_over(state)
        looked = self._evaluator.evaluate()
        if self._engine.step == self._engine.last_step or time.monotonic() - self._drawn_at > _DRAWN_SECONDS:
            self._history.draw(looked.judge.figures())
            self._drawn_at = time.monotonic()
        return {CHOSEN_BY: looked.losses, **looked.found}, self._evaluator.score(looked)

    def _patience_is_over(self) -> bool:
        """Whether the metric has been no better for as many epochs as the config allows; the first worker decides."""
        engine, patience = self._engine, self._engine.config.patience
        if not patience:
            return False
        over = False
        if self._history is not None:
            self._checkpoints.wait()
            best_step, value = self._checkpoints.best_metric()
            judged = max((each["step"] for each in self._history.entries if CHOSEN_BY in each), default=0)
            over = math.isfinite(value) and judged - best_step >= patience * engine.steps_an_epoch
            if over:
                print(f"no better metric for {patience} epochs since step {best_step}: {value:.4g}", flush=True)
        return over if self._alone else engine.total(over) > 0

    def _due(self, step: int) -> bool:
        every = self._options.checkpoint_steps
        passed = bool(every) and step // every > self._saved_step // every
        return passed or time.monotonic() - self._saved_at > self._options.checkpoint_seconds

    def _save(self, step: int) -> State:
        """Write a checkpoint; the state in it."""
        self._saved_step, self._saved_at = step, time.monotonic()
        state = self._engine.state() if self._history is not None else {}
        if self._history is not None:
            if not all(np.isfinite(values).all() for values in state.values()):  # the losses are of before the update
                raise InputError(
                    f"a weight is not a finite number after step {step}; lower --learning-rate, or give a warm-up; "
                    f"last good checkpoint: {self._checkpoints.last_named()}"
                )
            facts = {"replicas": self._engine.replicas, "seconds": self._seconds}
            self._checkpoints.save(state, step=step, facts=facts)
        return state

    def _stop(self, step: int) -> None:
        """Save and leave, as a signal asked, perhaps of another worker."""
        if self._saved_step != step:
            self._save(step)
        self._checkpoints.wait()
        if not self._alone:
            self._engine.total(0.0)  # the others wait until it is written
        print(f"stopped at step {step} as told, and saved; the same command goes on from there", flush=True)
        raise SystemExit(130 if self._signal == signal.SIGINT else PREEMPTED)

    @contextmanager
    def told_by_signals(self) -> Iterator[None]:
        """Note SIGTERM and SIGINT, to stop after the step; a second SIGINT stops at once."""

        def note(number: int, _: FrameType | None) -> None:
            if number == signal.SIGINT and self._signal is not None:
                raise KeyboardInterrupt
            self._signal = number

        if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
            yield
            return
        before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
