"""The evaluations of a training on the validation split: when one is due, what it finds, when patience is over."""

from __future__ import annotations

import logging
import math
import time

from calopipe.errors import InputError
from training.engine.step import Engine, State
from training.engine.strategies import Team
from training.run.checkpoints import Checkpoints
from training.run.evaluator import Evaluation, Evaluator
from training.run.history import History

logger = logging.getLogger(__name__)

CHOSEN_BY = "validation"  # the split that evaluations use; the test split is only for the verdict
_DRAWN_SECONDS = 60.0  # at least, between two drawings for TensorBoard; a drawing takes a second
_AT_MOST = 3  # how often the evaluation of an epoch is begun, if it fails or is killed


class Evaluations:
    """The evaluations of the model of `engine`, which the `team` makes together; only its chief has the `history`."""

    def __init__(
        self, engine: Engine, evaluator: Evaluator, history: History | None, checkpoints: Checkpoints, team: Team
    ) -> None:
        self._engine, self._evaluator, self.history, self._checkpoints = engine, evaluator, history, checkpoints
        self._team, self._drawn_at = team, time.monotonic()
        if history is None:
            return
        if not history.entries:
            history.add({"epoch": 0, "step": 0})
        if evaluator.showers == 0:
            logger.warning("the %s split holds no showers: the last epoch's model is kept; give more input", CHOSEN_BY)

    def due(self, step: int) -> bool:
        """Whether the model is evaluated at the end of the epoch that `step` ends."""
        return self._engine.config.is_evaluated(step, self._engine.steps_an_epoch)

    def evaluate(self, state: State) -> None:
        """Evaluate the model in `state`, of the last epoch in the history, if this is due and not done yet."""
        step = self._engine.step
        if not self.due(step):
            return
        if not self._team.agree(self.history is not None and self._begin(self.history, step)):
            return
        self._evaluator.take_over(state)
        evaluation = self._evaluator.evaluate()
        if self.history is not None:
            self._note(self.history, step, evaluation)

    def _begin(self, history: History, step: int) -> bool:
        """Note that an evaluation of the last epoch begins. False if it is done, began too often, or has no showers."""
        entry = history.entries[-1]
        if entry["step"] != step or CHOSEN_BY in entry:
            return False
        begun = entry.get("evaluations_begun", [])
        if len(begun) == _AT_MOST:
            logger.warning("step %d: the model is not judged; %d evaluations began, and none ended", step, len(begun))
            return False
        if self._evaluator.showers == 0:
            history.amend({CHOSEN_BY: {}})
            return False
        history.amend({"evaluations_begun": [*begun, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())]})
        return True

    def _note(self, history: History, step: int, evaluation: Evaluation) -> None:
        if step == self._engine.last_step or time.monotonic() - self._drawn_at > _DRAWN_SECONDS:
            history.draw(evaluation.judge.figures())
            self._drawn_at = time.monotonic()
        if bad := [name for name, value in evaluation.losses.items() if not math.isfinite(value)]:
            raise InputError(
                f"step {step}: {bad[0]} on the {CHOSEN_BY} split is {evaluation.losses[bad[0]]}, expected a finite "
                "number; lower --learning-rate"
            )
        self._checkpoints.mark(step, self._evaluator.score(evaluation))
        sample = {"showers": self._evaluator.showers, "one_of": self._evaluator.every}
        history.amend(
            {
                CHOSEN_BY: evaluation.losses,
                **evaluation.findings,
                "evaluated": sample,
                "evaluation_seconds": evaluation.seconds,
                "evaluations_begun": None,
            }
        )

    def patience_is_over(self) -> bool:
        """Whether the score has not improved for `patience` epochs; the chief decides for all workers."""
        if not self._engine.config.patience:
            return False
        return self._team.agree(self.history is not None and self._no_better(self.history))

    def _no_better(self, history: History) -> bool:
        engine, patience = self._engine, self._engine.config.patience
        self._checkpoints.wait()
        best_step, value = self._checkpoints.best_metric()
        judged = max((entry["step"] for entry in history.entries if CHOSEN_BY in entry), default=0)
        over = math.isfinite(value) and judged - best_step >= patience * engine.steps_an_epoch
        if over:
            print(f"no better metric for {patience} epochs since step {best_step}: {value:.4g}", flush=True)
        return over
