"""What stops a training that has failed: it would not recover, and every further step is wasted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from calopipe.errors import InputError
from training.models.base import Guard, LossTable


class Guards:
    """Watches the losses by a model's `guards`. A failure lasts `patience` checks in a row: a bad batch is none."""

    def __init__(self, guards: Sequence[Guard], patience: int = 100) -> None:
        self._guards, self._patience = guards, patience
        self._figures: list[list[float]] = [[] for _ in guards]  # of the checks in a row at which each fails

    def check(
        self, losses: npt.NDArray[np.float32], table: LossTable, *, step: int, last_good: Callable[[], str]
    ) -> None:
        """Raise InputError, which names `last_good`, where the training has failed at `step`."""
        if not np.isfinite(losses).all():
            names = ", ".join(
                f"{phase} {name}" for phase, row in table.items() for name, value in row.items()
                if name != "total" and not math.isfinite(value)
            )  # fmt: skip
            raise InputError(
                f"a loss is not a finite number at step {step} ({names}); lower --learning-rate, or give a warm-up; "
                f"last good checkpoint: {last_good()}"
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
    """Whether `figures` are lower in their second half than in their first, by more than their noise."""
    early, late = np.array_split(np.array(figures), 2)
    if late.size == 0:
        return False
    noise = math.hypot(early.std() / math.sqrt(early.size), late.std() / math.sqrt(late.size))
    return float(early.mean() - late.mean()) > 2 * noise
