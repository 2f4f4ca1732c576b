"""The steps of a training, and what happens between them: guards, ends of epochs, checkpoints, reasons to stop."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from training.configs import RunOptions
from training.engine.step import Engine, State
from training.engine.strategies import Team
from training.models.base import Guard, LossTable
from training.nodes.workers import PREEMPTED
from training.run.checkpoints import Checkpoints
from training.run.evaluations import Evaluations
from training.run.history import ProgressBar

# How many steps one call does in the graph. On a processor a step takes far longer than a call, so one is enough.
_STEPS_A_CALL = 10
_STEPS_A_CALL_ON_PROCESSORS = 1


class Loop:
    """Trains `engine` to its last step, or until there is a reason to stop.

    The chief of the `team` writes `checkpoints` and the history of `evaluations`; the other workers compute. `seconds`
    of the present epoch have passed before this process began.
    """

    def __init__(
        self,
        engine: Engine,
        checkpoints: Checkpoints,
        evaluations: Evaluations,
        options: RunOptions,
        team: Team,
        *,
        signals: Sequence[int],
        seconds: float,
    ) -> None:
        self.engine = engine
        self._checkpoints, self._evaluations, self._options, self._signals = checkpoints, evaluations, options, signals
        self._team, self._seconds = team, seconds
        self._progress = ProgressBar(engine)
        self._guards = Guards(engine.model.guards)
        self._saved_step, self._saved_at = engine.step, time.monotonic()
        self._began_at = time.monotonic()

    def run(self) -> None:
        """Train to the end, unless the patience of the training is over already."""
        with closing(self._progress):
            if self._signals and self._team.alone:
                self._stop(self.engine.step)
            if self.engine.step % self.engine.steps_an_epoch or not self._evaluations.patience_is_over():
                self.steps()

    def steps(self) -> None:
        """Do all steps, several in a call; no call goes beyond the end of an epoch."""
        engine = self.engine
        steps_a_call = _STEPS_A_CALL_ON_PROCESSORS if engine.on_processors else _STEPS_A_CALL
        batches = iter(engine.batches())
        while (step := engine.step) < engine.last_step:
            epoch_end = (step // engine.steps_an_epoch + 1) * engine.steps_an_epoch
            steps = min(steps_a_call, min(epoch_end, engine.last_step) - step)
            if self.after(*engine.run(batches, steps, stop=bool(self._signals))):
                return

    def after(self, losses: npt.NDArray[np.float32], stop: bool) -> bool:
        """Do what follows a call of steps, whose last step had these `losses`; returns whether it was the last call.

        `stop` says that a worker was asked to stop; then SystemExit is raised.
        """
        engine, step = self.engine, self.engine.step
        self._seconds += time.monotonic() - self._began_at
        self._guards.check(engine.table(losses), step=step, last_good=self._checkpoints.last_named)
        self._progress.update(losses)
        over = False
        if step % engine.steps_an_epoch == 0 or step == engine.last_step:
            self._end_epoch(step)
            over = self._evaluations.patience_is_over()
        elif self._due(step):
            self._save(step)
        if stop or (self._team.alone and bool(self._signals)):
            self._stop(step)
        self._began_at = time.monotonic()
        return over

    def _end_epoch(self, step: int) -> None:
        """Note the epoch in the history. If it is due, save a checkpoint and evaluate the model."""
        engine = self.engine
        steps = (step - 1) % engine.steps_an_epoch + 1
        means = engine.take_sums() / steps
        seconds, self._seconds = self._seconds, 0.0
        if self._evaluations.history is not None:
            self._evaluations.history.add(
                {
                    "epoch": -(-step // engine.steps_an_epoch),
                    "step": step,
                    "seconds": seconds,
                    "images_per_s": steps * engine.global_batch / seconds,
                    "learning_rate": engine.learning_rate(),
                    "train": engine.table(means),
                }
            )
        if self._evaluations.due(step) or self._due(step):
            self._evaluations.evaluate(self._save(step))  # saved first: evaluation takes long, and may end the training

    def _due(self, step: int) -> bool:
        """Whether a checkpoint is due, apart from ends of epochs."""
        every = self._options.checkpoint_steps
        passed = bool(every) and step // every > self._saved_step // every
        return passed or time.monotonic() - self._saved_at > self._options.checkpoint_seconds

    def _save(self, step: int) -> State:
        """Write a checkpoint; returns the state in it."""
        self._saved_step, self._saved_at = step, time.monotonic()
        state = self.engine.state()
        if not all(np.isfinite(values).all() for values in state.values()):  # losses were computed before the update
            raise InputError(
                f"a weight is not a finite number after step {step}; lower --learning-rate, or give a warm-up; "
                f"last good checkpoint: {self._checkpoints.last_named()}"
            )
        self._checkpoints.save(state, step=step, facts={"replicas": self.engine.replicas, "seconds": self._seconds})
        return state

    def _stop(self, step: int) -> None:
        """Save and end the process, because a signal asked this or another worker to stop."""
        if self._saved_step != step:
            self._save(step)
        self._checkpoints.wait()
        self._team.wait()  # until the chief has written it
        print(f"stopped at step {step} as told, and saved; the same command goes on from there", flush=True)
        raise SystemExit(130 if signal.SIGINT in self._signals[-1:] else PREEMPTED)


class Guards:
    """Watches the losses by a model's `guards`. Only `patience` checks in a row are a failure: a bad batch is none."""

    def __init__(self, guards: Sequence[Guard], patience: int = 100) -> None:
        self._guards, self._patience = guards, patience
        self._figures: list[list[float]] = [[] for _ in guards]  # for each guard, of the checks in a row that failed

    def check(self, table: LossTable, *, step: int, last_good: Callable[[], str]) -> None:
        """Raise InputError, which names the checkpoint `last_good`, if the training has failed at `step`."""
        losses = [(f"{phase} {name}", value) for phase, row in table.items() for name, value in row.items()]
        if bad := [name for name, value in losses if not (math.isfinite(value) or name.endswith(" total"))]:
            raise InputError(
                f"a loss is not a finite number at step {step} ({', '.join(bad)}); lower --learning-rate, or give a "
                f"warm-up; last good checkpoint: {last_good()}"
            )
        for guard, figures in zip(self._guards, self._figures, strict=True):
            if not guard.failing(table):
                figures.clear()
                continue
            figures.append(guard.improving(table) if guard.improving else 0.0)
            if len(figures) < self._patience:
                continue
            if guard.improving and _falls(figures):
                figures.clear()
                continue
            raise InputError(
                f"{guard.failure}, in {self._patience} checks up to step {step}; lower --learning-rate; last good "
                f"checkpoint: {last_good()}"
            )


def _falls(figures: Sequence[float]) -> bool:
    """Whether the mean of the second half of `figures` is below that of the first, by more than two errors."""
    early, late = np.array_split(np.array(figures), 2)
    noise = math.hypot(early.std() / math.sqrt(early.size), late.std() / math.sqrt(late.size))
    return float(early.mean() - late.mean()) > 2 * noise
